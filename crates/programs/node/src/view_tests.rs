use spandrel_cluster::VolumeState;
use spandrel_cluster::records::encode;
use spandrel_cluster::store::Value;
use spandrel_shared::{ConfigurationVersion, SlabGeometry};

use super::*;

fn shown(epoch: Epoch) -> Changes<VolumeId, VolumeRecord> {
    let record = VolumeRecord {
        name: "v".to_owned(),
        size_bytes: 4 << 20,
        grows_to_bytes: None,
        copies: 3,
        write_copies_min: 1,
        slab_bytes: SlabGeometry::new(4 << 20).expect("4 MiB is a slab size"),
        owner: None,
        preferred_owner: None,
        writer: None,
        epoch,
        configuration: ConfigurationVersion(1),
        state: VolumeState::Ready,
        iops_limit: None,
        is_pinned: false,
        generation: 0,
        growth: None,
        is_growth_given_up: false,
        created_unix_ms: 0,
    };
    vec![(VolumeId::from_random(5, 5), Some(Stored { record, revision: Revision(u64::from(epoch.0)) }))]
}

#[test]
fn an_ownership_is_shown_since_it_was_seen_and_not_since_a_former_one_was() {
    let view = ClusterView::new();
    let volume = VolumeId::from_random(5, 5);
    let [first, later, latest] = [1, 2, 3].map(Instant::from_nanoseconds);
    assert_eq!(view.shown_since(volume, Epoch(1)), None);
    view.note_volumes(first, shown(Epoch(1)));
    view.note_volumes(later, shown(Epoch(1)));
    assert_eq!(view.shown_since(volume, Epoch(1)), Some(first));
    assert_eq!(view.shown_since(volume, Epoch(2)), None, "the view lags behind what was read");
    view.note_volumes(latest, shown(Epoch(2)));
    assert_eq!(view.shown_since(volume, Epoch(2)), Some(latest));
    assert_eq!(view.shown_since(volume, Epoch(1)), None);
    view.note_volumes(latest, vec![(volume, None)]);
    assert_eq!(view.shown_since(volume, Epoch(2)), None);
    assert!(view.volumes.borrow().is_empty());
}

#[test]
fn only_the_volumes_that_changed_are_named() {
    let view = ClusterView::new();
    let volume = VolumeId::from_random(5, 5);
    let now = Instant::from_nanoseconds(1);
    view.note_volumes(now, shown(Epoch(1)));
    assert_eq!(view.take_changed_volumes(), BTreeSet::from([volume]));
    assert_eq!(view.take_changed_volumes(), BTreeSet::new());
    view.note_volumes(now, vec![(volume, None)]);
    assert_eq!(view.take_changed_volumes(), BTreeSet::from([volume]));
}

