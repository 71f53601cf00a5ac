//! Profiles: loads that have a name, those of the published reference architectures among them, or a file of one's own.
//!
//! A profile says what was measured there. What a machine at hand cannot do is scaled: its times with one factor, its data with
//! another; both are part of what is run, and of every result.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use spandrel_shared::Error;
use spandrel_shared::duration::parse_duration;
use spandrel_shared::size::parse_size;

use crate::distribution::Distribution;
use crate::pace::RateLimit;
use crate::spec::{CellSpec, Pattern, SECTOR_BYTES, WriteContent, invalid};
use crate::sweep::SweepSpec;

/// The profiles that come with the program: each name with its text.
const SHIPPED: [(&str, &str); 11] = [
    ("micron-nvme-4k", include_str!("../profiles/micron-nvme-4k.toml")),
    ("micron-nvme-128k", include_str!("../profiles/micron-nvme-128k.toml")),
    ("micron-sata-4k", include_str!("../profiles/micron-sata-4k.toml")),
    ("micron-sata-128k", include_str!("../profiles/micron-sata-128k.toml")),
    ("pt-epyc", include_str!("../profiles/pt-epyc.toml")),
    ("micron-brief-4k", include_str!("../profiles/micron-brief-4k.toml")),
    ("micron-brief-seq", include_str!("../profiles/micron-brief-seq.toml")),
    ("intel-4k-read", include_str!("../profiles/intel-4k-read.toml")),
    ("intel-8k-70-30", include_str!("../profiles/intel-8k-70-30.toml")),
    ("peak", include_str!("../profiles/peak.toml")),
    ("general", include_str!("../profiles/general.toml")),
];

/// What a profile's file holds.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name, which is not in the file.
    #[serde(skip)]
    pub name: String,
    /// What it is, in a few words.
    pub title: String,
    /// Where the load comes from, and what was measured with it.
    pub source: String,
    /// Clients.
    pub vms: u32,
    /// How much of its volume each client uses.
    #[serde(deserialize_with = "size")]
    pub working_set: u64,
    /// How often each cell is measured.
    pub repeat: u32,
    /// The most I/Os a second of each volume.
    #[serde(default)]
    pub iops_max: Option<u64>,
    /// What is run, one behind the other.
    pub sweep: Vec<ProfileSweep>,
}

/// One sweep of a profile. Its lists multiply, as in [`SweepSpec`].
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProfileSweep {
    #[serde(default, deserialize_with = "sizes")]
    block_size: Vec<u32>,
    threads: Vec<u32>,
    #[serde(default)]
    write_percent: Vec<u8>,
    outstanding: Vec<u32>,
    pattern: Pattern,
    #[serde(default)]
    random_percent: Option<u8>,
    #[serde(default)]
    distribution: Option<Distribution>,
    #[serde(default, deserialize_with = "optional_size")]
    io_alignment: Option<u64>,
    #[serde(default, deserialize_with = "optional_size")]
    thread_stride: Option<u64>,
    #[serde(default, deserialize_with = "optional_size")]
    base_offset: Option<u64>,
    #[serde(default)]
    rate_limit: Option<RateLimit>,
    #[serde(default)]
    write_content: WriteContent,
    #[serde(default, deserialize_with = "optional_size")]
    write_source: Option<u64>,
    #[serde(deserialize_with = "time")]
    warmup: Duration,
    #[serde(deserialize_with = "time")]
    duration: Duration,
    #[serde(deserialize_with = "time")]
    cooldown: Duration,
}

/// What is wanted otherwise than a profile says it.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    /// Clients.
    pub vms: Option<u32>,
    /// How much of its volume each client uses, before it is scaled.
    pub working_set_bytes: Option<u64>,
    /// How often each cell is measured.
    pub repeat: Option<u32>,
    /// Bytes of one I/O.
    pub block_sizes_bytes: Vec<u32>,
    /// Shares of writes.
    pub write_percents: Vec<u8>,
    /// I/Os that each thread keeps in flight.
    pub outstanding: Vec<u32>,
    /// Threads of each client.
    pub threads: Vec<u32>,
    /// Threads of the load generator itself.
    pub load_threads: u32,
    /// Times are so many times as long.
    pub time_scale: f64,
    /// Working sets, and what is counted in bytes within them, are so many times as large.
    pub data_scale: f64,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            vms: None,
            working_set_bytes: None,
            repeat: None,
            block_sizes_bytes: Vec::new(),
            write_percents: Vec::new(),
            outstanding: Vec::new(),
            threads: Vec::new(),
            load_threads: 1,
            time_scale: 1.0,
            data_scale: 1.0,
        }
    }
}

