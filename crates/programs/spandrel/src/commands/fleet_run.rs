//! `spandrel fleet run`: a plan measured on this cluster, with all of it kept in a folder, and a report at the end.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use spandrel_fleet::{
    CellNumber, ClientVolumes, ProcessMeter, Profile, ResultKeeper, RunArguments, RunPlan, SweepRow, Target,
    VolumeRequest, progress_on_standard_error, run_plan,
};
use spandrel_report::Economics;
use spandrel_results::{
    ClusterDescription, DriveDescription, GuestDescription, MachineDescription, MeasuredRun, NodeDescription,
    RunFolder, RunRecord,
};
use spandrel_shared::Error;
use spandrel_shared::calendar::date_text;
use spandrel_shared::duration::format_duration;
use spandrel_shared::size::format_size;

use super::fleet::{ApiMeter, ApiVolumes, check_alignment};
use super::fleet_guests::{GuestMeter, GuestVms};
use super::fleet_report::{render_cells, write_report};
use crate::admin::api::{self, ClusterStatus, PoolDetails, VolumeSettingsChange, VolumeStatus};
use crate::admin::client::{Client, path_with};
use crate::failure::{EXIT_OK, Outcome};
use crate::interrupt::leave_to_interruption;
use crate::program::VERSION;
use crate::text::{counted, say};

/// Cells that are measured for less say little.
const SHORT: Duration = Duration::from_secs(1);

/// The report of a run, in its folder.
const REPORT_FILE: &str = "report.html";

/// Carries a run out, or goes on with one, and writes its report.
pub fn run(client: &Client, arguments: &RunArguments) -> Outcome {
    let mut folder = match &arguments.resume {
        Some(path) => RunFolder::open(path)?,
        None => begin(client, arguments)?,
    };
    let _lock = folder.lock()?;
    let plan = folder.record().plan.clone();
    say_beginning(&folder, &plan);
    let (ended, cleaned) = match folder.is_complete() {
        true => {
            say("everything of it was measured\n");
            (Ok(()), remove_leftovers(client, &folder))
        }
        false => {
            check_cluster(client, &folder)?;
            folder.set_paused(false)?;
            measure(client, &mut folder, &plan, arguments.guest_files.clone())
        }
    };
    folder.end(ended.as_ref().err().cloned())?;
    let measured = MeasuredRun::of_folder(&folder);
    let report = folder.path().join(REPORT_FILE);
    write_report(&report, std::slice::from_ref(&measured), &Economics::default(), None)?;
    say(&render_cells(&measured));
    say(&format!("report: {}\n", report.display()));
    if !folder.is_complete() {
        say(&format!("to go on: spandrel fleet run --resume {}\n", folder.path().display()));
    }
    ended.and(cleaned).map(|()| EXIT_OK)
}

/// What a run's volumes, and its virtual machines, are called. They are called the same whenever it goes on: what is kept of a client is told
/// by its name.
fn prefix(folder: &RunFolder) -> String {
    format!("fleet-{}", folder.record().begun_unix_ms)
}

/// Removes what an earlier process has left behind that carried out this run.
fn remove_leftovers(client: &Client, folder: &RunFolder) -> Result<(), Error> {
    let prefix = prefix(folder);
    if folder.record().guest.is_some() {
        GuestVms::new(client, None).remove_leftovers(&format!("{prefix}-"))?;
    }
    ApiVolumes::new(client, &prefix).remove_leftovers()
}

/// Measures what is left of a run. How that ended, and whether what was made for it could be removed.
fn measure(
    client: &Client,
    folder: &mut RunFolder,
    plan: &RunPlan,
    guest_files: Option<PathBuf>,
) -> (Result<(), Error>, Result<(), Error>) {
    let request = VolumeRequest {
        count: plan.vms,
        size_bytes: plan.volume_bytes(),
        aligned_percent: folder.record().aligned_percent,
    };
    let mut volumes = ApiVolumes::new(client, &prefix(folder));
    let mut guests = GuestVms::new(client, guest_files);
    let machines = RefCell::new(ProcessMeter::new(&[]));
    let mut meter = GuestMeter { cluster: ApiMeter { client }, machines: &machines };
    let mut progress = progress_on_standard_error();
    let guest = folder.record().guest;
    let prepared = remove_leftovers(client, folder)
        .and_then(|()| guest.as_ref().map_or(Ok(()), |guest| guests.check_room(plan.vms, guest)))
        .and_then(|()| volumes.prepare(&request));
    let ran = prepared.and_then(|targets| {
        // What speaks against them is told before volumes are filled.
        if let Some(guest) = &guest {
            guests.make(&targets, guest)?;
        }
        // To fill them is none of the clients' load.
        let filled = |keeper: &mut Keeper<'_>| {
            volumes.settle_owners()?;
            warn_of_misplaced(&volumes, keeper.folder)?;
            if let Some(iops_max) = plan.iops_max {
                targets.iter().try_for_each(|target| limit(client, &target.name, iops_max))?;
            }
            if guest.is_none() {
                return Ok(targets.clone());
            }
            let (inside, processes) = start_guests(&guests, &targets, keeper.folder)?;
            machines.replace(processes);
            Ok(inside)
        };
        let mut keeper = Keeper { folder };
        run_plan(plan, &targets, &mut meter, &mut keeper, filled, progress.as_mut())?;
        // A node that was restarted meanwhile may have lost its volumes to others. All was measured, whether that can be told or not.
        // Those of virtual machines follow these.
        if guest.is_none()
            && let Err(error) = warn_of_misplaced(&volumes, folder)
        {
            eprintln!("note: whether a volume had another owner is not known: {error}");
        }
        Ok(())
    });
    // What failed because the volumes were removed says nothing of the run.
    leave_to_interruption();
    let ended = guests.cleanup();
    (ran, ended.and(volumes.cleanup()))
}

