//! One run: a world, faults while clients work, and what must hold during and after.
//!
//! Three phases. *Safety*: the plan's faults strike, each if the [atlas](crate::faults::atlas) permits
//! it; nothing may be answered that is wrong. *Liveness*: all faults end, but some servers stay away;
//! what can come back without them must, within a bound of virtual time. *Rest*: all are back, clients
//! stop, and the copies, the drives and the whole history are judged.

mod beside_stale;
mod older_state;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use spandrel_cluster::VolumeMembership;
use spandrel_cluster::simulated::Faults as StateFaults;
use spandrel_node::NodeReport;
use spandrel_platform::Address;
use spandrel_platform_simulated::{Random, RunEnd};
use spandrel_shared::knob::{self, Knob};
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{DriveId, NodeId, VolumeId};
use spandrel_volume::ScrubReport;

use crate::checkers::one_owner::OneOwner;
use crate::checkers::same_copies::{self, InspectedDrive};
use crate::checkers::{counted_in_sync, damage, last_copy, recovery, redundancy, structure};
use crate::clients::{self, ClientVolume, movers};
use crate::faults::atlas::{Atlas, Surroundings};
use crate::faults::inject::Injector;
use crate::faults::plan::Plan;
use crate::faults::{DrivePlace, Fault};
use crate::inspection::{inspect_drive, inspect_image};
use crate::logbook;
use crate::nodes::{NodesConfig, NodesWorld, PATIENCE, SLAB_BYTES, node_id};
use older_state::OlderState;

/// How often a run looks whether something has come back.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Within this many virtual milliseconds an owner has noticed what a node has lost by a restart.
const NOTICED_MS: u64 = 3000;

/// Of 1000 faults, after how many the drives are remembered as they are, for when old ones come back.
const REMEMBER_PER_MILLE: u32 = 200;

/// Answered operations that show that clients are served.
const PROGRESS: usize = 10;

/// What a run did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// A hash over everything that happened.
    pub trace_hash: u64,
    /// Events that the hash covers.
    pub events: u64,
    /// Virtual time.
    pub virtual_time: Duration,
    /// Operations that clients began.
    pub operations: u64,
    /// How often a client asked for a change again, on another server.
    pub changes_repeated: u64,
    /// Changes that owners answered.
    pub completions: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Faults that the atlas did not permit, or that met nothing to break.
    pub faults_left_out: u64,
    /// Bits that flipped.
    pub bits_flipped: u64,
    /// Node processes that ended without a warning.
    pub node_crashes: u64,
    /// Starts that were refused since the cluster's state was older than the drives knew.
    pub starts_refused: u64,
    /// How often each of [`Rare::ALL`] was reached.
    pub rare: [u64; Rare::ALL.len()],
}

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Which phase or checker.
    pub checker: String,
    /// What is wrong.
    pub what: String,
    /// The virtual time.
    pub at: Duration,
    /// How many of the plan's faults had come by then.
    pub faults_done: usize,
    /// The drives by place, and the volumes.
    pub world: String,
    /// What happened last, if the run was asked to keep it.
    pub timeline: String,
}

/// What a run is to do besides judging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunOptions {
    /// How many of the newest events to keep as text.
    pub timeline_events: usize,
}

/// Carries a plan out.
///
/// # Errors
///
/// What is wrong, and when it was found.
pub fn run(plan: &Plan, options: RunOptions) -> Result<Outcome, Box<Failure>> {
    witness::take_completions();
    witness::take_reached();
    knob::turn(Knob::ExceptionDistance, plan.shape.exception_distance);
    let mut run = Run::new(plan, options);
    logbook::open(&run.nodes.world);
    let result = run.carry_out();
    logbook::close();
    result.map_err(|finding| Box::new(run.failure(finding)))?;
    Ok(run.outcome())
}

struct Finding {
    checker: &'static str,
    what: String,
}

fn finding(checker: &'static str) -> impl Fn(String) -> Finding {
    move |what| Finding { checker, what }
}

struct RunVolume {
    id: VolumeId,
    client: Rc<ClientVolume>,
}

