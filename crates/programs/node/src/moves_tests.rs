use spandrel_pool::{DriveRoom, NodeRoom};
use spandrel_shared::{NodeId, SlabGeometry, SlabIndex};

use super::*;

/// A pool of two drives of 1000 slabs each.
fn pool(used: [u32; 2]) -> PoolView {
    let node = |number: u8| NodeRoom {
        node: NodeId::from_bytes([number; 16]),
        name: format!("n{number}"),
        is_online: true,
        volumes_owned: 0,
        place: Default::default(),
        is_in_maintenance: false,
    };
    let drive = |number: u8| DriveRoom {
        drive: DriveId::from_bytes([number; 16]),
        node: NodeId::from_bytes([number; 16]),
        slabs_total: 1000,
        slabs_used: used[usize::from(number)],
        slabs_leaving: 0,
        is_online: true,
    };
    let numbers = [0, 1];
    PoolView {
        geometry: SlabGeometry::default(),
        nodes: numbers.map(node).to_vec(),
        drives: numbers.map(drive).to_vec(),
    }
}

fn at_s(seconds: u64) -> Instant {
    Instant::from_nanoseconds(seconds * 1_000_000_000)
}

#[test]
fn copies_are_spread_when_a_pool_stays_uneven() {
    let mut evenness = Evenness::default();
    let mut judge = |changes: u64, second: u64, used: [u32; 2]| {
        evenness.judge(changes, at_s(second), || pool(used));
        evenness.is_lost(at_s(second))
    };
    assert!(!judge(1, 0, [0, 150]), "as even as it need be");
    assert!(!judge(2, 100, [0, 151]), "it may be about to change");
    assert!(!judge(3, 159, [0, 160]));
    assert!(judge(4, 160, [0, 160]));
    assert!(judge(5, 161, [20, 31]), "not even enough yet");
    assert!(!judge(6, 162, [25, 35]));
    assert!(!judge(7, 300, [25, 36]), "as even as it need be");
    assert!(!judge(7, 400, [0, 1000]), "the same pool is not judged twice");
}

fn basis(pool: u64) -> Basis {
    Basis { pool, volume: ConfigurationVersion(1), leaving: BTreeSet::new(), evens_out: false }
}

fn plan(moves: u32, is_cut_short: bool) -> MovesPlan {
    let next = |slab| Move { slab: SlabIndex(slab), part: 0, to: DriveId::from_bytes([1; 16]) };
    MovesPlan { moves: (0..moves).map(next).collect(), without_place: 3, is_cut_short }
}

#[test]
fn nothing_is_planned_anew_until_something_changes_or_a_minute_is_over() {
    let mut moving = Moving::default();
    assert!(!moving.is_at_rest(&basis(1), at_s(0)));
    moving.note(&plan(0, false), basis(1), at_s(0), None);
    assert!(moving.is_at_rest(&basis(1), at_s(59)) && !moving.is_at_rest(&basis(1), at_s(60)));
    assert!(!moving.is_at_rest(&basis(2), at_s(1)));
    let other_drives = Basis { leaving: [DriveId::from_bytes([1; 16])].into(), ..basis(1) };
    assert!(!moving.is_at_rest(&other_drives, at_s(1)));
    assert!(!moving.is_at_rest(&Basis { evens_out: true, ..basis(1) }, at_s(1)));
    assert_eq!((moving.without_place, moving.plans), (3, 1));
    moving.note(&plan(1, false), basis(1), at_s(1), None);
    assert!(!moving.is_at_rest(&basis(1), at_s(1)), "there is more, perhaps");
}

#[test]
fn a_plan_that_was_cut_short_is_soon_followed_by_another_one() {
    let mut moving = Moving::default();
    for second in (0..600).step_by(5) {
        moving.note(&plan(0, true), basis(1), at_s(second), Some(7));
        let at_rest = [4, 5].map(|later| moving.is_at_rest(&basis(1), at_s(second + later)));
        assert_eq!(at_rest, [true, false]);
        assert_eq!(moving.optimized, None, "something may be left to spread");
    }
    moving.note(&plan(0, true), basis(1), at_s(600), Some(7));
    assert_eq!(moving.optimized, Some(7), "it was looked for long enough");
}

