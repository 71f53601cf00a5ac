use super::*;

#[test]
fn times_have_a_fitting_unit() {
    assert_eq!(format_us(12.3), "12 us");
    assert_eq!(format_us(1300.0), "1.3 ms");
    assert_eq!(format_us(250_000.0), "250 ms");
}

#[test]
fn ages_have_a_fitting_unit() {
    let cases = [(119_999, "119 s"), (120_000, "2 min"), (7_200_000, "2 h"), (172_800_000, "2 d")];
    for (ms, expected) in cases {
        assert_eq!(age_text(ms), expected);
    }
}

#[test]
fn things_are_counted() {
    assert_eq!(counted(1, "node"), "1 node");
    assert_eq!(counted(0, "node"), "0 nodes");
    assert_eq!(percent(1, 4), "25 %");
    assert_eq!(percent(0, 0), "-");
}

#[test]
fn a_shell_reads_what_was_meant() {
    assert_eq!(quoted("/x/y"), "/x/y");
    assert_eq!(quoted("nbd+unix:///v?socket=/x"), "'nbd+unix:///v?socket=/x'");
    assert_eq!(quoted("it's"), r"'it'\''s'");
    assert_eq!(quoted(""), "''");
}
