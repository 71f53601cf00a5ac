use spandrel_cluster::records::VolumeRoomRecord;
use spandrel_cluster::store::Revision;
use spandrel_cluster::{VolumeOwner, VolumeRecord, VolumeState};
use spandrel_shared::{ConfigurationVersion, ProcessIncarnation, SlabGeometry};
use spandrel_volume::LegId;

use super::*;

/// A volume of this process with these stale marks.
fn membership(revision: u64, stale: &[DriveId]) -> VolumeMembership {
    let shard = ShardId::first(NodeId::from_random(1, 1));
    let record = VolumeRecord {
        name: "v".to_owned(),
        size_bytes: 4 << 20,
        grows_to_bytes: None,
        copies: 3,
        write_copies_min: 1,
        slab_bytes: SlabGeometry::new(4 << 20).expect("4 MiB is a slab size"),
        owner: Some(VolumeOwner { shard, incarnation: ProcessIncarnation::from_random(1, 1) }),
        preferred_owner: None,
        writer: None,
        epoch: Epoch(3),
        configuration: ConfigurationVersion(revision),
        state: VolumeState::Ready,
        iops_limit: None,
        is_pinned: false,
        generation: 0,
        growth: None,
        is_growth_given_up: false,
        created_unix_ms: 0,
    };
    VolumeMembership {
        volume: VolumeId::from_random(5, 5),
        record,
        revision: Revision(revision),
        sets: Vec::new(),
        to_come: Vec::new(),
        marks: stale.iter().map(|drive| (*drive, Version::ZERO)).collect(),
        room: VolumeRoomRecord::default(),
        lost: Default::default(),
        nodes: BTreeMap::new(),
        read_at: Revision(revision),
    }
}

#[test]
fn a_change_whose_answer_comes_after_that_of_a_later_one_counts_only_if_it_still_stands() {
    let drive = DriveId::from_random(7, 7);
    let mut seen = membership(1, &[drive]);
    let (promoted, marked_again) = (membership(2, &[]), membership(3, &[drive]));
    let promote = MembershipChange::Promote(LegId::standing(drive));
    assert!(is_made(&promoted, &promote, 0), "the store has made it");

    let newest = adopt(&mut seen, Some(marked_again)).expect("it is the owner");
    assert_eq!(newest.revision, Revision(3));
    let newest = adopt(&mut seen, Some(promoted)).expect("it is the owner");
    assert!(!is_made(&newest, &promote, 0), "the drive was marked again meanwhile");
    assert_eq!((newest.revision, seen.revision), (Revision(3), Revision(3)));
}

#[test]
fn an_ownership_that_was_overtaken_adopts_nothing() {
    let mut seen = membership(1, &[]);
    let mut overtaken = membership(2, &[]);
    overtaken.record.epoch = Epoch(4);
    assert_eq!(adopt(&mut seen, Some(overtaken)), Err(MembershipError::NotOwner));
    assert_eq!(adopt(&mut seen, None), Err(MembershipError::NotOwner));
    assert_eq!(seen, membership(1, &[]));
}
