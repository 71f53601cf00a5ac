//! The largest files and functions, so that growth is seen and thought about. A report, no rule.

use std::fmt::Write as _;

use super::survey::Survey;

/// Files above this many lines are marked.
const FILE_LINES_USUAL: usize = 800;
/// Functions above this many lines are marked.
const FUNCTION_LINES_USUAL: usize = 70;

/// The `count` largest files and functions, largest first, as text.
pub fn report(survey: &Survey, count: usize) -> String {
    let files = survey.repository.texts_ending(".rs");
    let files = files.map(|(path, text)| (text.lines().count(), path.to_owned())).collect();
    let functions = survey.sources.iter().flat_map(|(path, source)| {
        source
            .functions
            .iter()
            .map(move |function| (function.lines, format!("{path}:{} {}", function.line, function.name)))
    });
    let mut report = String::new();
    list(&mut report, "files", files, FILE_LINES_USUAL, count);
    list(&mut report, "functions", functions.collect(), FUNCTION_LINES_USUAL, count);
    report
}

fn list(report: &mut String, kind: &str, mut all: Vec<(usize, String)>, usual: usize, count: usize) {
    all.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
    let above = all.iter().filter(|(lines, _)| *lines > usual).count();
    let _ = writeln!(report, "largest {kind} in lines ({above} of {} above {usual}, marked *):", all.len());
    for (lines, name) in all.iter().take(count) {
        let mark = if *lines > usual { '*' } else { ' ' };
        let _ = writeln!(report, "{lines:>7} {mark} {name}");
    }
}

#[cfg(test)]
#[path = "largest_tests.rs"]
mod tests;
