//! What operations cost, measured in worlds without faults: one operation here, many and none in [`load`].
//!
//! Time is made so that a latency tells what was waited for: a message takes 1 ms, a write to a drive 10 us, a
//! flush 100 ns, a read 1 ns, and all else no time. So an operation that took 2,010,101 ns has waited for two
//! messages, a write, a flush and a read, one after the other; of what goes on at the same time the longest
//! shows. What an operation costs in all is counted where it arrives: by the simulated drives, and by the
//! buses, whose bytes must be those that the simulated network has carried.

pub mod load;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spandrel_bus::RequestKind;
use spandrel_cluster::VolumeMembership;
use spandrel_platform::Platform;
use spandrel_platform_simulated::{
    DelayRange, DriveCounters, NetworkConfig, Process, RunEnd, SimulatedDriveConfig, SimulatedPlatform,
    TurnOrder, WorldConfig,
};
use spandrel_shared::knob::{self, Knob};
use spandrel_shared::{BLOCK_BYTES, VolumeId};
use spandrel_volume::{BlockDevice, DeviceError, Exports};

use crate::checkers::performance::{Cost, Situation};
use crate::history::{SECTOR_BYTES, content};
use crate::nodes::{NodesConfig, NodesWorld, SimulatedNode, node_id};
use crate::shape::Shape;

/// How long a message is on its way where operations are measured.
pub const ONE_WAY: Duration = Duration::from_millis(1);

const WRITE: Duration = Duration::from_micros(10);
const FLUSH: Duration = Duration::from_nanos(100);
const READ: Duration = Duration::from_nanos(1);

/// The slabs of measured volumes.
pub const SLAB_BYTES: u64 = 8 << 20;

/// A drive so small that it has the shortest journal that there is.
pub const SMALL_DRIVE_BYTES: u64 = 64 << 20;

/// A drive whose journal is not filled by single operations, so that no checkpoint comes between them.
pub const LARGE_DRIVE_BYTES: u64 = 512 << 20;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const BLOCK: u64 = BLOCK_BYTES as u64;

/// Long enough for everything that an operation leaves behind.
const SETTLE: Duration = Duration::from_millis(2500);

/// What is done to a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A trim.
    Trim,
    /// A write-zeroes.
    WriteZeroes,
    /// A question for allocation.
    Extents,
    /// A flush.
    Flush,
}

/// A step of a measurement.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// What the model calls it; `None` if its cost is not certain, or it only prepares others.
    pub name: Option<&'static str>,
    action: Action,
    /// From the start of a slab.
    offset: u64,
    length: u64,
}

const fn step(name: &'static str, action: Action, offset: u64, length: u64) -> Step {
    Step { name: Some(name), action, offset, length }
}

const fn prepare(action: Action, offset: u64, length: u64) -> Step {
    Step { name: None, action, offset, length }
}

/// Where blocks stand by themselves, behind those of long operations.
const SINGLE: u64 = 5 * MIB;

/// What is measured within one slab, in this order.
pub const WITHIN_A_SLAB: [Step; 23] = [
    step("write of 4 KiB", Action::Write, SINGLE, BLOCK),
    step("read of 4 KiB", Action::Read, SINGLE, BLOCK),
    step("read of a hole", Action::Read, SINGLE + MIB, BLOCK),
    step("question for allocation", Action::Extents, SINGLE, MIB),
    step("write of 512 bytes", Action::Write, SINGLE + KIB, 512),
    step("write of 512 bytes into a hole", Action::Write, SINGLE + 64 * KIB, 512),
    prepare(Action::Trim, SINGLE + 64 * KIB, BLOCK),
    step("write of 1 MiB", Action::Write, 0, MIB),
    step("read of 1 MiB", Action::Read, 0, MIB),
    prepare(Action::Write, 0, MIB),
    prepare(Action::Write, MIB, MIB),
    prepare(Action::Write, 2 * MIB, MIB),
    prepare(Action::Write, 3 * MIB, MIB),
    step("read of 4 MiB", Action::Read, 0, 4 * MIB),
    step("write of 8 KiB that begins and ends within a block", Action::Write, 512, 8 * KIB),
    step("write of zeroes, 4 KiB", Action::WriteZeroes, 2 * MIB, BLOCK),
    step(
        "write of zeroes, 8 KiB that begin and end within a block",
        Action::WriteZeroes,
        3 * MIB + 512,
        8 * KIB,
    ),
    // Written one by one, the second before the first, so that they do not lie behind each other.
    prepare(Action::Write, SINGLE + 2 * BLOCK, BLOCK),
    prepare(Action::Write, SINGLE + BLOCK, BLOCK),
    step("read of 8 KiB that lie apart", Action::Read, SINGLE + BLOCK, 2 * BLOCK),
    step("trim of 4 KiB", Action::Trim, SINGLE, BLOCK),
    step("trim of 1 MiB", Action::Trim, 0, MIB),
    step("flush", Action::Flush, 0, 0),
];

