//! A small cluster as it might be known, for tests of what is made of it.

use std::collections::BTreeMap;

use spandrel_cluster::records::{DamageCounters, VolumeWriter};
use spandrel_cluster::store::Revision;
use spandrel_cluster::{
    CopyBatch, DriveRecord, DriveRole, DriveState, NodeRecord, SettingsRecord, StateRequests,
    VolumeMembership, VolumeOwner, VolumeRecord, VolumeState, mirror_sets,
};
use spandrel_node::{
    CacheDriveReport, CacheReport, DriveAway, DriveReport, LegReport, NodeReport, OwnedVolumeReport,
    PathReport, PeerReport,
};
use spandrel_platform::Address;
use spandrel_shared::{
    CacheMode, ConfigurationVersion, DriveId, Epoch, NodeId, ProcessIncarnation, ShardId, SlabGeometry,
    VolumeId,
};

use super::picture::{Facts, KnownNode};

const VOLUME: u64 = 77;

pub fn node_id(number: u64) -> NodeId {
    NodeId::from_random(1, number)
}

pub fn drive_id(number: u64) -> DriveId {
    DriveId::from_random(2, number)
}

pub fn incarnation(number: u64) -> ProcessIncarnation {
    ProcessIncarnation::from_random(3, number)
}

pub fn volume_id() -> VolumeId {
    VolumeId::from_random(4, VOLUME)
}

pub fn drive_report(number: u64) -> DriveReport {
    DriveReport {
        drive: Some(drive_id(number)),
        location: format!("/x/n{number}/d1.drive"),
        blocks_used: 10,
        written_bytes: 1200,
        data_bytes: 1000,
        volumes: vec![(volume_id(), 8)],
        ..DriveReport::default()
    }
}

pub fn leg(number: u64, state: &str) -> LegReport {
    LegReport {
        drive: drive_id(number),
        node: node_id(number),
        is_building: false,
        state: state.to_owned(),
        is_silent: false,
        resync_pages: None,
        resync_copied_bytes: 0,
        resync_ms: 0,
    }
}

pub fn owned() -> OwnedVolumeReport {
    OwnedVolumeReport {
        volume: volume_id(),
        shard: 0,
        epoch: Epoch(2),
        is_serving: true,
        waits_for: None,
        writer: Some(node_id(3)),
        legs: (1..=3).map(|number| leg(number, "in-sync")).collect(),
        copies_without_place: 0,
        reads: 1,
        writes: 2,
        read_bytes: 3,
        write_bytes: 4,
        blocks_read_elsewhere: 0,
        blocks_healed: 0,
        legs_marked: 0,
        legs_promoted: 0,
        blocks_rolled_forward: 0,
        blocks_resynced: 0,
        scrub: None,
    }
}

pub fn node_report(number: u64) -> NodeReport {
    NodeReport {
        node: node_id(number),
        name: format!("n{number}"),
        incarnation: incarnation(number),
        further_incarnations: Vec::new(),
        nbd_addresses: Vec::new(),
        nbd_connections: 5,
        started_unix_ms: Some(1000),
        peers: vec![PeerReport {
            node: node_id(number % 3 + 1),
            shard: 0,
            silent_ms: Some(7),
            paths: vec![PathReport { address: "10.0.0.9:7440".to_owned(), carried_bytes: 11 }],
        }],
        drives_away: Vec::new(),
        caches_away: Vec::new(),
        drives_slow: Vec::new(),
        state_requests: StateRequests { reads: 7, ..StateRequests::default() },
        alive: Vec::new(),
        reachable: (1..=3).filter(|other| *other != number).map(node_id).collect(),
        drives: vec![drive_report(number)],
        caches: Vec::new(),
        owned: if number == 1 { vec![owned()] } else { Vec::new() },
        vms: Vec::new(),
    }
}

pub fn known_node(number: u64, report: NodeReport) -> KnownNode {
    KnownNode {
        name: format!("n{number}"),
        id: node_id(number),
        record: Some(node_record(number)),
        nbd_addresses: vec![Address::Unix(format!("/x/n{number}/nbd.sock"))],
        is_alive: true,
        report: Some(report),
    }
}

pub fn node_record(number: u64) -> NodeRecord {
    NodeRecord {
        name: format!("n{number}"),
        addresses: vec![format!("10.0.0.{number}:7440")],
        further_shards: Vec::new(),
        joined_unix_ms: 500,
        key_digest: None,
        maintenance_since_unix_ms: None,
        place: Default::default(),
        unknown: Default::default(),
    }
}

pub fn drive_record(number: u64) -> DriveRecord {
    DriveRecord {
        node: node_id(number),
        role: DriveRole::Capacity,
        size_bytes: 64 << 20,
        blocks_usable: 16_000,
        slabs_promised_max: 14,
        attach_number: 1,
        state: DriveState::Active,
        damage: DamageCounters::default(),
        media: None,
        name: None,
    }
}

