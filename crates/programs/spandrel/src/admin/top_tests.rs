use spandrel_health::OperationalStatus;
use spandrel_node::VolumeLoad;
use spandrel_shared::LoadCounts;

use super::super::testing;
use super::*;

fn entry(number: u64) -> NodeEntry {
    NodeEntry {
        name: format!("n{number}"),
        id: testing::node_id(number),
        nbd_addresses: Vec::new(),
        access: None,
    }
}

fn load(number: u64, is_in_maintenance: bool, is_owned: bool) -> NodeLoad {
    let volume = VolumeLoad {
        volume: testing::volume_id(),
        name: "v1".to_owned(),
        is_owned,
        frontend: LoadCounts::default(),
        owner: LoadCounts::default(),
        longest_pause: None,
    };
    NodeLoad {
        node: testing::node_id(number),
        incarnation: testing::incarnation(number),
        at_us: 7,
        cpu_us: None,
        nodes_reached: 1,
        is_in_maintenance,
        repairs: 0,
        volumes: vec![volume],
        bus: LoadCounts::default(),
        drives: Vec::new(),
    }
}

#[test]
fn nodes_are_shown_whether_they_answer_or_not() {
    let answers = vec![
        (entry(1), Some(load(1, false, true))),
        (entry(2), None),
        (entry(3), Some(load(3, true, true))),
        (entry(4), Some(load(4, true, false))),
        (entry(5), Some(NodeLoad { nodes_reached: 0, ..load(5, false, false) })),
    ];
    let nodes = loaded(answers);
    let names: Vec<&str> = nodes.iter().map(|node| &*node.name).collect();
    assert_eq!(names, ["n1", "n2", "n3", "n4", "n5"]);
    let worst: Vec<OperationalStatus> = nodes.iter().map(|node| node.status.operational[0]).collect();
    use OperationalStatus::{Down, Draining, Isolated, Paused, Up};
    assert_eq!(worst, [Up, Down, Draining, Paused, Isolated]);
    assert_eq!(nodes[1].load, None);
}

#[test]
fn a_node_alone_is_not_isolated() {
    let nodes = loaded(vec![
        (entry(1), Some(NodeLoad { nodes_reached: 0, ..load(1, false, true) })),
        (entry(2), None),
    ]);
    assert_eq!(nodes[0].status.operational, [OperationalStatus::Up]);
}
