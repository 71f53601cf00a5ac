use proptest::prelude::*;
use spandrel_shared::{Place, SlabGeometry};

use super::*;
use crate::evenness::{copies_to_even_out, even_per_mille, part_of_one, spread_per_mille};
use crate::plan::{VolumeRequest, plan_volume};
use crate::space::usable_slabs;
use crate::view::NodeRoom;

const SLAB_BYTES: u64 = 16 << 20;

fn node_id(number: u8) -> NodeId {
    NodeId::from_bytes([number; 16])
}

fn drive_id(node: u8, place: u8) -> DriveId {
    let mut bytes = [0; 16];
    (bytes[0], bytes[1]) = (node, place);
    DriveId::from_bytes(bytes)
}

/// A pool and a volume in it.
#[derive(Clone, Debug)]
struct Lab {
    view: PoolView,
    volume: PlacedVolume,
}

impl Lab {
    /// Nodes with drives of these many slabs, and a volume as it is placed when it is made.
    fn new(nodes: &[Vec<u32>], slabs: u64, copies: u8) -> Option<Self> {
        let geometry = SlabGeometry::new(SLAB_BYTES).unwrap();
        let mut lab = Lab {
            view: PoolView { geometry, nodes: Vec::new(), drives: Vec::new() },
            volume: PlacedVolume { owner: None, slabs: Vec::new() },
        };
        nodes.iter().for_each(|drives| lab.add_node(drives));
        let size_bytes = slabs * SLAB_BYTES;
        let request = VolumeRequest { name: "data", size_bytes, copies: Some(copies), owner: None };
        let plan = plan_volume(&lab.view, &request).ok()?;
        lab.volume.slabs = plan.slabs.iter().map(|drives| whole(drives)).collect();
        for (drive, count) in plan.copies_per_drive() {
            lab.drive(drive).slabs_used = count;
        }
        Some(lab)
    }

    fn add_node(&mut self, drives: &[u32]) {
        let number = self.view.nodes.len() as u8 + 1;
        let (node, name) = (node_id(number), format!("node-{number}"));
        let place = Place::default();
        let room =
            NodeRoom { node, name, is_online: true, volumes_owned: 0, place, is_in_maintenance: false };
        self.view.nodes.push(room);
        for (place, slabs_total) in (1..).zip(drives) {
            let drive = drive_id(number, place);
            let slabs_total = *slabs_total;
            let room =
                DriveRoom { drive, node, slabs_total, slabs_used: 0, slabs_leaving: 0, is_online: true };
            self.view.drives.push(room);
        }
    }

    fn drive(&mut self, drive: DriveId) -> &mut DriveRoom {
        self.view.drives.iter_mut().find(|room| room.drive == drive).expect("it is in the pool")
    }

    /// Carries a plan out, and checks on the way what must always hold.
    fn carry_out(&mut self, moves: &[Move]) {
        let mut built = BTreeSet::new();
        for next in moves {
            assert!(built.insert((next.slab, next.part)), "a copy is built once at a time");
            self.drive(next.to).slabs_used += 1;
            let copies = &mut self.volume.slabs[next.slab.0 as usize];
            assert!(copies.iter().any(|copy| copy.part == next.part));
            copies.push(PlacedCopy { part: next.part, drive: next.to, is_whole: false, is_building: true });
        }
        for copies in &self.volume.slabs {
            for (at, copy) in copies.iter().enumerate() {
                for other in &copies[at + 1..] {
                    assert_ne!(copy.drive, other.drive);
                    assert!(
                        copy.part == other.part || node_of(copy) != node_of(other),
                        "two copies of a slab on a node: {copies:?}"
                    );
                }
            }
        }
        for room in &self.view.drives {
            assert!(room.slabs_used <= room.slabs_total || !moves.iter().any(|next| next.to == room.drive));
        }
        for next in moves {
            let copies = &mut self.volume.slabs[next.slab.0 as usize];
            let former = copies.iter().position(|copy| copy.part == next.part && !copy.is_building).unwrap();
            let drive = copies.swap_remove(former).drive;
            let new = copies.iter_mut().find(|copy| copy.is_building && copy.part == next.part).unwrap();
            (new.is_building, new.is_whole) = (false, true);
            self.drive(drive).slabs_used -= 1;
        }
    }

