//! What runs virtual machines on a node, as the node sees it.

use std::collections::BTreeMap;

use futures_util::future::LocalBoxFuture;
use spandrel_cluster::{VmBoot, VmDiskBus, VmHost};
use spandrel_shared::{Error, NodeId, VmId};

use crate::disk::DiskName;

/// What is needed to start a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmSpec {
    /// Its name.
    pub name: String,
    /// Its disk, by whose name it is opened: with its identity and the run.
    pub disk: DiskName,
    /// How its requests come there.
    pub disk_bus: VmDiskBus,
    /// How many processors it has.
    pub processors: u16,
    /// Its memory, in bytes.
    pub memory_bytes: u64,
    /// What it starts from.
    pub boot: VmBoot,
    /// Whether it starts from nothing but waits for what its guest has in memory on another node.
    pub is_arriving: bool,
}

/// A virtual machine on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The run for which it was started.
    pub run: u64,
    /// How it is.
    pub condition: Condition,
}

/// How a virtual machine on a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It stands still and can be let run: it waits for what its guest has in memory on another node, or has it, or a former run of
    /// this node has left it so.
    Arriving,
    /// Its guest runs.
    Running,
    /// It stands still, for this reason: as a rule since its disk has failed.
    Paused(String),
    /// Its guest has shut down.
    ShutDown,
    /// It has ended by itself, for this reason.
    Failed(String),
}

/// What runs virtual machines on a node.
pub trait Hypervisor {
    /// What it has for them.
    fn host(&self) -> VmHost;

    /// The virtual machines on this node, also those that a former process of the node has started, and those that have ended
    /// until [`Self::end`] was called for them.
    fn instances(&self) -> LocalBoxFuture<'_, BTreeMap<VmId, Instance>>;

    /// Starts a virtual machine, and returns when its guest runs, or when it waits for it. None of its identity may be there.
    fn start(&self, spec: VmSpec) -> LocalBoxFuture<'_, Result<(), Error>>;

    /// Sends what a guest has in memory to another node, where it is awaited, while it runs; then stops it, and sends the rest.
    /// When this returns without an error, it stands still here, and all of it was sent. Dropped before, it is not sent.
    fn send(&self, vm: VmId, to: NodeId) -> LocalBoxFuture<'_, Result<(), Error>>;

    /// Lets a guest run that has arrived here, or that was to leave and stays.
    fn resume(&self, vm: VmId) -> LocalBoxFuture<'_, Result<(), Error>>;

    /// Asks a guest to shut down. It may not listen.
    fn shut_down(&self, vm: VmId) -> LocalBoxFuture<'_, ()>;

    /// Ends a virtual machine, as if its power was cut, and forgets it. When this returns, nothing of it is left.
    fn end(&self, vm: VmId) -> LocalBoxFuture<'_, Result<(), Error>>;

    /// Waits until an instance is in another condition than before.
    fn changed(&self) -> LocalBoxFuture<'_, ()>;
}
