//! How the cost of an operation goes with its size, with the number of volumes and of shards, with the order in which blocks were
//! written, with how much is mapped, and with how much of the map is in memory; and how much drives write for each write, by how full
//! they are. Spandrel alone: what grows is to be seen, not who is faster.
//!
//! Costs are processor time of everything for one operation, load generator and kernel included.

use std::fs;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use spandrel_fleet::{aligned, count_text, short};
use spandrel_shared::size::format_size;

use crate::cell::{Load, Medium};
use crate::contender::{Contender, Server, Setup, run};
use crate::contenders::{Cluster, NODES};
use crate::fio::{self, Measurement};
use crate::mapped::map_all;
use crate::processor_time::{Mark, now};
use crate::{Common, chosen};

/// Measures how Spandrel's costs go with the size of operations, the number of volumes, the order in which blocks were written,
/// what is mapped, and what of the map is in memory, and how much drives write. Some ten minutes; the drives on a disk take 10 GiB at a time.
#[derive(Args)]
pub struct CurvesArguments {
    #[command(flatten)]
    common: Common,

    /// Measure these curves alone: sizes, volumes, shards, rewritten, mapped, amplification
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    curves: Vec<String>,

    /// How much is mapped on all drives together, in GiB, at each point of the curve `mapped`
    #[arg(long, value_name = "GIB", value_delimiter = ',', default_values_t = [10, 100, 1024])]
    mapped: Vec<u64>,
}

/// What was measured at one point.
#[derive(Serialize)]
struct Point {
    curve: &'static str,
    at: String,
    load: Load,
    measurement: Measurement,
}

/// What it took to start with much mapped.
#[derive(Serialize)]
struct Start {
    mapped_bytes: u64,
    seconds: f64,
    /// Of the process with all four nodes.
    resident_bytes: u64,
}

/// What drives have written for 4 KiB at random places.
#[derive(Serialize)]
struct Amplification {
    /// How many drives there were.
    drives: u64,
    /// How much of them was in use, in percent.
    used_percent: u64,
    /// Bytes written to all drives for each byte that clients wrote.
    bytes: f64,
    /// Flushes of a drive for each write that was answered, to whichever drives.
    flushes: f64,
    /// Turns of the journal of the drive that has made fewest.
    journal_laps: u64,
}

#[derive(Default, Serialize)]
struct Curves {
    points: Vec<Point>,
    starts: Vec<Start>,
    amplifications: Vec<Amplification>,
}

/// The curves, in the order in which they are measured.
const NAMES: [&str; 6] = ["sizes", "volumes", "shards", "rewritten", "mapped", "amplification"];

/// What is read and written within, where that is not what is varied.
const SIZE_BYTES: u64 = 1 << 30;

/// How large drives in memory are: so small that what fills the volumes goes to all places of them (see [`fio::fill`]), as the first
/// write to a place in memory costs more than all others.
const MEMORY_DRIVE_BYTES: u64 = 576 << 20;

/// Sizes of operations, in KiB.
const SIZES_KIB: [u32; 5] = [4, 16, 64, 256, 1024];

/// Numbers of volumes.
const VOLUMES: [u64; 4] = [1, 4, 16, 64];

/// Numbers of shards of each node, each measured with one volume and with four.
const SHARDS: [u8; 2] = [1, 2];

/// Drives of each node where shards share them.
const SHARED_DRIVES: u64 = 4;

/// Operations that are under way on all volumes together.
const OUTSTANDING: u32 = 64;

/// Of the map so much is in memory, in percent, at each further point with much mapped.
const RESIDENT_PERCENT: [u64; 2] = [50, 10];

