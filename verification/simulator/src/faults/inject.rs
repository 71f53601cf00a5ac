//! How each fault is done to a world, and undone when its time is over.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

use spandrel_cluster::memory::Image as StateImage;
use spandrel_cluster::records::decode;
use spandrel_cluster::simulated::Faults as StateFaults;
use spandrel_cluster::store::Selection;
use spandrel_cluster::{DriveRecord, DriveState, StateKey, StateStamp, Stored};
use spandrel_inspect::{DamageKind, Inspection};
use spandrel_platform_simulated::{
    DelayRange, DriveImage, Random, Repeat, Room, SimulatedDrive, SimulatedDriveConfig,
};
use spandrel_shared::{BLOCK_BYTES, DriveId};

use super::{DriveFailure, DrivePlace, Fault};
use crate::checkers::recovery::{self, Configs};
use crate::inspection::{Images, Media, cache_id, inspect, inspect_alone};
use crate::nodes::NodesWorld;

/// Images of each drive, and of the cluster's state, that are kept.
const IMAGES_MAX: usize = 4;

/// The network that paths are cut on: the first one goes on.
const SECOND_NETWORK: u8 = 1;

/// Values that were written last count as new.
const NEWEST_VALUES: u64 = 40;

/// What ends a fault.
#[derive(Clone, Debug)]
pub enum Undo {
    /// A node is started, unless it runs.
    Start(usize),
    /// A node's process is killed and started anew: what an operator does after a drive was replaced.
    Restart(usize),
    /// Messages pass again from one server to another.
    Heal(usize, usize),
    /// Messages pass again from one server to another on the second network.
    HealPath(usize, usize),
    /// No end, but the next time: the connections between two servers break.
    BreakAgain(usize, usize),
    /// Messages pass again between a server and the machine of the clients.
    HealClients(usize),
    /// Messages from one server to another take as long as usual.
    UsualDelay(usize, usize),
    /// The cluster's state answers again.
    StateBack,
    /// A node reaches the cluster's state again.
    StateReachable(usize),
    /// Nothing is lost on the way to the state any more.
    StateLossless,
    /// A drive works as it should.
    DriveWorks(DrivePlace),
    /// A drive holds again what it held.
    TrueImage {
        /// The drive.
        place: DrivePlace,
        /// What it held.
        truth: Box<DriveImage>,
        /// The old image in its place may be attached, and then is the drive from then on.
        may_stay: bool,
    },
    /// A drive that was retired is used again.
    Reinstate(DriveId),
    /// A cache drive that is lost is taken out of the cluster.
    ForgetCache(DriveId),
    /// A cache drive is exchanged for a blank one if its node has let go of it.
    TakeReleased(DrivePlace),
    /// A blank drive takes the place of a cache drive, and its node is restarted.
    BlankCache(DrivePlace),
}

/// Faults are done here, and what undoes them is kept until its time has come.
pub struct Injector {
    random: Random,
    /// Where bits flip in what stands in several places.
    flips: Random,
    usual_delay: DelayRange,
    usual_state: StateFaults,
    /// By virtual milliseconds, then by number.
    undos: BTreeMap<(u64, u64), Undo>,
    planned: u64,
    /// Images of the drives from earlier, the oldest first.
    images: BTreeMap<DrivePlace, VecDeque<DriveImage>>,
    /// The cluster's state from earlier, the oldest first.
    states: VecDeque<StateImage>,
    /// Until when requests to the cluster's state may arrive that were held up.
    late_until_ms: u64,
    /// Bits that were flipped.
    bits_flipped: u64,
}

impl Injector {
    /// An injector for a world, whose drives are remembered as they are now.
    pub fn new(
        nodes: &NodesWorld,
        usual_delay: DelayRange,
        usual_state: StateFaults,
        [random, flips]: [Random; 2],
    ) -> Self {
        let mut injector = Self {
            random,
            flips,
            usual_delay,
            usual_state,
            undos: BTreeMap::new(),
            planned: 0,
            images: BTreeMap::new(),
            states: VecDeque::new(),
            late_until_ms: 0,
            bits_flipped: 0,
        };
        injector.remember_drives(nodes);
        injector
    }

