//! A world of replicas and owners: the shipping drive stores, replicas and owners on simulated
//! drives, without a network between them.
//!
//! Each node is a host with one process and its drives. Owners ask replicas by calls whose answers
//! are delayed, and lost where a test says so; the cluster state is one membership in memory. What
//! a promise is stands in for the real protocol: a node has promised while it is up, if its process has
//! answered a fence of the epoch that settles, and has accepted no higher epoch.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use spandrel_drive::{DriveStore, FormatOptions};
use spandrel_platform::sync::Signal;
use spandrel_platform::{Buffer, Platform};
use spandrel_platform_simulated::{
    Host, Process, RunEnd, SimulatedDrive, SimulatedDriveConfig, SimulatedPlatform, World,
};
use spandrel_replica::{NewCopy, Replica, ReplicaError, ReplicaRequest, ReplicaResponse};
use spandrel_shared::{
    ClusterId, ConfigurationVersion, CopyId, DriveId, Epoch, Move, NodeId, ProcessIncarnation, RepairShare,
    ShardId, SlabGeometry, SlabIndex, Version, VolumeId,
};
use spandrel_volume::{
    AskError, LegId, Member, Membership, MembershipChange, MembershipError, Owner, OwnerContext, RepairTurns,
    SlowDrives, Unsettled,
};

/// The slabs of the world's volume.
const SLAB_COUNT: u32 = 2;

/// The volume's size: two slabs of 4 MiB.
pub const VOLUME_BYTES: u64 = SLAB_COUNT as u64 * (4 << 20);

/// Nodes, one volume with a copy on each, and whoever owns it.
pub struct OwnersWorld {
    /// The simulated world below.
    pub world: World,
    shared: Rc<Shared>,
}

/// What becomes of a request to a node, where a test decides that.
pub enum Fate {
    /// It is carried out and answered as usual.
    Carry,
    /// It arrives so much later.
    Late(Duration),
    /// It never arrives, and that is known after a while.
    Fails(Duration),
    /// It is refused after a while.
    Refused(Duration, ReplicaError),
    /// It arrives nowhere and nobody hears of it.
    Hangs,
}

/// Decides what becomes of a request to the node with an index.
type Judge = dyn Fn(usize, &ReplicaRequest) -> Fate;

/// Decides whether a change of membership fails.
type FailingChanges = dyn Fn(&MembershipChange) -> bool;

struct Shared {
    nodes: Vec<Node>,
    judge: RefCell<Option<Rc<Judge>>>,
    /// Nodes that promise nothing, though their connections stand.
    mute: RefCell<BTreeSet<usize>>,
    state: RefCell<Membership>,
    /// Decides which changes of membership fail.
    failing: RefCell<Option<Rc<FailingChanges>>>,
    /// How much longer than usual a request to the state and its answer are under way.
    slowness_of_state: Cell<Duration>,
    /// Notified when a node starts or stops.
    changed: Signal,
}

struct Node {
    id: NodeId,
    host: Host,
    drive: SimulatedDrive,
    process: RefCell<Option<Process>>,
    replica: RefCell<Option<Replica<SimulatedPlatform>>>,
    owner: RefCell<Option<Owner<Context>>>,
    /// The highest epoch of a fence that its process has answered and that settles.
    settled: Cell<Epoch>,
}

/// The surroundings of an owner on one of the nodes.
#[derive(Clone)]
pub struct Context {
    shared: Rc<Shared>,
    own: usize,
    epoch: Epoch,
    platform: SimulatedPlatform,
    /// Whether a change of membership is under way.
    changes: Rc<Cell<bool>>,
    repair_turns: RepairTurns,
    slow_drives: SlowDrives,
}

impl OwnersWorld {
    /// `node_count` nodes with formatted drives and an empty volume that has a copy on each; all
    /// are up, and nobody owns it.
    pub fn new(seed: u64, node_count: usize) -> Self {
        Self::with_spares(seed, node_count, 0)
    }