/// A write of several pieces, whose groups are bounded and not certain.
pub const LONG_WRITE: Step = prepare(Action::Write, 0, 4 * MIB);

/// What is measured across the end of a slab, in this order.
pub const ACROSS_SLABS: [Step; 3] = [
    step("write of 8 KiB, half of it in the next slab", Action::Write, SLAB_BYTES - BLOCK, 2 * BLOCK),
    step("read of 8 KiB, half of it in the next slab", Action::Read, SLAB_BYTES - BLOCK, 2 * BLOCK),
    step("trim of 8 KiB, half of it in the next slab", Action::Trim, SLAB_BYTES - BLOCK, 2 * BLOCK),
];

/// How long everything takes in a world.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// A message.
    pub one_way: DelayRange,
    /// A write to a drive.
    pub write: Duration,
    /// A flush of a drive.
    pub flush: Duration,
    /// A read of a drive.
    pub read: Duration,
}

impl Times {
    /// Times that can be told from each other in their sum.
    pub fn telling() -> Self {
        Self { one_way: always(ONE_WAY), write: WRITE, flush: FLUSH, read: READ }
    }
}

fn always(time: Duration) -> DelayRange {
    DelayRange { min: time, max: time }
}

/// A place of a volume, for operations within one slab or across the end of one.
#[derive(Clone, Debug)]
pub struct Place {
    /// The volume's name.
    pub volume: String,
    /// Where the first slab begins.
    pub offset: u64,
    /// Which node owns the volume.
    pub owner: usize,
    /// The copies of each block there.
    pub copies: u64,
    /// Those of them that are on other nodes than the owner.
    pub copies_elsewhere: u64,
    /// Drives that hold any copy there.
    pub drives: u64,
    /// Other nodes than the owner that hold any in-sync copy of the volume.
    pub nodes_elsewhere: u64,
    /// All slabs of the volume.
    pub slabs: u64,
}

/// Servers with one drive each, in a world without faults.
pub struct Laboratory {
    /// The servers.
    pub nodes: NodesWorld,
    times: Times,
    volatile_caches: bool,
}

/// All that is counted, from the start of the world on.
#[derive(Clone, Debug, Default)]
struct Counts {
    requests: BTreeMap<RequestKind, u64>,
    messages: u64,
    bytes_said: u64,
    bytes_carried: u64,
    drives: DriveCounters,
}

impl Laboratory {
    /// A world of `count` servers with one drive of `drive_bytes` each.
    pub fn new(count: usize, drive_bytes: u64, times: Times, volatile_caches: bool) -> Self {
        let network = NetworkConfig {
            delay: times.one_way,
            local_delay: always(Duration::ZERO),
            bandwidth_bytes_per_second: None,
            split_per_mille: 0,
            socket_buffer_bytes: 256 << 20,
            ..NetworkConfig::default()
        };
        let world = WorldConfig {
            order: TurnOrder::Fifo,
            network,
            clock_drift_ppm_max: 0,
            timer_slack_max: Duration::ZERO,
            ..WorldConfig::default()
        };
        let drive = SimulatedDriveConfig {
            size_bytes: drive_bytes,
            volatile_cache: volatile_caches,
            read_latency: always(times.read),
            write_latency: always(times.write),
            flush_latency: always(times.flush),
            bandwidth_bytes_per_second: None,
            ..SimulatedDriveConfig::default()
        };
        // What costs are measured of stays where it is.
        let settings = Shape::settings_at_rest();
        let slab_bytes = SLAB_BYTES;
        let config = NodesConfig { world, drive, settings, slab_bytes, ..NodesConfig::simple(1, count) };
        knob::turn(Knob::FollowAfter, Some(u64::from(u32::MAX)));
        Self { nodes: NodesWorld::with_config(1, &config), times, volatile_caches }
    }

    /// Makes a volume, and waits until it is served.
    ///
    /// # Errors
    ///
    /// Why it cannot be made.
    pub fn create_volume(&self, name: &str, slabs: u64, copies: u8) -> Result<VolumeId, String> {
        let created = self.nodes.create_volume(0, name, slabs * SLAB_BYTES, copies);
        let volume = created.map_err(|error| error.to_string())?.volume;
        let is_serving = |index: usize| {
            let report = self.nodes.report(index);
            let owned = report.map_or(Vec::new(), |report| report.owned);
            owned.iter().any(|owned| owned.volume == volume && owned.is_serving)
        };
        match self.nodes.run_until(|| (0..self.nodes.count()).any(is_serving)) {
            RunEnd::ConditionMet => Ok(volume),
            end => Err(format!("nobody serves {name}: {end:?}")),
        }
    }

