use super::*;

#[test]
fn good_names_pass_and_bad_ones_say_why() {
    for name in ["a", "vm-01", "Disk_2.old", "9lives", &"x".repeat(63)] {
        assert_eq!(validate_name("volume", name), Ok(()), "{name}");
    }
    let bad = [
        ("", "empty"),
        ("-a", "start"),
        ("a/b", "'/'"),
        ("ä", "start"),
        ("aä", "'ä'"),
        (&"x".repeat(64), "64"),
    ];
    for (name, reason) in bad {
        let error = validate_name("volume", name).unwrap_err();
        assert_eq!(error.code, "NAME_INVALID");
        assert!(error.why.contains(reason), "{name:?}: {}", error.why);
    }
}