    /// Moves until there is nothing left to move. Returns how many copies have no place.
    fn replace_all(&mut self, leaving: &BTreeSet<DriveId>, moves_max: usize) -> u64 {
        for _ in 0..10_000 {
            let plan = plan_replacements(&self.view, &self.volume, leaving, moves_max, 0);
            assert!(!plan.is_cut_short && plan.moves.len() <= moves_max);
            assert!(plan.moves.iter().all(|next| !leaving.contains(&next.to)));
            if plan.moves.is_empty() {
                return plan.without_place;
            }
            self.carry_out(&plan.moves);
        }
        panic!("it does not end");
    }

    fn even_out(&mut self) -> usize {
        let mut moved = 0;
        for _ in 0..10_000 {
            let moves = plan_balance(&self.view, &self.volume, 8, 0).moves;
            if moves.is_empty() {
                return moved;
            }
            moved += moves.len();
            self.carry_out(&moves);
        }
        panic!("it does not end");
    }

    fn copies_on(&self, drives: &BTreeSet<DriveId>) -> usize {
        self.volume.slabs.iter().flatten().filter(|copy| drives.contains(&copy.drive)).count()
    }
}

/// The copies of a slab on these drives, each whole.
fn whole(drives: &[DriveId]) -> Vec<PlacedCopy> {
    let copy = |(part, drive): (u8, &DriveId)| PlacedCopy {
        part,
        drive: *drive,
        is_whole: true,
        is_building: false,
    };
    (0..).zip(drives).map(copy).collect()
}

fn node_of(copy: &PlacedCopy) -> u8 {
    copy.drive.to_bytes()[0]
}

fn any_nodes() -> impl Strategy<Value = Vec<Vec<u32>>> {
    prop::collection::vec(prop::collection::vec(0_u32..12, 1..4), 2..6)
}

proptest! {
    /// It is moved exactly if the nodes that stay have room for all copies, each of a slab on another one: the planner
    /// moves others out of the way where that is needed, and gives up only where nothing helps.
    #[test]
    fn what_can_be_moved_away_is_moved_away(
        nodes in any_nodes(),
        slabs in 1_u64..12,
        copies in 1_u8..=3,
        leaving in prop::collection::btree_set((1_u8..6, 1_u8..4), 1..4),
        moves_max in 1_usize..9,
    ) {
        let Some(mut lab) = Lab::new(&nodes, slabs, copies) else { return Ok(()) };
        let leaving: BTreeSet<DriveId> = leaving.into_iter().map(|(node, place)| drive_id(node, place)).collect();
        let room = |node: &NodeRoom| -> u64 {
            let stay = lab.view.drives.iter().filter(|room| room.node == node.node && !leaving.contains(&room.drive));
            stay.map(|room| u64::from(room.slabs_total)).sum()
        };
        let rooms: Vec<u64> = lab.view.nodes.iter().map(room).collect();
        let is_possible = usable_slabs(&rooms, copies) >= slabs;
        let without_place = lab.replace_all(&leaving, moves_max);
        prop_assert_eq!(without_place == 0, is_possible, "{:?}", lab);
        prop_assert_eq!(lab.copies_on(&leaving) as u64, without_place);
    }

    #[test]
    fn evening_out_ends_and_leaves_no_drive_far_behind(
        nodes in prop::collection::vec(1_usize..4, 4..6),
        slabs in 1_u64..20,
        copies in 1_u8..=3,
        fresh_drives in 1_usize..3,
    ) {
        let drives: Vec<Vec<u32>> = nodes.iter().map(|count| vec![40; *count]).collect();
        let mut lab = Lab::new(&drives, slabs, copies).unwrap();
        lab.add_node(&vec![40; fresh_drives]);
        lab.even_out();
        let used = |room: &DriveRoom| room.slabs_used;
        let most = lab.view.drives.iter().map(used).max().unwrap();
        // A node holds at most one copy of each slab.
        let lacks = |room: &&DriveRoom| {
            let of_node = lab.view.drives.iter().filter(|other| other.node == room.node).map(used).sum::<u32>();
            u64::from(of_node) < slabs
        };
        let least = lab.view.drives.iter().filter(lacks).map(used).min().unwrap_or(most);
        prop_assert!(most - least <= 1, "{most} and {least}: {:?}", lab.view.drives);
    }
}

