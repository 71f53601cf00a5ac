use spandrel_cluster::VolumeOwner;
use spandrel_health::HealthStatus;
use spandrel_shared::{ShardId, Version};

use super::*;
use crate::admin::testing::*;

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
async fn a_node_of_several_shards_is_told_as_one() {
    let mut facts = facts().await;
    let known = &mut facts.nodes[2];
    let further = vec!["10.0.0.3:7444".to_owned()];
    known.record.as_mut().expect("there is one").further_shards = vec![further.clone()];
    let report = known.report.as_mut().expect("it runs");
    report.further_incarnations = vec![incarnation(33)];
    let first = report.peers[0].clone();
    let elsewhere = PathReport { address: "10.0.0.9:7444".to_owned(), carried_bytes: 5 };
    report.peers.extend([
        PeerReport { shard: 1, silent_ms: Some(9), paths: vec![elsewhere], ..first.clone() },
        PeerReport { silent_ms: Some(3), ..first },
        PeerReport { node: known.id, shard: 1, silent_ms: Some(50), paths: Vec::new() },
    ]);
    let details = facts.node_details(facts.known_node("n3").expect("there is one"), None);
    assert_eq!(details.shards, 2);
    assert_eq!(details.addresses.last(), further.first());
    let [peer] = &details.peers[..] else { panic!("{:?}", details.peers) };
    assert_eq!((peer.node.as_str(), peer.silent_ms), ("n1", Some(9)), "the worst pair of shards counts");
    let paths: Vec<_> = peer.paths.iter().map(|path| (path.address.as_str(), path.carried_bytes)).collect();
    assert_eq!(paths, [("10.0.0.9:7440", 22), ("10.0.0.9:7444", 5)]);
    // Its client is one of its second shard's.
    let writer = facts.volumes[0].record.writer.as_mut().expect("it has one");
    writer.shard.number = 1;
    assert_eq!(volume(&facts).writer, None, "that is another run of it");
    facts.volumes[0].record.writer.as_mut().expect("it has one").incarnation = incarnation(33);
    assert_eq!(volume(&facts).writer.as_deref(), Some("n3"));
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

#[tokio::test]
async fn copies_whose_node_does_not_stand_by_them_yet_do_not_count_as_there() {
    let mut facts = facts().await;
    let report = facts.nodes[0].report.as_mut().expect("it runs");
    report.owned[0].legs[2].is_silent = true;
    assert_eq!(facts.drives()[2].status.to_string(), "Healthy (OK)");
    assert_eq!(volume(&facts).status.to_string(), "Warning (Incomplete)");
    assert_eq!(volume(&facts).legs[2].state, "in-sync (silent)");
    facts.nodes[2].report = None;
    assert_eq!(volume(&facts).legs[2].state, "in-sync (away)", "that says more");
}

#[tokio::test]
async fn a_node_in_maintenance_drains_until_nobody_says_that_it_owns_anything() {
    let mut facts = facts().await;
    pause(&mut facts, 0);
    let left = |facts: &Facts| facts.nodes()[0].maintenance.clone().expect("it is").volumes_left;
    assert_eq!(facts.nodes()[0].status.to_string(), "Warning (Draining)");
    assert_eq!(left(&facts), ["v1"]);
    facts.volumes[0].record.owner =
        Some(VolumeOwner { shard: ShardId::first(node_id(2)), incarnation: incarnation(2) });
    assert_eq!(left(&facts), ["v1"], "it does not know yet");
    facts.nodes[0].report.as_mut().expect("it runs").owned.clear();
    assert!(left(&facts).is_empty());
    assert_eq!(facts.nodes()[0].status.to_string(), "Warning (Paused)");
    facts.nodes[0].report = None;
    facts.volumes[0].record.owner =
        Some(VolumeOwner { shard: ShardId::first(node_id(1)), incarnation: incarnation(1) });
    assert_eq!(left(&facts), ["v1"], "it has died, and nobody has taken it yet");
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
