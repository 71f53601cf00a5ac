//! The figures that are kept, and how those of today compare.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// What a figure may differ by before it is told of, in parts of a thousand.
const TOLERANCE_PER_MILLE: u64 = 20;

/// Instructions of one operation, by the name of the load.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    by_load: BTreeMap<String, u64>,
}

/// How a figure compares with the one that is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// About the same.
    Same { kept: u64, now: u64 },
    /// More than allowed.
    Grown { kept: u64, now: u64 },
    /// Less: worth keeping.
    Fallen { kept: u64, now: u64 },
    /// It was not kept.
    New { now: u64 },
    /// It was kept, and there is no such load any more.
    Gone { kept: u64 },
}

impl Verdict {
    /// Whether what is kept can stay as it is. A gain must be kept: else it could be lost again unsaid.
    pub fn is_same(self) -> bool {
        matches!(self, Self::Same { .. })
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |kept: u64, now: u64| (now as f64 / kept as f64 - 1.0) * 100.0;
        match *self {
            Self::Same { kept, now } => write!(formatter, "{now} ({:+.1} %)", percent(kept, now)),
            Self::Grown { kept, now } => write!(
                formatter,
                "{now} ({:+.1} % of {kept}): GROWN; if that is meant, say why and run `make instructions INSTRUCTIONS=--update`",
                percent(kept, now)
            ),
            Self::Fallen { kept, now } => write!(
                formatter,
                "{now} ({:+.1} % of {kept}): FALLEN; keep that with `make instructions INSTRUCTIONS=--update`",
                percent(kept, now)
            ),
            Self::New { now } => {
                write!(formatter, "{now}: NEW; keep that with `make instructions INSTRUCTIONS=--update`")
            }
            Self::Gone { kept } => write!(
                formatter,
                "was {kept}: GONE; if that is meant, run `make instructions INSTRUCTIONS=--update`"
            ),
        }
    }
}

impl Figures {
    /// Sets one.
    pub fn set(&mut self, load: &str, instructions: u64) {
        self.by_load.insert(load.to_owned(), instructions);
    }

    /// Those of `now` against these.
    pub fn compare(&self, now: &Self) -> Vec<(String, Verdict)> {
        let loads: BTreeSet<&String> = self.by_load.keys().chain(now.by_load.keys()).collect();
        let of = |load| judge(self.by_load.get(load).copied(), now.by_load.get(load).copied());
        loads.into_iter().map(|load| (load.clone(), of(load))).collect()
    }

    /// Reads what is kept.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or holds something else.
    pub fn read(path: &Path) -> Result<Self, String> {
        let of_file = |error: &dyn fmt::Display| format!("{}: {error}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| of_file(&error))?;
        let by_load = serde_json::from_str(&text).map_err(|error| of_file(&error))?;
        Ok(Self { by_load })
    }

    /// Keeps them.
    ///
    /// # Errors
    ///
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(&self.by_load).expect("names and numbers are JSON");
        std::fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
    }
}

fn judge(kept: Option<u64>, now: Option<u64>) -> Verdict {
    let (kept, now) = match (kept, now) {
        (Some(kept), Some(now)) => (kept, now),
        (None, now) => return Verdict::New { now: now.unwrap_or_default() },
        (Some(kept), None) => return Verdict::Gone { kept },
    };
    let tolerance = kept * TOLERANCE_PER_MILLE / 1000;
    if now > kept + tolerance {
        Verdict::Grown { kept, now }
    } else if now + tolerance < kept {
        Verdict::Fallen { kept, now }
    } else {
        Verdict::Same { kept, now }
    }
}

#[cfg(test)]
#[path = "figures_tests.rs"]
mod tests;
