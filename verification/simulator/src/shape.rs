//! What the world of a seed is like: how many servers and drives, which volumes, what its clients do,
//! and what breaks how often.
//!
//! Every seed draws all of it anew, and leaves whole kinds of faults and operations out (swarm testing:
//! a run in which everything happens a little never goes far in any direction).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use spandrel_cluster::SettingsRecord;
use spandrel_platform_simulated::{
    DelayRange, NetworkConfig, Random, SimulatedDriveConfig, TurnOrder, WorldConfig,
};
use spandrel_shared::{CacheMode, RepairShare};

use crate::labels::{Domains, Labels};
use crate::nodes::SLAB_BYTES;

/// The most servers of a world.
pub const NODES_MAX: u64 = 7;

/// Slab copies that a drive of the world takes at most, so that there is always room.
const SLABS_PER_DRIVE: u64 = 3;

/// What the journal of a drive takes of a cache drive, for drives of up to 64 MiB, and what that needs for itself.
const JOURNAL_BYTES: u64 = 1 << 20;
const CACHE_TABLES_BYTES: u64 = 64 << 10;

/// Operations that are under way on a volume at once, at most: they may all be on one block, and the judge of
/// histories looks at 128 together.
const OUTSTANDING_MAX: u64 = 120;

/// About how many operations a run has, one of these.
const OPERATIONS: [u64; 5] = [8000, 20_000, 40_000, 60_000, 140_000];

/// About how long it takes, in virtual milliseconds, until all have come back from the last fault.
const COME_BACK_MS: u64 = 10_000;

/// The world of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    /// How many shards each server's node has at most.
    #[serde(default = "one_shard")]
    pub shards_max: u8,
    /// How many drives each server has; one entry for each server.
    pub drives: Vec<u8>,
    /// What the drives are like.
    pub drive: DriveShape,
    /// The cache drives in front of them, if there are any.
    #[serde(default)]
    pub cache: Option<CacheShape>,
    /// How much memory of each server holds copies of what is read; nothing if zero.
    #[serde(default)]
    pub memory_cache_bytes: u64,
    /// How much of it the maps of drives take; as much as they need if zero.
    #[serde(default)]
    pub map_memory_bytes: u64,
    /// The network and the clocks.
    pub network: NetworkShape,
    /// The volumes, which are made when the run begins.
    pub volumes: Vec<VolumeShape>,
    /// What the clients do.
    pub load: Load,
    /// What breaks, and how often with regard to the rest.
    pub weights: Weights,
    /// How many faults there are.
    pub faults: u32,
    /// The longest time between two faults, in virtual milliseconds.
    pub fault_interval_ms_max: u64,
    /// Nodes that stay away while the others must become healthy again.
    pub left_broken: u8,
    /// After how many seconds what a drive held that is away is built anew elsewhere, in pools that also spread their
    /// copies. None of them does either otherwise.
    #[serde(default)]
    pub rebuild_after_s: Option<u32>,
    /// How much of the nodes' work repair may be.
    #[serde(default)]
    pub repair_share: RepairShare,
    /// Within how many seconds everything is read and compared once by itself, if it is.
    #[serde(default)]
    pub scrub_period_s: Option<u32>,
    /// Where the servers stand when the run begins; empty if nobody says.
    #[serde(default)]
    pub labels: Vec<Labels>,
    /// How many fault domains there are, if any.
    #[serde(default)]
    pub domains: Option<Domains>,
    /// [`Knob::ExceptionDistance`](spandrel_shared::knob::Knob), if it is turned.
    #[serde(default)]
    pub exception_distance: Option<u64>,
    /// [`Knob::ComparedChecksumBits`](spandrel_shared::knob::Knob), if it is turned: resyncs must know then what was
    /// written, or compare contents. Only in worlds in which drives keep what they have confirmed.
    #[serde(default)]
    pub compared_checksum_bits: Option<u64>,
}

/// The drives of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveShape {
    /// Bytes of each.
    pub size_bytes: u64,
    /// The unit that is written as a whole: 512 or 4096.
    pub sector_bytes: u32,
    /// Whether completed writes need a flush.
    pub volatile_cache: bool,
    /// A write takes up to this many microseconds.
    pub write_us_max: u64,
    /// Whether they do at once what is asked alone, as memory does.
    #[serde(default)]
    pub works_at_once: bool,
}

