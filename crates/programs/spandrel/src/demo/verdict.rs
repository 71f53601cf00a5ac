//! Whether everything that the demonstration shows held.

use std::time::Duration;

use spandrel_fleet::SweepResult;

use crate::table::count_text;

/// What was claimed, what was found, and whether they agree.
#[derive(Debug, Default)]
pub struct Verdict {
    findings: Vec<Finding>,
}

#[derive(Debug)]
struct Finding {
    holds: bool,
    text: String,
}

impl Verdict {
    /// Adds something that was found.
    pub fn add(&mut self, holds: bool, text: impl Into<String>) {
        self.findings.push(Finding { holds, text: text.into() });
    }

    /// Takes in a sweep: every cell ran, and nothing failed.
    pub fn take_sweep(&mut self, result: &SweepResult) {
        let cells = result.spec.cells().len();
        let failed: u64 = result.rows.iter().map(|row| row.cell.errors + row.cell.unanswered).sum();
        let count: u64 = result.rows.iter().map(|row| row.cell.total.count).sum();
        let ran = format!("the sweep ran {} of {cells} cells", result.rows.len());
        self.add(
            result.rows.len() == cells && failed == 0 && count > 0,
            format!("{ran}; of {} I/Os {} failed", count_text(count), count_text(failed)),
        );
    }

    /// Whether everything held.
    pub fn is_good(&self) -> bool {
        !self.findings.is_empty() && self.findings.iter().all(|finding| finding.holds)
    }

    /// The findings, line by line.
    pub fn render(&self, took: Duration) -> String {
        let mut text = String::new();
        for finding in &self.findings {
            let mark = if finding.holds { "ok    " } else { "FAILED" };
            text += &format!("{mark}  {}\n", finding.text);
        }
        let seconds = took.as_secs();
        text += &match self.is_good() {
            true => format!("\nEverything held. It took {seconds} s, and nothing is left over.\n"),
            false => format!("\nNOT everything held. It took {seconds} s, and nothing is left over.\n"),
        };
        text
    }
}

#[cfg(test)]
#[path = "verdict_tests.rs"]
mod tests;
