use super::*;

#[test]
fn a_refusal_shows_the_arithmetic() {
    let nodes = vec![("n1".to_owned(), 14), ("n2".to_owned(), 14), ("n3".to_owned(), 0)];
    let lack = Shortage { needed: 15, slabs: 5, copies: 3, room: 10, nodes };
    let error = needed("DRIVE_NEEDED", "drive n3-d1 is not retired", &lack);
    assert_eq!((error.code.as_str(), error.what.as_str()), ("DRIVE_NEEDED", "drive n3-d1 is not retired"));
    for words in
        ["of 5 slabs with 3 copies or more there are 15 copies", "room for 10 of these", "n1 14, n2 14, n3 0"]
    {
        assert!(error.why.contains(words), "{error}");
    }
}
