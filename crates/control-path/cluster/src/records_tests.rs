use std::fmt::Debug;

use super::*;

fn entry(value: impl Into<Value>) -> Entry {
    Entry {
        key: Key::new("some/key"),
        value: value.into(),
        created: Revision(1),
        modified: Revision(5),
        lease: None,
    }
}

/// The record's text is as it was pinned, and is read as the record.
fn check<T: Record + PartialEq + Debug>(record: &T, pinned: &str) {
    let value = encode(record);
    assert_eq!(std::str::from_utf8(&value).expect("JSON is text"), pinned);
    let stored: Stored<T> = decode(&entry(value)).expect("what was encoded can be decoded");
    assert_eq!(&stored.record, record);
    assert_eq!(stored.revision, Revision(5));
}

/// Records stand in the cluster's state for years, and other tools read them. If this fails, what
/// older versions wrote can no longer be read.
#[test]
fn the_stored_forms_never_change() {
    let node = NodeId::from_bytes([1; 16]);
    let incarnation = ProcessIncarnation::from_bytes([2; 16]);
    let drive = DriveId::from_bytes([3; 16]);
    let volume = VolumeId::from_bytes([4; 16]);
    check(
        &ClusterRecord {
            id: ClusterId::from_bytes([5; 16]),
            name: "rack".to_owned(),
            feature_level: 1,
            slab_bytes: SlabGeometry::default(),
            created_unix_ms: 1_700_000_000_000,
            generation: 2,
        },
        r#"{"format":1,"id":"05050505-0505-0505-0505-050505050505","name":"rack","feature_level":1,"slab_bytes":268435456,"created_unix_ms":1700000000000,"generation":2}"#,
    );
    check(
        &NodeRecord {
            name: "n1".to_owned(),
            addresses: vec!["10.0.0.1:7400".to_owned()],
            further_shards: vec![],
            joined_unix_ms: 7,
            key_digest: None,
            maintenance_since_unix_ms: None,
            place: Default::default(),
            unknown: Default::default(),
        },
        r#"{"format":1,"name":"n1","addresses":["10.0.0.1:7400"],"joined_unix_ms":7}"#,
    );
    check(
        &NodeRecord {
            name: "n1".to_owned(),
            addresses: vec![],
            further_shards: vec![vec![], vec!["10.0.0.1:7402".to_owned()]],
            joined_unix_ms: 7,
            key_digest: None,
            maintenance_since_unix_ms: Some(8),
            place: Default::default(),
            unknown: Default::default(),
        },
        r#"{"format":1,"name":"n1","addresses":[],"further_shards":[[],["10.0.0.1:7402"]],"joined_unix_ms":7,"maintenance_since_unix_ms":8}"#,
    );
    check(
        &AliveRecord { incarnation, drives: vec![], vm_host: None },
        r#"{"format":1,"incarnation":"02020202-0202-0202-0202-020202020202","drives":[]}"#,
    );
    check(
        &DriveRecord {
            node,
            role: DriveRole::Cache,
            size_bytes: 1 << 40,
            blocks_usable: 100,
            slabs_promised_max: 3,
            attach_number: 4,
            state: DriveState::Retired,
            damage: DamageCounters { checksum_failures: 1, read_errors: 2, write_errors: 3 },
            media: Some(MediaClass::Nvme),
            name: None,
        },
        r#"{"format":1,"node":"01010101-0101-0101-0101-010101010101","role":"cache","size_bytes":1099511627776,"blocks_usable":100,"slabs_promised_max":3,"attach_number":4,"state":"retired","damage":{"checksum_failures":1,"read_errors":2,"write_errors":3},"media":"nvme"}"#,
    );
    let mut volume_record = VolumeRecord {
        name: "vm".to_owned(),
        size_bytes: 1 << 30,
        grows_to_bytes: None,
        copies: 3,
        write_copies_min: 1,
        slab_bytes: SlabGeometry::default(),
        owner: Some(VolumeOwner { shard: ShardId { node, number: 2 }, incarnation }),
        preferred_owner: None,
        writer: None,
        epoch: Epoch(6),
        configuration: ConfigurationVersion(7),
        state: VolumeState::Ready,
        iops_limit: None,
        is_pinned: false,
        generation: 0,
        growth: None,
        is_growth_given_up: false,
        created_unix_ms: 8,
    };
    check(
        &volume_record,
        r#"{"format":1,"name":"vm","size_bytes":1073741824,"copies":3,"write_copies_min":1,"slab_bytes":268435456,"owner":{"node":"01010101-0101-0101-0101-010101010101","shard":2,"incarnation":"02020202-0202-0202-0202-020202020202"},"preferred_owner":null,"writer":null,"epoch":6,"configuration":7,"state":"ready","created_unix_ms":8}"#,
    );
    volume_record.grows_to_bytes = Some(2 << 30);
    volume_record.growth = Some(GrowthId::from_bytes([5; 16]));
    check(
        &volume_record,
        r#"{"format":2,"name":"vm","size_bytes":1073741824,"grows_to_bytes":2147483648,"growth":"05050505-0505-0505-0505-050505050505","copies":3,"write_copies_min":1,"slab_bytes":268435456,"owner":{"node":"01010101-0101-0101-0101-010101010101","shard":2,"incarnation":"02020202-0202-0202-0202-020202020202"},"preferred_owner":null,"writer":null,"epoch":6,"configuration":7,"state":"ready","created_unix_ms":8}"#,
    );
    volume_record = VolumeRecord { grows_to_bytes: None, growth: None, is_pinned: true, ..volume_record };
    check(
        &volume_record,
        r#"{"format":1,"name":"vm","size_bytes":1073741824,"copies":3,"write_copies_min":1,"slab_bytes":268435456,"owner":{"node":"01010101-0101-0101-0101-010101010101","shard":2,"incarnation":"02020202-0202-0202-0202-020202020202"},"preferred_owner":null,"writer":null,"epoch":6,"configuration":7,"state":"ready","is_pinned":true,"created_unix_ms":8}"#,
    );
    check(&VolumeNameRecord { volume }, r#"{"format":1,"volume":"04040404-0404-0404-0404-040404040404"}"#);
    check(
        &StaleRecord { since: Version::new(Epoch(3), 9) },
        r#"{"format":1,"since":{"epoch":3,"counter":9}}"#,
    );
    check(&RoomRecord { promises: 3 }, r#"{"format":1,"promises":3}"#);
    check(
        &VolumeRoomRecord { slabs: BTreeMap::from([(drive, 5)]), ..Default::default() },
        r#"{"format":1,"slabs":{"03030303-0303-0303-0303-030303030303":5}}"#,
    );
    check(
        &VolumeRoomRecord { slabs: BTreeMap::from([(drive, 5)]), leaving: BTreeMap::from([(drive, 2)]) },
        r#"{"format":1,"slabs":{"03030303-0303-0303-0303-030303030303":5},"leaving":{"03030303-0303-0303-0303-030303030303":2}}"#,
    );
    check(
        &TombstoneRecord { name: "vm".to_owned(), deleted_unix_ms: 9 },
        r#"{"format":1,"name":"vm","deleted_unix_ms":9}"#,
    );
}

fn decode_node(text: &str) -> Result<Stored<NodeRecord>, Error> {
    decode(&entry(text.as_bytes()))
}

#[test]
fn what_a_newer_version_wrote_is_refused_by_its_number() {
    let error = decode_node(r#"{"format":2,"title":"another shape"}"#).unwrap_err();
    assert_eq!(error.code, "STATE_TOO_NEW");
    assert!(error.what.contains("some/key") && error.why.contains("format is 2"), "{error}");
}

#[test]
fn what_is_no_record_is_refused() {
    for text in ["", "{}", "[1]", r#"{"format":1}"#, r#"{"format":1,"name":5}"#, r#"{"format":-1}"#, "\u{0}"]
    {
        let error = decode_node(text).unwrap_err();
        assert_eq!(error.code, "STATE_DAMAGED", "{text}");
        assert!(error.what.contains("node") && error.what.contains("some/key"), "{error}");
    }
    let sized: Result<Stored<ClusterRecord>, _> = decode(&entry(
        *br#"{"format":1,"id":"05050505-0505-0505-0505-050505050505","name":"x","feature_level":1,"slab_bytes":5,"created_unix_ms":1,"generation":0}"#,
    ));
    assert!(sized.unwrap_err().why.contains("slab size"), "limits hold for what is read too");
}

#[test]
fn a_volume_with_more_slabs_than_can_be_numbered_is_refused() {
    let text = |size_bytes: u64| {
        format!(
            r#"{{"format":1,"name":"vm","size_bytes":{size_bytes},"copies":3,"write_copies_min":1,"slab_bytes":4194304,"owner":null,"preferred_owner":null,"epoch":6,"configuration":7,"state":"ready","created_unix_ms":8}}"#
        )
    };
    let decode = |size_bytes| decode::<VolumeRecord>(&entry(text(size_bytes).as_bytes()));
    let largest = ((1 << 28) - 1) * (4 << 20);
    assert_eq!(decode(largest).unwrap().record.slab_count(), (1 << 28) - 1);
    for size_bytes in [largest + 4096, u64::MAX] {
        let error = decode(size_bytes).unwrap_err();
        assert!(error.code == "STATE_DAMAGED" && error.why.contains("slabs"), "{error}");
    }
}

/// A field that a later version of the same format adds is no obstacle.
#[test]
fn unknown_fields_are_passed_over() {
    let stored =
        decode_node(r#"{"format":1,"name":"n","addresses":[],"joined_unix_ms":1,"rack":"r1"}"#).unwrap();
    assert_eq!(stored.record.name, "n");
}

/// Versions that know nothing of growth know a volume's format 1, and go on when it has grown; those that know nothing of limits
/// know format 2.
#[test]
fn a_volume_that_grows_or_is_limited_is_of_a_newer_format_for_so_long() {
    let text = |format: u32, grows: &str| {
        let text = format!(
            r#"{{"format":{format},"name":"vm","size_bytes":4096{grows},"copies":1,"write_copies_min":1,"slab_bytes":4194304,"owner":null,"preferred_owner":null,"epoch":0,"configuration":0,"state":"ready","created_unix_ms":0}}"#
        );
        decode::<VolumeRecord>(&entry(text.as_bytes()))
    };
    assert_eq!(text(1, "").expect("it is at rest").record.format(), 1);
    assert_eq!(text(2, r#","grows_to_bytes":8192"#).expect("it grows").record.format(), 2);
    let limited = r#","iops_limit":{"iops_max":1100,"normalized_bytes":8192}"#;
    assert_eq!(text(3, limited).expect("it is limited").record.format(), 3);
    assert_eq!(text(4, "").expect_err("it is newer").code, "STATE_TOO_NEW");
    let nothing = text(3, r#","iops_limit":{"iops_max":0,"normalized_bytes":8192}"#)
        .expect_err("nobody could do anything");
    assert_eq!(nothing.code, "STATE_DAMAGED");
    let smaller = text(2, r#","grows_to_bytes":4096"#).expect_err("that is no growth");
    assert_eq!(smaller.code, "STATE_DAMAGED");
}