    /// The same, with as many further nodes that hold no copy.
    pub fn with_spares(seed: u64, copies: usize, spares: usize) -> Self {
        let world = World::swarm(seed);
        let node_count = copies + spares;
        let nodes: Vec<Node> = (0..node_count).map(|index| Node::new(&world, index)).collect();
        let member = |index: usize| Member {
            shard: ShardId::first(node_id(index)),
            drive: drive_id(index),
            copy: CopyId::from_random(3, index as u64),
            part: index as u8,
            is_building: false,
        };
        let members: Vec<Member> = (0..copies).map(member).collect();
        let membership = Membership {
            volume: VolumeId::from_random(1, 1),
            size_bytes: VOLUME_BYTES,
            geometry: geometry(),
            epoch: Epoch::ZERO,
            configuration: ConfigurationVersion(1),
            copies: copies as u8,
            slabs: vec![members; SLAB_COUNT as usize],
            stale: BTreeMap::new(),
            unsettled: None,
        };
        let shared = Rc::new(Shared {
            nodes,
            judge: RefCell::default(),
            mute: RefCell::default(),
            state: RefCell::new(membership),
            failing: RefCell::default(),
            slowness_of_state: Cell::default(),
            changed: Signal::new(),
        });
        let owners = Self { world, shared };
        for index in 0..node_count {
            owners.start(index, true);
        }
        owners
    }

    /// The cluster's state is put back to one that knows of no marks and no owner. `lost` nodes' drives are given up.
    pub fn set_back(&self, lost: &[usize]) {
        let slabs = self.membership().slabs;
        self.set_back_to(slabs, lost);
    }

    /// The same, to one that has these copies.
    pub fn set_back_to(&self, slabs: Vec<Vec<Member>>, lost: &[usize]) {
        let mut state = self.shared.state.borrow_mut();
        state.size_bytes = state.size_bytes.min(slabs.len() as u64 * state.geometry.slab_bytes());
        state.slabs = slabs;
        state.stale.clear();
        state.unsettled = Some(Unsettled {
            lost: lost.iter().map(|index| drive_id(*index)).collect(),
            pool: (0..self.shared.nodes.len()).map(|index| (drive_id(index), node_id(index))).collect(),
            is_growth_given_up: false,
        });
    }

    /// What stands behind the volume's end is given up, in a state that was put back.
    pub fn give_up_growth(&self) {
        let mut state = self.shared.state.borrow_mut();
        state.unsettled.as_mut().expect("a state that was put back").is_growth_given_up = true;
    }

    /// From now on `judge` decides what becomes of each request to a node.
    pub fn judge(&self, judge: impl Fn(usize, &ReplicaRequest) -> Fate + 'static) {
        *self.shared.judge.borrow_mut() = Some(Rc::new(judge));
    }

    /// All requests arrive again.
    pub fn judge_no_more(&self) {
        self.shared.judge.borrow_mut().take();
    }

    /// Whether a node promises nothing, and answers nothing that is asked from now on, though its
    /// connections stand.
    pub fn set_mute(&self, index: usize, is_mute: bool) {
        let mut mute = self.shared.mute.borrow_mut();
        if is_mute {
            mute.insert(index)
        } else {
            mute.remove(&index)
        };
    }

    /// Requests to the cluster's state, and its answers, are under way for so much longer.
    pub fn slow_state(&self, slowness: Duration) {
        self.shared.slowness_of_state.set(slowness);
    }

    /// From now on the changes of membership that `fails` names are not made, as if the cluster's state could not
    /// be reached.
    pub fn fail_changes(&self, fails: impl Fn(&MembershipChange) -> bool + 'static) {
        *self.shared.failing.borrow_mut() = Some(Rc::new(fails));
    }

    /// Whether a node is up.
    pub fn is_up(&self, index: usize) -> bool {
        self.shared.nodes[index].replica.borrow().is_some()
    }

    /// The drive of a node, for faults.
    pub fn drive(&self, index: usize) -> &SimulatedDrive {
        &self.shared.nodes[index].drive
    }

    /// Starts a node; with `format`, on an empty drive.
    pub fn start(&self, index: usize, format: bool) {
        let node = &self.shared.nodes[index];
        node.host.power_on();
        let process = self.world.start_process_on(&node.host, &format!("node {index}"));
        *node.process.borrow_mut() = Some(process.clone());
        node.settled.set(Epoch::ZERO);
        let (shared, platform) = (Rc::clone(&self.shared), process.platform());
        process.spawn(async move {
            let drive = platform.open_drive(&format!("drive {index}")).await.expect("the drive is free");
            if format {
                let options = FormatOptions {
                    cluster: ClusterId::from_random(9, 9),
                    node: node_id(index),
                    drive: drive_id(index),
                    slab_geometry: geometry(),
                };
                DriveStore::format(&platform, &drive, options).await.expect("the drive is empty");
            }
            let (store, _) = DriveStore::attach(&platform, drive, 0).await.expect("the store recovers");
            let replica = Replica::new();
            replica.add_drive(store);
            if format {
                add_copies(&shared, index, &replica).await;
            }
            *shared.nodes[index].replica.borrow_mut() = Some(replica);
            shared.changed.notify_all();
        });
        if format {
            assert_eq!(self.world.run_until(|| self.is_up(index)), RunEnd::ConditionMet);
        }
    }