    /// The drives as they are now may come back later.
    pub fn remember_drives(&mut self, nodes: &NodesWorld) {
        for node in 0..nodes.count() {
            for (drive, simulated) in nodes.all_drives(node).enumerate() {
                let images = self.images.entry(DrivePlace { node, drive }).or_default();
                images.push_back(simulated.snapshot());
                if images.len() > IMAGES_MAX {
                    images.pop_front();
                }
            }
        }
    }

    /// The cluster's state as it is now may come back later.
    pub fn remember_state(&mut self, nodes: &NodesWorld) {
        self.states.push_back(nodes.state.backup());
        if self.states.len() > IMAGES_MAX {
            self.states.pop_front();
        }
    }

    /// Whether there is a state from earlier.
    pub fn remembers_state(&self) -> bool {
        !self.states.is_empty()
    }

    /// A state from earlier that every server refuses, if there is one: on each of them, a drive that works
    /// has durably recorded a newer one. None while requests to the state are held up, which could arrive when
    /// another one stands, or while a drive is about to be exchanged.
    pub fn older_state(&self, nodes: &NodesWorld, now_ms: u64) -> Option<StateImage> {
        let is_in_the_way = |undo: &Undo| {
            let exchanges =
                matches!(undo, Undo::TrueImage { .. } | Undo::TakeReleased(_) | Undo::BlankCache(_));
            exchanges || matches!(undo, Undo::StateLossless | Undo::Reinstate(_) | Undo::ForgetCache(_))
        };
        if now_ms < self.late_until_ms || nodes.is_deciding() || self.undos.values().any(is_in_the_way) {
            return None;
        }
        let known = (0..nodes.count()).map(|node| self.state_known(nodes, node)).min()??;
        let is_older = |state: &&StateImage| {
            let changed = state.entries.iter().find(|entry| entry.key == StateKey::Changed.key());
            changed.is_some_and(|entry| StateStamp::new(0, entry.modified) < known)
        };
        let older: Vec<&StateImage> = self.states.iter().filter(is_older).collect();
        older.get(self.random.index(older.len())).map(|state| (*state).clone())
    }

    /// The newest state that a server's drives remember whatever a power cut takes from them.
    pub fn state_known(&self, nodes: &NodesWorld, node: usize) -> Option<StateStamp> {
        let works = |place: DrivePlace| {
            !self.undos.values().any(|undo| matches!(undo, Undo::DriveWorks(other) if *other == place))
        };
        let known = |(drive, simulated): (usize, &SimulatedDrive)| {
            let durable = simulated.crash_image(&mut |_, _| false);
            let inspection = inspect_alone(simulated.name(), &durable).ok()?;
            works(DrivePlace { node, drive }).then_some(StateStamp(inspection.root?.state_revision))
        };
        nodes.drives(node).iter().enumerate().filter_map(known).max()
    }

    /// All servers come back one by one until a time.
    pub fn start_all(&mut self, nodes: &NodesWorld, now_ms: u64, until_ms: u64) {
        for node in 0..nodes.count() {
            let back = self.random.between(now_ms, until_ms);
            self.later(back, Undo::Start(node));
        }
    }

    /// A drive is retired until a time.
    pub fn retire(&mut self, nodes: &NodesWorld, drive: DriveId, until_ms: u64) {
        nodes.decide_drive(drive, DriveState::Retired);
        self.later(until_ms, Undo::Reinstate(drive));
    }

    /// Bits that were flipped so far.
    pub fn bits_flipped(&self) -> u64 {
        self.bits_flipped
    }

    /// When the next fault ends, in virtual milliseconds.
    pub fn next_undo(&self) -> Option<u64> {
        self.undos.keys().next().map(|(at_ms, _)| *at_ms)
    }

