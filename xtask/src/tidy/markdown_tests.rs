use super::*;

fn targets(text: &str) -> Vec<(usize, String)> {
    Markdown::parse(text).links.into_iter().map(|link| (link.line, link.target)).collect()
}

fn spans(text: &str) -> Vec<(usize, String)> {
    Markdown::parse(text).code_spans.into_iter().map(|span| (span.line, span.text)).collect()
}

fn owned<const N: usize>(expected: [(usize, &str); N]) -> Vec<(usize, String)> {
    expected.into_iter().map(|(line, text)| (line, text.to_owned())).collect()
}

#[test]
fn links_of_every_form_are_found() {
    let text = "\
[one](a.md) ![picture](b.png \"title\")
[over two
lines](c.md#part) <a href=\"d.md\">d</a> <img src=\"e.svg\">
[reference]: f.md
[angled](<g.md>)
";
    assert_eq!(
        targets(text),
        owned([
            (1, "a.md"),
            (1, "b.png"),
            (3, "c.md#part"),
            (3, "d.md"),
            (3, "e.svg"),
            (4, "f.md"),
            (5, "g.md")
        ])
    );
}

#[test]
fn code_counts_for_no_link() {
    assert_eq!(
        targets("`[a](b.md)` and ``[`a`](b.md)``\n```\n[a](b.md)\n```\n~~~ text\n[a](b.md)\n```\n~~~\n"),
        []
    );
    assert_eq!(targets("a ` alone [a](b.md)\n\nanother ` here\n"), owned([(1, "b.md")]));
}

#[test]
fn code_spans_know_their_line() {
    let text = "`one` é `two\nand more` ``three ` four``\n```sh\n`five`\n```\n`six`\n";
    assert_eq!(spans(text), owned([(1, "one"), (1, "two and more"), (2, "three ` four"), (6, "six")]));
}

#[test]
fn headings_become_anchors() {
    let markdown = Markdown::parse(
        "# The `spandrel up` command: what's new?\n## Twice\n## Twice\n#no heading\n```\n# no\n```\n<a id=\"own\"></a>\n",
    );
    let expected = ["own", "the-spandrel-up-command-whats-new", "twice", "twice-1"];
    assert_eq!(markdown.anchors.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn numbered_items_reach_to_their_end() {
    let text = "1. one\n   more\n2. two\n\nnot an item\n   10. inner\n- no\n# Heading\nno\n2.no\n";
    assert_eq!(Markdown::parse(text).numbered_items, [(1, 2), (3, 3), (6, 7)]);
}

#[test]
fn targets_become_paths() {
    let path = |target| link_path("docs/guide/a.md", target);
    assert_eq!(path("b.md#x").as_deref(), Some("docs/guide/b.md"));
    assert_eq!(path("../c/").as_deref(), Some("docs/c"));
    assert_eq!(path("#x").as_deref(), Some("docs/guide/a.md"));
    assert_eq!(path("https://example.org"), None);
    assert_eq!(path("mailto:a@example.org"), None);
    assert_eq!(path("../../../x"), None);
}
