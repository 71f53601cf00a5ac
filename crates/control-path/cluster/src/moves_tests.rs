use spandrel_shared::Version;

use super::*;
use crate::test_cluster::{TestCluster, TestState, code, drive, new_volume, owner, plan, volume};

/// A volume of three slabs with copies on nodes 1 to 3 of 5, owned by node 1.
async fn owned(state: &TestState) -> VolumeMembership {
    let room = state.pool_room().await.expect("no faults");
    let ready = state.create_volume(&new_volume(1, 3, 3), &plan(3, 3, 3, 1, 1), &room).await;
    state
        .take_volume(volume(1), &ready.expect("there is room"), owner(1))
        .await
        .expect("nobody else is there");
    read(state).await
}

async fn read(state: &TestState) -> VolumeMembership {
    state.membership(volume(1)).await.expect("it can be read").expect("the volume is there")
}

fn to(slab: u32, part: u8, node: u8) -> Move {
    Move { slab: SlabIndex(slab), part, to: drive(node, 0) }
}

async fn begin(
    state: &TestState,
    seen: &VolumeMembership,
    moves: &[Move],
    batch: u64,
) -> Result<VolumeMembership, StateError> {
    let room = state.pool_room().await.expect("no faults");
    state.begin_copies(owner(1), seen, moves, CopyBatch::from_random(batch, batch), &room).await
}

/// Where copies of a slab stand, and where some are being built.
fn places(seen: &VolumeMembership, slab: usize) -> (Vec<DriveId>, Vec<DriveId>) {
    let (building, standing): (Vec<&Member>, Vec<&Member>) =
        seen.sets[slab].members.iter().partition(|member| member.building);
    let drives = |members: Vec<&Member>| members.into_iter().map(|member| member.drive).collect();
    (drives(standing), drives(building))
}

#[test]
fn built_copies_take_the_places_of_others_with_all_of_their_drive() {
    let cluster = TestCluster::new(1, 5, 1, 20);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = owned(&state).await;
        let parts: Vec<u8> = (0..2).map(|slab| seen.sets[slab].on(drive(3, 0)).unwrap().part).collect();
        let moves = [to(0, parts[0], 4), to(1, parts[1], 4)];
        let begun = begin(&state, &seen, &moves, 7).await.unwrap();
        assert_eq!(read(&state).await, begun);
        assert_eq!(places(&begun, 0).1, [drive(4, 0)]);
        assert_eq!(places(&begun, 0).0.len(), 3, "the former one counts on");
        assert_eq!(begun.room.slabs[&drive(4, 0)], 2);
        let finished = state.finish_copies(owner(1), &begun, drive(4, 0)).await.unwrap();
        assert_eq!(read(&state).await, finished);
        for slab in 0..2 {
            let (standing, building) = places(&finished, slab);
            assert!(standing.contains(&drive(4, 0)) && !standing.contains(&drive(3, 0)), "{standing:?}");
            assert_eq!((standing.len(), building.len()), (3, 0));
        }
        assert_eq!(finished.sets[2], seen.sets[2]);
        assert_eq!((finished.room.slabs[&drive(3, 0)], finished.room.slabs[&drive(4, 0)]), (1, 2));
    });
}

#[test]
fn copies_that_are_given_up_leave_their_room() {
    let cluster = TestCluster::new(1, 5, 1, 20);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = owned(&state).await;
        let begun = begin(&state, &seen, &[to(0, 0, 4), to(1, 0, 5)], 7).await.unwrap();
        let less = state.abandon_copies(owner(1), &begun, drive(4, 0)).await.unwrap();
        assert_eq!(read(&state).await, less);
        assert_eq!((&less.sets[0], places(&less, 1).1), (&seen.sets[0], vec![drive(5, 0)]));
        assert!(!less.room.slabs.contains_key(&drive(4, 0)));
    });
}

/// The mark is about copies that stand. With the last of them it goes; and no copy may come to stand beside stale ones.
#[test]
fn marks_go_with_the_copies_that_they_are_about() {
    let cluster = TestCluster::new(1, 5, 1, 20);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = owned(&state).await;
        let mark = BTreeMap::from([(drive(3, 0), Version::ZERO)]);
        let marked = state.mark_stale(owner(1), &seen, &mark).await.unwrap();
        let part = |slab: usize| seen.sets[slab].on(drive(3, 0)).unwrap().part;
        let moves: Vec<Move> = (0..3).map(|slab| to(slab, part(slab as usize), 4)).collect();
        let begun = begin(&state, &marked, &moves, 7).await.unwrap();
        assert_eq!(begun.marks, mark);
        let finished = state.finish_copies(owner(1), &begun, drive(4, 0)).await.unwrap();
        assert!(finished.marks.is_empty());
        assert_eq!(read(&state).await, finished);

        let begun = begin(&state, &finished, &[to(0, 0, 5)], 8).await.unwrap();
        let finished = state.finish_copies(owner(1), &begun, drive(5, 0)).await.unwrap();
        let mark = BTreeMap::from([(drive(5, 0), Version::ZERO)]);
        let marked = state.mark_stale(owner(1), &finished, &mark).await.unwrap();
        let begun = begin(&state, &marked, &[to(1, 0, 5)], 9).await.unwrap();
        let refusal = state.finish_copies(owner(1), &begun, drive(5, 0)).await;
        assert_eq!(code(refusal), "COPY_SET_INVALID");
    });
}

#[test]
fn two_copies_are_not_built_in_one_place() {
    let cluster = TestCluster::new(1, 5, 1, 20);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = owned(&state).await;
        let begun = begin(&state, &seen, &[to(0, 0, 4)], 7).await.unwrap();
        assert_eq!(code(begin(&state, &begun, &[to(0, 0, 5)], 8).await), "COPY_BEING_BUILT");
        assert_eq!(code(begin(&state, &seen, &[to(0, 0, 4), to(0, 0, 5)], 8).await), "COPY_BEING_BUILT");
        let beside = begin(&state, &begun, &[to(0, 1, 4)], 8).await;
        assert_eq!(code(beside), "COPY_BEING_BUILT", "what is built on a drive counts together");
        let beside = begin(&state, &begun, &[to(0, 1, 5), to(0, 2, 5)], 8).await;
        assert_eq!(code(beside), "COPY_SET_INVALID", "one drive would hold two of its copies");
    });
}