/// The cache drives of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheShape {
    /// How many each server has.
    pub drives: u8,
    /// Bytes of each.
    pub size_bytes: u64,
    /// The unit that is written as a whole; that of the other drives if absent.
    #[serde(default)]
    pub sector_bytes: Option<u32>,
    /// Whether completed writes need a flush; as with the other drives if absent.
    #[serde(default)]
    pub volatile_cache: Option<bool>,
    /// What they do when the run begins.
    pub mode: CacheMode,
    /// Whether the drives behind them are spinning disks.
    #[serde(default)]
    pub spins: bool,
}

/// The network and the clocks of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkShape {
    /// A message is under way for at least this many microseconds.
    pub delay_us_min: u64,
    /// And for at most so many.
    pub delay_us_max: u64,
    /// What a link carries in a second; nothing limits it if absent.
    pub bandwidth_bytes_per_second: Option<u64>,
    /// How often, in 1000, what leaves together arrives in parts.
    pub split_per_mille: u32,
    /// The buffers of a connection.
    pub socket_buffer_bytes: usize,
    /// How far clocks are off, in parts per million.
    pub clock_drift_ppm_max: u32,
    /// Sleepers wake up to this many microseconds late.
    pub timer_slack_us_max: u64,
    /// Whether processes take their turns in any order.
    pub random_order: bool,
    /// Networks that connect the servers, one or two.
    #[serde(default = "one")]
    pub networks: u8,
}

fn one() -> u8 {
    1
}

/// A volume of a world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeShape {
    /// Slabs of 4 MiB.
    pub slabs: u64,
    /// Copies of each.
    pub copies: u8,
}

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Clients on each server, for each volume.
    pub clients: u8,
    /// Clients of each volume that go from server to server.
    #[serde(default)]
    pub movers: u8,
    /// Operations that a client has under way at once, at most.
    pub depth: u8,
    /// A client waits up to this many microseconds after an operation, so that all of them together do
    /// about as many in a run as the seed has drawn.
    pub pause_us_max: u64,
    /// Zones of a volume in which the operations meet.
    pub zones: u8,
    /// Of 1000 operations, how many change something.
    pub change_per_mille: u32,
    /// Of 1000 changes, how many are trims.
    pub trim_per_mille: u32,
    /// Of 1000 changes, how many write zeroes.
    pub zero_per_mille: u32,
    /// Of 1000 operations, how many are of parts of blocks.
    pub partial_per_mille: u32,
    /// Of 1000 operations, how many are longer than a block.
    pub long_per_mille: u32,
    /// The longest operation, in blocks.
    pub blocks_max: u32,
    /// Of 1000 clients that come, how many open their volume for reading only for a while.
    pub idle_per_mille: u32,
}

