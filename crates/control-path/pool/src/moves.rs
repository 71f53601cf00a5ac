//! Which copies of a volume should lie elsewhere, and where they go: what is on drives that are lost or on their way out
//! is built anew, what lies closer together than it could is moved apart, and what lies unevenly is spread.
//!
//! The copies of a slab stay on different nodes all the time; one may go to another drive of its own node. What a plan
//! holds to beyond that:
//!
//! - Slabs with the fewest whole copies come first, and of equal ones those whose turn it is. One search for room leaves
//!   half of what may be looked at to those behind it, so that none waits for ever behind such as cannot be helped.
//! - A copy on the node of the volume's owner stays on that node, if its drives have room: reads need no network there.
//! - Any other one goes to the drive that is filled least. So what a lost drive held is rebuilt from many and to many.
//! - Of places with room those count first that keep the copies apart in the widest fault domains (see the module `domains`);
//!   but a place on another node is better than none. No spreading brings copies closer together.
//! - *Where only nodes have room that hold a copy of the slab already,* another slab's copy makes room first: it moves to
//!   one of these, and the next plan finds its place free. A plan gives up only if no row of such moves helps.
//!
//! Plans are made again and again, each with what the last one has changed, until there is nothing left to move.

use std::cell::{Cell, OnceCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use spandrel_shared::{DriveId, FaultDomain, Move, NodeId, SlabIndex};

use crate::turns::mix;
use crate::view::{DriveRoom, PoolView};

/// Of so many slabs on one drive one will be found that can be moved, if any can: the others are not looked at.
const SLABS_LOOKED_AT_MAX: usize = 4096;

/// So many drives are looked at for one plan at most, for one slab after the other: it is made on the thread that serves
/// clients.
const DRIVES_TRIED_MAX: usize = 1_000_000;

/// So many slabs every search may try, as long as any may be tried: it gets half of what those before it have left.
const SEARCH_TRIES_MIN: usize = 16;

/// A copy of a slab, where it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlacedCopy {
    /// Which copy of the slab, from zero.
    pub part: u8,
    /// The drive that holds it.
    pub drive: DriveId,
    /// Whether it holds every answered write.
    pub is_whole: bool,
    /// Whether it is being built, to take the place of the other one of its number.
    pub is_building: bool,
}

/// A volume with all its copies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacedVolume {
    /// The node that should own it.
    pub owner: Option<NodeId>,
    /// The copies of each slab.
    pub slabs: Vec<Vec<PlacedCopy>>,
}

/// What to move next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MovesPlan {
    /// The copies to build.
    pub moves: Vec<Move>,
    /// Copies that should go away and for which no drive has room, or no other node is there, as far as was looked.
    pub without_place: u64,
    /// Whether not all possibilities were looked at, as that would have taken too long. A plan of another turn looks at
    /// others.
    pub is_cut_short: bool,
}

/// Moves away what is on drives that are `leaving`: at most `moves_max` copies at a time. Of many slabs those are tried
/// first whose `turn` it is.
///
/// A drive that the pool does not know, or whose node it does not know, is taken for one that leaves.
pub fn plan_replacements(
    view: &PoolView,
    volume: &PlacedVolume,
    leaving: &BTreeSet<DriveId>,
    moves_max: usize,
    turn: u64,
) -> MovesPlan {
    Planner::new(view, volume, leaving, turn).replace(moves_max)
}

/// Moves copies from drives that are filled more to such that are filled less, at most `moves_max` at a time; nothing if
/// that would bring the pool no nearer to being even. Drives that are not online, and those of nodes in maintenance, are
/// left alone. Of many slabs those are tried first whose `turn` it is.
pub fn plan_balance(view: &PoolView, volume: &PlacedVolume, moves_max: usize, turn: u64) -> MovesPlan {
    Planner::new(view, volume, &BTreeSet::new(), turn).balance(moves_max)
}

