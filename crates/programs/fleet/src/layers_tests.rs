use super::*;

fn flow(done: u64, bytes: u64, in_flight_us: u64) -> FlowCounts {
    FlowCounts { done, bytes, in_flight: 0, in_flight_us }
}

fn node(name: &str, run: &str, at_s: u64, done: u64) -> NodeReading {
    // Each read takes 100 us and has 4 KiB.
    let frontend = LoadCounts { reads: flow(done, done * 4096, done * 100), ..LoadCounts::default() };
    NodeReading {
        name: name.to_owned(),
        run: run.to_owned(),
        at_us: at_s * 1_000_000,
        cpu_us: Some(at_s * 500_000),
        frontend,
        ..NodeReading::default()
    }
}

fn drive(name: &str, node: &str, done: u64) -> DriveReading {
    let load = LoadCounts { writes: flow(done, done * 8192, done * 2000), ..LoadCounts::default() };
    DriveReading { name: name.to_owned(), node: node.to_owned(), load }
}

#[test]
fn differences_become_rates_queues_and_times() {
    let before = ClusterReading {
        nodes: vec![node("n1", "a", 10, 0), node("n2", "b", 20, 500)],
        drives: vec![drive("n1/d1", "n1", 100), drive("n2/d1", "n2", 0)],
        cache: None,
    };
    let after = ClusterReading {
        nodes: vec![node("n1", "a", 12, 4000), node("n2", "b", 22, 1500)],
        drives: vec![drive("n1/d1", "n1", 1100), drive("n2/d1", "n2", 0)],
        cache: None,
    };
    let layers = Layers::between(&before, &after);
    assert_eq!(layers.seconds, 2.0);
    assert_eq!((layers.nodes[0].frontend.read.iops, layers.nodes[1].frontend.read.iops), (2000.0, 500.0));
    assert_eq!(layers.nodes[0].cores, Some(0.5));
    assert_eq!((layers.frontend.iops(), layers.frontend.read.mean_us), (2500.0, Some(100.0)));
    assert!((layers.frontend.queue() - 0.25).abs() < 1e-9, "2,500 a second, 100 us each: {layers:?}");
    assert_eq!((layers.drive.write.iops, layers.drive.write.mib_per_second), (500.0, 500.0 * 8192.0 / MIB));
    assert_eq!(layers.drives[1].load, LayerRate::default(), "it had nothing to do");
    assert_eq!(layers.drives[1].load.write.mean_us, None);
}

#[test]
fn a_node_that_has_run_anew_is_left_out_with_its_drives() {
    let before = ClusterReading {
        nodes: vec![node("n1", "a", 10, 0), node("n2", "b", 20, 500)],
        drives: vec![drive("n1/d1", "n1", 100), drive("n2/d1", "n2", 70)],
        cache: None,
    };
    let after = ClusterReading {
        nodes: vec![node("n1", "a", 11, 10), node("n2", "c", 1, 7)],
        drives: vec![drive("n1/d1", "n1", 101), drive("n2/d1", "n2", 1), drive("n1/d2", "n1", 5)],
        cache: None,
    };
    let layers = Layers::between(&before, &after);
    let names: Vec<&str> = layers.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["n1"]);
    let names: Vec<&str> = layers.drives.iter().map(|drive| drive.name.as_str()).collect();
    assert_eq!(names, ["n1/d1"], "n1/d2 was not there before");
}
