//! A sweep's result as people and programs read it: an aligned table, JSON, CSV.

use std::str::FromStr;

use spandrel_shared::duration::format_duration;
use spandrel_shared::number::group_thousands;
use spandrel_shared::size::format_size;

use crate::result::CellResult;
use crate::spec::CellSpec;
use crate::sweep::{SweepResult, SweepRow};
use crate::text::{aligned, counted};

/// Failures that are told below a table.
const FAILURES_SHOWN: usize = 10;

/// How a result is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OutputFormat {
    /// Aligned columns for people.
    #[default]
    Table,
    /// Everything there is, for programs.
    Json,
    /// One line per cell, for spreadsheets.
    Csv,
}

impl FromStr for OutputFormat {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "table" => Ok(OutputFormat::Table),
            "json" => Ok(OutputFormat::Json),
            "csv" => Ok(OutputFormat::Csv),
            _ => Err(format!("{text:?} is no output format: it is table, json or csv")),
        }
    }
}

impl SweepResult {
    /// The result in `format`, with a line end behind it.
    pub fn render(&self, format: OutputFormat) -> String {
        match format {
            OutputFormat::Table => self.table(),
            OutputFormat::Json => self.json(),
            OutputFormat::Csv => self.csv(),
        }
    }

    /// Everything that was measured, as JSON that [`SweepResult::from_json`] reads.
    pub fn json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.expect("a result is numbers, texts and lists, all of which JSON has") + "\n"
    }

    /// Reads what [`SweepResult::json`] has written.
    ///
    /// # Errors
    ///
    /// It is something else.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// One line per cell behind a line of names. What is not known is empty.
    pub fn csv(&self) -> String {
        let mut text = COLUMNS.iter().map(|column| column.csv_name).collect::<Vec<_>>().join(",") + "\n";
        for row in &self.rows {
            let cells = COLUMNS.iter().map(|column| (column.csv)(row));
            text += &(cells.map(Option::unwrap_or_default).collect::<Vec<_>>().join(",") + "\n");
        }
        text
    }

    /// A table for people, with notes below on what to mind.
    pub fn table(&self) -> String {
        let is_shown = |column: &&Column| {
            let has_some = |table: TableColumn| self.rows.iter().any(|row| (table.text)(row).is_some());
            column.table.is_some_and(|table| !column.is_for_some || has_some(table))
        };
        let shown: Vec<&Column> = COLUMNS.iter().filter(is_shown).collect();
        let cells = |row: &SweepRow| -> Vec<String> {
            let text = |column: &&Column| column.table.and_then(|table| (table.text)(row));
            shown.iter().map(|column| text(column).unwrap_or_else(|| "-".to_owned())).collect()
        };
        let mut lines: Vec<Vec<String>> = vec![
            shown.iter().filter_map(|column| column.table).map(|table| table.head[0].to_owned()).collect(),
            shown.iter().filter_map(|column| column.table).map(|table| table.head[1].to_owned()).collect(),
        ];
        lines.extend(self.rows.iter().map(cells));
        let mut text = self.headline() + "\n\n" + &aligned(&lines, &[]);
        let notes = self.notes();
        if !notes.is_empty() {
            text += "\n";
        }
        for note in notes {
            text += &(note + "\n");
        }
        text
    }

    /// What all cells have in common.
    fn headline(&self) -> String {
        let common = &self.spec.common;
        let working_set = match common.working_set_bytes {
            Some(bytes) => format!("the first {} of each volume", format_size(bytes)),
            None => "whole volumes".to_owned(),
        };
        let apart = match self.clients_apart {
            0 => String::new(),
            apart => format!(" ({apart} on another node than their volume's owner)"),
        };
        format!(
            "{}{apart}, {} I/O on {working_set}, warm-up {}, measured {}",
            counted(self.clients as u64, "client"),
            common.pattern,
            format_duration(common.warmup),
            format_duration(common.duration),
        )
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = self.warnings.clone();
        for row in &self.rows {
            let name = describe_cell(&row.cell.spec);
            notes.extend(doubts_of(&row.cell).into_iter().map(|doubt| format!("{name}: {doubt}")));
        }
        let failures =
            self.rows.iter().flat_map(|row| row.cell.failures.iter().map(move |failure| (row, failure)));
        let count = failures.clone().count();
        for (row, failure) in failures.take(FAILURES_SHOWN) {
            let place = failure.offset.map_or(String::new(), |offset| format!(" at byte {offset}"));
            notes.push(format!(
                "{}: client {} after {:.1} s: {}{place}: {}",
                describe_cell(&row.cell.spec),
                failure.client,
                failure.at_seconds,
                failure.operation,
                failure.reason
            ));
        }
        if count > FAILURES_SHOWN {
            notes.push(format!("{} more failures are in the JSON output", count - FAILURES_SHOWN));
        }
        if let Some(error) = &self.stopped_by {
            notes.push(format!(
                "stopped after {} of {} cells: {error}",
                self.rows.len(),
                self.spec.cells().len()
            ));
        }
        notes
    }
}

