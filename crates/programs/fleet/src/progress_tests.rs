use super::*;
use crate::meter::NoMeter;
use crate::sweep::{SweepSpec, sweep};
use crate::testing::{Behaviour, LinuxServer};

fn spec() -> SweepSpec {
    SweepSpec {
        block_sizes_bytes: vec![8192],
        threads: vec![1],
        write_percents: vec![30],
        outstanding: vec![1, 4],
        common: CellSpec {
            warmup: Duration::ZERO,
            duration: Duration::from_millis(250),
            working_set_bytes: Some(1 << 20),
            write_source_bytes: 1 << 20,
            ..CellSpec::default()
        },
        fill: true,
    }
}

#[test]
fn lines_tell_each_step_once() {
    let server = LinuxServer::start(Behaviour::default());
    let mut lines = LineProgress::new(Vec::new());
    sweep(&spec(), &server.targets(3), &mut NoMeter, &mut lines).unwrap();
    let text = String::from_utf8(lines.output).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 5, "{text}");
    assert_eq!(lines[0], "2 cells with 3 clients, about 500 ms");
    assert!(lines[1].starts_with("filling the volumes: ") && lines[1].ends_with(" of 3 MiB"), "{text}");
    assert_eq!(lines[2], "volumes filled");
    assert!(lines[3].starts_with("cell 1/2: 8 KiB, 30 % writes, 1 x 1 outstanding: "), "{text}");
    assert!(lines[4].starts_with("cell 2/2: 8 KiB, 30 % writes, 1 x 4 outstanding: "), "{text}");
    assert!(lines[4].contains(" IOPS, ") && lines[4].ends_with(" us"), "{text}");
}

#[test]
fn a_bar_reaches_its_end() {
    let server = LinuxServer::start(Behaviour::default());
    let mut bar = BarProgress::new(ProgressDrawTarget::hidden());
    sweep(&spec(), &server.targets(1), &mut NoMeter, &mut bar).unwrap();
    assert_eq!((bar.bar.position(), bar.bar.length()), (500, Some(500)));
    assert!(bar.bar.is_finished());
    assert!(
        bar.bar.message().starts_with("cell 2/2: 8 KiB, 30 % writes, 1 x 4 outstanding  "),
        "{}",
        bar.bar.message()
    );
}
