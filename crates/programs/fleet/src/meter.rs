//! What the storage under test uses while it is measured: processor time, and what its drives write.
//!
//! The load generator's own process is always counted by the fleet itself; a meter tells of everything
//! else that works for the same I/Os.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::time::ClockId;
use serde::{Deserialize, Serialize};
use spandrel_platform::Instant;
use spandrel_shared::Error;

use crate::layers::ClusterReading;
use crate::times::now;

/// What has been used since any fixed point before the sweep. What is not known is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MeterReading {
    /// Processor time of all processes of the cluster, except the one that this runs in.
    pub cpu: Option<Duration>,
    /// Bytes that the volumes' users have written. If absent, what the clients wrote is taken.
    pub user_written_bytes: Option<u64>,
    /// Bytes that all drives of the cluster have written, copies and everything else included.
    pub drive_written_bytes: Option<u64>,
    /// Its cache drives; absent if it has none.
    pub cache: Option<CacheReading>,
}

/// What the cache drives of a cluster hold, and what they have done since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheReading {
    /// Room for data.
    pub room_bytes: u64,
    /// What stands there alone.
    pub dirty_bytes: u64,
    /// Copies of what was read.
    pub copied_bytes: u64,
    /// What was read from cache drives.
    pub hit_bytes: u64,
    /// What was read from the drives behind them.
    pub missed_bytes: u64,
    /// What was copied to cache drives as it was read.
    pub populated_bytes: u64,
    /// What was moved from cache drives to the drives behind them.
    pub destaged_bytes: u64,
}

impl CacheReading {
    /// What is held now, and what was done since `before`.
    pub fn since(&self, before: &Self) -> Self {
        Self {
            hit_bytes: self.hit_bytes.saturating_sub(before.hit_bytes),
            missed_bytes: self.missed_bytes.saturating_sub(before.missed_bytes),
            populated_bytes: self.populated_bytes.saturating_sub(before.populated_bytes),
            destaged_bytes: self.destaged_bytes.saturating_sub(before.destaged_bytes),
            ..*self
        }
    }

    /// How much of what was read came from cache drives; none if nothing was.
    pub fn hit_percent(&self) -> Option<f64> {
        let read = self.hit_bytes + self.missed_bytes;
        (read > 0).then(|| self.hit_bytes as f64 * 100.0 / read as f64)
    }
}

/// Reads what the cluster has used. The fleet asks once when a measurement begins and once when it
/// ends.
pub trait ClusterMeter {
    /// What has been used so far.
    fn read(&mut self) -> Result<MeterReading, Error>;

    /// What all layers have done so far; none if that is not known. Asked again and again while a cell is measured.
    fn layers(&mut self) -> Option<ClusterReading> {
        None
    }
}

/// A meter for when nothing is known of the cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoMeter;

impl ClusterMeter for NoMeter {
    fn read(&mut self) -> Result<MeterReading, Error> {
        Ok(MeterReading::default())
    }
}

/// Adds up the processor time of processes on this machine, all their threads included. What the
/// kernel does in their name in threads of its own is not seen.
#[derive(Clone, Debug)]
pub struct ProcessMeter {
    /// The most that each process was seen to have used: one that ended keeps it.
    used: BTreeMap<u32, Duration>,
}

impl ProcessMeter {
    /// A meter for the processes `pids`. The process that this runs in is left out, for the fleet
    /// counts it by itself.
    pub fn new(pids: &[u32]) -> Self {
        let own = std::process::id();
        let others = pids.iter().filter(|pid| **pid != own);
        Self { used: others.map(|pid| (*pid, Duration::ZERO)).collect() }
    }
}

impl ClusterMeter for ProcessMeter {
    fn read(&mut self) -> Result<MeterReading, Error> {
        let mut sum = Duration::ZERO;
        for (pid, used) in &mut self.used {
            *used = (*used).max(process_cpu(*pid));
            sum += *used;
        }
        Ok(MeterReading { cpu: Some(sum), ..MeterReading::default() })
    }
}