    /// Stops a node: its process is killed, or the power of its host is cut.
    pub fn stop(&self, index: usize, power_cut: bool) {
        let node = &self.shared.nodes[index];
        node.replica.borrow_mut().take();
        node.owner.borrow_mut().take();
        if let Some(process) = node.process.borrow_mut().take() {
            if power_cut { node.host.power_cut() } else { process.crash() }
        }
        self.shared.changed.notify_all();
    }

    /// Makes a node the owner, with a new epoch.
    pub fn take(&self, index: usize) {
        let node = &self.shared.nodes[index];
        let Some(process) = node.process.borrow().clone() else { return };
        let mut state = self.shared.state.borrow_mut();
        state.epoch = state.epoch.next();
        state.configuration.0 += 1;
        let membership = state.clone();
        drop(state);
        let context = Context {
            shared: Rc::clone(&self.shared),
            own: index,
            epoch: membership.epoch,
            platform: process.platform(),
            changes: Rc::default(),
            repair_turns: RepairTurns::default(),
            slow_drives: SlowDrives::default(),
        };
        let (shared, slot) = (Rc::clone(&self.shared), index);
        process.spawn(async move {
            let owner = Owner::start(context, membership);
            if let Some(former) = shared.nodes[slot].owner.borrow_mut().replace(owner) {
                former.depose();
            }
        });
    }

    /// The owner with the highest epoch on any node that is up, and its node.
    pub fn owner(&self) -> Option<(usize, Owner<Context>)> {
        let owners = self.shared.nodes.iter().enumerate();
        owners
            .filter_map(|(index, node)| Some((index, node.owner.borrow().clone()?)))
            .max_by_key(|(_, owner)| owner.epoch())
    }

    /// The process of a node that is up.
    pub fn process(&self, index: usize) -> Option<Process> {
        self.shared.nodes[index].process.borrow().clone()
    }

    /// What the cluster state says.
    pub fn membership(&self) -> Membership {
        self.shared.state.borrow().clone()
    }

    /// The node's copies.
    pub fn replica(&self, index: usize) -> Option<Replica<SimulatedPlatform>> {
        self.shared.nodes[index].replica.borrow().clone()
    }
}

impl Drop for OwnersWorld {
    /// Ends every process: tasks hold the world that holds them, and a thousand worlds would fill
    /// the memory.
    fn drop(&mut self) {
        for index in 0..self.shared.nodes.len() {
            self.stop(index, true);
        }
    }
}

async fn add_copies(shared: &Shared, index: usize, replica: &Replica<SimulatedPlatform>) {
    let membership = shared.state.borrow().clone();
    for slab in (0..SLAB_COUNT).map(SlabIndex) {
        let members = &membership.slabs[slab.0 as usize];
        let Some(member) = members.iter().find(|member| member.drive == drive_id(index)) else { continue };
        let copy = membership.address(slab, member);
        let (copies, part) = (membership.copies, member.part);
        let new = NewCopy { copy, drive: member.drive, copies, part, epoch: Epoch::ZERO };
        let added = replica.serve(ReplicaRequest::AddCopy(new), None).await;
        assert!(added.is_ok(), "an empty drive has room");
    }
}

impl Node {
    fn new(world: &World, index: usize) -> Self {
        let host = world.add_host(&format!("host {index}"));
        let config = SimulatedDriveConfig { size_bytes: 32 << 20, ..SimulatedDriveConfig::default() };
        let drive = world.add_drive(&format!("drive {index}"), config);
        drive.attach_to(&host);
        Self {
            id: node_id(index),
            host,
            drive,
            process: RefCell::new(None),
            replica: RefCell::new(None),
            owner: RefCell::new(None),
            settled: Cell::new(Epoch::ZERO),
        }
    }
}

fn geometry() -> SlabGeometry {
    SlabGeometry::new(4 << 20).expect("4 MiB is a slab size")
}

fn node_id(index: usize) -> NodeId {
    NodeId::from_random((index as u64 + 1) << 56, 1)
}

