//! What the admin API says of the pool as a whole, and of what is being done with its copies.

use std::fmt;

use serde::{Deserialize, Serialize};
use spandrel_shared::{CacheMode, RepairShare};

use super::{PoolStatus, Progress};

/// `GET`: [`PoolDetails`].
pub const POOL: &str = "/v1/pool";
/// `POST` of a [`PoolSettingsChange`]: the [`PoolSettings`] from then on.
pub const POOL_SETTINGS: &str = "/v1/pool/settings";
/// `POST` of a [`PoolSettingsChange`]: [`PoolSettingsPreview`], what it would do.
pub const POOL_SETTINGS_PREVIEW: &str = "/v1/pool/settings/preview";
/// `POST` of an [`Optimize`]: [`Optimized`], at once. The owners of the volumes move copies by themselves then.
pub const POOL_OPTIMIZE: &str = "/v1/pool/optimize";

/// The pool, and what is being done with its copies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolDetails {
    /// How it is, and its room.
    pub pool: PoolStatus,
    /// How it keeps itself.
    pub settings: PoolSettings,
    /// The drive that is filled most, of those that take copies now; absent if there is none.
    pub fullest: Option<DriveFill>,
    /// The one that is filled least.
    pub emptiest: Option<DriveFill>,
    /// Copies that are brought up to date or built now.
    pub jobs: Vec<Job>,
    /// Copies of slabs that are to go elsewhere, as their drives are lost, retired or away for too long, and that are
    /// not being built there yet.
    pub copies_to_replace: u64,
    /// Of these, copies for which no drive has room or no other node is there: they wait until that changes.
    pub copies_without_place: u64,
    /// Copies of slabs that would have to move, for all drives to be filled alike.
    pub copies_to_spread: u64,
}

/// How much of a drive is promised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveFill {
    /// The drive's name.
    pub drive: String,
    /// In thousandths of what can be promised.
    pub promised_per_mille: u32,
}

/// How the pool keeps itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSettings {
    /// For how many seconds a drive may be away whose node is there, before what it holds is built anew elsewhere.
    pub rebuild_after_drive_s: u32,
    /// The same for drives that are away with their node, or with most of its other drives.
    pub rebuild_after_node_s: u32,
    /// Whether copies are spread by themselves when drives are filled unevenly.
    pub balance: bool,
    /// How much of the nodes' work the repair of copies may be.
    #[serde(default)]
    pub repair_share: RepairShare,
    /// Whether a drive that was slow three times, with less than an hour in between, is retired.
    #[serde(default)]
    pub retire_slow: bool,
    /// Within how many seconds every block of every copy is read and compared once; 0 if that is not done by itself.
    #[serde(default)]
    pub scrub_period_s: u32,
    /// What cache drives do for capacity drives that are flash, or of which it is not known what they are.
    #[serde(default)]
    pub cache_mode_ssd: CacheMode,
    /// The same for spinning disks.
    #[serde(default)]
    pub cache_mode_hdd: CacheMode,
    /// How much memory of each node holds copies of what is read, in bytes; 0 if none.
    #[serde(default)]
    pub memory_cache_bytes: u64,
    /// How much memory of each node the maps of its drives take at most, about, in bytes; 0 if as much as they need.
    #[serde(default)]
    pub map_memory_bytes: u64,
}

/// What is to be set; what is absent stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PoolSettingsChange {
    /// See [`PoolSettings::rebuild_after_drive_s`].
    pub rebuild_after_drive_s: Option<u32>,
    /// See [`PoolSettings::rebuild_after_node_s`].
    pub rebuild_after_node_s: Option<u32>,
    /// See [`PoolSettings::balance`].
    pub balance: Option<bool>,
    /// See [`PoolSettings::repair_share`].
    pub repair_share: Option<RepairShare>,
    /// See [`PoolSettings::retire_slow`].
    pub retire_slow: Option<bool>,
    /// See [`PoolSettings::scrub_period_s`]: 0, or from 10 seconds to 52 weeks.
    pub scrub_period_s: Option<u32>,
    /// See [`PoolSettings::cache_mode_ssd`].
    pub cache_mode_ssd: Option<CacheMode>,
    /// See [`PoolSettings::cache_mode_hdd`].
    pub cache_mode_hdd: Option<CacheMode>,
    /// See [`PoolSettings::memory_cache_bytes`]: at most four fifths of the memory of the server that is asked.
    pub memory_cache_bytes: Option<u64>,
    /// See [`PoolSettings::map_memory_bytes`]: 0, or 16 MiB and more.
    pub map_memory_bytes: Option<u64>,
}

/// What a change of the settings would do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolSettingsPreview {
    /// The settings as they are.
    pub before: PoolSettings,
    /// As they would be.
    pub after: PoolSettings,
    /// What would follow at once, in words.
    pub warnings: Vec<String>,
}

/// Copies that are to be spread as evenly as they can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Optimize {
    /// Only say how many would move.
    pub dry_run: bool,
}

/// What spreading the copies takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Optimized {
    /// Copies of slabs that are to move, about: what clients and others do meanwhile changes that.
    pub copies_to_move: u64,
    /// The slab size: of each no more than this is copied.
    pub slab_bytes: u64,
}

/// Why copies are copied. The names are those that storage jobs have in Storage Spaces Direct.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum JobKind {
    /// Copies that may lack writes are brought up to date.
    Repair,
    /// Copies are built in the place of such as are lost, stale, away or on a drive that is retired.
    Regeneration,
    /// Copies are moved, to fill drives evenly.
    Rebalance,
}

impl fmt::Display for JobKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Repair => "Repair",
            Self::Regeneration => "Regeneration",
            Self::Rebalance => "Rebalance",
        })
    }
}

/// Copies of a volume that are brought up to date on one drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// Why.
    pub kind: JobKind,
    /// The volume's name.
    pub volume: String,
    /// The name of the drive that the copies are on.
    pub drive: String,
    /// How many copies of slabs they are.
    pub slabs: u32,
    /// Pages of 2 MiB: what is done, of all.
    pub pages: Progress,
    /// What was copied so far, in bytes; what is the same already is not.
    pub copied_bytes: u64,
    /// For how long, in milliseconds.
    pub elapsed_ms: u64,
}

impl Job {
    /// What is copied in a second, in bytes; none before that can be said.
    pub fn bytes_per_second(&self) -> Option<u64> {
        let bytes = u128::from(self.copied_bytes) * 1000;
        let rate = bytes.checked_div(u128::from(self.elapsed_ms))?;
        u64::try_from(rate).ok().filter(|rate| *rate > 0)
    }

    /// How long it takes yet, in milliseconds, if it goes on as it did so far; none before that can be said.
    pub fn left_ms(&self) -> Option<u64> {
        let Progress { done, total } = self.pages;
        let left = u128::from(self.elapsed_ms) * u128::from(total.saturating_sub(done));
        u64::try_from(left.checked_div(u128::from(done))?).ok()
    }
}

#[cfg(test)]
#[path = "api_pool_tests.rs"]
mod tests;
