//! What a node does next about virtual machines.
//!
//! Pure bookkeeping: it is told what the cluster's state shows, what runs here and what time it is, and answers with steps.
//! Steps that change the state are transactions that compare what was seen, so a view that lags behind costs an attempt and
//! nothing else.
//!
//! A virtual machine that is to run and has no node is claimed by the node that suits it best: the one that owns its disk, or
//! else the one with the most memory left. All nodes reckon the same; the next best ones wait a little longer each, so that
//! one that is about to fail holds nothing up. Those of higher priority go first, as long as any node has room for them. One
//! whose node is not alive counts as having none once that has shown for a moment: until then the node's process may just
//! begin anew, and its virtual machines go on meanwhile.
//!
//! One that moves to another node is awaited there, sent, and only then the other node's, by one more transaction: until that is
//! made it is where it was, whatever happens, and what has arrived elsewhere does not run. A node in maintenance has its virtual
//! machines move away, a few at a time.
//!
//! Invariants:
//! - Nothing is started here that the state does not show claimed by this node, by this run.
//! - Each start has a run of its own: what a former process of the same machine has begun to write, and may still be under way,
//!   is not of it.
//! - What runs here for another run, or for nothing, is ended.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spandrel_cluster::{MigrationStage, PlacementReason, VmGoal, VmMigration, VmPriority, VmRecord, Vms};
use spandrel_platform::Instant;
use spandrel_shared::{NodeId, VmId, VolumeId};

use crate::hypervisor::{Condition, Instance};

/// For how long a node must be seen not to be alive before its virtual machines are claimed by others. What says that it is
/// alive outlasts it by three seconds already.
const LOST_AFTER: Duration = Duration::from_millis(500);

/// The same of a node that is alive and does not say that it runs virtual machines: it may look for what it has, or stop.
const SILENT_AFTER: Duration = Duration::from_secs(60);

/// How much longer the next best node waits before it claims a virtual machine.
const CLAIM_STEP: Duration = Duration::from_millis(1000);

/// How long one of lower priority waits at most for those of higher priority that some node has room for.
const HIGHER_FIRST_MAX: Duration = Duration::from_secs(10);

/// How many a node starts at a time: each is busy then.
const STARTS_AT_ONCE: usize = 4;

/// How often a guest is asked to shut down until it does.
const SHUT_DOWN_INTERVAL: Duration = Duration::from_secs(5);

/// How long it takes until one that could not be started, or has failed, is started again, at first and at last.
const START_PAUSE_MIN: Duration = Duration::from_secs(1);
const START_PAUSE_MAX: Duration = Duration::from_secs(60);

/// How long ago its failures here must be for one to be forgiven them that runs, or that another node has claimed.
const FORGIVEN_AFTER: Duration = Duration::from_secs(300);

/// After how many failures another node may try, if one has room.
const FAILURES_MAX: u32 = 3;

/// How long another node may take until it waits for one that is to move there.
const AWAITED_WITHIN: Duration = Duration::from_secs(30);

/// How many a node in maintenance has move away at a time: each takes memory's worth of network.
const MOVES_AT_ONCE: usize = 2;

/// How long it takes until one is tried again that could not be moved.
const MOVE_PAUSE: Duration = Duration::from_secs(10);

/// A node that is alive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostSeen {
    /// Whether it says that it runs virtual machines: not when it has just begun, or stops.
    pub runs_vms: bool,
    /// Memory that virtual machines may have there in all, in bytes.
    pub memory_bytes: u64,
    /// Whether it is in maintenance, and takes none.
    pub is_in_maintenance: bool,
}

/// What a node sees.
pub struct Sight<'a> {
    /// The node.
    pub own: NodeId,
    /// All virtual machines, as the state shows them.
    pub vms: &'a Vms,
    /// The nodes that are alive.
    pub hosts: &'a BTreeMap<NodeId, HostSeen>,
    /// Who owns the volumes that are disks, as far as somebody does.
    pub owners: &'a BTreeMap<VolumeId, NodeId>,
    /// What runs here.
    pub instances: &'a BTreeMap<VmId, Instance>,
    /// Those of which a step is under way: nothing is to be done about them.
    pub busy: &'a BTreeSet<VmId>,
}

