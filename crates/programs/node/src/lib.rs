//! One node, put together from the parts, for any platform: the program runs it on Linux, the
//! simulator in its worlds.
//!
//! Reading order: [`Node`] (start and stop), `shards` (where a node is several of these), `parts` (what all of it shares), `caches`, `rebinding`, `attempts` and `cache_watch` (cache drives, who is bound to them, and what becomes of them), `drives` (which drives
//! join, and when; `stubborn`, how the state is asked for that), `view` (what the node knows of the cluster's state), [`liveness`] (heartbeats and
//! promises), `ownership` (which volumes the node takes), `handover` (giving one to another node), `context` (what an owner sees of the
//! world), `service` (what other nodes ask), `device` (a volume as this node's clients use it,
//! wherever its owner is), `volumes` (making and deleting them), `growth` (making them larger), `moves`, `retire_slow` and
//! `scrub` (what is done with their copies by itself), [`report`], [`load`] and `pauses` (how busy it is, and how long clients
//! have waited).

mod absence;
mod attempts;
mod cache_watch;
mod caches;
mod context;
mod device;
mod drives;
mod growth;
mod handover;
pub mod liveness;
pub mod load;
mod moves;
mod node;
mod ownership;
mod pacer;
mod parts;
mod pauses;
mod rebinding;
mod replaced;
pub mod report;
mod retire_slow;
mod scrub;
mod scrub_plan;
mod service;
mod shards;
mod stubborn;
mod view;
mod vms;
mod volumes;
mod watched;
mod writers;

pub use device::{NodeDevice, NodeExports};
pub use growth::{VolumeGrown, VolumeGrowth};
pub use load::{CacheCounts, DriveLoad, LongestPause, NodeLoad, VolumeLoad};
pub use moves::placed;
pub use node::{DriveAdded, DrivePlace, Node, NodeConfig};
pub use rebinding::LetGo;
pub use report::{
    CacheDriveReport, CacheReport, DriveAway, DriveReport, DriveSlow, LegReport, NodeReport,
    OwnedVolumeReport, PathReport, PeerReport, ScrubProgress,
};
pub use shards::{DriveHomes, SHARDS_MAX, Siblings, by_turns, start_shards};
pub use vms::{VmCondition, VmReport};
pub use volumes::{VolumeCreated, VolumeCreation, drive_room};
