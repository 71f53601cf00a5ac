//! The fault atlas: which faults the system promises to survive at a moment. What lies beyond is not
//! injected while safety is judged, so that every failure is a bug.
//!
//! What is promised, and so injected at any time:
//! - Crashes, power cuts, pauses, cuts and delays, of any number of servers at once, and between them and
//!   their clients; outages of the cluster's state and losses on the way to it. Nothing that was answered may be lost; what cannot
//!   be reached waits.
//! - Clocks that drift by up to 0.05 % (promises take 1 % off for that), and any jump of the time of
//!   day. A monotonic clock that leaps without time having passed is a broken machine, and not promised.
//! - Drives that hang, are slow, fail and come back.
//! - Drives that are retired and used again: copies move meanwhile. Beside damage only if that shows, see there.
//! - Cache drives that do any of this, are lost for good, taken out, or retired; caches that are used otherwise.
//! - Volumes that grow. The same: their new slabs may come to lie where the damage is.
//! - *Damage*: flipped bits, unreadable blocks, writes that a drive loses or misdirects, drives that
//!   are lost or come back as they were before their last attach. Promised as long as each slab keeps one good copy. So
//!   while a server is damaged, every slab must have an in-sync copy on a server that is neither
//!   damaged nor *exposed* to another fault that may make its copies stale. And while one is cut off and goes on, the
//!   state must show as alive those who keep it from marking the others. While copies may move, any server may be
//!   the one that keeps a slab: so then all others are neither damaged nor exposed, every copy is in sync, and the
//!   damage is flipped bits or unreadable blocks, which show. A slab has at most one copy on the damaged server then,
//!   wherever its copies go.
//! - A cluster's state that was restored from an older backup while all servers were off: it is refused, and
//!   nothing changes, as long as on every server a drive that works has recorded a newer one. Drives record it
//!   with their checkpoints, so one from directly before the power cut may pass for the newest. What nodes do
//!   that run while their state goes back is not promised.
//!
//! What does not exist here: TCP neither duplicates nor reorders within a connection. Requests are
//! duplicated where a connection breaks after they have arrived and they are repeated over the
//! next; they are reordered across connections.

use std::collections::{BTreeMap, BTreeSet};

use spandrel_cluster::VolumeMembership;
use spandrel_shared::{DriveId, NodeId};

use super::Fault;

/// How long after a fault a copy may still be marked stale because of it, in virtual milliseconds.
const AFTERMATH_MS: u64 = 10_000;

/// About how long it takes until the slabs of a growth have their places.
const GROWTH_MS: u64 = 10_000;

/// What the atlas needs to know of the world at a moment.
pub struct Surroundings<'a> {
    /// Virtual milliseconds since the world began.
    pub now_ms: u64,
    /// Which servers have a node that is up, by number.
    pub up: &'a [bool],
    /// Who the servers are, by number.
    pub ids: &'a [NodeId],
    /// All volumes, as the cluster's state has them.
    pub volumes: &'a [VolumeMembership],
}

/// What has been injected and is not over.
#[derive(Default)]
pub struct Atlas {
    /// Servers with damage that may not have been healed.
    damaged: BTreeMap<usize, Damage>,
    /// Servers whose copies may become stale, and until when.
    exposed: BTreeMap<usize, Exposure>,
    /// Until when the state may show servers as dead that are alive.
    entries_lapse_until_ms: u64,
    /// Until when copies may be moved away from those that hold them.
    moves_until_ms: u64,
}

/// The damage of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Damage {
    /// Some content may be wrong.
    pub content: bool,
    /// Something was confirmed and is not there, and nothing shows it.
    pub has_strayed: bool,
    /// A cache drive was lost, and what stood there alone may be missing without showing it.
    pub lost_cache: bool,
    /// Drives that are gone, for a time or for ever.
    pub drives_lost: BTreeSet<DriveId>,
}

impl Damage {
    /// Whether all that is wrong shows.
    fn is_plain(&self) -> bool {
        !self.has_strayed && !self.lost_cache && self.drives_lost.is_empty()
    }
}

#[derive(Clone, Copy)]
struct Exposure {
    until_ms: u64,
    /// Whether the server itself goes on meanwhile, and may mark others.
    acts: bool,
}

/// What a fault does to servers.
#[derive(Default)]
struct Effect {
    damages: Option<usize>,
    exposes: BTreeSet<usize>,
    acts: bool,
    /// Whether the entries may run out that show who is alive.
    entries_lapse: bool,
    /// Whether copies move.
    moves: bool,
    lasts_ms: u64,
}

impl Atlas {
    /// Nothing was injected so far. `keeps_itself` says whether copies move without anybody asking for it.
    pub fn new(keeps_itself: bool) -> Self {
        Self { moves_until_ms: if keeps_itself { u64::MAX } else { 0 }, ..Self::default() }
    }

