use proptest::prelude::*;
use spandrel_shared::{ConfigurationVersion, CopyId, Epoch, SlabGeometry};

use super::*;
use crate::copy_sets::Layout;
use crate::records::VolumeState;

fn drive(number: u8) -> DriveId {
    DriveId::from_bytes([number; 16])
}

fn copy(number: u8) -> CopyId {
    CopyId::from_bytes([number; 16])
}

/// A copy with its number, on a drive.
fn member(number: u8, on: u8, part: u8) -> Member {
    Member { drive: drive(on), copy: copy(number), part, building: false }
}

fn building(number: u8, on: u8, part: u8) -> Member {
    Member { building: true, ..member(number, on, part) }
}

fn set(members: &[Member]) -> CopySet {
    CopySet { layout: Layout::Copies { copies: 3 }, members: members.to_vec() }
}

/// A volume with these sets; drive 12 is the second drive of node 1, and so on.
fn membership(sets: Vec<CopySet>, marked: &[u8]) -> VolumeMembership {
    VolumeMembership {
        volume: VolumeId::from_bytes([9; 16]),
        record: VolumeRecord {
            name: "vm".to_owned(),
            size_bytes: (4 << 20) * sets.len() as u64,
            grows_to_bytes: None,
            copies: 3,
            write_copies_min: 1,
            slab_bytes: SlabGeometry::new(4 << 20).expect("an allowed size"),
            owner: None,
            preferred_owner: None,
            writer: None,
            epoch: Epoch(1),
            configuration: ConfigurationVersion(1),
            state: VolumeState::Ready,
            iops_limit: None,
            is_pinned: false,
            generation: 0,
            growth: None,
            is_growth_given_up: false,
            created_unix_ms: 0,
        },
        revision: Revision(1),
        room: room_of(&sets),
        sets,
        to_come: Vec::new(),
        marks: marked.iter().map(|number| (drive(*number), Version::ZERO)).collect(),
        lost: Default::default(),
        nodes: (10..100).map(|number| (drive(number), NodeId::from_bytes([number / 10; 16]))).collect(),
        read_at: Revision(1),
    }
}

/// Small spaces are tried as a whole: three drives, every state of every copy of a slab, every set
/// of drives to be marked.
#[test]
fn the_last_copy_is_never_marked() {
    for states in 0..4_u32.pow(3) {
        // Of each drive: no copy, one being built, one that is stale, one in sync.
        let state = |number: u8| states / 4_u32.pow(u32::from(number)) % 4;
        let mut members = Vec::new();
        let mut marks = BTreeMap::new();
        for number in 0..3_u8 {
            match state(number) {
                0 => {}
                1 => members.push(building(number, number, number)),
                _ => members.push(member(number, number, number)),
            }
            if state(number) == 2 {
                marks.insert(drive(number), Version::ZERO);
            }
        }
        let sets = [set(&members)];
        for mask in 0..8_u8 {
            let marked: BTreeSet<_> = (0..3).filter(|number| mask >> number & 1 == 1).map(drive).collect();
            let in_sync = |number: &u8| state(*number) == 3;
            let before = (0..3).filter(in_sync).count();
            let after = (0..3).filter(in_sync).filter(|number| mask >> number & 1 == 0).count();
            let expected = (before > 0 && after == 0).then_some(SlabIndex(0));
            assert_eq!(last_copy_lost(&sets, &marks, &marked), expected, "states {states}, mask {mask}");
        }
    }
}

proptest! {
    #[test]
    fn of_many_slabs_the_first_that_loses_its_last_copy_is_named(
        slabs in prop::collection::vec((0..5_u8, 0..5_u8), 1..20),
        marked in prop::collection::btree_set(0..5_u8, 0..3),
        more in prop::collection::btree_set(0..5_u8, 0..3),
    ) {
        let sets: Vec<_> = slabs.iter().map(|(one, two)| set(&[member(1, *one, 0), member(2, *two, 1)])).collect();
        let marks: BTreeMap<_, _> = marked.iter().map(|number| (drive(*number), ())).collect();
        let more_drives = more.iter().copied().map(drive).collect();
        let lost = |(one, two): &(u8, u8)| {
            let had = !marked.contains(one) || !marked.contains(two);
            let keeps = |number: &u8| !marked.contains(number) && !more.contains(number);
            had && !keeps(one) && !keeps(two)
        };
        let expected = slabs.iter().position(lost).map(|slab| SlabIndex(slab as u32));
        prop_assert_eq!(last_copy_lost(&sets, &marks, &more_drives), expected);
    }
}