/// Why a cell's result is to be doubted.
pub(crate) fn doubts_of(cell: &CellResult) -> Vec<String> {
    let mut doubts = Vec::new();
    if cell.has_failures() {
        doubts.push(format!(
            "{} I/Os failed, {} were not answered, {} lost their connection",
            cell.errors,
            cell.unanswered,
            counted(cell.clients_lost, "client")
        ));
    }
    let law = &cell.littles_law;
    if law.is_suspicious {
        doubts.push(format!(
            "Little's law is off by {:+.0} %: {:.1} I/Os in flight were measured, {} were set",
            law.residual_percent, law.outstanding_measured, law.outstanding_set
        ));
    }
    if cell.generator.is_saturated {
        doubts.push(format!(
            "a load thread was busy {:.0} % of the time, so the latencies are partly its own; \
             use more load threads",
            cell.generator.busiest_thread_percent
        ));
    }
    doubts
}

/// A cell in a few words: `4 KiB, 30 % writes, 1 x 8 outstanding`.
pub(crate) fn describe_cell(cell: &CellSpec) -> String {
    format!(
        "{}, {} % writes, {} x {} outstanding",
        format_size(u64::from(cell.block_size_bytes)),
        cell.write_percent,
        cell.threads,
        cell.outstanding
    )
}

/// A number in whole, its thousands set apart: `1,234,567`.
pub fn count_text(number: f64) -> String {
    group_thousands(&format!("{number:.0}"))
}

/// One column of the outputs.
struct Column {
    csv_name: &'static str,
    csv: fn(&SweepRow) -> Option<String>,
    /// Its form in the table; absent if it is only in the CSV.
    table: Option<TableColumn>,
    /// Whether it is left out of the table where no row has anything of it.
    is_for_some: bool,
}