    /// Whether the system promises to survive `fault` now.
    pub fn permits(&self, fault: &Fault, surroundings: &Surroundings<'_>) -> bool {
        let effect = effect_of(fault, surroundings);
        let damaged: BTreeSet<usize> = self.damaged.keys().copied().chain(effect.damages).collect();
        if damaged.is_empty() {
            return true;
        }
        let moves = effect.moves || self.moves_until_ms > surroundings.now_ms;
        if moves && !self.may_move_beside_damage(fault, surroundings) {
            return false;
        }
        // The true drive comes back, and until then nothing is promised but to wait for it, or for the
        // others, which hold everything.
        if matches!(fault, Fault::OldImage { power_cut_all: true, .. }) {
            return self.damaged.is_empty();
        }
        // One place at a time: two damaged copies of one block are a lost block.
        if damaged.len() > 1 {
            return false;
        }
        let active = self.exposed.iter().filter(|(_, exposure)| exposure.until_ms > surroundings.now_ms);
        let active: BTreeMap<usize, bool> = active.map(|(node, exposure)| (*node, exposure.acts)).collect();
        let exposed: BTreeSet<usize> = active.keys().copied().chain(effect.exposes.iter().copied()).collect();
        let sheltered =
            |node: &usize| surroundings.up[*node] && !damaged.contains(node) && !exposed.contains(node);
        // A server that acts alone could mark the others: two that it does not reach keep it from that, as long as
        // the state shows that they are alive.
        let acts = effect.acts || active.values().any(|acts| *acts);
        let others = (0..surroundings.up.len()).filter(sheltered).count();
        // The copy that keeps a slab could be moved to a server that something is about to happen to. So nothing is, but
        // to the damaged one, which gets one copy of a slab at most.
        if moves && others + damaged.len() < surroundings.up.len() {
            return false;
        }
        let entries_lapse = effect.entries_lapse || self.entries_lapse_until_ms > surroundings.now_ms;
        if acts && (others < 2 || entries_lapse) {
            return false;
        }
        surroundings.volumes.iter().all(|volume| {
            let is_good = |member: &spandrel_cluster::Member| {
                let node = volume.nodes.get(&member.drive);
                let place = node.and_then(|node| surroundings.ids.iter().position(|id| id == node));
                volume.is_in_sync(member) && place.is_some_and(|place| sheltered(&place))
            };
            volume.sets.iter().all(|set| set.members.iter().any(is_good))
        })
    }

    /// Whether what is damaged, and what `fault` damages, is such that copies may be moved meanwhile: drives are there and
    /// hold what was confirmed, but for blocks that show that they are damaged. All copies are in sync, or one that keeps a
    /// slab might go to the damaged server before another one is.
    fn may_move_beside_damage(&self, fault: &Fault, surroundings: &Surroundings<'_>) -> bool {
        let is_plain = !fault.is_damage() || matches!(fault, Fault::Rot { .. } | Fault::Unreadable { .. });
        let nothing_strayed = self.damaged.values().all(|damage| damage.is_plain());
        let lacks_nothing = |volume: &VolumeMembership| {
            let mut standing =
                volume.sets.iter().flat_map(|set| &set.members).filter(|member| !member.building);
            standing.all(|member| volume.is_in_sync(member))
        };
        is_plain && nothing_strayed && surroundings.volumes.iter().all(lacks_nothing)
    }

    /// `fault` was injected. `drives_lost` are the drives that it took away.
    pub fn note(&mut self, fault: &Fault, drives_lost: &[DriveId], surroundings: &Surroundings<'_>) {
        let effect = effect_of(fault, surroundings);
        if let Some(node) = effect.damages {
            let damage = self.damaged.entry(node).or_default();
            damage.content |= drives_lost.is_empty();
            damage.has_strayed |= matches!(fault, Fault::StrayWrite { .. });
            damage.lost_cache |= matches!(fault, Fault::LoseCache { .. });
            damage.drives_lost.extend(drives_lost);
        }
        let until_ms = surroundings.now_ms.saturating_add(effect.lasts_ms).saturating_add(AFTERMATH_MS);
        for node in effect.exposes {
            let exposure = self.exposed.entry(node).or_insert(Exposure { until_ms, acts: false });
            exposure.until_ms = exposure.until_ms.max(until_ms);
            exposure.acts |= effect.acts;
        }
        if effect.moves {
            self.moves_until_ms = self.moves_until_ms.max(until_ms);
        }
        if effect.entries_lapse {
            self.entries_lapse_until_ms = self.entries_lapse_until_ms.max(until_ms);
        }
        self.exposed.retain(|_, exposure| exposure.until_ms > surroundings.now_ms);
    }

    /// The servers with damage.
    pub fn damaged(&self) -> &BTreeMap<usize, Damage> {
        &self.damaged
    }

    /// Whether what a fault did to a server may still be unnoticed by the others.
    pub fn is_exposed(&self, node: usize, now_ms: u64) -> bool {
        self.exposed.get(&node).is_some_and(|exposure| exposure.until_ms > now_ms)
    }