/// Three nodes with a drive each and one volume of two slabs on all of them, owned by n1.
pub async fn facts() -> Facts {
    let geometry = SlabGeometry::new(4 << 20).expect("it is an allowed size");
    let drives: Vec<DriveId> = (1..=3).map(drive_id).collect();
    let sets = mirror_sets([drives.as_slice(), drives.as_slice()], CopyBatch::from_random(5, 5), 3);
    let room = spandrel_cluster::records::VolumeRoomRecord {
        slabs: drives.iter().map(|drive| (*drive, 2)).collect(),
        ..Default::default()
    };
    let record = VolumeRecord {
        name: "v1".to_owned(),
        size_bytes: 8 << 20,
        grows_to_bytes: None,
        copies: 3,
        write_copies_min: 1,
        slab_bytes: geometry,
        owner: Some(VolumeOwner { shard: ShardId::first(node_id(1)), incarnation: incarnation(1) }),
        preferred_owner: Some(node_id(1)),
        writer: Some(VolumeWriter {
            shard: ShardId::first(node_id(3)),
            incarnation: incarnation(3),
            attachment: 1,
        }),
        epoch: Epoch(2),
        configuration: ConfigurationVersion(1),
        state: VolumeState::Ready,
        iops_limit: None,
        is_pinned: false,
        generation: 0,
        growth: None,
        is_growth_given_up: false,
        created_unix_ms: 0,
    };
    // A room can only be read from a state; an empty one will do.
    let state = spandrel_cluster::ClusterState::new(
        spandrel_state_redb::RedbState::open(
            &tempfile::tempdir().expect("a temporary directory").path().join("state"),
        )
        .expect("a new state"),
    );
    let mut pool_room = state.pool_room().await.expect("it is empty");
    pool_room.drives = (1..=3).map(|number| (drive_id(number), drive_record(number))).collect();
    pool_room.volumes = BTreeMap::from([(volume_id(), room.clone())]);
    Facts {
        nodes: (1..=3).map(|number| known_node(number, node_report(number))).collect(),
        drive_names: (1..=3).map(|number| (drive_id(number), format!("n{number}/d1"))).collect(),
        room: pool_room,
        caches: BTreeMap::new(),
        volumes: vec![VolumeMembership {
            volume: volume_id(),
            record,
            revision: Revision(1),
            sets,
            to_come: Vec::new(),
            marks: BTreeMap::new(),
            room,
            lost: Default::default(),
            nodes: (1..=3).map(|number| (drive_id(number), node_id(number))).collect(),
            read_at: Revision(1),
        }],
        scrubs: BTreeMap::new(),
        settings: SettingsRecord { scrub_period_s: 0, ..SettingsRecord::default() },
        unreadable: Vec::new(),
        gathered_unix_ms: 1000,
        geometry,
        are_servers: false,
        generation: 0,
    }
}

pub fn pause(facts: &mut Facts, index: usize) {
    facts.nodes[index].record.as_mut().expect("it has one").maintenance_since_unix_ms = Some(9);
}

/// The cache drive of [`cached_facts`].
pub fn cache_id() -> DriveId {
    drive_id(11)
}

/// The same cluster with a cache drive in n1, to which its drive is bound: of 100 blocks there 10 are there alone.
pub async fn cached_facts() -> Facts {
    let mut facts = facts().await;
    let record = DriveRecord { role: DriveRole::Cache, ..drive_record(1) };
    facts.caches.insert(cache_id(), record);
    facts.drive_names.insert(cache_id(), "n1/c1".to_owned());
    let report = facts.nodes[0].report.as_mut().expect("it runs");
    report.caches = vec![CacheDriveReport {
        drive: Some(cache_id()),
        location: "/x/n1/c1.drive".to_owned(),
        size_bytes: 8 << 20,
        bound: vec![drive_id(1)],
        ..CacheDriveReport::default()
    }];
    report.drives[0].bound_to = Some(cache_id());
    report.drives[0].cache = Some(CacheReport {
        drive: cache_id(),
        mode: CacheMode::WriteOnly,
        blocks_total: 100,
        blocks_dirty: 10,
        blocks_copied: 0,
        hits: 0,
        misses: 0,
        populated: 0,
        destaged: 0,
        full_ms: None,
    });
    facts
}

/// The cache drive has died, or is missing if nobody says why: the drive behind it is not used.
pub fn lose_cache(facts: &mut Facts, failure: Option<&str>) {
    let report = facts.nodes[0].report.as_mut().expect("it runs");
    match failure {
        Some(failure) => report.caches[0].failure = Some(failure.to_owned()),
        None => report.caches.clear(),
    }
    report.caches_away =
        vec![DriveAway { drive: cache_id(), away_ms: 60_000, is_waited_for: true, left_ms: Some(840_000) }];
    let drive = &mut report.drives[0];
    (drive.cache, drive.failure) = (None, Some("it is only whole with its cache drive".to_owned()));
}
