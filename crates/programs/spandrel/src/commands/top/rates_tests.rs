use spandrel_health::{HealthStatus, OperationalStatus, Status};
use spandrel_node::DriveLoad;

use super::*;
use crate::admin::api::{JobKind, Progress};
use crate::admin::testing::{drive_id, incarnation, node_id, volume_id};

fn flow(done: u64, bytes: u64, in_flight: u64, in_flight_us: u64) -> FlowCounts {
    FlowCounts { done, bytes, in_flight, in_flight_us }
}

/// Reads as they are given, and half as many writes of everything.
fn counts(done: u64, bytes: u64, in_flight: u64, in_flight_us: u64) -> LoadCounts {
    LoadCounts {
        reads: flow(done, bytes, in_flight, in_flight_us),
        writes: flow(done / 2, bytes / 2, in_flight / 2, in_flight_us / 2),
    }
}

fn volume(name: &str, frontend: LoadCounts, owner: LoadCounts) -> VolumeLoad {
    let id = VolumeId::from_random(9, name.len() as u64 + u64::from(name.as_bytes()[0]));
    VolumeLoad { volume: id, name: name.to_owned(), is_owned: false, frontend, owner, longest_pause: None }
}

fn load(number: u64, at_us: u64, volumes: Vec<VolumeLoad>) -> NodeLoad {
    NodeLoad {
        node: node_id(number),
        incarnation: incarnation(number),
        at_us,
        cpu_us: Some(at_us / 4),
        nodes_reached: 1,
        is_in_maintenance: false,
        repairs: 0,
        volumes,
        bus: LoadCounts::default(),
        drives: Vec::new(),
    }
}

fn node(number: u64, load: Option<NodeLoad>) -> LoadedNode {
    let (health, operational) = match load {
        Some(_) => (HealthStatus::Healthy, OperationalStatus::Up),
        None => (HealthStatus::Unhealthy, OperationalStatus::Down),
    };
    LoadedNode {
        name: format!("n{number}"),
        status: Status::new(health, operational),
        is_alive: load.is_some(),
        load,
    }
}

pub(crate) fn cluster(taken_unix_ms: u64, nodes: Vec<LoadedNode>) -> ClusterLoad {
    ClusterLoad { cluster: "demo".to_owned(), taken_unix_ms, nodes, jobs: Vec::new() }
}

fn layer<'a>(rates: &'a Rates, name: &str) -> &'a LoadRates {
    &rates.layers.iter().find(|layer| layer.layer == name).expect("there is such a layer").load
}

#[test]
fn differences_are_divided_by_each_nodes_own_time() {
    let before = cluster(
        5000,
        vec![
            node(1, Some(load(1, 1_000_000, vec![volume("a", counts(100, 4096, 0, 0), counts(0, 0, 0, 0))]))),
            node(2, Some(load(2, 7_000_000, vec![volume("a", counts(10, 0, 0, 500), counts(7, 0, 0, 0))]))),
        ],
    );
    // Two seconds at n1, half of one at n2.
    let after = cluster(
        6000,
        vec![
            node(
                1,
                Some(load(
                    1,
                    3_000_000,
                    vec![volume("a", counts(300, 8192, 3, 1_000_000), counts(0, 0, 0, 0))],
                )),
            ),
            node(2, Some(load(2, 7_500_000, vec![volume("a", counts(20, 0, 4, 1500), counts(27, 0, 1, 0))]))),
        ],
    );
    let rates = Rates::between(&before, &after);
    assert_eq!((rates.interval_ms, rates.at_unix_ms, rates.nodes_answering()), (1000, 6000, 2));
    let frontend = layer(&rates, "front-end").reads;
    assert_eq!(frontend.per_second, 100.0 + 20.0);
    assert_eq!(frontend.bytes_per_second, 2048.0);
    assert_eq!((frontend.done, frontend.done_since_start, frontend.in_flight), (210, 320, 7));
    assert_eq!(frontend.latency_us, Some(1_001_000.0 / 210.0));
    assert_eq!(frontend.queue, 0.5 + 0.002);
    let writes = layer(&rates, "front-end").writes;
    assert_eq!((writes.done, writes.in_flight), (105, 3));
    assert_eq!(layer(&rates, "owner").reads.per_second, 40.0);
    assert_eq!(layer(&rates, "owner").reads.latency_us, Some(0.0));
    assert_eq!(layer(&rates, "bus").all(), FlowRates::default());
    let first = &rates.nodes[0];
    assert_eq!((first.node.as_str(), first.state.as_str(), first.cpu_percent), ("n1", "Up", Some(25.0)));
    assert_eq!(first.frontend.all().done, 300);
    assert_eq!(rates.volumes.len(), 1);
    assert_eq!(rates.volumes[0].load, *layer(&rates, "front-end"), "it is the only one");
}

