//! How a sweep shows that it is getting on: a bar on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use spandrel_shared::duration::format_duration;
use spandrel_shared::size::format_size;

use crate::live::LiveSample;
use crate::output::{count_text, describe_cell};
use crate::spec::CellSpec;
use crate::sweep::SweepRow;
use crate::text::counted;

/// Hears how a sweep gets on. Every method does nothing unless it is written.
pub trait Progress {
    /// The sweep begins: so many cells with so many clients, which take about `duration`.
    fn begin(&mut self, _cells: usize, _clients: usize, _duration: Duration) {}

    /// So many bytes of so many (if that is known) are written to fill the volumes.
    fn filling(&mut self, _done_bytes: u64, _total_bytes: Option<u64>) {}

    /// The volumes are filled.
    fn filled(&mut self) {}

    /// Something begins that is no cell, in words.
    fn step(&mut self, _text: &str) {}

    /// How far that is, in words.
    fn step_detail(&mut self, _text: &str) {}

    /// The cell number `index` begins.
    fn begin_cell(&mut self, _index: usize, _cell: &CellSpec) {}

    /// `elapsed` of `total` of the present cell have passed.
    fn tick(&mut self, _elapsed: Duration, _total: Duration, _sample: &LiveSample) {}

    /// The cell number `index` has ended.
    fn end_cell(&mut self, _index: usize, _row: &SweepRow) {}

    /// The sweep has ended.
    fn end(&mut self) {}
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}

/// What suits standard error: a bar if that is a terminal, lines if not.
pub fn progress_on_standard_error() -> Box<dyn Progress> {
    if std::io::stderr().is_terminal() {
        Box::new(BarProgress::new(ProgressDrawTarget::stderr()))
    } else {
        Box::new(LineProgress::new(std::io::stderr()))
    }
}

/// A bar over the time of the whole sweep, with the present cell and rate beside it.
pub struct BarProgress {
    bar: ProgressBar,
    cells: usize,
    /// The present cell, or what is done between two of them.
    cell: String,
    /// The time of the cells that have ended.
    before: Duration,
    present: Duration,
}

impl BarProgress {
    /// A bar on `target`.
    pub fn new(target: ProgressDrawTarget) -> Self {
        let bar = ProgressBar::with_draw_target(Some(0), target);
        let style = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {percent:>3} % {msg}");
        bar.set_style(style.expect("the template is well-formed").progress_chars("=> "));
        Self { bar, cells: 0, cell: String::new(), before: Duration::ZERO, present: Duration::ZERO }
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Progress for BarProgress {
    fn begin(&mut self, cells: usize, _clients: usize, duration: Duration) {
        self.cells = cells;
        self.bar.set_length(milliseconds(duration));
    }

    fn filling(&mut self, done_bytes: u64, total_bytes: Option<u64>) {
        self.bar.set_message(filling_text(done_bytes, total_bytes));
        self.bar.tick();
    }

    fn step(&mut self, text: &str) {
        self.cell = text.to_owned();
        self.bar.set_message(self.cell.clone());
        self.bar.tick();
    }

    fn step_detail(&mut self, text: &str) {
        self.bar.set_message(format!("{}: {text}", self.cell));
        self.bar.tick();
    }

    fn begin_cell(&mut self, index: usize, cell: &CellSpec) {
        self.cell = format!("cell {}/{}: {}", index + 1, self.cells, describe_cell(cell));
        self.bar.set_message(self.cell.clone());
    }

    fn tick(&mut self, elapsed: Duration, total: Duration, sample: &LiveSample) {
        self.present = total;
        self.bar.set_position(milliseconds(self.before + elapsed));
        self.bar.set_message(format!("{}  {} IOPS", self.cell, count_text(sample.iops)));
    }

    fn end_cell(&mut self, _index: usize, _row: &SweepRow) {
        self.before += self.present;
        self.bar.set_position(milliseconds(self.before));
    }

    fn end(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A line for each step, for logs.
pub struct LineProgress<W> {
    output: W,
    cells: usize,
    fill_begun: bool,
}

impl<W: Write> LineProgress<W> {
    /// Lines to `output`.
    pub fn new(output: W) -> Self {
        Self { output, cells: 0, fill_begun: false }
    }

    fn say(&mut self, line: &str) {
        // Progress that cannot be shown is no reason to stop measuring.
        let _ = writeln!(self.output, "{line}");
    }
}

impl<W: Write> Progress for LineProgress<W> {
    fn begin(&mut self, cells: usize, clients: usize, duration: Duration) {
        self.cells = cells;
        let (cells, clients) = (counted(cells as u64, "cell"), counted(clients as u64, "client"));
        self.say(&format!("{cells} with {clients}, about {}", format_duration(duration)));
    }

    fn filling(&mut self, done_bytes: u64, total_bytes: Option<u64>) {
        if !std::mem::replace(&mut self.fill_begun, true) {
            self.say(&filling_text(done_bytes, total_bytes));
        }
    }

    fn filled(&mut self) {
        self.say("volumes filled");
    }

    fn step(&mut self, text: &str) {
        self.say(text);
    }

    fn begin_cell(&mut self, _index: usize, _cell: &CellSpec) {}

    fn end_cell(&mut self, index: usize, row: &SweepRow) {
        let cell = &row.cell;
        let mean_us = cell.total.latency.map_or("-".to_owned(), |latency| count_text(latency.mean_us));
        let mut line = format!(
            "cell {}/{}: {}: {} IOPS, {mean_us} us",
            index + 1,
            self.cells,
            describe_cell(&cell.spec),
            count_text(cell.total.iops),
        );
        if cell.errors + cell.unanswered > 0 {
            line += &format!(", {} errors, {} unanswered", cell.errors, cell.unanswered);
        }
        self.say(&line);
    }
}

fn filling_text(done_bytes: u64, total_bytes: Option<u64>) -> String {
    match total_bytes {
        Some(total) => format!("filling the volumes: {} of {}", format_size(done_bytes), format_size(total)),
        None => format!("filling the volumes: {}", format_size(done_bytes)),
    }
}

#[cfg(test)]
#[path = "progress_tests.rs"]
mod tests;
