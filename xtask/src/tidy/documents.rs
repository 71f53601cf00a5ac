//! What documents point at must be there: relative links with their anchors, and the paths of this
//! repository that stand in backticks.
//!
//! Decision records are history: a path in one may be gone. Their links must hold all the same.

use std::collections::BTreeMap;

use super::finding::Finding;
use super::markdown::{CodeSpan, Link, Markdown, leads_to_a_site, link_path};
use super::survey::Survey;

const RECORDS: &str = "docs/decisions/";

/// Checks every document.
pub fn check(survey: &Survey) -> Vec<Finding> {
    let documents: BTreeMap<&str, Markdown> =
        survey.repository.texts_ending(".md").map(|(path, text)| (path, Markdown::parse(text))).collect();
    let mut findings = Vec::new();
    for (path, markdown) in &documents {
        findings.extend(markdown.links.iter().filter_map(|link| check_link(survey, &documents, path, link)));
        if !path.starts_with(RECORDS) {
            findings.extend(markdown.code_spans.iter().filter_map(|span| check_path(survey, path, span)));
        }
    }
    findings
}

fn check_link(
    survey: &Survey,
    documents: &BTreeMap<&str, Markdown>,
    from: &str,
    link: &Link,
) -> Option<Finding> {
    if leads_to_a_site(&link.target) {
        return None;
    }
    let finding = |what: String| {
        Some(Finding::new(
            from,
            link.line,
            what,
            "the reader would be lost there",
            "correct the link or delete it",
        ))
    };
    let path = match link_path(from, &link.target) {
        Some(path) if survey.repository.has_path(&path) => path,
        _ => return finding(format!("the link to {:?} leads nowhere", link.target)),
    };
    let (_, anchor) = link.target.split_once('#')?;
    let document = documents.get(path.as_str())?;
    if document.anchors.contains(anchor) {
        return None;
    }
    finding(format!("{path} has no heading `#{anchor}`"))
}

/// Checks a code span, if it is a path of this repository: its first part is one of the root's
/// folders. `:12` may follow a path; what has any other character is not taken for one.
fn check_path(survey: &Survey, from: &str, span: &CodeSpan) -> Option<Finding> {
    let path = match span.text.rsplit_once(':') {
        Some((path, line)) if line.chars().all(|letter| letter.is_ascii_digit()) => path,
        _ => &span.text,
    };
    let (first, _) = path.split_once('/')?;
    let is_path = path.chars().all(|letter| letter.is_ascii_alphanumeric() || "/._-".contains(letter));
    if !is_path || first.is_empty() || !survey.repository.has_path(first) || first == "." || first == ".." {
        return None;
    }
    if survey.repository.has_path(path.trim_end_matches('/')) {
        return None;
    }
    Some(Finding::new(
        from,
        span.line,
        format!("`{path}` does not exist"),
        "the reader would look for it in vain",
        "correct the path or delete it",
    ))
}

#[cfg(test)]
#[path = "documents_tests.rs"]
mod tests;
