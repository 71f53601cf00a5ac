//! What a check has to say: where, what, why, and what to do.

use std::fmt;

/// One broken rule at one place.
///
/// Ordered by place, so that a sorted list reads file by file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// Relative to the repository's root.
    pub path: String,
    /// Counted from 1.
    pub line: usize,
    /// The fact, naming the thing found.
    pub what: String,
    /// The reason for the rule.
    pub why: String,
    /// The way out.
    pub fix: String,
}

impl Finding {
    /// A finding at `line` (counted from 1) of `path`.
    pub fn new(
        path: impl Into<String>,
        line: usize,
        what: impl Into<String>,
        why: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Self { path: path.into(), line, what: what.into(), why: why.into(), fix: fix.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, what, why, fix } = self;
        write!(formatter, "{path}:{line}: {what}; {why}; {fix}")
    }
}
