//! The store on one drive: allocate-on-write, checksums, a journal with group commit.
//!
//! A slab copy has a map from its blocks to physical blocks and checksums. A write goes to free
//! physical blocks, and its record goes to the journal at the same time; when both are durable the
//! map in memory changes and the write is answered. So no crash can tear a block, and nothing is
//! written twice. Now and then a checkpoint writes the changed parts of the maps.
//!
//! Where a drive is bound to a cache drive, an area of that one is part of the same store: its journal stands there, and what
//! clients write goes there first, to be moved later. See `media`, `cache_drive`, `cache_policy` and `destage`.
//!
//! Reading order: `format` (what stands on the drive), `layout` (where),
//! `state` (what is held in memory and how a record changes it), `store` (requests), `change` and `commit`
//! (how they become durable), `read`, `checkpoint`, `recovery`; `map_memory` (what of the maps is in memory).

mod ahead;
mod allocator;
mod attach;
mod cache_drive;
mod cache_policy;
mod change;
mod checkpoint;
mod commit;
mod destage;
mod drive_check;
mod error;
mod foreign;
pub mod format;
mod journal_reader;
mod journal_state;
mod latched_drive;
pub mod layout;
mod map_memory;
mod media;
mod memory_cache;
mod read;
mod read_cache;
mod read_index;
mod recovery;
mod slab_copy;
mod slot_table;
mod state;
mod statistics;
mod store;
mod superblock_copies;
#[cfg(test)]
// Shared by the tests of several modules, which come one after the other.
#[allow(dead_code, clippy::unwrap_or_default)]
mod test_support;
mod volume_state;
mod write_under_way;

pub use attach::{AttachOptions, AttachReport, CacheChoice, DriveIdentity, FormatOptions, UnprovenCopy};
pub use cache_drive::{CacheArea, CacheDrive, CacheFormatOptions};
pub use cache_policy::CacheUse;
pub use error::{AttachError, StoreError};
pub use format::cache::{Binding, CacheLayout, CacheSuperblock};
pub use format::root::SlabLayout;
pub use format::superblock::Superblock;
pub use layout::Layout;
pub use read::ReadPart;
pub use state::ListedWrite;
pub use statistics::StoreStatistics;
pub use store::{
    BlockState, DamagedBlock, DriveStore, PageDescription, SlabDescription, SlabSlot, WRITE_BLOCKS_MAX,
};
pub use write_under_way::WriteUnderWay;
