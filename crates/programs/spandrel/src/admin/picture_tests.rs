use spandrel_cluster::records::{DamageCounters, VolumeWriter};
use spandrel_cluster::store::Revision;
use spandrel_cluster::{
    CopyBatch, DriveRole, StateRequests, VolumeOwner, VolumeRecord, VolumeState, mirror_sets,
};
use spandrel_health::HealthStatus;
use spandrel_shared::{ConfigurationVersion, Epoch, ProcessIncarnation, Version};

use super::*;

const VOLUME: u64 = 77;

fn node_id(number: u64) -> NodeId {
    NodeId::from_random(1, number)
}

fn drive_id(number: u64) -> DriveId {
    DriveId::from_random(2, number)
}

fn incarnation(number: u64) -> ProcessIncarnation {
    ProcessIncarnation::from_random(3, number)
}

fn volume_id() -> VolumeId {
    VolumeId::from_random(4, VOLUME)
}

fn drive_report(number: u64) -> DriveReport {
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

fn leg(number: u64, state: &str) -> LegReport {
    LegReport {
        drive: drive_id(number),
        node: node_id(number),
        is_building: false,
        state: state.to_owned(),
        resync_pages: None,
    }
}

fn owned() -> OwnedVolumeReport {
    OwnedVolumeReport {
        volume: volume_id(),
        epoch: Epoch(2),
        is_serving: true,
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
    }
}

fn node_report(number: u64) -> NodeReport {
    NodeReport {
        node: node_id(number),
        name: format!("n{number}"),
        incarnation: incarnation(number),
        nbd_addresses: Vec::new(),
        nbd_connections: 5,
        started_unix_ms: Some(1000),
        peers: vec![PeerReport {
            node: node_id(number % 3 + 1),
            silent_ms: Some(7),
            paths: vec![PathReport { address: "10.0.0.9:7440".to_owned(), carried_bytes: 11 }],
        }],
        drives_away: Vec::new(),
        state_requests: StateRequests { reads: 7, ..StateRequests::default() },
        alive: Vec::new(),
        reachable: (1..=3).filter(|other| *other != number).map(node_id).collect(),
        drives: vec![drive_report(number)],
        owned: if number == 1 { vec![owned()] } else { Vec::new() },
    }
}

fn node_record(number: u64) -> NodeRecord {
    NodeRecord {
        name: format!("n{number}"),
        addresses: vec![format!("10.0.0.{number}:7440")],
        joined_unix_ms: 500,
        key_digest: None,
        maintenance_since_unix_ms: None,
    }
}

fn drive_record(number: u64) -> DriveRecord {
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
    }
}

/// Three nodes with a drive each and one volume of two slabs on all of them, owned by n1.
async fn facts() -> Facts {
    let geometry = SlabGeometry::new(4 << 20).expect("it is an allowed size");
    let drives: Vec<DriveId> = (1..=3).map(drive_id).collect();
    let sets = mirror_sets([drives.as_slice(), drives.as_slice()], CopyBatch::from_random(5, 5), 3);
    let room = spandrel_cluster::records::VolumeRoomRecord {
        slabs: drives.iter().map(|drive| (*drive, 2)).collect(),
    };
    let record = VolumeRecord {
        name: "v1".to_owned(),
        size_bytes: 8 << 20,
        copies: 3,
        write_copies_min: 1,
        slab_bytes: geometry,
        owner: Some(VolumeOwner { node: node_id(1), incarnation: incarnation(1) }),
        preferred_owner: Some(node_id(1)),
        writer: Some(VolumeWriter { node: node_id(3), incarnation: incarnation(3), attachment: 1 }),
        epoch: Epoch(2),
        configuration: ConfigurationVersion(1),
        state: VolumeState::Ready,
        generation: 0,
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
        nodes: (1..=3)
            .map(|number| KnownNode {
                name: format!("n{number}"),
                id: node_id(number),
                record: Some(node_record(number)),
                nbd_addresses: vec![Address::Unix(format!("/x/n{number}/nbd.sock"))],
                is_alive: true,
                report: Some(node_report(number)),
            })
            .collect(),
        drive_names: (1..=3).map(|number| (drive_id(number), format!("n{number}/d1"))).collect(),
        room: pool_room,
        volumes: vec![VolumeMembership {
            volume: volume_id(),
            record,
            revision: Revision(1),
            sets,
            marks: BTreeMap::new(),
            room,
            lost: Default::default(),
            nodes: (1..=3).map(|number| (drive_id(number), node_id(number))).collect(),
            read_at: Revision(1),
        }],
        geometry,
        generation: 0,
    }
}

