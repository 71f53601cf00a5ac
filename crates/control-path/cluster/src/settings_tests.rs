use super::*;
use crate::records::{decode, encode};
use crate::store::{Entry, Revision, Value};
use crate::test_cluster::TestCluster;

#[test]
fn what_was_never_set_is_as_by_default() {
    let cluster = TestCluster::new(1, 1, 1, 1);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        assert_eq!(state.settings().await.unwrap(), None);
        let changed = state.change_settings(|settings| settings.rebuild_after_node_s = 7).await.unwrap();
        assert_eq!(changed, SettingsRecord { rebuild_after_node_s: 7, ..SettingsRecord::default() });
        let changed = state.change_settings(|settings| settings.balance = false).await.unwrap();
        assert_eq!((changed.rebuild_after_node_s, changed.balance), (7, false));
        assert_eq!(state.settings().await.unwrap().unwrap().record, changed);
    });
}

/// A setting of a later version is not known to an earlier one, and one that is missing is as by default.
#[test]
fn settings_of_other_versions_can_be_read() {
    let read = |text: &str| {
        let value = Value::from(text.as_bytes().to_vec());
        let (key, created, modified) = (StateKey::Settings.key(), Revision(1), Revision(1));
        decode::<SettingsRecord>(&Entry { key, value, created, modified, lease: None })
    };
    let stored = read(r#"{"format":1,"balance":false,"pace":3}"#).unwrap();
    assert_eq!(stored.record, SettingsRecord { balance: false, ..SettingsRecord::default() });
    let text = String::from_utf8(encode(&SettingsRecord::default()).to_vec()).unwrap();
    assert_eq!(read(&text).unwrap().record, SettingsRecord::default());
}

#[test]
fn the_repair_share_is_written_as_people_write_it() {
    for repair_share in RepairShare::ALL {
        let written = encode(&SettingsRecord { repair_share, ..SettingsRecord::default() });
        let text = String::from_utf8(written.to_vec()).unwrap();
        assert!(text.contains(&format!("\"repair_share\":\"{repair_share}\"")), "{text}");
    }
}

/// A version that knows nothing of a setting would write the others without it.
#[test]
fn settings_that_an_older_version_would_drop_are_of_a_newer_format() {
    let format = |settings: SettingsRecord| {
        let text = String::from_utf8(encode(&settings).to_vec()).unwrap();
        let formats = [1, 2, 3, 4].into_iter();
        formats.filter(|format| text.starts_with(&format!(r#"{{"format":{format},"#))).sum::<u32>()
    };
    let default = SettingsRecord::default;
    assert_eq!(format(default()), 1);
    assert_eq!(format(SettingsRecord { rebuild_after_node_s: 7, balance: false, ..default() }), 1);
    assert_eq!(format(SettingsRecord { scrub_period_s: 0, ..default() }), 2);
    assert_eq!(format(SettingsRecord { retire_slow: true, ..default() }), 2);
    assert_eq!(format(SettingsRecord { repair_share: RepairShare::VeryHigh, ..default() }), 2);
    assert_eq!(format(SettingsRecord { cache_mode_ssd: CacheMode::Off, ..default() }), 3);
    assert_eq!(format(SettingsRecord { memory_cache_bytes: 1 << 30, ..default() }), 3);
    let both = SettingsRecord { retire_slow: true, cache_mode_hdd: CacheMode::ReadOnly, ..default() };
    assert_eq!(format(both), 3);
    assert_eq!(format(SettingsRecord { map_memory_bytes: 1 << 30, ..default() }), 4);
}
