use super::*;

const CLEAN: [(&str, &str); 5] = [
    ("Cargo.toml", "[workspace]\nmembers = [\"crates/shared\"]\n"),
    ("README.md", "[guide](docs/guide.md)\n"),
    ("docs/guide.md", "`crates/shared/src/lib.rs`\n"),
    ("crates/shared/Cargo.toml", "[package]\nname = \"shared\"\n[lints]\nworkspace = true\n"),
    ("crates/shared/src/lib.rs", "//! Shared.\n"),
];

/// What is found when `planted` is added to a clean repository or replaces a file of it.
fn found_with(planted: (&str, &str)) -> Vec<String> {
    let kept = CLEAN.into_iter().filter(|(path, _)| *path != planted.0);
    let files: Vec<_> = kept.chain([planted]).collect();
    all_findings(Repository::of(&files)).1.iter().map(ToString::to_string).collect()
}

#[test]
fn a_clean_repository_has_no_findings() {
    assert_eq!(all_findings(Repository::of(&CLEAN)).1, []);
}

/// Each check is asked: a breach of each rule is found, alone.
#[test]
fn a_breach_of_each_rule_is_found() {
    let planted = [
        (("crates/shared/Cargo.toml", "[package]\nname = \"shared\"\n"), "does not inherit"),
        (("crates/shared/src/lib.rs", "//! Shared.\nuse std::fs;\n"), "`std::fs` stands here"),
        (("crates/shared/src/loose.rs", "//! Loose.\n"), "no crate compiles"),
        (("README.md", "[guide](docs/guide.md) [x](docs/none.md)\n"), "leads nowhere"),
        (("crates/data-path/frontend/src/nbd.md", "x\n"), "no chain of links"),
        (("LICENSE", "x"), "no line end"),
        (("crates/shared/src/lib.rs", "mod x;\n"), "does not start with"),
        (("crates/shared/src/lib.rs", "//! Shared.\nfn {\n"), "not Rust"),
        (("crates/shared/Cargo.toml", "[package\n"), "not TOML"),
    ];
    for (file, expected) in planted {
        let found = found_with(file);
        assert!(found.iter().any(|line| line.contains(expected)), "{file:?}: {found:?}");
    }
}

#[test]
fn a_finding_is_one_line_that_says_where_what_why_and_what_to_do() {
    let found = found_with(("crates/shared/src/lib.rs", "//! Shared.\n\nuse std::fs;\n"));
    assert_eq!(
        found,
        [
            "crates/shared/src/lib.rs:3: `std::fs` stands here (files rule); a simulated run must not touch the machine's \
          files; use Platform::open_drive"
        ]
    );
}

/// The project's own tools hold to its rules; the rest of the tree is checked by `cargo xtask ci`.
#[test]
fn the_tools_themselves_are_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (_, findings) = all_findings(Repository::read(root).unwrap());
    let own: Vec<_> = findings.into_iter().filter(|found| found.path.starts_with("xtask/")).collect();
    assert_eq!(own, []);
}
