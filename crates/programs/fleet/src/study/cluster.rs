//! What a study needs of whoever makes its clusters.

use serde::{Deserialize, Serialize};
use spandrel_shared::{CacheMode, Error};

use crate::arguments::VolumeRequest;
use crate::meter::{CacheReading, ClusterMeter};
use crate::target::Target;

/// What the drives that hold the copies are made to be like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityMedia {
    /// SATA SSDs
    Ssd,
    /// Disks
    Hdd,
}

impl CapacityMedia {
    /// Its name, as `spandrel up --capacity-media` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ssd => "ssd",
            Self::Hdd => "hdd",
        }
    }

    /// What several of them are called.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Ssd => "SATA SSDs",
            Self::Hdd => "disks",
        }
    }
}

/// Media that are slower than the memory that they are made of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SimulatedMedia {
    /// What the drives that hold the copies are like. Cache drives are like NVMe.
    pub capacity_media: CapacityMedia,
    /// How fast all these are, compared with real ones.
    pub scale: f64,
}

/// A cluster on this machine, all in memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StudyClusterSpec {
    /// Nodes.
    pub nodes: u32,
    /// Drives of each node that hold copies.
    pub drives: u32,
    /// The size of each.
    pub drive_size_bytes: u64,
    /// The size of the one cache drive that each node has in front of them; absent if it has none.
    pub cache_drive_size_bytes: Option<u64>,
    /// What media they are like; absent if they are as fast as memory.
    pub media: Option<SimulatedMedia>,
}

/// Makes the clusters of a study.
pub trait StudyLab {
    /// A cluster that it makes.
    type Cluster: StudyCluster;

    /// Makes a cluster with nothing on it, starts it, and waits until it serves. It does nothing by itself: it neither scrubs
    /// nor spreads copies.
    ///
    /// # Errors
    ///
    /// It cannot be made or started.
    fn start(&mut self, spec: &StudyClusterSpec) -> Result<Self::Cluster, Error>;
}

/// A cluster that a study runs on. Dropping it removes it with all that it made.
pub trait StudyCluster: ClusterMeter {
    /// Makes a volume for each client. They go with the cluster.
    ///
    /// # Errors
    ///
    /// The cluster refuses them.
    fn make_volumes(&mut self, request: &VolumeRequest) -> Result<Vec<Target>, Error>;

    /// Has the cache drives used in this way, and waits until all of them are. Without cache drives that changes nothing.
    ///
    /// # Errors
    ///
    /// The cluster refuses it, or does not follow.
    fn set_cache_mode(&mut self, mode: CacheMode) -> Result<(), Error>;

    /// What the cache drives hold and have done, all together: nothing if there are none.
    ///
    /// # Errors
    ///
    /// The cluster does not answer.
    fn read_caches(&mut self) -> Result<CacheReading, Error>;

    /// Waits until nothing stands on cache drives alone. Nothing is written meanwhile, and the mode is one that caches no
    /// writes. `tick` hears how many bytes are left.
    ///
    /// # Errors
    ///
    /// The cluster does not answer, or does not get on.
    fn await_clean(&mut self, tick: &mut dyn FnMut(u64)) -> Result<(), Error>;

    /// Ends the cluster in order and removes all it made.
    ///
    /// # Errors
    ///
    /// It does not end, or something is left over.
    fn remove(self) -> Result<(), Error>;
}