    /// Ends the faults whose time is over.
    pub fn undo_until(&mut self, nodes: &NodesWorld, now_ms: u64) {
        while let Some(entry) = self.undos.first_entry().filter(|entry| entry.key().0 <= now_ms) {
            let undo = entry.remove();
            if matches!(undo, Undo::StateLossless) {
                let late_ms = self.usual_state.late_max.as_millis() as u64;
                self.late_until_ms = now_ms.saturating_add(late_ms);
            }
            self.undo(nodes, undo);
        }
    }

    /// Ends all faults now.
    pub fn undo_all(&mut self, nodes: &NodesWorld) {
        self.undo_until(nodes, u64::MAX);
        nodes.world.heal_all();
        nodes.state.set_outage(false);
        nodes.state.set_faults(StateFaults::default());
        for node in 0..nodes.count() {
            nodes.state.set_cut_off(node as u64, false);
            nodes.all_drives(node).for_each(SimulatedDrive::clear_faults);
            match nodes.process(node) {
                Some(process) => process.resume(),
                None => nodes.start(node),
            }
        }
    }

    fn later(&mut self, at_ms: u64, undo: Undo) {
        self.planned += 1;
        self.undos.insert((at_ms, self.planned), undo);
    }

    /// Does a fault. False if there is nothing to break: a node that is down already, for example.
    pub fn inject(&mut self, nodes: &NodesWorld, fault: &Fault, newest_value: u64, now_ms: u64) -> bool {
        match *fault {
            Fault::Stop { node, power_cut, away_ms } => {
                if !nodes.is_started(node) {
                    return false;
                }
                nodes.stop(node, power_cut);
                self.later(now_ms + away_ms, Undo::Start(node));
            }
            Fault::PowerCutAll { away_ms } => {
                nodes.cut_power_of_all();
                self.start_all(nodes, now_ms, now_ms + away_ms);
            }
            Fault::Pause { node, for_ms } => match nodes.process(node) {
                Some(process) => process.pause(Duration::from_millis(for_ms)),
                None => return false,
            },
            Fault::Cut { .. }
            | Fault::CutPath { .. }
            | Fault::Isolate { .. }
            | Fault::ClientsCut { .. }
            | Fault::ClientsDropped { .. }
            | Fault::Orphan { .. }
            | Fault::BreakConnections { .. }
            | Fault::SlowLink { .. } => return self.disturb_network(nodes, fault, now_ms),
            Fault::StateOutage { .. } | Fault::StateCutOff { .. } | Fault::StateLosses { .. } => {
                self.disturb_state(nodes, fault, now_ms);
            }
            Fault::TimeOfDay { node, jump_ms } => nodes.host(node).jump_unix_time(jump_ms),
            Fault::ClockDrift { node, ppm } => nodes.host(node).set_clock_drift(ppm),
            Fault::OldImage { place, for_ms, power_cut_all } => {
                return self.bring_old_image(nodes, place, power_cut_all, now_ms..=now_ms + for_ms);
            }
            Fault::LoseDrives { node, away_ms } => {
                nodes.stop(node, true);
                for drive in nodes.all_drives(node) {
                    drive.restore(DriveImage::new(drive.geometry().size_bytes));
                }
                self.later(now_ms + away_ms, Undo::Start(node));
            }
            Fault::LoseCache { place, power_cut, for_ms } => {
                return self.lose_cache(nodes, place, power_cut, now_ms, for_ms);
            }
            Fault::ReleaseCache { place, for_ms } => {
                return self.release_cache(nodes, place, now_ms + for_ms);
            }
            Fault::RetireCache { place, for_ms } => {
                return self.retire_cache(nodes, place, now_ms + for_ms);
            }
            // They take longer than a moment: the run itself does them.
            Fault::Scrub { .. }
            | Fault::HandOver { .. }
            | Fault::SetVolume { .. }
            | Fault::Grow { .. }
            | Fault::Label { .. }
            | Fault::CacheMode { .. }
            | Fault::MapMemory { .. }
            | Fault::OlderState { .. }
            | Fault::Retire { .. } => {}
            _ => return self.disturb_drive(nodes, fault, newest_value, now_ms),
        }
        true
    }

