//! The virtual machines of this node: claims them, starts and ends them, as the plan says.
//!
//! Each step is carried out beside the others, one at a time for each virtual machine. What a step changes in the cluster's
//! state is a transaction that compares what the plan was made by.
//!
//! A disk is opened by the name of a run, and only here if the state shows that run claimed by this node: see
//! [`NodeInner::disk_of_run`].

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use serde::{Deserialize, Serialize};
use spandrel_cluster::records::alive_shards_of;
use spandrel_cluster::store::StateStore;
use spandrel_cluster::{
    PlacementReason, StateError, StateKey, Stored, VmGoal, VmHost, VmMigration, VmPlacement, VmRecord,
};
use spandrel_platform::sync::Signal;
use spandrel_platform::{Platform, before};
use spandrel_shared::{NodeId, VmId, VolumeId};
use spandrel_vm::disk::DiskName;
use spandrel_vm::plan::HostSeen;
use spandrel_vm::{Condition, Hypervisor, Instance, Planner, Sight, Step, VmSpec};

use crate::node::{Node, NodeInner};

/// How often it is looked what is to be done, while something is waited for.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How long steps may take that are under way when the node is stopped.
const STEPS_TIME_MAX: Duration = Duration::from_secs(5);

/// How often it is tried to find out whether one has moved.
const SETTLE_PAUSE: Duration = Duration::from_millis(20);

/// How long guests may take to shut down when their node is stopped, before their power is cut.
const SHUT_DOWN_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a node that stops tries to write down that its virtual machines are free for others.
const RELEASE_TIME_MAX: Duration = Duration::from_secs(3);

/// A virtual machine as the node sees it that has claimed it, or has tried to run it, or on which something of it is left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmReport {
    /// The virtual machine.
    pub vm: VmId,
    /// The run for which it was started; absent if nothing of it is here.
    pub run: Option<u64>,
    /// How it is.
    pub condition: VmCondition,
    /// Why it could not be started here last, or has failed.
    pub failure: Option<String>,
}

/// How a virtual machine is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum VmCondition {
    /// It is about to be started.
    Starting,
    /// It waits for what its guest has in memory on another node.
    Arriving,
    /// Its guest runs.
    Running,
    /// It stands still, for this reason.
    Paused(String),
    /// Its guest has shut down.
    ShutDown,
    /// It has ended by itself, for this reason.
    Failed(String),
}

/// What a node needs to look after virtual machines.
pub(crate) struct VmKeeper {
    hypervisor: Rc<dyn Hypervisor>,
    planner: RefCell<Planner>,
    /// What ran here when it was looked last.
    seen: RefCell<BTreeMap<VmId, Instance>>,
    /// Those of which a step is under way.
    busy: RefCell<BTreeSet<VmId>>,
    /// Notified when a step is over.
    done: Signal,
    stopping: Cell<bool>,
    /// Whether what runs here is to go on when the node stops: its process begins anew.
    leaves_running: Cell<bool>,
}

impl<P: Platform, S: StateStore> Node<P, S> {
    /// Looks after virtual machines from now on, with `hypervisor`. To be called once, for the node's first shard.
    pub fn run_vms(&self, hypervisor: Rc<dyn Hypervisor>) {
        let keeper = Rc::new(VmKeeper {
            hypervisor,
            planner: RefCell::default(),
            seen: RefCell::default(),
            busy: RefCell::default(),
            done: Signal::new(),
            stopping: Cell::new(false),
            leaves_running: Cell::new(false),
        });
        let former = self.inner.vms.borrow_mut().replace(Rc::clone(&keeper));
        assert!(former.is_none(), "a node looks after virtual machines once");
        tracing::info!("the node looks after virtual machines");
        // The entry that says that it is alive tells of it.
        self.inner.drives_changed.notify_all();
        self.spawn(keep_vms(Rc::clone(&self.inner), keeper));
    }

    /// Has virtual machines go on when the node stops: the next run of its process looks after them.
    pub fn leave_vms_running(&self) {
        if let Some(keeper) = self.inner.vms.borrow().as_ref() {
            keeper.leaves_running.set(true);
        }
    }
}

impl VmKeeper {
    /// What this node has for virtual machines; nothing any more once it stops for good.
    pub(crate) fn host(&self) -> Option<VmHost> {
        let ends = self.stopping.get() && !self.leaves_running.get();
        (!ends).then(|| self.hypervisor.host())
    }
}