#[test]
fn bus_and_drives_are_layers_of_their_own() {
    let with = |at_us, done| {
        let drives = [1, 2].map(|number| DriveLoad {
            drive: drive_id(number),
            location: String::new(),
            load: counts(done * number, 0, 0, done * 1000),
            cache: None,
        });
        NodeLoad { bus: counts(done, 0, 0, 0), drives: drives.to_vec(), ..load(1, at_us, Vec::new()) }
    };
    let before = cluster(0, vec![node(1, Some(with(0, 10)))]);
    let mut later = with(1_000_000, 30);
    // A drive that has come since began with nothing.
    later.drives[1].drive = drive_id(3);
    let rates = Rates::between(&before, &cluster(1000, vec![node(1, Some(later))]));
    assert_eq!(layer(&rates, "bus").reads.per_second, 20.0);
    let drives = layer(&rates, "drive").reads;
    assert_eq!(drives.per_second, 20.0 + 60.0);
    assert_eq!(drives.latency_us, Some((20_000.0 + 30_000.0) / 80.0));
    assert_eq!(rates.nodes[0].drive.reads, drives);
}

/// Counts of a run that is over are not compared with those of the next one, nor with nothing.
#[test]
fn nodes_that_are_gone_or_new_have_no_rates() {
    let many = || vec![volume("a", counts(1000, 0, 2, 0), counts(0, 0, 0, 0))];
    let few = || vec![volume("a", counts(10, 0, 1, 0), counts(0, 0, 0, 0))];
    let before =
        cluster(0, vec![node(1, Some(load(1, 0, many()))), node(2, Some(load(2, 0, many()))), node(3, None)]);
    let anew = NodeLoad { incarnation: incarnation(9), ..load(1, 1_000_000, few()) };
    let mut silent = node(2, None);
    silent.is_alive = true;
    let after = cluster(
        1000,
        vec![node(1, Some(anew)), silent, node(3, Some(load(3, 1_000_000, many()))), node(4, None)],
    );
    let rates = Rates::between(&before, &after);
    let states: Vec<&str> = rates.nodes.iter().map(|node| &*node.state).collect();
    assert_eq!(states, ["Up", "no answer", "Up", "Down"]);
    assert_eq!(rates.nodes_answering(), 2);
    let frontend = layer(&rates, "front-end").reads;
    assert_eq!((frontend.done, frontend.per_second, frontend.latency_us), (0, 0.0, None));
    assert_eq!((frontend.in_flight, frontend.done_since_start), (3, 1010), "what is so now is known");
    assert!(rates.nodes.iter().all(|node| node.cpu_percent.is_none()));
    // The same answer twice: no time has passed.
    let same = Rates::between(&before, &before);
    assert_eq!((layer(&same, "front-end").reads.per_second, same.interval_ms), (0.0, 0));
}