    fn disturb_network(&mut self, nodes: &NodesWorld, fault: &Fault, now_ms: u64) -> bool {
        match *fault {
            Fault::Cut { from, to, both_ways, for_ms } => {
                self.cut(nodes, from, to, now_ms + for_ms);
                if both_ways {
                    self.cut(nodes, to, from, now_ms + for_ms);
                }
            }
            Fault::CutPath { from, to, both_ways, for_ms } => {
                self.cut_path(nodes, from, to, now_ms + for_ms);
                if both_ways {
                    self.cut_path(nodes, to, from, now_ms + for_ms);
                }
            }
            Fault::Isolate { node, inbound, outbound, for_ms } => {
                for other in (0..nodes.count()).filter(|other| *other != node) {
                    if inbound {
                        self.cut(nodes, other, node, now_ms + for_ms);
                    }
                    if outbound {
                        self.cut(nodes, node, other, now_ms + for_ms);
                    }
                }
                self.cut_clients(nodes, node, [inbound, outbound], now_ms + for_ms);
            }
            Fault::ClientsCut { node, inbound, outbound, for_ms } => {
                self.cut_clients(nodes, node, [inbound, outbound], now_ms + for_ms);
            }
            Fault::ClientsDropped { node } => {
                return nodes.world.break_connections(&nodes.clients().host(), nodes.host(node)) > 0;
            }
            Fault::Orphan { node, other, for_ms } => {
                nodes.state.set_cut_off(node as u64, true);
                self.later(now_ms + for_ms, Undo::StateReachable(node));
                let others = (0..nodes.count()).filter(|index| *index != node);
                for index in others.filter(|index| other.is_none_or(|other| other == *index)) {
                    self.cut(nodes, node, index, now_ms + for_ms);
                    self.cut(nodes, index, node, now_ms + for_ms);
                }
            }
            Fault::BreakConnections { one, other, again, every_ms } => {
                for time in 1..=u64::from(again) {
                    self.later(now_ms + time * every_ms, Undo::BreakAgain(one, other));
                }
                return nodes.world.break_connections(nodes.host(one), nodes.host(other)) > 0;
            }
            Fault::SlowLink { from, to, delay_ms, for_ms } => {
                let delay = DelayRange::microseconds(delay_ms * 500, delay_ms * 1000);
                nodes.world.set_link_delay(nodes.host(from), nodes.host(to), delay);
                self.later(now_ms + for_ms, Undo::UsualDelay(from, to));
            }
            ref other => unreachable!("{other:?} is done elsewhere"),
        }
        true
    }

    fn cut_path(&mut self, nodes: &NodesWorld, from: usize, to: usize, until_ms: u64) {
        nodes.world.cut_network(SECOND_NETWORK, nodes.host(from), nodes.host(to));
        self.later(until_ms, Undo::HealPath(from, to));
    }

    fn cut(&mut self, nodes: &NodesWorld, from: usize, to: usize, until_ms: u64) {
        nodes.world.cut_one_way(nodes.host(from), nodes.host(to));
        self.later(until_ms, Undo::Heal(from, to));
    }

    /// Nothing passes to a server from the machine of the clients, or back.
    fn cut_clients(
        &mut self,
        nodes: &NodesWorld,
        node: usize,
        [inbound, outbound]: [bool; 2],
        until_ms: u64,
    ) {
        let (clients, server) = (nodes.clients().host(), nodes.host(node));
        if inbound {
            nodes.world.cut_one_way(&clients, server);
        }
        if outbound {
            nodes.world.cut_one_way(server, &clients);
        }
        self.later(until_ms, Undo::HealClients(node));
    }

