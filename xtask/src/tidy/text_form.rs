//! The form of every text file: no blanks at the end of a line, Unix line ends, one line end at
//! the end of the file, and no file so large that every clone would pay for it.

use super::finding::Finding;
use super::repository::{Contents, FILE_BYTES_MAX};
use super::survey::Survey;

/// Checks every file.
pub fn check(survey: &Survey) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, contents) in survey.repository.files() {
        match contents {
            Contents::Other => {}
            Contents::Text(text) => findings.extend(check_text(path, text)),
            Contents::TooLarge { bytes } => findings.push(Finding::new(
                path,
                1,
                format!("the file has {bytes} bytes, the limit is {FILE_BYTES_MAX}"),
                "every clone would carry it for ever",
                "make it at build time, shorten it, or add what it is to .gitignore",
            )),
        }
    }
    findings
}

fn check_text(path: &str, text: &str) -> Vec<Finding> {
    let finding = |line: usize, what: &str, fix: &str| {
        Finding::new(path, line, what, "it shows up as a change where nothing changed", fix)
    };
    let mut findings = Vec::new();
    for (index, line) in text.split('\n').enumerate() {
        if line.ends_with('\r') {
            findings.push(finding(
                index + 1,
                "the line ends in a carriage return",
                "end lines with LF alone",
            ));
        } else if line.ends_with([' ', '\t']) {
            findings.push(finding(index + 1, "the line ends in blanks", "delete them"));
        }
    }
    let lines = text.lines().count();
    if !text.is_empty() && !text.ends_with('\n') {
        findings.push(finding(lines, "the last line has no line end", "end the file with one"));
    } else if text.ends_with("\n\n") || text == "\n" {
        findings.push(finding(lines, "the file ends in empty lines", "delete them"));
    }
    findings
}

#[cfg(test)]
#[path = "text_form_tests.rs"]
mod tests;
