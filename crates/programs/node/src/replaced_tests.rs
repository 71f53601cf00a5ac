use super::*;

fn drive(number: u8) -> DriveId {
    DriveId::from_bytes([number; 16])
}

fn volume() -> VolumeId {
    VolumeId::from_random(5, 5)
}

/// The copies of the volume on one drive.
fn here(copies: u32) -> BTreeMap<VolumeId, BTreeMap<DriveId, u32>> {
    [(volume(), [(drive(1), copies)].into())].into()
}

/// What the volume was promised on that drive.
fn rooms(slabs: u32, revision: u64) -> BTreeMap<VolumeId, Stored<VolumeRoomRecord>> {
    let record = VolumeRoomRecord { slabs: [(drive(1), slabs)].into(), ..VolumeRoomRecord::default() };
    [(volume(), Stored { record, revision: Revision(revision) })].into()
}

/// What is due when a node that had looked at all of it sees this.
fn due_after(seen: (u32, u64), copies: u32, now: (u32, u64)) -> bool {
    let mut due = Due { volumes: BTreeSet::new(), rooms: BTreeMap::new() };
    due.note(&here(seen.0), &rooms(seen.0, seen.1));
    assert!(due.volumes.is_empty(), "as many as were promised");
    due.note(&here(copies), &rooms(now.0, now.1));
    due.volumes.contains(&volume())
}

#[test]
fn copies_are_compared_when_the_room_of_their_volume_has_changed_or_there_are_more() {
    assert!(!due_after((3, 7), 3, (3, 7)));
    assert!(due_after((3, 7), 4, (3, 7)), "more than were promised");
    assert!(
        due_after((3, 7), 3, (3, 8)),
        "one that is promised and not made yet may hide one that is replaced"
    );
    assert!(!due_after((3, 7), 2, (3, 7)), "one is not made yet");
}

#[test]
fn what_was_here_when_the_process_began_is_compared_once() {
    let mut due = Due { volumes: [volume(), VolumeId::from_random(6, 6)].into(), rooms: BTreeMap::new() };
    due.note(&here(3), &rooms(3, 7));
    assert_eq!(due.volumes, [volume()].into(), "nothing of the other one is here any more");
    due.volumes.clear();
    due.note(&here(3), &rooms(3, 7));
    assert!(due.volumes.is_empty());
}