struct Run<'a> {
    plan: &'a Plan,
    nodes: NodesWorld,
    ids: Vec<NodeId>,
    volumes: Vec<RunVolume>,
    injector: Injector,
    atlas: Atlas,
    random: Random,
    one_owner: OneOwner,
    /// Which runs of each node have clients.
    clients_of: RefCell<BTreeMap<usize, u64>>,
    /// Whether the clients that move have begun.
    have_movers: Cell<bool>,
    /// What must not change, while an older state of the cluster stands in the place of the true one.
    older_state: Option<OlderState>,
    /// The drives as they were made, by place.
    drives: BTreeMap<DrivePlace, DriveId>,
    /// Places whose drive is lost for ever.
    lost: BTreeSet<DrivePlace>,
    /// Places whose drive has lost or misdirected a write: if it was one of a root, the drive is refused.
    strayed: BTreeSet<DrivePlace>,
    /// Servers with blocks that could not be read. The offline reader sees what is behind them, so they never
    /// count as whole again.
    unreadable: BTreeSet<usize>,
    /// The root that each drive had when bits flipped on it last.
    roots_damaged: BTreeMap<DrivePlace, u64>,
    /// Whether a fault has damaged what a drive holds.
    was_damaged: bool,
    faults_done: usize,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, options: RunOptions) -> Self {
        let (seed, shape) = (plan.seed, &plan.shape);
        let config = NodesConfig {
            world: shape.world_config(options.timeline_events),
            drives: shape.drives.clone(),
            drive: shape.drive_config(),
            slab_bytes: SLAB_BYTES,
            state: StateFaults::default(),
        };
        let nodes = NodesWorld::with_config(seed, &config);
        let usual_delay = config.world.network.delay;
        let faults = Random::stream(seed, "faults", 0);
        let injector = Injector::new(&nodes, usual_delay, config.state, faults);
        let drives = drives_by_place(&nodes);
        Self {
            ids: (0..nodes.count()).map(node_id).collect(),
            plan,
            nodes,
            volumes: Vec::new(),
            injector,
            atlas: Atlas::default(),
            random: Random::stream(seed, "run", 0),
            one_owner: OneOwner::default(),
            clients_of: RefCell::default(),
            have_movers: Cell::new(false),
            older_state: None,
            drives,
            lost: BTreeSet::new(),
            strayed: BTreeSet::new(),
            unreadable: BTreeSet::new(),
            roots_damaged: BTreeMap::new(),
            was_damaged: false,
            faults_done: 0,
            outcome: Outcome::default(),
        }
    }

    fn carry_out(&mut self) -> Result<(), Finding> {
        self.make_volumes()?;
        self.advance(50)?;
        let plan = self.plan;
        for planned in &plan.faults {
            self.advance(planned.after_ms)?;
            self.strike(&planned.fault)?;
            self.faults_done += 1;
            if self.random.chance(REMEMBER_PER_MILLE) {
                self.injector.remember_drives(&self.nodes);
                self.injector.remember_state(&self.nodes);
            }
        }
        self.advance(self.plan.shape.fault_interval_ms_max)?;
        self.come_back_in_part()?;
        self.come_back()?;
        self.rest()
    }

    fn make_volumes(&mut self) -> Result<(), Finding> {
        for (shape, number) in self.plan.shape.volumes.iter().zip(1_u64..) {
            let name = format!("v{number}");
            let node = self.random.index(self.nodes.count());
            let created = self.nodes.create_volume(node, &name, shape.size_bytes(), shape.copies);
            let created = match created {
                Ok(created) => created,
                // Servers with few drives fill up before the others do.
                Err(error) if error.code == "POOL_FULL" && !self.volumes.is_empty() => continue,
                Err(error) => return Err(finding("creation")(error.to_string())),
            };
            let random = Random::stream(self.plan.seed, "zones", number);
            let client = Rc::new(ClientVolume::new(&name, shape, self.plan.shape.load, &random));
            self.volumes.push(RunVolume { id: created.volume, client });
        }
        Ok(())
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.nodes.world.now().as_millis()).expect("a run is short")
    }

    /// Lets the world run, ends faults whose time has come, and looks at what can be judged at any time.
    fn advance(&mut self, milliseconds: u64) -> Result<(), Finding> {
        let target = self.now_ms() + milliseconds;
        loop {
            let now = self.now_ms();
            let next = self.injector.next_undo().map_or(target, |undo| undo.min(target)).max(now);
            let end = self.nodes.world.run_for(Duration::from_millis(next - now));
            if end != RunEnd::TimeOver {
                return Err(finding("progress")(format!("the world stands still: {end:?}")));
            }
            self.injector.undo_until(&self.nodes, next);
            self.look()?;
            if next == target {
                return Ok(());
            }
        }
    }

    /// What must hold at any time; and clients for nodes that have come up.
    fn look(&mut self) -> Result<(), Finding> {
        if let Some(older) = &self.older_state {
            return self.judge_older_state(older);
        }
        let completions = witness::take_completions();
        self.one_owner.check(&completions).map_err(finding("one owner"))?;
        let reports = self.reports();
        for volume in self.memberships()? {
            last_copy::check(&volume).map_err(finding("last copy"))?;
            counted_in_sync::check(&volume, &reports).map_err(finding("counted in sync"))?;
        }
        if !self.was_damaged {
            self.find_damage_without_cause(&reports)?;
        }
        for volume in &self.volumes {
            if let Some(complaint) = volume.client.complaint.take() {
                return Err(finding("answers")(complaint));
            }
        }
        for node in 0..self.nodes.count() {
            if let Some(refusal) = self.nodes.refusal(node) {
                return Err(finding("start")(format!("n{}: {refusal}", node + 1)));
            }
        }
        self.give_clients();
        Ok(())
    }

    /// As long as no fault has damaged anything, nothing is found damaged.
    fn find_damage_without_cause(&self, reports: &[NodeReport]) -> Result<(), Finding> {
        let mut drives = reports.iter().flat_map(|report| &report.drives);
        let damaged = drives.find(|drive| drive.blocks_damaged + drive.structures_damaged > 0);
        damaged.map_or(Ok(()), |drive| {
            let what = format!(
                "{}: {} blocks and {} structures are damaged, and nothing has damaged them",
                drive.location, drive.blocks_damaged, drive.structures_damaged
            );
            Err(finding("damage without cause")(what))
        })
    }

    /// As long as no drive has lied, no copy lacks what it has confirmed.
    fn find_loss_without_cause(&mut self) -> Result<(), Finding> {
        self.count_reached();
        let lacking = self.outcome.rare[Rare::CopyFoundLacking as usize];
        match lacking > 0 && !self.was_damaged {
            true => {
                Err(finding("loss without cause")(format!("{lacking} copies lacked what they had confirmed")))
            }
            false => Ok(()),
        }
    }

    fn count_reached(&mut self) {
        let reached = witness::take_reached();
        self.outcome.rare.iter_mut().zip(reached).for_each(|(total, count)| *total += count);
    }

    fn memberships(&self) -> Result<Vec<VolumeMembership>, Finding> {
        let read = |volume: &RunVolume| {
            let snapshot = self.nodes.state.inspect(&VolumeMembership::selections(volume.id));
            let membership = VolumeMembership::decode(volume.id, &snapshot);
            let membership = membership.map_err(|error| finding("state")(error.to_string()))?;
            membership.ok_or_else(|| finding("state")(format!("volume {} is gone", volume.client.name)))
        };
        self.volumes.iter().map(read).collect()
    }

    /// Some clients for each node that has come up, and once those that go from node to node.
    fn give_clients(&self) {
        if !self.have_movers.replace(true) {
            self.start_movers();
        }
        for node in 0..self.nodes.count() {
            let (Some(up), Some(process)) = (self.nodes.node(node), self.nodes.process(node)) else {
                continue;
            };
            let incarnation = process.incarnation();
            if self.clients_of.borrow_mut().insert(node, incarnation) == Some(incarnation) {
                continue;
            }
            for (volume, volume_number) in self.volumes.iter().zip(0_u64..) {
                for number in 0..u64::from(self.plan.shape.load.clients) {
                    let label = (incarnation << 24) | ((node as u64) << 16) | (volume_number << 8) | number;
                    let random = Random::stream(self.plan.seed, "client", label);
                    clients::start(&volume.client, &up, &process.platform(), random);
                }
            }
        }
    }

    fn start_movers(&self) {
        let servers: Rc<[Address]> =
            (0..self.nodes.count()).map(|node| self.nodes.nbd_address(node)).collect();
        for (volume, volume_number) in self.volumes.iter().zip(0_u64..) {
            for number in 0..u64::from(self.plan.shape.load.movers) {
                let random = Random::stream(self.plan.seed, "mover", (volume_number << 8) | number);
                let platform = self.nodes.clients().platform();
                movers::start(&volume.client, Rc::clone(&servers), &platform, random);
            }
        }
    }

    fn up(&self) -> Vec<bool> {
        (0..self.nodes.count()).map(|node| self.nodes.is_up(node)).collect()
    }

    /// A fault strikes, if the atlas permits it.
    fn strike(&mut self, fault: &Fault) -> Result<(), Finding> {
        if let Fault::Scrub { volume } = fault {
            self.scrub_away(*volume)?;
            *self.outcome.faults.entry(fault.kind()).or_insert(0) += 1;
            return Ok(());
        }
        let (volumes, up) = (self.memberships()?, self.up());
        self.atlas.forget_lost_drives(&volumes);
        let ids = self.ids.clone();
        let surroundings = Surroundings { now_ms: self.now_ms(), up: &up, ids: &ids, volumes: &volumes };
        let taken = self.places_taken(fault);
        let newest = self.volumes.iter().map(|volume| volume.client.history.newest_value()).max();
        let crashes = self.nodes.crashes();
        let permitted =
            self.atlas.permits(fault, &surroundings) && !taken.iter().any(|place| self.lost.contains(place));
        let now_ms = surroundings.now_ms;
        let struck = match *fault {
            _ if !permitted => None,
            Fault::OlderState { in_order, away_ms, for_ms } => {
                self.bring_older_state(in_order, away_ms, for_ms)?
            }
            _ => self.injector.inject(&self.nodes, fault, newest.unwrap_or(0), now_ms).then(|| fault.kind()),
        };
        let Some(kind) = struck else {
            self.outcome.faults_left_out += 1;
            return Ok(());
        };
        let drives_lost: Vec<DriveId> = taken.iter().map(|place| self.drives[place]).collect();
        self.atlas.note(fault, &drives_lost, &surroundings);
        match fault {
            Fault::LoseDrives { .. } => self.lost.extend(taken),
            Fault::StrayWrite { place, .. } => _ = self.strayed.insert(*place),
            Fault::Rot { place, .. } => _ = self.roots_damaged.insert(*place, self.root_generation(*place)),
            Fault::Unreadable { place, .. } => _ = self.unreadable.insert(place.node),
            _ => {}
        }
        self.was_damaged |= fault.is_damage();
        if self.nodes.crashes() > crashes {
            self.judge_recoveries()?;
        }
        self.outcome.node_crashes += self.nodes.crashes() - crashes;
        *self.outcome.faults.entry(kind).or_insert(0) += 1;
        self.look()
    }

    /// What servers that are down will make of their drives when they come back.
    fn judge_recoveries(&mut self) -> Result<(), Finding> {
        self.count_reached();
        for node in (0..self.nodes.count()).filter(|node| !self.nodes.is_started(*node)) {
            for drive in self.nodes.drives(node) {
                let checked =
                    recovery::check(drive.name(), self.plan.shape.drive_config(), &drive.snapshot());
                checked.map_err(finding("recovery"))?;
            }
        }
        // Only what the servers of this world reach counts.
        witness::take_reached();
        Ok(())
    }

    /// The generation of a drive's root; as high as can be if that cannot be read.
    fn root_generation(&self, place: DrivePlace) -> u64 {
        let inspection = inspect_drive(&self.nodes.drives(place.node)[place.drive]);
        inspection.ok().and_then(|inspection| inspection.root).map_or(u64::MAX, |root| root.generation)
    }

    /// The drives that a fault takes away.
    fn places_taken(&self, fault: &Fault) -> Vec<DrivePlace> {
        match *fault {
            Fault::OldImage { place, .. } => vec![place],
            Fault::LoseDrives { node, .. } => {
                self.drives.keys().filter(|place| place.node == node).copied().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Scrubs a volume. If all volumes are healthy and no damage is left on a server's drives, it counts
    /// as whole again.
    fn scrub_away(&mut self, volume: usize) -> Result<(), Finding> {
        let Some(RunVolume { id, .. }) = self.volumes.get(volume) else { return Ok(()) };
        let report = self.scrub(*id);
        judge_difference(report.as_ref())?;
        if self.lacking(&self.present())?.is_some() {
            return Ok(());
        }
        for node in self.atlas.damaged().keys().copied().collect::<Vec<_>>() {
            let mut places = self.drives.keys().filter(|place| place.node == node);
            let is_certain = !self.unreadable.contains(&node) && !self.atlas.is_exposed(node, self.now_ms());
            if is_certain && places.all(|place| self.is_whole(*place)) {
                self.atlas.content_is_whole(node);
            }
        }
        Ok(())
    }

    /// Whether nothing of a drive's damage is left. A journal whose last group is gone looks as if there had
    /// been none; so it counts as whole only when a newer root has made it unimportant.
    fn is_whole(&self, place: DrivePlace) -> bool {
        let drive = &self.nodes.drives(place.node)[place.drive];
        let Ok(inspection) = inspect_drive(drive) else { return false };
        let generation = inspection.root.map_or(0, |root| root.generation);
        !drive.endangers_content()
            && inspection.damage.is_empty()
            && self.roots_damaged.get(&place).is_none_or(|damaged| generation > *damaged)
    }

    /// What a scrub by the volume's owner finds, if there is one and nothing ends it.
    fn scrub(&self, volume: VolumeId) -> Option<ScrubReport> {
        let owns = |node: &usize| {
            let report = self.nodes.node(*node).map(|node| node.report());
            report.is_some_and(|report| {
                report.owned.iter().any(|owned| owned.volume == volume && owned.is_serving)
            })
        };
        let index = (0..self.nodes.count()).find(owns)?;
        let (node, process) = (self.nodes.node(index)?, self.nodes.process(index)?);
        let scrubbed = process.block_on(async move { node.scrub_volume(volume, true, |_| {}).await });
        scrubbed.ok()?.ok()
    }

    fn reports(&self) -> Vec<NodeReport> {
        (0..self.nodes.count()).filter_map(|node| Some(self.nodes.node(node)?.report())).collect()
    }

    /// The drives that nodes which are up can use.
    fn present(&self) -> BTreeSet<DriveId> {
        redundancy::usable_drives(&self.reports())
    }

    /// What any volume lacks of the redundancy that the drives in `present` allow.
    fn lacking(&self, present: &BTreeSet<DriveId>) -> Result<Option<String>, Finding> {
        let reports = self.reports();
        let volumes = self.memberships()?;
        Ok(volumes.iter().find_map(|volume| redundancy::check(volume, &reports, present).err()))
    }

    /// Lets time pass until `lacks` finds nothing any more.
    fn await_nothing_lacking(
        &mut self,
        mut lacks: impl FnMut(&Self) -> Result<Option<String>, Finding>,
    ) -> Result<(), Finding> {
        let deadline = self.nodes.world.now() + PATIENCE;
        loop {
            let Some(lacking) = lacks(self)? else { return Ok(()) };
            if self.nodes.world.now() >= deadline {
                let what = format!("not within {} s of virtual time: {lacking}", PATIENCE.as_secs());
                return Err(finding("redundancy")(what));
            }
            self.advance(LOOK_EVERY.as_millis() as u64)?;
        }
    }

    /// All faults end, but some servers stay away. What has an in-sync copy of every slab on the others
    /// comes back.
    fn come_back_in_part(&mut self) -> Result<(), Finding> {
        self.injector.undo_all(&self.nodes);
        let mut away = BTreeSet::new();
        for _ in 0..self.plan.shape.left_broken {
            let node = self.random.index(self.nodes.count());
            let fault = Fault::Stop { node, power_cut: self.random.chance(500), away_ms: 0 };
            let (volumes, up) = (self.memberships()?, self.up());
            let surroundings =
                Surroundings { now_ms: self.now_ms(), up: &up, ids: &self.ids, volumes: &volumes };
            if self.atlas.permits(&fault, &surroundings) && away.insert(node) {
                self.atlas.note(&fault, &[], &surroundings);
                self.nodes.stop(node, self.random.chance(500));
            }
        }
        self.restart_broken(&away)?;
        let present = self.present();
        self.await_nothing_lacking(|run| {
            let reports = run.reports();
            let volumes = run.memberships()?;
            let must = volumes.iter().filter(|volume| redundancy::must_come_back(volume, &present));
            Ok(must.filter_map(|volume| redundancy::check(volume, &reports, &present).err()).next())
        })
    }

    /// Nodes whose drives have failed are restarted, as an operator does; then all but those that are
    /// away are up.
    fn restart_broken(&mut self, away: &BTreeSet<usize>) -> Result<(), Finding> {
        for node in (0..self.nodes.count()).filter(|node| !away.contains(node)) {
            let is_broken =
                |node: spandrel_node::NodeReport| node.drives.iter().any(|drive| drive.failure.is_some());
            if self.nodes.node(node).is_some_and(|up| is_broken(up.report())) {
                self.nodes.stop(node, false);
            }
            if !self.nodes.is_started(node) {
                self.nodes.start(node);
            }
        }
        let away = away.clone();
        self.await_nothing_lacking(move |run| {
            let down = (0..run.nodes.count()).find(|node| !away.contains(node) && !run.nodes.is_up(*node));
            Ok(down.map(|node| format!("n{} is not up", node + 1)))
        })
    }

    /// All servers come back, with all drives that are not lost for ever; clients are served again.
    fn come_back(&mut self) -> Result<(), Finding> {
        self.restart_broken(&BTreeSet::new())?;
        self.judge_places()?;
        let present = self.present();
        self.await_nothing_lacking(|run| run.lacking(&present))?;
        // Before clients overwrite what differs.
        for volume in self.volume_ids() {
            judge_difference(self.scrub(volume).as_ref())?;
        }
        let answered = self.answered();
        self.await_nothing_lacking(|run| {
            let idle = run.volumes.iter().zip(&answered);
            let idle = idle.filter(|(volume, before)| volume.client.history.answered() < **before + PROGRESS);
            Ok(idle.map(|(volume, _)| format!("clients of {} get no answers", volume.client.name)).next())
        })
    }

    /// Every drive that is not lost for ever is used, as the drive that it was.
    fn judge_places(&mut self) -> Result<(), Finding> {
        let found = drives_by_place(&self.nodes);
        for (place, drive) in &self.drives {
            if !self.lost.contains(place) && found.get(place) != Some(drive) {
                if self.strayed.contains(place) {
                    self.lost.insert(*place);
                    continue;
                }
                return Err(finding("drives")(format!("{place} is not used: {:?}", self.failure_of(*place))));
            }
        }
        Ok(())
    }

    fn failure_of(&self, place: DrivePlace) -> Option<String> {
        let report = self.nodes.node(place.node)?.report();
        report.drives.get(place.drive)?.failure.clone()
    }

    fn answered(&self) -> Vec<usize> {
        self.volumes.iter().map(|volume| volume.client.history.answered()).collect()
    }

    /// Nothing happens any more: everything is judged.
    fn rest(&mut self) -> Result<(), Finding> {
        self.volumes.iter().for_each(|volume| volume.client.stop());
        self.advance(500)?;
        self.find_loss_without_cause()?;
        // What is damaged on a drive but whole in its node's memory shows at the next attach.
        for node in self.atlas.damaged().keys().copied().collect::<Vec<_>>() {
            self.nodes.stop(node, false);
        }
        self.await_all_servers()?;
        let present = self.present();
        for volume in self.volume_ids() {
            // The first scrub heals what is left of the faults.
            for is_healed in [false, true] {
                self.judge_scrub(volume, is_healed)?;
            }
        }
        self.find_new_damage(&present)?;
        self.find_damage_beside_stale()?;
        self.find_damage_after_power_cut(&present)?;
        self.read_all_back()?;
        self.judge_drives()?;
        for volume in &self.volumes {
            let judged = volume.client.history.check();
            judged.map_err(|what| finding("register")(format!("volume {}, {what}", volume.client.name)))?;
        }
        self.look()
    }

    /// All servers are up with the drives that they have, and it was noticed what those lack.
    fn await_all_servers(&mut self) -> Result<(), Finding> {
        self.restart_broken(&BTreeSet::new())?;
        self.judge_places()?;
        self.advance(NOTICED_MS)?;
        let present = self.present();
        self.await_nothing_lacking(|run| run.lacking(&present))
    }

    fn volume_ids(&self) -> Vec<VolumeId> {
        self.volumes.iter().map(|volume| volume.id).collect()
    }

    fn judge_scrub(&mut self, volume: VolumeId, is_healed: bool) -> Result<(), Finding> {
        let report = self.scrub(volume).ok_or_else(|| finding("scrub")("nobody scrubs".to_owned()))?;
        let fails = report.gave_up
            || report.blocks_different > 0
            || (self.lost.is_empty() && report.pieces_unchecked > 0)
            || (is_healed && !report.damaged.is_empty());
        match fails {
            true => {
                Err(finding("scrub")(format!("{report:?}{}", if is_healed { " after healing" } else { "" })))
            }
            false => Ok(()),
        }
    }

    /// Bits flip once more, while all is idle and healthy: exactly they are found.
    fn find_new_damage(&mut self, present: &BTreeSet<DriveId>) -> Result<(), Finding> {
        let Some((volume, drive, place)) = self.copy_to_damage(present)? else { return Ok(()) };
        let simulated = &self.nodes.drives(place.node)[place.drive];
        let inspection = inspect_drive(simulated).map_err(finding("inspection"))?;
        let flipped = damage::flip_live_blocks(simulated, &inspection, volume, 8, &self.random);
        if flipped == 0 {
            return Ok(());
        }
        let report = self.scrub_damaged(volume, flipped)?;
        damage::check(&BTreeMap::from([(drive, flipped)]), &report).map_err(finding("damage"))
    }

    /// Bits flip in what a drive has written last, and its server loses its power: a recovery keeps these
    /// blocks as damaged, and never puts what was there before in their place. A take-over may heal some of
    /// them before they are looked for.
    fn find_damage_after_power_cut(&mut self, present: &BTreeSet<DriveId>) -> Result<(), Finding> {
        let Some((volume, drive, place)) = self.copy_to_damage(present)? else { return Ok(()) };
        let simulated = &self.nodes.drives(place.node)[place.drive];
        let inspection = inspect_drive(simulated).map_err(finding("inspection"))?;
        let flipped = damage::flip_newest_blocks(simulated, &inspection, volume, &self.random);
        if flipped == 0 {
            return Ok(());
        }
        self.nodes.stop(place.node, true);
        self.restart_broken(&BTreeSet::new())?;
        self.advance(NOTICED_MS)?;
        self.await_nothing_lacking(|run| run.lacking(present))?;
        let report = self.scrub_damaged(volume, flipped)?;
        damage::check_rest(&BTreeMap::from([(drive, flipped)]), &report).map_err(finding("damage"))
    }

    fn scrub_damaged(&mut self, volume: VolumeId, flipped: u64) -> Result<ScrubReport, Finding> {
        self.outcome.bits_flipped += flipped;
        self.was_damaged = true;
        self.scrub(volume).ok_or_else(|| finding("scrub")("nobody scrubs".to_owned()))
    }

    /// An in-sync copy of a volume that is not the last one of any slab.
    fn copy_to_damage(
        &self,
        present: &BTreeSet<DriveId>,
    ) -> Result<Option<(VolumeId, DriveId, DrivePlace)>, Finding> {
        let volumes = self.memberships()?;
        let volume = &volumes[self.random.index(volumes.len())];
        let in_sync = volume
            .drives()
            .into_iter()
            .filter(|drive| present.contains(drive) && !volume.marks.contains_key(drive));
        let in_sync: Vec<DriveId> = in_sync.collect();
        let drive = in_sync[self.random.index(in_sync.len())];
        let has_others = volume.sets.iter().all(|set| {
            set.members.iter().any(|member| member.drive != drive && in_sync.contains(&member.drive))
        });
        let place = self.drives.iter().find(|(_, id)| **id == drive).map(|(place, _)| *place);
        Ok(place.filter(|_| has_others).map(|place| (volume.volume, drive, place)))
    }

    fn read_all_back(&mut self) -> Result<(), Finding> {
        for volume in &self.volumes {
            let index = self.random.index(self.nodes.count());
            let (Some(node), Some(process)) = (self.nodes.node(index), self.nodes.process(index)) else {
                return Err(finding("read back")(format!("n{} is not up", index + 1)));
            };
            let reading = clients::read_back(Rc::clone(&volume.client), node, process.platform());
            let read = process.block_on(reading);
            read.map_err(|end| {
                finding("read back")(format!("{} cannot be read: {end:?}", volume.client.name))
            })?;
        }
        self.look()
    }

    /// The drives, read by a reader that shares no code with the store.
    fn judge_drives(&mut self) -> Result<(), Finding> {
        let mut inspected = BTreeMap::new();
        for (place, drive) in &self.drives {
            if self.lost.contains(place) {
                continue;
            }
            let simulated = &self.nodes.drives(place.node)[place.drive];
            let image = simulated.snapshot();
            let inspection = inspect_image(simulated.name(), &image).map_err(finding("inspection"))?;
            if !self.atlas.damaged().contains_key(&place.node) {
                structure::check(&inspection).map_err(finding("structure"))?;
            } else if inspection.is_damaged() {
                continue;
            }
            inspected.insert(*drive, InspectedDrive { image, inspection });
        }
        for volume in self.memberships()? {
            same_copies::check(&volume, &inspected).map_err(finding("same copies"))?;
        }
        Ok(())
    }

    fn outcome(&self) -> Outcome {
        let reached = witness::take_reached();
        Outcome {
            trace_hash: self.nodes.world.trace_hash(),
            events: self.nodes.world.trace_events(),
            virtual_time: self.nodes.world.now(),
            operations: self.volumes.iter().map(|volume| volume.client.history.count() as u64).sum(),
            changes_repeated: self.volumes.iter().map(|volume| volume.client.history.repeated()).sum(),
            completions: self.one_owner.completions(),
            bits_flipped: self.outcome.bits_flipped + self.injector.bits_flipped(),
            rare: std::array::from_fn(|index| self.outcome.rare[index] + reached[index]),
            ..self.outcome.clone()
        }
    }

    /// Who is who, for the story of a failure.
    fn describe(&self) -> String {
        let drives = self.drives.iter().map(|(place, drive)| format!("  {place}: {drive}\n"));
        let volumes = self.volumes.iter().map(|volume| format!("  {}: {}\n", volume.client.name, volume.id));
        drives.chain(volumes).collect()
    }

    fn failure(&self, finding: Finding) -> Failure {
        Failure {
            checker: finding.checker.to_owned(),
            what: finding.what,
            at: self.nodes.world.now(),
            faults_done: self.faults_done,
            world: self.describe(),
            timeline: self.nodes.world.timeline(),
        }
    }
}

/// Copies that are in sync are the same at any time, where no write is under way.
fn judge_difference(report: Option<&ScrubReport>) -> Result<(), Finding> {
    match report.filter(|report| report.blocks_different > 0) {
        Some(report) => Err(finding("scrub")(format!("in-sync copies differ: {report:?}"))),
        None => Ok(()),
    }
}

/// The drives that nodes which are up can use, by place.
fn drives_by_place(nodes: &NodesWorld) -> BTreeMap<DrivePlace, DriveId> {
    let mut drives = BTreeMap::new();
    for node in 0..nodes.count() {
        let Some(up) = nodes.node(node) else { continue };
        for (drive, simulated) in nodes.drives(node).iter().enumerate() {
            let report = up.report();
            let own = report.drives.iter().find(|report| report.location == simulated.name());
            if let Some(id) = own.filter(|own| own.failure.is_none()).and_then(|own| own.drive) {
                drives.insert(DrivePlace { node, drive }, id);
            }
        }
    }
    drives
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
