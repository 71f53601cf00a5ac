use super::IdleMark;

#[test]
fn copies_are_told_once_after_a_rest() {
    let mark = IdleMark::new();
    assert!(!mark.look(|| true), "nothing was written");
    mark.renew();
    assert!(!mark.look(|| true), "it may have been written to just now");
    assert!(mark.look(|| true));
    assert!(!mark.look(|| true), "they know it");
}

#[test]
fn a_volume_that_is_written_to_has_no_rest() {
    let mark = IdleMark::new();
    for _ in 0..3 {
        mark.renew();
        assert!(!mark.look(|| true));
    }
}

#[test]
fn a_mark_that_does_not_cover_all_is_not_told() {
    let mark = IdleMark::new();
    mark.renew();
    assert!(!mark.look(|| false));
    assert!(!mark.look(|| false), "a write is under way");
    assert!(mark.look(|| true));
}
