//! From counts that only grow to what was done in a second.
//!
//! Each node counts for itself and has a clock of its own, so each difference is divided by the time that its node has
//! counted; then they are added up. What was counted by a run of a process that has ended since says nothing: a node that
//! has started anew, and one that did not answer before, show their rates in the next interval.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::Serialize;
use spandrel_node::{LongestPause, NodeLoad, VolumeLoad};
use spandrel_shared::{DriveId, FlowCounts, LoadCounts, VolumeId};

use super::caches::CacheRates;
use crate::admin::api::{ClusterLoad, Job, LoadedNode};

/// How busy a cluster was in one interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rates {
    /// The cluster's name.
    pub cluster: String,
    /// When the interval ended, by the clock of the server that was asked.
    pub at_unix_ms: u64,
    /// How long it was, by the same clock.
    pub interval_ms: u64,
    /// The whole cluster, in the order in which a request travels: `front-end`, `owner`, `bus`, `drive`.
    pub layers: Vec<LayerRates>,
    /// The nodes.
    pub nodes: Vec<NodeRates>,
    /// The caches of those drives that are bound to cache drives.
    pub caches: Vec<CacheRates>,
    /// The volumes, the busiest first.
    pub volumes: Vec<VolumeRates>,
    /// Copies that are brought up to date, built or moved.
    pub jobs: Vec<JobRates>,
    /// The longest pause of the last five minutes.
    pub longest_pause: Option<PauseOfVolume>,
}

/// What one layer of all nodes has done.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LayerRates {
    /// Its name.
    pub layer: &'static str,
    /// What it has done.
    #[serde(flatten)]
    pub load: LoadRates,
}

/// How busy a node was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeRates {
    /// Its name.
    pub node: String,
    /// How it is.
    pub state: String,
    /// Whether it has answered.
    pub answers: bool,
    /// How much of a core the thread needed that does all of its work, in per cent.
    pub cpu_percent: Option<f64>,
    /// Its clients.
    pub frontend: LoadRates,
    /// Its volumes, as their owner.
    pub owner: LoadRates,
    /// What it asked others for.
    pub bus: LoadRates,
    /// Its drives together.
    pub drive: LoadRates,
}

/// How busy a volume was, as its clients see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct VolumeRates {
    /// Its name.
    pub volume: String,
    /// The node that owns it, if one says so.
    pub owner: Option<String>,
    /// What its clients asked for, at all nodes.
    #[serde(flatten)]
    pub load: LoadRates,
    /// Its longest pause of the last five minutes.
    pub longest_pause: Option<PauseOfVolume>,
}

/// A pause, and whose it was.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PauseOfVolume {
    /// The volume's name.
    pub volume: String,
    /// The node whose clients have waited.
    pub node: String,
    /// How long, and when.
    #[serde(flatten)]
    pub pause: LongestPause,
}

/// A job, and how long it takes yet.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JobRates {
    /// The job.
    #[serde(flatten)]
    pub job: Job,
    /// What it copies in a second, in bytes; absent before that can be said.
    pub bytes_per_second: Option<u64>,
    /// How long it takes yet, in milliseconds; absent before that can be said.
    pub left_ms: Option<u64>,
}

/// What was done of both kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct LoadRates {
    /// Reads.
    pub reads: FlowRates,
    /// Writes, and what else changes something.
    pub writes: FlowRates,
}

/// What was done of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct FlowRates {
    /// Operations in a second.
    pub per_second: f64,
    /// Bytes in a second.
    pub bytes_per_second: f64,
    /// How long an operation took in the mean, in microseconds; absent if none was done.
    pub latency_us: Option<f64>,
    /// How many were under way in the mean.
    pub queue: f64,
    /// How many are under way now.
    pub in_flight: u64,
    /// How many were done in the interval.
    pub done: u64,
    /// How many were done since each node started.
    pub done_since_start: u64,
    /// How long all of them were under way together in the interval, in microseconds.
    pub in_flight_us: u64,
}

/// What was counted of one thing: before, if that says anything, and now.
type Counted<'counts> = (Option<LoadCounts>, &'counts LoadCounts);

