//! What the admin API says of who may use it.

use std::fmt;

use serde::{Deserialize, Serialize};
use spandrel_cluster::Role;

/// Somebody who may use the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Who, in people's words.
    pub name: String,
    /// How much they may do.
    pub role: Role,
    /// When that was given to them.
    pub created_unix_ms: u64,
}

/// Somebody who is to use the admin API.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessCreate {
    /// Who, in people's words.
    pub name: String,
    /// How much they may do.
    pub role: Role,
}

/// What somebody shows who uses the admin API.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessCreated {
    /// The token, which is told this one time only.
    pub token: String,
}

/// Tokens are in no log.
impl fmt::Debug for AccessCreated {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AccessCreated")
    }
}
