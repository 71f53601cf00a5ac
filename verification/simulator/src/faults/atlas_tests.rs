use spandrel_shared::DriveId;

use super::*;
use crate::checkers::testing::{drive_id, marked, volume};
use crate::faults::DrivePlace;
use crate::nodes::node_id;

/// Servers that are all up, and their volumes.
struct World {
    up: Vec<bool>,
    ids: Vec<NodeId>,
    volumes: Vec<VolumeMembership>,
}

impl World {
    /// `count` servers and a volume with copies on the first three of them.
    fn new(count: usize) -> Self {
        let ids = (0..count).map(node_id).collect();
        Self { up: vec![true; count], ids, volumes: vec![volume(&[&[0, 1, 2]])] }
    }

    fn at(&self, now_ms: u64) -> Surroundings<'_> {
        Surroundings { now_ms, up: &self.up, ids: &self.ids, volumes: &self.volumes }
    }
}

fn place(node: usize) -> DrivePlace {
    DrivePlace { node, drive: 0 }
}

fn rot(node: usize) -> Fault {
    Fault::Rot { place: place(node), newest_per_mille: 500, others: 0, power_cut: false }
}

fn stop(node: usize) -> Fault {
    Fault::Stop { node, power_cut: true, away_ms: 1000 }
}

/// An atlas that has seen these faults.
fn after(faults: &[Fault], world: &World) -> Atlas {
    let mut atlas = Atlas::default();
    for fault in faults {
        assert!(atlas.permits(fault, &world.at(0)), "{fault:?}");
        let lost: Vec<DriveId> = match fault {
            Fault::LoseDrives { node, .. } => vec![drive_id(*node)],
            Fault::OldImage { place, .. } => vec![drive_id(place.node)],
            _ => Vec::new(),
        };
        atlas.note(fault, &lost, &world.at(0));
    }
    atlas
}

#[test]
fn without_damage_everything_may_happen_at_once() {
    let world = World::new(3);
    let isolate = |node| Fault::Isolate { node, inbound: true, outbound: true, for_ms: 9000 };
    let faults = [
        stop(0),
        stop(1),
        stop(2),
        Fault::PowerCutAll { away_ms: 100 },
        isolate(0),
        isolate(1),
        Fault::Pause { node: 2, for_ms: 100 },
        Fault::DriveHangs { place: place(0), for_ms: 100 },
        Fault::NoRoom { place: place(1), for_ms: 100 },
        Fault::StateOutage { for_ms: 100 },
    ];
    let atlas = after(&faults, &world);
    assert!(atlas.damaged().is_empty());
}

#[test]
fn a_second_damaged_server_is_refused() {
    let world = World::new(3);
    let lose = |node| Fault::LoseDrives { node, away_ms: 0 };
    for first in [rot(0), Fault::StrayWrite { place: place(0), misdirected: true }, lose(0)] {
        let atlas = after(std::slice::from_ref(&first), &world);
        let old_image = Fault::OldImage { place: place(2), for_ms: 0, power_cut_all: false };
        let unreadable = Fault::Unreadable { place: place(2), blocks: 1 };
        for second in [rot(1), lose(1), old_image, unreadable] {
            assert!(!atlas.permits(&second, &world.at(0)), "{second:?} behind {first:?}");
        }
    }
    assert!(after(&[rot(0)], &world).permits(&rot(0), &world.at(0)), "the same server once more");
}

#[test]
fn the_last_good_copy_is_left_alone_until_the_damage_is_healed() {
    let world = World::new(4);
    let mut atlas = after(&[rot(0), stop(1)], &world);
    assert!(!atlas.permits(&stop(2), &world.at(0)), "it has the last copy that is good");
    assert!(!atlas.permits(&Fault::PowerCutAll { away_ms: 0 }, &world.at(0)));
    assert!(!atlas.permits(&Fault::DriveHangs { place: place(2), for_ms: 1 }, &world.at(0)));
    assert!(atlas.permits(&stop(3), &world.at(0)), "it has none");
    assert!(atlas.permits(&stop(0), &world.at(0)), "it is damaged already");
    atlas.content_is_whole(0);
    assert!(atlas.permits(&stop(2), &world.at(0)));
}

#[test]
fn an_older_state_is_for_worlds_without_damage() {
    let world = World::new(4);
    let older = Fault::OlderState { in_order: true, away_ms: 100, for_ms: 1000 };
    assert!(after(&[stop(1)], &world).permits(&older, &world.at(0)));
    assert!(!after(&[rot(3)], &world).permits(&older, &world.at(0)), "all servers may have stale copies");
    assert!(!after(&[older], &world).permits(&rot(3), &world.at(0)));
}

#[test]
fn damage_is_refused_while_the_other_copies_may_become_stale() {
    let world = World::new(4);
    let atlas = after(&[stop(1), stop(2)], &world);
    assert!(!atlas.permits(&rot(0), &world.at(0)));
    assert!(atlas.permits(&rot(3), &world.at(0)), "it has no copy, and the first server has a good one");
}