    /// The content of a server's drives was found whole.
    pub fn content_is_whole(&mut self, node: usize) {
        if let Some(damage) = self.damaged.get_mut(&node) {
            (damage.content, damage.lost_cache) = (false, false);
        }
        self.damaged.retain(|_, damage| damage.content || !damage.drives_lost.is_empty());
    }

    /// A lost drive counts as damage until no slab counts on it any more.
    pub fn forget_lost_drives(&mut self, volumes: &[VolumeMembership]) {
        for damage in self.damaged.values_mut() {
            damage.drives_lost.retain(|drive| {
                let counts_on = |volume: &VolumeMembership| {
                    let mut members = volume.sets.iter().flat_map(|set| &set.members);
                    members.any(|member| member.drive == *drive && volume.is_in_sync(member))
                };
                volumes.iter().any(counts_on)
            });
        }
        self.damaged.retain(|_, damage| damage.content || !damage.drives_lost.is_empty());
    }
}

fn effect_of(fault: &Fault, surroundings: &Surroundings<'_>) -> Effect {
    let all: BTreeSet<usize> = (0..surroundings.up.len()).collect();
    let exposes = |nodes: &[usize], acts: bool, lasts_ms: u64| Effect {
        exposes: nodes.iter().copied().collect(),
        acts,
        lasts_ms,
        ..Effect::default()
    };
    match *fault {
        Fault::Stop { node, away_ms, .. } => exposes(&[node], false, away_ms),
        Fault::PowerCutAll { away_ms } => Effect { exposes: all, lasts_ms: away_ms, ..Effect::default() },
        Fault::OlderState { away_ms, for_ms, .. } => {
            Effect { exposes: all, lasts_ms: 2 * away_ms + for_ms, ..Effect::default() }
        }
        Fault::Pause { node, for_ms } | Fault::Isolate { node, for_ms, .. } => exposes(&[node], true, for_ms),
        Fault::Orphan { node, other, for_ms } => {
            let nodes: Vec<usize> = other.into_iter().chain([node]).collect();
            exposes(&nodes, true, for_ms)
        }
        Fault::Cut { from, to, for_ms, .. } | Fault::SlowLink { from, to, for_ms, .. } => {
            exposes(&[from, to], true, for_ms)
        }
        // The other network is there.
        Fault::CutPath { .. } => Effect::default(),
        // Its entry runs out: it does not count among those that keep another one from marking.
        Fault::StateCutOff { node, for_ms } => exposes(&[node], false, for_ms),
        Fault::BreakConnections { one, other, again, every_ms } => {
            exposes(&[one, other], true, u64::from(again) * every_ms)
        }
        Fault::DriveHangs { place, for_ms }
        | Fault::DriveSlow { place, for_ms, .. }
        | Fault::DriveFails { place, for_ms, .. }
        | Fault::NoRoom { place, for_ms } => exposes(&[place.node], false, for_ms),
        Fault::Rot { place, power_cut: true, .. } => {
            Effect { damages: Some(place.node), ..exposes(&[place.node], false, 0) }
        }
        Fault::Rot { place, .. } | Fault::StrayWrite { place, .. } | Fault::Unreadable { place, .. } => {
            Effect { damages: Some(place.node), ..Effect::default() }
        }
        Fault::OldImage { place, for_ms, power_cut_all } => {
            let exposed = if power_cut_all { all } else { BTreeSet::from([place.node]) };
            Effect { damages: Some(place.node), exposes: exposed, lasts_ms: for_ms, ..Effect::default() }
        }
        Fault::LoseDrives { node, away_ms } => {
            Effect { damages: Some(node), ..exposes(&[node], false, away_ms) }
        }
        // Drives go away for a moment whenever they are bound to another cache drive.
        Fault::LoseCache { place, for_ms, .. } => {
            Effect { damages: Some(place.node), ..exposes(&[place.node], false, 2 * for_ms) }
        }
        Fault::ReleaseCache { place, for_ms } | Fault::RetireCache { place, for_ms } => exposes(&[place.node], false, for_ms),
        // What has begun to move until then goes on for a while.
        Fault::Retire { for_ms, .. } => Effect { moves: true, lasts_ms: for_ms, ..Effect::default() },
        Fault::Grow { .. } => Effect { moves: true, lasts_ms: GROWTH_MS, ..Effect::default() },
        Fault::StateLosses { for_ms, .. } => {
            Effect { entries_lapse: true, lasts_ms: for_ms, ..Effect::default() }
        }
        Fault::ClientsCut { .. }
        | Fault::ClientsDropped { .. }
        // No entry runs out meanwhile.
        | Fault::StateOutage { .. }
        | Fault::TimeOfDay { .. }
        | Fault::ClockDrift { .. }
        // Where copies move by themselves, they do at any time.
        | Fault::Label { .. }
        | Fault::CacheMode { .. }
        | Fault::MapMemory { .. }
        | Fault::Scrub { .. }
        | Fault::SetVolume { .. }
        | Fault::HandOver { .. } => Effect::default(),
    }
}

#[cfg(test)]
#[path = "atlas_tests.rs"]
mod tests;
