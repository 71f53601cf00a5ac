//! `cargo xtask tidy`: the rules of this repository that no compiler knows.
//!
//! Each check is a module with one function from a [`survey::Survey`] to findings; all of them run, and all
//! findings are shown, one per line. To add a rule, add a module and its line in [`CHECKS`].

mod banned_code;
mod dead_files;
mod dependency_rule;
mod documents;
mod finding;
mod largest;
mod layers;
mod manifests;
mod markdown;
mod module_docs;
mod module_graph;
mod repository;
mod rust_source;
mod survey;
mod text_form;
mod write_path;

use std::path::Path;

use finding::Finding;
use repository::Repository;
use survey::Survey;

type Check = fn(&Survey) -> Vec<Finding>;

const CHECKS: [Check; 7] = [
    dependency_rule::check,
    banned_code::check,
    dead_files::check,
    documents::check,
    write_path::check,
    text_form::check,
    module_docs::check,
];

/// Checks the repository at `root` and prints the findings and the `largest` files and functions.
/// Returns whether there was no finding.
///
/// # Errors
/// When the repository cannot be read.
pub fn run(root: &Path, largest: usize) -> Result<bool, String> {
    let repository =
        Repository::read(root).map_err(|error| format!("{} cannot be read: {error}", root.display()))?;
    let files = repository.files().count();
    let (survey, findings) = all_findings(repository);
    print!("{}", largest::report(&survey, largest));
    for finding in &findings {
        println!("{finding}");
    }
    match findings.len() {
        0 => println!("tidy: {files} files, no findings"),
        count => println!("tidy: {files} files, {count} finding{}", if count == 1 { "" } else { "s" }),
    }
    Ok(findings.is_empty())
}

/// What all checks have to say, by place.
fn all_findings(repository: Repository) -> (Survey, Vec<Finding>) {
    let (survey, mut findings) = Survey::new(repository);
    findings.extend(CHECKS.iter().flat_map(|check| check(&survey)));
    findings.sort();
    (survey, findings)
}

#[cfg(test)]
#[path = "tidy_tests.rs"]
mod tests;