/// Measures, and prints what came of it.
pub fn run_all(arguments: &CurvesArguments) -> Result<(), String> {
    let wanted = chosen(&NAMES, |name| *name, &arguments.curves, "curve")?;
    let is_wanted = |name: &str| wanted.contains(&name);
    let mut curves = Curves::default();
    if is_wanted("sizes") {
        measure_sizes(arguments, &mut curves)?;
    }
    if is_wanted("volumes") {
        for volumes in VOLUMES {
            let at = ("volumes", volumes.to_string());
            measure_volumes(arguments, volumes, (3, MEMORY_DRIVE_BYTES), &[], at, &mut curves)?;
        }
    }
    if is_wanted("shards") {
        for (volumes, shards) in [1, 4].into_iter().flat_map(|volumes| SHARDS.map(|shards| (volumes, shards)))
        {
            let at = ("shards", format!("{shards}, volumes: {volumes}"));
            let drives = (SHARED_DRIVES, MEMORY_DRIVE_BYTES * 3 / SHARED_DRIVES);
            let options = ["--shards", &shards.to_string()];
            measure_volumes(arguments, volumes, drives, &options, at, &mut curves)?;
        }
    }
    if is_wanted("rewritten") {
        measure_rewritten(arguments, &mut curves)?;
    }
    if is_wanted("mapped") {
        for gib in &arguments.mapped {
            measure_mapped(arguments, gib << 30, &mut curves)?;
        }
    }
    if is_wanted("amplification") {
        for (drives, size_bytes) in AMPLIFIED {
            measure_amplification(arguments, drives, size_bytes, &mut curves)?;
        }
    }
    arguments.common.save(&curves)?;
    print!("{}", render(&curves));
    Ok(())
}

/// A folder for one cluster, and what marks its processes. Both go with it.
struct Place {
    setup: Setup,
    _folder: tempfile::TempDir,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.setup.mark.end_all();
    }
}

fn place(arguments: &CurvesArguments, medium: Medium) -> Result<Place, String> {
    let folder = arguments.common.scratch(medium)?;
    let setup = Setup {
        folder: folder.path().to_owned(),
        medium,
        size_bytes: SIZE_BYTES,
        spandrel: arguments.common.spandrel.clone(),
        mark: Mark::new("curves"),
    };
    Ok(Place { setup, _folder: folder })
}

fn load(write_percent: u32, block_bytes: u32, outstanding: u32) -> Load {
    Load { write_percent, block_bytes, outstanding }
}