/// What is to be done next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Claim a virtual machine for this node.
    Claim(VmId, PlacementReason),
    /// Write down that it has no node any more, and what it is to do.
    Release(VmId, VmGoal, Option<PlacementReason>),
    /// Start it here, for the run of its claim.
    Start(VmId),
    /// Have it move to another node.
    Move(VmId, NodeId),
    /// Start what waits here for one that moves to this node.
    Receive(VmId),
    /// Write down that it is awaited here.
    Await(VmId),
    /// Send it to the node that awaits it, and write down that it is there.
    Send(VmId, NodeId),
    /// Write down that it does not move.
    Stay(VmId),
    /// Let it run, which has arrived here.
    Resume(VmId),
    /// Ask its guest to shut down.
    ShutDown(VmId),
    /// End what runs here for it, at once.
    End(VmId),
}

/// What a node remembers of virtual machines from one look to the next.
#[derive(Debug, Default)]
pub struct Planner {
    /// Those that no node runs.
    waiting: BTreeMap<VmId, Waiting>,
    /// The runs that were claimed here and not used yet.
    unused: BTreeMap<VmId, u64>,
    /// Those that could not be started here, or have failed.
    failures: BTreeMap<VmId, Failures>,
    /// When their guests were asked to shut down.
    asked: BTreeMap<VmId, Instant>,
    /// The runs for which something was started here that waits for them.
    received: BTreeMap<VmId, u64>,
    /// Since when they have been moving, by the run that they are to have.
    moving: BTreeMap<VmId, (u64, Instant)>,
    /// When those may be moved again that could not be.
    move_again_at: BTreeMap<VmId, Instant>,
    /// When those are resumed that have been paused, and after which pause.
    resumed: BTreeMap<VmId, (Instant, Duration)>,
    is_settled: bool,
}

/// One that no node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Waiting {
    /// The run that it had last.
    run: u64,
    /// For how long this must show before it counts.
    patience: Duration,
    since: Instant,
}

/// How often one has failed here, and why the last time.
#[derive(Clone, Debug)]
struct Failures {
    count: u32,
    again_at: Instant,
    why: String,
}

impl Step {
    /// The virtual machine that it is about.
    pub fn vm(&self) -> VmId {
        match self {
            Self::Claim(vm, _)
            | Self::Release(vm, _, _)
            | Self::Start(vm)
            | Self::Move(vm, _)
            | Self::Receive(vm)
            | Self::Await(vm)
            | Self::Send(vm, _)
            | Self::Stay(vm)
            | Self::Resume(vm)
            | Self::ShutDown(vm)
            | Self::End(vm) => *vm,
        }
    }
}

impl Planner {
    /// One was claimed for this node, by this run.
    pub fn claimed(&mut self, vm: VmId, run: u64) {
        self.unused.insert(vm, run);
    }

    /// One is about to be started, by the run that was claimed last.
    pub fn begins(&mut self, vm: VmId) {
        self.unused.remove(&vm);
    }

    /// What waits for one is about to be started here, for this run.
    pub fn receives(&mut self, vm: VmId, run: u64) {
        self.received.insert(vm, run);
    }

    /// One could not be moved from here.
    pub fn not_moved(&mut self, vm: VmId, now: Instant) {
        self.move_again_at.insert(vm, now + MOVE_PAUSE);
    }

    /// One could not be started here, or has failed.
    pub fn failed(&mut self, vm: VmId, now: Instant, why: String) {
        let count = self.failures.get(&vm).map_or(0, |failures| failures.count) + 1;
        let doubled = START_PAUSE_MIN.saturating_mul(1_u32.checked_shl(count - 1).unwrap_or(u32::MAX));
        let again_at = now + doubled.min(START_PAUSE_MAX);
        self.failures.insert(vm, Failures { count, again_at, why });
    }

    /// Why one could not be started here last, or has failed.
    pub fn failure(&self, vm: VmId) -> Option<&str> {
        self.failures.get(&vm).map(|failures| failures.why.as_str())
    }

    /// Those that could not be started here, or have failed, and are to run.
    pub fn failed_vms(&self) -> impl Iterator<Item = VmId> {
        self.failures.keys().copied()
    }

    /// Whether nothing is to be done, nor waited for, until something changes.
    pub fn is_settled(&self) -> bool {
        self.is_settled
    }

