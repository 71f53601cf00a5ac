//! `spandrel fleet study`: the clusters that studies run on.
//!
//! Each is a child process in a temporary directory, with its drives in memory, as slow as the media that it simulates if it
//! does: the disk of this machine has no part in what is studied. What to run, and what it means, is the fleet's business.

use std::time::{Duration, Instant};

use spandrel_fleet::{
    CacheReading, ClientVolumes as _, ClusterMeter, MeterReading, StudyArguments, StudyCluster,
    StudyClusterSpec, StudyLab, Target, VolumeRequest, progress_on_standard_error,
};
use spandrel_shared::size::format_size;
use spandrel_shared::{CacheMode, Error};

use crate::admin::api::{self, DriveCacheStatus, DriveStatus, PoolSettings, PoolSettingsChange};
use crate::admin::client::Client;
use crate::commands::{ApiMeter, ApiVolumes};
use crate::failure::{EXIT_ERROR, EXIT_OK, Outcome};
use crate::temporary_cluster::TemporaryCluster;

/// How often the cluster is asked whether it is so far. It tells that to nobody by itself.
const PAUSE: Duration = Duration::from_millis(100);

/// How long drives may take to follow a setting, and how long the cache may stay as full as it is while it is emptied.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a cluster takes at most: the volumes' copies, and full cache drives.
const MEMORY_BYTES: u64 = 4 << 30;

/// Where the kernel says how much memory there is.
const MEMORY_FILE: &str = "/proc/meminfo";

/// Carries a study out.
pub fn run(arguments: &StudyArguments) -> Outcome {
    let mut progress = progress_on_standard_error();
    let report = arguments.run(&mut Lab, progress.as_mut(), &mut std::io::stdout().lock())?;
    Ok(if report.all_hold() { EXIT_OK } else { EXIT_ERROR })
}

struct Lab;

impl StudyLab for Lab {
    type Cluster = Cluster;

    fn start(&mut self, spec: &StudyClusterSpec) -> Result<Cluster, Error> {
        check_memory(&std::fs::read_to_string(MEMORY_FILE).unwrap_or_default())?;
        let options = options(spec);
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let room = format!("{} of memory", format_size(MEMORY_BYTES));
        let temporary = TemporaryCluster::start(&options, &room, |_| {})?;
        let client = Client::new(temporary.directory().clone())?;
        // Nothing but the clients is to put load on it.
        let quiet = PoolSettingsChange {
            balance: Some(false),
            scrub_period_s: Some(0),
            // Nor is memory to answer in the place of drives.
            memory_cache_bytes: Some(0),
            map_memory_bytes: Some(0),
            ..PoolSettingsChange::default()
        };
        let _: PoolSettings = client.post(api::POOL_SETTINGS, &quiet)?;
        Ok(Cluster { client, temporary, has_cache_drives: spec.cache_drive_size_bytes.is_some() })
    }
}

/// Refuses a machine without room, before the kernel ends other processes for it. One that does not say how much it has is
/// believed to have it.
fn check_memory(kernel: &str) -> Result<(), Error> {
    let available =
        kernel.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB"));
    let available = available.and_then(|kib| kib.parse::<u64>().ok()).map(|kib| kib << 10);
    match available {
        Some(bytes) if bytes < MEMORY_BYTES => Err(Error::new(
            "MEMORY_LACKING",
            "the study cannot be run on this machine",
            format!(
                "its drives take up to {} of memory, and {} are available",
                format_size(MEMORY_BYTES),
                format_size(bytes)
            ),
            "end what else takes memory, or run it on another machine",
        )),
        _ => Ok(()),
    }
}