/// Moves copies of slabs of which several are in one fault domain to others that have room, at most `moves_max` at a time;
/// nothing where nodes have no labels. Of many slabs those are tried first whose `turn` it is.
pub fn plan_apart(view: &PoolView, volume: &PlacedVolume, moves_max: usize, turn: u64) -> MovesPlan {
    Planner::new(view, volume, &BTreeSet::new(), turn).move_apart(moves_max)
}

/// Counts on these moves of a volume's copies, for the next plan that is made with the same view.
pub fn begin_moves(view: &mut PoolView, volume: &PlacedVolume, moves: &[Move]) {
    for next in moves {
        let mut copies = volume.slabs.get(next.slab.0 as usize).into_iter().flatten();
        let from = copies.find(|copy| copy.part == next.part && !copy.is_building).map(|copy| copy.drive);
        for room in &mut view.drives {
            room.slabs_used += u32::from(room.drive == next.to);
            room.slabs_leaving += u32::from(Some(room.drive) == from);
        }
    }
}

/// The pool and the volume as they will be when all that is planned so far is done.
struct Planner<'a> {
    drives: BTreeMap<DriveId, &'a DriveRoom>,
    loads: BTreeMap<DriveId, Load>,
    online: BTreeSet<NodeId>,
    /// The levels at which copies can be kept apart, the widest first, with the domain of each node.
    levels: Vec<(FaultDomain, BTreeMap<NodeId, usize>)>,
    /// The domain of each drive at the widest of these.
    widest: BTreeMap<DriveId, usize>,
    leaving: &'a BTreeSet<DriveId>,
    owner: Option<NodeId>,
    slabs: Vec<Vec<PlacedCopy>>,
    /// See [`Self::slabs_by_drive`].
    by_drive: OnceCell<Rc<SlabsByDrive>>,
    turn: u64,
    /// How many slabs may be tried yet.
    tries_left: Cell<usize>,
    /// How many of these in the present search.
    search_tries_left: Cell<usize>,
    is_cut_short: Cell<bool>,
    /// Beside which nodes no room can be made: it only becomes less.
    stuck: BTreeSet<BTreeSet<NodeId>>,
}

/// What is on a drive, in slab copies.
#[derive(Clone, Copy)]
struct Load {
    /// What is promised on it, whether it is there yet or not.
    used: u32,
    /// What will be when all that is being built is: see [`DriveRoom::slabs_kept`].
    kept: u32,
}

/// The slabs of which each drive holds a copy; of many, some.
type SlabsByDrive = BTreeMap<DriveId, Vec<SlabIndex>>;

/// How full a drive is: slab copies on it, and how many it holds. Compared without rounding.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Fill(u32, u32);

impl Ord for Fill {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (u64::from(self.0) * u64::from(other.1)).cmp(&(u64::from(other.0) * u64::from(self.1)))
    }
}

impl PartialOrd for Fill {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<'a> Planner<'a> {
    fn new(view: &'a PoolView, volume: &PlacedVolume, leaving: &'a BTreeSet<DriveId>, turn: u64) -> Self {
        let load = |room: &DriveRoom| Load { used: room.slabs_used, kept: room.slabs_kept() };
        // One in maintenance is about to be switched off, and what is being built there would wait for it.
        let online = view.nodes.iter().filter(|node| node.is_online && !node.is_in_maintenance);
        let copies = volume.slabs.iter().flatten().map(|copy| copy.part + 1).max().unwrap_or(1);
        let levels = view.levels(copies).into_iter().map(|level| (level, view.domains(level)));
        let levels: Vec<(FaultDomain, BTreeMap<NodeId, usize>)> = levels.collect();
        let widest = view.drives.iter().filter_map(|room| Some((room.drive, *levels[0].1.get(&room.node)?)));
        Self {
            widest: widest.collect(),
            levels,
            drives: view.drives.iter().map(|drive| (drive.drive, drive)).collect(),
            loads: view.drives.iter().map(|drive| (drive.drive, load(drive))).collect(),
            online: online.map(|node| node.node).collect(),
            leaving,
            owner: volume.owner,
            slabs: volume.slabs.clone(),
            by_drive: OnceCell::new(),
            turn,
            tries_left: Cell::new(DRIVES_TRIED_MAX / view.drives.len().max(1)),
            search_tries_left: Cell::new(0),
            is_cut_short: Cell::new(false),
            stuck: BTreeSet::new(),
        }
    }

