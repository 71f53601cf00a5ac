//! A cluster as large as Spandrel is made for, and what its size costs: how large its state is, how large its
//! transactions are, and how long clients wait when the node goes that owns the most volumes.
//!
//! No faults but that one: what is asked is whether anything grows faster than the cluster does. Time is virtual, so
//! what a machine's processors need is not in it; that shows in how long the run takes.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use spandrel_cluster::records::decode;
use spandrel_cluster::store::{Selection, TRANSACTION_BYTES_MAX, TRANSACTION_OPERATIONS_MAX};
use spandrel_cluster::{StateRequests, Stored, VolumeRecord, keys};
use spandrel_node::VolumeCreation;
use spandrel_platform::Platform;
use spandrel_platform_simulated::{RunEnd, SimulatedDriveConfig, TurnOrder, WorldConfig};
use spandrel_shared::knob::{self, Knob};
use spandrel_shared::{BLOCK_BYTES, NodeId, VolumeId};
use spandrel_volume::{BlockDevice, Exports};

use crate::history::{BLOCK_SECTORS, content, value_of};
use crate::nodes::{NodesConfig, NodesWorld, SLAB_BYTES, node_id};

/// Nodes that make volumes at the same time, each one after the other. Those that plan at the same moment meet a
/// conflict, and plan anew.
const CREATORS: usize = 2;

/// Of each drive's slabs, how many in a hundred are free at least once all volumes are there.
const FREE_PERCENT: u64 = 25;

/// Copies of each slab.
const COPIES: u8 = 3;

/// The node that owns so many volumes, and is lost.
const LOST: usize = 0;

/// The most that the state of the largest cluster may take, in bytes of keys and values.
const STATE_BYTES_MAX: u64 = 100 << 20;

/// How long the volumes of a lost owner may be without one that serves.
const TAKE_OVER_MAX: Duration = Duration::from_secs(4);

/// After this a volume counts as lost.
const PATIENCE: Duration = Duration::from_secs(120);

/// The size of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// Servers.
    pub nodes: usize,
    /// Drives of each.
    pub drives_each: u8,
    /// Volumes.
    pub volumes: usize,
    /// Slabs of each volume, of three copies each.
    pub slabs_each: u64,
    /// Volumes that the lost node owns, at least.
    pub owned_by_lost: usize,
}

impl Scale {
    /// The largest cluster that Spandrel is made for.
    pub const FULL: Self =
        Self { nodes: 16, drives_each: 25, volumes: 1000, slabs_each: 500, owned_by_lost: 200 };

    /// A cluster that tests have the time for.
    pub const SMALL: Self =
        Self { nodes: 4, drives_each: 4, volumes: 40, slabs_each: 100, owned_by_lost: 20 };

    fn slabs(&self) -> u64 {
        self.volumes as u64 * self.slabs_each
    }

    /// Of a size that holds all slabs and has some left.
    fn drive_bytes(&self) -> u64 {
        let drives = self.nodes as u64 * u64::from(self.drives_each);
        let slabs = (self.slabs() * u64::from(COPIES)).div_ceil(drives);
        (slabs * 100).div_ceil(100 - FREE_PERCENT).max(8) * SLAB_BYTES
    }

    fn config(&self) -> NodesConfig {
        let drive =
            SimulatedDriveConfig { size_bytes: self.drive_bytes(), ..SimulatedDriveConfig::default() };
        NodesConfig {
            world: WorldConfig { order: TurnOrder::Fifo, ..WorldConfig::default() },
            drives: vec![self.drives_each; self.nodes],
            drive,
            ..NodesConfig::simple(0, self.nodes)
        }
    }
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Findings {
    /// The cluster.
    pub scale: Scale,
    /// Keys of the cluster's state.
    pub state_keys: u64,
    /// Bytes of its keys and values, by the first part of the key.
    pub state_bytes: BTreeMap<String, u64>,
    /// The largest transaction, in bytes and in conditions or changes, that any node has asked for.
    pub transaction_max: (u64, u64),
    /// How long a client of each volume waited whose owner was lost, from the shortest to the longest.
    pub waited: Vec<Duration>,
    /// What could not be read in time, or was read wrong.
    pub failed: Vec<String>,
    /// What the other nodes have asked of the state for it.
    pub requests: StateRequests,
    /// The virtual time of it all.
    pub virtual_time: Duration,
}

impl Findings {
    fn state_bytes_total(&self) -> u64 {
        self.state_bytes.values().sum()
    }

