//! The commands that ask a running cluster.

mod checks;
mod drive;
mod fleet;
mod node;
mod status;
mod volume;

pub use checks::{check, scrub, verify};
pub use drive::drive;
pub use fleet::{ApiMeter, ApiVolumes, fleet};
pub use node::node;
pub use status::status;
pub use volume::{resync_of, volume};
