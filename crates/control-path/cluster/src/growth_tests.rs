use std::collections::BTreeSet;

use spandrel_shared::{ConfigurationVersion, Epoch, SlabIndex, Version};

use super::*;
use crate::copy_sets::CopyBatch;
use crate::store::Selection;
use crate::test_cluster::{SLAB_BYTES, TestCluster, TestState, code, drive, new_volume, owner, plan, volume};
use crate::volumes::mirror_sets_from;

/// A volume of `slabs` slabs in three copies on nodes 1 to 3 of 5, owned by node 1.
async fn owned(state: &TestState, slabs: u32) -> VolumeMembership {
    let room = state.pool_room().await.expect("no faults");
    let ready = state.create_volume(&new_volume(1, slabs, 3), &plan(slabs, 3, 3, 1, 1), &room).await;
    state
        .take_volume(volume(1), &ready.expect("there is room"), owner(1))
        .await
        .expect("nobody else is there");
    read(state).await
}

async fn read(state: &TestState) -> VolumeMembership {
    state.membership(volume(1)).await.expect("it can be read").expect("the volume is there")
}

fn bytes(slabs: u32) -> u64 {
    u64::from(slabs) * SLAB_BYTES
}

/// Copy sets for more slabs, on nodes 3 to 5.
fn more(first: u32, slabs: u32, batch: u64) -> Vec<CopySet> {
    let drives = [drive(3, 0), drive(4, 0), drive(5, 0)];
    let slabs = (0..slabs).map(|_| drives.as_slice());
    mirror_sets_from(first, slabs, CopyBatch::from_random(batch, batch), 3)
}

fn growth(number: u64) -> GrowthId {
    GrowthId::from_random(1, number)
}

async fn begin(
    state: &TestState,
    seen: &VolumeMembership,
    slabs: u32,
    batch: u64,
) -> Result<VolumeMembership, StateError> {
    let room = state.pool_room().await.expect("no faults");
    let first = seen.record.slab_count();
    state
        .begin_growth(
            owner(1),
            seen,
            (bytes(first + slabs), growth(batch)),
            &more(first, slabs, batch),
            &room,
        )
        .await
}

#[test]
fn slabs_that_are_to_come_count_when_the_growth_is_finished() {
    let cluster = TestCluster::new(1, 5, 1, 20);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = owned(&state, 3).await;
        let begun = begin(&state, &seen, 2, 7).await.expect("there is room");
        assert_eq!(read(&state).await, begun, "what is returned is what the state says");
        assert_eq!((begun.record.size_bytes, begun.record.grows_to_bytes), (bytes(3), Some(bytes(5))));
        assert_eq!(begun.record.growth, Some(growth(7)));
        assert_eq!((&begun.sets, begun.to_come.len()), (&seen.sets, 2));
        assert_eq!((begun.record.epoch, begun.record.configuration.0), (Epoch(1), 2));
        assert_eq!((begun.room.slabs[&drive(5, 0)], begun.room.slabs[&drive(3, 0)]), (2, 5));
        assert_eq!(state.pool_room().await.expect("no faults").free(drive(5, 0)), 18);
        let finished = state.finish_growth(owner(1), &begun).await.expect("it can be");
        assert_eq!(read(&state).await, finished);
        assert_eq!((finished.record.size_bytes, finished.record.grows_to_bytes), (bytes(5), None));
        assert_eq!(finished.record.growth, Some(growth(7)), "who asks again is told that it was done");
        assert_eq!((finished.record.epoch, finished.record.owner), (Epoch(2), Some(owner(1))));
        assert_eq!(finished.sets.len(), 5);
        assert_eq!(finished.sets[3..], begun.to_come[..]);
        assert_eq!(finished.room, begun.room, "its room was promised before");
        assert_eq!(state.finish_growth(owner(1), &begun).await, Err(StateError::Conflict), "only once");
    });
}

#[test]
fn a_growth_that_is_taken_back_leaves_nothing() {
    let cluster = TestCluster::new(1, 5, 1, 2000);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        // Within a chunk, up to its border, over it, and from it on.
        for (slabs, more) in [(3, 2), (3, 253), (3, 600), (256, 256)] {
            let seen = owned(&state, slabs).await;
            let begun = begin(&state, &seen, more, 7).await.expect("there is room");
            assert_eq!((begun.sets.len(), begun.to_come.len()), (slabs as usize, more as usize));
            assert_eq!(read(&state).await, begun);
            let abandoned = state.abandon_growth(owner(1), &begun).await.expect("it can be");
            assert_eq!(read(&state).await, abandoned);
            let VolumeMembership { record, .. } = &abandoned;
            assert_eq!(
                (record.size_bytes, record.grows_to_bytes, record.epoch),
                (bytes(slabs), None, Epoch(1))
            );
            assert_eq!((&abandoned.sets, &abandoned.to_come), (&seen.sets, &Vec::new()));
            assert_eq!(abandoned.room, seen.room);
            state.delete_volume(volume(1), 5).await.expect("it can be");
            state.remove(&StateKey::VolumeTombstone(volume(1))).await.expect("it can be");
        }
    });
}

