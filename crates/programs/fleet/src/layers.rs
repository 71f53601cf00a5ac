//! What goes on at every layer of the cluster at once while a cell is measured: at the front-ends, the owners, the bus, the cache
//! and the drives, and on each node's processor.
//!
//! A cluster counts what it has done since it started; here differences between two looks become rates, queues and latencies. So
//! they say where the time of an I/O goes, and which node or drive has more of the load than others.
//!
//! What holds for every layer: operations under way in the mean are operations a second times the mean time of one. The cluster
//! looks some ten times a second at what is under way, so queue and time are those of a poll; operations and bytes are exact.

use serde::{Deserialize, Serialize};
use spandrel_shared::{FlowCounts, LoadCounts};

use crate::meter::CacheReading;

const MIB: f64 = 1024.0 * 1024.0;

/// What all parts of a cluster have done at one moment, since any fixed point before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterReading {
    /// Its nodes, as far as they answer.
    pub nodes: Vec<NodeReading>,
    /// The drives that hold copies.
    pub drives: Vec<DriveReading>,
    /// Its cache drives; none if it has none.
    pub cache: Option<CacheReading>,
}

/// A node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeReading {
    /// Its name.
    pub name: String,
    /// This run of it: counts of another one have begun anew.
    pub run: String,
    /// When it was so, in microseconds by the node's own clock.
    pub at_us: u64,
    /// Processor time of the threads that serve data, in microseconds.
    pub cpu_us: Option<u64>,
    /// What its clients ask for, until it is answered, without the wait for limits.
    pub frontend: LoadCounts,
    /// What it does as the owner of volumes.
    pub owner: LoadCounts,
    /// What it asks other nodes for.
    pub bus: LoadCounts,
}

/// A drive at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriveReading {
    /// Its name.
    pub name: String,
    /// The name of its node.
    pub node: String,
    /// What is asked of it: reads, and writes together with flushes.
    pub load: LoadCounts,
}

/// What was done of one kind in some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FlowRate {
    /// Operations a second.
    pub iops: f64,
    /// MiB a second.
    pub mib_per_second: f64,
    /// Operations under way in the mean.
    pub queue: f64,
    /// How long one took in the mean, in microseconds; absent if none was done.
    pub mean_us: Option<f64>,
}

/// Reads and writes at one place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LayerRate {
    /// Reads.
    pub read: FlowRate,
    /// Writes, and what else changes something.
    pub write: FlowRate,
}

impl LayerRate {
    /// Operations of both kinds a second.
    pub fn iops(&self) -> f64 {
        self.read.iops + self.write.iops
    }

    /// Operations of both kinds under way in the mean.
    pub fn queue(&self) -> f64 {
        self.read.queue + self.write.queue
    }
}

/// A node in some time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeRate {
    /// Its name.
    pub name: String,
    /// How many cores its threads kept busy; absent if nobody has measured it.
    pub cores: Option<f64>,
    /// What its clients asked for.
    pub frontend: LayerRate,
    /// What it did as the owner of volumes.
    pub owner: LayerRate,
    /// What it asked other nodes for.
    pub bus: LayerRate,
}

/// A drive in some time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DriveRate {
    /// Its name.
    pub name: String,
    /// The name of its node.
    pub node: String,
    /// What was asked of it.
    pub load: LayerRate,
}

/// All layers in some time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Layers {
    /// How long it was, in seconds.
    pub seconds: f64,
    /// All front-ends.
    pub frontend: LayerRate,
    /// All owners.
    pub owner: LayerRate,
    /// The bus.
    pub bus: LayerRate,
    /// All drives that hold copies.
    pub drive: LayerRate,
    /// What cache drives did, and hold at the end; absent if there are none.
    pub cache: Option<CacheReading>,
    /// Each node that answered at both ends.
    pub nodes: Vec<NodeRate>,
    /// Each drive that was there at both ends.
    pub drives: Vec<DriveRate>,
}

