//! The study of what a cache drive costs: the processor's time that it takes where media are no limit.
//!
//! Two clusters stand side by side, with their drives in memory and as fast as that: one without cache drives, and one with a
//! cache drive in each node, in the mode `write-only`. The bounds were fixed before the first run:
//! 1. A cached write takes at most 1.15 times the cluster's processor time of one without a cache.
//! 2. A read takes at most 1.03 times the processor time, and has at most 1.03 times the mean latency with one outstanding,
//!    both while nothing stands on the cache drives and while half of what is read does.
//!
//! What a write costs with moving all of it down meanwhile is told beside them and has no bound, as it is a second write of each
//! copy: it is read, checked and written once more. Where drives are in memory the processor copies it each time, and this
//! copying alone is more than the bound allows. What is written again before it is moved costs nothing of that.
//!
//! In each round each load is put on one cluster right after the other, and the order changes from round to round; see
//! [`Comparison`] for how ratios are judged. Whichever has no load is idle.
//!
//! What makes the rows comparable:
//! - All is written before, past the cache. Each cluster is written to in the same way, whether it has cache drives or not.
//! - One copy of each block is on the node that its client is connected to, so reads need no network in either cluster.
//! - *Half* is made by writing half of what is read through the cache, so little that none of it is moved, and it is made sure
//!   that it stands on cache drives alone.
//! - What writes cost where nothing is moved is measured by writing again what stands on the cache drives already. With moving
//!   they are measured when the cache drives are emptied as fast as they are filled: what they cost later is in it. Where they
//!   are not, or little was moved after all, nothing is judged.
//! - Reads, of which a few percent are judged, are measured several times in each round, for a part of the time: how fast threads
//!   wake each other depends on where the kernel has put them, and makes one pair of measurements differ by far more.
//! - One outstanding I/O is that of one client, of another one each time, for the same reason.

use std::ops::Range;
use std::time::Instant;

use clap::Args;
use spandrel_shared::size::format_size;
use spandrel_shared::{CacheMode, Error};

use super::bench::{Bench, Course, StudyTimes};
use super::cluster::{StudyCluster, StudyClusterSpec, StudyLab};
use super::comparison::{Comparison, Round};
use super::report::{StudyReport, StudyRow};
use super::shape::{Goal, Shape};
use super::{StudyOutput, parse_factor};
use crate::progress::Progress;
use crate::spec::CellSpec;

const WRITE_RATIO_MAX: f64 = 1.15;
const READ_RATIO_MAX: f64 = 1.03;

const NODES: u32 = 4;
const DRIVES: u32 = 2;
const COPIES: u64 = 3;
const DRIVE_BYTES: u64 = 512 * MIB;
const CACHE_DRIVE_BYTES: u64 = 128 * MIB;
const CLIENTS: u32 = 4;

/// Enough to keep the processor busy.
const OUTSTANDING: u32 = 8;

/// What is read takes, with its copies, one part in so many of the cache's room. Half of it is a tenth then: far below what
/// the cache drives are emptied from, however unevenly it is spread.
const READ_ROOM_SHARE: u64 = 5;

/// What is written takes, with its copies, so many times the cache's room: little of it is written again before it is moved.
const WRITE_ROOM_FACTOR: u64 = 2;

/// Of what is to be moved while writes are measured so much must be, or they are measured without what moving costs.
const MOVED_SHARE_MIN: f64 = 0.8;

/// Cache drives keep about so much of their room for what stands there alone: from there on it is moved.
const KEPT_ROOM_SHARE: f64 = 0.25;

/// How far what stands on the cache drives may be from half of what is read.
const HALF_PERCENT: std::ops::RangeInclusive<f64> = 45.0..=55.0;

/// How often reads are measured in a round, each time for so much less.
const READ_TURNS: u32 = 2 * CLIENTS;

/// A round is to be short, as the machine's speed changes; and there are many.
const ROUND_SCALE: f64 = 0.5;

const ROUNDS_MAX: u32 = 1000;

const MIB: u64 = 1 << 20;

