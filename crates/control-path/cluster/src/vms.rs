//! Virtual machines: what was decided about each, and on which node it is to run.
//!
//! A virtual machine has one disk, which is a volume, and a volume is the disk of one virtual machine at most. A node that
//! runs one has claimed it in a transaction that compares what it saw, so of several that want to only one does. Each claim
//! gets a number of its own, the *run*, by which the disk is opened: whoever was started for an earlier run opens nothing any
//! more.
//!
//! Invariants:
//! - A run is never used twice, whatever happens to the state: one that is put back gets higher ones.
//! - A virtual machine that is placed is not deleted, and neither is a volume that is a disk.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spandrel_shared::name::validate_name;
use spandrel_shared::{Error, NodeId, VmId, VolumeId};

use crate::keys::{self, StateKey};
use crate::records::{Record, Stored, VolumeRecord, VolumeState, encode, record};
use crate::state::{ClusterState, StateError};
use crate::store::{Expected, StateStore, Transaction};

/// The least memory of a virtual machine, in bytes: less starts no kernel.
pub const VM_MEMORY_BYTES_MIN: u64 = 64 << 20;

/// The most memory of a virtual machine, in bytes.
pub const VM_MEMORY_BYTES_MAX: u64 = 4 << 40;

/// The most processors of a virtual machine.
pub const VM_PROCESSORS_MAX: u16 = 255;

/// What every virtual machine's run is raised by for each time that an older state took the place of a newer one: more
/// runs than can have come in between.
const RUNS_SKIPPED: u64 = 1 << 32;

/// The highest run: more than can be used up, and one can be added to it.
const RUN_MAX: u64 = 1 << 62;

/// What a virtual machine starts from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VmBoot {
    /// From its disk, as firmware does.
    #[default]
    Disk,
    /// From a kernel that lies on every node that may run it.
    Kernel {
        /// The path of the kernel.
        kernel: String,
        /// The path of the initial RAM disk.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        initrd: Option<String>,
        /// The kernel's command line.
        #[serde(default)]
        arguments: String,
    },
}

/// How a virtual machine's requests come to the node that serves its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VmDiskBus {
    /// QEMU passes them on over NBD.
    #[default]
    Nbd,
    /// The node sees the guest's memory, and takes them from there.
    VhostUser,
}

impl std::fmt::Display for VmDiskBus {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Nbd => "nbd",
            Self::VhostUser => "vhost-user",
        })
    }
}

/// In which order virtual machines are started when several have lost their node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VmPriority {
    /// Before all others.
    High,
    /// As a rule.
    #[default]
    Medium,
    /// When all others run.
    Low,
    /// Not by itself: it stays off when its node is lost.
    NoAutoStart,
}

impl std::fmt::Display for VmPriority {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::High => "high",
            Self::Medium => "medium",
            Self::Low => "low",
            Self::NoAutoStart => "no-auto-start",
        })
    }
}

/// What a virtual machine is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VmGoal {
    /// Nothing. If it runs, its guest is asked to shut down.
    #[default]
    Off,
    /// Nothing, and at once: as if its power was cut.
    OffAtOnce,
    /// Run, on whichever node has room.
    Running,
}

/// Why a virtual machine is where it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlacementReason {
    /// Somebody has started it.
    Started,
    /// The node was lost on which it ran.
    NodeLost {
        /// That node.
        node: NodeId,
    },
    /// The node was stopped on which it ran.
    NodeStopped {
        /// That node.
        node: NodeId,
    },
    /// It has moved while it ran.
    Moved {
        /// The node from which.
        node: NodeId,
    },
    /// It could not be started on the node that had claimed it.
    StartFailed {
        /// That node.
        node: NodeId,
    },
}

/// Where a virtual machine runs, or is being started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmPlacement {
    /// The node.
    pub node: NodeId,
    /// The number of the claim. Never used twice for a virtual machine.
    pub run: u64,
    /// When it was claimed.
    pub since_unix_ms: u64,
    /// Why it is there.
    pub reason: PlacementReason,
}