/// How often each kind of fault is drawn, with regard to the others; zero for never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weights {
    /// A process that crashes, or a server that loses its power.
    pub stop: u32,
    /// All servers lose their power.
    pub power_cut_all: u32,
    /// A process that stands still.
    pub pause: u32,
    /// Links between two servers that are cut, one way or both.
    pub cut: u32,
    /// A server that is cut off from all others.
    pub isolate: u32,
    /// A server that is cut off from the cluster's state and from others.
    #[serde(default)]
    pub orphan: u32,
    /// Connections that break.
    pub break_connections: u32,
    /// The way between a server and the clients that are no server's: cut, or connections broken.
    #[serde(default)]
    pub clients_cut: u32,
    /// Links that become slow.
    pub slow_link: u32,
    /// The cluster's state: unreachable, for all or one.
    pub state_outage: u32,
    /// The cluster's state: requests and answers lost or late.
    pub state_losses: u32,
    /// The time of day jumps, or a clock drifts otherwise.
    pub clock: u32,
    /// A drive that hangs, or is slow.
    pub drive_slow: u32,
    /// A drive that answers with errors, dies, or is pulled out, and comes back.
    pub drive_fails: u32,
    /// Bits that flip.
    pub rot: u32,
    /// Writes that a drive loses or misdirects.
    pub stray_writes: u32,
    /// Sectors that cannot be read.
    pub unreadable: u32,
    /// A drive without room.
    pub no_room: u32,
    /// An old image of a drive, or all drives of a server, in the place of what was there.
    pub lose_drives: u32,
    /// The cluster's state comes back from an older backup.
    #[serde(default)]
    pub older_state: u32,
    /// Volumes are scrubbed.
    pub scrub: u32,
    /// Volumes are handed over to other servers.
    #[serde(default)]
    pub hand_over: u32,
    /// Volumes are set otherwise.
    #[serde(default)]
    pub set_volume: u32,
    /// Volumes grow.
    #[serde(default)]
    pub grow: u32,
    /// Cache drives come back as they once were.
    #[serde(default)]
    pub old_cache: u32,
    /// Cache drives are lost for good.
    #[serde(default)]
    pub lose_cache: u32,
    /// Cache drives are taken out in order.
    #[serde(default)]
    pub release_cache: u32,
    /// Cache drives are retired, and used again.
    #[serde(default)]
    pub retire_cache: u32,
    /// Caches are used otherwise.
    #[serde(default)]
    pub cache_mode: u32,
    /// Maps have more or less memory.
    #[serde(default)]
    pub map_memory: u32,
    /// Drives are retired, and used again.
    #[serde(default)]
    pub retire: u32,
    /// Servers are labelled otherwise.
    #[serde(default)]
    pub label: u32,
    /// The way between two servers on one of two networks.
    #[serde(default)]
    pub cut_path: u32,
}

impl Shape {
    /// The world of `seed`.
    pub fn of_seed(seed: u64) -> Self {
        let random = Random::stream(seed, "shape", 0);
        // Most clusters are small.
        let nodes = random.between(2, 3 + random.below(NODES_MAX - 2));
        let drives: Vec<u8> = (0..nodes).map(|_| 1 + random.below(1 + random.below(4)) as u8).collect();
        let volumes = volumes(&random, &drives);
        let one_of = |choices: &[u64]| choices[random.index(choices.len())];
        let drive = DriveShape {
            size_bytes: one_of(&[24, 32, 64]) << 20,
            sector_bytes: if random.chance(200) { 4096 } else { 512 },
            volatile_cache: random.chance(800),
            write_us_max: one_of(&[20, 80, 1000, 20_000]),
            works_at_once: works_at_once(seed),
        };
        let faults = random.between(16, 48) as u32;
        let fault_interval_ms_max = one_of(&[200, 1000, 1500, 3000]);
        let mut load = Load::draw(&random);
        load.draw_movers(seed);
        let clients = nodes * u64::from(load.clients) + u64::from(load.movers);
        load.depth = u64::from(load.depth).min(OUTSTANDING_MAX / clients) as u8;
        let workers = volumes.len() as u64 * clients * u64::from(load.depth);
        let run_us = 1000 * (u64::from(faults) * fault_interval_ms_max / 2 + COME_BACK_MS);
        load.pause_us_max = 2 * run_us * workers / one_of(&OPERATIONS);
        let (networks, cut_path) = paths(seed);
        let network = NetworkShape { networks, ..NetworkShape::draw(&random) };
        let (domains, labels) = domains_and_labels(seed, nodes);
        let mut weights = Weights {
            clients_cut: clients_cut(seed, &load),
            older_state: older_state(seed),
            hand_over: hand_over(seed),
            retire: retire(seed),
            set_volume: set_volume(seed),
            grow: grow(seed),
            label: if domains.is_some() { label(seed) } else { 0 },
            cut_path,
            ..Weights::draw(&random)
        };
        let (map_memory_bytes, map_memory) = map_memory(seed);
        weights.map_memory = map_memory;
        let cache = CacheShape::of_seed(seed, &drives);
        if cache.is_some() {
            weights = weights.with_caches(seed);
        }
        if moves_meet_damage(seed) {
            weights = weights.of_moves_beside_damage();
        }
        Self {
            shards_max: shards_max(seed, cache.is_some()),
            drives,
            drive,
            cache,
            memory_cache_bytes: memory_cache_bytes(seed),
            map_memory_bytes,
            network,
            volumes,
            load,
            faults,
            fault_interval_ms_max,
            left_broken: random.below(nodes) as u8,
            rebuild_after_s: rebuild_after_s(seed),
            repair_share: repair_share(seed),
            scrub_period_s: scrub_period_s(seed),
            labels,
            domains,
            exception_distance: exception_distance(seed),
            compared_checksum_bits: compared_checksum_bits(seed, &weights),
            weights,
        }
    }

