//! The commands that ask a running cluster, and those that set up servers.

mod access;
mod checks;
mod clean;
mod cluster;
mod drive;
mod explain;
mod fault;
mod fleet;
mod fleet_report;
mod fleet_run;
mod node;
mod pool;
mod recover;
mod removal;
mod restart;
mod status;
mod stop;
mod top;
mod volume;
mod witness;

pub use access::access;
pub use checks::{check, scrub, scrub_text, verify};
pub use cluster::cluster;
pub use drive::drive;
pub use explain::explain;
pub use fault::fault;
pub use fleet::{ApiMeter, ApiVolumes, fleet};
pub use node::node;
pub use pool::pool;
pub use status::status;
pub use top::{TopArguments, top};
pub use volume::{resync_of, volume};
pub use witness::witness;