#[derive(Clone, Copy)]
struct TableColumn {
    /// Two lines, the unit in the second.
    head: [&'static str; 2],
    text: fn(&SweepRow) -> Option<String>,
}

const fn both(
    csv_name: &'static str,
    csv: fn(&SweepRow) -> Option<String>,
    head: [&'static str; 2],
    text: fn(&SweepRow) -> Option<String>,
) -> Column {
    Column { csv_name, csv, table: Some(TableColumn { head, text }), is_for_some: false }
}

/// A column of what not all clusters have.
const fn for_some(column: Column) -> Column {
    Column { is_for_some: true, ..column }
}

const fn csv_only(csv_name: &'static str, csv: fn(&SweepRow) -> Option<String>) -> Column {
    Column { csv_name, csv, table: None, is_for_some: false }
}

const COLUMNS: &[Column] = &[
    both(
        "write_percent",
        |row| Some(row.cell.spec.write_percent.to_string()),
        ["write", "%"],
        |row| Some(row.cell.spec.write_percent.to_string()),
    ),
    both(
        "outstanding",
        |row| Some(row.cell.spec.outstanding.to_string()),
        ["out-", "stand."],
        |row| Some(row.cell.spec.outstanding.to_string()),
    ),
    both(
        "threads",
        |row| Some(row.cell.spec.threads.to_string()),
        ["", "thr."],
        |row| Some(row.cell.spec.threads.to_string()),
    ),
    both(
        "block_size_bytes",
        |row| Some(row.cell.spec.block_size_bytes.to_string()),
        ["block", "size"],
        |row| Some(format_size(u64::from(row.cell.spec.block_size_bytes)).replace("iB", "").replace(' ', "")),
    ),
    both(
        "iops",
        |row| Some(format!("{:.1}", row.cell.total.iops)),
        ["", "IOPS"],
        |row| Some(count_text(row.cell.total.iops)),
    ),
    both(
        "mib_per_second",
        |row| Some(format!("{:.3}", row.cell.total.mib_per_second)),
        ["", "MiB/s"],
        |row| Some(short(row.cell.total.mib_per_second)),
    ),
    both(
        "mean_us",
        |row| us(row, |latency| latency.mean_us),
        ["mean", "us"],
        |row| short_us(row, |latency| latency.mean_us),
    ),
    both(
        "p50_us",
        |row| us(row, |latency| latency.p50_us),
        ["p50", "us"],
        |row| short_us(row, |latency| latency.p50_us),
    ),
    both(
        "p99_us",
        |row| us(row, |latency| latency.p99_us),
        ["p99", "us"],
        |row| short_us(row, |latency| latency.p99_us),
    ),
    both(
        "p99_9_us",
        |row| Some(format!("{:.3}", row.cell.total.latency?.p99_9_us?)),
        ["p99.9", "us"],
        |row| Some(short(row.cell.total.latency?.p99_9_us?)),
    ),
    both(
        "longest_pause_ms",
        |row| Some(format!("{:.3}", row.cell.longest_pause_ms)),
        ["longest", "pause ms"],
        |row| Some(short(row.cell.longest_pause_ms)),
    ),
    both(
        "cpu_cores_busy",
        |row| row.usage.busy_cores.map(|cores| format!("{cores:.4}")),
        ["cores", "busy"],
        |row| row.usage.busy_cores.map(|cores| format!("{cores:.2}")),
    ),
    both(
        "iops_per_busy_core",
        |row| row.iops_per_busy_core.map(|iops| format!("{iops:.1}")),
        ["IOPS per", "core"],
        |row| row.iops_per_busy_core.map(count_text),
    ),
    both(
        "write_amplification",
        |row| row.usage.write_amplification.map(|factor| format!("{factor:.4}")),
        ["write", "ampl."],
        |row| row.usage.write_amplification.map(|factor| format!("{factor:.3}")),
    ),
    for_some(both(
        "cache_hit_percent",
        |row| row.usage.cache?.hit_percent().map(|percent| format!("{percent:.2}")),
        ["cache", "hit %"],
        |row| row.usage.cache?.hit_percent().map(|percent| format!("{percent:.0}")),
    )),
    for_some(both(
        "moved_ratio",
        |row| row.usage.moved_ratio().map(|ratio| format!("{ratio:.4}")),
        ["moved", "ratio"],
        |row| row.usage.moved_ratio().map(|ratio| format!("{ratio:.2}")),
    )),
    csv_only("cache_hit_bytes", |row| Some(row.usage.cache?.hit_bytes.to_string())),
    csv_only("cache_missed_bytes", |row| Some(row.usage.cache?.missed_bytes.to_string())),
    csv_only("cache_populated_bytes", |row| Some(row.usage.cache?.populated_bytes.to_string())),
    csv_only("cache_destaged_bytes", |row| Some(row.usage.cache?.destaged_bytes.to_string())),
    csv_only("cache_dirty_bytes", |row| Some(row.usage.cache?.dirty_bytes.to_string())),
    csv_only("cache_copied_bytes", |row| Some(row.usage.cache?.copied_bytes.to_string())),
    csv_only("read_iops", |row| Some(format!("{:.1}", row.cell.read.iops))),
    csv_only("write_iops", |row| Some(format!("{:.1}", row.cell.write.iops))),
    csv_only("max_us", |row| us(row, |latency| latency.max_us)),
    csv_only("errors", |row| Some(row.cell.errors.to_string())),
    csv_only("unanswered", |row| Some(row.cell.unanswered.to_string())),
    csv_only("clients_lost", |row| Some(row.cell.clients_lost.to_string())),
    csv_only("littles_law_residual_percent", |row| {
        Some(format!("{:.2}", row.cell.littles_law.residual_percent))
    }),
    csv_only("generator_cpu_us_per_io", |row| Some(format!("{:.3}", row.cell.generator.cpu_us_per_io))),
];

fn us(row: &SweepRow, pick: fn(&crate::result::Latency) -> f64) -> Option<String> {
    row.cell.total.latency.as_ref().map(|latency| format!("{:.3}", pick(latency)))
}

fn short_us(row: &SweepRow, pick: fn(&crate::result::Latency) -> f64) -> Option<String> {
    row.cell.total.latency.as_ref().map(|latency| short(pick(latency)))
}

/// A number with a digit behind the point while it is small.
pub fn short(number: f64) -> String {
    if number < 100.0 { format!("{number:.1}") } else { count_text(number) }
}

#[cfg(test)]
#[path = "output_tests.rs"]
mod tests;
