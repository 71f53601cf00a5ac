//! One run: a world, faults while clients work, and what must hold during and after.
//!
//! Three phases. *Safety* (`safety`): the plan's faults strike, each if the [atlas](crate::faults::atlas) permits
//! it; nothing may be answered that is wrong. *Liveness* (`liveness`): all faults end, but some servers stay away;
//! what can come back without them must, within a bound of virtual time. *Rest* (`rest`): all are back, clients
//! stop, and the copies, the drives and the whole history are judged.

mod apart;
mod beside_stale;
mod forgotten;
mod liveness;
mod older_state;
mod paced_scrub;
mod rebuilt;
mod rest;
mod safety;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use spandrel_cluster::VolumeMembership;
use spandrel_node::NodeReport;
use spandrel_platform::Address;
use spandrel_platform_simulated::{Random, RunEnd};
use spandrel_shared::knob::{self, Knob};
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{DriveId, NodeId, VolumeId};
use spandrel_volume::ScrubReport;

use crate::checkers::growth::Growth;
use crate::checkers::one_owner::OneOwner;
use crate::checkers::{counted_in_sync, last_copy, redundancy, scrubbed};
use crate::clients::{self, ClientVolume, movers};
use crate::faults::DrivePlace;
use crate::faults::atlas::Atlas;
use crate::faults::inject::Injector;
use crate::faults::plan::Plan;
use crate::logbook;
use crate::nodes::{NodesConfig, NodesWorld, PATIENCE, node_id};
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
    pub rare: BTreeMap<Rare, u64>,
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
    /// A line for each server, drive and volume: its name and its identity.
    pub world: String,
    /// What happened last, if the run was asked to keep it.
    pub timeline: String,
}

/// Copies on slow drives rest for less than a run takes.
const SLOW_DRIVE_REST_MS: u64 = 2000;

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
    knob::turn(Knob::ComparedChecksumBits, plan.shape.compared_checksum_bits);
    knob::turn(Knob::FollowAfter, None);
    knob::turn(Knob::SlowDriveRest, Some(SLOW_DRIVE_REST_MS));
    let mut run = Run::new(plan, options);
    logbook::open(&run.nodes.world);
    let result = run.carry_out();
    logbook::close();
    result.map_err(|finding| Box::new(run.failure(finding)))?;
    Ok(run.outcome())
}

/// Adds what was reached since this was done last.
fn count_into(counts: &mut BTreeMap<Rare, u64>) {
    for (rare, count) in Rare::ALL.into_iter().zip(witness::take_reached()) {
        *counts.entry(rare).or_insert(0) += count;
    }
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
    growth: Rc<Growth>,
}

struct Run<'a> {
    plan: &'a Plan,
    nodes: NodesWorld,
    ids: Vec<NodeId>,
    volumes: Vec<RunVolume>,
    injector: Injector,
    atlas: Atlas,
    random: Random,
    /// What power cuts may leave, where that is judged.
    recoveries: Random,
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
    /// Places whose drive has lost or misdirected a write, or the cache drive that they were bound to: if it was one of a root,
    /// the drive is refused; if it was the journal's last group, nothing shows it. So their servers never count as whole again.
    strayed: BTreeSet<DrivePlace>,
    /// Servers with blocks that could not be read. The offline reader sees what is behind them, so they never
    /// count as whole again.
    unreadable: BTreeSet<usize>,
    /// The root that each drive had when bits flipped on it last.
    roots_damaged: BTreeMap<DrivePlace, u64>,
    /// Whether a fault has damaged what a drive holds.
    was_damaged: bool,
    /// Whether copies were made to differ on purpose.
    has_planted_difference: bool,
    faults_done: usize,
    outcome: Outcome,
}

impl<'a> Run<'a> {
    fn new(plan: &'a Plan, options: RunOptions) -> Self {
        let (seed, shape) = (plan.seed, &plan.shape);
        let config = NodesConfig {
            world: shape.world_config(options.timeline_events),
            shards_max: shape.shards_max,
            drives: shape.drives.clone(),
            drive: shape.drive_config(),
            caches: shape.cache.map_or(0, |cache| cache.drives),
            spins: shape.cache.is_some_and(|cache| cache.spins),
            cache: shape.cache_config(),
            leaves_unfit_drives_out: shape.cache.is_some(),
            settings: shape.settings(),
            ..NodesConfig::simple(seed, shape.drives.len())
        };
        let nodes = NodesWorld::with_config(seed, &config);
        let usual_delay = config.world.network.delay;
        let streams = ["faults", "flips"].map(|name| Random::stream(seed, name, 0));
        let injector = Injector::new(&nodes, usual_delay, config.state, streams);
        let drives = drives_by_place(&nodes);
        Self {
            ids: (0..nodes.count()).map(node_id).collect(),
            plan,
            nodes,
            volumes: Vec::new(),
            injector,
            atlas: Atlas::new(shape.keeps_itself()),
            random: Random::stream(seed, "run", 0),
            recoveries: Random::stream(seed, "recoveries", 0),
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
            has_planted_difference: false,
            faults_done: 0,
            outcome: Outcome::default(),
        }
    }

