//! Files that nothing leads to: sources no crate compiles, documents no other document links.
//!
//! Both rot unseen: no test runs them and no reader finds them.

use std::collections::BTreeSet;

use super::finding::Finding;
use super::markdown::{Markdown, link_path};
use super::survey::Survey;

/// Checks every `.rs` and every `.md` file.
pub fn check(survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, _) in survey.repository.texts_ending(".rs") {
        if !survey.modules.reaches(path) {
            findings.push(Finding::new(
                path,
                1,
                "no crate compiles this file",
                "it rots unseen",
                "declare it with `mod` where it belongs, or delete it",
            ));
        }
    }
    let linked = linked_documents(survey);
    for (path, _) in survey.repository.texts_ending(".md") {
        if !linked.contains(path) {
            findings.push(Finding::new(
                path,
                1,
                "no chain of links leads here from a document in the root folder",
                "nobody will find it",
                "link it where its reader comes from, or delete it",
            ));
        }
    }
    findings
}

/// The documents of the root folder and all that their links lead to.
fn linked_documents(survey: &Survey) -> BTreeSet<String> {
    let documents = survey.repository.texts_ending(".md").map(|(path, _)| path);
    let mut open: Vec<String> = documents.filter(|path| !path.contains('/')).map(str::to_owned).collect();
    let mut linked = BTreeSet::new();
    while let Some(path) = open.pop() {
        // A link to a folder is one to its README.
        let path = if path.ends_with(".md") { path } else { format!("{path}/README.md") };
        let Some(text) = survey.repository.text(&path) else { continue };
        if linked.insert(path.clone()) {
            let links = Markdown::parse(text).links;
            open.extend(links.iter().filter_map(|link| link_path(&path, &link.target)));
        }
    }
    linked
}

#[cfg(test)]
#[path = "dead_files_tests.rs"]
mod tests;
