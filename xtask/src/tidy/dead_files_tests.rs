use super::*;

fn dead(files: &[(&str, &str)]) -> Vec<String> {
    check(&Survey::of(files)).into_iter().map(|found| found.path).collect()
}

#[test]
fn sources_that_no_crate_compiles_are_found() {
    let files = [
        ("a/Cargo.toml", "[package]\nname = \"a\"\n"),
        ("a/src/lib.rs", "mod used;\n#[cfg(test)] #[path = \"used_tests.rs\"] mod tests;"),
        ("a/src/used.rs", ""),
        ("a/src/used_tests.rs", ""),
        ("a/src/forgotten.rs", ""),
        ("a/src/forgotten_tests.rs", ""),
        ("scripts/loose.rs", ""),
    ];
    assert_eq!(dead(&files), ["a/src/forgotten.rs", "a/src/forgotten_tests.rs", "scripts/loose.rs"]);
}

#[test]
fn documents_that_no_link_leads_to_are_found() {
    let files = [
        (
            "README.md",
            "[guide](docs/guide.md#start), ```[no](docs/in-code.md)```, [x](https://example.org/docs/far.md)",
        ),
        ("docs/guide.md", "[further](internals/further.md) [gone](missing.md)"),
        ("docs/internals/further.md", "[back](../../README.md)"),
        ("docs/in-code.md", ""),
        ("docs/far.md", ""),
        // They link each other, but nothing leads there.
        ("docs/island-one.md", "[two](island-two.md)"),
        ("docs/island-two.md", "[one](island-one.md)"),
    ];
    assert_eq!(dead(&files), ["docs/far.md", "docs/in-code.md", "docs/island-one.md", "docs/island-two.md"]);
}

#[test]
fn a_link_to_a_folder_leads_to_its_readme() {
    let files = [("README.md", "[decisions](docs/decisions/)"), ("docs/decisions/README.md", "")];
    assert_eq!(dead(&files), [] as [&str; 0]);
}