    /// Whether copies are moved without anybody asking for it.
    pub fn keeps_itself(&self) -> bool {
        self.rebuild_after_s.is_some()
    }

    /// What is set for the pool.
    pub fn settings(&self) -> SettingsRecord {
        let (repair_share, scrub_period_s) = (self.repair_share, self.scrub_period_s.unwrap_or(0));
        let mode = self.cache.map_or_else(CacheMode::default, |cache| cache.mode);
        let (cache_mode_ssd, cache_mode_hdd) = (mode, mode);
        let (memory_cache_bytes, map_memory_bytes) = (self.memory_cache_bytes, self.map_memory_bytes);
        match self.rebuild_after_s {
            None => SettingsRecord {
                repair_share,
                scrub_period_s,
                cache_mode_ssd,
                cache_mode_hdd,
                memory_cache_bytes,
                map_memory_bytes,
                ..Self::settings_at_rest()
            },
            Some(seconds) => SettingsRecord {
                rebuild_after_drive_s: seconds,
                rebuild_after_node_s: seconds,
                optimize_since_unix_ms: Some(u64::MAX),
                repair_share,
                scrub_period_s,
                cache_mode_ssd,
                cache_mode_hdd,
                memory_cache_bytes,
                map_memory_bytes,
                ..SettingsRecord::default()
            },
        }
    }

    /// What is set for a pool in which nothing moves by itself.
    pub fn settings_at_rest() -> SettingsRecord {
        SettingsRecord {
            rebuild_after_drive_s: u32::MAX,
            rebuild_after_node_s: u32::MAX,
            balance: false,
            scrub_period_s: 0,
            ..SettingsRecord::default()
        }
    }

    /// How many servers there are.
    pub fn nodes(&self) -> usize {
        self.drives.len()
    }

    /// The settings of the simulated world.
    pub fn world_config(&self, timeline_events: usize) -> WorldConfig {
        let network = &self.network;
        WorldConfig {
            order: if network.random_order { TurnOrder::Random } else { TurnOrder::Fifo },
            network: NetworkConfig {
                delay: DelayRange::microseconds(network.delay_us_min, network.delay_us_max),
                bandwidth_bytes_per_second: network.bandwidth_bytes_per_second,
                split_per_mille: network.split_per_mille,
                socket_buffer_bytes: network.socket_buffer_bytes,
                networks: network.networks,
                ..NetworkConfig::default()
            },
            clock_drift_ppm_max: network.clock_drift_ppm_max,
            timer_slack_max: Duration::from_micros(network.timer_slack_us_max),
            timeline_events,
            ..WorldConfig::default()
        }
    }

    /// The settings of every drive.
    pub fn drive_config(&self) -> SimulatedDriveConfig {
        SimulatedDriveConfig {
            size_bytes: self.drive.size_bytes,
            sector_bytes: self.drive.sector_bytes,
            volatile_cache: self.drive.volatile_cache,
            write_latency: DelayRange::microseconds(15, self.drive.write_us_max.max(15)),
            works_at_once: self.drive.works_at_once,
            ..SimulatedDriveConfig::default()
        }
    }

    /// The settings of every cache drive.
    pub fn cache_config(&self) -> SimulatedDriveConfig {
        let drive = self.drive_config();
        let Some(cache) = self.cache else { return SimulatedDriveConfig { size_bytes: 0, ..drive } };
        SimulatedDriveConfig {
            size_bytes: cache.size_bytes,
            sector_bytes: cache.sector_bytes.unwrap_or(drive.sector_bytes),
            volatile_cache: cache.volatile_cache.unwrap_or(drive.volatile_cache),
            ..drive
        }
    }
}