    /// What is to be done now.
    pub fn steps(&mut self, now: Instant, sight: &Sight<'_>) -> Vec<Step> {
        self.forget_settled(now, sight);
        self.note_waiting(now, sight);
        let mut steps: Vec<Step> = Vec::new();
        for (vm, instance) in sight.instances {
            if !belongs_here(sight, *vm, instance.run) && !sight.busy.contains(vm) {
                steps.push(Step::End(*vm));
            }
        }
        let mut starting = 0;
        for (vm, stored) in sight.vms {
            let is_busy = sight.busy.contains(vm);
            if placed_here(sight, *vm).is_some() {
                starting += usize::from(self.is_starting(now, sight, *vm, &stored.record));
                if !is_busy {
                    steps.extend(self.step_here(now, sight, *vm, &stored.record));
                }
            } else if let Some(migration) = arriving_here(sight, *vm).filter(|_| !is_busy) {
                steps.extend(self.step_arriving(sight, *vm, migration));
            }
        }
        steps.extend(self.moves(now, sight));
        steps.extend(self.claims(now, sight, starting));
        let waits_here = |(vm, stored): (&VmId, &spandrel_cluster::Stored<VmRecord>)| {
            let is_arriving = arriving_here(sight, *vm).is_some();
            is_arriving || placed_here(sight, *vm).is_some() && !is_at_rest(sight, *vm, &stored.record)
        };
        let is_leaving = sight.hosts.get(&sight.own).is_some_and(|host| host.is_in_maintenance)
            && sight.vms.keys().any(|vm| placed_here(sight, *vm).is_some());
        self.is_settled =
            steps.is_empty() && !is_leaving && self.waiting.is_empty() && !sight.vms.iter().any(waits_here);
        steps
    }

    /// Forgets what is over.
    fn forget_settled(&mut self, now: Instant, sight: &Sight<'_>) {
        let goal = |vm: &VmId| sight.vms.get(vm).map(|stored| stored.record.goal);
        self.unused.retain(|vm, run| placed_here(sight, *vm).is_none_or(|record| run_of(record) <= *run));
        let condition = |vm: &VmId| sight.instances.get(vm).map(|instance| &instance.condition);
        let runs = |vm: &VmId| condition(vm) == Some(&Condition::Running);
        self.failures.retain(|vm, failures| {
            let is_elsewhere =
                || sight.vms.get(vm).is_some_and(|stored| stored.record.is_elsewhere(sight.own));
            let is_forgiven = (runs(vm) || is_elsewhere()) && now.since(failures.again_at) >= FORGIVEN_AFTER;
            goal(vm) == Some(VmGoal::Running) && !is_forgiven
        });
        self.resumed.retain(|vm, (at, _)| {
            sight.instances.contains_key(vm) && !(runs(vm) && now.since(*at) >= FORGIVEN_AFTER)
        });
        let moves = |vm: &VmId| sight.vms.get(vm)?.record.migration.as_ref().map(|migration| migration.run);
        self.received.retain(|vm, run| moves(vm) == Some(*run));
        self.moving.retain(|vm, (run, _)| moves(vm) == Some(*run));
        self.move_again_at.retain(|vm, _| placed_here(sight, *vm).is_some());
        self.asked.retain(|vm, _| sight.instances.contains_key(vm) && goal(vm) == Some(VmGoal::Off));
    }

    fn note_waiting(&mut self, now: Instant, sight: &Sight<'_>) {
        let waiting = |vm: &VmId| {
            let record = &sight.vms.get(vm)?.record;
            let patience = match &record.placement {
                None if record.goal == VmGoal::Running => Duration::ZERO,
                None => return None,
                Some(placement) => match sight.hosts.get(&placement.node) {
                    None => LOST_AFTER,
                    Some(host) if host.runs_vms || placement.node == sight.own => return None,
                    Some(_) => SILENT_AFTER,
                },
            };
            Some((record.last_run, patience))
        };
        self.waiting.retain(|vm, known| waiting(vm) == Some((known.run, known.patience)));
        for vm in sight.vms.keys() {
            if let Some((run, patience)) = waiting(vm) {
                self.waiting.entry(*vm).or_insert(Waiting { run, patience, since: now });
            }
        }
    }

