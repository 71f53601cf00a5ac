//! Cells that belong together: those of one block size, pattern and number of threads, of all runs.

use std::collections::BTreeSet;

use spandrel_results::{Load, MeasuredCell, MeasuredRun};
use spandrel_shared::size::format_size;

/// The cells of one kind of load.
#[derive(Clone, Debug)]
pub(crate) struct Block<'runs> {
    pub(crate) block_size_bytes: u32,
    pub(crate) pattern: &'runs str,
    pub(crate) threads: u32,
    /// Shares of writes, reads first.
    pub(crate) write_percents: Vec<u8>,
    /// I/Os that each thread keeps in flight.
    pub(crate) outstanding: Vec<u32>,
    /// All runs, in their order, whether they have such cells or not.
    pub(crate) runs: &'runs [MeasuredRun],
}

/// I/Os of this size and more are told by their throughput.
const LARGE_BYTES: u32 = 32 << 10;

/// The blocks of all runs, in the order of their sizes.
pub(crate) fn blocks(runs: &[MeasuredRun]) -> Vec<Block<'_>> {
    let loads = || runs.iter().flat_map(|run| &run.cells).map(|cell| &cell.load);
    let kinds: BTreeSet<(u32, &str, u32)> =
        loads().map(|load| (load.block_size_bytes, load.pattern.as_str(), load.threads)).collect();
    let of_kind = |(block_size_bytes, pattern, threads): (u32, &str, u32)| {
        let is_of = |load: &&Load| {
            (load.block_size_bytes, load.pattern.as_str(), load.threads)
                == (block_size_bytes, pattern, threads)
        };
        // Borrowed from the runs, not from the set.
        let pattern = loads().find(is_of).map_or("", |load| load.pattern.as_str());
        let write_percents: BTreeSet<u8> = loads().filter(is_of).map(|load| load.write_percent).collect();
        let outstanding: BTreeSet<u32> = loads().filter(is_of).map(|load| load.outstanding).collect();
        Block {
            block_size_bytes,
            pattern,
            threads,
            write_percents: write_percents.into_iter().collect(),
            outstanding: outstanding.into_iter().collect(),
            runs,
        }
    };
    kinds.into_iter().map(of_kind).collect()
}

impl<'runs> Block<'runs> {
    /// Its name: `4 KiB random, 1 thread`.
    pub(crate) fn name(&self) -> String {
        let threads = if self.threads == 1 { String::new() } else { format!(", {} threads", self.threads) };
        format!("{} {}{threads}", format_size(self.block_size_bytes.into()), self.pattern)
    }

    /// Whether its throughput tells more than its operations a second.
    pub(crate) fn is_large(&self) -> bool {
        self.block_size_bytes >= LARGE_BYTES
    }

    /// The cell of a run with such a load, if it was measured.
    pub(crate) fn cell(
        &self,
        run: &'runs MeasuredRun,
        write_percent: u8,
        outstanding: u32,
    ) -> Option<&'runs MeasuredCell> {
        let load = Load {
            block_size_bytes: self.block_size_bytes,
            pattern: self.pattern.to_owned(),
            threads: self.threads,
            write_percent,
            outstanding,
        };
        run.cells.iter().find(|cell| cell.load == load && !cell.measurements.is_empty())
    }

    /// Every combination of a share of writes and of I/Os in flight, in the order of the tables.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (u8, u32)> + '_ {
        let all = move |write_percent: &u8| {
            let write_percent = *write_percent;
            self.outstanding.iter().map(move |outstanding| (write_percent, *outstanding))
        };
        self.write_percents.iter().flat_map(all)
    }

    /// The cells of a run that were measured.
    pub(crate) fn cells_of(&self, run: &'runs MeasuredRun) -> impl Iterator<Item = &'runs MeasuredCell> {
        self.rows()
            .filter_map(|(write_percent, outstanding)| self.cell(run, write_percent, outstanding))
            .collect::<Vec<_>>()
            .into_iter()
    }
}

/// A share of writes in the words of the reference architectures.
pub(crate) fn mix_text(write_percent: u8) -> String {
    match write_percent {
        0 => "100 % reads".to_owned(),
        100 => "100 % writes".to_owned(),
        percent => format!("{} % reads", 100 - percent),
    }
}