fn one_shard() -> u8 {
    1
}

/// How many shards each node has at most: several in a third of the worlds without cache drives, for which nodes have one.
fn shards_max(seed: u64, has_caches: bool) -> u8 {
    let random = Random::stream(seed, "shards", 0);
    if !has_caches && random.chance(333) { random.between(2, 3) as u8 } else { 1 }
}

/// Volumes that the drives have room for.
fn volumes(random: &Random, drives: &[u8]) -> Vec<VolumeShape> {
    let mut room = SLABS_PER_DRIVE * drives.iter().map(|drives| u64::from(*drives)).sum::<u64>();
    let mut volumes = Vec::new();
    for _ in 0..random.between(1, 3) {
        let copies = random.between(2, 3).min(drives.len() as u64);
        // Copies go to different servers, and not all servers have the same room.
        let slabs = random.between(1, 3).min(room / copies / 2);
        if slabs > 0 {
            room -= slabs * copies;
            volumes.push(VolumeShape { slabs, copies: copies as u8 });
        }
    }
    volumes
}

impl CacheShape {
    /// Two of five worlds have cache drives, with room for the journals of the drives behind them and little more: so that
    /// they are full now and then.
    fn of_seed(seed: u64, drives: &[u8]) -> Option<Self> {
        let random = Random::stream(seed, "caches", 0);
        if !random.chance(400) {
            return None;
        }
        let caches = random.between(1, 2) as u8;
        let behind_each = drives.iter().map(|drives| u64::from(drives.div_ceil(caches))).max().unwrap_or(1);
        let data_bytes = [256 << 10, 512 << 10, 2 << 20][random.index(3)];
        let media = Random::stream(seed, "cache media", 0);
        Some(Self {
            drives: caches,
            size_bytes: CACHE_TABLES_BYTES + behind_each * (JOURNAL_BYTES + data_bytes),
            sector_bytes: Some(if media.chance(300) { 4096 } else { 512 }),
            volatile_cache: Some(media.chance(500)),
            mode: CacheMode::ALL[random.index(CacheMode::ALL.len())],
            spins: media.chance(400),
        })
    }
}

/// How much memory holds copies of what is read: in a quarter of the worlds, and less than is read there.
fn memory_cache_bytes(seed: u64) -> u64 {
    let random = Random::stream(seed, "memory cache", 0);
    if random.chance(250) { (64 << 10) << random.below(5) } else { 0 }
}

/// How much memory the maps of a node's drives may take at first, and how often that changes: in a third of the worlds it is
/// bounded, and in some of these there is another bound now and then.
fn map_memory(seed: u64) -> (u64, u32) {
    let random = Random::stream(seed, "map memory", 0);
    match random.chance(333) {
        true => (map_memory_bytes(&random), if random.chance(500) { 4 } else { 0 }),
        false => (0, 0),
    }
}

/// How much memory the maps of a node's drives may take where it is bounded: a few leaves, or as much as they need after all.
pub fn map_memory_bytes(random: &Random) -> u64 {
    if random.chance(800) { 4096 << random.below(5) } else { 0 }
}

/// Whether drives do at once what is asked alone.
fn works_at_once(seed: u64) -> bool {
    Random::stream(seed, "works at once", 0).chance(250)
}

/// How soon what a drive held that is away is built anew elsewhere.
fn rebuild_after_s(seed: u64) -> Option<u32> {
    let random = Random::stream(seed, "rebuild", 0);
    random.chance(250).then(|| random.between(1, 8) as u32)
}

/// How much of the nodes' work repair may be.
fn repair_share(seed: u64) -> RepairShare {
    let random = Random::stream(seed, "repair share", 0);
    RepairShare::ALL[random.index(RepairShare::ALL.len())]
}

/// How soon everything is read once.
fn scrub_period_s(seed: u64) -> Option<u32> {
    let random = Random::stream(seed, "scrub period", 0);
    random.chance(400).then(|| random.between(1, 6) as u32)
}