/// What is run of a profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunPlan {
    /// The profile's name.
    pub profile: String,
    /// What it is.
    pub title: String,
    /// Where its load comes from.
    pub source: String,
    /// Times were made so many times as long.
    pub time_scale: f64,
    /// Data were made so many times as large.
    pub data_scale: f64,
    /// Clients.
    pub vms: u32,
    /// How often each cell is measured.
    pub repeat: u32,
    /// The most I/Os a second of each volume.
    pub iops_max: Option<u64>,
    /// The cells, each of which is measured as often.
    pub cells: Vec<CellSpec>,
}

impl RunPlan {
    /// How large each client's volume is at least.
    pub fn volume_bytes(&self) -> u64 {
        self.cells.iter().filter_map(CellSpec::volume_bytes_min).max().unwrap_or(0)
    }

    /// How long all cells take together.
    pub fn duration(&self) -> Duration {
        self.cells.iter().map(CellSpec::duration_in_all).sum::<Duration>() * self.repeat
    }

    /// What was scaled, in words: absent if nothing was.
    pub fn scales(&self) -> Option<String> {
        let scale = |factor: f64, what: &str| (factor != 1.0).then(|| format!("{what} × {factor}"));
        let scales: Vec<String> =
            [scale(self.time_scale, "times"), scale(self.data_scale, "data")].into_iter().flatten().collect();
        (!scales.is_empty()).then(|| scales.join(", "))
    }
}

impl Profile {
    /// The names of those that come with the program.
    pub fn shipped() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// The text of one of them.
    pub fn text(name: &str) -> Option<&'static str> {
        SHIPPED.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, text)| *text)
    }

    /// The profile of a name, or that in a file: what has a slash in it or ends with `.toml` is one.
    ///
    /// # Errors
    ///
    /// There is none (`FLEET_PROFILE_UNKNOWN`), or it cannot be read (`FLEET_PROFILE_BROKEN`).
    pub fn find(name: &str) -> Result<Self, Error> {
        if let Some((name, text)) = SHIPPED.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
            return Self::parse(name, text);
        }
        let path = Path::new(name);
        if !name.contains('/') && path.extension().is_none_or(|extension| extension != "toml") {
            let names: Vec<&str> = Self::shipped().collect();
            return Err(Error::new(
                "FLEET_PROFILE_UNKNOWN",
                format!("there is no profile {name:?}"),
                format!("there are {}", names.join(", ")),
                "give one of these, or the path of a file of your own, as ./mine.toml",
            ));
        }
        let text = fs::read_to_string(path).map_err(|error| {
            let next = "give the path of a file that can be read, or one of `spandrel fleet profiles`";
            Error::new(
                "FLEET_PROFILE_UNKNOWN",
                format!("the profile {name} cannot be read"),
                error.to_string(),
                next,
            )
        })?;
        let stem = path.file_stem().unwrap_or(path.as_os_str()).to_string_lossy();
        Self::parse(&stem, &text)
    }

    fn parse(name: &str, text: &str) -> Result<Self, Error> {
        let parsed: Result<Self, _> = toml::from_str(text);
        let profile = parsed.map_err(|error| {
            Error::new(
                "FLEET_PROFILE_BROKEN",
                format!("the profile {name} is not one"),
                error.to_string().trim_end(),
                "mend that; `spandrel fleet profiles NAME` shows how one of the program's own is written",
            )
        })?;
        Ok(Self { name: name.to_owned(), ..profile })
    }

    /// What is run of it.
    ///
    /// # Errors
    ///
    /// Something is missing of it, or makes no sense as it is wanted.
    pub fn plan(&self, changes: &Changes) -> Result<RunPlan, Error> {
        for (scale, name) in [(changes.time_scale, "time"), (changes.data_scale, "data")] {
            if !(scale > 0.0 && scale <= 1000.0) {
                return Err(invalid(
                    format!("a {name} scale of {scale}"),
                    "times and data are multiplied by it",
                    "give a number above 0 and up to 1000",
                ));
            }
        }
        if self.sweep.iter().any(|sweep| sweep.duration.mul_f64(changes.time_scale) < DURATION_MIN) {
            return Err(invalid(
                format!("a time scale of {}", changes.time_scale),
                "cells would be measured for less than 10 ms",
                "give a larger one",
            ));
        }
        let mut cells = Vec::new();
        for sweep in &self.sweep {
            let spec = self.sweep_spec(sweep, changes)?;
            spec.validate()?;
            cells.extend(spec.cells());
        }
        let (vms, repeat) = (changes.vms.unwrap_or(self.vms), changes.repeat.unwrap_or(self.repeat));
        for (count, what) in [(vms, "clients"), (repeat, "repeats"), (cells.len() as u32, "cells")] {
            if count == 0 {
                let what = format!("the profile {} without {what}", self.name);
                return Err(invalid(what, "nothing would be measured", "give at least one"));
            }
        }
        Ok(RunPlan {
            profile: self.name.clone(),
            title: self.title.clone(),
            source: self.source.clone(),
            time_scale: changes.time_scale,
            data_scale: changes.data_scale,
            vms,
            repeat,
            iops_max: self.iops_max,
            cells,
        })
    }

    fn sweep_spec(&self, sweep: &ProfileSweep, changes: &Changes) -> Result<SweepSpec, Error> {
        let block_sizes_bytes = chosen(&changes.block_sizes_bytes, &sweep.block_size);
        let write_percents = chosen(&changes.write_percents, &sweep.write_percent);
        for (is_empty, what) in
            [(block_sizes_bytes.is_empty(), "--block-size"), (write_percents.is_empty(), "--write-percent")]
        {
            if is_empty {
                let what = format!("the profile {} without {what}", self.name);
                return Err(invalid(what, "it leaves that open", "give it on the command line"));
            }
        }
        let scaled = |bytes: u64| scale_bytes(bytes, changes.data_scale);
        let largest_block = block_sizes_bytes.iter().copied().max().map_or(0, u64::from);
        // In whole blocks, or each I/O would meet two of them. What is there at all stays there.
        let scaled_to = |bytes: u64, unit: u64| match changes.data_scale == 1.0 {
            true => bytes,
            false => (scaled(bytes) / unit * unit).max(unit.min(bytes)),
        };
        let scaled_blocks = |bytes: u64| scaled_to(bytes, BLOCK_BYTES);
        // Threads that are less than an I/O apart would be at one place.
        let io_bytes = sweep.io_alignment.unwrap_or(largest_block).max(BLOCK_BYTES);
        let working_set = changes.working_set_bytes.unwrap_or(self.working_set);
        let working_set_bytes = scaled(working_set);
        if working_set_bytes < 2 * largest_block {
            return Err(invalid(
                format!("a working set of {working_set_bytes} bytes"),
                format!("it is to hold more than one block of {largest_block}"),
                "give a larger --data-scale, or a larger --working-set",
            ));
        }
        let timed = |time: Duration| time.mul_f64(changes.time_scale);
        let common = CellSpec {
            pattern: sweep.pattern,
            random_percent: sweep.random_percent,
            distribution: sweep.distribution.as_ref().map(|distribution| distribution.scaled(scaled_blocks)),
            alignment_bytes: sweep.io_alignment,
            thread_stride_bytes: sweep.thread_stride.map(|bytes| scaled_to(bytes, io_bytes)),
            base_offset_bytes: sweep.base_offset.map_or(0, scaled_blocks),
            working_set_bytes: Some(working_set_bytes),
            rate_limit: sweep.rate_limit,
            warmup: timed(sweep.warmup),
            duration: timed(sweep.duration),
            cooldown: timed(sweep.cooldown),
            write_content: sweep.write_content,
            load_threads: changes.load_threads,
            write_source_bytes: sweep.write_source.unwrap_or(CellSpec::default().write_source_bytes),
            intervals: true,
            histograms: true,
            ..CellSpec::default()
        };
        Ok(SweepSpec {
            block_sizes_bytes,
            threads: chosen(&changes.threads, &sweep.threads),
            write_percents,
            outstanding: chosen(&changes.outstanding, &sweep.outstanding),
            common,
            fill: true,
        })
    }
}

