use spandrel_shared::NodeId;

use super::*;

fn member(shard: u8, drive: u8) -> Member {
    Member {
        shard: ShardId::first(NodeId::from_bytes([shard; 16])),
        drive: DriveId::from_bytes([drive; 16]),
        copy: CopyId::from_bytes([drive; 16]),
        part: 0,
        is_building: false,
    }
}

#[test]
fn the_last_copy_of_any_slab_is_never_marked() {
    let building = Member { is_building: true, ..member(3, 5) };
    let mut membership = Membership {
        volume: VolumeId::from_bytes([1; 16]),
        size_bytes: 8 << 20,
        geometry: SlabGeometry::new(4 << 20).unwrap(),
        epoch: Epoch(1),
        configuration: ConfigurationVersion(1),
        copies: 2,
        slabs: vec![vec![member(1, 1), member(2, 2)], vec![member(2, 3), member(3, 4)]],
        stale: BTreeMap::from([(DriveId::from_bytes([2; 16]), Version::ZERO)]),
        unsettled: None,
    };
    let drives = |numbers: &[u8]| numbers.iter().map(|number| DriveId::from_bytes([*number; 16])).collect();
    assert!(membership.may_mark(&drives(&[3])));
    assert!(membership.may_mark(&drives(&[4])));
    assert!(!membership.may_mark(&drives(&[3, 4])), "slab 1 would have none");
    assert!(!membership.may_mark(&drives(&[1])), "the other copy of slab 0 is stale");
    membership.slabs[1].push(building);
    assert!(!membership.may_mark(&drives(&[3, 4])), "one that is being built is none");
    let legs: Vec<String> = membership.legs().keys().map(ToString::to_string).collect();
    assert_eq!((legs.len(), membership.drives().len()), (5, 5));
    assert!(legs[4].ends_with("(being built)"), "{legs:?}");
}