/// A virtual machine that moves to another node while it runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmMigration {
    /// The node that it moves to.
    pub to: NodeId,
    /// The number of the claim that this is for that node.
    pub run: u64,
    /// How far it is.
    pub stage: MigrationStage,
    /// When it began.
    pub since_unix_ms: u64,
}

/// How far a migration is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MigrationStage {
    /// The other node is to make room for it.
    Wanted,
    /// The other node waits for what its guest has in memory.
    Ready,
}

/// A virtual machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmRecord {
    /// Its name.
    pub name: String,
    /// Its disk.
    pub volume: VolumeId,
    /// How many processors it has.
    pub processors: u16,
    /// Its memory, in bytes.
    pub memory_bytes: u64,
    /// What it starts from.
    #[serde(default)]
    pub boot: VmBoot,
    /// How its requests come to its disk.
    #[serde(default)]
    pub disk_bus: VmDiskBus,
    /// When it is started, among others that wait.
    #[serde(default)]
    pub priority: VmPriority,
    /// What it is to do.
    pub goal: VmGoal,
    /// Where it runs; nowhere if it is off or waits for a node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<VmPlacement>,
    /// Where it moves to, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migration: Option<VmMigration>,
    /// Why the next node that claims it does so, if it has lost one: with what it waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_because: Option<PlacementReason>,
    /// The run of its last claim; 0 before the first one.
    #[serde(default)]
    pub last_run: u64,
    /// When it was made.
    pub created_unix_ms: u64,
}

impl Record for VmRecord {
    const KIND: &'static str = "virtual machine";
    const FORMAT: u32 = 1;
    type Body = Self;

    fn to_body(&self) -> Self {
        self.clone()
    }

    fn from_body(body: Self) -> Result<Self, String> {
        let placed_run = body.placement.as_ref().map_or(0, |placement| placement.run);
        let moving_run = body.migration.as_ref().map_or(0, |migration| migration.run);
        let used = placed_run.max(moving_run);
        if body.last_run > RUN_MAX || used > body.last_run {
            return Err(format!("its last run is {}, and it is placed by run {used}", body.last_run));
        }
        if body.migration.is_some() && body.placement.is_none() {
            return Err("it moves, and is nowhere".to_owned());
        }
        Ok(body)
    }
}

impl VmRecord {
    /// This virtual machine with a claim by `node`.
    pub fn claimed(&self, node: NodeId, reason: PlacementReason, now_unix_ms: u64) -> Self {
        let run = self.last_run + 1;
        let placement = VmPlacement { node, run, since_unix_ms: now_unix_ms, reason };
        Self {
            placement: Some(placement),
            migration: None,
            waits_because: None,
            last_run: run,
            ..self.clone()
        }
    }

    /// This virtual machine without a node.
    pub fn released(&self, waits_because: Option<PlacementReason>) -> Self {
        Self { placement: None, migration: None, waits_because, ..self.clone() }
    }

    /// This virtual machine, which runs somewhere, as it begins to move to another node.
    pub fn moving(&self, to: NodeId, now_unix_ms: u64) -> Self {
        let run = self.last_run + 1;
        let migration = VmMigration { to, run, stage: MigrationStage::Wanted, since_unix_ms: now_unix_ms };
        Self { migration: Some(migration), last_run: run, ..self.clone() }
    }

    /// This virtual machine once the node that it moves to waits for it.
    pub fn awaited(&self) -> Self {
        let ready =
            |migration: &VmMigration| VmMigration { stage: MigrationStage::Ready, ..migration.clone() };
        Self { migration: self.migration.as_ref().map(ready), ..self.clone() }
    }

    /// This virtual machine once all of it is on the node that it has moved to. As it is if it moves nowhere.
    pub fn moved(&self, now_unix_ms: u64) -> Self {
        let (Some(migration), Some(former)) = (&self.migration, &self.placement) else { return self.clone() };
        let placement = VmPlacement {
            node: migration.to,
            run: migration.run,
            since_unix_ms: now_unix_ms,
            reason: PlacementReason::Moved { node: former.node },
        };
        Self { placement: Some(placement), migration: None, ..self.clone() }
    }

