use clap::{CommandFactory, Parser};

use super::*;
use crate::meter::NoMeter;
use crate::progress::NoProgress;
use crate::testing::{Answer, Behaviour, LinuxServer};

/// As a program would embed it.
#[derive(Debug, Parser)]
#[command(name = "spandrel")]
enum Program {
    /// Put load on the cluster
    Fleet(FleetArguments),
}

fn parse(line: &str) -> Result<SweepArguments, clap::Error> {
    let words = ["spandrel", "fleet", "sweep"].into_iter().chain(line.split_whitespace());
    let Program::Fleet(FleetArguments { command }) = Program::try_parse_from(words)?;
    match command {
        FleetCommand::Sweep(arguments) => Ok(*arguments),
        _ => panic!("it is a sweep"),
    }
}

#[test]
fn the_command_line_is_well_formed() {
    Program::command().debug_assert();
}

#[test]
fn a_sweep_is_read_from_the_command_line() {
    let arguments = parse(
        "--vms 16 --threads 1,2 --block-size 4k,128k --outstanding 1,2,4,8 --write-percent 0,10,30,100 \
         --pattern si --io-alignment 8k --alignment 70 --working-set 1G --warmup 1s --duration 2s --cooldown 500ms --drain 3s \
         --seed 7 --write-source 1M --write-content zeros --base-offset 4k --rate-limit 300i --load-threads 2 --no-fill --intervals -o csv",
    )
    .unwrap();
    assert_eq!((arguments.vms, arguments.output, arguments.alignment), (16, OutputFormat::Csv, 70));
    let spec = arguments.spec().unwrap();
    assert_eq!(spec.block_sizes_bytes, [4096, 128 << 10]);
    assert_eq!((&spec.threads[..], &spec.outstanding[..]), (&[1, 2][..], &[1, 2, 4, 8][..]));
    assert_eq!(spec.write_percents, [0, 10, 30, 100]);
    assert!(!spec.fill);
    let expected = CellSpec {
        pattern: Pattern::Interlocked,
        alignment_bytes: Some(8192),
        working_set_bytes: Some(1 << 30),
        warmup: Duration::from_secs(1),
        duration: Duration::from_secs(2),
        cooldown: Duration::from_millis(500),
        drain: Duration::from_secs(3),
        seed: 7,
        write_content: WriteContent::Zeros,
        write_source_bytes: 1 << 20,
        base_offset_bytes: 4096,
        rate_limit: Some(RateLimit::IosPerSecond(300)),
        load_threads: 2,
        intervals: true,
        ..CellSpec::default()
    };
    assert_eq!(spec.common, expected);
}

#[test]
fn the_defaults_are_the_reference_architectures_small_blocks() {
    let arguments = parse("").unwrap();
    assert_eq!((arguments.vms, arguments.output), (16, OutputFormat::Table));
    let spec = arguments.spec().unwrap();
    assert_eq!(spec.cells().len(), 16);
    assert_eq!((spec.block_sizes_bytes, spec.write_percents), (vec![4096], vec![0, 10, 30, 100]));
    assert!(spec.fill);
}

#[test]
fn mistakes_are_told_with_what_would_be_right() {
    for (line, text) in [
        ("--vms 0", "1..=4096"),
        ("--vms 5000", "1..=4096"),
        ("--write-percent 0,101", "0..=100"),
        ("--block-size 4x", "4k, 20M or 16G"),
        ("--block-size 8G", "too large for one I/O"),
        ("--warmup soon", "500ms, 10s, 5m, 1h or 2d"),
        ("--pattern zigzag", "random (r), sequential (s) or interlocked (si)"),
        ("-o xml", "table, json or csv"),
        ("--outstanding -1", "'-1'"),
        ("--sice 4k", "--sice"),
    ] {
        let error = parse(line).unwrap_err().to_string();
        assert!(error.contains(text), "{line}: {error}");
    }
    let error = parse("--block-size 1000").unwrap().spec().unwrap_err();
    assert!(error.what.contains("block size of 1000 B"), "{error}");
    let error = parse("--outstanding 0").unwrap().spec().unwrap_err();
    assert!(error.why.contains("0 outstanding"), "{error}");
}

#[test]
fn the_help_says_that_clients_are_no_virtual_machines() {
    let mut command = Program::command();
    let sweep = command.find_subcommand_mut("fleet").unwrap().find_subcommand_mut("sweep").unwrap();
    let help = sweep.render_long_help().to_string();
    for text in
        ["No virtual machine is started", "Clients, each standing for one virtual machine", "Examples:"]
    {
        assert!(help.contains(text), "{text:?} is not in\n{help}");
    }
}

