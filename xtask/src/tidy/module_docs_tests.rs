use super::*;

#[test]
fn sources_without_a_start_are_found_and_tests_need_none() {
    let survey = Survey::of(&[
        ("a/Cargo.toml", "[package]\nname = \"a\"\n"),
        ("a/src/lib.rs", "//! What it is for.\nmod bare;\nmod late;\n#[cfg(test)] mod oracle;\n"),
        ("a/src/bare.rs", "fn f() {}\n"),
        ("a/src/late.rs", "\n//! Not the first line.\n"),
        ("a/src/bare_tests.rs", "fn f() {}\n"),
        ("a/src/oracle.rs", "fn f() {}\n"),
        ("a/tests/whole.rs", "fn f() {}\n"),
    ]);
    let found: Vec<_> = check(&survey).into_iter().map(|found| found.path).collect();
    assert_eq!(found, ["a/src/bare.rs", "a/src/late.rs"]);
}
