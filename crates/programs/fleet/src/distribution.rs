//! Hot spots: which part of the working set gets how many of the I/Os, in DISKSPD's notation (`-rd`).

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use spandrel_shared::size::parse_size;

/// How the I/Os are spread over the working set: for each part of it, from its start on, how many of 100 I/Os go there. What is
/// left of the I/Os is spread evenly over what is left of the working set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Distribution {
    unit: Unit,
    parts: Vec<Part>,
}

/// What the sizes of parts are counted in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    /// Hundredths of the working set.
    Percent,
    Bytes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    /// How many of 100 I/Os go there.
    io_percent: u64,
    size: u64,
}

/// A stretch of the working set and its share of the I/Os.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HotSpot {
    /// I/Os of 100 that go here or to the stretches before.
    pub(crate) io_percent_until: u64,
    pub(crate) begin: u64,
    pub(crate) end: u64,
}

impl Distribution {
    /// The stretches of a working set of `span_bytes` that get I/Os.
    pub(crate) fn spots(&self, span_bytes: u64) -> Vec<HotSpot> {
        let (mut begin, mut io_percent_until) = (0_u64, 0);
        let mut spots = Vec::new();
        let rest = Part { io_percent: 100 - self.io_percent(), size: u64::MAX };
        for part in self.parts.iter().chain([&rest]) {
            let size = match self.unit {
                Unit::Percent if part.size <= 100 => {
                    (u128::from(span_bytes) * u128::from(part.size) / 100) as u64
                }
                Unit::Percent | Unit::Bytes => part.size,
            };
            let end = span_bytes.min(begin.saturating_add(size));
            io_percent_until += part.io_percent;
            if part.io_percent > 0 {
                spots.push(HotSpot { io_percent_until, begin, end });
            }
            begin = end;
        }
        spots
    }

    /// With parts that are so many times as large, where they are counted in bytes.
    pub(crate) fn scaled(&self, scale: impl Fn(u64) -> u64) -> Self {
        match self.unit {
            Unit::Percent => self.clone(),
            Unit::Bytes => {
                let parts = self.parts.iter().map(|part| Part { size: scale(part.size), ..*part });
                Self { unit: self.unit, parts: parts.collect() }
            }
        }
    }

    /// The least working set in which every part has room: each its size, and the rest a byte.
    pub(crate) fn span_bytes_min(&self) -> u64 {
        let rest = u64::from(self.io_percent() < 100);
        match self.unit {
            Unit::Percent => 0,
            Unit::Bytes => self.parts.iter().map(|part| part.size).sum::<u64>() + rest,
        }
    }

    fn io_percent(&self) -> u64 {
        self.parts.iter().map(|part| part.io_percent).sum()
    }
}

impl FromStr for Distribution {
    type Err = String;

    /// `95/5:4/10` is 95 of 100 I/Os in the first 5 % of the working set, 4 in the next 10 %, and what is left in the rest;
    /// `abs90/10G:5/20G` the same with sizes.
    fn from_str(text: &str) -> Result<Self, String> {
        let (unit, list) = match text.strip_prefix("abs") {
            Some(list) => (Unit::Bytes, list),
            None => (Unit::Percent, text.strip_prefix("pct").unwrap_or(text)),
        };
        let parse = |part: &str| {
            let (io_percent, size) = part.split_once('/')?;
            let size = match unit {
                Unit::Percent => size.parse().ok().filter(|percent| *percent <= 100)?,
                Unit::Bytes => parse_size(size)?,
            };
            Some(Part { io_percent: io_percent.parse().ok().filter(|percent| *percent <= 100)?, size })
        };
        let parts: Option<Vec<Part>> = list.split(':').map(parse).collect();
        let Some(parts) = parts else {
            return Err(format!(
                "{text:?} is no distribution: write for each part how many of 100 I/Os go there and how large it is, as 95/5:4/10 \
                 (percent of the working set) or abs90/10G:5/20G"
            ));
        };
        let distribution = Self { unit, parts };
        distribution.check().map_err(|why| format!("{text:?} is no distribution: {why}"))?;
        Ok(distribution)
    }
}

impl Distribution {
    fn check(&self) -> Result<(), String> {
        let io_percent = self.io_percent();
        if io_percent > 100 {
            return Err(format!("its shares of the I/Os are {io_percent} % together"));
        }
        if let Some(part) = self.parts.iter().find(|part| part.size == 0 && part.io_percent > 0) {
            return Err(format!("{} % of the I/Os are to go to nothing", part.io_percent));
        }
        if self.parts.iter().try_fold(0_u64, |sum, part| sum.checked_add(part.size)).is_none() {
            return Err("its parts are larger than any volume".to_owned());
        }
        let size: u64 = self.parts.iter().map(|part| part.size).sum();
        match self.unit {
            Unit::Percent if size > 100 => Err(format!("its parts are {size} % of the working set together")),
            Unit::Percent if size == 100 && io_percent < 100 => Err(format!(
                "its parts are all of the working set, and only {io_percent} % of the I/Os go there"
            )),
            Unit::Percent | Unit::Bytes => Ok(()),
        }
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> =
            self.parts.iter().map(|part| format!("{}/{}", part.io_percent, part.size)).collect();
        let unit = if self.unit == Unit::Bytes { "abs" } else { "" };
        write!(formatter, "{unit}{}", parts.join(":"))
    }
}

impl TryFrom<String> for Distribution {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Distribution> for String {
    fn from(distribution: Distribution) -> Self {
        distribution.to_string()
    }
}

#[cfg(test)]
#[path = "distribution_tests.rs"]
mod tests;