#[test]
fn a_rest_can_be_made_shorter_and_not_longer() {
    let mut moving = Moving::default();
    moving.note(&plan(0, true), basis(1), at_s(0), None);
    moving.shorten_rest(at_s(9));
    assert!(moving.is_at_rest(&basis(1), at_s(4)) && !moving.is_at_rest(&basis(1), at_s(5)));
    moving.shorten_rest(at_s(1));
    assert!(!moving.is_at_rest(&basis(1), at_s(1)), "others may have left the last copies to this node");
}

#[test]
fn a_request_to_spread_copies_is_carried_out_when_none_is_left_to_move() {
    let mut moving = Moving::default();
    moving.note(&plan(2, false), basis(1), at_s(0), Some(7));
    assert_eq!(moving.optimized, None);
    moving.note(&plan(0, false), basis(2), at_s(1), Some(7));
    assert_eq!(moving.optimized, None, "others may just begin");
    assert!(
        moving.is_at_rest(&basis(2), at_s(3)) && !moving.is_at_rest(&basis(2), at_s(4)),
        "it is soon known"
    );
    moving.note(&plan(0, false), basis(3), at_s(3), Some(7));
    assert_eq!(moving.optimized, None, "what changes meanwhile does not make it earlier");
    moving.note(&plan(0, false), basis(3), at_s(4), Some(7));
    assert_eq!(moving.optimized, Some(7));
    moving.note(&plan(0, false), basis(3), at_s(5), None);
    assert_eq!(moving.optimized, Some(7), "it was asked once");
}

#[test]
fn a_request_is_carried_out_a_while_after_the_last_copy_moved() {
    let interruptions = [("there is more", plan(1, false), Some(7)), ("others move", plan(0, false), None)];
    for (what, plan_between, request) in
        interruptions.into_iter().chain([("asked again", plan(0, false), Some(8))])
    {
        let mut moving = Moving::default();
        moving.note(&plan(0, false), basis(1), at_s(0), Some(7));
        moving.note(&plan_between, basis(1), at_s(1), request);
        moving.note(&plan(0, false), basis(1), at_s(3), Some(7));
        moving.note(&plan(0, false), basis(1), at_s(5), Some(7));
        assert_eq!(moving.optimized, None, "{what}");
        moving.note(&plan(0, false), basis(1), at_s(6), Some(7));
        assert_eq!(moving.optimized, Some(7), "{what}");
    }
}

#[test]
fn after_changes_that_were_not_made_there_are_pauses_and_they_end() {
    let mut moving = Moving::default();
    let mut pause_s = |at: u64| {
        moving.is_changing = true;
        moving.note_change(false, at_s(at));
        assert!(!moving.is_changing);
        (0..100).find(|seconds| !moving.is_pausing(at_s(at + seconds))).expect("it ends")
    };
    assert_eq!([0, 100, 200, 300, 400, 500].map(&mut pause_s), [1, 2, 4, 8, 16, 16]);
    moving.note_change(true, at_s(501));
    assert!(!moving.is_pausing(at_s(501)));
    moving.note_change(false, at_s(502));
    assert!(!moving.is_pausing(at_s(503)), "it begins anew");
}

/// Two nodes with a copy of each of these slabs on the second one.
fn on_second(slabs: u32, to_spread: u64) -> (Pool, PlacedVolume) {
    let drive = DriveId::from_bytes([1; 16]);
    let copy = PlacedCopy { part: 0, drive, is_whole: true, is_building: false };
    let volume = PlacedVolume { owner: None, slabs: vec![vec![copy]; slabs as usize] };
    (
        Pool { view: pool([0, slabs]), slow: BTreeSet::new(), changes: 1, to_spread, is_others_turn: false },
        volume,
    )
}

