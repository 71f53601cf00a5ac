//! The cluster's state: what all nodes agree on, and how it changes.
//!
//! [`store`] asks for a small key-value store with transactions, watches and leases. What is kept
//! in memory ([`memory`]) is the base of every make that is not etcd; [`simulated`] is the one
//! for simulations, and `conformance` what every make must pass. [`counted`] goes around any of them.
//!
//! On it stand the [`records`] at their [`keys`], and [`ClusterState`], which reads and changes
//! them: nodes and drives in [`state`], volumes in [`volumes`], a volume's copies and marks in
//! [`changes`], copies that take the places of others in [`moves`], slabs that are to come in [`growth`], by the rules of
//! [`membership`]; what is set for the whole pool in [`settings`], how far scrubs are in [`scrubs`], which faults were told in
//! [`told`], virtual machines in [`vms`]. A [`mirror`] keeps a part
//! of it up to date in memory, and a [`stamp`] says how new a state
//! is.
//!
//! What nodes promise each other without the state is in [`promises`], who lives in [`liveness`],
//! and who may go on without the others in [`majority`].

pub mod access;
pub mod backup;
pub mod changes;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
pub mod copy_sets;
pub mod counted;
pub mod growth;
pub mod keys;
pub mod liveness;
pub mod majority;
pub mod membership;
pub mod memory;
pub mod mirror;
pub mod moves;
pub mod promises;
pub mod records;
pub mod scrubs;
pub mod servers;
pub mod settings;
pub mod simulated;
pub mod stamp;
pub mod state;
pub mod store;
#[cfg(test)]
mod test_cluster;
#[cfg(test)]
mod test_platform;
pub mod told;
pub mod vms;
pub mod volumes;

pub use copy_sets::{CopyBatch, CopySet, Layout, Member, SlabChunk};
pub use counted::{CountedStore, StateRequests};
pub use keys::StateKey;
pub use membership::VolumeMembership;
pub use mirror::Mirror;
pub use records::{
    AccessRecord, AliveRecord, AliveShards, ClusterRecord, DriveRecord, DriveRole, DriveState, JoinRecord,
    MediaClass, NodeRecord, Role, Stored, VolumeOwner, VolumeRecord, VolumeSettings, VolumeState,
    VolumeWriter, WitnessRecord, is_served,
};
pub use scrubs::{ScrubFindings, ScrubRecord, ScrubSummary, SlabDate, UnwellSlab};
pub use settings::SettingsRecord;
pub use stamp::{StateStamp, generation_to_recover};
pub use state::{ClusterState, PoolRoom, PromisedRoom, StateError};
pub use told::{ToldFault, ToldRecord};
pub use vms::{
    MigrationStage, PlacementReason, VmBoot, VmDiskBus, VmGoal, VmHost, VmMigration, VmPlacement, VmPriority,
    VmRecord, Vms,
};
pub use volumes::{NewVolume, mirror_sets, mirror_sets_from};