/// Starts the virtual machines of a run, on volumes that are filled.
fn start_guests(
    guests: &GuestVms<'_>,
    volumes: &[Target],
    folder: &mut RunFolder,
) -> Result<(Vec<Target>, ProcessMeter), Error> {
    eprintln!("starting {}", counted(volumes.len() as u64, "virtual machine"));
    let started = guests.start(volumes)?;
    let elsewhere = |(volume, vm): (&Target, &Target)| {
        let (meant, now) = volume.node.as_deref().zip(vm.node.as_deref())?;
        (meant != now).then(|| format!("virtual machine {} runs on {now}, as {meant} had no room", vm.name))
    };
    let elsewhere = volumes.iter().zip(&started.0).filter_map(elsewhere);
    let warnings: Vec<String> = guests.warnings()?.into_iter().chain(elsewhere).collect();
    warnings.iter().for_each(|warning| eprintln!("note: {warning}"));
    folder.warn(warnings)?;
    Ok(started)
}

/// Keeps cells in a run's folder; not one whose volumes were removed meanwhile, as the run was interrupted.
struct Keeper<'run> {
    folder: &'run mut RunFolder,
}

impl ResultKeeper for Keeper<'_> {
    fn has(&self, number: CellNumber) -> bool {
        self.folder.has(number)
    }

    fn keep(&mut self, number: CellNumber, row: &SweepRow) -> Result<(), Error> {
        leave_to_interruption();
        self.folder.keep(number, row)
    }

    fn is_paused(&mut self) -> bool {
        self.folder.is_paused()
    }
}

fn warn_of_misplaced(volumes: &ApiVolumes<'_>, folder: &mut RunFolder) -> Result<(), Error> {
    let misplaced = volumes.misplaced()?;
    misplaced.iter().for_each(|warning| eprintln!("note: {warning}"));
    folder.warn(misplaced)
}

fn limit(client: &Client, volume: &str, iops_max: u64) -> Result<(), Error> {
    let change = VolumeSettingsChange { iops_max: Some(iops_max), ..VolumeSettingsChange::default() };
    client.post(&path_with(api::VOLUME_SETTINGS, volume), &change).map(|_: VolumeStatus| ())
}

/// Refuses to go on with a run on another cluster, or on one that has changed: its cells would not be of one kind.
fn check_cluster(client: &Client, folder: &RunFolder) -> Result<(), Error> {
    let (former, now) = (&folder.record().cluster, describe(&client.get(api::STATUS)?));
    let nodes = |cluster: &ClusterDescription| cluster.nodes.clone();
    if (nodes(former), former.copies, former.is_in_memory) == (nodes(&now), now.copies, now.is_in_memory) {
        return Ok(());
    }
    Err(Error::new(
        "FLEET_OTHER_CLUSTER",
        format!("the run in {} cannot be gone on with here", folder.path().display()),
        "it was begun on a cluster with other nodes or drives",
        "go on with it on that one (--dir), or begin a new run",
    ))
}

/// Makes the folder of a new run.
fn begin(client: &Client, arguments: &RunArguments) -> Result<RunFolder, Error> {
    let profile = Profile::find(arguments.profile.as_deref().unwrap_or_default())?;
    let plan = profile.plan(&arguments.changes())?;
    let status: ClusterStatus = client.get(api::STATUS)?;
    let pool: PoolDetails = client.get(api::POOL)?;
    let running = status.nodes.iter().filter(|node| node.status.is_healthy()).count();
    check_alignment(arguments.alignment, running)?;
    let begun_unix_ms = unix_ms();
    let path = arguments.results.clone().unwrap_or_else(|| default_folder(&plan.profile, begun_unix_ms));
    let warnings = warnings(&plan, &status, &pool);
    let record = RunRecord {
        format: spandrel_results::FORMAT,
        name: arguments.name.clone().unwrap_or_else(|| default_name(&plan.profile, arguments)),
        created_by: format!("spandrel {VERSION}"),
        begun_unix_ms,
        ended_unix_ms: None,
        stopped_by: None,
        plan,
        aligned_percent: arguments.alignment,
        guest: arguments.guest.map(|_| GuestDescription {
            disk_bus: arguments.disk_bus,
            processors: arguments.guest_vcpus,
            memory_bytes: arguments.guest_memory,
        }),
        cluster: describe(&status),
        warnings,
    };
    RunFolder::create(&path, record)
}