    /// What the cluster's state says of a volume.
    ///
    /// # Errors
    ///
    /// It says nothing of it.
    pub fn membership(&self, volume: VolumeId) -> Result<VolumeMembership, String> {
        let snapshot = self.nodes.state.inspect(&VolumeMembership::selections(volume));
        let membership = VolumeMembership::decode(volume, &snapshot).map_err(|error| error.to_string())?;
        membership.ok_or_else(|| "the volume is gone".to_owned())
    }

    /// One place of a volume for each way in which its copies lie, each of `slabs` slabs that are alike.
    ///
    /// # Errors
    ///
    /// The volume is gone, or nobody owns it.
    pub fn places(&self, volume: VolumeId, slabs: usize) -> Result<Vec<Place>, String> {
        let membership = self.membership(volume)?;
        let owner = membership.record.owner.ok_or("nobody owns the volume")?.shard.node;
        let owner_index = (0..self.nodes.count()).find(|index| node_id(*index) == owner);
        let owner_index = owner_index.ok_or("a stranger owns the volume")?;
        let in_sync =
            |slab: usize| membership.sets[slab].members.iter().filter(|member| membership.is_in_sync(member));
        let elsewhere = |slab: usize| {
            in_sync(slab).filter(|member| membership.nodes.get(&member.drive) != Some(&owner)).count() as u64
        };
        let lies = |slab: usize| (in_sync(slab).count() as u64, elsewhere(slab));
        let nodes = membership.in_sync_nodes().ok_or("a drive is on no node")?;
        let mut found = BTreeMap::new();
        for first in 0..=membership.sets.len().saturating_sub(slabs) {
            let all = first..first + slabs;
            if all.clone().any(|slab| lies(slab) != lies(first)) {
                continue;
            }
            let (copies, copies_elsewhere) = lies(first);
            let drives: BTreeSet<_> = all.flat_map(in_sync).map(|member| member.drive).collect();
            found.entry(lies(first)).or_insert(Place {
                volume: membership.record.name.clone(),
                offset: first as u64 * SLAB_BYTES,
                owner: owner_index,
                copies,
                copies_elsewhere,
                drives: drives.len() as u64,
                nodes_elsewhere: nodes.iter().filter(|node| **node != owner).count() as u64,
                slabs: membership.sets.len() as u64,
            });
        }
        Ok(found.into_values().collect())
    }

    /// The situation of a client on node `client`.
    pub fn situation(&self, place: &Place, client: usize) -> Situation {
        Situation {
            copies: place.copies,
            copies_elsewhere: place.copies_elsewhere,
            drives: place.drives,
            nodes_elsewhere: place.nodes_elsewhere,
            client_elsewhere: client != place.owner,
            volatile_caches: self.volatile_caches,
        }
    }

    /// A volume as the clients of a node see it, once they may write.
    ///
    /// # Errors
    ///
    /// It cannot be opened for writing.
    pub fn open(&self, client: usize, volume: &str) -> Result<impl BlockDevice + use<>, String> {
        let (node, process) = self.up(client)?;
        // Another node's client may have closed it just now.
        self.settle()?;
        let volume = volume.to_owned();
        let opened = process.block_on(async move { node.exports().open(&volume).await });
        let device = opened.map_err(|end| format!("{end:?}"))?.map_err(|error| error.to_string())?;
        if device.limits().read_only { Err("somebody else may write".to_owned()) } else { Ok(device) }
    }

    fn up(&self, index: usize) -> Result<(SimulatedNode, Process), String> {
        let (node, process) = (self.nodes.node(index), self.nodes.process(index));
        node.zip(process).ok_or_else(|| format!("n{} is not up", index + 1))
    }

    fn settle(&self) -> Result<(), String> {
        self.run_for(SETTLE)
    }

    /// Lets the world go on.
    ///
    /// # Errors
    ///
    /// It stands still.
    pub fn run_for(&self, time: Duration) -> Result<(), String> {
        match self.nodes.world.run_for(time) {
            RunEnd::TimeOver => Ok(()),
            end => Err(format!("the world stands still: {end:?}")),
        }
    }

