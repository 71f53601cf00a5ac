//! The load fleet: many clients that each do what a virtual machine's disk would see, measured.
//!
//! VMFleet runs DISKSPD in hundreds of virtual machines and adds the results up. This fleet does the
//! same with clients instead of virtual machines: each has a volume and an NBD connection of its own and
//! keeps its I/Os in flight, and all of them share a few event loops, so that the load generator takes
//! little of the machine that it measures. The terms and their meaning are DISKSPD's.
//!
//! - [`run_cell`] puts one load on a set of [`Target`]s and measures it.
//! - [`sweep`] runs a cell for each combination of parameters and counts what the cluster used.
//! - A [`GuestAgent`] does the same in a virtual machine, where its disk is what the client uses.
//! - [`LiveLoad`] runs until it is stopped and can be looked at meanwhile.
//! - [`StudyArguments`] is the command line of studies: clusters in several states, compared and judged.
//! - [`SweepArguments`] is the command line of a sweep; [`NbdClient`] a client for whoever wants to look at
//!   a volume's content.
//!
//! What holds for every result:
//! - Latency runs from the moment when a client wants an I/O until it has seen the answer, so it includes
//!   what the load generator itself takes. Its share is told in [`GeneratorCost`].
//! - Only I/Os that ended within the measured time count for rates and latencies. Failures, and what was
//!   not answered, are counted always and never silently.

mod arguments;
mod cell;
mod client_load;
mod distribution;
mod generator;
mod guest;
mod layers;
mod live;
mod load_thread;
mod medium;
mod meter;
mod nbd_client;
mod output;
mod pace;
mod placement;
mod profile;
mod progress;
mod random;
mod result;
mod run;
mod run_arguments;
mod source;
mod spec;
mod study;
mod sweep;
mod tally;
mod target;
#[cfg(test)]
mod testing;
mod text;
mod times;
mod workload;

pub use arguments::{ClientVolumes, FleetArguments, FleetCommand, SweepArguments, VolumeRequest};
pub use cell::{fill, run_cell};
pub use distribution::Distribution;
pub use guest::GuestAgent;
pub use layers::{
    ClusterReading, DriveRate, DriveReading, FlowRate, LayerRate, Layers, NodeRate, NodeReading,
};
pub use live::{LiveClient, LiveLoad, LiveSample};
pub use meter::{CacheReading, ClusterMeter, MeterReading, NoMeter, ProcessMeter, Usage};
pub use nbd_client::{Export, NbdClient, NbdError, RequestFailure};
pub use output::{OutputFormat, count_text, short};
pub use pace::RateLimit;
pub use placement::{Placement, clients_apart, placements};
pub use profile::{Changes, Profile, ProfileSweep, RunPlan};
pub use progress::{BarProgress, LineProgress, NoProgress, Progress, progress_on_standard_error};
pub use result::{CellResult, ClientResult, GeneratorCost, Interval, Latency, LittlesLaw, Spread, Traffic};
pub use run::{CellNumber, ResultKeeper, order, run_plan};
pub use run_arguments::{
    AgentArguments, GuestDiskBus, GuestKind, ImportArguments, ProfilesArguments, ReportArguments,
    RunArguments, RunFolderArguments,
};
pub use spec::{CellSpec, Pattern, WriteContent};
pub use study::{
    CacheCostStudyArguments, CacheStudyArguments, CapacityMedia, Comparison, Goal, MachineUse, Round, Shape,
    SimulatedMedia, StudyArguments, StudyCluster, StudyClusterSpec, StudyCommand, StudyLab, StudyOutput,
    StudyReport, StudyRow, StudyTable,
};
pub use sweep::{SweepResult, SweepRow, SweepSpec, sweep};
pub use tally::Failure;
pub use target::{Target, TargetPlace};
pub use text::aligned;