/// From how few writes on one that hangs is an exception of its volume's mark.
fn exception_distance(seed: u64) -> Option<u64> {
    let random = Random::stream(seed, "exception distance", 0);
    [None, Some(4), Some(16), Some(64)][random.index(4)]
}

/// How many bits of checksums resyncs compare.
fn compared_checksum_bits(seed: u64, weights: &Weights) -> Option<u64> {
    let random = Random::stream(seed, "compared checksum bits", 0);
    (weights.keep_what_is_confirmed() && random.chance(800)).then(|| random.below(3))
}

/// How often the way to the clients that move breaks.
fn clients_cut(seed: u64, load: &Load) -> u32 {
    let random = Random::stream(seed, "clients cut", 0);
    if load.movers == 0 || random.chance(500) { 0 } else { 4 << random.below(4) }
}

/// How often the cluster's state comes back from an older backup.
fn older_state(seed: u64) -> u32 {
    let random = Random::stream(seed, "older state", 0);
    if random.chance(500) { 0 } else { 2 << random.below(4) }
}

/// How often volumes are handed over.
fn hand_over(seed: u64) -> u32 {
    let random = Random::stream(seed, "hand-over", 0);
    if random.chance(500) { 0 } else { 2 << random.below(4) }
}

/// How often drives are retired.
fn retire(seed: u64) -> u32 {
    let random = Random::stream(seed, "retire", 0);
    if random.chance(500) { 0 } else { 2 << random.below(4) }
}

/// How often cache drives are retired, where there are any.
fn retire_cache(seed: u64) -> u32 {
    let random = Random::stream(seed, "retire cache", 0);
    if random.chance(500) { 0 } else { 2 << random.below(3) }
}

/// How often volumes are set otherwise.
fn set_volume(seed: u64) -> u32 {
    let random = Random::stream(seed, "set volume", 0);
    if random.chance(600) { 0 } else { 2 << random.below(3) }
}

/// How often volumes grow. Less often than other things happen: it changes what everything else meets.
fn grow(seed: u64) -> u32 {
    let random = Random::stream(seed, "grow", 0);
    if random.chance(500) { 0 } else { 1 << random.below(4) }
}

/// Whether a run is about copies that move while others are damaged. Beside most other faults that is not promised.
fn moves_meet_damage(seed: u64) -> bool {
    Random::stream(seed, "moves meet damage", 0).chance(100)
}

/// The fault domains, if there are any, and where each server stands.
fn domains_and_labels(seed: u64, nodes: u64) -> (Option<Domains>, Vec<Labels>) {
    let random = Random::stream(seed, "labels", 0);
    let domains = if random.chance(600) { Domains::draw(&random) } else { None };
    let labels = domains.map(|domains| (0..nodes).map(|_| domains.labels(&random)).collect());
    (domains, labels.unwrap_or_default())
}

/// How often servers are labelled otherwise.
fn label(seed: u64) -> u32 {
    let random = Random::stream(seed, "label", 0);
    if random.chance(500) { 0 } else { 1 << random.below(4) }
}

/// How many networks there are, and how often the way over one of them is cut.
fn paths(seed: u64) -> (u8, u32) {
    let random = Random::stream(seed, "paths", 0);
    if random.chance(500) { (1, 0) } else { (2, 2 << random.below(4)) }
}

impl VolumeShape {
    /// Its size.
    pub fn size_bytes(&self) -> u64 {
        self.slabs * SLAB_BYTES
    }
}

impl NetworkShape {
    fn draw(random: &Random) -> Self {
        let one_of = |choices: &[u64]| choices[random.index(choices.len())];
        let delay_us_min = one_of(&[1, 20, 200, 2000]);
        let delay_us_max = delay_us_min * one_of(&[1, 3, 30]);
        Self {
            delay_us_min,
            delay_us_max,
            bandwidth_bytes_per_second: [None, Some(125_000_000), Some(1_250_000_000)][random.index(3)],
            split_per_mille: one_of(&[0, 50, 500]) as u32,
            // Enough for 10 MB/s over the delay: nobody builds a cluster on less.
            socket_buffer_bytes: (one_of(&[16 << 10, 256 << 10, 4 << 20])).max(delay_us_max * 10) as usize,
            clock_drift_ppm_max: one_of(&[0, 100, 500]) as u32,
            timer_slack_us_max: one_of(&[0, 50, 5000]),
            random_order: random.chance(500),
            networks: 1,
        }
    }
}

