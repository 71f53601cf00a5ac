//! Which key holds which record.
//!
//! ```text
//! cluster                        the cluster itself
//! nodes/<node>                   a server that belongs to the cluster
//! alive/<node>[.<shard>]         a shard of its running process; vanishes with its lease
//! drives/<drive>                 a drive of the pool
//! caches/<drive>                 a drive that caches for those of its node; no copy is placed on it
//! volumes/<volume>               a volume: owner, epoch, configuration version
//! volumes-by-name/<name>         the volume of that name
//! slabs/<volume>/<chunk>         the copy sets of 256 slabs, chunk in 8 hexadecimal digits; behind those that count,
//!                                those that are to come to a volume that grows
//! stale/<volume>/<drive>         the copies there may lack writes
//! vms/<vm>                       a virtual machine: what it is to do, and where it runs
//! vms-by-name/<name>             the virtual machine of that name
//! vm-disks/<volume>              the virtual machine that the volume is the disk of
//! scrubs/<volume>                when the volume's slabs were read last, and what was found
//! settings                       what is set for the whole pool
//! told                           which faults were told to people
//! room                           changes with every promise of room
//! rooms/<volume>                 the room that the volume was promised, by drive
//! awake/<node>                   a server runs that could help to keep this state; vanishes with its lease
//! witnesses/<node>               a server without drives that helps to keep this state
//! servers                        changes with every server that comes or goes
//! changed                        changes with everything that does not vanish by itself
//! joins/<digest>                 lets whoever knows the secret of this digest join
//! access/<digest>                lets whoever knows the secret of this digest use the admin API
//! access-by-name/<name>          the access that was given to somebody
//! tombstones/<kind>/<identity>   what was deleted
//! ```

use std::fmt;

use spandrel_shared::{DriveId, NodeId, ShardId, VmId, VolumeId};

use crate::records::DriveRole;
use crate::store::Key;

/// A key, taken apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateKey {
    /// The cluster itself.
    Cluster,
    /// A server that belongs to the cluster.
    Node(NodeId),
    /// A shard of the running process of a node.
    Alive(ShardId),
    /// A drive of the pool.
    Drive(DriveId),
    /// A drive that caches for those of its node.
    CacheDrive(DriveId),
    /// A volume.
    Volume(VolumeId),
    /// The volume of a name.
    VolumeName(String),
    /// The copy sets of a chunk of a volume's slabs.
    Slabs(VolumeId, u32),
    /// A mark that a volume's copies on a drive may lack writes.
    Stale(VolumeId, DriveId),
    /// A virtual machine.
    Vm(VmId),
    /// The virtual machine of a name.
    VmName(String),
    /// The virtual machine that a volume is the disk of.
    VmDisk(VolumeId),
    /// How far the scrub of a volume is.
    Scrub(VolumeId),
    /// What is set for the whole pool.
    Settings,
    /// Which faults were told to people.
    Told,
    /// What every promise of room changes.
    Room,
    /// The room that a volume was promised.
    VolumeRoom(VolumeId),
    /// A server without drives that helps to keep this state.
    Witness(NodeId),
    /// A server runs that could help to keep this state.
    Awake(NodeId),
    /// What every coming and going of servers changes.
    Servers,
    /// What every change of what does not vanish by itself changes.
    Changed,
    /// Lets whoever knows the secret of this digest join.
    Join(String),
    /// Lets whoever knows the secret of this digest use the admin API.
    Access(String),
    /// The access that was given to somebody.
    AccessName(String),
    /// What remains of a node.
    NodeTombstone(NodeId),
    /// What remains of a drive.
    DriveTombstone(DriveId),
    /// What remains of a volume.
    VolumeTombstone(VolumeId),
}

impl StateKey {
    /// Where the record of a drive is.
    pub fn drive(drive: DriveId, role: DriveRole) -> Self {
        match role {
            DriveRole::Capacity => Self::Drive(drive),
            DriveRole::Cache => Self::CacheDrive(drive),
        }
    }

    /// The key in the store.
    pub fn key(&self) -> Key {
        Key::new(&self.to_string())
    }

