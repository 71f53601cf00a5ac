use super::*;

#[test]
fn codes_have_the_status_that_suits_them() {
    assert_eq!(status_of("VOLUME_NOT_FOUND"), StatusCode::NOT_FOUND);
    assert_eq!(status_of("VOLUME_EXISTS"), StatusCode::CONFLICT);
    assert_eq!(status_of("SIZE_ZERO"), StatusCode::BAD_REQUEST);
    assert_eq!(status_of("POOL_FULL"), StatusCode::INSUFFICIENT_STORAGE);
    assert_eq!(status_of("WHAT_NOBODY_EXPECTS"), StatusCode::INTERNAL_SERVER_ERROR);
}