    fn disturb_state(&mut self, nodes: &NodesWorld, fault: &Fault, now_ms: u64) {
        match *fault {
            Fault::StateOutage { for_ms } => {
                nodes.state.set_outage(true);
                self.later(now_ms + for_ms, Undo::StateBack);
            }
            Fault::StateCutOff { node, for_ms } => {
                nodes.state.set_cut_off(node as u64, true);
                self.later(now_ms + for_ms, Undo::StateReachable(node));
            }
            Fault::StateLosses { requests, answers, late, for_ms } => {
                nodes.state.set_faults(StateFaults {
                    request_lost_per_mille: requests,
                    answer_lost_per_mille: answers,
                    request_late_per_mille: late,
                    ..self.usual_state
                });
                self.later(now_ms + for_ms, Undo::StateLossless);
            }
            ref other => unreachable!("{other:?} is done elsewhere"),
        }
    }

    /// Puts an image of an earlier attach than the cluster's state knows in a drive's place. Any other one is no
    /// old image by its number: it is a drive that has forgotten what it had made durable, and not promised.
    fn bring_old_image(
        &mut self,
        nodes: &NodesWorld,
        place: DrivePlace,
        power_cut_all: bool,
        time_ms: RangeInclusive<u64>,
    ) -> bool {
        if self.is_exchanged(place) {
            return false;
        }
        let drive = nodes.drive_at(place);
        let Some(known) = attach_number_known(nodes, place) else { return false };
        let number = |image: &DriveImage| attach_number_of(nodes, place, image);
        let images = self.images.get(&place).into_iter().flatten();
        let old: Vec<_> = images.filter(|image| number(image).is_some_and(|number| number < known)).collect();
        let Some(old) = old.get(self.random.index(old.len())).map(|old| (*old).clone()) else { return false };
        let (from_ms, until_ms) = time_ms.into_inner();
        nodes.stop(place.node, true);
        for other in (0..nodes.count()).filter(|other| power_cut_all && *other != place.node) {
            nodes.stop(other, true);
            let back = self.random.between(from_ms.midpoint(until_ms), until_ms);
            self.later(back, Undo::Start(other));
        }
        let truth = drive.crash_image(&mut |_, _| self.random.chance(500));
        // An image of its time beside an old image of its cache drive is as old as both say. When the true cache drive comes back
        // before the drive, the image beside it cannot be told from a drive whose newest root has rotted: it is attached as
        // one of which nothing is proven. Any other old image has to be refused.
        let may_stay = !nodes.is_cache(place) && self.has_old_cache(nodes, place.node);
        drive.restore(old);
        nodes.start(place.node);
        self.later(until_ms, Undo::TrueImage { place, truth: Box::new(truth), may_stay });
        true
    }

    /// Whether a cache drive is about to be exchanged, or another image stands in its place.
    fn is_exchanged(&self, place: DrivePlace) -> bool {
        self.undos.values().any(
            |undo| matches!(undo, Undo::BlankCache(other) | Undo::TakeReleased(other) | Undo::TrueImage { place: other, .. } if *other == place),
        )
    }

    /// Whether a cache drive is gone for good, and no other one in its place yet.
    fn is_lost(&self, place: DrivePlace) -> bool {
        self.undos.values().any(|undo| matches!(undo, Undo::BlankCache(other) if *other == place))
    }

    /// Whether something else than the true drive stands in a place of a server.
    pub fn has_exchanged(&self, node: usize) -> bool {
        let exchanges = |undo: &Undo| matches!(undo, Undo::BlankCache(place) | Undo::TrueImage { place, .. } if place.node == node);
        self.undos.values().any(exchanges)
    }

    /// Whether an old image stands in the place of a cache drive of a server.
    fn has_old_cache(&self, nodes: &NodesWorld, node: usize) -> bool {
        let is_cache = |place: &DrivePlace| place.node == node && nodes.is_cache(*place);
        self.undos.values().any(|undo| matches!(undo, Undo::TrueImage { place, .. } if is_cache(place)))
    }

