//! The study of the cache tier: what NVMe in front of SATA SSDs and of disks gains, mode by mode.
//!
//! The questions and the shapes are those of the reference architectures of Storage Spaces Direct that have NVMe in front of
//! SATA SSDs, and were fixed before the first run:
//! 1. Reads of 4 KiB with one outstanding: read-write has 1.3 times the IOPS of no cache.
//! 2. Writes of 4 KiB with two outstanding: write-only has 1.5 times the IOPS of no cache.
//! 3. Reads of 128 KiB: read-write has twice the throughput of no cache.
//! 4. In front of disks, with read-write: a working set that is in the cache has four times the IOPS of one that is several
//!    times the cache, and the larger the working set, the lower the IOPS.
//!
//! In 1 to 3 the working set fits into the cache with all its copies. *No cache* is the mode `off`: the cache drive holds the
//! journals then, as it does in the other modes, so what is compared is the caching of data alone.
//!
//! What makes the rows comparable:
//! - All is written before, past the cache, from start to end. All reads come before all writes: these leave the blocks of a
//!   volume scattered, which long reads would notice.
//! - Before each mode nothing stands on cache drives alone: so reads in write-only mode are reads of the medium behind.
//! - Before reads in a mode that caches them the working set is read through until that changes nothing any more.

use std::time::Instant;

use clap::Args;
use spandrel_shared::size::format_size;
use spandrel_shared::{CacheMode, Error};

use super::bench::{Bench, Course, StudyTimes};
use super::cluster::{CapacityMedia, SimulatedMedia, StudyCluster, StudyClusterSpec, StudyLab};
use super::report::{StudyReport, StudyRow, StudyTable};
use super::shape::{Goal, Shape, ratio, rise_max};
use super::{StudyOutput, parse_factor};
use crate::progress::Progress;
use crate::spec::CellSpec;

const READ_RATIO_MIN: f64 = 1.3;
const WRITE_RATIO_MIN: f64 = 1.5;
const LONG_READ_RATIO_MIN: f64 = 2.0;
const SPILL_RATIO_MIN: f64 = 4.0;

/// So much a point of the curve may lie above the one before: what chance makes of the few I/Os that a disk does.
const RISE_RATIO_MAX: f64 = 1.05;

/// The modes side by side; the first is what the others are compared with.
const MODES: [CacheMode; 3] = [CacheMode::Off, CacheMode::WriteOnly, CacheMode::ReadWrite];

/// One client for each node: few enough that the processor has little to do.
const CLIENTS: u32 = 4;
const NODES: u32 = 4;
const DRIVES: u32 = 2;
const COPIES: u64 = 3;

/// The working set that is in the cache, with its copies, takes one part in so many of the cache's room.
const ROOM_SHARE: u64 = 3;

/// The working sets in front of disks, in hundredths of the cache's room. A read is copied on the node that it is read on alone, so here
/// copies do not count.
const CURVE_PERCENTS: [u64; 5] = [50, 100, 150, 200, 400];

/// I/Os that each client has outstanding, for long reads: enough to keep all drives busy.
const LONG_READ_OUTSTANDING: u32 = 4;

const MIB: u64 = 1 << 20;

/// `spandrel fleet study cache`.
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct CacheStudyArguments {
    /// Only study the cache in front of these [default: of both, one after the other]
    #[arg(long, value_enum, value_name = "MEDIA")]
    pub capacity_media: Option<CapacityMedia>,

    /// How fast the simulated media are, compared with real ones. The smaller, the less the processor has to do with the
    /// result, and the longer it takes [default: 0.02 for SSDs, 0.3 for disks]
    #[arg(long, value_name = "FACTOR", value_parser = parse_factor)]
    pub media_scale: Option<f64>,

    /// Measure for so many times as long. Less than 1 is for a first look
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_factor)]
    pub time_scale: f64,

    /// How to print the report
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: StudyOutput,
}

const AFTER_HELP: &str = "\
It makes clusters of its own on this machine, in memory (up to 4 GiB), with simulated media, and removes
them again. No other cluster is asked. It takes some minutes.

The exit status is 1 if a shape does not hold.";

impl CapacityMedia {
    const ALL: [Self; 2] = [Self::Ssd, Self::Hdd];

