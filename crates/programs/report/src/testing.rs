//! Runs for tests.

use spandrel_results::{LatencyPoints, Load, MeasuredCell, MeasuredRun, Measurement, NodeShare};

/// A run of 4 KiB at random places: reads alone and writes alone, with 1, 2, 4 and 8 outstanding. Each doubling brings four
/// fifths more up to four, and a hundredth from there on.
pub(crate) fn run(name: &str, iops: f64) -> MeasuredRun {
    let mut cells = Vec::new();
    for write_percent in [0, 100] {
        for (outstanding, factor) in [(1, 1.0), (2, 1.8), (4, 3.24), (8, 3.27)] {
            let iops = iops * factor / if write_percent == 0 { 1.0 } else { 4.0 };
            let load = Load {
                block_size_bytes: 4096,
                pattern: "random".to_owned(),
                threads: 1,
                write_percent,
                outstanding,
            };
            cells.push(MeasuredCell {
                load,
                measurements: vec![measurement(iops, outstanding, write_percent)],
            });
        }
    }
    MeasuredRun {
        name: name.to_owned(),
        title: "small blocks".to_owned(),
        source: "made up".to_owned(),
        vms: Some(16),
        nodes: Some(2),
        drives: Some(8),
        copies: Some(3),
        cells,
        ..MeasuredRun::default()
    }
}

fn measurement(iops: f64, outstanding: u32, write_percent: u8) -> Measurement {
    let mean_us = 16.0 * f64::from(outstanding) / iops * 1e6;
    let node = |name: &str, share: f64| NodeShare {
        name: name.to_owned(),
        iops: iops * share,
        clients: 8,
        cores: Some(1.0),
    };
    Measurement {
        iops: Some(iops),
        mib_per_second: Some(iops / 256.0),
        total: LatencyPoints {
            mean_us: Some(mean_us),
            p99_us: Some(3.0 * mean_us),
            p99_9_us: Some(5.0 * mean_us),
            ..LatencyPoints::default()
        },
        cpu_percent: Some(40.0),
        busy_cores: Some(4.0),
        write_amplification: (write_percent > 0).then_some(3.04),
        drive_write_mib_per_second: (write_percent > 0).then_some(iops / 256.0 * 3.04),
        drive_queue: Some(1.5),
        littles_law_percent: Some(0.5),
        nodes: vec![node("n1", 0.5), node("n2", 0.5)],
        ..Measurement::default()
    }
}