#[test]
fn what_a_lost_drive_held_goes_to_many() {
    let mut lab = Lab::new(&vec![vec![100, 100, 100]; 4], 100, 3).unwrap();
    let lost = BTreeSet::from([drive_id(2, 1)]);
    let held = lab.copies_on(&lost);
    assert!(held > 20);
    let plan = plan_replacements(&lab.view, &lab.volume, &lost, 1000, 0);
    assert_eq!((plan.moves.len(), plan.without_place), (held, 0));
    let targets: BTreeSet<DriveId> = plan.moves.iter().map(|next| next.to).collect();
    assert_eq!(targets.len(), 8, "all but those of the owner's node, which has a copy of each slab");
    lab.carry_out(&plan.moves);
    assert_eq!(lab.copies_on(&lost), 0);
    assert_eq!(plan_replacements(&lab.view, &lab.volume, &lost, 1000, 0), MovesPlan::default());
}

#[test]
fn what_is_being_built_is_not_begun_again() {
    let lab = Lab::new(&vec![vec![100, 100]; 4], 20, 2).unwrap();
    let lost = BTreeSet::from([drive_id(2, 1)]);
    let plan = plan_replacements(&lab.view, &lab.volume, &lost, 3, 0);
    let mut begun = lab.clone();
    for next in &plan.moves {
        let built = PlacedCopy { part: next.part, drive: next.to, is_whole: false, is_building: true };
        begun.volume.slabs[next.slab.0 as usize].push(built);
    }
    let rest = plan_replacements(&begun.view, &begun.volume, &lost, 1000, 0);
    assert_eq!(rest.moves.len() + 3, lab.copies_on(&lost));
    assert!(rest.moves.iter().all(|next| !plan.moves.iter().any(|other| other.slab == next.slab)));
}

/// Of two slabs the one with fewer whole copies is in greater danger.
#[test]
fn the_most_endangered_come_first() {
    let mut lab = Lab::new(&vec![vec![100]; 5], 30, 3).unwrap();
    let lost = BTreeSet::from([drive_id(1, 1)]);
    let on_lost: Vec<usize> =
        (0..30).filter(|slab| lab.volume.slabs[*slab].iter().any(|copy| node_of(copy) == 1)).collect();
    let endangered = *on_lost.last().unwrap();
    let stale = lab.volume.slabs[endangered].iter_mut().find(|copy| node_of(copy) != 1).unwrap();
    stale.is_whole = false;
    let plan = plan_replacements(&lab.view, &lab.volume, &lost, 1, 0);
    assert_eq!(plan.moves[0].slab, SlabIndex(endangered as u32));
}

#[test]
fn what_lies_with_the_owner_stays_with_it() {
    let mut lab = Lab::new(&vec![vec![100, 100]; 4], 40, 3).unwrap();
    lab.volume.owner = Some(node_id(1));
    let leaving = BTreeSet::from([drive_id(1, 1)]);
    let plan = plan_replacements(&lab.view, &lab.volume, &leaving, 1000, 0);
    assert!(!plan.moves.is_empty() && plan.moves.iter().all(|next| next.to == drive_id(1, 2)));
    lab.add_node(&[100, 100]);
    let moves = plan_balance(&lab.view, &lab.volume, 1000, 0).moves;
    let from_owner = |next: &Move| {
        let copies = &lab.volume.slabs[next.slab.0 as usize];
        node_of(copies.iter().find(|copy| copy.part == next.part).unwrap()) == 1
    };
    assert!(!moves.is_empty() && !moves.iter().any(from_owner));
}

#[test]
fn without_a_third_node_nothing_can_be_built() {
    let lab = Lab::new(&vec![vec![100, 100]; 3], 10, 3).unwrap();
    let lost: BTreeSet<DriveId> = [drive_id(3, 1), drive_id(3, 2)].into();
    let plan = plan_replacements(&lab.view, &lab.volume, &lost, 1000, 0);
    assert_eq!((plan.moves.len(), plan.without_place), (0, 10));
}

/// Only one slab of many has a copy that can be moved. It is found when it is its turn.
#[test]
fn a_plan_that_is_cut_short_looks_at_other_slabs_next_time() {
    let mut lab = Lab::new(&[vec![100]], 100, 1).unwrap();
    lab.add_node(&[100]);
    let fixed = lab.volume.slabs.iter_mut().enumerate().filter(|(slab, _)| *slab != 60);
    fixed.flat_map(|(_, copies)| copies).for_each(|copy| copy.is_whole = false);
    let none_leaves = BTreeSet::new();
    let plan = |turn| {
        let planner = Planner::new(&lab.view, &lab.volume, &none_leaves, turn);
        planner.tries_left.set(10);
        planner.balance(1)
    };
    let plans: Vec<MovesPlan> = (0..200).map(plan).collect();
    let moved = plans.iter().filter(|plan| plan.moves.iter().any(|next| next.slab == SlabIndex(60))).count();
    assert!((1..100).contains(&moved), "{moved}");
    assert!(plans.iter().all(|plan| plan.is_cut_short == plan.moves.is_empty()));
    let whole = plan_balance(&lab.view, &lab.volume, 1, 0);
    assert!(!whole.moves.is_empty() && !whole.is_cut_short);
}