    /// # Errors
    ///
    /// What is more than it may be.
    pub fn check(&self) -> Result<(), String> {
        let mut complaints = self.failed.clone();
        let mut limit = |what: &str, found: u64, most: u64| {
            if found > most {
                complaints.push(format!("{what}: {found}, more than {most}"));
            }
        };
        limit("bytes of the cluster's state", self.state_bytes_total(), STATE_BYTES_MAX);
        limit("bytes of a transaction", self.transaction_max.0, TRANSACTION_BYTES_MAX as u64);
        limit("operations of a transaction", self.transaction_max.1, TRANSACTION_OPERATIONS_MAX as u64);
        let longest = self.waited.last().copied().unwrap_or_default();
        limit(
            "ms without an owner",
            longest.as_millis().try_into().unwrap_or(u64::MAX),
            TAKE_OVER_MAX.as_millis() as u64,
        );
        if self.waited.len() + self.failed.len() < self.scale.owned_by_lost {
            complaints.push(format!("only {} volumes have lost their owner", self.waited.len()));
        }
        if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n")) }
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Scale { nodes, drives_each, volumes, .. } = self.scale;
        writeln!(
            formatter,
            "{nodes} nodes with {drives_each} drives each, {volumes} volumes of {} slabs in all, {:.0} s of virtual time",
            self.scale.slabs(),
            self.virtual_time.as_secs_f64()
        )?;
        writeln!(
            formatter,
            "cluster state: {} keys, {:.1} MiB of keys and values",
            self.state_keys,
            mebibytes(self.state_bytes_total())
        )?;
        for (part, bytes) in &self.state_bytes {
            writeln!(formatter, "  {:>8.1} MiB  {part}", mebibytes(*bytes))?;
        }
        let (bytes, operations) = self.transaction_max;
        writeln!(formatter, "largest transaction: {bytes} bytes; most operations: {operations}")?;
        let median = self.waited.get(self.waited.len() / 2).copied().unwrap_or_default();
        let longest = self.waited.last().copied().unwrap_or_default();
        writeln!(
            formatter,
            "owner of {} volumes lost: clients waited {:.2} s (median), {:.2} s at most; {} reads and {} transactions of \
             the state",
            self.waited.len(),
            median.as_secs_f64(),
            longest.as_secs_f64(),
            self.requests.reads,
            self.requests.transactions
        )
    }
}

fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// Builds a cluster of this size, and takes the node away that owns the most. `tell` hears how far it is.
///
/// # Errors
///
/// It cannot be built. What is not as it should be then is for [`Findings::check`] to say.
pub fn measure(seed: u64, scale: Scale, tell: impl Fn(&str)) -> Result<Findings, String> {
    // Volumes stay where this puts them, whoever writes.
    knob::turn(Knob::FollowAfter, Some(u64::from(u32::MAX)));
    let findings = Cluster::start(seed, scale).and_then(|cluster| cluster.measure(tell));
    knob::turn(Knob::FollowAfter, None);
    findings
}

struct Cluster {
    scale: Scale,
    nodes: NodesWorld,
}

impl Cluster {
    fn start(seed: u64, scale: Scale) -> Result<Self, String> {
        if scale.owned_by_lost > scale.volumes || scale.nodes <= usize::from(COPIES) {
            return Err(format!("no such cluster can lose a node and go on: {scale:?}"));
        }
        Ok(Self { scale, nodes: NodesWorld::with_config(seed, &scale.config()) })
    }

