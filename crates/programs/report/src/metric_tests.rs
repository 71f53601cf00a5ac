use spandrel_results::{LatencyPoints, Load, NodeShare};

use super::*;

#[test]
fn thousands_are_set_apart() {
    let cases =
        [(0.0, 0, "0"), (999.6, 0, "1,000"), (1_234_567.891, 2, "1,234,567.89"), (-1234.5, 1, "-1,234.5")];
    for (value, digits, text) in cases {
        assert_eq!(grouped(value, digits), text);
    }
}

#[test]
fn repeats_are_means_and_what_was_not_measured_is_none() {
    let measured = |iops, mean_us: Option<f64>| Measurement {
        iops: Some(iops),
        busy_cores: Some(2.0),
        total: LatencyPoints { mean_us, ..LatencyPoints::default() },
        ..Measurement::default()
    };
    let load = Load {
        block_size_bytes: 4096,
        pattern: "random".to_owned(),
        threads: 1,
        write_percent: 0,
        outstanding: 1,
    };
    let cell = MeasuredCell { load, measurements: vec![measured(100.0, Some(500.0)), measured(300.0, None)] };
    let iops = IOPS.values(&cell).expect("both have them");
    assert_eq!((iops.count, iops.spread.mean, iops.spread.max), (2, 200.0, 300.0));
    assert_eq!(MEAN.values(&cell), None, "only one has it");
    assert_eq!((PER_CORE.mean(&cell), P99.mean(&cell)), (Some(100.0), None));
    assert_eq!(MEAN.title(), "mean latency (ms)");
}

#[test]
fn nodes_differ_by_their_deviation() {
    let node = |name: &str, iops| NodeShare { name: name.to_owned(), iops, clients: 1, cores: None };
    let of = |nodes| (NODE_UNEVENNESS.of)(&Measurement { nodes, ..Measurement::default() });
    assert_eq!(of(vec![node("n1", 50.0), node("n2", 150.0)]), Some(50.0));
    let busier = NodeShare { clients: 3, ..node("n2", 150.0) };
    assert_eq!(of(vec![node("n1", 50.0), busier]), Some(0.0), "each client had as much");
    assert_eq!(of(vec![node("n1", 50.0)]), None, "one node differs from nobody");
}