    fn carry_out(&mut self) -> Result<(), Finding> {
        self.label_servers();
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
            let client = Rc::new(ClientVolume::new(
                &name,
                shape,
                self.plan.shape.load,
                self.nodes.world.clone(),
                &random,
            ));
            let growth = Rc::new(Growth::of(shape.size_bytes()));
            self.volumes.push(RunVolume { id: created.volume, client, growth });
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
        for (volume, known) in self.memberships()?.into_iter().zip(&self.volumes) {
            known.growth.check(&volume).map_err(finding("growth"))?;
            last_copy::check(&volume).map_err(finding("last copy"))?;
            counted_in_sync::check(&volume, &reports).map_err(finding("counted in sync"))?;
        }
        if !self.was_damaged {
            self.find_damage_without_cause(&reports)?;
        }
        for scrub in reports.iter().flat_map(|report| &report.owned).filter_map(|owned| owned.scrub.as_ref())
        {
            if !self.has_planted_difference {
                scrubbed::check_without_cause(self.was_damaged, scrub).map_err(finding("paced scrub"))?;
            }
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

    /// As long as no drive has lied, no copy lacks what it has confirmed, and no drive goes on without its cache drive.
    fn find_loss_without_cause(&mut self) -> Result<(), Finding> {
        self.count_reached();
        let losses = [
            (Rare::CopyFoundLacking, "copies lacked what they had confirmed"),
            (
                Rare::CacheOfAnotherTime,
                "times a drive took the area of its cache drive for one of another time",
            ),
            (Rare::CacheLost, "times a drive went on without the cache drive that it was bound to"),
        ];
        // Where pools keep themselves, a cache drive that is away for long is given up, and what it held is made up for.
        let gives_caches_up = self.plan.shape.keeps_itself();
        let is_loss = |rare: Rare| self.reached(rare) > 0 && !(rare == Rare::CacheLost && gives_caches_up);
        match losses.into_iter().find(|(rare, _)| is_loss(*rare)) {
            Some((rare, what)) if !self.was_damaged => {
                Err(finding("loss without cause")(format!("{} {what}", self.reached(rare))))
            }
            _ => Ok(()),
        }
    }

    fn count_reached(&mut self) {
        count_into(&mut self.outcome.rare);
    }

    /// How often something rare was reached, as far as that was counted.
    fn reached(&self, rare: Rare) -> u64 {
        self.outcome.rare.get(&rare).copied().unwrap_or(0)
    }

    fn volume_ids(&self) -> Vec<VolumeId> {
        self.volumes.iter().map(|volume| volume.id).collect()
    }

    /// How many operations of each volume were answered.
    fn answered(&self) -> Vec<usize> {
        self.volumes.iter().map(|volume| volume.client.history.answered()).collect()
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
            let Some(process) = self.nodes.process(node).filter(|_| self.nodes.is_up(node)) else { continue };
            let incarnation = process.incarnation();
            if self.clients_of.borrow_mut().insert(node, incarnation) == Some(incarnation) {
                continue;
            }
            for (volume, volume_number) in self.volumes.iter().zip(0_u64..) {
                for number in 0..u64::from(self.plan.shape.load.clients) {
                    let label = (incarnation << 24) | ((node as u64) << 16) | (volume_number << 8) | number;
                    let random = Random::stream(self.plan.seed, "client", label);
                    // Clients of one volume go by different shards, too: as connections do that come to any of them.
                    let shard = self.nodes.shard(node, (volume_number + number) as usize);
                    let shard = shard.expect("the node is up");
                    clients::start(&volume.client, &shard, &process.platform(), random);
                }
            }
        }
    }

    fn start_movers(&self) {
        let servers: Rc<[Address]> = self.nodes.nbd_addresses().into();
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

    /// The server that owns a volume and serves it.
    fn owner_of(&self, volume: VolumeId) -> Option<usize> {
        let owns = |node: &usize| {
            let report = self.nodes.report(*node);
            report.is_some_and(|report| {
                report.owned.iter().any(|owned| owned.volume == volume && owned.is_serving)
            })
        };
        (0..self.nodes.count()).find(owns)
    }

    /// What a scrub by the volume's owner finds, if there is one and nothing ends it.
    fn scrub(&self, volume: VolumeId) -> Option<ScrubReport> {
        let index = self.owner_of(volume)?;
        let (node, process) = (self.nodes.owner(index, volume)?, self.nodes.process(index)?);
        let scrubbed = process.block_on(async move { node.scrub_volume(volume, true, |_| {}).await });
        scrubbed.ok()?.ok()
    }

    fn reports(&self) -> Vec<NodeReport> {
        (0..self.nodes.count()).filter_map(|node| self.nodes.report(node)).collect()
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

    fn outcome(&self) -> Outcome {
        let mut rare = self.outcome.rare.clone();
        count_into(&mut rare);
        Outcome {
            trace_hash: self.nodes.world.trace_hash(),
            events: self.nodes.world.trace_events(),
            virtual_time: self.nodes.world.now(),
            operations: self.volumes.iter().map(|volume| volume.client.history.count() as u64).sum(),
            changes_repeated: self.volumes.iter().map(|volume| volume.client.history.repeated()).sum(),
            completions: self.one_owner.completions(),
            bits_flipped: self.outcome.bits_flipped + self.injector.bits_flipped(),
            rare,
            ..self.outcome.clone()
        }
    }

    /// Who is who, for the story of a failure.
    fn describe(&self) -> String {
        let nodes = self.ids.iter().enumerate().map(|(node, id)| format!("  n{}: {id}\n", node + 1));
        let drives = self.drives.iter().map(|(place, drive)| format!("  {place}: {drive}\n"));
        let volumes = self.volumes.iter().map(|volume| format!("  {}: {}\n", volume.client.name, volume.id));
        nodes.chain(drives).chain(volumes).collect()
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
        let Some(report) = nodes.report(node) else { continue };
        for (drive, simulated) in nodes.drives(node).iter().enumerate() {
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