    fn measure(self, tell: impl Fn(&str)) -> Result<Findings, String> {
        tell("the nodes are up");
        self.create_volumes(&tell)?;
        tell("the volumes are there");
        self.gather_at_lost()?;
        let volumes: Vec<_> =
            self.volumes()?.into_iter().filter(|(_, owner, _)| *owner == Some(node_id(LOST))).collect();
        tell(&format!("node n{} owns {} volumes", LOST + 1, volumes.len()));
        let clients = volumes.iter().enumerate().map(|(number, (_, _, name))| self.client(number, name));
        let clients = clients.collect::<Result<Vec<_>, String>>()?;
        tell("their clients have written");
        let built = self.requests();
        self.nodes.stop(LOST, true);
        let before = self.requests();
        let (waited, failed) = self.judge(clients);
        tell("they were served again, or were not");
        let after = self.requests();
        let everything = self.nodes.state.inspect(&[Selection::prefix("")]);
        let mut state_bytes = BTreeMap::new();
        for entry in &everything.groups[0] {
            let part = entry.key.as_str().split('/').next().unwrap_or_default().to_owned();
            *state_bytes.entry(part).or_insert(0) += (entry.key.as_str().len() + entry.value.len()) as u64;
        }
        Ok(Findings {
            scale: self.scale,
            state_keys: everything.groups[0].len() as u64,
            state_bytes,
            transaction_max: (
                built.transaction_bytes_max.max(after.transaction_bytes_max),
                built.transaction_operations_max.max(after.transaction_operations_max),
            ),
            waited,
            failed,
            requests: StateRequests {
                reads: after.reads - before.reads,
                transactions: after.transactions - before.transactions,
                ..StateRequests::default()
            },
            virtual_time: self.nodes.world.now(),
        })
    }