    /// Slow enough that the processor has little to do, and fast enough that the study ends soon.
    fn scale_default(self) -> f64 {
        match self {
            Self::Ssd => 0.02,
            Self::Hdd => 0.3,
        }
    }

    fn cluster(self, scale: Option<f64>) -> StudyClusterSpec {
        let (drive_mib, cache_mib) = match self {
            Self::Ssd => (512, 256),
            // The working set is to be several times the cache.
            Self::Hdd => (768, 80),
        };
        StudyClusterSpec {
            nodes: NODES,
            drives: DRIVES,
            drive_size_bytes: drive_mib * MIB,
            cache_drive_size_bytes: Some(cache_mib * MIB),
            media: Some(SimulatedMedia {
                capacity_media: self,
                scale: scale.unwrap_or(self.scale_default()),
            }),
        }
    }

    fn rows(self) -> usize {
        match self {
            Self::Ssd => 3 * MODES.len(),
            Self::Hdd => CURVE_PERCENTS.len(),
        }
    }
}

impl CacheStudyArguments {
    /// Carries the study out.
    ///
    /// # Errors
    ///
    /// What kept it from its end.
    pub fn run<L: StudyLab>(&self, lab: &mut L, progress: &mut dyn Progress) -> Result<StudyReport, Error> {
        let begun = Instant::now();
        let media: Vec<CapacityMedia> = match self.capacity_media {
            Some(media) => vec![media],
            None => CapacityMedia::ALL.to_vec(),
        };
        let rows = media.iter().map(|media| media.rows()).sum();
        let course = Course::begin(progress, StudyTimes::new(self.time_scale), rows, CLIENTS);
        let mut report = StudyReport {
            study: "cache".to_owned(),
            clusters: Vec::new(),
            clients: CLIENTS,
            tables: Vec::new(),
            comparisons: Vec::new(),
            shapes: Vec::new(),
            took_seconds: 0.0,
        };
        for media in media {
            let spec = media.cluster(self.media_scale);
            course.step(&format!("starting a cluster with NVMe in front of {}", media.plural()));
            let mut cluster = lab.start(&spec)?;
            let bench = Bench::new(&mut cluster, &course);
            let (tables, shapes) = match media {
                CapacityMedia::Ssd => in_front_of_ssds(bench)?,
                CapacityMedia::Hdd => in_front_of_disks(bench)?,
            };
            cluster.remove()?;
            report.clusters.push(spec);
            report.tables.extend(tables);
            report.shapes.extend(shapes);
        }
        course.end();
        report.took_seconds = begun.elapsed().as_secs_f64();
        Ok(report)
    }
}

/// What each client uses of so much room of all cache drives.
fn of_each_client(bytes: u64) -> u64 {
    (bytes / u64::from(CLIENTS) / MIB * MIB).max(MIB)
}

/// What a mode is called in the tables.
fn mode_name(mode: CacheMode) -> String {
    match mode {
        CacheMode::Off => "no cache".to_owned(),
        mode => mode.to_string(),
    }
}

type Findings = (Vec<StudyTable>, Vec<Shape>);

/// Questions 1 to 3.
fn in_front_of_ssds<C: StudyCluster>(mut bench: Bench<'_, '_, C>) -> Result<Findings, Error> {
    let working_set = of_each_client(bench.read_caches()?.room_bytes / COPIES / ROOM_SHARE);
    bench.fill(CLIENTS, working_set)?;
    let common = CellSpec { working_set_bytes: Some(working_set), ..CellSpec::default() };
    let read = CellSpec { outstanding: 1, ..common.clone() };
    let long_read =
        CellSpec { outstanding: LONG_READ_OUTSTANDING, block_size_bytes: 128 << 10, ..common.clone() };
    let write = CellSpec { outstanding: 2, write_percent: 100, ..common };
    let (mut reads, mut writes, mut long_reads) = (Vec::new(), Vec::new(), Vec::new());
    for mode in MODES {
        bench.set_mode(mode)?;
        if mode.caches_reads() {
            bench.warm(working_set)?;
        }
        reads.push(bench.measure(mode_name(mode), &read)?);
        long_reads.push(bench.measure(mode_name(mode), &long_read)?);
    }
    for mode in MODES {
        bench.drain()?;
        bench.set_mode(mode)?;
        writes.push(bench.measure(mode_name(mode), &write)?);
    }
    let shapes = shapes_of_modes(&reads, &writes, &long_reads);
    let within = format!("on {}, in the cache", format_size(working_set * u64::from(CLIENTS)));
    let table = |what: String, rows| StudyTable {
        title: format!("{what} {within}"),
        rows_are: "mode".to_owned(),
        rows,
    };
    let tables = vec![
        table("Reads of 4 KiB, random, 1 outstanding,".to_owned(), reads),
        table("Writes of 4 KiB, random, 2 outstanding,".to_owned(), writes),
        table(format!("Reads of 128 KiB, random, {LONG_READ_OUTSTANDING} outstanding,"), long_reads),
    ];
    Ok((tables, shapes))
}