/// `spandrel fleet study cache-cost`.
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct CacheCostStudyArguments {
    /// How often each load is measured on both clusters. The more, the less chance has to do with the result
    #[arg(long, value_name = "COUNT", default_value_t = 7,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(ROUNDS_MAX)))]
    pub rounds: u32,

    /// Measure for so many times as long. Less than 1 is for a first look
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = parse_factor)]
    pub time_scale: f64,

    /// How to print the report
    #[arg(short, long, value_enum, value_name = "FORMAT", default_value_t)]
    pub output: StudyOutput,
}

const AFTER_HELP: &str = "\
It makes two clusters of its own on this machine, in memory (up to 4 GiB), and removes them again. No other
cluster is asked. It takes some ten minutes. Others may use the machine meanwhile: both clusters are measured
in turns, and only the ratios within a turn are judged.

The exit status is 1 if a bound does not hold.";

/// What is on the cache drives when a load is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing.
    Empty,
    /// Half of what is read, and it stays.
    Half,
    /// As much as they hold under a long load of writes.
    Ripe,
}

/// A load, in one state of the cache.
#[derive(Clone, Copy, Debug)]
struct Cell {
    state: State,
    writes: bool,
    outstanding: u32,
    /// With one outstanding it is one client, so that nothing but that one I/O is done.
    clients: u32,
}

/// The loads of a round, in order: what is on the cache drives changes as seldom as can be.
const CELLS: [Cell; 8] = [
    Cell::new(State::Empty, false, OUTSTANDING),
    Cell::new(State::Empty, false, 1),
    Cell::new(State::Half, false, OUTSTANDING),
    Cell::new(State::Half, false, 1),
    Cell::new(State::Half, true, OUTSTANDING),
    Cell::new(State::Half, true, 1),
    Cell::new(State::Ripe, true, OUTSTANDING),
    Cell::new(State::Ripe, true, 1),
];

impl Cell {
    const fn new(state: State, writes: bool, outstanding: u32) -> Self {
        Self { state, writes, outstanding, clients: if outstanding == 1 { 1 } else { CLIENTS } }
    }

    /// The turns of a round, each with the clients that put the load on.
    fn turns(self, round: u32) -> Vec<Range<usize>> {
        let turns = if self.writes { 1 } else { READ_TURNS };
        let clients = |turn: u32| match self.clients {
            1 => ((round + turn) % CLIENTS) as usize..((round + turn) % CLIENTS) as usize + 1,
            clients => 0..clients as usize,
        };
        (0..turns).map(clients).collect()
    }

    fn load(self, sizes: Sizes) -> CellSpec {
        let bytes = match (self.state, self.writes) {
            (State::Ripe, _) => sizes.volume_bytes,
            (_, false) => sizes.read_bytes,
            // What stands on the cache drives already.
            (_, true) => sizes.half_bytes(),
        };
        CellSpec {
            outstanding: self.outstanding,
            write_percent: if self.writes { 100 } else { 0 },
            working_set_bytes: Some(bytes),
            ..CellSpec::default()
        }
    }

    fn title(self, sizes: Sizes) -> String {
        let what = if self.writes { "Writes" } else { "Reads" };
        let within = format_size(self.load(sizes).working_set_bytes.unwrap_or(0) * u64::from(CLIENTS));
        let cache = match (self.state, self.writes) {
            (State::Empty, _) => "nothing of it on cache drives".to_owned(),
            (State::Half, false) => "half of it on cache drives alone".to_owned(),
            (State::Half, true) => "all of it on cache drives already and none moved".to_owned(),
            (State::Ripe, _) => "moved down as fast as it comes".to_owned(),
        };
        let load = match self.outstanding {
            1 => "1 outstanding".to_owned(),
            outstanding => format!("{} x {outstanding} outstanding", self.clients),
        };
        format!("{what} of 4 KiB, random, {load}, on {within}, {cache}")
    }