#[test]
fn volumes_are_sorted_by_what_they_do_and_those_that_are_new_began_with_nothing() {
    let before = cluster(
        0,
        vec![node(1, Some(load(1, 0, vec![volume("idle", counts(900, 0, 0, 0), counts(0, 0, 0, 0))])))],
    );
    let owned = VolumeLoad { is_owned: true, ..volume("new", counts(50, 0, 0, 0), counts(0, 0, 0, 0)) };
    let waiting = volume("waits", counts(0, 0, 4, 4_000_000), counts(0, 0, 0, 0));
    let idle = volume("idle", counts(900, 0, 0, 0), counts(0, 0, 0, 0));
    let after = cluster(1000, vec![node(1, Some(load(1, 1_000_000, vec![idle, owned, waiting])))]);
    let rates = Rates::between(&before, &after);
    let seen: Vec<(&str, u64, Option<&str>)> = rates
        .volumes
        .iter()
        .map(|volume| (&*volume.volume, volume.load.all().done, volume.owner.as_deref()))
        .collect();
    assert_eq!(seen, [("new", 75, Some("n1")), ("waits", 0, None), ("idle", 0, None)]);
    assert_eq!(rates.volumes[1].load.all().queue, 6.0);
    assert_eq!(rates.volumes[1].load.all().latency_us, None, "nothing was done");
}

#[test]
fn the_longest_pause_of_all_is_named_with_its_volume_and_node() {
    let paused = |name: &str, length_ms| VolumeLoad {
        longest_pause: Some(LongestPause { length_ms, ended_ms_ago: Some(5) }),
        ..volume(name, counts(0, 0, 0, 0), counts(0, 0, 0, 0))
    };
    let after = cluster(
        0,
        vec![
            node(1, Some(load(1, 0, vec![paused("a", 300), paused("b", 200)]))),
            node(2, Some(load(2, 0, vec![paused("a", 100), paused("b", 1800)]))),
        ],
    );
    let rates = Rates::between(&after, &after);
    let named = |pause: &PauseOfVolume| (pause.volume.clone(), pause.node.clone(), pause.pause.length_ms);
    assert_eq!(rates.longest_pause.as_ref().map(named), Some(("b".to_owned(), "n2".to_owned(), 1800)));
    let by_volume: Vec<_> =
        rates.volumes.iter().filter_map(|volume| volume.longest_pause.as_ref()).map(named).collect();
    assert_eq!(by_volume, [("a".to_owned(), "n1".to_owned(), 300), ("b".to_owned(), "n2".to_owned(), 1800)]);
    assert_eq!(Rates::between(&cluster(0, Vec::new()), &cluster(0, Vec::new())).longest_pause, None);
}

#[test]
fn the_json_has_plain_fields() {
    let job = Job {
        kind: JobKind::Repair,
        volume: "v".to_owned(),
        drive: "n2/sdb".to_owned(),
        slabs: 3,
        pages: Progress { done: 1, total: 4 },
        copied_bytes: 1000,
        elapsed_ms: 500,
    };
    let paused = VolumeLoad {
        volume: volume_id(),
        longest_pause: Some(LongestPause { length_ms: 100, ended_ms_ago: None }),
        ..volume("a", counts(4, 0, 0, 8), counts(0, 0, 0, 0))
    };
    let mut after = cluster(0, vec![node(1, Some(load(1, 0, vec![paused])))]);
    after.jobs.push(job);
    let json = serde_json::to_value(Rates::between(&after, &after)).expect("plain data");
    let layers: Vec<&str> = json["layers"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|layer| layer["layer"].as_str().expect("a name"))
        .collect();
    assert_eq!(layers, ["front-end", "owner", "bus", "drive"]);
    assert_eq!(json["layers"][0]["reads"]["done_since_start"], 4);
    assert_eq!(json["jobs"][0]["kind"], "repair");
    assert_eq!(json["jobs"][0]["bytes_per_second"], 2000);
    assert_eq!(json["jobs"][0]["left_ms"], 1500);
    assert_eq!(json["longest_pause"]["length_ms"], 100);
    assert_eq!(json["longest_pause"]["ended_ms_ago"], serde_json::Value::Null);
}