#[test]
fn promises_are_needed_of_nodes_with_in_sync_copies() {
    let sets = vec![
        set(&[member(1, 10, 0), member(2, 20, 1), member(3, 30, 2)]),
        set(&[member(4, 11, 0), building(5, 40, 1), member(6, 30, 2)]),
    ];
    let node = |number: u8| NodeId::from_bytes([number; 16]);
    let nodes = |marked: &[u8]| membership(sets.clone(), marked).in_sync_nodes();
    assert_eq!(nodes(&[]), Some(BTreeSet::from([node(1), node(2), node(3)])), "node 4's copy is being built");
    assert_eq!(nodes(&[30]), Some(BTreeSet::from([node(1), node(2)])));
    assert_eq!(nodes(&[10, 30]), Some(BTreeSet::from([node(1), node(2)])), "drive 11 is of node 1 too");
    let unknown = membership(vec![set(&[member(1, 5, 0)])], &[]);
    assert_eq!(unknown.in_sync_nodes(), None);
    let degraded: Vec<_> = membership(sets, &[20]).degraded_slabs().collect();
    assert_eq!(degraded, [SlabIndex(0), SlabIndex(1)]);
}

fn change(marked: &[u8], after: &[Member]) -> Result<(), String> {
    let before = membership(vec![set(&[member(1, 10, 0), member(2, 20, 1), building(3, 30, 2)])], marked);
    check_set_change(&before, SlabIndex(0), &set(after)).map_err(|error| error.code + ": " + &error.why)
}

#[test]
fn copies_come_and_go_by_the_rules() {
    let (one, two, three) = (member(1, 10, 0), member(2, 20, 1), building(3, 30, 2));
    assert_eq!(change(&[], &[one, two, three]), Ok(()), "nothing changes");
    assert_eq!(change(&[], &[one, two, member(3, 30, 2)]), Ok(()), "the new one is built");
    assert_eq!(change(&[], &[one, two]), Ok(()), "the new one is given up");
    assert_eq!(change(&[], &[one, three]), Ok(()), "one in-sync copy stays");
    assert_eq!(change(&[], &[one, two, three, building(4, 40, 1)]), Ok(()), "another node joins");
    assert_eq!(change(&[20], &[one, building(4, 40, 1)]), Ok(()), "a stale one is replaced");
    assert_eq!(change(&[], &[one, two, building(4, 21, 1)]), Ok(()), "a copy moves within its node");
}

#[test]
fn changes_against_the_rules_are_refused() {
    let (one, two, three) = (member(1, 10, 0), member(2, 20, 1), building(3, 30, 2));
    let refused = |marked: &[u8], after: &[Member], why: &str| {
        let error = change(marked, after).expect_err(why);
        assert!(error.contains(why), "{error} is not about {why:?}");
    };
    refused(&[], &[three], "LAST_COPY");
    refused(&[], &[], "LAST_COPY");
    refused(&[20], &[two, three], "LAST_COPY");
    refused(&[], &[one, two, member(4, 40, 2)], "a new copy holds nothing yet");
    refused(&[], &[building(1, 10, 0), two], "not built again");
    refused(&[], &[one, two, building(4, 20, 2)], "two of its copies");
    refused(&[], &[one, two, building(4, 21, 2)], "another copy");
    refused(&[], &[one, two, building(4, 5, 2)], "unknown");
    refused(&[], &[one, member(2, 40, 1)], "does not change its drive");
    let before = membership(vec![set(&[one])], &[]);
    let erasure = CopySet { layout: Layout::Erasure { data: 2, parity: 1 }, members: vec![one] };
    assert!(check_set_change(&before, SlabIndex(0), &erasure).is_err());
    assert!(check_set_change(&before, SlabIndex(1), &set(&[one])).is_err());
}