#[test]
fn an_exposure_ends_some_time_after_its_fault() {
    let world = World::new(4);
    let atlas = after(&[rot(0), stop(1)], &world);
    let end_ms = 1000 + AFTERMATH_MS;
    assert!(!atlas.permits(&stop(2), &world.at(end_ms - 1)));
    assert!(atlas.permits(&stop(2), &world.at(end_ms)));
}

#[test]
fn the_longest_of_several_exposures_counts() {
    let world = World::new(4);
    let longer = Fault::Stop { node: 1, power_cut: false, away_ms: 5000 };
    let atlas = after(&[rot(0), longer, stop(1)], &world);
    assert!(!atlas.permits(&stop(2), &world.at(5000 + AFTERMATH_MS - 1)));
}

#[test]
fn a_stale_copy_and_one_that_is_away_are_not_good() {
    let mut world = World::new(4);
    let atlas = after(&[rot(0)], &world);
    assert!(atlas.permits(&stop(1), &world.at(0)));
    world.volumes = vec![marked(volume(&[&[0, 1, 2]]), 2)];
    assert!(!atlas.permits(&stop(1), &world.at(0)));
    world.volumes = vec![volume(&[&[0, 1, 2]])];
    world.up[2] = false;
    assert!(!atlas.permits(&stop(1), &world.at(0)));
}

#[test]
fn every_slab_of_every_volume_needs_a_good_copy() {
    let mut world = World::new(4);
    world.volumes.push(volume(&[&[0, 1, 2], &[0, 1]]));
    let atlas = after(&[rot(0)], &world);
    assert!(!atlas.permits(&stop(1), &world.at(0)), "the second volume's second slab");
    assert!(atlas.permits(&stop(2), &world.at(0)));
}

/// A server that is cut off goes on, and may mark the copies of those that it does not reach.
#[test]
fn two_sheltered_servers_keep_one_that_is_cut_off_from_marking() {
    let pause = Fault::Pause { node: 1, for_ms: 1000 };
    assert!(after(&[rot(0)], &World::new(4)).permits(&pause, &World::new(4).at(0)));
    assert!(!after(&[rot(0)], &World::new(3)).permits(&pause, &World::new(3).at(0)));
    assert!(
        after(&[rot(0)], &World::new(3)).permits(&stop(1), &World::new(3).at(0)),
        "one that is off marks nobody"
    );
}

/// It does not count as alive, so one that is cut off from the others may be most of those that are.
#[test]
fn a_server_without_the_state_keeps_nobody_from_marking() {
    let world = World::new(4);
    let cut_off = Fault::StateCutOff { node: 3, for_ms: 1000 };
    let isolate = Fault::Isolate { node: 1, inbound: true, outbound: true, for_ms: 1000 };
    assert!(after(&[rot(0)], &world).permits(&isolate, &world.at(0)));
    assert!(!after(&[rot(0), cut_off], &world).permits(&isolate, &world.at(0)));
}

/// Where renewals get lost of what shows who is alive, one that is cut off may soon be the only one that counts.
#[test]
fn nobody_is_cut_off_beside_damage_while_entries_run_out() {
    let world = World::new(4);
    let isolate = Fault::Isolate { node: 1, inbound: true, outbound: true, for_ms: 1000 };
    let losses = Fault::StateLosses { requests: 100, answers: 300, late: 300, for_ms: 1000 };
    let atlas = after(&[rot(0), losses.clone()], &world);
    let end_ms = 1000 + AFTERMATH_MS;
    assert!(!atlas.permits(&isolate, &world.at(end_ms - 1)));
    assert!(atlas.permits(&isolate, &world.at(end_ms)));
    assert!(!after(&[rot(0), isolate.clone()], &world).permits(&losses, &world.at(0)));
    assert!(!after(&[isolate.clone(), losses.clone()], &world).permits(&rot(0), &world.at(0)));
    assert!(after(&[rot(0)], &world).permits(&losses, &world.at(0)), "with nobody cut off");
    let outage = Fault::StateOutage { for_ms: 1000 };
    assert!(after(&[rot(0), outage], &world).permits(&isolate, &world.at(0)), "no entry runs out meanwhile");
}

#[test]
fn a_lost_drive_is_damage_until_no_copy_in_sync_is_expected_on_it() {
    let world = World::new(4);
    let mut atlas = after(&[Fault::LoseDrives { node: 0, away_ms: 0 }], &world);
    atlas.content_is_whole(0);
    atlas.forget_lost_drives(&world.volumes);
    assert!(!atlas.permits(&rot(3), &world.at(20_000)), "the state still counts on the drive");
    atlas.forget_lost_drives(&[marked(volume(&[&[0, 1, 2]]), 0)]);
    assert!(atlas.damaged().is_empty());
    assert!(atlas.permits(&rot(3), &world.at(20_000)));
}