fn drive_id(index: usize) -> DriveId {
    DriveId::from_random((index as u64 + 1) << 56, 2)
}

impl Shared {
    fn index(&self, id: NodeId) -> usize {
        self.nodes.iter().position(|node| node.id == id).expect("members name nodes of the world")
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[self.index(id)]
    }

    fn fate(&self, index: usize, request: &ReplicaRequest) -> Fate {
        if self.mute.borrow().contains(&index) {
            return Fate::Hangs;
        }
        let judge = self.judge.borrow().clone();
        judge.map_or(Fate::Carry, |judge| judge(index, request))
    }
}

impl Context {
    /// The world's own delay for an answer.
    async fn delay(&self) {
        let microseconds = self.platform.random_u64() % 300;
        self.platform.sleep(Duration::from_micros(microseconds)).await;
    }
}

impl OwnerContext for Context {
    type Platform = SimulatedPlatform;
    type Write = Pin<Box<dyn Future<Output = Result<(ReplicaResponse, Vec<Buffer>), AskError>>>>;

    fn begin_write(&self, shard: ShardId, request: ReplicaRequest, payload: Option<Buffer>) -> Self::Write {
        let context = self.clone();
        Box::pin(async move { context.ask(shard, request, payload).await })
    }

    fn platform(&self) -> &SimulatedPlatform {
        &self.platform
    }

    fn shard(&self) -> ShardId {
        ShardId::first(self.shared.nodes[self.own].id)
    }

    fn process(&self, shard: ShardId) -> Option<ProcessIncarnation> {
        let process = self.shared.node(shard.node).process.borrow();
        process.as_ref().map(|process| ProcessIncarnation::from_random(process.incarnation(), 4))
    }

    fn shards_of(&self, _: NodeId) -> Option<u8> {
        Some(1)
    }

    fn answers_for(&self, _: ShardId, _: DriveId) -> bool {
        true
    }

    async fn ask(
        &self,
        shard: ShardId,
        request: ReplicaRequest,
        payload: Option<Buffer>,
    ) -> Result<(ReplicaResponse, Vec<Buffer>), AskError> {
        let gone = || AskError::Unreachable("the node is down".to_owned());
        let replica = self.shared.node(shard.node).replica.borrow().clone();
        let Some(replica) = replica.filter(|_| shard.number == 0) else { return Err(gone()) };
        let alive = |process: &RefCell<Option<Process>>| process.borrow().as_ref().map(Process::incarnation);
        let incarnation = alive(&self.shared.node(shard.node).process);
        let fate = self.shared.fate(self.shared.index(shard.node), &request);
        let served = std::pin::pin!(async {
            match fate {
                Fate::Carry => {}
                Fate::Late(delay) => self.platform.sleep(delay).await,
                Fate::Fails(delay) => {
                    self.platform.sleep(delay).await;
                    return Err(AskError::Unreachable("the request was lost".to_owned()));
                }
                Fate::Refused(delay, error) => {
                    self.platform.sleep(delay).await;
                    return Err(AskError::Replica(error));
                }
                Fate::Hangs => std::future::pending().await,
            }
            let settles = match &request {
                ReplicaRequest::Fence { epoch, settles: true, .. } => Some(*epoch),
                _ => None,
            };
            let answer = replica.serve(request, payload).await.map_err(AskError::Replica);
            if let (Some(epoch), Ok(_)) = (settles, &answer) {
                let settled = &self.shared.node(shard.node).settled;
                settled.set(settled.get().max(epoch));
            }
            self.delay().await;
            answer
        });
        let stopped = std::pin::pin!(
            self.shared.changed.wait_until(|| alive(&self.shared.node(shard.node).process) != incarnation)
        );
        match futures_util::future::select(served, stopped).await {
            futures_util::future::Either::Left((answer, _)) => answer,
            futures_util::future::Either::Right(_) => Err(gone()),
        }
    }

    fn is_reachable(&self, shard: ShardId) -> bool {
        self.shared.node(shard.node).replica.borrow().is_some()
    }

    fn is_promised(&self, shard: ShardId, volume: VolumeId, epoch: Epoch) -> bool {
        if self.shared.mute.borrow().contains(&self.shared.index(shard.node)) {
            return false;
        }
        let node = self.shared.node(shard.node);
        let replica = node.replica.borrow();
        node.settled.get() == epoch
            && replica.as_ref().is_some_and(|replica| replica.accepted_epoch(volume) <= epoch)
    }

