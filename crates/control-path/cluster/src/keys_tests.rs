use super::*;

#[test]
fn keys_are_taken_apart_as_they_were_put_together() {
    let (node, drive, volume) =
        (NodeId::from_random(1, 2), DriveId::from_random(3, 4), VolumeId::from_random(5, 6));
    let all = [
        (StateKey::Cluster, "cluster"),
        (StateKey::Node(node), NODES),
        (StateKey::Alive(ShardId::first(node)), ALIVE),
        (StateKey::Alive(ShardId { node, number: 3 }), ALIVE),
        (StateKey::Drive(drive), DRIVES),
        (StateKey::Volume(volume), VOLUMES),
        (StateKey::VolumeName("vm-1".to_owned()), "volumes-by-name/"),
        (StateKey::Slabs(volume, 0x3ff), &slabs_of(volume)),
        (StateKey::Stale(volume, drive), &stale_of(volume)),
        (StateKey::Settings, SETTINGS),
        (StateKey::Scrub(volume), SCRUBS),
        (StateKey::Vm(VmId::from_random(7, 8)), VMS),
        (StateKey::VmName("web".to_owned()), "vms-by-name/"),
        (StateKey::VmDisk(volume), "vm-disks/"),
        (StateKey::Told, "told"),
        (StateKey::Room, "room"),
        (StateKey::Servers, "servers"),
        (StateKey::Changed, CHANGED),
        (StateKey::AccessName("grafana".to_owned()), "access-by-name/"),
        (StateKey::VolumeRoom(volume), ROOMS),
        (StateKey::NodeTombstone(node), "tombstones/nodes/"),
        (StateKey::DriveTombstone(drive), "tombstones/drives/"),
        (StateKey::VolumeTombstone(volume), "tombstones/volumes/"),
    ];
    for (key, prefix) in all {
        assert_eq!(StateKey::parse(&key.key()), Some(key.clone()));
        assert!(key.key().as_str().starts_with(prefix), "{key}");
    }
    assert!(StateKey::Slabs(volume, 0x3ff).to_string().ends_with("/000003ff"));
}

#[test]
fn unknown_keys_and_other_spellings_are_none() {
    let volume = VolumeId::from_random(u64::MAX, 6);
    for text in [
        "",
        "nodes",
        "nodes/",
        "nodes/7",
        "policies/1",
        &format!("volumes/{volume}/more"),
        &format!("volumes/{}", volume.to_string().to_uppercase()),
        &format!("slabs/{volume}/3ff"),
        &format!("slabs/{volume}/+00003ff"),
    ] {
        assert_eq!(StateKey::parse(&Key::new(text)), None, "{text}");
    }
}

#[test]
fn the_chunks_of_a_volume_are_in_order() {
    let volume = VolumeId::from_random(5, 6);
    let keys: Vec<_> =
        [0, 1, 15, 16, 255, 256, 0x8000_0000].map(|chunk| StateKey::Slabs(volume, chunk).key()).into();
    assert!(keys.is_sorted());
}
