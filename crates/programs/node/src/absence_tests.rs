use spandrel_cluster::records::DriveRecord;
use spandrel_cluster::store::Revision;
use spandrel_cluster::{AliveRecord, DriveState, NodeRecord, Stored};
use spandrel_shared::{CacheMode, ProcessIncarnation, RepairShare, ShardId};

use super::*;

const SETTINGS: SettingsRecord = SettingsRecord {
    rebuild_after_drive_s: 10,
    rebuild_after_node_s: 100,
    balance: true,
    repair_share: RepairShare::Medium,
    retire_slow: false,
    scrub_period_s: 0,
    cache_mode_ssd: CacheMode::WriteOnly,
    cache_mode_hdd: CacheMode::ReadWrite,
    memory_cache_bytes: 0,
    map_memory_bytes: 0,
    optimize_since_unix_ms: None,
};

fn node(number: u8) -> NodeId {
    NodeId::from_bytes([number; 16])
}

/// A drive of a node.
fn drive(node: u8, place: u8) -> DriveId {
    let mut bytes = [node; 16];
    bytes[0] = place;
    DriveId::from_bytes(bytes)
}

fn stored<T>(record: T) -> Stored<T> {
    Stored { record, revision: Revision(1) }
}

fn at_s(seconds: u64) -> Instant {
    Instant::from_nanoseconds(seconds * 1_000_000_000)
}

/// Two nodes with four drives each, none of which is there.
fn view() -> ClusterView {
    let view = ClusterView::new();
    for number in [1, 2] {
        let record = NodeRecord {
            name: format!("n{number}"),
            addresses: Vec::new(),
            further_shards: Vec::new(),
            joined_unix_ms: 0,
            key_digest: None,
            maintenance_since_unix_ms: None,
            place: Default::default(),
            unknown: Default::default(),
        };
        view.nodes.borrow_mut().insert(node(number), stored(record));
        for place in 0..4 {
            let record = DriveRecord {
                node: node(number),
                role: Default::default(),
                size_bytes: 1 << 30,
                blocks_usable: 1 << 18,
                slabs_promised_max: 4,
                attach_number: 1,
                state: DriveState::Active,
                damage: Default::default(),
                media: None,
                name: None,
            };
            view.drives.borrow_mut().insert(drive(number, place), stored(record));
        }
    }
    view
}

/// A node is alive, and can use these drives.
fn lives(view: &ClusterView, number: u8, places: &[u8]) {
    let drives = places.iter().map(|place| drive(number, *place)).collect();
    let record = AliveRecord { incarnation: ProcessIncarnation::from_bytes([1; 16]), drives, vm_host: None };
    view.alive.borrow_mut().insert(ShardId::first(node(number)), stored(record));
}

#[test]
fn a_drive_that_is_away_is_waited_for_until_its_time_is_over() {
    let (view, mut absence) = (view(), Absence::default());
    lives(&view, 1, &[0, 1, 2, 3]);
    lives(&view, 2, &[0, 1, 2]);
    absence.note(&view, at_s(1));
    absence.note(&view, at_s(10));
    assert!(absence.too_long(&SETTINGS, at_s(10)).is_empty());
    assert_eq!(absence.waits(&SETTINGS, at_s(10)), [(drive(2, 3), Duration::from_secs(1))].into());
    assert_eq!(absence.too_long(&SETTINGS, at_s(11)), [drive(2, 3)].into());
    assert_eq!(absence.all(at_s(11)).collect::<Vec<_>>(), [(drive(2, 3), Duration::from_secs(10))]);
    lives(&view, 2, &[0, 1, 2, 3]);
    absence.note(&view, at_s(12));
    assert!(absence.too_long(&SETTINGS, at_s(99)).is_empty(), "it is back");
}

#[test]
fn drives_that_are_away_together_are_waited_for_like_a_node() {
    let (view, mut absence) = (view(), Absence::default());
    lives(&view, 2, &[0]);
    absence.note(&view, at_s(0));
    assert!(absence.too_long(&SETTINGS, at_s(99)).is_empty());
    assert_eq!(absence.too_long(&SETTINGS, at_s(100)).len(), 4 + 3);
}

/// While its node is away, nothing says that a drive has failed.
#[test]
fn a_drives_own_time_begins_when_its_node_is_back_without_it() {
    let (view, mut absence) = (view(), Absence::default());
    lives(&view, 2, &[0, 1, 2, 3]);
    absence.note(&view, at_s(0));
    lives(&view, 1, &[0, 1]);
    absence.note(&view, at_s(20));
    absence.note(&view, at_s(29));
    assert!(absence.too_long(&SETTINGS, at_s(29)).is_empty());
    let half: BTreeSet<DriveId> = [drive(1, 2), drive(1, 3)].into();
    assert_eq!(absence.too_long(&SETTINGS, at_s(30)), half, "each has failed by itself");
    view.alive.borrow_mut().remove(&ShardId::first(node(1)));
    absence.note(&view, at_s(31));
    assert!(absence.too_long(&SETTINGS, at_s(99)).is_empty(), "it is away with its node again");
}

#[test]
fn a_drive_that_is_on_its_way_out_is_not_away_together_with_another_one() {
    let (view, mut absence) = (view(), Absence::default());
    for place in [2, 3] {
        view.drives.borrow_mut().get_mut(&drive(2, place)).expect("it is there").record.state =
            DriveState::Retired;
    }
    lives(&view, 1, &[0, 1, 2, 3]);
    lives(&view, 2, &[0]);
    absence.note(&view, at_s(0));
    assert_eq!(absence.too_long(&SETTINGS, at_s(10)).len(), 3);
}

#[test]
fn a_node_in_maintenance_is_waited_for_and_has_its_whole_time_afterwards() {
    let (view, mut absence) = (view(), Absence::default());
    lives(&view, 2, &[0, 1, 2, 3]);
    let maintain = |since| {
        let mut nodes = view.nodes.borrow_mut();
        nodes.get_mut(&node(1)).expect("there are two").record.maintenance_since_unix_ms = since;
    };
    absence.note(&view, at_s(0));
    maintain(Some(1));
    absence.note(&view, at_s(5000));
    assert!(absence.too_long(&SETTINGS, at_s(5000)).is_empty());
    assert_eq!(absence.all(at_s(5000)).next(), Some((drive(1, 0), Duration::from_secs(5000))));
    maintain(None);
    absence.note(&view, at_s(5001));
    assert!(absence.too_long(&SETTINGS, at_s(5099)).is_empty());
    assert_eq!(absence.too_long(&SETTINGS, at_s(5100)).len(), 4);
}
