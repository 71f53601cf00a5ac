//! What every part of Spandrel names: identities, versions, geometry, checksums, errors.
//!
//! Nothing here does I/O or keeps state of its own.

pub mod cache_mode;
pub mod calendar;
pub mod canary;
pub mod checksum;
pub mod duration;
pub mod error;
pub mod geometry;
pub mod identity;
pub mod iops_limit;
pub mod knob;
pub mod load;
pub mod moves;
pub mod name;
pub mod number;
pub mod place;
pub mod repair_share;
pub mod size;
pub mod version;
pub mod witness;

pub use cache_mode::CacheMode;
pub use error::Error;
pub use geometry::{BLOCK_BYTES, BlockRange, PAGE_BLOCKS, SlabGeometry, SlabIndex};
pub use identity::{
    ClusterId, CopyId, DriveId, GrowthId, NodeId, ProcessIncarnation, ShardId, VmId, VolumeId,
};
pub use iops_limit::IopsLimit;
pub use load::{FlowCounts, Load, LoadCounts};
pub use moves::Move;
pub use place::{FaultDomain, Place};
pub use repair_share::{PIECES_WHILE_QUIET, RepairShare};
pub use version::{ConfigurationVersion, Epoch, Version};