/// Question 4.
fn in_front_of_disks<C: StudyCluster>(mut bench: Bench<'_, '_, C>) -> Result<Findings, Error> {
    let room = bench.read_caches()?.room_bytes;
    let working_set = |percent: u64| of_each_client(room * percent / 100);
    let largest = CURVE_PERCENTS.into_iter().max().expect("there are some");
    bench.fill(CLIENTS, working_set(largest))?;
    bench.set_mode(CacheMode::ReadWrite)?;
    let mut rows = Vec::new();
    for percent in CURVE_PERCENTS {
        let bytes = working_set(percent);
        bench.warm(bytes)?;
        let name = format!("{} ({:.1} x)", format_size(bytes * u64::from(CLIENTS)), percent as f64 / 100.0);
        rows.push(bench.measure(name, &CellSpec { working_set_bytes: Some(bytes), ..CellSpec::default() })?);
    }
    let shapes = shapes_of_curve(&rows);
    let title = "Reads of 4 KiB, random, 1 outstanding, read-write in front of disks, over the working set";
    let title = format!("{title} (times the cache)");
    Ok((vec![StudyTable { title, rows_are: "working set".to_owned(), rows }], shapes))
}

/// Judges what was measured in each of [`MODES`].
fn shapes_of_modes(reads: &[StudyRow], writes: &[StudyRow], long_reads: &[StudyRow]) -> Vec<Shape> {
    let against_none = |rows: &[StudyRow], mode: CacheMode, value: fn(&StudyRow) -> Option<f64>| {
        let of = |mode: CacheMode| rows.iter().find(|row| row.cache_mode == mode).and_then(value);
        ratio(of(mode), of(CacheMode::Off))
    };
    vec![
        Shape::judge(
            "IOPS of reads of 4 KiB: read-write to no cache",
            against_none(reads, CacheMode::ReadWrite, StudyRow::iops),
            Goal::AtLeast(READ_RATIO_MIN),
        ),
        Shape::judge(
            "IOPS of writes of 4 KiB: write-only to no cache",
            against_none(writes, CacheMode::WriteOnly, StudyRow::iops),
            Goal::AtLeast(WRITE_RATIO_MIN),
        ),
        Shape::judge(
            "throughput of reads of 128 KiB: read-write to no cache",
            against_none(long_reads, CacheMode::ReadWrite, StudyRow::mib_per_second),
            Goal::AtLeast(LONG_READ_RATIO_MIN),
        ),
    ]
}

/// Judges a curve over the working set, the smallest first.
fn shapes_of_curve(rows: &[StudyRow]) -> Vec<Shape> {
    let iops: Vec<Option<f64>> = rows.iter().map(StudyRow::iops).collect();
    let at = |point: Option<&Option<f64>>| point.copied().flatten();
    vec![
        Shape::judge(
            "IOPS in front of disks: working set in the cache to several times the cache",
            ratio(at(iops.first()), at(iops.last())),
            Goal::AtLeast(SPILL_RATIO_MIN),
        ),
        Shape::judge(
            "IOPS in front of disks fall as the working set grows: most above the lowest before",
            rise_max(&iops),
            Goal::AtMost(RISE_RATIO_MAX),
        ),
    ]
}

#[cfg(test)]
#[path = "cache_tests.rs"]
mod tests;