    async fn surroundings_changed(&self) {
        let timeout = std::pin::pin!(self.platform.sleep(Duration::from_millis(50)));
        futures_util::future::select(std::pin::pin!(self.shared.changed.notified()), timeout).await;
    }

    fn slow_drives(&self) -> &SlowDrives {
        &self.slow_drives
    }

    fn repair_turns(&self) -> &RepairTurns {
        &self.repair_turns
    }

    fn repair_share(&self) -> RepairShare {
        RepairShare::default()
    }

    async fn change_membership(&self, change: MembershipChange) -> Result<Membership, MembershipError> {
        assert!(!self.changes.replace(true), "an owner asks for one change at a time");
        let slowness = self.shared.slowness_of_state.get();
        self.delay().await;
        self.platform.sleep(slowness).await;
        let failing = self.shared.failing.borrow().clone();
        let fails = failing.is_some_and(|fails| fails(&change));
        let result = {
            let mut state = self.shared.state.borrow_mut();
            match state.epoch == self.epoch {
                true if fails => Err(MembershipError::Unavailable("no answer in time".to_owned())),
                true => apply(&mut state, change),
                false => Err(MembershipError::NotOwner),
            }
        };
        self.platform.sleep(slowness).await;
        self.delay().await;
        self.changes.set(false);
        result
    }
}

/// The node of a drive.
fn node_of(drive: DriveId) -> NodeId {
    let index = (0..).find(|index| drive_id(*index) == drive);
    node_id(index.expect("each node has one drive"))
}

fn apply(state: &mut Membership, change: MembershipChange) -> Result<Membership, MembershipError> {
    match change {
        MembershipChange::MarkStale(marks) => {
            if !state.may_mark(&marks.keys().copied().collect()) {
                return Err(MembershipError::Refused("it would take the last in-sync copy".to_owned()));
            }
            for (drive, since) in marks {
                let mark = state.stale.entry(drive).or_insert(since);
                *mark = (*mark).min(since);
            }
        }
        MembershipChange::Promote(leg) if leg.is_building => {
            for members in &mut state.slabs {
                let Some(built) = members.iter().find(|member| member.leg() == leg).copied() else {
                    continue;
                };
                members.retain(|member| member.part != built.part);
                members.push(Member { is_building: false, ..built });
            }
            let legs = state.legs();
            state.stale.retain(|drive, _| legs.contains_key(&LegId::standing(*drive)));
        }
        MembershipChange::Promote(leg) => {
            state.stale.remove(&leg.drive);
        }
        MembershipChange::Build(moves) => {
            for (number, Move { slab, part, to }) in (0..).zip(moves) {
                let (node, copy) =
                    (node_of(to), CopyId::from_random(4, state.configuration.0 << 16 | number));
                let member = Member { shard: ShardId::first(node), drive: to, copy, part, is_building: true };
                state.slabs[slab.0 as usize].push(member);
            }
        }
        MembershipChange::Abandon(drive) => {
            for members in &mut state.slabs {
                members.retain(|member| member.leg() != LegId::building(drive));
            }
        }
        MembershipChange::Settle(stale) => {
            if !state.may_mark(&stale) {
                return Err(MembershipError::Refused("it would take the last in-sync copy".to_owned()));
            }
            state.stale = stale.into_iter().map(|drive| (drive, Version::ZERO)).collect();
            state.unsettled = None;
        }
    }
    state.configuration.0 += 1;
    Ok(state.clone())
}

#[cfg(test)]
#[path = "owners_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "owner_rules.rs"]
mod rules;

#[cfg(test)]
#[path = "owner_rules_tests.rs"]
mod rules_tests;

#[cfg(test)]
#[path = "owner_moves_tests.rs"]
mod moves_tests;

#[cfg(test)]
#[path = "owner_device_tests.rs"]
mod device_tests;

#[cfg(test)]
#[path = "owner_missed_tests.rs"]
mod missed_tests;

#[cfg(test)]
#[path = "owner_scrub_tests.rs"]
mod scrub_tests;

#[cfg(test)]
#[path = "owner_settle_tests.rs"]
mod settle_tests;

#[cfg(test)]
#[path = "owner_takeover_tests.rs"]
mod takeover_tests;

#[cfg(test)]
#[path = "owner_lost_block_tests.rs"]
mod lost_block_tests;

#[cfg(test)]
#[path = "owner_slow_tests.rs"]
mod slow_tests;