    /// This virtual machine as it stays where it is.
    pub fn staying(&self) -> Self {
        Self { migration: None, ..self.clone() }
    }

    /// Whether a node has claimed it.
    pub fn is_on(&self, node: NodeId) -> bool {
        self.placement.as_ref().is_some_and(|placement| placement.node == node)
    }

    /// Whether another node has claimed it.
    pub fn is_elsewhere(&self, node: NodeId) -> bool {
        self.placement.as_ref().is_some_and(|placement| placement.node != node)
    }

    /// Whether it takes memory of a node: it is there, or moves there.
    pub fn takes_memory_of(&self, node: NodeId) -> bool {
        self.is_on(node) || self.migration.as_ref().is_some_and(|migration| migration.to == node)
    }

    /// As it is in a state that was put back `recoveries` times: it runs nowhere, and whatever still runs for it is none of it.
    pub(crate) fn restored(&self, recoveries: u32) -> Self {
        let skipped = RUNS_SKIPPED.saturating_mul(u64::from(recoveries));
        Self { last_run: self.last_run.saturating_add(skipped), ..self.released(None) }
    }

    /// Whether it can be.
    fn validate(&self) -> Result<(), Error> {
        validate_name("virtual machine", &self.name)?;
        let why = if !(VM_MEMORY_BYTES_MIN..=VM_MEMORY_BYTES_MAX).contains(&self.memory_bytes) {
            format!("its memory of {} bytes is not between 64 MiB and 4 TiB", self.memory_bytes)
        } else if !self.memory_bytes.is_multiple_of(1 << 20) {
            format!("its memory of {} bytes is no multiple of 1 MiB", self.memory_bytes)
        } else if self.processors == 0 || self.processors > VM_PROCESSORS_MAX {
            format!("it cannot have {} processors; 1 to {VM_PROCESSORS_MAX} are possible", self.processors)
        } else {
            return Ok(());
        };
        let what = format!("the virtual machine {} cannot be made", self.name);
        Err(Error::new("VM_INVALID", what, why, "choose other values"))
    }
}

/// The virtual machine of a name, or that a volume is the disk of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmReferenceRecord {
    /// The virtual machine.
    pub vm: VmId,
}
record!(VmReferenceRecord, "reference to a virtual machine", 1);

/// What a node has for virtual machines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmHost {
    /// Memory that virtual machines may have there in all, in bytes.
    pub memory_bytes: u64,
    /// What runs them, like `kvm` or `tcg`.
    pub accelerator: String,
}

/// Virtual machines with their identities.
pub type Vms = BTreeMap<VmId, Stored<VmRecord>>;

impl<S: StateStore> ClusterState<S> {
    /// All virtual machines.
    pub async fn vms(&self) -> Result<Vms, StateError> {
        self.list(keys::VMS).await
    }

    /// The virtual machine of a name.
    pub async fn vm_by_name(&self, name: &str) -> Result<Option<(VmId, Stored<VmRecord>)>, StateError> {
        let key = StateKey::VmName(name.to_owned());
        let Some(found) = self.get::<VmReferenceRecord>(&key).await? else { return Ok(None) };
        let vm = found.record.vm;
        Ok(self.get::<VmRecord>(&StateKey::Vm(vm)).await?.map(|stored| (vm, stored)))
    }