    fn lose_cache(
        &mut self,
        nodes: &NodesWorld,
        place: DrivePlace,
        power_cut: bool,
        now_ms: u64,
        for_ms: u64,
    ) -> bool {
        let drive = nodes.drive_at(place);
        let Some(lost) = cache_id(&drive.durable_image()).filter(|_| !self.is_exchanged(place)) else {
            return false;
        };
        if power_cut {
            nodes.stop(place.node, true);
            self.later(now_ms + 1, Undo::Start(place.node));
        }
        drive.die();
        self.later(now_ms + for_ms, Undo::ForgetCache(lost));
        self.later(now_ms + 2 * for_ms, Undo::BlankCache(place));
        true
    }

    /// An operator asks the node to let go of a cache drive. Only if it does, the drive is taken out.
    fn release_cache(&mut self, nodes: &NodesWorld, place: DrivePlace, until_ms: u64) -> bool {
        let leaving = cache_id(&nodes.drive_at(place).durable_image());
        let Some(leaving) = leaving.filter(|_| nodes.is_up(place.node) && !self.is_exchanged(place)) else {
            return false;
        };
        nodes.release_cache(place.node, leaving);
        self.later(until_ms, Undo::TakeReleased(place));
        true
    }

    /// A cache drive is retired until a time: its node empties it meanwhile, and may bind drives to it after that.
    fn retire_cache(&mut self, nodes: &NodesWorld, place: DrivePlace, until_ms: u64) -> bool {
        let retired = cache_id(&nodes.drive_at(place).durable_image());
        let Some(retired) = retired.filter(|_| !self.is_exchanged(place)) else { return false };
        self.retire(nodes, retired, until_ms);
        true
    }

    fn disturb_drive(&mut self, nodes: &NodesWorld, fault: &Fault, newest_value: u64, now_ms: u64) -> bool {
        let drive_at = |place: DrivePlace| nodes.drive_at(place);
        match *fault {
            Fault::DriveHangs { place, for_ms } => {
                drive_at(place).fall_silent();
                self.later(now_ms + for_ms, Undo::DriveWorks(place));
            }
            Fault::DriveSlow { place, factor, for_ms } => {
                drive_at(place).set_latency_factor(factor);
                self.later(now_ms + for_ms, Undo::DriveWorks(place));
            }
            Fault::NoRoom { place, for_ms } => {
                drive_at(place).set_room(Room::OnlyOverwrites);
                self.later(now_ms + for_ms, Undo::DriveWorks(place));
            }
            Fault::DriveFails { place, failure, for_ms } => {
                let drive = drive_at(place);
                match failure {
                    DriveFailure::Dies => drive.die(),
                    DriveFailure::Pulled => drive.pull_out(),
                    DriveFailure::WriteErrors => drive.fail_writes(.., Repeat::Always),
                    DriveFailure::FlushErrors => drive.fail_flushes(Repeat::Always),
                }
                self.later(now_ms + for_ms, Undo::DriveWorks(place));
                self.later(now_ms + for_ms, Undo::Restart(place.node));
            }
            Fault::Rot { place, newest_per_mille, others, power_cut } => {
                let has_rotted = self.rot(nodes.media(place), newest_value, newest_per_mille, others);
                if has_rotted && power_cut && nodes.is_started(place.node) {
                    nodes.stop(place.node, true);
                    self.later(now_ms + 1, Undo::Start(place.node));
                }
                return has_rotted;
            }
            Fault::StrayWrite { place, misdirected } => {
                let drive = drive_at(place);
                let block = BLOCK_BYTES as u64;
                match misdirected {
                    true => {
                        let blocks = drive.geometry().size_bytes / block;
                        drive.misdirect_next_write(.., block * self.random.below(blocks));
                    }
                    false => drive.lose_next_write(..),
                }
            }
            Fault::Unreadable { place, blocks } => return self.make_unreadable(nodes.media(place), blocks),
            ref other => unreachable!("{other:?} is done elsewhere"),
        }
        true
    }