    fn replace(mut self, moves_max: usize) -> MovesPlan {
        let mut plan = MovesPlan::default();
        let mut pending = self.pending();
        let first = self.first_slab() as u32;
        pending.sort_by_key(|(whole, slab, copy)| (*whole, slab.0 < first, *slab, copy.part));
        for (_, slab, copy) in pending {
            if plan.moves.len() >= moves_max {
                break;
            }
            match self.place(slab, &copy) {
                Some(next) => plan.moves.push(next),
                None => plan.without_place += 1,
            }
        }
        MovesPlan { is_cut_short: self.is_cut_short.get(), ..plan }
    }

    fn balance(mut self, moves_max: usize) -> MovesPlan {
        let mut moves = Vec::new();
        while moves.len() < moves_max {
            let Some(next) = self.even_out() else { break };
            moves.push(next);
        }
        MovesPlan { moves, without_place: 0, is_cut_short: self.is_cut_short.get() }
    }

    fn move_apart(mut self, moves_max: usize) -> MovesPlan {
        let mut moves = Vec::new();
        if self.levels.len() < 2 {
            return MovesPlan::default();
        }
        let (slabs, first) = (self.slabs.len(), self.first_slab());
        for slab in (first..slabs).chain(0..first).map(|slab| SlabIndex(slab as u32)) {
            if moves.len() >= moves_max {
                break;
            }
            if self.lies_apart(slab) {
                continue;
            }
            if self.tries_left.get() == 0 {
                self.is_cut_short.set(true);
                break;
            }
            self.note_try();
            if let Some((copy, to)) = self.farther_place(slab) {
                moves.push(self.begin(slab, &copy, to));
            }
        }
        MovesPlan { moves, without_place: 0, is_cut_short: self.is_cut_short.get() }
    }

    /// Whether no two copies of a slab share a domain at the widest level. So it is with nearly all, so this looks at nothing
    /// else and is not counted as a try.
    fn lies_apart(&self, slab: SlabIndex) -> bool {
        let copies = &self.slabs[slab.0 as usize];
        let domain = |copy: &PlacedCopy| self.widest.get(&copy.drive);
        let shares = |(at, copy): (usize, &PlacedCopy)| {
            let own = domain(copy);
            own.is_none() || copies[at + 1..].iter().any(|other| domain(other) == own)
        };
        !copies.iter().enumerate().any(shares)
    }

    /// A copy of a slab that shares a domain with another one, and a place for it where it would not: at the widest level
    /// where there is one.
    fn farther_place(&self, slab: SlabIndex) -> Option<(PlacedCopy, DriveId)> {
        let copies = &self.slabs[slab.0 as usize];
        if copies.iter().any(|copy| copy.is_building || !copy.is_whole) {
            return None;
        }
        // What lies with the owner stays with it, if another one can move.
        let mut movable: Vec<PlacedCopy> = copies.clone();
        movable.sort_by_key(|copy| (self.node_of(copy.drive) == self.owner, copy.part));
        (0..self.levels.len()).find_map(|level| {
            movable.iter().find_map(|copy| {
                let taken = self.domains_beside(slab, copy.part);
                let is_apart = |node| self.apart_at(&taken, node).is_some_and(|apart| apart <= level);
                if self.node_of(copy.drive).is_some_and(is_apart) {
                    return None;
                }
                Some((*copy, self.emptiest(slab, |room| is_apart(room.node))?))
            })
        })
    }

    /// The domains, level by level, in which the copies of a slab are, or will be, but for those of one number.
    fn domains_beside(&self, slab: SlabIndex, part: u8) -> Vec<BTreeSet<usize>> {
        let nodes = self.nodes_beside(slab, part);
        let taken = |(_, domains): &(FaultDomain, BTreeMap<NodeId, usize>)| {
            nodes.iter().filter_map(|node| domains.get(node)).copied().collect()
        };
        self.levels.iter().map(taken).collect()
    }

