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