impl Layers {
    /// What was done from one look to a later one. A node that ran anew meanwhile is left out, with its drives.
    pub fn between(before: &ClusterReading, after: &ClusterReading) -> Self {
        let pairs: Vec<(&NodeReading, &NodeReading)> = after
            .nodes
            .iter()
            .filter_map(|node| {
                let former = before.nodes.iter().find(|former| former.name == node.name)?;
                (former.run == node.run && former.at_us < node.at_us).then_some((former, node))
            })
            .collect();
        let seconds_of =
            |(former, node): &(&NodeReading, &NodeReading)| (node.at_us - former.at_us) as f64 / 1e6;
        let nodes: Vec<NodeRate> = pairs.iter().map(|pair| node_rate(*pair, seconds_of(pair))).collect();
        let drives: Vec<DriveRate> = after
            .drives
            .iter()
            .filter_map(|drive| {
                let pair = pairs.iter().find(|(_, node)| node.name == drive.node)?;
                let former = before.drives.iter().find(|former| former.name == drive.name)?;
                let load = layer_rate(former.load, drive.load, seconds_of(pair));
                Some(DriveRate { name: drive.name.clone(), node: drive.node.clone(), load })
            })
            .collect();
        Self {
            seconds: pairs.iter().map(seconds_of).fold(0.0, f64::max),
            frontend: sum(nodes.iter().map(|node| node.frontend)),
            owner: sum(nodes.iter().map(|node| node.owner)),
            bus: sum(nodes.iter().map(|node| node.bus)),
            drive: sum(drives.iter().map(|drive| drive.load)),
            cache: after.cache.zip(before.cache).map(|(after, before)| after.since(&before)),
            nodes,
            drives,
        }
    }
}

fn node_rate((former, node): (&NodeReading, &NodeReading), seconds: f64) -> NodeRate {
    let cpu_us = node.cpu_us.zip(former.cpu_us).map(|(after, before)| after.saturating_sub(before));
    NodeRate {
        name: node.name.clone(),
        cores: cpu_us.map(|cpu_us| cpu_us as f64 / 1e6 / seconds),
        frontend: layer_rate(former.frontend, node.frontend, seconds),
        owner: layer_rate(former.owner, node.owner, seconds),
        bus: layer_rate(former.bus, node.bus, seconds),
    }
}

fn layer_rate(before: LoadCounts, after: LoadCounts, seconds: f64) -> LayerRate {
    LayerRate {
        read: flow_rate(before.reads, after.reads, seconds),
        write: flow_rate(before.writes, after.writes, seconds),
    }
}

fn flow_rate(before: FlowCounts, after: FlowCounts, seconds: f64) -> FlowRate {
    let difference = |count: fn(&FlowCounts) -> u64| count(&after).saturating_sub(count(&before)) as f64;
    let (done, in_flight_us) = (difference(|flow| flow.done), difference(|flow| flow.in_flight_us));
    FlowRate {
        iops: done / seconds,
        mib_per_second: difference(|flow| flow.bytes) / MIB / seconds,
        queue: in_flight_us / 1e6 / seconds,
        mean_us: (done > 0.0).then(|| in_flight_us / done),
    }
}

fn sum(rates: impl Iterator<Item = LayerRate>) -> LayerRate {
    let add = |one: FlowRate, other: FlowRate| {
        let (iops, queue) = (one.iops + other.iops, one.queue + other.queue);
        FlowRate {
            iops,
            mib_per_second: one.mib_per_second + other.mib_per_second,
            queue,
            mean_us: (iops > 0.0).then(|| queue / iops * 1e6),
        }
    };
    rates.fold(LayerRate::default(), |all, rate| LayerRate {
        read: add(all.read, rate.read),
        write: add(all.write, rate.write),
    })
}

#[cfg(test)]
#[path = "layers_tests.rs"]
mod tests;