    /// Of the levels at which a node is in no domain that is taken, the widest, by its place in the row; none if it is on none.
    fn apart_at(&self, taken: &[BTreeSet<usize>], node: NodeId) -> Option<usize> {
        let mut levels = self.levels.iter().zip(taken);
        levels.position(|((_, domains), taken)| domains.get(&node).is_some_and(|own| !taken.contains(own)))
    }

    fn node_of(&self, drive: DriveId) -> Option<NodeId> {
        self.drives.get(&drive).map(|room| room.node)
    }

    /// Copies that should go away and are not being built elsewhere yet, with how many whole ones of their slab stay.
    fn pending(&self) -> Vec<(usize, SlabIndex, PlacedCopy)> {
        let leaves =
            |copy: &PlacedCopy| self.leaving.contains(&copy.drive) || self.node_of(copy.drive).is_none();
        let mut pending = Vec::new();
        for (slab, copies) in (0..).map(SlabIndex).zip(&self.slabs) {
            let whole = copies.iter().filter(|copy| copy.is_whole && !leaves(copy)).count();
            let going = copies
                .iter()
                .filter(|copy| !copy.is_building && leaves(copy) && !self.is_replaced(slab, copy));
            pending.extend(going.map(|copy| (whole, slab, *copy)));
        }
        pending
    }

    /// Whether another copy is being built in the place of this one.
    fn is_replaced(&self, slab: SlabIndex, copy: &PlacedCopy) -> bool {
        self.slabs[slab.0 as usize].iter().any(|other| other.is_building && other.part == copy.part)
    }

    /// The nodes on which the copies of a slab are, or will be, but for those of one number.
    fn nodes_beside(&self, slab: SlabIndex, part: u8) -> BTreeSet<NodeId> {
        let others = self.slabs[slab.0 as usize].iter().filter(|other| other.part != part);
        others.filter_map(|other| self.node_of(other.drive)).collect()
    }

    fn has_room(&self, room: &DriveRoom) -> bool {
        room.is_online
            && self.online.contains(&room.node)
            && !self.leaving.contains(&room.drive)
            && self.loads[&room.drive].used < room.slabs_total
    }

    /// The drive with room that would be filled least, among those of certain nodes. Of equal ones not always the same.
    /// All drives are looked at.
    fn emptiest(&self, slab: SlabIndex, is_allowed: impl Fn(&DriveRoom) -> bool) -> Option<DriveId> {
        let candidates = self.drives.values().filter(|room| self.has_room(room) && is_allowed(room));
        let fill = |room: &&&DriveRoom| {
            let salt = u128::from_le_bytes(room.drive.to_bytes()) as u64;
            (self.fill(room.drive, 1), mix(salt ^ mix(u64::from(slab.0))))
        };
        candidates.min_by_key(fill).map(|room| room.drive)
    }

    /// The next step towards another place for a copy: its move, or that of another slab's copy which makes room.
    fn place(&mut self, slab: SlabIndex, copy: &PlacedCopy) -> Option<Move> {
        let beside = self.nodes_beside(slab, copy.part);
        // Nor has any other node a drive with room then. So what has no place is found out once, not once for each slab.
        if self.stuck.contains(&beside) {
            return None;
        }
        self.note_try();
        let own_node = self.node_of(copy.drive);
        let stays_with_owner = own_node.is_some() && own_node == self.owner;
        let on_own_node = |room: &DriveRoom| Some(room.node) == own_node && room.drive != copy.drive;
        let taken = self.domains_beside(slab, copy.part);
        let elsewhere = |level: usize| {
            let is_allowed = |room: &DriveRoom| {
                room.drive != copy.drive
                    && self.apart_at(&taken, room.node).is_some_and(|apart| apart <= level)
            };
            self.emptiest(slab, is_allowed)
        };
        let with_owner = if stays_with_owner { self.emptiest(slab, on_own_node) } else { None };
        match with_owner.or_else(|| (0..self.levels.len()).find_map(elsewhere)) {
            Some(to) => Some(self.begin(slab, copy, to)),
            None => {
                let made = self.make_room(&beside);
                if made.is_none() {
                    self.stuck.insert(beside);
                }
                made
            }
        }
    }

