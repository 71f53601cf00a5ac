//! What the facts about a cluster mean, in words: health and operational status.
//!
//! The words are those of Storage Spaces Direct, so that those who know it feel at home. Everything
//! here is a function from facts that somebody else has gathered to a [`Status`]; nothing is
//! remembered and nothing is asked.
//!
//! - [`volume`]: which copies of a volume are whole, and which of them can be reached.
//! - [`drive`], [`node`]: whether they can be used.
//! - [`pool`]: all drives together.
//!
//! Invariants:
//! - *Healthy* is said only if nothing is known to be wrong and nothing is being repaired.
//! - A status never sounds better than any of its facts does alone: of several troubles the worst
//!   decides the health, and all are listed.

pub mod drive;
pub mod node;
pub mod pool;
mod status;
pub mod volume;

pub use drive::{DriveFacts, DriveTrouble};
pub use node::NodeFacts;
pub use pool::PoolFacts;
pub use status::{HealthStatus, OperationalStatus, Status};
pub use volume::{CopyFacts, VolumeFacts};