    /// What is to be done about one that this node has claimed.
    fn step_here(&mut self, now: Instant, sight: &Sight<'_>, vm: VmId, record: &VmRecord) -> Option<Step> {
        let instance = sight.instances.get(&vm).filter(|instance| instance.run == run_of(record));
        if let Some(migration) = &record.migration {
            return self.step_leaving(now, sight, vm, record, migration);
        }
        match (record.goal, instance.map(|instance| &instance.condition)) {
            // What runs there for another run ends first.
            (_, None) if sight.instances.contains_key(&vm) => None,
            (VmGoal::Off | VmGoal::OffAtOnce, None) => Some(Step::Release(vm, VmGoal::Off, None)),
            (VmGoal::OffAtOnce, Some(_)) => Some(Step::End(vm)),
            (VmGoal::Off, Some(Condition::Running | Condition::Paused(_))) => {
                let last = self.asked.get(&vm);
                if last.is_some_and(|last| now.since(*last) < SHUT_DOWN_INTERVAL) {
                    return None;
                }
                self.asked.insert(vm, now);
                Some(Step::ShutDown(vm))
            }
            (VmGoal::Off, Some(Condition::ShutDown | Condition::Failed(_) | Condition::Arriving)) => {
                Some(Step::End(vm))
            }
            (VmGoal::Running, Some(Condition::Arriving)) => Some(Step::Resume(vm)),
            (VmGoal::Running, Some(Condition::Running)) => None,
            // What its disk could not do it may be able to do now.
            (VmGoal::Running, Some(Condition::Paused(_))) => self.resume_later(now, vm),
            // Its guest has decided.
            (VmGoal::Running, Some(Condition::ShutDown)) => Some(Step::Release(vm, VmGoal::Off, None)),
            (VmGoal::Running, Some(Condition::Failed(why))) => {
                self.failed(vm, now, why.clone());
                Some(Step::End(vm))
            }
            (VmGoal::Running, None) => self.start(now, sight, vm, record),
        }
    }

    /// Has one go on that is paused, after pauses that grow.
    fn resume_later(&mut self, now: Instant, vm: VmId) -> Option<Step> {
        let (at, pause) = *self.resumed.entry(vm).or_insert((now + START_PAUSE_MIN, START_PAUSE_MIN));
        if now < at {
            return None;
        }
        let next = pause.saturating_mul(2).min(START_PAUSE_MAX);
        self.resumed.insert(vm, (now + next, next));
        Some(Step::Resume(vm))
    }

    /// What is to be done about one that is to move away from here.
    fn step_leaving(
        &mut self,
        now: Instant,
        sight: &Sight<'_>,
        vm: VmId,
        record: &VmRecord,
        migration: &VmMigration,
    ) -> Option<Step> {
        let (_, since) = *self.moving.entry(vm).or_insert((migration.run, now));
        let is_there = sight.hosts.get(&migration.to).is_some_and(|host| !host.is_in_maintenance);
        let condition = sight.instances.get(&vm).map(|instance| &instance.condition);
        let can_move = record.goal == VmGoal::Running && is_there && condition == Some(&Condition::Running);
        match migration.stage {
            _ if !can_move => Some(Step::Stay(vm)),
            MigrationStage::Ready => Some(Step::Send(vm, migration.to)),
            MigrationStage::Wanted => (now.since(since) >= AWAITED_WITHIN).then_some(Step::Stay(vm)),
        }
    }

    /// What is to be done about one that is to move here.
    fn step_arriving(&self, sight: &Sight<'_>, vm: VmId, migration: &VmMigration) -> Option<Step> {
        let condition = sight.instances.get(&vm).map(|instance| &instance.condition);
        match (condition, migration.stage) {
            // What waited for it has ended.
            (None, MigrationStage::Ready) => Some(Step::Stay(vm)),
            (None, _) if self.received.get(&vm) == Some(&migration.run) => Some(Step::Stay(vm)),
            // Others have come here meanwhile.
            (None, _) if !has_room_for_all(sight) => Some(Step::Stay(vm)),
            (None, _) => Some(Step::Receive(vm)),
            (Some(Condition::Arriving), MigrationStage::Wanted) => Some(Step::Await(vm)),
            (Some(Condition::Arriving), MigrationStage::Ready) => None,
            (Some(_), _) => Some(Step::Stay(vm)),
        }
    }

