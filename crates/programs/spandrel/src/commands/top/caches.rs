//! What the caches of drives have done in a second, from counts that only grow.

use serde::Serialize;
use spandrel_node::{CacheCounts, DriveLoad, NodeLoad};
use spandrel_shared::DriveId;

/// What the cache of one drive has done in an interval.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct CacheRates {
    /// The drive's node.
    pub node: String,
    /// The drive that is bound to a cache drive.
    pub drive: Option<DriveId>,
    /// Where that drive is.
    pub location: String,
    /// What was read from the cache drive in a second.
    pub hit_bytes_per_second: f64,
    /// What was read from the capacity drive in a second.
    pub missed_bytes_per_second: f64,
    /// What was copied to the cache drive in a second, as it was read.
    pub populated_bytes_per_second: f64,
    /// What was moved from the cache drive to the capacity drive in a second.
    pub destaged_bytes_per_second: f64,
    /// What is there now, and all that was counted since the drive was attached.
    #[serde(flatten)]
    pub counts: CacheCounts,
}

impl CacheRates {
    /// What the caches of a node's drives have done since `before`, which is `seconds` ago; nothing if that is not known.
    pub fn of_node(node: &str, before: Option<&NodeLoad>, after: &NodeLoad, seconds: f64) -> Vec<Self> {
        let former = |drive: &DriveLoad| {
            let mut drives = before?.drives.iter();
            drives.find(|former| former.drive == drive.drive)?.cache
        };
        let of = |drive: &DriveLoad| {
            let counts = drive.cache?;
            Some(Self {
                node: node.to_owned(),
                drive: Some(drive.drive),
                location: drive.location.clone(),
                counts,
                ..former(drive).map(|former| between(&former, &counts, seconds)).unwrap_or_default()
            })
        };
        after.drives.iter().filter_map(of).collect()
    }

    /// Both together.
    pub fn and(mut self, other: &Self) -> Self {
        self.hit_bytes_per_second += other.hit_bytes_per_second;
        self.missed_bytes_per_second += other.missed_bytes_per_second;
        self.populated_bytes_per_second += other.populated_bytes_per_second;
        self.destaged_bytes_per_second += other.destaged_bytes_per_second;
        self.counts.dirty_bytes += other.counts.dirty_bytes;
        self.counts.total_bytes += other.counts.total_bytes;
        self
    }

    /// What part of what was read was read from the cache drive, per cent; absent if nothing was.
    pub fn hit_percent(&self) -> Option<f64> {
        let read = self.hit_bytes_per_second + self.missed_bytes_per_second;
        (read > 0.0).then(|| 100.0 * self.hit_bytes_per_second / read)
    }
}

fn between(before: &CacheCounts, after: &CacheCounts, seconds: f64) -> CacheRates {
    let rate = |count: fn(&CacheCounts) -> u64| count(after).saturating_sub(count(before)) as f64 / seconds;
    CacheRates {
        hit_bytes_per_second: rate(|counts| counts.hit_bytes),
        missed_bytes_per_second: rate(|counts| counts.missed_bytes),
        populated_bytes_per_second: rate(|counts| counts.populated_bytes),
        destaged_bytes_per_second: rate(|counts| counts.destaged_bytes),
        ..CacheRates::default()
    }
}

#[cfg(test)]
#[path = "caches_tests.rs"]
mod tests;
