//! What reports compare: a run as loads with a few numbers for each measurement, whoever has measured it.
//!
//! What is not known is absent, never zero.

use serde::{Deserialize, Serialize};
use spandrel_fleet::{CellSpec, Latency, LayerRate, Spread, Traffic, clients_apart};
use spandrel_shared::IopsLimit;
use spandrel_shared::calendar::date_text;
use spandrel_shared::duration::format_duration;
use spandrel_shared::size::format_size;

use crate::folder::RunFolder;
use crate::record::{CellRecord, GuestDescription, RunRecord};

/// A run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredRun {
    /// What reports call it.
    pub name: String,
    /// What was measured, in a few words.
    pub title: String,
    /// Where the loads come from, and who has measured.
    pub source: String,
    /// What was scaled, in words; absent if nothing was.
    #[serde(default)]
    pub scales: Option<String>,
    /// Clients, or virtual machines.
    #[serde(default)]
    pub vms: Option<u32>,
    /// Nodes.
    #[serde(default)]
    pub nodes: Option<u32>,
    /// Drives that hold copies, of all nodes.
    #[serde(default)]
    pub drives: Option<u32>,
    /// Copies of each volume.
    #[serde(default)]
    pub copies: Option<u32>,
    /// The most I/Os a second that each client was to have.
    #[serde(default)]
    pub iops_max: Option<u64>,
    /// How the cluster was made up, line by line: a name and a value.
    #[serde(default)]
    pub configuration: Vec<(String, String)>,
    /// What is to be minded about the results.
    #[serde(default)]
    pub remarks: Vec<String>,
    /// What was measured.
    pub cells: Vec<MeasuredCell>,
}

/// A load, and each measurement of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredCell {
    /// The load.
    pub load: Load,
    /// Its measurements.
    pub measurements: Vec<Measurement>,
}

/// What tells cells of a run apart.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Load {
    /// Bytes of one I/O.
    pub block_size_bytes: u32,
    /// Where the I/Os go, in words.
    pub pattern: String,
    /// Threads of each client.
    pub threads: u32,
    /// How many of 100 I/Os are writes.
    pub write_percent: u8,
    /// I/Os that each thread keeps in flight.
    pub outstanding: u32,
}

/// What one measurement came to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Measurement {
    /// I/Os a second of all clients.
    pub iops: Option<f64>,
    /// Of these, reads.
    pub read_iops: Option<f64>,
    /// Writes.
    pub write_iops: Option<f64>,
    /// MiB a second of all clients.
    pub mib_per_second: Option<f64>,
    /// Latencies of all I/Os, in microseconds.
    pub total: LatencyPoints,
    /// Of reads; where clients had a cap, the mean alone, without the wait for it, if the cluster told it.
    pub read: LatencyPoints,
    /// Of writes, likewise.
    pub write: LatencyPoints,
    /// How busy the processors of the servers were, in percent of all their cores.
    pub cpu_percent: Option<f64>,
    /// Cores that were busy for it, those of the clients included.
    pub busy_cores: Option<f64>,
    /// Bytes that drives wrote for each byte of the clients.
    pub write_amplification: Option<f64>,
    /// MiB a second that all drives wrote.
    pub drive_write_mib_per_second: Option<f64>,
    /// Operations under way at a drive, in the mean of all.
    pub drive_queue: Option<f64>,
    /// How much of what was read came from cache drives, in percent.
    pub cache_hit_percent: Option<f64>,
    /// How much I/Os in flight by rate and latency differ from what was set, in percent.
    pub littles_law_percent: Option<f64>,
    /// I/Os a second of the clients, one by one.
    pub client_iops: Option<Spread>,
    /// Of 100 clients, how many had at least 99 % of the most that they were to have.
    pub clients_at_cap_percent: Option<f64>,
    /// What a client had in the mean, in percent of the most that it was to have.
    pub mean_to_cap_percent: Option<f64>,
    /// Each node's part.
    pub nodes: Vec<NodeShare>,
    /// How busy the busiest thread of the load generator was, in percent.
    pub generator_percent: Option<f64>,
    /// I/Os that failed or were not answered.
    pub failures: u64,
}

/// Latencies in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LatencyPoints {
    /// The mean.
    pub mean_us: Option<f64>,
    /// Half of the I/Os were not slower.
    pub p50_us: Option<f64>,
    /// 99 %.
    pub p99_us: Option<f64>,
    /// 99.9 %.
    pub p99_9_us: Option<f64>,
    /// 99.99 %.
    pub p99_99_us: Option<f64>,
    /// 99.999 %.
    pub p99_999_us: Option<f64>,
}

