//! What is set for the whole pool, and what it was asked for.

use serde::{Deserialize, Serialize};
use spandrel_shared::{CacheMode, RepairShare};

use crate::keys::StateKey;
use crate::records::{Record, Stored};
use crate::state::{ClusterState, StateError};
use crate::store::{Expected, StateStore};

/// How the pool keeps itself. A cluster whose state has none goes by the defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SettingsRecord {
    /// For how many seconds a drive may be away whose node is there, before what it holds is built anew elsewhere.
    pub rebuild_after_drive_s: u32,
    /// The same for drives that are away with their node, or together with most of their node's other drives: that is
    /// no failure of a drive, and there is much more to copy.
    pub rebuild_after_node_s: u32,
    /// Whether copies are spread by themselves over drives that are filled unevenly.
    pub balance: bool,
    /// How much of the nodes' work the repair of copies may be, beside that for clients.
    pub repair_share: RepairShare,
    /// Whether a drive that was slow three times, with less than an hour in between, is retired.
    pub retire_slow: bool,
    /// Within how many seconds every block of every copy is read and compared once; 0 if that is not done by itself.
    pub scrub_period_s: u32,
    /// What cache drives do for capacity drives that are flash, or of which it is not known what they are.
    pub cache_mode_ssd: CacheMode,
    /// The same for spinning disks.
    pub cache_mode_hdd: CacheMode,
    /// How much memory of each node holds copies of what is read, in bytes; 0 if none.
    pub memory_cache_bytes: u64,
    /// How much memory of each node the maps of its drives take at most, about, in bytes; 0 if as much as they need.
    pub map_memory_bytes: u64,
    /// When it was asked for last that copies be spread as evenly as they can, whatever [`Self::balance`] says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub optimize_since_unix_ms: Option<u64>,
}

/// The format of settings that every version knows.
const SETTINGS_FIRST: u32 = 1;

/// The format with how much repair may do, whether slow drives are retired, and how often everything is read.
const SETTINGS_OF_UPKEEP: u32 = 2;

/// The format with what cache drives, and memory, are used for.
const SETTINGS_OF_CACHES: u32 = 3;

/// The format with how much memory maps take.
const SETTINGS_OF_MAPS: u32 = 4;

impl Record for SettingsRecord {
    const KIND: &'static str = "settings of the pool";
    const FORMAT: u32 = SETTINGS_OF_MAPS;
    type Body = Self;

    fn to_body(&self) -> Self {
        self.clone()
    }

    fn from_body(body: Self) -> Result<Self, String> {
        Ok(body)
    }

    /// A version that does not know what is set would drop it with the next change: it is to leave the settings alone then,
    /// and go by those that it could read last.
    fn format(&self) -> u32 {
        let default = Self::default();
        let caches = |of: &Self| (of.cache_mode_ssd, of.cache_mode_hdd, of.memory_cache_bytes);
        let upkeep = |of: &Self| (of.repair_share, of.retire_slow, of.scrub_period_s);
        match () {
            () if self.map_memory_bytes != default.map_memory_bytes => SETTINGS_OF_MAPS,
            () if caches(self) != caches(&default) => SETTINGS_OF_CACHES,
            () if upkeep(self) != upkeep(&default) => SETTINGS_OF_UPKEEP,
            () => SETTINGS_FIRST,
        }
    }
}

impl Default for SettingsRecord {
    fn default() -> Self {
        Self {
            rebuild_after_drive_s: 15 * 60,
            rebuild_after_node_s: 60 * 60,
            balance: true,
            repair_share: RepairShare::default(),
            retire_slow: false,
            scrub_period_s: 4 * 7 * 24 * 60 * 60,
            cache_mode_ssd: CacheMode::WriteOnly,
            cache_mode_hdd: CacheMode::ReadWrite,
            memory_cache_bytes: 0,
            map_memory_bytes: 0,
            optimize_since_unix_ms: None,
        }
    }
}

impl<S: StateStore> ClusterState<S> {
    /// The settings, and the revision to compare if they were ever changed.
    pub async fn settings(&self) -> Result<Option<Stored<SettingsRecord>>, StateError> {
        self.get(&StateKey::Settings).await
    }

    /// Changes the settings. `Conflict` if somebody else has changed them meanwhile.
    pub async fn change_settings(
        &self,
        change: impl FnOnce(&mut SettingsRecord),
    ) -> Result<SettingsRecord, StateError> {
        let stored = self.settings().await?;
        let expected =
            stored.as_ref().map_or(Expected::Absent, |stored| Expected::ModifiedAt(stored.revision));
        let mut settings = stored.map(|stored| stored.record).unwrap_or_default();
        change(&mut settings);
        Ok(self.put(&StateKey::Settings, expected, settings).await?.record)
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