    /// Makes a step at a place where nothing else goes on, and counts what it costs.
    ///
    /// # Errors
    ///
    /// It fails; it takes a time that cannot be; or the network has carried something else than the buses say.
    pub fn measure(
        &self,
        client: usize,
        device: &impl BlockDevice,
        place: &Place,
        step: Step,
    ) -> Result<Cost, String> {
        self.settle()?;
        let before = self.counts();
        let cost = self.measure_amid(client, device, place, step, SETTLE)?;
        let counts = self.counts();
        let messages = counts.messages - before.messages;
        let requests: u64 = cost.requests.values().sum();
        if messages != 2 * requests {
            return Err(format!("{messages} messages for {:?}", cost.requests));
        }
        let (said, carried) =
            (counts.bytes_said - before.bytes_said, counts.bytes_carried - before.bytes_carried);
        if said != carried {
            return Err(format!("the buses have sent {said} bytes, the network has carried {carried}"));
        }
        Ok(cost)
    }

    /// Makes a step now, whatever else goes on, and counts all that is done until `settle` later.
    ///
    /// # Errors
    ///
    /// It fails, or takes a time that cannot be.
    pub fn measure_amid(
        &self,
        client: usize,
        device: &impl BlockDevice,
        place: &Place,
        step: Step,
        settle: Duration,
    ) -> Result<Cost, String> {
        let before = self.counts();
        let (_, process) = self.up(client)?;
        let (device, platform, offset) = (device.clone(), process.platform(), place.offset + step.offset);
        let performed = process.block_on(async move {
            let begun = platform.now();
            perform(&device, &platform, step.action, offset, step.length).await?;
            Ok::<_, DeviceError>(platform.now().since(begun))
        });
        let latency = performed.map_err(|end| format!("{step:?}: {end:?}"))?;
        let latency = latency.map_err(|error| format!("{step:?}: {error}"))?;
        self.run_for(settle)?;
        let now = self.counts();
        let requests = now.requests.iter().filter(|(kind, _)| **kind != RequestKind::Heartbeat);
        let requests = requests.map(|(kind, count)| (format!("{kind:?}"), count - before.requests[kind]));
        Ok(Cost {
            requests: requests.filter(|(_, count)| *count > 0).collect(),
            reads: now.drives.reads - before.drives.reads,
            writes: now.drives.writes - before.drives.writes,
            flushes: now.drives.flushes - before.drives.flushes,
            written_bytes: now.drives.written_bytes - before.drives.written_bytes,
            ..waited_for(latency)?
        })
    }

    fn counts(&self) -> Counts {
        let mut counts =
            Counts { bytes_carried: self.nodes.world.network_counters().bytes, ..Counts::default() };
        for index in 0..self.nodes.count() {
            for node in self.nodes.shards(index) {
                let bus = node.bus_statistics();
                for kind in RequestKind::ALL {
                    *counts.requests.entry(kind).or_insert(0) += bus.requests_sent.of(kind);
                }
                let heartbeat = RequestKind::Heartbeat;
                let heartbeats = bus.requests_sent.of(heartbeat) + bus.requests_served.of(heartbeat);
                counts.messages += bus.frames_sent + bus.answers_joined - heartbeats;
                counts.bytes_said += bus.bytes_sent;
            }
            let drive = self.nodes.drive(index).counters();
            counts.drives.reads += drive.reads;
            counts.drives.writes += drive.writes;
            counts.drives.flushes += drive.flushes;
            counts.drives.written_bytes += drive.written_bytes;
        }
        counts
    }
}

/// What an operation has waited for that took `latency`, with the times of [`Times::telling`].
///
/// # Errors
///
/// It has waited for half a round trip.
pub fn waited_for(latency: Duration) -> Result<Cost, String> {
    let mut left = latency.as_nanos();
    let mut part = |unit: Duration| {
        let count = left / unit.as_nanos();
        left %= unit.as_nanos();
        u64::try_from(count).expect("an operation takes seconds at most")
    };
    let one_ways = part(ONE_WAY);
    if one_ways % 2 == 1 {
        return Err(format!("{latency:?} are {one_ways} messages, and no round trips"));
    }
    Ok(Cost {
        round_trips: one_ways / 2,
        writes_in_a_row: part(WRITE),
        flushes_in_a_row: part(FLUSH),
        reads_in_a_row: part(READ),
        ..Cost::default()
    })
}

async fn perform(
    device: &impl BlockDevice,
    platform: &SimulatedPlatform,
    action: Action,
    offset: u64,
    length: u64,
) -> Result<(), DeviceError> {
    match action {
        Action::Read => {
            let length = u32::try_from(length).expect("a request is short");
            device.read(offset, length).await.map(drop)
        }
        Action::Write => {
            let data = content(platform.buffers(), offset + 1, length / SECTOR_BYTES as u64);
            device.write(offset, data).await
        }
        Action::Trim => device.trim(offset, length).await,
        Action::WriteZeroes => device.write_zeroes(offset, length, false).await,
        Action::Extents => device.extents(offset, length).await.map(drop),
        Action::Flush => device.flush().await,
    }
}

#[cfg(test)]
#[path = "measurement_tests.rs"]
mod tests;