/// Takes one step after the other, as long as the node runs.
async fn keep_vms<P: Platform, S: StateStore>(node: Rc<NodeInner<P, S>>, keeper: Rc<VmKeeper>) {
    let (view, platform) = (&node.parts.view, &node.parts.platform);
    while !keeper.stopping.get() {
        let seen = view.changed.notified();
        let done = keeper.done.notified();
        *keeper.seen.borrow_mut() = keeper.hypervisor.instances().await;
        let is_settled = !view.knows_nodes() || take_steps(&node, &keeper);
        let told = pin!(select(seen, done));
        let changed = select(told, keeper.hypervisor.changed());
        match is_settled {
            true => drop(changed.await),
            false => drop(before(platform, platform.now() + LOOK_AGAIN, changed).await),
        }
    }
}

/// Begins what is to be done. Whether nothing is, and nothing is waited for.
fn take_steps<P: Platform, S: StateStore>(node: &Rc<NodeInner<P, S>>, keeper: &Rc<VmKeeper>) -> bool {
    let steps = node.vm_steps(keeper);
    for step in steps {
        let vm = step.vm();
        if !keeper.busy.borrow_mut().insert(vm) {
            continue;
        }
        let (node, keeper) = (Rc::clone(node), Rc::clone(keeper));
        node.parts.platform.clone().spawn(async move {
            node.take_step(&keeper, step).await;
            keeper.busy.borrow_mut().remove(&vm);
            keeper.done.notify_all();
        });
    }
    keeper.planner.borrow().is_settled()
}

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    fn vm_steps(&self, keeper: &VmKeeper) -> Vec<Step> {
        let view = &self.parts.view;
        let vms = view.vms.borrow();
        let volumes = view.volumes.borrow();
        let disks = vms.values().map(|stored| stored.record.volume);
        let owner = |volume: VolumeId| Some((volume, volumes.get(&volume)?.record.owner?.shard.node));
        let sight = Sight {
            own: self.parts.node(),
            vms: &vms,
            hosts: &self.vm_hosts(),
            owners: &disks.filter_map(owner).collect(),
            instances: &keeper.seen.borrow(),
            busy: &keeper.busy.borrow(),
        };
        keeper.planner.borrow_mut().steps(self.parts.platform.now(), &sight)
    }

    /// The nodes that are alive, with what they say of virtual machines.
    fn vm_hosts(&self) -> BTreeMap<NodeId, HostSeen> {
        let view = &self.parts.view;
        let alive = view.alive.borrow();
        let host = |node: NodeId| {
            let told = alive_shards_of(&alive, node).find_map(|(_, stored)| stored.record.vm_host.as_ref());
            let is_in_maintenance = view.is_in_maintenance(node);
            let memory_bytes = told.map_or(0, |told| told.memory_bytes);
            (node, HostSeen { runs_vms: told.is_some(), memory_bytes, is_in_maintenance })
        };
        alive.keys().map(|shard| host(shard.node)).collect()
    }

    async fn take_step(&self, keeper: &VmKeeper, step: Step) {
        let now_ms = self.parts.platform.unix_time().0;
        match step {
            Step::Claim(vm, because) => {
                let own = self.parts.node();
                let claimed = self.change_vm(vm, |record| record.claimed(own, because, now_ms)).await;
                if let Some(run) = claimed {
                    keeper.planner.borrow_mut().claimed(vm, run);
                }
            }
            Step::Release(vm, goal, because) => {
                self.change_vm(vm, |record| VmRecord { goal, ..record.released(because) }).await;
            }
            Step::Start(vm) => self.start_vm(keeper, vm).await,
            Step::Move(vm, to) => drop(self.change_vm(vm, |record| record.moving(to, now_ms)).await),
            Step::Receive(vm) => self.receive_vm(keeper, vm).await,
            Step::Await(vm) => drop(self.change_vm(vm, VmRecord::awaited).await),
            Step::Send(vm, to) => self.send_vm(keeper, vm, to).await,
            Step::Stay(vm) => {
                keeper.planner.borrow_mut().not_moved(vm, self.parts.platform.now());
                self.change_vm(vm, VmRecord::staying).await;
            }
            Step::Resume(vm) => {
                if let Err(error) = keeper.hypervisor.resume(vm).await {
                    tracing::error!(%vm, "a virtual machine does not go on, and is started anew: {error}");
                    keeper.planner.borrow_mut().failed(vm, self.parts.platform.now(), error.to_string());
                    end(keeper, vm).await;
                }
            }
            Step::ShutDown(vm) => keeper.hypervisor.shut_down(vm).await,
            Step::End(vm) => end(keeper, vm).await,
        }
    }

    fn vm_seen(&self, vm: VmId) -> Option<Stored<VmRecord>> {
        self.parts.view.vms.borrow().get(&vm).cloned()
    }

    /// Changes a virtual machine in the cluster's state, if it is there as it was seen. Its last run then; none if it is not
    /// known to be changed, and the state is looked at again.
    async fn change_vm(&self, vm: VmId, change: impl FnOnce(&VmRecord) -> VmRecord) -> Option<u64> {
        let seen = self.vm_seen(vm)?;
        let changed = change(&seen.record);
        match self.parts.state.change_vm(vm, &seen, changed).await {
            Ok(stored) => {
                tell_change(&seen.record, &stored.record);
                let run = stored.record.last_run;
                self.parts.view.note_vm(vm, stored);
                Some(run)
            }
            Err(StateError::Conflict) => None,
            Err(error) => {
                tracing::warn!(
                    "the virtual machine {} is not changed in the cluster's state: {error}",
                    seen.record.name
                );
                self.parts.platform.sleep(LOOK_AGAIN).await;
                None
            }
        }
    }

    async fn start_vm(&self, keeper: &VmKeeper, vm: VmId) {
        let Some(Stored { record, .. }) = self.vm_seen(vm) else { return };
        let Some(placement) = &record.placement else { return };
        keeper.planner.borrow_mut().begins(vm);
        let spec = spec_of(vm, &record, placement.run, false);
        match keeper.hypervisor.start(spec).await {
            Ok(()) => tracing::info!(vm = record.name, "the virtual machine runs"),
            Err(error) => {
                tracing::warn!("the virtual machine {} is not started: {error}", record.name);
                keeper.planner.borrow_mut().failed(vm, self.parts.platform.now(), error.to_string());
            }
        }
    }

    /// Starts what waits here for a virtual machine that moves here.
    async fn receive_vm(&self, keeper: &VmKeeper, vm: VmId) {
        let Some(Stored { record, .. }) = self.vm_seen(vm) else { return };
        let Some(migration) = &record.migration else { return };
        keeper.planner.borrow_mut().receives(vm, migration.run);
        if let Err(error) = keeper.hypervisor.start(spec_of(vm, &record, migration.run, true)).await {
            tracing::warn!("the virtual machine {} does not move here: {error}", record.name);
        }
    }

    /// Sends a virtual machine to the node that waits for it, and writes down that it is there. If anything else is so in the
    /// end, it goes on here.
    async fn send_vm(&self, keeper: &VmKeeper, vm: VmId, to: NodeId) {
        let Some(Stored { record, .. }) = self.vm_seen(vm) else { return };
        let Some(run) = record.migration.as_ref().map(|migration| migration.run) else { return };
        let began = self.parts.platform.now();
        let unwanted = pin!(self.move_unwanted(keeper, vm, run, to));
        let sent = match select(keeper.hypervisor.send(vm, to), unwanted).await {
            Either::Left((sent, _)) => sent.map_err(|error| error.to_string()),
            Either::Right(((), _)) => Err("it is not to move any more".to_owned()),
        };
        if let Err(why) = &sent {
            tracing::warn!("the virtual machine {} is not moved: {why}", record.name);
        }
        if self.settle_move(vm, run, sent.is_ok()).await {
            let took_ms = self.parts.platform.now().since(began).as_millis() as u64;
            tracing::info!(
                vm = record.name,
                to = self.parts.name_of(to),
                took_ms,
                "the virtual machine has moved"
            );
            // At once: it has the right to write that the other one waits for.
            return end(keeper, vm).await;
        }
        keeper.planner.borrow_mut().not_moved(vm, self.parts.platform.now());
        if let Err(error) = keeper.hypervisor.resume(vm).await {
            tracing::error!("the virtual machine {} does not go on: {error}", record.name);
        }
    }

    /// Waits until a virtual machine that is being sent is not to move any more, as far as this node sees: it is to end, is
    /// somebody else's by now, or the node that it moves to is lost. Or this node stops: what its disk was asked then and has not
    /// answered, its successor here answers, and none elsewhere.
    async fn move_unwanted(&self, keeper: &VmKeeper, vm: VmId, run: u64, to: NodeId) {
        loop {
            let (changed, done) = (self.parts.view.changed.notified(), keeper.done.notified());
            let moves = self.vm_seen(vm).is_some_and(|Stored { record, .. }| {
                record.goal == VmGoal::Running
                    && record.migration.as_ref().is_some_and(|migration| migration.run == run)
            });
            if !moves || keeper.stopping.get() || !self.vm_hosts().contains_key(&to) {
                return;
            }
            select(pin!(changed), pin!(done)).await;
        }
    }

    /// Writes down that a virtual machine has moved, all of which is on the other node by now and stands still, or that it
    /// stays. Whether it has moved: until that is known it goes on nowhere. What was written last is this node's own change, or
    /// one behind it, so that nothing of an earlier attempt can still be done.
    async fn settle_move(&self, vm: VmId, run: u64, has_arrived: bool) -> bool {
        let (state, platform) = (&self.parts.state, &self.parts.platform);
        loop {
            match state.get::<VmRecord>(&StateKey::Vm(vm)).await {
                Ok(None) => return false,
                Ok(Some(stored)) => {
                    let record = &stored.record;
                    if record.placement.as_ref().is_some_and(|placement| placement.run == run) {
                        self.parts.view.note_vm(vm, stored);
                        return true;
                    }
                    let still_moves = record.migration.as_ref().is_some_and(|migration| migration.run == run);
                    if !still_moves {
                        self.parts.view.note_vm(vm, stored);
                        return false;
                    }
                    let settled = match has_arrived {
                        true => record.moved(platform.unix_time().0),
                        false => record.staying(),
                    };
                    // What has come of it the next look tells.
                    if state.change_vm(vm, &stored, settled).await.is_ok() {
                        continue;
                    }
                }
                Err(error) => {
                    tracing::warn!("it is not known yet whether a virtual machine has moved: {error}")
                }
            }
            platform.sleep(SETTLE_PAUSE).await;
        }
    }

    /// The volume that is the disk of a virtual machine, if this node has claimed it by this run, and whether it is only to
    /// come here: as the state shows it now.
    pub(crate) async fn disk_of_run(&self, disk: DiskName) -> Result<Option<(VolumeId, bool)>, StateError> {
        let stored: Option<Stored<VmRecord>> = self.parts.state.get(&StateKey::Vm(disk.vm)).await?;
        let Some(Stored { record, .. }) = stored else { return Ok(None) };
        Ok(self.standing_of(&record, disk.run).map(|is_to_come| (record.volume, is_to_come)))
    }

    /// Whether a virtual machine is this node's by a run, as far as this node has seen; none if it is so no more.
    pub(crate) fn run_seen(&self, disk: DiskName) -> Option<bool> {
        let stored = self.vm_seen(disk.vm)?;
        self.standing_of(&stored.record, disk.run).map(|is_to_come| !is_to_come)
    }

    /// Whether a virtual machine is only to come to this node by a run; none if it has nothing to do with that.
    fn standing_of(&self, record: &VmRecord, run: u64) -> Option<bool> {
        let own = self.parts.node();
        let is_here = |placement: &VmPlacement| placement.node == own && placement.run == run;
        let comes_here = |migration: &VmMigration| migration.to == own && migration.run == run;
        if record.placement.as_ref().is_some_and(is_here) {
            return Some(false);
        }
        record.migration.as_ref().is_some_and(comes_here).then_some(true)
    }

    /// Whether a volume is the disk of a virtual machine that some node has claimed, as far as this one has seen.
    pub(crate) fn is_disk_in_use(&self, volume: VolumeId) -> bool {
        let vms = self.parts.view.vms.borrow();
        vms.values().any(|stored| stored.record.volume == volume && stored.record.placement.is_some())
    }

    /// What this node says of virtual machines.
    pub(crate) fn report_vms(&self) -> Vec<VmReport> {
        let keeper = self.vms.borrow();
        let Some(keeper) = keeper.as_ref() else { return Vec::new() };
        let (seen, planner) = (keeper.seen.borrow(), keeper.planner.borrow());
        let vms = self.parts.view.vms.borrow();
        let own = self.parts.node();
        let placed = vms.iter().filter(|(_, stored)| stored.record.is_on(own)).map(|(vm, _)| *vm);
        let all: BTreeSet<VmId> = placed.chain(seen.keys().copied()).chain(planner.failed_vms()).collect();
        let report = |vm: VmId| {
            let instance = seen.get(&vm);
            VmReport {
                vm,
                run: instance.map(|instance| instance.run),
                condition: instance
                    .map_or(VmCondition::Starting, |instance| condition_of(&instance.condition)),
                failure: planner.failure(vm).map(str::to_owned),
            }
        };
        all.into_iter().map(report).collect()
    }

    /// Ends what runs here, and leaves it to others. Guests are asked to shut down first.
    pub(crate) async fn stop_vms(&self) {
        let keeper = self.vms.borrow().clone();
        let Some(keeper) = keeper else { return };
        keeper.stopping.set(true);
        self.drives_changed.notify_all();
        keeper.done.notify_all();
        let idle = pin!(keeper.done.wait_until(|| keeper.busy.borrow().is_empty()));
        before(&self.parts.platform, self.parts.platform.now() + STEPS_TIME_MAX, idle).await;
        if keeper.leaves_running.get() {
            return;
        }
        let running: Vec<VmId> = keeper.hypervisor.instances().await.into_keys().collect();
        let platform = &self.parts.platform;
        let shut_down = async {
            join_all(running.iter().map(|vm| keeper.hypervisor.shut_down(*vm))).await;
            loop {
                let changed = keeper.hypervisor.changed();
                let instances = keeper.hypervisor.instances().await;
                let is_up = |instance: &Instance| {
                    matches!(instance.condition, Condition::Running | Condition::Paused(_))
                };
                if !instances.values().any(is_up) {
                    return;
                }
                changed.await;
            }
        };
        before(platform, platform.now() + SHUT_DOWN_TIME_MAX, pin!(shut_down)).await;
        for error in join_all(running.iter().map(|vm| keeper.hypervisor.end(*vm)))
            .await
            .into_iter()
            .filter_map(Result::err)
        {
            tracing::error!("a virtual machine cannot be ended: {error}");
        }
        let own = self.parts.node();
        let placed: Vec<(VmId, VmGoal)> = {
            let vms = self.parts.view.vms.borrow();
            vms.iter()
                .filter(|(_, stored)| stored.record.is_on(own))
                .map(|(vm, stored)| (*vm, stored.record.goal))
                .collect()
        };
        let release = |(vm, goal): (VmId, VmGoal)| {
            let because = (goal == VmGoal::Running).then_some(PlacementReason::NodeStopped { node: own });
            let goal = if goal == VmGoal::Running { goal } else { VmGoal::Off };
            self.change_vm(vm, move |record| VmRecord { goal, ..record.released(because) })
        };
        before(platform, platform.now() + RELEASE_TIME_MAX, join_all(placed.into_iter().map(release))).await;
    }
}

