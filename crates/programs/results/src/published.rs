//! What reference architectures of Storage Spaces Direct have published, as runs to compare with.
//!
//! Figures alone; each file says where they come from. What was not published is not there.

use serde::Deserialize;
use spandrel_shared::Error;
use spandrel_shared::size::parse_size;

use crate::measurement::{LatencyPoints, Load, MeasuredCell, MeasuredRun, Measurement};

const PUBLISHED: [(&str, &str); 7] = [
    ("micron-nvme", include_str!("../published/micron-nvme.toml")),
    ("micron-nvme-write-cache", include_str!("../published/micron-nvme-write-cache.toml")),
    ("micron-nvme-read-write-cache", include_str!("../published/micron-nvme-read-write-cache.toml")),
    ("micron-sata", include_str!("../published/micron-sata.toml")),
    ("pt-epyc", include_str!("../published/pt-epyc.toml")),
    ("intel-cached", include_str!("../published/intel-cached.toml")),
    ("intel-spill", include_str!("../published/intel-spill.toml")),
];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    title: String,
    source: String,
    vms: u32,
    nodes: u32,
    drives: u32,
    copies: Option<u32>,
    iops_max: Option<u64>,
    #[serde(default)]
    remarks: Vec<String>,
    cell: Vec<PublishedCell>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublishedCell {
    block_size: String,
    #[serde(default = "random")]
    pattern: String,
    #[serde(default = "one")]
    threads: u32,
    write_percent: u8,
    outstanding: u32,
    iops: Option<f64>,
    /// Millions of bytes a second.
    mb_per_second: Option<f64>,
    mean_ms: Option<f64>,
    read_ms: Option<f64>,
    write_ms: Option<f64>,
    p99_9_ms: Option<f64>,
    p99_999_ms: Option<f64>,
    cpu_percent: Option<f64>,
}

fn random() -> String {
    "random".to_owned()
}

fn one() -> u32 {
    1
}

/// The names of what there is.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    PUBLISHED.iter().map(|(name, _)| *name)
}

/// Reads one of them.
pub(crate) fn read(name: &str) -> Result<MeasuredRun, Error> {
    let Some((name, text)) = PUBLISHED.iter().find(|(known, _)| *known == name) else {
        return Err(Error::new(
            "FLEET_RESULTS_NOT_FOUND",
            format!("there are no published results {name:?}"),
            format!("there are {}", names().collect::<Vec<_>>().join(", ")),
            "name one of these, as published:micron-sata",
        ));
    };
    let published: Published =
        toml::from_str(text).expect("what is shipped is whole: a test reads all of it");
    // What all clients were to have at most together.
    let cap = published.iops_max.map(|most| (most * u64::from(published.vms)) as f64);
    Ok(MeasuredRun {
        name: format!("{name} (published)"),
        title: published.title,
        source: published.source,
        vms: Some(published.vms),
        nodes: Some(published.nodes),
        drives: Some(published.drives),
        copies: published.copies,
        iops_max: published.iops_max,
        remarks: published.remarks,
        cells: published.cell.into_iter().map(|cell| measured_cell(cell, cap)).collect(),
        ..MeasuredRun::default()
    })
}

fn measured_cell(published: PublishedCell, cap: Option<f64>) -> MeasuredCell {
    let us = |ms: Option<f64>| ms.map(|ms| ms * 1000.0);
    let mean = |ms| LatencyPoints { mean_us: us(ms), ..LatencyPoints::default() };
    let measured = Measurement {
        iops: published.iops,
        mib_per_second: published.mb_per_second.map(|mb| mb * 1e6 / (1024.0 * 1024.0)),
        total: LatencyPoints {
            mean_us: us(published.mean_ms),
            p99_9_us: us(published.p99_9_ms),
            p99_999_us: us(published.p99_999_ms),
            ..LatencyPoints::default()
        },
        read: mean(published.read_ms),
        write: mean(published.write_ms),
        cpu_percent: published.cpu_percent,
        mean_to_cap_percent: published.iops.zip(cap).map(|(iops, cap)| 100.0 * iops / cap),
        ..Measurement::default()
    };
    let bytes = parse_size(&published.block_size).and_then(|bytes| u32::try_from(bytes).ok());
    let load = Load {
        block_size_bytes: bytes.expect("what is shipped is whole: a test reads all of it"),
        pattern: published.pattern,
        threads: published.threads,
        write_percent: published.write_percent,
        outstanding: published.outstanding,
    };
    MeasuredCell { load, measurements: vec![measured] }
}

#[cfg(test)]
#[path = "published_tests.rs"]
mod tests;