    /// Flips bits in data that was written lately, and in whatever else is live.
    fn rot(&mut self, media: Media<'_>, newest_value: u64, per_mille: u32, others: u32) -> bool {
        let Some(inspection) = inspect_settled(media) else { return false };
        let images = media.snapshot();
        let newest = newest_value.saturating_sub(NEWEST_VALUES)..=u64::MAX;
        let before = self.bits_flipped;
        for block in &inspection.blocks {
            let start = images.read(&inspection, block.offset_bytes, 8);
            let value = u64::from_le_bytes(std::array::from_fn(|index| start[index]));
            if newest.contains(&value) && self.random.chance(per_mille) {
                self.flip(media, &inspection, block.offset_bytes, BLOCK_BYTES as u64);
            }
        }
        for _ in 0..others {
            if let Some((offset, length)) = self.live_place(&inspection) {
                self.flip(media, &inspection, offset, length);
            }
        }
        self.bits_flipped > before
    }

    fn flip(&mut self, media: Media<'_>, inspection: &Inspection, offset: u64, length: u64) {
        media.flip(inspection, offset, length, &self.flips);
        self.bits_flipped += 1;
    }

    /// A place on a drive whose content matters: data or structure. Superblock and root stand there twice,
    /// and are left alone: the other copy may have rotted before.
    fn live_place(&self, inspection: &Inspection) -> Option<(u64, u64)> {
        let twice = [DamageKind::Superblock, DamageKind::Root];
        let structures = inspection.structures.iter().filter(|structure| !twice.contains(&structure.kind));
        let structures = structures.map(|structure| (structure.offset_bytes, structure.length_bytes));
        let blocks = inspection.blocks.iter().map(|block| (block.offset_bytes, BLOCK_BYTES as u64));
        let (structures, blocks): (Vec<_>, Vec<_>) = (structures.collect(), blocks.collect());
        let places = if self.random.chance(500) { structures } else { blocks };
        (!places.is_empty()).then(|| places[self.random.index(places.len())])
    }

    fn make_unreadable(&mut self, media: Media<'_>, blocks: u32) -> bool {
        let Some(inspection) = inspect_settled(media) else { return false };
        for _ in 0..blocks {
            if let Some((offset, length)) = self.live_place(&inspection) {
                for (drive, range) in media.pieces_of(&inspection, offset, length) {
                    drive.fail_reads(range, Repeat::UntilWritten);
                }
            }
        }
        true
    }

    fn undo(&mut self, nodes: &NodesWorld, undo: Undo) {
        match undo {
            Undo::Start(node) => {
                if !nodes.is_started(node) {
                    nodes.start(node);
                }
            }
            Undo::Restart(node) => {
                if nodes.is_started(node) {
                    nodes.stop(node, false);
                    nodes.start(node);
                }
            }
            Undo::HealPath(from, to) => {
                nodes.world.heal_network(SECOND_NETWORK, nodes.host(from), nodes.host(to));
            }
            Undo::ForgetCache(cache) => nodes.forget_cache(cache),
            Undo::TakeReleased(place) => {
                if nodes.is_released(place) {
                    self.undo(nodes, Undo::BlankCache(place));
                }
            }
            Undo::BlankCache(place) => {
                nodes.stop(place.node, true);
                let drive = nodes.drive_at(place);
                drive.clear_faults();
                drive.plug_in();
                drive.revive();
                drive.restore(DriveImage::new(drive.geometry().size_bytes));
                nodes.start(place.node);
            }
            Undo::Reinstate(drive) => nodes.decide_drive(drive, DriveState::Active),
            Undo::Heal(from, to) => nodes.world.heal_one_way(nodes.host(from), nodes.host(to)),
            Undo::BreakAgain(one, other) => {
                nodes.world.break_connections(nodes.host(one), nodes.host(other));
            }
            Undo::HealClients(node) => nodes.world.heal(&nodes.clients().host(), nodes.host(node)),
            Undo::UsualDelay(from, to) => {
                nodes.world.set_link_delay(nodes.host(from), nodes.host(to), self.usual_delay);
            }
            Undo::StateBack => nodes.state.set_outage(false),
            Undo::StateReachable(node) => nodes.state.set_cut_off(node as u64, false),
            Undo::StateLossless => nodes.state.set_faults(self.usual_state),
            // One that is lost never works again, whatever else it had.
            Undo::DriveWorks(place) if self.is_lost(place) => {}
            Undo::DriveWorks(place) => {
                let drive = nodes.drive_at(place);
                drive.clear_faults();
                drive.plug_in();
                drive.revive();
            }
            Undo::TrueImage { place, truth, may_stay } => {
                nodes.stop(place.node, true);
                let drive = nodes.drive_at(place);
                let number = |image: &DriveImage| root_attach_number(drive.name(), image);
                let stays = may_stay
                    && number(&drive.durable_image()).is_some_and(|found| Some(found) >= number(&truth));
                if !stays {
                    drive.restore(*truth);
                }
                nodes.start(place.node);
            }
        }
    }
}