    /// Makes a virtual machine. After an unknown outcome it is called again with the same arguments.
    ///
    /// Errors besides the store's: `NAME_INVALID`, `VM_INVALID`, `VM_EXISTS`, `VOLUME_NOT_FOUND`, `VOLUME_OF_VM` if the volume
    /// is the disk of another one.
    pub async fn create_vm(&self, vm: VmId, record: &VmRecord) -> Result<(), StateError> {
        record.validate()?;
        let volume_key = StateKey::Volume(record.volume);
        let volume = self.get::<VolumeRecord>(&volume_key).await?;
        let volume = volume.filter(|volume| volume.record.state == VolumeState::Ready);
        let volume = volume.ok_or_else(|| {
            let what = format!("the virtual machine {} cannot be made", record.name);
            Error::new(
                "VOLUME_NOT_FOUND",
                what,
                "there is no such volume",
                "list the volumes with `spandrel volume list`",
            )
        })?;
        let [key, name_key, disk_key] =
            [StateKey::Vm(vm), StateKey::VmName(record.name.clone()), StateKey::VmDisk(record.volume)]
                .map(|key| key.key());
        let transaction = Transaction::new()
            .expect(&volume_key.key(), Expected::ModifiedAt(volume.revision))
            .expect(&key, Expected::Absent)
            .expect(&name_key, Expected::Absent)
            .expect(&disk_key, Expected::Absent)
            .put(&key, encode(record))
            .put(&name_key, encode(&VmReferenceRecord { vm }))
            .put(&disk_key, encode(&VmReferenceRecord { vm }));
        match self.commit(transaction).await {
            Err(StateError::Conflict) => {}
            outcome => return outcome.map(drop),
        }
        if self.get::<VmRecord>(&StateKey::Vm(vm)).await?.is_some() {
            // An earlier attempt was made after all.
            return Ok(());
        }
        if self.vm_by_name(&record.name).await?.is_some() {
            let what = format!("the virtual machine {} cannot be made", record.name);
            return Err(
                Error::new("VM_EXISTS", what, "there is one of that name", "choose another name").into()
            );
        }
        match self.vm_of_disk(record.volume).await? {
            Some(other) => Err(disk_of(&volume.record.name, &other, "is not given to another one").into()),
            None => Err(StateError::Conflict),
        }
    }

    /// Changes a virtual machine, if it is as it was `seen`. Whoever does not know whether that was done reads it again.
    pub async fn change_vm(
        &self,
        vm: VmId,
        seen: &Stored<VmRecord>,
        record: VmRecord,
    ) -> Result<Stored<VmRecord>, StateError> {
        self.put(&StateKey::Vm(vm), Expected::ModifiedAt(seen.revision), record).await
    }

    /// Deletes a virtual machine, if it is as it was `seen`. Its disk stays.
    ///
    /// Errors besides the store's: `VM_NOT_OFF`.
    pub async fn delete_vm(&self, vm: VmId, seen: &Stored<VmRecord>) -> Result<(), StateError> {
        let record = &seen.record;
        if record.placement.is_some() || record.goal == VmGoal::Running {
            return Err(Error::new(
                "VM_NOT_OFF",
                format!("the virtual machine {} is not deleted", record.name),
                "it is not off",
                format!("stop it with `spandrel vm stop {}` first", record.name),
            )
            .into());
        }
        let key = StateKey::Vm(vm).key();
        let transaction = Transaction::new()
            .expect(&key, Expected::ModifiedAt(seen.revision))
            .delete(&key)
            .delete(&StateKey::VmName(record.name.clone()).key())
            .delete(&StateKey::VmDisk(record.volume).key());
        match self.commit(transaction).await {
            // An earlier attempt was made after all, or somebody else's.
            Err(StateError::Conflict) if self.get::<VmRecord>(&StateKey::Vm(vm)).await?.is_none() => Ok(()),
            outcome => outcome.map(drop),
        }
    }

    /// The name of the virtual machine that a volume is the disk of.
    pub async fn vm_of_disk(&self, volume: VolumeId) -> Result<Option<String>, StateError> {
        let Some(found) = self.get::<VmReferenceRecord>(&StateKey::VmDisk(volume)).await? else {
            return Ok(None);
        };
        let vm = self.get::<VmRecord>(&StateKey::Vm(found.record.vm)).await?;
        Ok(vm.map(|stored| stored.record.name))
    }
}

/// The error that a volume is the disk of a virtual machine.
pub fn disk_of(volume: &str, vm: &str, what: &str) -> Error {
    Error::new(
        "VOLUME_OF_VM",
        format!("volume {volume} {what}"),
        format!("it is the disk of the virtual machine {vm}"),
        format!("delete that first, with `spandrel vm delete {vm}`, or use another volume"),
    )
}

#[cfg(test)]
#[path = "vms_tests.rs"]
mod tests;
