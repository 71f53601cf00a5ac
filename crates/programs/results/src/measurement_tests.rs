use spandrel_fleet::{CellNumber, CellSpec, FlowRate, Layers};

use super::*;
use crate::folder::tests::row;

/// What clients see of capped I/Os is the wait for the cap; what their nodes see is the storage.
#[test]
fn latencies_of_capped_reads_and_writes_are_those_of_the_front_ends() {
    let row = row(&CellSpec::default());
    let of_mean = |mean_us: f64| FlowRate { mean_us: Some(mean_us), ..FlowRate::default() };
    let layers = Layers {
        frontend: LayerRate { read: of_mean(200.0), write: of_mean(300.0) },
        owner: LayerRate { read: of_mean(100.0), write: of_mean(150.0) },
        ..Layers::default()
    };
    let cell = CellRecord {
        number: CellNumber { cell: 0, repeat: 0 },
        kept_unix_ms: 0,
        result: row.cell,
        usage: row.usage,
        layers: Some(layers),
        layer_intervals: Vec::new(),
    };
    let of = |cell: &CellRecord, iops_max| {
        let measured = Measurement::of_cell(cell, iops_max, 2);
        (measured.read, measured.write)
    };
    let seen_by_clients = |traffic: &Traffic| LatencyPoints::of(traffic.latency.as_ref());
    assert_eq!(of(&cell, None), (seen_by_clients(&cell.result.read), seen_by_clients(&cell.result.write)));
    let mean = |mean_us| LatencyPoints { mean_us, ..LatencyPoints::default() };
    assert_eq!(of(&cell, Some(1100)), (mean(Some(200.0)), mean(Some(300.0))));
    let silent = CellRecord { layers: None, ..cell };
    assert_eq!(of(&silent, Some(1100)), (mean(None), mean(None)));
}