#[test]
fn a_volume_that_is_deleted_while_it_grows_leaves_nothing() {
    let cluster = TestCluster::new(1, 5, 1, 2000);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = owned(&state, 3).await;
        let begun = begin(&state, &seen, 600, 7).await.expect("there is room");
        state.delete_volume(volume(1), 5).await.expect("it can be");
        assert_eq!(state.finish_growth(owner(1), &begun).await, Err(StateError::Conflict));
        let prefixes = ["volumes", "slabs/", "rooms/"].map(Selection::prefix);
        let left = state.snapshot(&prefixes).await.expect("it can be read");
        assert!(left.groups.iter().all(Vec::is_empty), "{:?}", left.groups);
    });
}

#[test]
fn a_growth_within_the_last_slab_takes_no_room() {
    let cluster = TestCluster::new(1, 5, 1, 20);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let room = state.pool_room().await.expect("no faults");
        let small = crate::volumes::NewVolume { size_bytes: 4096, ..new_volume(1, 1, 3) };
        let ready = state.create_volume(&small, &plan(1, 3, 3, 1, 1), &room).await.expect("there is room");
        state.take_volume(volume(1), &ready, owner(1)).await.expect("nobody else is there");
        let seen = read(&state).await;
        let room = state.pool_room().await.expect("no faults");
        let begun = state
            .begin_growth(owner(1), &seen, (SLAB_BYTES, growth(7)), &[], &room)
            .await
            .expect("it can be");
        assert_eq!((begun.to_come.len(), &begun.room), (0, &seen.room));
        let finished = state.finish_growth(owner(1), &begun).await.expect("it can be");
        assert_eq!((finished.record.size_bytes, &finished.sets), (SLAB_BYTES, &seen.sets));
    });
}

/// Marks, moves and who may write go on while a volume grows, and the slabs to come stay as they are.
#[test]
fn other_changes_of_a_volume_keep_what_is_to_come() {
    let cluster = TestCluster::new(1, 5, 1, 20);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = owned(&state, 3).await;
        let begun = begin(&state, &seen, 2, 7).await.expect("there is room");
        let marks = BTreeMap::from([(drive(2, 0), Version::new(Epoch(1), 4))]);
        let marked = state.mark_stale(owner(1), &begun, &marks).await.expect("others are in sync");
        assert_eq!((marked.record.grows_to_bytes, &marked.to_come), (Some(bytes(5)), &begun.to_come));
        assert_eq!(read(&state).await, marked);
        let part = marked.sets[0].on(drive(1, 0)).expect("node 1 has a copy").part;
        let moves = [spandrel_shared::Move { slab: SlabIndex(0), part, to: drive(4, 0) }];
        let room = state.pool_room().await.expect("no faults");
        let batch = CopyBatch::from_random(9, 9);
        let moving =
            state.begin_copies(owner(1), &marked, &moves, batch, &room).await.expect("there is room");
        assert_eq!(read(&state).await, moving);
        assert_eq!((moving.room.slabs[&drive(4, 0)], &moving.to_come), (3, &begun.to_come));
        let moved = state.finish_copies(owner(1), &moving, drive(4, 0)).await.expect("it can be");
        assert_eq!(read(&state).await, moved);
        let finished = state.finish_growth(owner(1), &moved).await.expect("it can be");
        assert_eq!(read(&state).await, finished);
        assert_eq!((finished.sets.len(), &finished.sets[..3]), (5, &moved.sets[..]));
        assert_eq!(finished.record.configuration, ConfigurationVersion(6));
    });
}

#[test]
fn another_owner_ends_what_one_has_begun() {
    let cluster = TestCluster::new(1, 5, 1, 20);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = owned(&state, 3).await;
        let begun = begin(&state, &seen, 2, 7).await.expect("there is room");
        let stored = crate::records::Stored { record: begun.record.clone(), revision: begun.revision };
        state.take_volume(volume(1), &stored, owner(2)).await.expect("it can be");
        let taken = read(&state).await;
        assert_eq!((taken.record.grows_to_bytes, &taken.to_come), (Some(bytes(5)), &begun.to_come));
        assert_eq!(state.finish_growth(owner(1), &begun).await, Err(StateError::Conflict));
        assert_eq!(state.abandon_growth(owner(1), &begun).await, Err(StateError::Conflict));
        assert_eq!(code(state.finish_growth(owner(1), &taken).await), "NOT_OWNER");
        let finished = state.finish_growth(owner(2), &taken).await.expect("it can be");
        assert_eq!((finished.record.size_bytes, finished.record.epoch), (bytes(5), Epoch(3)));
        assert_eq!(code(state.abandon_growth(owner(2), &finished).await), "VOLUME_NOT_GROWING");
    });
}