/// Owners begin what they have planned without knowing of each other's plans: together that may be too much, and then who
/// found nothing to do has something after all.
#[test]
fn a_request_is_not_carried_out_while_copies_of_others_are_on_their_way() {
    for (under_way, expected) in [(0, Some(7)), (1, None)] {
        let mut view = pool([50, 50 + under_way]);
        view.drives[1].slabs_leaving = under_way;
        assert_eq!(carried_out(&view, &wanted(false, Some(7)), false), expected);
    }
    assert_eq!(carried_out(&pool([50, 50]), &wanted(false, Some(7)), true), None, "that was a repair");
}

/// Each plan goes through all slabs of a volume, so there is a rest after each that has nothing to move, whoever moves the
/// rest, and clients are served in between: both go by what is noted of a plan.
#[test]
fn a_plan_is_followed_by_a_rest_also_when_others_move_what_there_is() {
    let plan = |to_spread, evens_out| {
        let (mut pool, volume) = on_second(400, to_spread);
        let (plan, is_others_turn) = plan_spreading(&mut pool, &volume, evens_out, 0);
        (plan.moves.len(), is_others_turn, pool.to_spread)
    };
    assert_eq!(plan(100, true), (MOVES_AT_ONCE, false, 100 - MOVES_AT_ONCE as u64));
    assert_eq!(plan(0, true), (0, true, 0), "others begin, and this node soon looks again");
    assert_eq!(
        plan(0, false),
        (0, false, 0),
        "nothing is to be evened out: the pool's unevenness is of no matter"
    );
    assert_eq!(plan(100, false), (0, false, 100));
}

/// What is uneven and cannot be otherwise is nobody's turn: else a request would be looked at for as long as it is known.
#[test]
fn what_cannot_move_is_not_waited_for() {
    let copy = |drive| PlacedCopy {
        part: drive,
        drive: DriveId::from_bytes([drive; 16]),
        is_whole: true,
        is_building: false,
    };
    let volume = PlacedVolume { owner: None, slabs: vec![vec![copy(0), copy(1)]; 100] };
    for to_spread in [0, 1] {
        let mut pool = Pool {
            view: pool([100, 400]),
            slow: BTreeSet::new(),
            changes: 1,
            to_spread,
            is_others_turn: false,
        };
        assert!(copies_to_even_out(&pool.view) > 0);
        let (plan, is_others_turn) = plan_spreading(&mut pool, &volume, true, 0);
        assert_eq!((plan.moves.len(), is_others_turn), (0, false));
    }
}

fn wanted(spread: bool, optimize: Option<u64>) -> Wanted {
    Wanted {
        leaving: BTreeSet::new(),
        misses_drives: false,
        useless: BTreeSet::new(),
        spread,
        apart: true,
        optimize,
    }
}

#[test]
fn a_volume_is_evened_out_once_for_each_request() {
    let mut moving = Moving::default();
    assert!(
        moving.is_to_be_evened_out(&wanted(true, None)) && !moving.is_to_be_evened_out(&wanted(false, None))
    );
    assert!(moving.is_to_be_evened_out(&wanted(false, Some(7))));
    moving.note(&plan(0, false), basis(1), at_s(0), Some(7));
    moving.note(&plan(0, false), basis(1), at_s(3), Some(7));
    assert!(!moving.is_to_be_evened_out(&wanted(false, Some(7))), "it was carried out");
    assert!(moving.is_to_be_evened_out(&wanted(false, Some(8))));
}

#[test]
fn nothing_is_built_on_a_drive_that_is_slow() {
    let (mut pool, volume) = on_second(400, 100);
    let slow = BTreeSet::from([DriveId::from_bytes([0; 16])]);
    pool.slow = place_nothing_on(&mut pool.view, &slow);
    assert!(plan_spreading(&mut pool, &volume, true, 0).0.moves.is_empty());
    let lost = BTreeSet::from([DriveId::from_bytes([1; 16])]);
    let plan = plan_replacements(&pool.view, &volume, &lost, MOVES_AT_ONCE, 0);
    assert_eq!((plan.moves.len(), plan.without_place), (0, 400), "there are only these two");
    let plan = plan_replacing(&pool, &volume, &lost, 0);
    assert_eq!(plan.moves.len(), MOVES_AT_ONCE, "a copy on a slow drive is better than none");
}