impl Load {
    fn draw(random: &Random) -> Self {
        let one_of = |choices: &[u64]| choices[random.index(choices.len())];
        let sometimes = |per_mille: u64| if random.chance(600) { random.below(per_mille) as u32 } else { 0 };
        Self {
            clients: random.between(1, 2) as u8,
            movers: 0,
            depth: one_of(&[1, 2, 4, 8]) as u8,
            pause_us_max: 0,
            zones: random.between(1, 6) as u8,
            change_per_mille: one_of(&[300, 600, 900]) as u32,
            trim_per_mille: sometimes(300),
            zero_per_mille: sometimes(300),
            partial_per_mille: sometimes(400),
            long_per_mille: sometimes(200),
            blocks_max: one_of(&[2, 16, 256]) as u32,
            idle_per_mille: one_of(&[0, 100, 500]) as u32,
        }
    }

    /// Half of all worlds have clients that move, and most of these have no others: where every server has
    /// its own, few others are let in.
    fn draw_movers(&mut self, seed: u64) {
        let random = Random::stream(seed, "movers", 0);
        if random.chance(500) {
            self.movers = random.between(1, 4) as u8;
            if random.chance(700) {
                self.clients = 0;
            }
        }
    }
}

impl Weights {
    fn draw(random: &Random) -> Self {
        // Half of all kinds are left out of a run, and the others differ by a factor of up to eight.
        let weight = |usual: u32| if random.chance(500) { 0 } else { usual << random.below(4) };
        Self {
            stop: 4 << random.below(4),
            power_cut_all: weight(2),
            pause: weight(2),
            cut: weight(7),
            isolate: weight(5),
            orphan: weight(2),
            break_connections: weight(2),
            clients_cut: 0,
            slow_link: weight(1),
            state_outage: weight(2),
            state_losses: weight(2),
            clock: weight(1),
            drive_slow: weight(2),
            drive_fails: weight(2),
            rot: weight(4),
            stray_writes: weight(1),
            unreadable: weight(1),
            no_room: weight(1),
            lose_drives: weight(2),
            older_state: 0,
            hand_over: 0,
            old_cache: 0,
            lose_cache: 0,
            release_cache: 0,
            retire_cache: 0,
            cache_mode: 0,
            map_memory: 0,
            retire: 0,
            set_volume: 0,
            grow: 0,
            label: 0,
            cut_path: 0,
            scrub: weight(4),
        }
    }

    /// Whether no drive loses what it has confirmed.
    fn keep_what_is_confirmed(&self) -> bool {
        let losses = [
            self.rot,
            self.stray_writes,
            self.unreadable,
            self.lose_drives,
            self.older_state,
            self.old_cache,
            self.lose_cache,
        ];
        losses.iter().all(|weight| *weight == 0)
    }

    /// With what happens to cache drives.
    fn with_caches(self, seed: u64) -> Self {
        let random = Random::stream(seed, "cache faults", 0);
        let weight = || if random.chance(500) { 0 } else { 2 << random.below(3) };
        let (old_cache, lose_cache) = (weight(), weight());
        let (release_cache, cache_mode, retire_cache) = (weight(), weight(), retire_cache(seed));
        Self { old_cache, lose_cache, release_cache, cache_mode, retire_cache, ..self }
    }

    /// With those faults alone beside which copies may move while something is damaged.
    fn of_moves_beside_damage(self) -> Self {
        Self {
            stop: 4,
            rot: 16,
            unreadable: 8,
            retire: 16,
            scrub: 16,
            cache_mode: self.cache_mode,
            map_memory: self.map_memory,
            state_outage: self.state_outage,
            clock: self.clock,
            hand_over: self.hand_over,
            set_volume: self.set_volume,
            grow: self.grow,
            label: self.label,
            clients_cut: self.clients_cut,
            ..Self::default()
        }
    }
}

#[cfg(test)]
#[path = "shape_tests.rs"]
mod tests;
