//! Is the history of one block that of a single register?
//!
//! Every write brings a value of its own, so each read names the write that it saw. Take a value's
//! write and all its reads as one *cluster*: it has a zone between the earliest end and the
//! latest start of its operations. If the earliest end lies before the latest start, the value
//! must have been the newest all along between them (a forward zone); else there is a moment
//! common to all its operations (a backward zone). The history is linearizable exactly if no two
//! forward zones overlap, no backward zone lies within a forward one, and no read ends before its
//! write begins (Gibbons and Korach, "Testing shared memories", 1997). The tests prove this check
//! equal to trying all orders on small histories.
//!
//! A write whose outcome is unknown has no end: it may take effect at any later time, or never.
//! One that nobody read has constrained nobody and is left out.

use std::collections::BTreeMap;

/// When something happened, in any unit that grows.
pub type Moment = u64;

/// One operation on a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The value written or seen; zero is what the block held at first.
    pub value: u64,
    /// Whether it wrote the value.
    pub is_write: bool,
    /// When it was asked for.
    pub start: Moment,
    /// When it was answered; `None` if it never was, or failed with an unknown outcome.
    pub end: Option<Moment>,
}

/// What makes a history impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A read saw a value that nobody wrote, or that was written only later.
    FromNowhere {
        /// The value.
        value: u64,
    },
    /// Two values cannot both have been the newest when they were seen.
    Conflict {
        /// The one.
        first: u64,
        /// The other.
        second: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Cluster {
    write_start: Moment,
    earliest_end: Moment,
    latest_start: Moment,
    is_read: bool,
    write_is_open: bool,
}

/// Checks the history of one block, in any order of operations.
pub fn check(operations: &[Operation]) -> Result<(), Violation> {
    let mut clusters: BTreeMap<u64, Cluster> = BTreeMap::new();
    let initial =
        Cluster { write_start: 0, earliest_end: 0, latest_start: 0, is_read: true, write_is_open: false };
    clusters.insert(0, initial);
    for write in operations.iter().filter(|operation| operation.is_write) {
        let cluster = Cluster {
            write_start: write.start,
            earliest_end: write.end.unwrap_or(Moment::MAX),
            latest_start: write.start,
            is_read: false,
            write_is_open: write.end.is_none(),
        };
        clusters.insert(write.value, cluster);
    }
    for read in operations.iter().filter(|operation| !operation.is_write) {
        let Some(end) = read.end else { continue };
        let cluster = clusters.get_mut(&read.value).ok_or(Violation::FromNowhere { value: read.value })?;
        if end < cluster.write_start {
            return Err(Violation::FromNowhere { value: read.value });
        }
        cluster.earliest_end = cluster.earliest_end.min(end);
        cluster.latest_start = cluster.latest_start.max(read.start);
        cluster.is_read = true;
    }
    clusters.retain(|_, cluster| cluster.is_read || !cluster.write_is_open);
    let is_forward = |cluster: &Cluster| cluster.earliest_end < cluster.latest_start;
    let mut forward: Vec<(Moment, Moment, u64)> = clusters
        .iter()
        .filter(|(_, cluster)| is_forward(cluster))
        .map(|(value, cluster)| (cluster.earliest_end, cluster.latest_start, *value))
        .collect();
    forward.sort_unstable();
    for pair in forward.windows(2) {
        if pair[1].0 < pair[0].1 {
            return Err(Violation::Conflict { first: pair[0].2, second: pair[1].2 });
        }
    }
    for (value, cluster) in clusters.iter().filter(|(_, cluster)| !is_forward(cluster)) {
        // The last forward zone that begins before this backward zone does.
        let place = forward.partition_point(|zone| zone.0 < cluster.latest_start);
        if let Some(zone) = place.checked_sub(1).map(|place| forward[place])
            && cluster.earliest_end < zone.1
        {
            return Err(Violation::Conflict { first: zone.2, second: *value });
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "register_tests.rs"]
mod tests;
