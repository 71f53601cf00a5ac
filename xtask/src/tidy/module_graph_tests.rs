use super::super::survey::Survey;

const MANIFEST: (&str, &str) = ("a/Cargo.toml", "[package]\nname = \"a\"\n");

#[test]
fn modules_are_followed_as_the_compiler_does() {
    let survey = Survey::of(&[
        MANIFEST,
        ("a/src/lib.rs", "mod beside; mod folder; mod inline { mod deep; #[path = \"odd.rs\"] mod x; }"),
        ("a/src/beside.rs", "mod below; #[path = \"elsewhere.rs\"] mod y; mod inner { mod deeper; }"),
        ("a/src/beside/below.rs", ""),
        ("a/src/beside/inner/deeper.rs", ""),
        ("a/src/elsewhere.rs", "mod next_to_elsewhere;"),
        ("a/src/next_to_elsewhere.rs", "include!(\"../table.rs\");"),
        ("a/table.rs", ""),
        ("a/src/folder/mod.rs", "mod within;"),
        ("a/src/folder/within.rs", ""),
        ("a/src/inline/deep.rs", ""),
        ("a/src/inline/odd.rs", ""),
        ("a/src/bin/tool.rs", ""),
        ("a/src/bin/other/main.rs", "mod helper;"),
        ("a/src/bin/other/helper.rs", ""),
    ]);
    for path in survey.sources.keys() {
        assert!(survey.modules.reaches(path), "{path}");
        assert!(!survey.modules.is_test_only(path), "{path}");
    }
}

#[test]
fn files_without_a_way_to_them_are_not_reached() {
    let survey = Survey::of(&[
        MANIFEST,
        ("a/src/lib.rs", "mod used; // mod unused;"),
        ("a/src/used.rs", ""),
        ("a/src/unused.rs", "mod below;"),
        ("a/src/unused/below.rs", ""),
        ("a/src/used_tests.rs", ""),
        ("elsewhere/src/lib.rs", ""),
    ]);
    for path in ["a/src/unused.rs", "a/src/unused/below.rs", "a/src/used_tests.rs", "elsewhere/src/lib.rs"] {
        assert!(!survey.modules.reaches(path), "{path}");
    }
}

#[test]
fn what_is_for_tests_is_known_and_one_other_way_is_enough() {
    let survey = Survey::of(&[
        ("a/Cargo.toml", "[package]\nname = \"a\"\n[[test]]\nname = \"t\"\npath = \"checks/t.rs\"\n"),
        (
            "a/src/lib.rs",
            "#[cfg(test)] mod oracle; #[cfg(test)] mod wrapped { #[path = \"../shared.rs\"] mod s; } mod shared;",
        ),
        ("a/src/oracle.rs", "mod part;"),
        ("a/src/oracle/part.rs", ""),
        ("a/src/shared.rs", "mod below;"),
        ("a/src/shared/below.rs", ""),
        ("a/tests/whole.rs", ""),
        ("a/checks/t.rs", ""),
    ]);
    for path in ["a/src/oracle.rs", "a/src/oracle/part.rs", "a/tests/whole.rs", "a/checks/t.rs"] {
        assert!(survey.modules.is_test_only(path), "{path}");
    }
    for path in ["a/src/lib.rs", "a/src/shared.rs", "a/src/shared/below.rs"] {
        assert!(survey.modules.reaches(path) && !survey.modules.is_test_only(path), "{path}");
    }
}