#[test]
fn what_cannot_grow_is_refused_and_nothing_changes() {
    let cluster = TestCluster::new(1, 5, 1, 20);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = owned(&state, 3).await;
        let room = state.pool_room().await.expect("no faults");
        for size_bytes in [bytes(3), bytes(2)] {
            let refused = state.begin_growth(owner(1), &seen, (size_bytes, growth(7)), &[], &room).await;
            assert_eq!(code(refused), "SIZE_NOT_LARGER");
        }
        let uneven = state.begin_growth(owner(1), &seen, (bytes(3) + 5, growth(7)), &[], &room).await;
        assert_eq!(code(uneven), "VOLUME_INVALID");
        let foreign = state.begin_growth(owner(2), &seen, (bytes(4), growth(7)), &more(3, 1, 7), &room).await;
        assert_eq!(code(foreign), "NOT_OWNER");
        assert_eq!(code(begin(&state, &seen, 21, 7).await), "POOL_CHANGED", "nodes 4 and 5 hold 20");
        assert_eq!(read(&state).await, seen);
        let begun = begin(&state, &seen, 1, 7).await.expect("there is room");
        assert_eq!(code(begin(&state, &begun, 2, 8).await), "VOLUME_GROWING");
    });
}

/// Two volumes that grow at once do not count on the same room.
#[test]
fn room_that_was_promised_meanwhile_is_not_promised_again() {
    let cluster = TestCluster::new(1, 5, 1, 20);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = owned(&state, 3).await;
        let room = state.pool_room().await.expect("no faults");
        let other = state.create_volume(&new_volume(2, 1, 3), &plan(1, 3, 3, 1, 2), &room).await;
        other.expect("there is room");
        let begun = state.begin_growth(owner(1), &seen, (bytes(4), growth(7)), &more(3, 1, 7), &room).await;
        assert_eq!(begun, Err(StateError::Conflict));
    });
}

#[test]
fn a_slab_never_begins_without_a_copy_in_sync() {
    let cluster = TestCluster::new(1, 5, 1, 20);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = owned(&state, 3).await;
        let on = |nodes: [u8; 3]| {
            let drives = nodes.map(|node| drive(node, 0));
            mirror_sets_from(3, [drives.as_slice()], CopyBatch::from_random(7, 7), 3)
        };
        let since = Version::new(Epoch(1), 4);
        let stale: BTreeMap<_, _> = [2, 3].into_iter().map(|node| (drive(node, 0), since)).collect();
        let marked = state.mark_stale(owner(1), &seen, &stale).await.expect("node 1 is in sync");
        let room = state.pool_room().await.expect("no faults");
        let begun = state.begin_growth(owner(1), &marked, (bytes(4), growth(7)), &on([2, 3, 4]), &room).await;
        let begun = begun.expect("node 4 lacks nothing");
        // Node 4 takes another copy, which becomes stale, before the slab counts.
        let drives: BTreeSet<DriveId> = begun.to_come[0].members.iter().map(|member| member.drive).collect();
        let all_marked = VolumeMembership {
            marks: drives.into_iter().map(|drive| (drive, since)).collect(),
            ..begun.clone()
        };
        assert_eq!(code(state.finish_growth(owner(1), &all_marked).await), "VOLUME_DEGRADED");
        let finished = state.finish_growth(owner(1), &begun).await.expect("it can be");
        assert_eq!(
            finished.degraded_slabs().count(),
            4,
            "the others are brought up to date with what is there"
        );
    });
}

/// All that comes at once fits into one transaction, whatever the drives are.
#[test]
fn the_most_slabs_at_once_fit_into_a_transaction() {
    let cluster = TestCluster::new(1, 5, 1, 10_000);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let seen = owned(&state, 255).await;
        let begun = begin(&state, &seen, SLABS_TO_COME_MAX, 7).await.expect("there is room");
        assert_eq!(read(&state).await, begun);
        let abandoned = state.abandon_growth(owner(1), &begun).await.expect("it can be");
        assert_eq!(abandoned.sets, seen.sets);
    });
}
