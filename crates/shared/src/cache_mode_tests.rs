use super::*;

#[test]
fn a_mode_is_read_as_it_is_written() {
    for mode in CacheMode::ALL {
        assert_eq!(mode.to_string().parse(), Ok(mode));
    }
    let error = "both".parse::<CacheMode>().unwrap_err();
    assert!(error.contains("read-write, write-only, read-only, off"), "{error}");
}