/// A copy of a slab that holds every answered write, or not.
fn copy(part: u8, drive: DriveId, is_whole: bool) -> PlacedCopy {
    PlacedCopy { part, drive, is_whole, is_building: false }
}

/// A volume whose copies no drive takes can have hundreds of thousands of slabs.
#[test]
fn that_there_is_no_place_is_found_out_once_for_slabs_that_lie_alike() {
    let lab = Lab::new(&vec![vec![1000]; 3], 500, 3).unwrap();
    let leaving = BTreeSet::from([drive_id(3, 1)]);
    let mut planner = Planner::new(&lab.view, &lab.volume, &leaving, 0);
    let before = planner.tries_left.get();
    let pending = planner.pending();
    assert_eq!(pending.len(), 500);
    assert!(pending.into_iter().all(|(_, slab, copy)| planner.place(slab, &copy).is_none()));
    assert_eq!(planner.tries_left.get(), before - 1);
}

#[test]
fn of_slabs_that_are_as_urgent_others_are_first_each_time() {
    let lab = Lab::new(&vec![vec![1000]; 4], 500, 3).unwrap();
    let leaving = BTreeSet::from([drive_id(3, 1)]);
    let first = |turn| plan_replacements(&lab.view, &lab.volume, &leaving, 1, turn).moves[0].slab;
    assert_ne!(first(1), first(2));
}

/// Room is only on the first node. For the first slab, which is the more urgent one, it is found behind a hundred others;
/// for the second one at once.
#[test]
fn a_long_search_for_room_leaves_some_of_it_to_those_behind_it() {
    let mut lab = Lab::new(&[vec![200], vec![200], vec![200], vec![200], vec![200, 200]], 1, 1).unwrap();
    let [one, two, three, four] = [1, 2, 3, 4].map(|node| drive_id(node, 1));
    let (leaving, last) = (drive_id(5, 1), drive_id(5, 2));
    let urgent = vec![copy(0, one, true), copy(1, three, false), copy(2, leaving, true)];
    let next = vec![copy(0, one, true), copy(1, two, true), copy(2, leaving, true)];
    let movable = vec![copy(0, three, true), copy(1, last, true)];
    let others = vec![copy(0, one, true), copy(1, two, true), copy(2, four, true)];
    lab.volume.slabs = [urgent, next, movable].into_iter().chain(vec![others; 100]).collect();
    for room in &mut lab.view.drives {
        let copies = lab.volume.slabs.iter().flatten().filter(|copy| copy.drive == room.drive);
        room.slabs_used = copies.count() as u32;
        room.slabs_total = room.slabs_used + if room.drive == one { 9 } else { 0 };
    }
    let leaving = BTreeSet::from([leaving]);
    let planner = Planner::new(&lab.view, &lab.volume, &leaving, 0);
    planner.tries_left.set(40);
    let plan = planner.replace(16);
    assert_eq!(plan.moves, [Move { slab: SlabIndex(2), part: 0, to: one }]);
    assert_eq!((plan.without_place, plan.is_cut_short), (1, true));
}

/// It does not count for how evenly the pool is filled, and what would leave it had to come back.
#[test]
fn what_lies_on_a_node_in_maintenance_is_not_spread() {
    let mut lab = Lab::new(&[vec![100]], 60, 1).unwrap();
    (0..3).for_each(|_| lab.add_node(&[100]));
    assert!(!plan_balance(&lab.view, &lab.volume, 16, 0).moves.is_empty());
    lab.view.nodes[0].is_in_maintenance = true;
    assert!(plan_balance(&lab.view, &lab.volume, 16, 0).moves.is_empty());
}

/// Many volumes in one pool, and the nodes that own them.
struct Crowd {
    view: PoolView,
    volumes: Vec<PlacedVolume>,
    /// What is being built of each volume, and when it will be.
    building: BTreeMap<usize, (u32, Vec<Move>)>,
}