/// An operator may have said that nothing is to be moved: what cannot be read is no reason to go by the defaults.
#[test]
fn settings_that_cannot_be_read_stay_as_they_were() {
    let view = ClusterView::new();
    let entry = |value: Value| Entry {
        key: StateKey::Settings.key(),
        value,
        created: Revision(1),
        modified: Revision(1),
        lease: None,
    };
    assert_eq!(view.settings(), None);
    let unreadable = entry(br#"{"format":99}"#.to_vec().into());
    view.note_settings(Some(&unreadable));
    assert_eq!(view.settings(), None);
    let set = SettingsRecord { balance: false, ..SettingsRecord::default() };
    view.note_settings(Some(&entry(encode(&set))));
    view.note_settings(Some(&unreadable));
    assert_eq!(view.settings(), Some(set));
    view.note_settings(None);
    assert_eq!(view.settings(), Some(SettingsRecord::default()));
}

/// Clients come and go all the time, and each changes a volume's record. That is no reason to plan all volumes' moves anew.
#[test]
fn a_change_of_a_volume_alone_is_none_of_the_pool() {
    let view = ClusterView::new();
    let (changes, now) = (view.changes(), Instant::from_nanoseconds(1));
    view.take_in_volumes(now, shown(Epoch(1)), Revision(7));
    assert_eq!((view.changes(), view.revision()), (changes, Revision(7)));
    view.note_change(Revision(8));
    assert_eq!((view.changes(), view.revision()), (changes + 1, Revision(8)));
}

fn node(number: u8) -> NodeId {
    NodeId::from_bytes([number; 16])
}

fn drive(number: u8) -> DriveId {
    DriveId::from_bytes([number; 16])
}

fn alive(shard: ShardId, drives: &[u8], revision: u64) -> Changes<ShardId, AliveRecord> {
    let incarnation = ProcessIncarnation::from_bytes([9; 16]);
    let drives = drives.iter().map(|number| drive(*number)).collect();
    let record = AliveRecord { incarnation, drives, vm_host: None };
    vec![(shard, Some(Stored { record, revision: Revision(revision) }))]
}

fn with_shards(further: usize) -> Stored<NodeRecord> {
    let record = NodeRecord {
        name: "n1".to_owned(),
        addresses: vec!["a:1".to_owned()],
        further_shards: vec![Vec::new(); further],
        joined_unix_ms: 1,
        key_digest: None,
        maintenance_since_unix_ms: None,
        place: Default::default(),
        unknown: Default::default(),
    };
    Stored { record, revision: Revision(1) }
}

#[test]
fn a_node_is_alive_when_all_of_its_shards_are() {
    let view = ClusterView::new();
    let shard = |number| ShardId { node: node(1), number };
    view.nodes.borrow_mut().insert(node(1), with_shards(2));
    take_in(&view.alive, alive(shard(0), &[], 1));
    take_in(&view.alive, alive(shard(2), &[], 1));
    assert!(view.alive_nodes().is_empty());
    take_in(&view.alive, alive(shard(1), &[], 1));
    assert_eq!(view.alive_nodes(), BTreeSet::from([node(1)]));
    view.nodes.borrow_mut().insert(node(1), with_shards(3));
    assert!(view.alive_nodes().is_empty(), "it has begun anew with one more, which is not there yet");
    take_in(&view.alive, alive(ShardId { node: node(2), number: 1 }, &[], 1));
    assert!(view.alive_nodes().is_empty(), "the first shard of a node that is not known yet is away");
}

#[test]
fn a_drive_is_asked_for_where_it_was_served_last() {
    let view = ClusterView::new();
    let shard = |number| ShardId { node: node(1), number };
    assert_eq!(view.shard_of(node(1), drive(7)), shard(0), "nothing is known of it");
    let take_in = |changes| view.take_in_alive(changes, Revision(9));
    take_in(alive(shard(0), &[7], 1));
    assert!(!view.take_drives_changed_shard(), "it is where everybody would have looked for it");
    take_in(alive(shard(1), &[7, 8], 2));
    assert!(view.take_drives_changed_shard());
    assert!(!view.take_drives_changed_shard(), "it is said once");
    assert_eq!((view.shard_of(node(1), drive(7)), view.shard_of(node(1), drive(8))), (shard(1), shard(1)));
    take_in(alive(shard(0), &[7], 1));
    assert_eq!(view.shard_of(node(1), drive(7)), shard(1), "an entry of before was read once more");
    take_in(vec![(shard(1), None)]);
    assert_eq!(view.shard_of(node(1), drive(7)), shard(0), "it was the older one that is true");
    take_in(alive(shard(1), &[7, 8], 3));
    take_in(vec![(shard(0), None)]);
    take_in(vec![(shard(1), None)]);
    assert_eq!(view.shard_of(node(1), drive(7)), shard(1), "the same most likely serves it when it is back");
    assert_eq!(
        view.shard_of(node(2), drive(7)),
        ShardId::first(node(2)),
        "it has come to another node since"
    );
}

#[test]
fn volumes_of_which_nothing_speaks_for_a_shard_go_to_all_of_them() {
    let view = ClusterView::new();
    view.nodes.borrow_mut().insert(node(1), with_shards(2));
    let numbers =
        (0..300).map(|number| view.shard_by_turns(node(1), VolumeId::from_random(5, number)).number);
    let mut counts = [0; 3];
    numbers.for_each(|number| counts[usize::from(number)] += 1);
    assert_eq!(counts.iter().sum::<u32>(), 300);
    assert!(counts.iter().all(|count| *count > 50), "{counts:?}");
}