/// Volumes on a server, and what was asked of them.
struct Volumes<'server> {
    server: &'server LinuxServer,
    calls: Vec<String>,
    fails: bool,
}

impl ClientVolumes for Volumes<'_> {
    fn prepare(&mut self, request: &VolumeRequest) -> Result<Vec<Target>, Error> {
        self.calls.push(format!("prepare {} of {}", request.count, request.size_bytes));
        if self.fails {
            return Err(Error::new("POOL_FULL", "no volumes", "the pool is full", "add drives"));
        }
        Ok(self.server.targets(request.count as usize))
    }

    fn settle_owners(&mut self) -> Result<(), Error> {
        self.calls.push("settle".to_owned());
        Ok(())
    }

    /// The first one is, or it cannot be told.
    fn misplaced(&self) -> Result<Vec<String>, Error> {
        match self.calls.iter().any(|call| call.starts_with("prepare 2 ")) {
            true => Ok(vec!["volume 1 is owned by n2".to_owned()]),
            false => Err(Error::new("STATE_NOT_REACHED", "no answer", "it is away", "look for it")),
        }
    }

    fn cleanup(&mut self) -> Result<(), Error> {
        self.calls.push("cleanup".to_owned());
        Ok(())
    }
}

const SHORT: &str =
    "--vms 2 --working-set 1M --warmup 0s --duration 50ms --write-source 1M --outstanding 1,2";

#[test]
fn volumes_are_made_used_and_removed() {
    let server = LinuxServer::start(Behaviour::default());
    let mut volumes = Volumes { server: &server, calls: Vec::new(), fails: false };
    let arguments = parse(&format!("{SHORT} --write-percent 30 -o json")).unwrap();
    let mut output = Vec::new();
    let result = arguments.run(&mut volumes, &mut NoMeter, &mut NoProgress, &mut output).unwrap();
    assert_eq!(volumes.calls, ["prepare 2 of 1048576", "settle", "cleanup"]);
    assert_eq!(result.rows.len(), 2);
    assert_eq!(SweepResult::from_json(&String::from_utf8(output).unwrap()).unwrap(), result);
}

#[test]
fn it_is_told_where_clients_and_volumes_were() {
    let server = LinuxServer::start(Behaviour::default());
    for (vms, apart, warning) in [(2, 1, "volume 1 is owned by n2"), (3, 2, "it is away")] {
        let mut volumes = Volumes { server: &server, calls: Vec::new(), fails: false };
        let line = SHORT.replace("--vms 2", &format!("--vms {vms} --alignment 50 --write-percent 0"));
        let arguments = parse(&line).unwrap();
        let mut output = Vec::new();
        let result = arguments.run(&mut volumes, &mut NoMeter, &mut NoProgress, &mut output).unwrap();
        assert_eq!((result.rows.len(), result.clients_apart), (2, apart));
        let table = String::from_utf8(output).unwrap();
        let clients =
            format!("{vms} clients ({apart} on another node than their volume's owner), random I/O");
        assert!(table.contains(&clients) && table.contains(warning), "{table}");
    }
}

#[test]
fn volumes_are_removed_however_the_sweep_ends() {
    let server = LinuxServer::start(Behaviour::deciding(|asked| match asked.index {
        0..20 => Answer::Done(Duration::ZERO),
        _ => Answer::Close,
    }));
    let run = |fails: bool, line: &str| {
        let mut volumes = Volumes { server: &server, calls: Vec::new(), fails };
        let mut output = Vec::new();
        let result = parse(line).unwrap().run(&mut volumes, &mut NoMeter, &mut NoProgress, &mut output);
        (result.unwrap_err().code, volumes.calls.pop().unwrap_or_default(), output)
    };
    let (code, last, output) = run(true, SHORT);
    assert_eq!((code.as_str(), last.as_str(), output.len()), ("POOL_FULL", "cleanup", 0));
    // The clients lose their connections in the first cell: what was measured is written all the same.
    let (code, last, output) = run(false, &format!("{SHORT} --no-fill -o csv"));
    assert_eq!((code.as_str(), last.as_str()), ("FLEET_CLIENTS_LOST", "cleanup"));
    assert_eq!(String::from_utf8(output).unwrap().lines().count(), 2);
    let (code, last, _) = run(false, &format!("{SHORT} --outstanding 0"));
    assert_eq!((code.as_str(), last.as_str()), ("FLEET_LOAD_INVALID", ""), "nothing was made");
}
