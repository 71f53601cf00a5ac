//! Errors that people see: a stable code, what is wrong, why, and what to do next.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An error for a person or a script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    /// Stable, in capitals, for scripts: `VOLUME_EXISTS`.
    pub code: String,
    /// What was refused or failed, with the name of its object.
    pub what: String,
    /// The reason, with the numbers that matter.
    pub why: String,
    /// What the reader can do.
    pub next: String,
}

impl Error {
    /// An error with its four parts.
    pub fn new(code: &str, what: impl Into<String>, why: impl Into<String>, next: impl Into<String>) -> Self {
        Self { code: code.to_owned(), what: what.into(), why: why.into(), next: next.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} [{}]\n  why:  {}\n  next: {}", self.what, self.code, self.why, self.next)
    }
}

impl std::error::Error for Error {}