/// How often the cluster's state has seen a drive attached.
fn attach_number_known(nodes: &NodesWorld, place: DrivePlace) -> Option<u64> {
    let drive = nodes.drive_at(place);
    let key = match nodes.is_cache(place) {
        true => StateKey::CacheDrive(cache_id(&drive.durable_image())?),
        false => StateKey::Drive(inspect_alone(drive.name(), &drive.durable_image()).ok()?.superblock.drive),
    };
    let snapshot = nodes.state.inspect(&[Selection::key(&key.key())]);
    let stored: Stored<DriveRecord> = decode(snapshot.entry(0)?).ok()?;
    Some(stored.record.attach_number)
}

/// How often a drive had been attached when it wrote the newest root of an image; none if it has none.
fn root_attach_number(name: &str, image: &DriveImage) -> Option<u64> {
    Some(inspect_alone(name, image).ok()?.root?.attach_number)
}

/// How often a drive had been attached when it held `image`; none if it was another one then, or cannot say.
fn attach_number_of(nodes: &NodesWorld, place: DrivePlace, image: &DriveImage) -> Option<u64> {
    let drive = nodes.drive_at(place);
    let config_of = |drive: &SimulatedDrive| {
        let geometry = drive.geometry();
        SimulatedDriveConfig {
            size_bytes: geometry.size_bytes,
            sector_bytes: geometry.sector_bytes,
            ..SimulatedDriveConfig::default()
        }
    };
    if nodes.is_cache(place) {
        let is_same = cache_id(image) == cache_id(&drive.durable_image());
        return recovery::cache_attach_number(drive.name(), config_of(drive), image).filter(|_| is_same);
    }
    let images = Images { drive: image.clone(), ..nodes.media(place).snapshot() };
    let cache = nodes.caches(place.node).first().map_or_else(SimulatedDriveConfig::default, config_of);
    let configs = Configs { drive: config_of(drive), cache, map_memory_bytes_max: None };
    recovery::attach_number(drive.name(), configs, &images)
}

/// What is live on a drive and will be after a power cut, but for the journal's last group with its data: if
/// that rots, the drive looks as if the power had gone before it was written. A drive at rest has nothing of
/// importance in it.
fn inspect_settled(media: Media<'_>) -> Option<Inspection> {
    let mut now = media.inspect().ok()?;
    let after_cut = inspect(media.name(), &media.durable_images()).ok()?;
    for inspection in [now.clone(), after_cut] {
        let last_group = inspection.structures.iter().filter_map(|structure| structure.sequence).max();
        let structures = inspection.structures.iter();
        let structures = structures.filter(|found| found.sequence.is_none() || found.sequence != last_group);
        let structures: BTreeSet<u64> = structures.map(|found| found.offset_bytes).collect();
        now.structures.retain(|found| structures.contains(&found.offset_bytes));
        let blocks = inspection.blocks.iter().filter(|block| !block.in_last_group);
        let blocks: BTreeSet<u64> = blocks.map(|block| block.offset_bytes).collect();
        now.blocks.retain(|block| blocks.contains(&block.offset_bytes));
    }
    Some(now)
}
