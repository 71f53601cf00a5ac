//! What is measured: the loads, what is judged of each, and what it is to come to.
//!
//! The floors are ratios against another contender of the same run, since machines differ; the goals are figures of a machine
//! with two cores.

use serde::{Deserialize, Serialize};

/// A load, as fio knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Load {
    /// How many percent of the I/Os are writes.
    pub write_percent: u32,
    /// Bytes of each I/O. They are aligned, and at random places.
    pub block_bytes: u32,
    /// How many are under way at a time.
    pub outstanding: u32,
}

/// What is judged of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Figure {
    /// I/Os a second for each core that is busy with them, load generator and kernel included. More is better.
    IopsPerCore,
    /// The mean latency in microseconds. Less is better.
    LatencyMean,
    /// I/Os a second. More is better.
    Iops,
}

impl Figure {
    /// Its heading, with its unit.
    pub fn title(self) -> &'static str {
        match self {
            Self::IopsPerCore => "IOPS per busy core",
            Self::LatencyMean => "mean latency, us",
            Self::Iops => "IOPS",
        }
    }

    /// Whether more of it is better.
    pub fn is_rate(self) -> bool {
        !matches!(self, Self::LatencyMean)
    }
}

/// Where the drives, or the file, of all contenders are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Medium {
    /// Files in memory.
    Memory,
    /// Files on a disk's file system, read and written past the page cache, each write durable.
    Disk,
}

/// A load, and what it is to come to.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// What it is called, also to choose it.
    pub name: &'static str,
    /// Where.
    pub medium: Medium,
    /// How the load is.
    pub load: Load,
    /// What is judged.
    pub figure: Figure,
    /// So many times that of the named contender at least (of latencies: at most).
    pub floor: Option<(&'static str, f64)>,
    /// What is aimed at, on two cores.
    pub goal: Option<f64>,
}

const fn load(write_percent: u32, block_kib: u32, outstanding: u32) -> Load {
    Load { write_percent, block_bytes: block_kib * 1024, outstanding }
}

const fn in_memory(
    name: &'static str,
    load: Load,
    figure: Figure,
    floor: Option<(&'static str, f64)>,
    goal: f64,
) -> Cell {
    Cell { name, medium: Medium::Memory, load, figure, floor, goal: Some(goal) }
}

/// All of them, in the order in which they are measured.
pub const CELLS: [Cell; 8] = [
    in_memory("read-4k-qd32", load(0, 4, 32), Figure::IopsPerCore, Some(("nbdkit", 1.2)), 100_000.0),
    in_memory("write-4k-qd32", load(100, 4, 32), Figure::IopsPerCore, Some(("nbdkit", 0.5)), 60_000.0),
    in_memory("mixed-4k-qd32", load(30, 4, 32), Figure::IopsPerCore, None, 75_000.0),
    in_memory("read-128k-qd8", load(0, 128, 8), Figure::IopsPerCore, None, 16_000.0),
    in_memory("write-128k-qd8", load(100, 128, 8), Figure::IopsPerCore, None, 5_700.0),
    in_memory("read-4k-qd1", load(0, 4, 1), Figure::LatencyMean, Some(("nbdkit", 1.2)), 45.0),
    in_memory("write-4k-qd1", load(100, 4, 1), Figure::LatencyMean, Some(("nbdkit", 2.5)), 80.0),
    Cell {
        name: "disk-write-4k-qd32",
        medium: Medium::Disk,
        load: load(100, 4, 32),
        figure: Figure::Iops,
        floor: Some(("file", 0.3)),
        goal: None,
    },
];

impl Load {
    /// For people: `4 KiB write, 32 outstanding`.
    pub fn title(&self) -> String {
        let what = match self.write_percent {
            0 => "read".to_owned(),
            100 => "write".to_owned(),
            percent => format!("{}/{percent} read/write", 100 - percent),
        };
        format!("{} KiB random {what}, {} outstanding", self.block_bytes / 1024, self.outstanding)
    }
}