impl Rates {
    /// What was done between two answers.
    pub fn between(before: &ClusterLoad, after: &ClusterLoad) -> Self {
        let nodes: Vec<Interval<'_>> =
            after.nodes.iter().filter_map(|node| Interval::of(before, node)).collect();
        let of_all = |layer: fn(&Interval<'_>) -> LoadRates| {
            nodes.iter().map(layer).fold(LoadRates::default(), LoadRates::and)
        };
        let layers = [
            ("front-end", of_all(|node| node.frontend())),
            ("owner", of_all(|node| node.owner())),
            ("bus", of_all(|node| node.bus())),
            ("drive", of_all(|node| node.drives())),
        ];
        let volumes = volumes(&nodes);
        let pauses = volumes.iter().filter_map(|volume| volume.longest_pause.clone());
        Self {
            cluster: after.cluster.clone(),
            at_unix_ms: after.taken_unix_ms,
            interval_ms: after.taken_unix_ms.saturating_sub(before.taken_unix_ms),
            layers: layers.into_iter().map(|(layer, load)| LayerRates { layer, load }).collect(),
            nodes: after
                .nodes
                .iter()
                .map(|node| node_rates(node, Interval::of(before, node).as_ref()))
                .collect(),
            caches: nodes.iter().flat_map(Interval::caches).collect(),
            longest_pause: pauses.max_by_key(|pause| pause.pause.length_ms),
            volumes,
            jobs: after.jobs.iter().map(job_rates).collect(),
        }
    }

    /// How many nodes have answered.
    pub fn nodes_answering(&self) -> usize {
        self.nodes.iter().filter(|node| node.answers).count()
    }
}

/// What one node has said.
struct Interval<'load> {
    name: &'load str,
    /// In the same run of its process.
    before: Option<&'load NodeLoad>,
    after: &'load NodeLoad,
    /// What was counted of volumes before.
    volumes_before: BTreeMap<VolumeId, &'load VolumeLoad>,
    seconds: f64,
}

impl<'load> Interval<'load> {
    /// None if the node does not answer now.
    fn of(before: &'load ClusterLoad, node: &'load LoadedNode) -> Option<Self> {
        let after = node.load.as_ref()?;
        let mut former = before.nodes.iter().filter_map(|former| former.load.as_ref());
        let before = former.find(|former| {
            (former.node, former.incarnation) == (after.node, after.incarnation) && former.at_us < after.at_us
        });
        let seconds = before.map_or(0.0, |before| (after.at_us - before.at_us) as f64 / 1e6);
        let volumes = before.into_iter().flat_map(|before| &before.volumes);
        let volumes_before = volumes.map(|volume| (volume.volume, volume)).collect();
        Some(Self { name: &node.name, before, after, volumes_before, seconds })
    }

    fn frontend(&self) -> LoadRates {
        self.sum(
            self.after.volumes.iter().map(|volume| self.counted_of_volume(volume, |load| &load.frontend)),
        )
    }

    fn owner(&self) -> LoadRates {
        self.sum(self.after.volumes.iter().map(|volume| self.counted_of_volume(volume, |load| &load.owner)))
    }

    fn bus(&self) -> LoadRates {
        self.sum([(self.before.map(|before| before.bus), &self.after.bus)])
    }

    fn drives(&self) -> LoadRates {
        let before = |drive: DriveId| {
            let former = self.before?.drives.iter().find(|former| former.drive == drive);
            Some(former.map(|former| former.load).unwrap_or_default())
        };
        self.sum(self.after.drives.iter().map(|drive| (before(drive.drive), &drive.load)))
    }

    fn caches(&self) -> Vec<CacheRates> {
        CacheRates::of_node(self.name, self.before, self.after, self.seconds)
    }

    /// What was counted of a volume: one that was not known before began with nothing.
    fn counted_of_volume<'counts>(
        &self,
        volume: &'counts VolumeLoad,
        part: fn(&VolumeLoad) -> &LoadCounts,
    ) -> Counted<'counts> {
        let former = self.volumes_before.get(&volume.volume).map(|former| *part(former)).unwrap_or_default();
        (self.before.map(|_| former), part(volume))
    }

    fn sum<'counts>(&self, counted: impl IntoIterator<Item = Counted<'counts>>) -> LoadRates {
        let of = |(before, after): Counted<'_>| LoadRates {
            reads: FlowRates::between(before.map(|before| before.reads), &after.reads, self.seconds),
            writes: FlowRates::between(before.map(|before| before.writes), &after.writes, self.seconds),
        };
        counted.into_iter().map(of).fold(LoadRates::default(), LoadRates::and)
    }

    /// How much of a core its threads needed together.
    fn cpu_percent(&self) -> Option<f64> {
        let spent_us = self.after.cpu_us?.saturating_sub(self.before?.cpu_us?);
        Some(spent_us as f64 / self.seconds / 1e4)
    }
}