/// What reports call a run: two of one profile that differ in where clients are lie side by side in them.
fn default_name(profile: &str, arguments: &RunArguments) -> String {
    match (arguments.guest, arguments.alignment) {
        (Some(_), _) => format!("{profile}, in guests by {}", arguments.disk_bus),
        (None, 100) => profile.to_owned(),
        (None, percent) => format!("{profile}, {percent} % aligned"),
    }
}

/// `fleet-micron-sata-4k-2026-11-29-101500` in this folder.
fn default_folder(profile: &str, unix_ms: u64) -> PathBuf {
    let date = date_text(unix_ms);
    let digits = date.trim_end_matches(" UTC").replace(':', "").replace(' ', "-");
    Path::new(&format!("fleet-{profile}-{digits}")).to_owned()
}

fn say_beginning(folder: &RunFolder, plan: &RunPlan) {
    let record = folder.record();
    let cells = counted(plan.cells.len() as u64, "cell");
    let repeats = if plan.repeat == 1 { String::new() } else { format!(", each {} times", plan.repeat) };
    let mut text = format!(
        "{}: {cells}{repeats}, {} of {}, about {}\n",
        plan.title,
        counted(plan.vms.into(), "client"),
        format_size(plan.volume_bytes()),
        format_duration(plan.duration())
    );
    if let Some(scales) = plan.scales() {
        text += &format!("scaled: {scales}\n");
    }
    for warning in &record.warnings {
        text += &format!("note: {warning}\n");
    }
    text += &format!("results: {}\n", folder.path().display());
    say(&text);
}

/// What speaks against a run as it is wanted: it is made all the same, and the report says it.
fn warnings(plan: &RunPlan, status: &ClusterStatus, pool: &PoolDetails) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(shortest) = plan.cells.iter().map(|cell| cell.duration).min().filter(|time| *time < SHORT) {
        warnings.push(format!(
            "cells are measured for {}: what comes of that is a sketch",
            format_duration(shortest)
        ));
    }
    let bytes = plan.volume_bytes() * u64::from(plan.vms);
    let copies = u64::from(status.pool.copies_default);
    let nodes = status.nodes.iter().filter(|node| node.status.is_healthy()).count() as u64;
    if status.memory {
        warnings.push("the drives are in memory: this measures what remains without them".to_owned());
    }
    for node in status.nodes.iter().filter(|node| !node.status.is_healthy()) {
        warnings.push(format!("node {} is {}", node.name, node.status));
    }
    if !pool.jobs.is_empty() {
        let jobs = counted(pool.jobs.len() as u64, "drive");
        warnings.push(format!(
            "copies on {jobs} are being brought up to date, built or moved: that takes its share"
        ));
    }
    let cached = pool.settings.memory_cache_bytes * nodes;
    if cached > 0 && bytes <= cached {
        warnings.push(format!(
            "the working sets of all clients, {}, fit the memory that holds copies of what is read: reads measure that",
            format_size(bytes)
        ));
    }
    let room: u64 = status.caches.iter().filter(|cache| cache.is_used).map(|cache| cache.size_bytes).sum();
    if room > 0 && bytes * copies <= room {
        warnings.push(format!(
            "the working sets with all copies, {}, fit the cache drives: the drives behind them are hardly measured",
            format_size(bytes * copies)
        ));
    }
    warnings
}

fn describe(status: &ClusterStatus) -> ClusterDescription {
    let mut drives: BTreeMap<&str, Vec<DriveDescription>> = BTreeMap::new();
    for drive in &status.drives {
        let media = drive.media.map(|media| media.to_string());
        let (name, size_bytes) = (drive.name.clone(), drive.size_bytes);
        drives.entry(&drive.node).or_default().push(DriveDescription {
            name,
            size_bytes,
            media,
            is_cache: false,
        });
    }
    for cache in &status.caches {
        let media = cache.media.map(|media| media.to_string());
        let (name, size_bytes) = (cache.name.clone(), cache.size_bytes);
        drives.entry(&cache.node).or_default().push(DriveDescription {
            name,
            size_bytes,
            media,
            is_cache: true,
        });
    }
    let node = |node: &api::NodeStatus| NodeDescription {
        name: node.name.clone(),
        drives: drives.remove(node.name.as_str()).unwrap_or_default(),
    };
    ClusterDescription {
        version: status.version.clone(),
        nodes: status.nodes.iter().map(node).collect(),
        copies: status.pool.copies_default,
        is_in_memory: status.memory,
        flush_us: status.flush_us.map(|us| us.round() as u64),
        machine: MachineDescription::of_this(),
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "fleet_run_tests.rs"]
mod tests;