    /// Those that should move away from here since the node is in maintenance.
    fn moves(&self, now: Instant, sight: &Sight<'_>) -> Vec<Step> {
        if !sight.hosts.get(&sight.own).is_some_and(|host| host.is_in_maintenance) {
            return Vec::new();
        }
        let here = || sight.vms.iter().filter(|(vm, _)| placed_here(sight, **vm).is_some());
        let moving = here().filter(|(_, stored)| stored.record.migration.is_some()).count();
        let is_due =
            |vm: &VmId| !sight.busy.contains(vm) && self.move_again_at.get(vm).is_none_or(|at| now >= *at);
        let runs = |vm: &VmId| {
            sight.instances.get(vm).is_some_and(|instance| instance.condition == Condition::Running)
        };
        let due = here().filter(|(vm, stored)| {
            stored.record.goal == VmGoal::Running
                && stored.record.migration.is_none()
                && runs(vm)
                && is_due(vm)
        });
        // Each takes room that the next one does not have: they are looked at again when this is written down.
        let step =
            due.filter_map(|(vm, stored)| Some(Step::Move(*vm, *suitable(sight, &stored.record).first()?)));
        step.take(usize::from(moving < MOVES_AT_ONCE)).collect()
    }

    /// How one that does not run here yet gets to.
    fn start(&self, now: Instant, sight: &Sight<'_>, vm: VmId, record: &VmRecord) -> Option<Step> {
        let placement = record.placement.as_ref()?;
        // Else a start was tried with it, or a former process of this node has claimed it.
        let is_unused = self.unused.get(&vm) == Some(&placement.run);
        if let Some(failures) = self.failures.get(&vm) {
            let others = || suitable(sight, record).into_iter().any(|host| host != sight.own);
            if failures.count >= FAILURES_MAX && !is_unused && others() {
                let because = PlacementReason::StartFailed { node: sight.own };
                return Some(Step::Release(vm, VmGoal::Running, Some(because)));
            }
            if now < failures.again_at {
                return None;
            }
        }
        Some(if is_unused { Step::Start(vm) } else { Step::Claim(vm, placement.reason.clone()) })
    }

    /// Whether one is about to be started here.
    fn is_starting(&self, now: Instant, sight: &Sight<'_>, vm: VmId, record: &VmRecord) -> bool {
        let is_held_back = self.failures.get(&vm).is_some_and(|failures| now < failures.again_at);
        record.goal == VmGoal::Running && !sight.instances.contains_key(&vm) && !is_held_back
    }

    /// Those that this node should claim now, if it starts so many already.
    fn claims(&self, now: Instant, sight: &Sight<'_>, starting: usize) -> Vec<Step> {
        let idle = self.waiting.iter().filter(|(vm, _)| !sight.busy.contains(vm));
        let mut waiting: Vec<(VmId, &VmRecord, Waiting)> =
            idle.filter_map(|(vm, waiting)| Some((*vm, &sight.vms.get(vm)?.record, *waiting))).collect();
        waiting.sort_by_key(|(vm, record, _)| (record.priority, *vm));
        let mut steps = Vec::new();
        let mut left_bytes = memory_left(sight, sight.own);
        let mut starting = starting;
        let mut higher_waits = None;
        for (vm, record, Waiting { patience, since, .. }) in waiting {
            let lost = record.placement.as_ref().map(|placement| placement.node);
            let waited = now.since(since);
            if waited < patience {
                continue;
            }
            let suitable = suitable(sight, record);
            let rank = suitable.iter().position(|host| *host == sight.own);
            if let Some(step) = settled_without_start(sight, vm, record, waited, patience) {
                steps.extend(step);
                continue;
            }
            if higher_waits.is_some_and(|priority| priority < record.priority) && waited < HIGHER_FIRST_MAX {
                continue;
            }
            let is_held_back = self.failures.get(&vm).is_some_and(|failures| now < failures.again_at);
            let Some(rank) = rank.filter(|_| !is_held_back) else {
                higher_waits = higher_waits.or((!suitable.is_empty()).then_some(record.priority));
                continue;
            };
            let delay = CLAIM_STEP.saturating_mul(u32::try_from(rank).unwrap_or(u32::MAX));
            if waited < patience + delay || starting >= STARTS_AT_ONCE || record.memory_bytes > left_bytes {
                higher_waits = higher_waits.or(Some(record.priority));
                continue;
            }
            starting += 1;
            left_bytes -= record.memory_bytes;
            let because = match lost {
                Some(node) => PlacementReason::NodeLost { node },
                None => record.waits_because.clone().unwrap_or(PlacementReason::Started),
            };
            steps.push(Step::Claim(vm, because));
        }
        steps
    }
}