    /// What `key` names; `None` if a newer version made it.
    pub fn parse(key: &Key) -> Option<Self> {
        let parts: Vec<_> = key.as_str().split('/').collect();
        let parsed = match parts[..] {
            ["cluster"] => Self::Cluster,
            ["nodes", node] => Self::Node(node.parse().ok()?),
            ["alive", shard] => Self::Alive(shard.parse().ok()?),
            ["drives", drive] => Self::Drive(drive.parse().ok()?),
            ["caches", drive] => Self::CacheDrive(drive.parse().ok()?),
            ["volumes", volume] => Self::Volume(volume.parse().ok()?),
            ["volumes-by-name", name] => Self::VolumeName(name.to_owned()),
            ["slabs", volume, chunk] => {
                Self::Slabs(volume.parse().ok()?, u32::from_str_radix(chunk, 16).ok()?)
            }
            ["stale", volume, drive] => Self::Stale(volume.parse().ok()?, drive.parse().ok()?),
            ["vms", vm] => Self::Vm(vm.parse().ok()?),
            ["vms-by-name", name] => Self::VmName(name.to_owned()),
            ["vm-disks", volume] => Self::VmDisk(volume.parse().ok()?),
            ["scrubs", volume] => Self::Scrub(volume.parse().ok()?),
            [SETTINGS] => Self::Settings,
            ["told"] => Self::Told,
            ["room"] => Self::Room,
            ["rooms", volume] => Self::VolumeRoom(volume.parse().ok()?),
            ["witnesses", node] => Self::Witness(node.parse().ok()?),
            ["awake", node] => Self::Awake(node.parse().ok()?),
            ["servers"] => Self::Servers,
            [CHANGED] => Self::Changed,
            ["joins", digest] => Self::Join(digest.to_owned()),
            ["access", digest] => Self::Access(digest.to_owned()),
            ["access-by-name", name] => Self::AccessName(name.to_owned()),
            ["tombstones", "nodes", node] => Self::NodeTombstone(node.parse().ok()?),
            ["tombstones", "drives", drive] => Self::DriveTombstone(drive.parse().ok()?),
            ["tombstones", "volumes", volume] => Self::VolumeTombstone(volume.parse().ok()?),
            _ => return None,
        };
        // One key has one spelling.
        (parsed.to_string() == key.as_str()).then_some(parsed)
    }
}

impl fmt::Display for StateKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => formatter.write_str("cluster"),
            Self::Node(node) => write!(formatter, "nodes/{node}"),
            Self::Alive(shard) => write!(formatter, "alive/{shard}"),
            Self::Drive(drive) => write!(formatter, "drives/{drive}"),
            Self::CacheDrive(drive) => write!(formatter, "caches/{drive}"),
            Self::Volume(volume) => write!(formatter, "volumes/{volume}"),
            Self::VolumeName(name) => write!(formatter, "volumes-by-name/{name}"),
            Self::Slabs(volume, chunk) => write!(formatter, "slabs/{volume}/{chunk:08x}"),
            Self::Stale(volume, drive) => write!(formatter, "stale/{volume}/{drive}"),
            Self::Vm(vm) => write!(formatter, "vms/{vm}"),
            Self::VmName(name) => write!(formatter, "vms-by-name/{name}"),
            Self::VmDisk(volume) => write!(formatter, "vm-disks/{volume}"),
            Self::Scrub(volume) => write!(formatter, "scrubs/{volume}"),
            Self::Settings => formatter.write_str(SETTINGS),
            Self::Told => formatter.write_str("told"),
            Self::Room => formatter.write_str("room"),
            Self::VolumeRoom(volume) => write!(formatter, "rooms/{volume}"),
            Self::Witness(node) => write!(formatter, "witnesses/{node}"),
            Self::Awake(node) => write!(formatter, "awake/{node}"),
            Self::Servers => formatter.write_str("servers"),
            Self::Changed => formatter.write_str(CHANGED),
            Self::Join(digest) => write!(formatter, "joins/{digest}"),
            Self::Access(digest) => write!(formatter, "access/{digest}"),
            Self::AccessName(name) => write!(formatter, "access-by-name/{name}"),
            Self::NodeTombstone(node) => write!(formatter, "tombstones/nodes/{node}"),
            Self::DriveTombstone(drive) => write!(formatter, "tombstones/drives/{drive}"),
            Self::VolumeTombstone(volume) => write!(formatter, "tombstones/volumes/{volume}"),
        }
    }
}

/// The prefix of all nodes.
pub const NODES: &str = "nodes/";
/// The prefix of the running processes.
pub const ALIVE: &str = "alive/";
/// The prefix of all drives.
pub const DRIVES: &str = "drives/";
/// The prefix of all cache drives.
pub const CACHES: &str = "caches/";
/// The prefix of the drives that were taken out of the pool.
pub const DRIVE_TOMBSTONES: &str = "tombstones/drives/";
/// The prefix of all volumes.
pub const VOLUMES: &str = "volumes/";
/// The prefix of all virtual machines.
pub const VMS: &str = "vms/";
/// The prefix of all witnesses.
pub const WITNESSES: &str = "witnesses/";
/// The prefix of the servers that run.
pub const AWAKE: &str = "awake/";
/// The prefix of all access tokens.
pub const ACCESS: &str = "access/";
/// The prefix of what remains of nodes.
pub const NODE_TOMBSTONES: &str = "tombstones/nodes/";
/// The prefix of the room promised to volumes.
pub const ROOMS: &str = "rooms/";
/// The prefix of how far scrubs are.
pub const SCRUBS: &str = "scrubs/";
/// What is set for the whole pool.
pub const SETTINGS: &str = "settings";
/// What every change of what does not vanish by itself changes.
pub const CHANGED: &str = "changed";
/// The prefix of join tokens.
pub const JOINS: &str = "joins/";

/// The prefix of a node's shards that are alive.
pub fn alive_of(node: NodeId) -> String {
    format!("alive/{node}")
}

/// The prefix of a volume's copy sets.
pub fn slabs_of(volume: VolumeId) -> String {
    format!("slabs/{volume}/")
}

/// The prefix of a volume's stale marks.
pub fn stale_of(volume: VolumeId) -> String {
    format!("stale/{volume}/")
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
