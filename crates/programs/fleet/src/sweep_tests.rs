use super::*;
use crate::meter::{MeterReading, NoMeter};
use crate::progress::NoProgress;
use crate::testing::{Answer, Asked, Behaviour, LinuxServer};

fn spec() -> SweepSpec {
    SweepSpec {
        block_sizes_bytes: vec![4096],
        threads: vec![1],
        write_percents: vec![0, 100],
        outstanding: vec![1, 2],
        common: CellSpec {
            warmup: Duration::ZERO,
            duration: Duration::from_millis(50),
            working_set_bytes: Some(1 << 20),
            write_source_bytes: 1 << 20,
            ..CellSpec::default()
        },
        fill: false,
    }
}

#[test]
fn cells_come_in_the_order_of_the_reference_architectures() {
    let spec = SweepSpec {
        block_sizes_bytes: vec![4096, 8192],
        threads: vec![1, 2],
        write_percents: vec![30, 0],
        outstanding: vec![1, 8],
        ..spec()
    };
    let cells = spec.cells();
    let order: Vec<(u32, u32, u8, u32)> = cells
        .iter()
        .map(|cell| (cell.block_size_bytes, cell.threads, cell.write_percent, cell.outstanding))
        .collect();
    let half = |block| {
        [1, 2].into_iter().flat_map(move |threads| {
            [(block, threads, 30, 1), (block, threads, 30, 8), (block, threads, 0, 1), (block, threads, 0, 8)]
        })
    };
    assert_eq!(order, half(4096).chain(half(8192)).collect::<Vec<_>>());
    assert!(cells.iter().all(|cell| cell.working_set_bytes == Some(1 << 20)));
    assert_eq!(spec.duration(), Duration::from_millis(16 * 50));
}

#[test]
fn lists_that_make_no_sense_are_refused() {
    let cases = [
        (SweepSpec { outstanding: Vec::new(), ..spec() }, "outstanding I/Os is empty"),
        (SweepSpec { threads: Vec::new(), ..spec() }, "threads is empty"),
        (SweepSpec { block_sizes_bytes: Vec::new(), ..spec() }, "block sizes is empty"),
        (SweepSpec { write_percents: Vec::new(), ..spec() }, "write percentages is empty"),
        (SweepSpec { outstanding: vec![1; 101], threads: vec![1; 100], ..spec() }, "more than 10000 cells"),
        (SweepSpec { write_percents: vec![50, 101], ..spec() }, "share of all I/Os"),
    ];
    for (spec, why) in cases {
        let error = spec.validate().unwrap_err();
        assert_eq!(error.code, "FLEET_LOAD_INVALID");
        assert!(error.why.contains(why), "{error}");
    }
}

/// Counts a second of processor time and a thousand bytes with every reading.
#[derive(Default)]
struct Counting(u64);

impl ClusterMeter for Counting {
    fn read(&mut self) -> Result<MeterReading, Error> {
        self.0 += 1;
        Ok(MeterReading {
            cpu: Some(Duration::from_secs(self.0)),
            user_written_bytes: Some(self.0 * 1000),
            drive_written_bytes: Some(self.0 * 3050),
            cache: None,
        })
    }
}

#[test]
fn a_sweep_has_a_row_per_cell_with_what_it_used() {
    let server = LinuxServer::start(Behaviour::default());
    let mut meter = Counting::default();
    let result = sweep(&spec(), &server.targets(2), &mut meter, &mut NoProgress).unwrap();
    assert_eq!(meter.0, 8, "two readings for each cell");
    assert_eq!((result.clients, result.rows.len(), &result.stopped_by), (2, 4, &None));
    for (row, cell) in result.rows.iter().zip(spec().cells()) {
        assert_eq!(row.cell.spec, cell);
        assert!(row.cell.total.count > 0);
        assert_eq!(row.usage.write_amplification, Some(3.05));
        let cpu_seconds = row.usage.cpu_seconds.unwrap();
        assert!((cpu_seconds - 1.0 - row.usage.generator_cpu_seconds).abs() < 1e-9);
        let cores = row.usage.busy_cores.unwrap();
        assert!(
            (row.iops_per_busy_core.unwrap() * cores - row.cell.total.iops).abs()
                < 1e-6 * row.cell.total.iops
        );
    }
}

#[test]
fn the_fill_comes_first_and_reads_find_it() {
    let server = LinuxServer::start(Behaviour::default());
    let spec = SweepSpec { fill: true, write_percents: vec![0], outstanding: vec![1], ..spec() };
    sweep(&spec, &server.targets(1), &mut NoMeter, &mut NoProgress).unwrap();
    let asked = server.server.asked_of("client-0");
    let writes = asked.iter().take_while(|asked| asked.is_write());
    assert_eq!(writes.map(|asked| u64::from(asked.length)).sum::<u64>(), 1 << 20);
    assert!(asked.iter().filter(|asked| !asked.is_write()).count() > 0);
    assert_eq!(asked.iter().filter(|asked| asked.is_write()).count(), 4);
}

#[test]
fn a_sweep_that_cannot_go_on_keeps_what_it_has() {
    let decide = |asked: &Asked| match asked.index {
        300.. => Answer::Close,
        _ => Answer::Done(Duration::from_millis(1)),
    };
    let server = LinuxServer::start(Behaviour::deciding(decide));
    // The first cell takes some fifty I/Os, the second ends with the connections.
    let spec = SweepSpec { outstanding: vec![1, 400], write_percents: vec![0, 30], ..spec() };
    let result = sweep(&spec, &server.targets(1), &mut NoMeter, &mut NoProgress).unwrap();
    assert_eq!(result.rows.len(), 2);
    assert_eq!((result.rows[0].cell.clients_lost, result.rows[1].cell.clients_lost), (0, 1));
    assert_eq!(result.stopped_by.unwrap().code, "FLEET_CLIENTS_LOST");

    struct Broken;
    impl ClusterMeter for Broken {
        fn read(&mut self) -> Result<MeterReading, Error> {
            Err(Error::new("NO_METRICS", "metrics", "a node does not answer", "look at it"))
        }
    }
    let server = LinuxServer::start(Behaviour::default());
    let result = sweep(&self::spec(), &server.targets(1), &mut Broken, &mut NoProgress).unwrap();
    assert!(result.rows.is_empty());
    assert_eq!(result.stopped_by.unwrap().code, "NO_METRICS");
}