/// The options of `spandrel up` for such a cluster.
fn options(spec: &StudyClusterSpec) -> Vec<String> {
    let mut options = vec![
        ("--nodes", spec.nodes.to_string()),
        ("--drives", spec.drives.to_string()),
        ("--drive-size", spec.drive_size_bytes.to_string()),
    ];
    if let Some(bytes) = spec.cache_drive_size_bytes {
        options.extend([("--cache-drives", "1".to_owned()), ("--cache-drive-size", bytes.to_string())]);
    }
    if let Some(media) = spec.media {
        options.push(("--capacity-media", media.capacity_media.name().to_owned()));
        options.push(("--media-scale", media.scale.to_string()));
    }
    if spec.media.is_some() && spec.cache_drive_size_bytes.is_some() {
        options.push(("--cache-media", "nvme".to_owned()));
    }
    let options = options.into_iter().flat_map(|(name, value)| [name.to_owned(), value]);
    ["--memory".to_owned()].into_iter().chain(options).collect()
}

/// A cluster that a study runs on.
struct Cluster {
    client: Client,
    temporary: TemporaryCluster,
    has_cache_drives: bool,
}

impl Cluster {
    /// What each capacity drive has of a cache drive; nothing if the cluster was made without.
    fn caches(&self) -> Result<Vec<DriveCacheStatus>, Error> {
        if !self.has_cache_drives {
            return Ok(Vec::new());
        }
        let drives: Vec<DriveStatus> = self.client.get(api::DRIVES)?;
        drives
            .into_iter()
            .map(|drive| {
                drive.cache.ok_or_else(|| {
                    Error::new(
                        "STUDY_WITHOUT_CACHE",
                        format!("drive {} cannot be studied", drive.name),
                        "it is bound to no cache drive",
                        "report this: the cluster was made for this study",
                    )
                })
            })
            .collect()
    }
}

impl ClusterMeter for Cluster {
    fn read(&mut self) -> Result<MeterReading, Error> {
        ApiMeter { client: &self.client }.read()
    }
}

impl StudyCluster for Cluster {
    fn make_volumes(&mut self, request: &VolumeRequest) -> Result<Vec<Target>, Error> {
        ApiVolumes::new(&self.client, "study").prepare(request)
    }

    fn set_cache_mode(&mut self, mode: CacheMode) -> Result<(), Error> {
        let change = PoolSettingsChange {
            cache_mode_ssd: Some(mode),
            cache_mode_hdd: Some(mode),
            ..PoolSettingsChange::default()
        };
        let _: PoolSettings = self.client.post(api::POOL_SETTINGS, &change)?;
        let begun = Instant::now();
        while self.caches()?.iter().any(|cache| cache.mode != mode) {
            if begun.elapsed() > PATIENCE {
                let why = format!("not all of them are used {mode} after {} s", PATIENCE.as_secs());
                return Err(stuck("the cache drives do not follow the pool's settings", why));
            }
            self.client.pause(PAUSE);
        }
        Ok(())
    }

    fn read_caches(&mut self) -> Result<CacheReading, Error> {
        Ok(ApiMeter { client: &self.client }.read_caches()?.unwrap_or_default())
    }

    fn await_clean(&mut self, tick: &mut dyn FnMut(u64)) -> Result<(), Error> {
        let (mut left_then, mut moved) = (u64::MAX, Instant::now());
        loop {
            let left = self.read_caches()?.dirty_bytes;
            tick(left);
            if left == 0 {
                return Ok(());
            }
            if left < left_then {
                (left_then, moved) = (left, Instant::now());
            } else if moved.elapsed() > PATIENCE {
                let why =
                    format!("{left} bytes stand there alone, and for {} s no fewer", PATIENCE.as_secs());
                return Err(stuck("the cache drives are not emptied", why));
            }
            self.client.pause(PAUSE);
        }
    }

    fn remove(self) -> Result<(), Error> {
        self.temporary.remove()
    }
}

fn stuck(what: &str, why: String) -> Error {
    let next = "run it again when the machine does nothing else; if it fails again, report this";
    Error::new("STUDY_STUCK", what, why, next)
}

#[cfg(test)]
#[path = "study_tests.rs"]
mod tests;
