use spandrel_shared::FlowCounts;

use super::*;

fn counts(done: u64) -> LoadCounts {
    let reads = FlowCounts { done, bytes: done * 10, in_flight: 1, in_flight_us: done * 100 };
    LoadCounts { reads, writes: FlowCounts::default() }
}

fn volume(number: u8, is_owned: bool, done: u64, pause_ms: Option<u64>) -> VolumeLoad {
    VolumeLoad {
        volume: VolumeId::from_bytes([number; 16]),
        name: format!("v{number}"),
        is_owned,
        frontend: counts(done),
        owner: counts(2 * done),
        longest_pause: pause_ms.map(|length_ms| LongestPause { length_ms, ended_ms_ago: None }),
    }
}

fn load(nodes_reached: u32, volumes: Vec<VolumeLoad>, locations: &[&str]) -> NodeLoad {
    let drive = |location: &&str| DriveLoad {
        drive: DriveId::from_bytes([1; 16]),
        location: (*location).to_owned(),
        load: counts(1),
        cache: None,
    };
    NodeLoad {
        node: NodeId::from_bytes([1; 16]),
        incarnation: ProcessIncarnation::from_bytes([1; 16]),
        at_us: 5,
        cpu_us: Some(70),
        nodes_reached,
        is_in_maintenance: false,
        repairs: 1,
        volumes,
        bus: counts(4),
        drives: locations.iter().map(drive).collect(),
    }
}

#[test]
fn what_the_shards_of_a_node_do_is_one_load() {
    assert_eq!(NodeLoad::of_shards([]), None);
    // The second shard owns the volume whose clients the first one has.
    let first = load(3, vec![volume(1, false, 5, Some(200))], &["a", "c"]);
    let second = load(2, vec![volume(1, true, 7, Some(300)), volume(2, true, 1, None)], &["b"]);
    let all = NodeLoad::of_shards([first, second]).expect("there are some");
    assert_eq!((all.cpu_us, all.nodes_reached, all.repairs), (Some(140), 2, 2));
    assert_eq!((all.bus.reads.done, all.bus.reads.bytes, all.bus.reads.in_flight), (8, 80, 2));
    let [one, other] = &all.volumes[..] else { panic!("{:?}", all.volumes) };
    assert!(one.is_owned && other.is_owned);
    assert_eq!((one.frontend.reads.done, one.owner.reads.done), (12, 24));
    assert_eq!(one.longest_pause.expect("both had one").length_ms, 300);
    let locations: Vec<&str> = all.drives.iter().map(|drive| &drive.location[..]).collect();
    assert_eq!(locations, ["a", "b", "c"]);
    let unmeasured = NodeLoad { cpu_us: None, ..load(1, Vec::new(), &[]) };
    let all = NodeLoad::of_shards([load(1, Vec::new(), &[]), unmeasured]).expect("there are some");
    assert_eq!(all.cpu_us, None, "half of it would mislead");
}