fn volume(facts: &Facts) -> VolumeStatus {
    facts.volumes().swap_remove(0)
}

#[tokio::test]
async fn all_is_well() {
    let facts = facts().await;
    assert!(facts.pool().status.is_healthy());
    assert_eq!(facts.pool().promised_bytes, 6 * (4 << 20));
    assert!(facts.nodes().iter().all(|node| node.status.is_healthy() && node.drives_usable == 1));
    assert_eq!(facts.nodes()[0].volumes_owned, ["v1"]);
    assert!(facts.drives().iter().all(|drive| drive.status.is_healthy()));
    let volume = volume(&facts);
    assert!(volume.status.is_healthy() && volume.is_serving, "{}", volume.status);
    assert_eq!((volume.owner.as_deref(), volume.writer.as_deref()), (Some("n1"), Some("n3")));
    assert_eq!(volume.stored_bytes, 3 * 8 * 4096);
    assert_eq!(volume.exports[1].uri, "nbd+unix:///v1?socket=/x/n2/nbd.sock");
    let amplification = volume.write_amplification.expect("something was written");
    assert!((amplification - 3.6).abs() < 1e-9, "three copies, and a fifth for journal and maps");
    let legs: Vec<_> =
        volume.legs.iter().map(|leg| (leg.drive.as_str(), leg.slabs, leg.state.as_str())).collect();
    assert_eq!(legs, [("n1/d1", 2, "in-sync"), ("n2/d1", 2, "in-sync"), ("n3/d1", 2, "in-sync")]);
}

#[tokio::test]
async fn a_node_is_told_with_its_room_and_its_paths() {
    let facts = facts().await;
    let known = facts.known_node("n3").expect("there is one");
    let details = facts.node_details(known, Some(StateRole::Leads));
    assert_eq!((details.joined_unix_ms, details.started_unix_ms), (Some(500), Some(1000)));
    assert_eq!((details.promisable_bytes, details.promised_bytes), (14 * (4 << 20), 2 * (4 << 20)));
    assert_eq!(details.used_bytes, 10 * 4096);
    assert_eq!((details.peers[0].node.as_str(), details.peers[0].paths[0].carried_bytes), ("n1", 11));
    let json = serde_json::to_value(&details).expect("plain data");
    assert_eq!((&json["name"], &json["state_role"]), (&"n3".into(), &"leads".into()), "one flat object");
    assert_eq!(serde_json::from_value::<NodeDetails>(json).expect("the same form"), details);
    assert!(facts.known_node("n4").is_err_and(|error| error.code == "NODE_NOT_FOUND"));
}

#[tokio::test]
async fn a_node_that_is_down() {
    let mut facts = facts().await;
    facts.nodes[2].report = None;
    assert_eq!(facts.nodes()[2].status.to_string(), "Unhealthy (Down)");
    assert_eq!(facts.drives()[2].status.to_string(), "Warning (Lost Communication)");
    assert_eq!(facts.pool().status.to_string(), "Warning (Degraded)");
    assert_eq!(volume(&facts).status.to_string(), "Warning (Incomplete)");
    assert_eq!(volume(&facts).legs[2].state, "in-sync (away)");
    assert!(!volume(&facts).exports[2].is_up);
    facts.volumes[0].marks.insert(drive_id(3), Version::ZERO);
    assert_eq!(volume(&facts).status.to_string(), "Warning (Degraded)");
}