/// The processor time of a process; zero if it is gone.
///
/// The scheduler's statistics count nanoseconds but lose what threads used that have ended; the process's
/// own line keeps that but counts in hundredths of a second. Both never say too much, so the larger is
/// nearer to the truth.
fn process_cpu(pid: u32) -> Duration {
    let folder = format!("/proc/{pid}");
    let folder = Path::new(&folder);
    let threads = fs::read_dir(folder.join("task")).into_iter().flatten().flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let text = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse::<u64>().ok()
    });
    let by_threads = Duration::from_nanos(nanoseconds.sum());
    let whole = fs::read_to_string(folder.join("stat")).ok();
    let by_process = whole.and_then(|text| cpu_of_stat(&text)).unwrap_or_default();
    by_threads.max(by_process)
}

/// User and system time in a line of `/proc/PID/stat`.
fn cpu_of_stat(text: &str) -> Option<Duration> {
    // The name in brackets may hold anything, brackets and blanks included.
    let (_, behind_name) = text.rsplit_once(')')?;
    let mut fields = behind_name.split_ascii_whitespace().skip(11);
    let ticks = fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second()))
}

/// What was used between two readings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// How long it was between the readings: a little more than what was measured.
    #[serde(default)]
    pub seconds: f64,
    /// Processor time of cluster and load generator together, in seconds; absent if the meter does
    /// not know the cluster's.
    pub cpu_seconds: Option<f64>,
    /// The load generator's process's part of it.
    pub generator_cpu_seconds: f64,
    /// Cores that were busy all the time between the readings.
    pub busy_cores: Option<f64>,
    /// Bytes that the users wrote.
    pub user_written_bytes: u64,
    /// Bytes that the drives wrote.
    pub drive_written_bytes: Option<u64>,
    /// The drives' bytes for each byte of the users'; absent if the users wrote nothing.
    pub write_amplification: Option<f64>,
    /// What cache drives did meanwhile, and hold at the end; absent if there are none.
    #[serde(default)]
    pub cache: Option<CacheReading>,
}

impl Usage {
    /// What was moved from cache drives for each byte that the users wrote; none if they wrote nothing, or there are none.
    pub fn moved_ratio(&self) -> Option<f64> {
        let cache = self.cache.filter(|_| self.user_written_bytes > 0)?;
        Some(cache.destaged_bytes as f64 / self.user_written_bytes as f64)
    }
}

/// A meter's reading with its time and this process's own processor time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedReading {
    at: Instant,
    own_cpu: Duration,
    reading: MeterReading,
}

impl TimedReading {
    pub(crate) fn take(meter: &mut impl ClusterMeter) -> Result<Self, Error> {
        let reading = meter.read()?;
        let time = rustix::time::clock_gettime(ClockId::ProcessCPUTime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let own_cpu = Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0));
        Ok(Self { at: now(), own_cpu, reading })
    }

    /// What was used from `begin` until this reading, while the clients wrote `client_bytes`.
    pub(crate) fn since(&self, begin: &TimedReading, client_bytes: u64) -> Usage {
        let wall = self.at.since(begin.at).as_secs_f64();
        let own = self.own_cpu.saturating_sub(begin.own_cpu);
        let cpu = self.reading.cpu.zip(begin.reading.cpu).map(|(end, begin)| own + end.saturating_sub(begin));
        let difference = |end: Option<u64>, begin: Option<u64>| Some(end?.saturating_sub(begin?));
        let by_users = difference(self.reading.user_written_bytes, begin.reading.user_written_bytes);
        let user_written_bytes = by_users.unwrap_or(client_bytes);
        let drive_written_bytes =
            difference(self.reading.drive_written_bytes, begin.reading.drive_written_bytes);
        let amplification = |drive: u64| drive as f64 / user_written_bytes as f64;
        Usage {
            seconds: wall,
            cpu_seconds: cpu.map(|cpu| cpu.as_secs_f64()),
            generator_cpu_seconds: own.as_secs_f64(),
            busy_cores: cpu.filter(|_| wall > 0.0).map(|cpu| cpu.as_secs_f64() / wall),
            user_written_bytes,
            drive_written_bytes,
            write_amplification: drive_written_bytes.filter(|_| user_written_bytes > 0).map(amplification),
            cache: self.reading.cache.zip(begin.reading.cache).map(|(end, begin)| end.since(&begin)),
        }
    }
}

#[cfg(test)]
#[path = "meter_tests.rs"]
mod tests;
