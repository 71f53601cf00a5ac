use super::*;

#[test]
fn all_that_is_shipped_can_be_read_and_has_each_load_once() {
    for name in names() {
        let run = read(name).expect("it is there");
        assert!(!run.title.is_empty() && !run.source.is_empty(), "{name}");
        let mut loads: Vec<&Load> = run.cells.iter().map(|cell| &cell.load).collect();
        let count = loads.len();
        loads.sort();
        loads.dedup();
        assert_eq!(loads.len(), count, "{name}");
        for cell in &run.cells {
            let measured = &cell.measurements[0];
            assert!(
                measured.iops.or(measured.mib_per_second).is_some_and(|value| value > 0.0),
                "{name}: {cell:?}"
            );
        }
    }
}

/// By Little's law, where nothing held clients back: what was published of rates and latencies fits the clients that there were.
#[test]
fn rates_and_latencies_fit_each_other() {
    let run = read("micron-sata").expect("it is there");
    for cell in run.cells.iter().filter(|cell| cell.load.block_size_bytes == 4096) {
        let measured = &cell.measurements[0];
        let Some((iops, mean_us)) = measured.iops.zip(measured.total.mean_us) else { continue };
        let in_flight = f64::from(320 * cell.load.outstanding);
        let residual = 100.0 * (iops * mean_us / 1e6 / in_flight - 1.0);
        assert!(residual.abs() < 10.0, "{:?}: {residual:.1} %", cell.load);
    }
}