/// Ends what is here of a virtual machine.
async fn end(keeper: &VmKeeper, vm: VmId) {
    if let Err(error) = keeper.hypervisor.end(vm).await {
        tracing::error!(%vm, "a virtual machine cannot be ended: {error}");
    }
}

/// Logs what this node has written down of a virtual machine.
fn tell_change(former: &VmRecord, now: &VmRecord) {
    let name = &now.name;
    match (&now.placement, &now.migration) {
        (None, _) => tracing::info!(vm = name, "the virtual machine has no node"),
        (Some(placement), None) if former.placement.as_ref() != Some(placement) => {
            tracing::info!(vm = name, run = placement.run, "the virtual machine is claimed");
        }
        (Some(_), None) => tracing::info!(vm = name, "the virtual machine stays where it is"),
        (Some(_), Some(migration)) => {
            tracing::info!(vm = name, run = migration.run, stage = ?migration.stage, "the virtual machine moves");
        }
    }
}

fn spec_of(vm: VmId, record: &VmRecord, run: u64, is_arriving: bool) -> VmSpec {
    VmSpec {
        name: record.name.clone(),
        disk: DiskName { vm, run },
        disk_bus: record.disk_bus,
        processors: record.processors,
        memory_bytes: record.memory_bytes,
        boot: record.boot.clone(),
        is_arriving,
    }
}

fn condition_of(condition: &Condition) -> VmCondition {
    match condition {
        Condition::Arriving => VmCondition::Arriving,
        Condition::Running => VmCondition::Running,
        Condition::Paused(why) => VmCondition::Paused(why.clone()),
        Condition::ShutDown => VmCondition::ShutDown,
        Condition::Failed(why) => VmCondition::Failed(why.clone()),
    }
}