    /// What the bounds say of it.
    fn shapes(self, comparison: &Comparison) -> Vec<Shape> {
        let what = match (self.state, self.writes) {
            (State::Empty, _) => "reads, cache empty",
            (State::Half, false) => "reads, half of it on cache drives",
            (State::Half, true) => "writes, none moved",
            (State::Ripe, _) => "writes, all moved meanwhile",
        };
        let goal = match (self.state, self.writes) {
            (State::Ripe, _) => Goal::Told,
            (_, true) => Goal::AtMost(WRITE_RATIO_MAX),
            (_, false) => Goal::AtMost(READ_RATIO_MAX),
        };
        let name = |measure: &str| format!("{measure} of {what}, {} outstanding", self.outstanding);
        let cpu_us = if self.state == State::Ripe { cpu_us_with_moving } else { StudyRow::cluster_cpu_us };
        let mut shapes = vec![comparison.judge(&name("CPU"), cpu_us, goal)];
        if !self.writes && self.outstanding == 1 {
            shapes.push(comparison.judge(&name("mean latency"), StudyRow::mean_us, goal));
        }
        shapes
    }
}

/// What an I/O costs the cluster with what moving it costs later. None if it was not moved meanwhile: that it is cheap says
/// nothing then.
fn cpu_us_with_moving(row: &StudyRow) -> Option<f64> {
    let is_moved = row.moved_ratio().is_none_or(|ratio| ratio >= MOVED_SHARE_MIN * ratio_to_move(row));
    row.cluster_cpu_us().filter(|_| row.are_caches_settled && is_moved)
}

/// What is to be moved for each byte that is written: its copies, except those of which the cache drives keep one already, as
/// what is written again before it is moved is moved once. One client alone finds half of what it writes there.
fn ratio_to_move(row: &StudyRow) -> f64 {
    let copies_bytes = (row.working_set_bytes * COPIES).max(1) as f64;
    let kept_bytes = row.cache.room_bytes as f64 * KEPT_ROOM_SHARE;
    COPIES as f64 * (1.0 - (kept_bytes / copies_bytes).min(1.0))
}

/// How much of each client's volume is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sizes {
    volume_bytes: u64,
    read_bytes: u64,
}

impl Sizes {
    /// Of so much room on all cache drives.
    fn of_room(room_bytes: u64) -> Self {
        let of_client = |bytes: u64| (bytes / COPIES / u64::from(CLIENTS) / MIB * MIB).max(MIB);
        Self {
            volume_bytes: of_client(room_bytes * WRITE_ROOM_FACTOR),
            read_bytes: of_client(room_bytes / READ_ROOM_SHARE),
        }
    }

    fn half_bytes(self) -> u64 {
        self.read_bytes / 2
    }

    /// What all copies of half of what all clients read take.
    fn half_copies_bytes(self) -> u64 {
        self.half_bytes() * u64::from(CLIENTS) * COPIES
    }
}

fn cluster(cache_drive_size_bytes: Option<u64>) -> StudyClusterSpec {
    StudyClusterSpec {
        nodes: NODES,
        drives: DRIVES,
        drive_size_bytes: DRIVE_BYTES,
        cache_drive_size_bytes,
        media: None,
    }
}

impl CacheCostStudyArguments {
    /// Carries the study out.
    ///
    /// # Errors
    ///
    /// What kept it from its end.
    pub fn run<L: StudyLab>(&self, lab: &mut L, progress: &mut dyn Progress) -> Result<StudyReport, Error> {
        let begun = Instant::now();
        let pairs: usize = CELLS.iter().map(|cell| cell.turns(0).len()).sum();
        let rows = self.rounds as usize * 2 * pairs;
        let course = Course::begin(progress, StudyTimes::new(self.time_scale * ROUND_SCALE), rows, CLIENTS);
        let specs = [cluster(None), cluster(Some(CACHE_DRIVE_BYTES))];
        course.step("starting a cluster without cache drives");
        let mut without = lab.start(&specs[0])?;
        course.step("starting a cluster with cache drives");
        let mut with = lab.start(&specs[1])?;
        let sides = [
            Side { bench: Bench::new(&mut without, &course), mode: CacheMode::Off, name: "no cache drive" },
            Side { bench: Bench::new(&mut with, &course), mode: CacheMode::WriteOnly, name: "write-only" },
        ];
        let comparisons = compare(sides, self.rounds, course.times)?;
        without.remove()?;
        with.remove()?;
        course.end();
        let shapes = CELLS.iter().zip(&comparisons).flat_map(|(cell, comparison)| cell.shapes(comparison));
        Ok(StudyReport {
            study: "cache-cost".to_owned(),
            clusters: specs.to_vec(),
            clients: CLIENTS,
            tables: Vec::new(),
            shapes: shapes.collect(),
            comparisons,
            took_seconds: begun.elapsed().as_secs_f64(),
        })
    }
}