impl FlowRates {
    fn between(before: Option<FlowCounts>, after: &FlowCounts, seconds: f64) -> Self {
        let now = Self { in_flight: after.in_flight, done_since_start: after.done, ..Self::default() };
        let Some(before) = before else { return now };
        let (done, bytes) =
            (after.done.saturating_sub(before.done), after.bytes.saturating_sub(before.bytes));
        let in_flight_us = after.in_flight_us.saturating_sub(before.in_flight_us);
        Self {
            per_second: done as f64 / seconds,
            bytes_per_second: bytes as f64 / seconds,
            latency_us: mean(in_flight_us, done),
            queue: in_flight_us as f64 / 1e6 / seconds,
            done,
            in_flight_us,
            ..now
        }
    }

    /// Both together.
    pub fn and(self, other: Self) -> Self {
        let (done, in_flight_us) = (self.done + other.done, self.in_flight_us + other.in_flight_us);
        Self {
            per_second: self.per_second + other.per_second,
            bytes_per_second: self.bytes_per_second + other.bytes_per_second,
            latency_us: mean(in_flight_us, done),
            queue: self.queue + other.queue,
            in_flight: self.in_flight + other.in_flight,
            done,
            done_since_start: self.done_since_start + other.done_since_start,
            in_flight_us,
        }
    }
}

impl LoadRates {
    fn and(self, other: Self) -> Self {
        Self { reads: self.reads.and(other.reads), writes: self.writes.and(other.writes) }
    }

    /// Reads and writes together.
    pub fn all(&self) -> FlowRates {
        self.reads.and(self.writes)
    }
}

/// Little's law: what was under way, times the time, is how long each was, times how many.
fn mean(in_flight_us: u64, done: u64) -> Option<f64> {
    (done > 0).then(|| in_flight_us as f64 / done as f64)
}

fn node_rates(node: &LoadedNode, interval: Option<&Interval<'_>>) -> NodeRates {
    let of = |layer: fn(&Interval<'_>) -> LoadRates| interval.map(layer).unwrap_or_default();
    let state = match node.is_alive && node.load.is_none() {
        true => "no answer".to_owned(),
        false => node.status.operational_text(),
    };
    NodeRates {
        node: node.name.clone(),
        state,
        answers: node.load.is_some(),
        cpu_percent: interval.and_then(Interval::cpu_percent),
        frontend: of(|node| node.frontend()),
        owner: of(|node| node.owner()),
        bus: of(|node| node.bus()),
        drive: of(|node| node.drives()),
    }
}

fn volumes(nodes: &[Interval<'_>]) -> Vec<VolumeRates> {
    let mut all: BTreeMap<VolumeId, VolumeRates> = BTreeMap::new();
    for node in nodes {
        for volume in &node.after.volumes {
            let load = node.sum([node.counted_of_volume(volume, |load| &load.frontend)]);
            let owner = volume.is_owned.then(|| node.name.to_owned());
            let longest_pause = volume.longest_pause.map(|pause| PauseOfVolume {
                volume: volume.name.clone(),
                node: node.name.to_owned(),
                pause,
            });
            let seen = VolumeRates { volume: volume.name.clone(), owner, load, longest_pause };
            match all.entry(volume.volume) {
                Entry::Occupied(mut known) => known.get_mut().take_in(seen),
                Entry::Vacant(new) => _ = new.insert(seen),
            }
        }
    }
    let mut volumes: Vec<VolumeRates> = all.into_values().collect();
    volumes.sort_by(|one, other| {
        let busy = |volume: &VolumeRates| (volume.load.all().per_second, volume.load.all().queue);
        let (one_busy, other_busy) = (busy(one), busy(other));
        let order = other_busy.0.total_cmp(&one_busy.0).then(other_busy.1.total_cmp(&one_busy.1));
        order.then_with(|| one.volume.cmp(&other.volume))
    });
    volumes
}

impl VolumeRates {
    /// What another node has seen of it.
    fn take_in(&mut self, other: Self) {
        self.owner = self.owner.take().or(other.owner);
        self.load = self.load.and(other.load);
        let pauses = [self.longest_pause.take(), other.longest_pause];
        self.longest_pause = pauses.into_iter().flatten().max_by_key(|pause| pause.pause.length_ms);
    }
}

fn job_rates(job: &Job) -> JobRates {
    JobRates { job: job.clone(), bytes_per_second: job.bytes_per_second(), left_ms: job.left_ms() }
}

#[cfg(test)]
#[path = "rates_tests.rs"]
mod tests;
