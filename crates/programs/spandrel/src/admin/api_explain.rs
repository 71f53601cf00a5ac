//! What the admin API says when somebody asks what is the matter, and why something is as it is.

use std::fmt;

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

/// `GET`: a list of [`Fault`], the most severe first.
pub const FAULTS: &str = "/v1/faults";

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

/// How much a fault matters. Ordered from the least to the most severe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Severity {
    /// Somebody wanted it so, or it mends itself.
    Informational,
    /// There is less to spare than there should be.
    Warning,
    /// Something has failed, and data is kept less often than it should be.
    Major,
    /// Data cannot be reached or is lost, or a server is gone.
    Critical,
}

impl fmt::Display for Severity {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Informational => "Informational",
            Self::Warning => "Warning",
            Self::Major => "Major",
            Self::Critical => "Critical",
        })
    }
}

/// Something that is the matter. It is there as long as that is so, and needs no acknowledgement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// How much it matters.
    pub severity: Severity,
    /// What kind of fault it is, a stable name for scripts: `server.down`.
    pub kind: String,
    /// What has it: `node n3`.
    pub object: String,
    /// Where that is, as far as it is known: the server, and on it the path.
    pub place: Option<String>,
    /// Why.
    pub reason: String,
    /// What to do about it; nothing if it mends itself.
    pub actions: Vec<String>,
    /// What must not be done, as data would be lost or wait.
    #[serde(default)]
    pub must_not: Vec<String>,
    /// For how many milliseconds it has been seen; absent if nobody knows.
    pub since_ms: Option<u64>,
}