impl Crowd {
    fn new(volumes: usize) -> Self {
        let mut lab = Lab::new(&vec![vec![400, 400]; 4], 1, 1).unwrap();
        lab.view.drives.iter_mut().for_each(|room| room.slabs_used = 0);
        let mut crowd = Crowd { view: lab.view, volumes: Vec::new(), building: BTreeMap::new() };
        for number in 0..volumes {
            let owner = Some(node_id(1 + (number % 4) as u8));
            let request = VolumeRequest { name: "data", size_bytes: 20 * SLAB_BYTES, copies: Some(3), owner };
            let plan = plan_volume(&crowd.view, &request).unwrap();
            for (drive, count) in plan.copies_per_drive() {
                crowd.drive(drive).slabs_used += count;
            }
            crowd
                .volumes
                .push(PlacedVolume { owner, slabs: plan.slabs.iter().map(|drives| whole(drives)).collect() });
        }
        crowd
    }

    fn drive(&mut self, drive: DriveId) -> &mut DriveRoom {
        self.view.drives.iter_mut().find(|room| room.drive == drive).expect("it is in the pool")
    }

    /// All owners look at the pool at the same time, and none sees what the others begin. Returns how many copies they
    /// begin to move.
    fn tick(&mut self, now: u32, random: &mut impl FnMut() -> u64) -> usize {
        let mut begun = BTreeMap::new();
        for owner in 1..=4 {
            let mut view = self.view.clone();
            let mut left = part_of_one(copies_to_even_out(&view), 4, random());
            for (number, volume) in self.volumes.iter().enumerate() {
                if volume.owner != Some(node_id(owner)) || self.building.contains_key(&number) {
                    continue;
                }
                let moves = plan_balance(&view, volume, left.min(16) as usize, random()).moves;
                begin_moves(&mut view, volume, &moves);
                left -= moves.len() as u64;
                if !moves.is_empty() {
                    begun.insert(number, (now + 1 + (random() % 5) as u32, moves));
                }
            }
        }
        let count = begun.values().map(|(_, moves)| moves.len()).sum();
        for (number, (_, moves)) in &begun {
            begin_moves(&mut self.view, &self.volumes[*number], moves);
        }
        self.building.append(&mut begun);
        self.finish(now);
        count
    }

    fn finish(&mut self, now: u32) {
        let (done, building) =
            std::mem::take(&mut self.building).into_iter().partition(|(_, (at, _))| *at <= now);
        self.building = building;
        for (number, (_, moves)) in done {
            for next in moves {
                let copies = &mut self.volumes[number].slabs[next.slab.0 as usize];
                let copy = copies.iter_mut().find(|copy| copy.part == next.part).unwrap();
                let from = std::mem::replace(&mut copy.drive, next.to);
                let room = self.drive(from);
                (room.slabs_used, room.slabs_leaving) = (room.slabs_used - 1, room.slabs_leaving - 1);
            }
        }
    }
}

/// What one owner begins the others see later, and a copy's former place is free only when it is built. Still no more is
/// moved than has to be, more or less, and it ends.
#[test]
fn many_owners_together_move_hardly_more_than_is_needed() {
    let mut crowd = Crowd::new(40);
    let fresh = NodeRoom { node: node_id(5), name: "node-5".to_owned(), ..crowd.view.nodes[0].clone() };
    crowd.view.nodes.push(fresh);
    for place in [1, 2] {
        let drive =
            DriveRoom { drive: drive_id(5, place), node: node_id(5), slabs_used: 0, ..crowd.view.drives[0] };
        crowd.view.drives.push(drive);
    }
    let needed = copies_to_even_out(&crowd.view) as usize;
    assert!(needed > 400, "{needed}");
    let mut state = 7;
    let mut random = || {
        state = mix(state);
        state
    };
    let mut moved = 0;
    let mut last = 0;
    for now in 0..500 {
        let begun = crowd.tick(now, &mut random);
        moved += begun;
        last = if begun > 0 { now } else { last };
    }
    assert!(last < 400 && crowd.building.is_empty(), "it does not end");
    let spread = spread_per_mille(&crowd.view);
    assert!(spread <= even_per_mille(&crowd.view), "{spread}: {:?}", crowd.view.drives);
    assert!(moved <= needed + needed / 10, "{moved} instead of {needed}");
}

/// In how many racks the copies of each slab are, at least.
fn racks_of_closest(lab: &Lab) -> usize {
    let rack = |copy: &PlacedCopy| {
        let node = lab.view.nodes.iter().find(|node| node.node == node_id(node_of(copy))).unwrap();
        node.place.rack.clone().unwrap()
    };
    let racks = lab.volume.slabs.iter().map(|copies| copies.iter().map(rack).collect::<BTreeSet<_>>().len());
    racks.min().unwrap()
}