/// One of the two clusters.
struct Side<'study, 'progress, C> {
    bench: Bench<'study, 'progress, C>,
    mode: CacheMode,
    name: &'static str,
}

impl<C: StudyCluster> Side<'_, '_, C> {
    /// Brings the cluster to the state that a load is to be measured in, from the one before it in the round.
    fn bring_to(&mut self, cell: Cell, sizes: Sizes) -> Result<(), Error> {
        let bench = &mut self.bench;
        match cell.state {
            State::Empty => {
                bench.drain()?;
                bench.set_mode(self.mode)
            }
            State::Half => {
                bench.write_through(sizes.half_bytes())?;
                match self.mode.caches_writes() {
                    true => check_half(bench.read_caches()?.dirty_bytes, sizes),
                    false => Ok(()),
                }
            }
            State::Ripe if self.mode.caches_writes() => bench.ripen(&cell.load(sizes)),
            State::Ripe => Ok(()),
        }
    }

    fn measure(
        &mut self,
        cell: Cell,
        sizes: Sizes,
        clients: Range<usize>,
        times: StudyTimes,
    ) -> Result<StudyRow, Error> {
        self.bench.measure_clients(self.name, &cell.load(sizes), clients, times)
    }
}

/// A comparison for each of [`CELLS`].
fn compare<C: StudyCluster>(
    [mut base, mut cached]: [Side<'_, '_, C>; 2],
    rounds: u32,
    times: StudyTimes,
) -> Result<Vec<Comparison>, Error> {
    let sizes = Sizes::of_room(cached.bench.read_caches()?.room_bytes);
    for side in [&mut base, &mut cached] {
        side.bench.fill(CLIENTS, sizes.volume_bytes)?;
    }
    let mut comparisons =
        CELLS.map(|cell| Comparison { title: cell.title(sizes), rounds: Vec::new() }).to_vec();
    for round in 0..rounds {
        let mut state = None;
        for (cell, comparison) in CELLS.into_iter().zip(&mut comparisons) {
            if state.replace(cell.state) != Some(cell.state) {
                base.bring_to(cell, sizes)?;
                cached.bring_to(cell, sizes)?;
            }
            let turns = cell.turns(round);
            let times = times.shared(turns.len() as u32);
            for (turn, clients) in turns.into_iter().enumerate() {
                // Whoever comes second finds the machine as the first has left it.
                let other = clients.clone();
                comparison.rounds.push(if (round as usize + turn).is_multiple_of(2) {
                    let base = base.measure(cell, sizes, clients, times)?;
                    Round { base, row: cached.measure(cell, sizes, other, times)? }
                } else {
                    let row = cached.measure(cell, sizes, clients, times)?;
                    Round { base: base.measure(cell, sizes, other, times)?, row }
                });
            }
        }
    }
    Ok(comparisons)
}

/// Refuses to measure if what was to stand on cache drives alone does not.
fn check_half(dirty_bytes: u64, sizes: Sizes) -> Result<(), Error> {
    let percent = dirty_bytes as f64 * 50.0 / sizes.half_copies_bytes() as f64;
    if HALF_PERCENT.contains(&percent) {
        return Ok(());
    }
    let why = format!(
        "{} of what is read stand on cache drives alone, and it was to be {}",
        format_size(dirty_bytes),
        format_size(sizes.half_copies_bytes())
    );
    Err(Error::new(
        "FLEET_STUDY_FAILED",
        "the study cannot go on: the cache drives do not hold half of what is read",
        why,
        "run it again when the machine does nothing else; if it fails again, report this",
    ))
}

#[cfg(test)]
#[path = "cache_cost_tests.rs"]
mod tests;
