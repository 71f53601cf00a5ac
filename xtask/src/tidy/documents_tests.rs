use super::*;

/// The line and the fact of each finding in `docs/guide/a.md`, or in `path`.
fn wrong_in(path: &str, text: &str) -> Vec<(usize, String)> {
    let files = [
        ("README.md", "# Spandrel\n\n## What it is\n"),
        ("docs/guide/b.md", "# Start here\n"),
        ("crates/shared/src/lib.rs", ""),
        (path, text),
    ];
    check(&Survey::of(&files))
        .into_iter()
        .map(|found| {
            assert_eq!(found.path, path);
            (found.line, found.what)
        })
        .collect()
}

fn wrong(text: &str) -> Vec<(usize, String)> {
    wrong_in("docs/guide/a.md", text)
}

#[test]
fn links_that_hold_are_fine() {
    let text = "# Own\n[a](b.md) [b](b.md#start-here) [c](#own) [d](../../README.md#what-it-is) [e](../guide/)\n\
                [f](https://example.org/none#x) [g](../../crates/shared/src/lib.rs#L3)\n";
    assert_eq!(wrong(text), []);
}

#[test]
fn links_that_lead_nowhere_are_found() {
    assert_eq!(wrong("\n[a](missing.md)\n"), [(2, "the link to \"missing.md\" leads nowhere".to_owned())]);
    assert_eq!(
        wrong("[a](../../../x.md)\n"),
        [(1, "the link to \"../../../x.md\" leads nowhere".to_owned())]
    );
    assert_eq!(wrong("[a](b.md#gone)\n"), [(1, "docs/guide/b.md has no heading `#gone`".to_owned())]);
    assert_eq!(wrong("# Own\n[a](#other)\n"), [(2, "docs/guide/a.md has no heading `#other`".to_owned())]);
}

#[test]
fn paths_in_backticks_must_exist() {
    assert_eq!(wrong("`crates/shared/src/lib.rs`, `crates/shared/`, `crates/shared/src/lib.rs:12`\n"), []);
    assert_eq!(
        wrong("see\n`crates/shared/src/gone.rs:12`\n"),
        [(2, "`crates/shared/src/gone.rs` does not exist".to_owned())]
    );
    assert_eq!(wrong("`docs/none/`\n"), [(1, "`docs/none/` does not exist".to_owned())]);
}

#[test]
fn what_is_no_path_of_the_repository_is_left_alone() {
    assert_eq!(
        wrong("`target/debug/x` `/etc/x` `a/b` `crates/*/src` `crates/<name>/src` `iops/second` `../x`\n"),
        []
    );
    assert_eq!(wrong("```\ncrates/gone `crates/gone/x`\n```\n"), []);
}

#[test]
fn decision_records_may_name_what_is_gone_but_not_link_it() {
    assert_eq!(wrong_in("docs/decisions/0001.md", "`crates/gone/src` [a](0002.md)\n").len(), 1);
}