fn pause(facts: &mut Facts, index: usize) {
    facts.nodes[index].record.as_mut().expect("it has one").maintenance_since_unix_ms = Some(9);
}

#[tokio::test]
async fn a_node_in_maintenance_drains_until_nobody_says_that_it_owns_anything() {
    let mut facts = facts().await;
    pause(&mut facts, 0);
    let left = |facts: &Facts| facts.nodes()[0].maintenance.clone().expect("it is").volumes_left;
    assert_eq!(facts.nodes()[0].status.to_string(), "Warning (Draining)");
    assert_eq!(left(&facts), ["v1"]);
    facts.volumes[0].record.owner = Some(VolumeOwner { node: node_id(2), incarnation: incarnation(2) });
    assert_eq!(left(&facts), ["v1"], "it does not know yet");
    facts.nodes[0].report.as_mut().expect("it runs").owned.clear();
    assert!(left(&facts).is_empty());
    assert_eq!(facts.nodes()[0].status.to_string(), "Warning (Paused)");
    facts.nodes[0].report = None;
    facts.volumes[0].record.owner = Some(VolumeOwner { node: node_id(1), incarnation: incarnation(1) });
    assert_eq!(left(&facts), ["v1"], "it has died, and nobody has taken it yet");
}

#[tokio::test]
async fn a_node_is_drained_only_if_others_have_everything_in_sync() {
    let refused = |facts: &Facts| facts.check_drain(&facts.nodes[0]).err();
    assert!(refused(&facts().await).is_none());

    let mut without_one = facts().await;
    without_one.nodes[1].report = None;
    assert!(refused(&without_one).is_none(), "n3 has everything");
    without_one.volumes[0].marks.insert(drive_id(3), Version::ZERO);
    let error = refused(&without_one).expect("n3 is stale");
    assert_eq!(error.code, "NODE_NEEDED");
    assert!(error.why.contains("v1") && error.why.contains("n2 is down"), "{error}");

    let mut paused = facts().await;
    pause(&mut paused, 1);
    paused.nodes[2].report.as_mut().expect("it runs").drives[0].failure = Some("no answer".to_owned());
    let error = refused(&paused).expect("n3 has no drive");
    assert!(error.why.contains("n2 is in maintenance") && !error.why.contains("n3"), "{error}");

    let mut unsettled = facts().await;
    unsettled.generation = 1;
    assert!(refused(&unsettled).is_some(), "nobody knows which copies are in sync");

    // Each part counts by itself.
    let mut parts = facts().await;
    parts.volumes[0].sets[1].members.truncate(1);
    assert!(refused(&parts).is_some());
    let holder = parts.volumes[0].sets[1].members[0].drive;
    for (node, drive) in [(0, 1), (1, 2), (2, 3)] {
        let is_needed = parts.check_drain(&parts.nodes[node]).is_err();
        assert_eq!(is_needed, drive_id(drive) == holder, "only of what a node has itself it may be the last");
    }

    // Somebody may ask again whether it can be switched off by now.
    let mut lost_since = without_one;
    pause(&mut lost_since, 0);
    let error = refused(&lost_since).expect("n3 is stale");
    assert!(
        error.what.contains("in maintenance") && error.what.contains("must not be switched off"),
        "{error}"
    );
}

#[tokio::test]
async fn a_node_is_drained_only_if_a_majority_of_the_votes_stays() {
    let facts = facts().await;
    let member = |number: u64, runs: bool| StateMember {
        name: format!("n{number}"),
        server: Some(node_id(number)),
        runs,
        votes: true,
        leads: number == 1,
        endpoints: Vec::new(),
    };
    let check = |facts: &Facts, members: &[StateMember]| facts.check_votes(&facts.nodes[0], members);
    let three = [member(1, true), member(2, true), member(3, true)];
    assert_eq!(check(&facts, &three), Ok(()));
    assert_eq!(check(&facts, &[]), Ok(()), "others keep the state");

    let alone = check(&facts, &three[..1]).expect_err("nobody else has a vote");
    assert_eq!(alone.code, "STATE_MAJORITY_NEEDED");
    let without_vote = [member(2, true), StateMember { votes: false, ..member(1, true) }];
    assert_eq!(check(&facts, &without_vote), Ok(()), "it has none itself");

    // A witness is no node, and only says that it runs.
    let with_witness =
        |runs| [member(1, true), member(2, true), StateMember { name: "w".into(), ..member(9, runs) }];
    assert_eq!(check(&facts, &with_witness(true)), Ok(()));
    let error = check(&facts, &with_witness(false)).expect_err("only n2 would be left");
    assert!(error.why.contains("1 would be left") && error.why.ends_with(": w"), "{error}");

    let mut paused = facts;
    pause(&mut paused, 1);
    let error = check(&paused, &three).expect_err("n2 may be switched off at any time");
    assert!(error.why.ends_with(": n2"), "{error}");
}