    /// Makes all volumes, on several nodes at a time.
    fn create_volumes(&self, tell: &impl Fn(&str)) -> Result<(), String> {
        let to_make: VecDeque<String> = (0..self.scale.volumes).map(|number| format!("v{number}")).collect();
        let to_make = Rc::new(RefCell::new(to_make));
        let (made, failure) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(None)));
        for creator in 0..CREATORS.min(self.nodes.count()) {
            let (node, process) = self.up(creator)?;
            let (to_make, made, failure) = (Rc::clone(&to_make), Rc::clone(&made), Rc::clone(&failure));
            let size_bytes = self.scale.slabs_each * SLAB_BYTES;
            process.spawn(async move {
                loop {
                    let Some(name) = to_make.borrow_mut().pop_front() else { return };
                    let creation = VolumeCreation { name, size_bytes, copies: Some(COPIES), owner: None };
                    match node.create_volume(&creation).await {
                        Ok(_) => made.set(made.get() + 1),
                        Err(error) => *failure.borrow_mut() = Some(error.to_string()),
                    }
                }
            });
        }
        let mut told = 0;
        let mut is_over = || {
            if made.get() >= told + self.scale.volumes / 10 {
                told = made.get();
                tell(&format!(
                    "{told} volumes of {}, {:.0} s",
                    self.scale.volumes,
                    self.nodes.world.now().as_secs_f64()
                ));
            }
            made.get() == self.scale.volumes || failure.borrow().is_some()
        };
        while !is_over() {
            self.run_for(Duration::from_millis(100))?;
        }
        failure.take().map_or(Ok(()), Err)
    }

    /// Has volumes handed over to the node that will be lost until it owns as many as it should.
    fn gather_at_lost(&self) -> Result<(), String> {
        let mut volumes = self.volumes()?;
        while volumes.iter().any(|(_, owner, _)| owner.is_none()) {
            self.run_for(Duration::from_millis(100))?;
            volumes = self.volumes()?;
        }
        let (own, others): (Vec<_>, Vec<_>) =
            volumes.into_iter().partition(|(_, owner, _)| *owner == Some(node_id(LOST)));
        let missing = self.scale.owned_by_lost.saturating_sub(own.len());
        for (volume, owner, name) in others.into_iter().take(missing) {
            let index = (0..self.nodes.count()).find(|index| Some(node_id(*index)) == owner);
            let (node, process) = self.up(index.ok_or("a stranger owns a volume")?)?;
            let moved = process.block_on(async move { node.hand_over(volume, node_id(LOST)).await });
            moved.map_err(|end| format!("{name}: {end:?}"))?.map_err(|error| error.to_string())?;
        }
        Ok(())
    }

    /// All volumes: who owns them, and their names.
    fn volumes(&self) -> Result<Vec<(VolumeId, Option<NodeId>, String)>, String> {
        let snapshot = self.nodes.state.inspect(&[Selection::prefix(keys::VOLUMES)]);
        let volume = |entry: &spandrel_cluster::store::Entry| {
            let id = entry.key.as_str()[keys::VOLUMES.len()..].parse();
            let id = id.map_err(|_| format!("{} names no volume", entry.key))?;
            let stored: Stored<VolumeRecord> = decode(entry).map_err(|error| error.to_string())?;
            Ok((id, stored.record.owner.map(|owner| owner.shard.node), stored.record.name))
        };
        snapshot.groups[0].iter().map(volume).collect()
    }

    /// A client of a volume on one of the nodes that stay, which has written something of its own.
    fn client(&self, number: usize, name: &str) -> Result<Client<impl BlockDevice + use<>>, String> {
        let others: Vec<usize> = (0..self.nodes.count()).filter(|index| *index != LOST).collect();
        let index = others[number % others.len()];
        let (node, process) = self.up(index)?;
        let (name, platform) = (name.to_owned(), process.platform());
        let offset = (number as u64 % self.scale.slabs_each) * SLAB_BYTES;
        let value = number as u64 + 1;
        let opened = process.block_on(async move {
            let device = node.exports().open(&name).await.map_err(|error| error.to_string())?;
            let written = device.write(offset, content(platform.buffers(), value, BLOCK_SECTORS)).await;
            written.map_err(|error| error.to_string())?;
            Ok::<_, String>((device, name))
        });
        let (device, name) = opened.map_err(|end| format!("{end:?}"))??;
        Ok(Client { index, name, device, offset, value })
    }

    /// Has each client read what it wrote, from now on. How long they waited, and which did not succeed.
    fn judge<D: BlockDevice>(&self, clients: Vec<Client<D>>) -> (Vec<Duration>, Vec<String>) {
        let outcomes: Rc<RefCell<Vec<Result<Duration, String>>>> = Rc::default();
        let count = clients.len();
        let mut names: BTreeMap<String, usize> = BTreeMap::new();
        for client in clients {
            names.insert(client.name.clone(), client.index);
            let Some(process) = self.nodes.process(client.index) else { continue };
            let (platform, outcomes) = (process.platform(), Rc::clone(&outcomes));
            process.spawn(async move {
                let begun = platform.now();
                let read = client.read().await.map(|()| platform.now().since(begun));
                outcomes.borrow_mut().push(read);
            });
        }
        let begun = self.nodes.world.now();
        while outcomes.borrow().len() < count && self.nodes.world.now() - begun < PATIENCE {
            if self.nodes.world.run_for(Duration::from_millis(100)) != RunEnd::TimeOver {
                break;
            }
        }
        let (mut waited, mut failed) = (Vec::new(), Vec::new());
        for outcome in outcomes.take() {
            match outcome {
                Ok(time) => waited.push(time),
                Err(why) => failed.push(why),
            }
        }
        waited.sort();
        let missing = count - waited.len() - failed.len();
        if missing > 0 {
            failed.push(format!("{missing} volumes are not served after {PATIENCE:?}"));
        }
        (waited, failed)
    }

    /// What all nodes that are up have asked of the state.
    fn requests(&self) -> StateRequests {
        let mut all = StateRequests::default();
        for node in (0..self.nodes.count()).flat_map(|index| self.nodes.shards(index)) {
            all = all.with(node.state_requests());
        }
        all
    }

    fn up(
        &self,
        index: usize,
    ) -> Result<(crate::nodes::SimulatedNode, spandrel_platform_simulated::Process), String> {
        let (node, process) = (self.nodes.node(index), self.nodes.process(index));
        node.zip(process).ok_or_else(|| format!("n{} is not up", index + 1))
    }

    fn run_for(&self, time: Duration) -> Result<(), String> {
        match self.nodes.world.run_for(time) {
            RunEnd::TimeOver => Ok(()),
            end => Err(format!("the world stands still: {end:?}")),
        }
    }
}

/// Who reads a volume, and knows what is there.
struct Client<D> {
    index: usize,
    name: String,
    device: D,
    offset: u64,
    value: u64,
}

impl<D: BlockDevice> Client<D> {
    async fn read(&self) -> Result<(), String> {
        let read = self.device.read(self.offset, BLOCK_BYTES as u32).await;
        let parts = read.map_err(|error| format!("{}: {error}", self.name))?;
        let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        match value_of(&bytes) {
            Ok(value) if value == self.value => Ok(()),
            Ok(value) => Err(format!("{}: read {value} where {} was written", self.name, self.value)),
            Err(torn) => Err(format!("{}: {torn}", self.name)),
        }
    }
}

#[cfg(test)]
#[path = "scale_tests.rs"]
mod tests;