    /// Allots slabs to a search that begins.
    fn begin_search(&self) {
        let left = self.tries_left.get();
        self.search_tries_left.set(left.min(SEARCH_TRIES_MIN.max(left / 2)));
    }

    /// Whether one more slab may be tried in the present search.
    fn may_try(&self) -> bool {
        let Some(left) = self.search_tries_left.get().checked_sub(1) else {
            self.is_cut_short.set(true);
            return false;
        };
        self.search_tries_left.set(left);
        self.note_try();
        true
    }

    fn note_try(&self) {
        self.tries_left.set(self.tries_left.get().saturating_sub(1));
    }

    /// The slab whose turn it is to be tried first.
    fn first_slab(&self) -> usize {
        mix(self.turn).checked_rem(self.slabs.len() as u64).unwrap_or(0) as usize
    }

    fn begin(&mut self, slab: SlabIndex, copy: &PlacedCopy, to: DriveId) -> Move {
        if let Some(from) = self.loads.get_mut(&copy.drive) {
            from.kept = from.kept.saturating_sub(1);
        }
        let load = self.loads.get_mut(&to).expect("it is a drive of the pool");
        *load = Load { used: load.used + 1, kept: load.kept + 1 };
        let built = PlacedCopy { part: copy.part, drive: to, is_whole: false, is_building: true };
        self.slabs[slab.0 as usize].push(built);
        Move { slab, part: copy.part, to }
    }

    /// The last of a row of moves, each into the place that the next one leaves, which begins on a node that is not
    /// `beside`.
    fn make_room(&mut self, beside: &BTreeSet<NodeId>) -> Option<Move> {
        if !self.drives.values().any(|room| self.has_room(room)) {
            return None;
        }
        self.begin_search();
        let mut seen: BTreeSet<NodeId> =
            self.online.iter().filter(|node| !beside.contains(*node)).copied().collect();
        let by_drive = self.slabs_by_drive();
        let mut full: VecDeque<NodeId> = seen.iter().copied().collect();
        while let Some(node) = full.pop_front() {
            let is_of_node =
                |drive: &DriveId| self.node_of(*drive) == Some(node) && !self.leaving.contains(drive);
            let of_node = by_drive.iter().filter(|(drive, _)| is_of_node(drive));
            for slab in of_node.flat_map(|(_, slabs)| slabs).copied() {
                if !self.may_try() {
                    return None;
                }
                let Some(copy) = self.movable(slab, node) else { continue };
                let others = self.nodes_beside(slab, copy.part);
                let is_allowed = |room: &DriveRoom| room.node != node && !others.contains(&room.node);
                if let Some(to) = self.emptiest(slab, is_allowed) {
                    return Some(self.begin(slab, &copy, to));
                }
                let next: Vec<NodeId> = self
                    .online
                    .iter()
                    .filter(|next| !others.contains(*next) && !seen.contains(*next))
                    .copied()
                    .collect();
                seen.extend(&next);
                full.extend(next);
            }
        }
        None
    }

    /// A slab's copy on a node that can make room there: it stands, and nothing is being built of the slab.
    fn movable(&self, slab: SlabIndex, node: NodeId) -> Option<PlacedCopy> {
        let copies = &self.slabs[slab.0 as usize];
        let is_there = |copy: &&PlacedCopy| {
            copy.is_whole && !self.leaving.contains(&copy.drive) && self.node_of(copy.drive) == Some(node)
        };
        if copies.iter().any(|copy| copy.is_building) { None } else { copies.iter().find(is_there).copied() }
    }