/// Puts reads on a contender, and then writes.
fn measure_both(
    arguments: &CurvesArguments,
    place: &Place,
    contender: &Contender,
    size_bytes: u64,
    (block_bytes, outstanding): (u32, u32),
    (curve, at): (&'static str, &str),
    curves: &mut Curves,
) -> Result<(), String> {
    for write_percent in [0, 100] {
        let load = load(write_percent, block_bytes, outstanding);
        measure_load(arguments, place, contender, size_bytes, load, (curve, at), curves)?;
    }
    Ok(())
}

/// Puts a load on a contender.
fn measure_load(
    arguments: &CurvesArguments,
    place: &Place,
    contender: &Contender,
    size_bytes: u64,
    load: Load,
    (curve, at): (&'static str, &str),
    curves: &mut Curves,
) -> Result<(), String> {
    let Setup { mark, folder, .. } = &place.setup;
    let measurement = fio::measure(contender, mark, folder, size_bytes, &load, arguments.common.times())
        .map_err(|error| format!("{curve}, {at}: {error}"))?;
    let cost_us = cost_us(&measurement);
    eprintln!(
        "{curve}: {at}, {}: {:.0} IOPS, {cost_us:.1} us of processor time",
        load.title(),
        measurement.iops
    );
    curves.points.push(Point { curve, at: at.to_owned(), load, measurement });
    Ok(())
}

fn measure_sizes(arguments: &CurvesArguments, curves: &mut Curves) -> Result<(), String> {
    let place = place(arguments, Medium::Memory)?;
    let (cluster, server) = Cluster::start(&place.setup, 3, MEMORY_DRIVE_BYTES, &[])?;
    let reach = vec![cluster.create_volume("v", SIZE_BYTES)?];
    let contender = Contender { reach, environment: Vec::new(), servers: vec![server] };
    for kib in SIZES_KIB {
        // Each is measured on blocks that lie in a row, as the writes of the one before leave none.
        fio::fill(&contender, &place.setup.mark, &place.setup.folder, SIZE_BYTES)?;
        let at = (kib * 1024, 8);
        measure_both(
            arguments,
            &place,
            &contender,
            SIZE_BYTES,
            at,
            ("sizes", &format!("{kib} KiB")),
            curves,
        )?;
    }
    Ok(())
}

/// So many volumes on nodes with drives of this number and size.
fn measure_volumes(
    arguments: &CurvesArguments,
    volumes: u64,
    (drives, drive_bytes): (u64, u64),
    options: &[&str],
    (curve, at): (&'static str, String),
    curves: &mut Curves,
) -> Result<(), String> {
    let place = place(arguments, Medium::Memory)?;
    let (cluster, server) = Cluster::start(&place.setup, drives, drive_bytes, options)?;
    let size_bytes = SIZE_BYTES / volumes;
    let reach: Result<Vec<_>, _> =
        (0..volumes).map(|number| cluster.create_volume(&format!("v{number}"), size_bytes)).collect();
    let contender = Contender { reach: reach?, environment: Vec::new(), servers: vec![server] };
    fio::fill(&contender, &place.setup.mark, &place.setup.folder, size_bytes)?;
    let load = (4096, OUTSTANDING / volumes as u32);
    measure_both(arguments, &place, &contender, size_bytes, load, (curve, &at), curves)
}

/// Long reads of blocks that lie in a row, that lie anywhere as each was written by itself, and that were written in order again.
fn measure_rewritten(arguments: &CurvesArguments, curves: &mut Curves) -> Result<(), String> {
    let place = place(arguments, Medium::Memory)?;
    let (cluster, server) = Cluster::start(&place.setup, 3, MEMORY_DRIVE_BYTES, &[])?;
    let reach = vec![cluster.create_volume("v", SIZE_BYTES)?];
    let contender = Contender { reach, environment: Vec::new(), servers: vec![server] };
    let Setup { mark, folder, .. } = &place.setup;
    for (at, write) in [
        ("in order", fio::fill as fn(&_, &_, &_, _) -> _),
        ("4 KiB in no order", fio::scatter),
        ("in order again", fio::fill),
    ] {
        write(&contender, mark, folder, SIZE_BYTES)?;
        let load = load(0, 128 << 10, 8);
        measure_load(arguments, &place, &contender, SIZE_BYTES, load, ("rewritten", at), curves)?;
    }
    Ok(())
}

/// All nodes hold `mapped_bytes` together, of one volume.
fn measure_mapped(arguments: &CurvesArguments, mapped_bytes: u64, curves: &mut Curves) -> Result<(), String> {
    let place = place(arguments, Medium::Disk)?;
    let size_bytes = (mapped_bytes / 3).next_multiple_of(1 << 28);
    // A quarter stays free, as writes need.
    let (cluster, server) = Cluster::start(&place.setup, 1, size_bytes + (2 << 30), &[])?;
    cluster.create_volume("v", size_bytes)?;
    drop(server);
    let mapping: Vec<_> =
        cluster.drives().into_iter().map(|drive| std::thread::spawn(move || map_all(&drive))).collect();
    let mut mapped_bytes = 0;
    for drive in mapping {
        mapped_bytes += drive.join().map_err(|_| "a drive could not be mapped".to_owned())??;
    }
    let begun = now();
    let server = cluster.start_again()?;
    let seconds = begun.elapsed().as_secs_f64();
    let start = Start { mapped_bytes, seconds, resident_bytes: server.resident_bytes()? };
    let at = format_size(mapped_bytes);
    eprintln!("mapped: {at}: started in {seconds:.1} s, {} in memory", format_size(start.resident_bytes));
    curves.starts.push(start);
    let reach = vec![cluster.reach("v")?];
    let contender = Contender { reach, environment: Vec::new(), servers: vec![server] };
    let mut measure = |at: &str| {
        measure_both(arguments, &place, &contender, size_bytes, (4096, 32), ("mapped", at), curves)
    };
    measure(&at)?;
    for percent in RESIDENT_PERCENT {
        // A five hundred and twelfth of what is mapped is its map; a quarter of that is on each node.
        let bytes = mapped_bytes / 512 / 4 * percent / 100;
        if bytes < MAP_MEMORY_BYTES_MIN {
            continue;
        }
        run(cluster.command().args(["pool", "set", "--map-memory", &bytes.to_string()]))?;
        await_bound(&cluster, 4 * bytes)?;
        measure(&format!("{at}, {percent} % of the map in memory"))?;
    }
    Ok(())
}

/// Clients that write at a time, each to a volume of its own, and how much each has under way.
const CLIENTS: u64 = 16;
const CLIENT_OUTSTANDING: u32 = 8;

/// Drives of each of four nodes, and how large the volumes of all clients are together: a third, and two thirds, of what the drives
/// hold of three copies. The more drives there are, the fewer writes share a group of a journal.
const AMPLIFIED: [(u64, u64); 3] = [(2, 1 << 30), (2, 2 << 30), (3, 2 << 30)];

/// The room of all these drives together.
const AMPLIFIED_DRIVES_BYTES: u64 = 9 << 30;

/// So many turns each drive's journal is to make.
const LAPS_MIN: u64 = 3;

/// How long that may take.
const LAPS_TIME_MAX: Duration = Duration::from_secs(600);

/// What drives have done since they were attached.
#[derive(Clone, Copy, Default)]
struct Written {
    bytes: u64,
    data_bytes: u64,
    flushes: u64,
    used_bytes: u64,
    /// Of the one with fewest.
    journal_laps: u64,
}

fn written(cluster: &Cluster) -> Result<Written, String> {
    let drives = drives(cluster)?;
    let sum = |name: &str| drives.iter().map(|drive| drive[name].as_u64().unwrap_or(0)).sum();
    let laps = drives.iter().map(|drive| drive["journal_laps"].as_u64().unwrap_or(0)).min();
    Ok(Written {
        bytes: sum("written_bytes"),
        data_bytes: sum("data_bytes"),
        flushes: sum("flushes"),
        used_bytes: sum("used_bytes"),
        journal_laps: laps.unwrap_or(0),
    })
}

fn measure_amplification(
    arguments: &CurvesArguments,
    drives_per_node: u64,
    size_bytes: u64,
    curves: &mut Curves,
) -> Result<(), String> {
    let place = place(arguments, Medium::Disk)?;
    let drives = NODES * drives_per_node;
    let (cluster, server) =
        Cluster::start(&place.setup, drives_per_node, AMPLIFIED_DRIVES_BYTES / drives, &[])?;
    let size_bytes = size_bytes / CLIENTS;
    let reach: Result<Vec<_>, _> =
        (0..CLIENTS).map(|number| cluster.create_volume(&format!("v{number}"), size_bytes)).collect();
    let contender = Contender { reach: reach?, environment: Vec::new(), servers: vec![server] };
    let Setup { mark, folder, .. } = &place.setup;
    fio::fill(&contender, mark, folder, size_bytes)?;
    let before = written(&cluster)?;
    let times = arguments.common.times();
    let deadline = now() + LAPS_TIME_MAX;
    let after = loop {
        if now() >= deadline {
            return Err(format!(
                "the journals have not made {LAPS_MIN} turns in {} s",
                LAPS_TIME_MAX.as_secs()
            ));
        }
        fio::measure(&contender, mark, folder, size_bytes, &load(100, 4096, CLIENT_OUTSTANDING), times)?;
        let after = written(&cluster)?;
        if after.journal_laps >= before.journal_laps + LAPS_MIN {
            break after;
        }
    };
    // Each block that a client writes is written once to each of three drives.
    let client_bytes = (after.data_bytes - before.data_bytes) as f64 / 3.0;
    let amplification = Amplification {
        drives,
        used_percent: 100 * after.used_bytes / AMPLIFIED_DRIVES_BYTES,
        bytes: (after.bytes - before.bytes) as f64 / client_bytes,
        flushes: (after.flushes - before.flushes) as f64 / drives as f64 / (client_bytes / 4096.0),
        journal_laps: after.journal_laps - before.journal_laps,
    };
    let Amplification { bytes, used_percent, .. } = amplification;
    eprintln!("amplification: {bytes:.3} with {used_percent} % of {drives} drives in use");
    curves.amplifications.push(amplification);
    Ok(())
}

/// A pool allows no less.
const MAP_MEMORY_BYTES_MIN: u64 = 16 << 20;

/// Waits until no more of the maps is in memory than a bound allows, about.
fn await_bound(cluster: &Cluster, bytes_max: u64) -> Result<(), String> {
    let deadline = now() + Duration::from_secs(60);
    loop {
        let in_memory = |drive: &serde_json::Value| drive["map_memory_bytes"].as_u64().unwrap_or(0);
        let bytes: u64 = drives(cluster)?.iter().map(in_memory).sum();
        if bytes <= bytes_max + bytes_max / 50 {
            return Ok(());
        }
        if now() >= deadline {
            return Err(format!("{bytes} bytes of the maps stay in memory, where {bytes_max} are allowed"));
        }
        // tidy-allow(sleep): the condition is another process's, which can only be asked again.
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// What the cluster says of its drives.
fn drives(cluster: &Cluster) -> Result<Vec<serde_json::Value>, String> {
    let said = run(cluster.command().args(["drive", "list", "-o", "json"]))?;
    serde_json::from_str(&said).map_err(|error| format!("spandrel says {said}: {error}"))
}

/// Processor time of everything for one operation.
fn cost_us(measurement: &Measurement) -> f64 {
    measurement.busy_cores / measurement.iops * 1e6
}

fn render(curves: &Curves) -> String {
    let heads = ["curve", "at", "load", "IOPS", "us of a processor", "mean us"];
    let mut lines = vec![heads.map(str::to_owned).to_vec()];
    lines.extend(curves.points.iter().map(|point| {
        vec![
            point.curve.to_owned(),
            point.at.clone(),
            point.load.title(),
            count_text(point.measurement.iops),
            short(cost_us(&point.measurement)),
            short(point.measurement.latency_mean_us),
        ]
    }));
    let mut text = aligned(&lines, &[0, 1, 2]);
    for start in &curves.starts {
        text += &format!(
            "four nodes with {} mapped in all: start in {:.1} s, {} of memory\n",
            format_size(start.mapped_bytes),
            start.seconds,
            format_size(start.resident_bytes)
        );
    }
    for one in &curves.amplifications {
        text += &format!(
            "{} % of {} drives in use: {:.3} bytes written for each byte, {:.4} flushes of a drive for each write, {} turns of \
             the journal\n",
            one.used_percent, one.drives, one.bytes, one.flushes, one.journal_laps
        );
    }
    text
}

impl Server {
    /// Memory that it has, in bytes.
    fn resident_bytes(&self) -> Result<u64, String> {
        let path = Path::new("/proc").join(self.process_number().to_string()).join("status");
        let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let kib = text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"));
        let kib: Option<u64> = kib.and_then(|kib| kib.trim().parse().ok());
        Ok(kib.ok_or_else(|| format!("{} does not say how much memory is used", path.display()))? * 1024)
    }
}
