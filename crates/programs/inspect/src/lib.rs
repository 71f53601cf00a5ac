//! Reads a drive offline: what stands on it, whether all of it is whole, and one copy of a slab out
//! of it. What is behind `spandrel drive inspect`.
//!
//! It is written from the document of the drive's format (`docs/internals/drive-format.md`) and
//! shares no reading code with the store: where the store misreads what it wrote, this does not.
//! Tests hold the two against each other.
//!
//! Reading order: [`inspection`](Inspection) is what comes out; `superblock`, `root`, `map` and
//! `journal` are the format; `chain` walks along the journal; `state` is what a drive holds, and
//! how records change it; `recover` puts that together; `data` reads the blocks.
//!
//! Invariants:
//! - Nothing on a drive is changed.
//! - Every checksum of what is live is checked, and whatever does not match is named.

mod arguments;
mod cache_drive;
mod chain;
mod data;
mod export;
mod fields;
mod foreign;
mod identity;
mod inspect;
mod inspection;
mod journal;
mod listing;
mod map;
mod progress;
mod recover;
mod render;
mod root;
mod source;
mod state;
mod superblock;
#[cfg(test)]
mod testing;

pub use arguments::{ExportedSlab, InspectArguments, InspectFormat, Outcome};
pub use export::{ExportOptions, ExportReport, export};
pub use foreign::{describe_path, recognize_path};
pub use identity::{DriveIdentity, identify_path, store_end_bytes_max};
pub use inspect::{CachePaths, Caches, InspectOptions, inspect, inspect_source, inspect_with};
pub use inspection::{
    CacheReport, CacheState, CopyReport, Damage, DamageKind, Inspection, JournalReport, ListedWrite,
    LiveBlock, PageReport, Phase, Place, Progress, RootReport, RootSlotReport, RootSlotState, Structure,
    SuperblockCopy, SuperblockReport, VolumeReport,
};
pub use root::SlabLayout;
pub use source::{DriveFile, Source};