    /// The next step towards drives that are filled alike, if any is possible: from the fullest drive that can be
    /// relieved, or the last of a row of moves that ends there.
    fn even_out(&mut self) -> Option<Move> {
        let by_drive = self.slabs_by_drive();
        let with_room = self.drives.values().filter(|room| self.has_room(room));
        let least = with_room.map(|room| self.fill(room.drive, 1)).min()?;
        let mut fullest: Vec<DriveId> = self
            .drives
            .values()
            // What lies on a node in maintenance stays there: it does not count for how evenly the pool is filled.
            .filter(|room| room.is_online && self.online.contains(&room.node))
            .filter(|room| self.loads[&room.drive].kept > 0)
            .map(|room| room.drive)
            .collect();
        fullest.sort_by_key(|drive| std::cmp::Reverse((self.fill(*drive, 0), *drive)));
        // One may not become fuller than the other one is then, or what was moved would go back with the next plan.
        fullest.retain(|drive| self.fill(*drive, -1) >= least);
        let (slab, copy, to) = fullest.into_iter().find_map(|from| self.row_of_moves(from, &by_drive))?;
        Some(self.begin(slab, &copy, to))
    }

    /// The slabs of which each drive holds a copy, as it was before anything was planned: what is being built of a slab
    /// since keeps the slab's other copies from being moved ([`Self::movable`]). A volume can have many, so they are
    /// looked through once.
    fn slabs_by_drive(&self) -> Rc<SlabsByDrive> {
        Rc::clone(self.by_drive.get_or_init(|| Rc::new(self.group_by_drive())))
    }

    fn group_by_drive(&self) -> SlabsByDrive {
        let mut by_drive = SlabsByDrive::new();
        let (slabs, first) = (self.slabs.len(), self.first_slab());
        for slab in (first..slabs).chain(0..first) {
            for copy in &self.slabs[slab] {
                let slabs = by_drive.entry(copy.drive).or_default();
                if slabs.len() < SLABS_LOOKED_AT_MAX {
                    slabs.push(SlabIndex(slab as u32));
                }
            }
        }
        by_drive
    }

    /// How full a drive is with so many slab copies more.
    fn fill(&self, drive: DriveId, more: i32) -> Fill {
        Fill(self.loads[&drive].kept.saturating_add_signed(more), self.drives[&drive].slabs_total)
    }

    /// The last of the shortest row of moves from a drive to one that stays emptier than the first one is then.
    fn row_of_moves(
        &self,
        from: DriveId,
        by_drive: &SlabsByDrive,
    ) -> Option<(SlabIndex, PlacedCopy, DriveId)> {
        self.begin_search();
        let most = self.fill(from, -1);
        let (mut seen, mut next) = (BTreeSet::from([from]), VecDeque::from([from]));
        while let Some(at) = next.pop_front() {
            let node = self.node_of(at)?;
            for slab in by_drive.get(&at).into_iter().flatten().copied() {
                if !self.may_try() {
                    return None;
                }
                let Some(copy) = self.movable(slab, node).filter(|copy| copy.drive == at) else { continue };
                let taken = self.domains_beside(slab, copy.part);
                let now = self.apart_at(&taken, node);
                // What lies with the owner stays with it.
                let is_allowed = |room: &DriveRoom| match Some(node) == self.owner {
                    true => room.node == node,
                    false => {
                        let then = self.apart_at(&taken, room.node);
                        then.is_some_and(|then| now.is_none_or(|now| then <= now))
                    }
                };
                let is_emptier = |room: &DriveRoom| self.fill(room.drive, 1) <= most;
                if let Some(to) =
                    self.emptiest(slab, |room| is_allowed(room) && is_emptier(room) && room.drive != at)
                {
                    return Some((slab, copy, to));
                }
                let rooms = self.drives.values().filter(|room| self.has_room(room) && is_allowed(room));
                next.extend(rooms.map(|room| room.drive).filter(|drive| seen.insert(*drive)));
            }
        }
        None
    }
}

#[cfg(test)]
#[path = "moves_tests.rs"]
mod tests;