/// What becomes of one whose node is lost, and that is not to be started elsewhere: the first node that is alive writes it
/// down, the next ones if it does not.
fn settled_without_start(
    sight: &Sight<'_>,
    vm: VmId,
    record: &VmRecord,
    waited: Duration,
    patience: Duration,
) -> Option<Option<Step>> {
    record.placement.as_ref()?;
    if record.goal == VmGoal::Running && record.priority != VmPriority::NoAutoStart {
        return None;
    }
    let rank = sight.hosts.keys().position(|host| *host == sight.own)?;
    let delay = CLAIM_STEP.saturating_mul(u32::try_from(rank).unwrap_or(u32::MAX));
    Some((waited >= patience + delay).then_some(Step::Release(vm, VmGoal::Off, None)))
}

/// The record of one that this node has claimed.
fn placed_here<'a>(sight: &Sight<'a>, vm: VmId) -> Option<&'a VmRecord> {
    let record = &sight.vms.get(&vm)?.record;
    record.is_on(sight.own).then_some(record)
}

/// How one moves that moves to this node.
fn arriving_here<'a>(sight: &Sight<'a>, vm: VmId) -> Option<&'a VmMigration> {
    sight.vms.get(&vm)?.record.migration.as_ref().filter(|migration| migration.to == sight.own)
}

/// Whether what was started here for a run is meant to be here.
fn belongs_here(sight: &Sight<'_>, vm: VmId, run: u64) -> bool {
    placed_here(sight, vm).is_some_and(|record| run_of(record) == run)
        || arriving_here(sight, vm).is_some_and(|migration| migration.run == run)
}

fn run_of(record: &VmRecord) -> u64 {
    record.placement.as_ref().map_or(0, |placement| placement.run)
}

/// Whether one that this node has claimed is as it should be.
fn is_at_rest(sight: &Sight<'_>, vm: VmId, record: &VmRecord) -> bool {
    let condition = sight.instances.get(&vm).map(|instance| &instance.condition);
    record.goal == VmGoal::Running && record.migration.is_none() && condition == Some(&Condition::Running)
}

/// Whether this node has room for all virtual machines that are here or move here.
fn has_room_for_all(sight: &Sight<'_>) -> bool {
    sight.hosts.get(&sight.own).is_some_and(|host| memory_used(sight, sight.own) <= host.memory_bytes)
}

/// Memory that a node has left for virtual machines, in bytes; none if it takes none.
fn memory_left(sight: &Sight<'_>, node: NodeId) -> u64 {
    let Some(host) = sight.hosts.get(&node).filter(|host| !host.is_in_maintenance) else { return 0 };
    host.memory_bytes.saturating_sub(memory_used(sight, node))
}

/// Memory of the virtual machines that are on a node or move there, in bytes.
fn memory_used(sight: &Sight<'_>, node: NodeId) -> u64 {
    let records = sight.vms.values().map(|stored| &stored.record);
    records.filter(|record| record.takes_memory_of(node)).map(|record| record.memory_bytes).sum()
}

/// The nodes that have room for a virtual machine, the one that suits it best first.
fn suitable(sight: &Sight<'_>, record: &VmRecord) -> Vec<NodeId> {
    let owner = sight.owners.get(&record.volume);
    let failed_on = match &record.waits_because {
        Some(PlacementReason::StartFailed { node }) => Some(*node),
        _ => None,
    };
    let with_room = |node: &NodeId| {
        let left = memory_left(sight, *node);
        (left >= record.memory_bytes).then_some((
            failed_on == Some(*node),
            owner != Some(node),
            Reverse(left),
            *node,
        ))
    };
    let hosts: BTreeSet<_> = sight.hosts.keys().filter_map(with_room).collect();
    hosts.into_iter().map(|(_, _, _, node)| node).collect()
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