/// Six nodes, a volume on all of them, and then racks of two nodes each.
fn labelled_later(slabs: u64, copies: u8) -> Lab {
    let mut lab = Lab::new(&vec![vec![60]; 6], slabs, copies).unwrap();
    for (node, rack) in lab.view.nodes.iter_mut().zip(["a", "a", "b", "b", "c", "c"]) {
        node.place.rack = Some(rack.to_owned());
    }
    lab
}

#[test]
fn copies_move_apart_when_nodes_get_labels() {
    for copies in [2, 3] {
        let mut lab = labelled_later(60, copies);
        assert!(racks_of_closest(&lab) < usize::from(copies), "nobody knew of racks");
        for _ in 0..1000 {
            let moves = plan_apart(&lab.view, &lab.volume, 4, 0).moves;
            if moves.is_empty() {
                break;
            }
            lab.carry_out(&moves);
        }
        assert_eq!(racks_of_closest(&lab), usize::from(copies));
        lab.even_out();
        assert_eq!(
            racks_of_closest(&lab),
            usize::from(copies),
            "spreading does not bring them together again"
        );
    }
}

#[test]
fn nothing_moves_apart_without_labels_or_without_room() {
    let lab = Lab::new(&vec![vec![60]; 6], 60, 3).unwrap();
    assert!(plan_apart(&lab.view, &lab.volume, 4, 0).moves.is_empty());
    let mut full = labelled_later(60, 3);
    full.view.drives.iter_mut().for_each(|drive| drive.slabs_total = drive.slabs_used);
    assert!(plan_apart(&full.view, &full.volume, 4, 0).moves.is_empty());
}

/// What a lost node held goes to other racks than its slab's other copies are in; where these have no room, to another node.
#[test]
fn what_is_lost_is_built_as_far_apart_as_there_is_room() {
    let mut lab = labelled_later(40, 2);
    for _ in 0..1000 {
        let moves = plan_apart(&lab.view, &lab.volume, 8, 0).moves;
        lab.carry_out(&moves);
    }
    let leaving = BTreeSet::from([drive_id(1, 1)]);
    assert_eq!(lab.replace_all(&leaving, 4), 0);
    assert_eq!(racks_of_closest(&lab), 2);

    // Only rack a has room any more: what was on the lost node of rack b goes there, beside other copies.
    let mut tight = labelled_later(40, 2);
    for _ in 0..1000 {
        let moves = plan_apart(&tight.view, &tight.volume, 8, 0).moves;
        tight.carry_out(&moves);
    }
    for number in 3..=6 {
        let drive = tight.drive(drive_id(number, 1));
        drive.slabs_total = drive.slabs_used;
    }
    assert_eq!(
        tight.replace_all(&BTreeSet::from([drive_id(3, 1)]), 4),
        0,
        "a place on another node is better than none"
    );
}

/// There are far more slabs than a plan may try. What lies well takes none of these tries, so one that does not is found,
/// and where all lie well the plan is whole: there is nothing more to look for.
#[test]
fn of_a_large_volume_all_that_lies_together_is_found() {
    let copies = |drives: [DriveId; 2]| whole(&drives);
    let mut lab = Lab::new(&vec![vec![1_000_000]; 4], 1, 2).unwrap();
    for (node, rack) in lab.view.nodes.iter_mut().zip(["a", "a", "b", "b"]) {
        node.place.rack = Some(rack.to_owned());
    }
    let slabs = 2 * DRIVES_TRIED_MAX / lab.view.drives.len();
    lab.volume.slabs = vec![copies([drive_id(1, 1), drive_id(3, 1)]); slabs];
    let plan = plan_apart(&lab.view, &lab.volume, 4, 0);
    assert!(plan.moves.is_empty() && !plan.is_cut_short);
    lab.volume.slabs[slabs / 2] = copies([drive_id(1, 1), drive_id(2, 1)]);
    for turn in 0..4 {
        let plan = plan_apart(&lab.view, &lab.volume, 4, turn);
        let moved: Vec<SlabIndex> = plan.moves.iter().map(|next| next.slab).collect();
        assert_eq!(moved, [SlabIndex((slabs / 2) as u32)], "turn {turn}");
        assert!(!plan.is_cut_short);
    }
}