/// What is wanted, or what the profile says where nothing is.
fn chosen<T: Clone>(wanted: &[T], profile: &[T]) -> Vec<T> {
    if wanted.is_empty() { profile.to_vec() } else { wanted.to_vec() }
}

/// In less time nothing can be measured.
const DURATION_MIN: Duration = Duration::from_millis(10);

/// Blocks of volumes.
const BLOCK_BYTES: u64 = 4096;

/// So many bytes times a factor, in whole sectors.
fn scale_bytes(bytes: u64, factor: f64) -> u64 {
    // A volume is far below 2^53 sectors.
    let sectors = (bytes as f64 * factor / SECTOR_BYTES as f64).round();
    sectors as u64 * SECTOR_BYTES
}

fn parse_size_text<E: serde::de::Error>(text: &str) -> Result<u64, E> {
    parse_size(text)
        .ok_or_else(|| E::custom(format!("{text:?} is no size: write for example 4k, 20M or 16G")))
}

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    parse_size_text(&String::deserialize(deserializer)?)
}

fn optional_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    size(deserializer).map(Some)
}

fn sizes<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
    let parse = |text: String| {
        let bytes: u64 = parse_size_text(&text)?;
        u32::try_from(bytes).map_err(|_| D::Error::custom(format!("{text} is too large for one I/O")))
    };
    Vec::<String>::deserialize(deserializer)?.into_iter().map(parse).collect()
}

fn time<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    parse_duration(&String::deserialize(deserializer)?).map_err(D::Error::custom)
}

#[cfg(test)]
#[path = "profile_tests.rs"]
mod tests;
