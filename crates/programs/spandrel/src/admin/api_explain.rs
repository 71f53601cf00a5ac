//! What the admin API says when somebody asks why something is as it is.

use serde::{Deserialize, Serialize};
use spandrel_health::Status;

/// `GET`: an [`Explanation`] of a volume.
pub const VOLUME_EXPLANATION: &str = "/v1/volumes/{name}/explanation";
/// `GET`: an [`Explanation`] of a drive.
pub const DRIVE_EXPLANATION: &str = "/v1/drives/{name}/explanation";
/// `GET`: an [`Explanation`] of a node.
pub const NODE_EXPLANATION: &str = "/v1/nodes/{name}/explanation";
/// `GET`: an [`Explanation`] of the pool.
pub const POOL_EXPLANATION: &str = "/v1/pool/explanation";

/// How something is, why, what the system does about it, and what whoever operates it may and must not do. Sentences
/// without a capital and a full stop, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Explanation {
    /// What it is: `volume v1`.
    pub object: String,
    /// How it is.
    pub status: Status,
    /// For how many milliseconds the trouble has been seen that lasts longest; absent if nobody knows.
    pub since_ms: Option<u64>,
    /// Why.
    pub why: Vec<String>,
    /// What the system does about it.
    pub doing: Vec<String>,
    /// How long that takes yet, in milliseconds, as far as it has begun and can be said.
    pub left_ms: Option<u64>,
    /// What may be done.
    pub may: Vec<String>,
    /// What must not be done, as data would be lost or wait.
    pub must_not: Vec<String>,
}
