//! `docs/internals/write-path.md` must be true: it lists, in order, the functions that one write
//! passes, and each must be where the document says.
//!
//! A step is an item of a numbered list: its first code span that ends in `.rs` names the file, the
//! span after that the function, as `function` or `Type::function`. The document is required once
//! the front-end has code beyond its `lib.rs`.

use super::finding::Finding;
use super::markdown::Markdown;
use super::survey::Survey;

const DOCUMENT: &str = "docs/internals/write-path.md";
const FRONTEND: &str = "crates/data-path/frontend/src";

/// Checks every step of the document.
pub fn check(survey: &Survey) -> Vec<Finding> {
    let Some(text) = survey.repository.text(DOCUMENT) else {
        return missing(survey);
    };
    let markdown = Markdown::parse(text);
    if markdown.numbered_items.is_empty() {
        return vec![Finding::new(
            DOCUMENT,
            1,
            "it lists no step",
            "a newcomer reads the data path along it",
            "number the functions that a write passes: 1. `path/to/file.rs` `Type::function`",
        )];
    }
    markdown.numbered_items.iter().filter_map(|&lines| check_step(survey, &markdown, lines)).collect()
}

/// Checks the item that reaches from the line `first` to the line `last`.
fn check_step(survey: &Survey, markdown: &Markdown, (first, last): (usize, usize)) -> Option<Finding> {
    let finding = |what: String| {
        Some(Finding::new(
            DOCUMENT,
            first,
            what,
            "the path of a write must be true to the code",
            "write the step as the code is now: `path/to/file.rs` `Type::function`",
        ))
    };
    let mut spans = markdown
        .code_spans
        .iter()
        .filter(|span| (first..=last).contains(&span.line))
        .map(|span| span.text.as_str());
    let (Some(file), Some(function)) = (spans.find(|text| text.ends_with(".rs")), spans.next()) else {
        return finding("this step does not name a file and a function".to_owned());
    };
    let Some(source) = survey.sources.get(file) else {
        return finding(format!("there is no {file}"));
    };
    if source.defines(function.trim_end_matches("()")) {
        return None;
    }
    finding(format!("{file} does not define {function}"))
}

fn missing(survey: &Survey) -> Vec<Finding> {
    let lib = format!("{FRONTEND}/lib.rs");
    let begun = survey.repository.files_below(FRONTEND).any(|path| path != lib);
    let finding = || {
        Finding::new(
            DOCUMENT,
            1,
            "it is missing",
            "a newcomer reads the data path along it",
            "list in order the functions that a write passes, as 1. `path/to/file.rs` `Type::function`",
        )
    };
    begun.then(finding).into_iter().collect()
}

#[cfg(test)]
#[path = "write_path_tests.rs"]
mod tests;
