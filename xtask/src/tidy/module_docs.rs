//! Every source that ships starts by saying what it is for: its first line begins with `//!`.

use super::finding::Finding;
use super::survey::Survey;

/// Checks every source that is not a test.
pub fn check(survey: &Survey) -> Vec<Finding> {
    survey
        .repository
        .texts_ending(".rs")
        .filter(|(path, text)| !survey.is_test(path) && !text.starts_with("//!"))
        .map(|(path, _)| {
            Finding::new(
                path,
                1,
                "the file does not start with `//!`",
                "a reader asks first what it is for and what always holds in it",
                "say so in its first lines",
            )
        })
        .collect()
}

#[cfg(test)]
#[path = "module_docs_tests.rs"]
mod tests;