#[tokio::test]
async fn a_resync_shows() {
    let mut facts = facts().await;
    facts.volumes[0].marks.insert(drive_id(2), Version::ZERO);
    let report = facts.nodes[0].report.as_mut().expect("it runs");
    report.owned[0].legs[1] = LegReport { resync_pages: Some((3, 4)), ..leg(2, "joining") };
    let volume = volume(&facts);
    assert_eq!(volume.status.to_string(), "Warning (Degraded, In Service)");
    assert_eq!(volume.legs[1].resync, Some(Progress { done: 3, total: 4 }));
    assert_eq!(volume.legs[1].state, "joining");
}

#[tokio::test]
async fn an_owner_that_the_state_does_not_name_does_not_count() {
    let mut facts = facts().await;
    let owner = facts.volumes[0].record.owner.as_mut().expect("it has one");
    owner.incarnation = incarnation(99);
    let volume = volume(&facts);
    assert!(!volume.is_serving);
    assert_eq!(volume.status.to_string(), "Warning (Starting)");
}

#[tokio::test]
async fn a_writer_of_an_earlier_run_is_gone() {
    let mut facts = facts().await;
    facts.nodes[2].report.as_mut().expect("it runs").incarnation = incarnation(99);
    assert_eq!(volume(&facts).writer, None);
}

#[tokio::test]
async fn a_writer_whose_node_does_not_answer_may_write_until_the_node_is_known_to_be_gone() {
    let mut facts = facts().await;
    facts.nodes[2].report = None;
    assert_eq!(volume(&facts).writer.as_deref(), Some("n3"));
    facts.nodes[2].is_alive = false;
    assert_eq!(volume(&facts).writer.as_deref(), Some("n3"), "the others reach it");
    for known in &mut facts.nodes[..2] {
        known.report.as_mut().expect("it runs").reachable.retain(|node| *node != node_id(3));
    }
    assert_eq!(volume(&facts).writer, None);
}

#[tokio::test]
async fn a_drive_that_fails() {
    let mut facts = facts().await;
    facts.nodes[1].report.as_mut().expect("it runs").drives[0].failure = Some("no answer".to_owned());
    let drive = facts.drives().swap_remove(1);
    assert_eq!(drive.status.to_string(), "Unhealthy (Not Usable)");
    assert_eq!(drive.failure.as_deref(), Some("no answer"));
    assert_eq!(volume(&facts).status.health, HealthStatus::Warning);
}

#[tokio::test]
async fn a_drive_that_is_not_in_the_pool_shows_too() {
    let mut facts = facts().await;
    let stranger = DriveReport { failure: Some("damaged".to_owned()), ..DriveReport::default() };
    facts.nodes[0].report.as_mut().expect("it runs").drives.push(stranger);
    let drives = facts.drives();
    assert_eq!(drives.len(), 4);
    assert_eq!(drives.iter().filter(|drive| drive.id.is_none()).count(), 1);
}

#[test]
fn numbers_in_names_count_as_such() {
    let mut names = ["n10", "n2", "n1", "a", "n", "n2/d10", "n2/d9"];
    names.sort_by_key(|name| natural_order(name));
    assert_eq!(names, ["a", "n", "n1", "n2", "n2/d9", "n2/d10", "n10"]);
}