/// A node's part of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeShare {
    /// Its name.
    pub name: String,
    /// I/Os a second of its clients.
    pub iops: f64,
    /// How many clients these are.
    #[serde(default = "one")]
    pub clients: u32,
    /// Cores that its threads kept busy.
    pub cores: Option<f64>,
}

fn one() -> u32 {
    1
}

/// Where the I/Os of a load go, with all that tells it from others.
fn pattern_text(spec: &CellSpec) -> String {
    let mut text = spec.pattern.to_string();
    if let Some(percent) = spec.random_percent.filter(|percent| *percent < 100) {
        text += &format!(" {percent} %");
    }
    if let Some(distribution) = &spec.distribution {
        text += &format!(" {distribution}");
    }
    if let Some(rate) = spec.rate_limit {
        text += &format!(", each thread at most {rate}");
    }
    text
}

/// How the cluster was made up and measured, for people.
fn configuration(record: &RunRecord) -> Vec<(String, String)> {
    let (plan, cluster) = (&record.plan, &record.cluster);
    let drives = || cluster.nodes.iter().flat_map(|node| &node.drives);
    let sizes = |is_cache: bool| -> Option<String> {
        let of = drives().filter(|drive| drive.is_cache == is_cache);
        let size = of.clone().map(|drive| drive.size_bytes).max()?;
        Some(format!("{} of up to {}", of.count(), format_size(size)))
    };
    let times = plan.cells.first().map(|cell| {
        let [warmup, duration, cooldown] = [cell.warmup, cell.duration, cell.cooldown].map(format_duration);
        format!("{duration}, after {warmup} and before {cooldown}")
    });
    let machine = &cluster.machine;
    let facts = [
        ("began", Some(date_text(record.begun_unix_ms))),
        ("working set", plan.cells.first().and_then(|cell| cell.working_set_bytes).map(format_size)),
        ("measured for", times),
        ("repeats", Some(plan.repeat.to_string())),
        ("clients on their owner's node", record.guest.is_none().then(|| aligned_text(record))),
        ("clients are in", record.guest.as_ref().map(guest_text)),
        ("version", Some(cluster.version.clone())),
        ("drive sizes", sizes(false)),
        ("cache drives", sizes(true)),
        ("drives are", cluster.is_in_memory.then(|| "in memory".to_owned())),
        ("a flush takes", cluster.flush_us.map(|us| format!("{us} us"))),
        ("processor", Some(format!("{} cores of {}", machine.cores, machine.processor))),
        ("memory", Some(format_size(machine.memory_bytes))),
        ("kernel", Some(machine.kernel.clone())),
    ];
    facts.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// What virtual machine a client is in.
fn guest_text(guest: &GuestDescription) -> String {
    let memory = format_size(guest.memory_bytes);
    let processors = if guest.processors == 1 { "processor" } else { "processors" };
    format!(
        "virtual machines by QEMU, of {} {processors} and {memory}, with disks by {}",
        guest.processors, guest.disk_bus
    )
}

/// `11 of 16`: as clients are whole, this may be another part of them than was asked for.
fn aligned_text(record: &RunRecord) -> String {
    let clients = record.plan.vms as usize;
    format!("{} of {clients}", clients - clients_apart(clients, record.aligned_percent))
}

/// A client has what it was to have from so much of it on.
const CAP_REACHED: f64 = 0.99;

impl MeasuredRun {
    /// A run of the fleet.
    pub fn of_folder(folder: &RunFolder) -> Self {
        let record = folder.record();
        let (plan, cluster) = (&record.plan, &record.cluster);
        let drives = || cluster.nodes.iter().flat_map(|node| &node.drives);
        let mut remarks = record.warnings.clone();
        if let Some(error) = &record.stopped_by {
            remarks.push(format!("the run ended before its last cell: {}: {}", error.what, error.why));
        }
        if !folder.is_complete() {
            let all = plan.cells.len() as u64 * u64::from(plan.repeat);
            remarks.push(format!("{} of {all} measurements were made", folder.cells().len()));
        }
        let of_cell = |(number, spec): (usize, &CellSpec)| MeasuredCell {
            load: Load {
                block_size_bytes: spec.block_size_bytes,
                pattern: pattern_text(spec),
                threads: spec.threads,
                write_percent: spec.write_percent,
                outstanding: spec.outstanding,
            },
            measurements: folder
                .cells()
                .iter()
                .filter(|cell| cell.number.cell as usize == number)
                .map(|cell| Measurement::of_cell(cell, plan.iops_max, cluster.machine.cores))
                .collect(),
        };
        Self {
            name: record.name.clone(),
            title: plan.title.clone(),
            source: format!("profile {}, modelled on: {}", plan.profile, plan.source),
            scales: plan.scales(),
            vms: Some(plan.vms),
            nodes: u32::try_from(cluster.nodes.len()).ok(),
            drives: u32::try_from(drives().filter(|drive| !drive.is_cache).count()).ok(),
            copies: Some(cluster.copies.into()),
            iops_max: plan.iops_max,
            configuration: configuration(record),
            remarks,
            cells: plan.cells.iter().enumerate().map(of_cell).collect(),
        }
    }
}

impl Measurement {
    fn of_cell(cell: &CellRecord, iops_max: Option<u64>, cores: u32) -> Self {
        let (result, usage) = (&cell.result, &cell.usage);
        // Earlier programs did not keep how long it was between the readings.
        let seconds = if usage.seconds > 0.0 { usage.seconds } else { result.measured_seconds };
        let drive_queue = cell.layers.as_ref().filter(|layers| !layers.drives.is_empty());
        // What each client had of the most that it was to have, as limits count I/Os.
        let parts_of_cap = iops_max.map(|iops_max| {
            let limit = IopsLimit { iops_max, normalized_bytes: IopsLimit::NORMALIZED_BYTES_DEFAULT };
            let cost = limit.cost(result.spec.block_size_bytes.into()) as f64;
            result.clients.iter().map(move |client| client.total.iops * cost / iops_max as f64)
        });
        let of_kind = |traffic: &Traffic, at_frontend: fn(&LayerRate) -> Option<f64>| match iops_max {
            Some(_) => LatencyPoints {
                mean_us: cell.layers.as_ref().and_then(|layers| at_frontend(&layers.frontend)),
                ..LatencyPoints::default()
            },
            None => LatencyPoints::of(traffic.latency.as_ref()),
        };
        let percent_of_clients = 100.0 / result.clients.len().max(1) as f64;
        Self {
            iops: Some(result.total.iops),
            read_iops: Some(result.read.iops),
            write_iops: Some(result.write.iops),
            mib_per_second: Some(result.total.mib_per_second),
            total: LatencyPoints::of(result.total.latency.as_ref()),
            read: of_kind(&result.read, |frontend| frontend.read.mean_us),
            write: of_kind(&result.write, |frontend| frontend.write.mean_us),
            cpu_percent: usage.busy_cores.map(|busy| 100.0 * busy / f64::from(cores.max(1))),
            busy_cores: usage.busy_cores,
            write_amplification: usage.write_amplification,
            drive_write_mib_per_second: usage
                .drive_written_bytes
                .filter(|_| seconds > 0.0)
                .map(|bytes| bytes as f64 / seconds / (1024.0 * 1024.0)),
            drive_queue: drive_queue.map(|layers| layers.drive.queue() / layers.drives.len() as f64),
            cache_hit_percent: usage.cache.and_then(|cache| cache.hit_percent()),
            littles_law_percent: result
                .spec
                .rate_limit
                .is_none()
                .then_some(result.littles_law.residual_percent),
            client_iops: Some(result.client_iops),
            clients_at_cap_percent: parts_of_cap
                .clone()
                .map(|parts| parts.filter(|part| *part >= CAP_REACHED).count() as f64 * percent_of_clients),
            mean_to_cap_percent: parts_of_cap.map(|parts| parts.sum::<f64>() * percent_of_clients),
            nodes: shares(cell),
            generator_percent: Some(result.generator.busiest_thread_percent),
            failures: result.errors + result.unanswered,
        }
    }
}

/// What clients of each node had, and how busy its threads were.
fn shares(cell: &CellRecord) -> Vec<NodeShare> {
    let mut shares: Vec<NodeShare> = Vec::new();
    for client in &cell.result.clients {
        let Some(node) = &client.node else { continue };
        match shares.iter_mut().find(|share| share.name == *node) {
            Some(share) => {
                share.iops += client.total.iops;
                share.clients += 1;
            }
            None => {
                let layers = cell.layers.as_ref();
                let rate = layers.and_then(|layers| layers.nodes.iter().find(|rate| rate.name == *node));
                let cores = rate.and_then(|rate| rate.cores);
                shares.push(NodeShare { name: node.clone(), iops: client.total.iops, clients: 1, cores });
            }
        }
    }
    shares.sort_by(|one, other| one.name.cmp(&other.name));
    shares
}

impl LatencyPoints {
    fn of(latency: Option<&Latency>) -> Self {
        let Some(latency) = latency else { return Self::default() };
        Self {
            mean_us: Some(latency.mean_us),
            p50_us: Some(latency.p50_us),
            p99_us: Some(latency.p99_us),
            p99_9_us: latency.p99_9_us,
            p99_99_us: latency.p99_99_us,
            p99_999_us: latency.p99_999_us,
        }
    }
}

#[cfg(test)]
#[path = "measurement_tests.rs"]
mod tests;