/// Whoever comes back first must wait for the others, or for the true drive: both hold everything.
#[test]
fn an_old_image_may_come_back_first_if_nothing_else_is_damaged() {
    let world = World::new(3);
    let old_image = Fault::OldImage { place: place(0), for_ms: 9000, power_cut_all: true };
    assert!(after(&[stop(1), stop(2)], &world).permits(&old_image, &world.at(0)));
    assert!(!after(&[rot(0)], &world).permits(&old_image, &world.at(0)));
    let atlas = after(&[old_image], &world);
    for next in [rot(0), rot(1), stop(1), Fault::PowerCutAll { away_ms: 0 }] {
        assert!(!atlas.permits(&next, &world.at(8000)), "{next:?}");
    }
}

#[test]
fn content_stays_suspect_when_a_lost_drive_is_forgotten() {
    let world = World::new(4);
    let mut atlas =
        after(&[rot(0), Fault::OldImage { place: place(0), for_ms: 0, power_cut_all: false }], &world);
    atlas.forget_lost_drives(&[marked(volume(&[&[0, 1, 2]]), 0)]);
    assert!(atlas.damaged()[&0].content);
    atlas.content_is_whole(0);
    assert!(atlas.damaged().is_empty());
}

/// Whatever moves, a slab has one copy on the damaged server at most, and nothing happens to the others.
#[test]
fn copies_move_beside_damage_that_shows_if_nothing_else_happens() {
    let world = World::new(4);
    let retire = Fault::Retire { place: place(1), for_ms: 1000 };
    let grow = Fault::Grow { volume: 0, blocks: 8 };
    for moving in [&retire, &grow] {
        assert!(after(&[rot(0)], &world).permits(moving, &world.at(0)), "{moving:?}");
        let atlas = after(&[moving.clone(), rot(0)], &world);
        assert!(atlas.permits(&stop(0), &world.at(0)), "the damaged one");
        assert!(
            !atlas.permits(&stop(1), &world.at(0)),
            "a copy may have come to be the only other one there"
        );
        assert!(!atlas.permits(&stop(3), &world.at(0)), "it holds nothing yet");
        assert!(!after(&[stop(3), moving.clone()], &world).permits(&rot(0), &world.at(0)));
        assert!(after(&[stop(0), moving.clone()], &world).permits(&rot(0), &world.at(0)), "the same one");
    }
    let mut atlas = Atlas::new(true);
    assert!(atlas.permits(&rot(0), &world.at(0)), "they move all the time");
    atlas.note(&rot(0), &[], &world.at(0));
    assert!(!atlas.permits(&stop(1), &world.at(0)));
    assert!(!atlas.permits(&rot(1), &world.at(0)), "one place at a time");
}

#[test]
fn no_copies_move_beside_what_does_not_show_or_is_gone() {
    let world = World::new(4);
    let retire = Fault::Retire { place: place(1), for_ms: 1000 };
    let stray = Fault::StrayWrite { place: place(0), misdirected: false };
    let unreadable = Fault::Unreadable { place: place(0), blocks: 3 };
    assert!(after(std::slice::from_ref(&unreadable), &world).permits(&retire, &world.at(0)));
    let lose_cache = Fault::LoseCache { place: place(0), power_cut: true, for_ms: 0 };
    for gone in [stray, Fault::LoseDrives { node: 0, away_ms: 0 }, lose_cache] {
        assert!(!after(std::slice::from_ref(&gone), &world).permits(&retire, &world.at(20_000)), "{gone:?}");
        assert!(!after(std::slice::from_ref(&retire), &world).permits(&gone, &world.at(0)), "{gone:?}");
        assert!(!Atlas::new(true).permits(&gone, &world.at(0)), "{gone:?}");
    }
    let lacking = World { volumes: vec![marked(volume(&[&[0, 1, 2]]), 1)], ..World::new(4) };
    assert!(after(&[unreadable], &lacking).permits(&rot(0), &lacking.at(0)));
    assert!(
        !after(&[rot(0)], &lacking).permits(&retire, &lacking.at(0)),
        "the last whole copy could go to n1"
    );
}

#[test]
fn copies_move_again_when_what_a_lost_cache_drive_held_was_found_whole() {
    let world = World::new(4);
    let retire = Fault::Retire { place: place(1), for_ms: 1000 };
    let lose_cache = Fault::LoseCache { place: place(0), power_cut: false, for_ms: 100 };
    let mut atlas = after(&[lose_cache, rot(0)], &world);
    assert!(!atlas.permits(&retire, &world.at(20_000)));
    atlas.content_is_whole(0);
    assert!(after(&[rot(0)], &world).permits(&retire, &world.at(20_000)));
    assert!(atlas.permits(&retire, &world.at(20_000)));
}
