//! What the cluster has used in total, though each node counts from its own start only.
//!
//! Every report of a node is taken in. What a node says is counted by its run, and what a volume's
//! owner says by its ownership, so whatever ends keeps what it had said last. What happened between
//! the last report and the end of a run is missing; a node that is stopped is asked just before.

use std::collections::BTreeMap;

use spandrel_node::NodeReport;
use spandrel_shared::{Epoch, ProcessIncarnation, VolumeId};

/// Totals that never go down.
#[derive(Debug, Default)]
pub struct Counters {
    by_run: BTreeMap<ProcessIncarnation, u64>,
    by_ownership: BTreeMap<(VolumeId, Epoch), u64>,
}

impl Counters {
    /// Takes in what a node says.
    pub fn take(&mut self, report: &NodeReport) {
        let written = report.drives.iter().map(|drive| drive.written_bytes).sum();
        raise(self.by_run.entry(report.incarnation).or_default(), written);
        for owned in &report.owned {
            raise(self.by_ownership.entry((owned.volume, owned.epoch)).or_default(), owned.write_bytes);
        }
    }

    /// Bytes that all drives have written.
    pub fn drive_written_bytes(&self) -> u64 {
        self.by_run.values().sum()
    }

    /// Bytes that clients have written.
    pub fn user_written_bytes(&self) -> u64 {
        self.by_ownership.values().sum()
    }
}

fn raise(total: &mut u64, to: u64) {
    *total = (*total).max(to);
}

#[cfg(test)]
#[path = "counters_tests.rs"]
mod tests;
