//! `spandrel fleet`: the load fleet on volumes of this cluster.

use std::path::Path;
use std::time::Duration;

use spandrel_fleet::{
    CacheReading, ClientVolumes, ClusterMeter, ClusterReading, DriveReading, FleetArguments, FleetCommand,
    MeterReading, NodeReading, OutputFormat, Placement, SweepArguments, Target, VolumeRequest, placements,
    progress_on_standard_error,
};
use spandrel_node::VolumeLoad;
use spandrel_results::RunFolder;
use spandrel_shared::{Error, LoadCounts};

use super::{fleet_agent, fleet_report, fleet_run};
use crate::admin::api::{
    self, ClusterLoad, DriveCacheStatus, DriveStatus, NodeStatus, Usage, VolumeCreate, VolumeCreateAnswer,
    VolumeMove, VolumeSettingsChange, VolumeStatus,
};
use crate::admin::client::{Client, path_with};
use crate::directory::Directory;
use crate::failure::{EXIT_OK, Outcome};
use crate::interrupt::{Guard, leave_to_interruption, remove_on_interrupt};
use crate::reach::Reach;
use crate::study;
use crate::text::say;

/// Volumes are made in multiples of a block.
const BLOCK_BYTES: u64 = 4096;

/// Carries out a command of the fleet.
pub fn fleet(reach: &Reach, arguments: &FleetArguments) -> Outcome {
    match &arguments.command {
        // Its clients use the nodes' sockets, so it must be a cluster on this machine.
        FleetCommand::Sweep(sweep) => run_sweep(&Client::new(reach.directory()?)?, sweep).map(|_| EXIT_OK),
        FleetCommand::Study(study) => study::run(study),
        FleetCommand::Run(run) => fleet_run::run(&Client::new(reach.directory()?)?, run),
        FleetCommand::Profiles(profiles) => fleet_report::profiles(profiles),
        FleetCommand::Report(report) => fleet_report::report(report),
        FleetCommand::Import(import) => fleet_report::import_results(import),
        FleetCommand::Pause(run) => set_paused(&run.run, true),
        FleetCommand::Continue(run) => set_paused(&run.run, false),
        FleetCommand::Agent(agent) => fleet_agent::run(agent),
    }
}

/// Has a run pause before its next cell, or go on.
fn set_paused(run: &Path, is_paused: bool) -> Outcome {
    let folder = RunFolder::open(run)?;
    if is_paused && folder.is_complete() {
        return Err(Error::new(
            "FLEET_RUN_COMPLETE",
            format!("the run in {} does not pause", run.display()),
            "all of it was measured",
            "see its report.html",
        ));
    }
    folder.set_paused(is_paused)?;
    let text = if is_paused {
        "pauses before its next cell: `spandrel fleet continue` lets it go on"
    } else {
        "goes on"
    };
    say(&format!("the run in {} {text}\n", run.display()));
    Ok(EXIT_OK)
}

fn run_sweep(client: &Client, sweep: &SweepArguments) -> Result<spandrel_fleet::SweepResult, Error> {
    // What makes no sense is refused before anything is made.
    sweep.spec()?;
    let mut volumes = ApiVolumes::new(client, &format!("fleet-{}", std::process::id()));
    let mut meter = ApiMeter { client };
    let mut progress = progress_on_standard_error();
    let result = sweep.run(&mut volumes, &mut meter, progress.as_mut(), &mut std::io::stdout().lock())?;
    if sweep.output != OutputFormat::Table {
        result.warnings.iter().for_each(|warning| eprintln!("note: {warning}"));
    }
    Ok(result)
}

/// Makes a volume for each client through the admin API, spread over the nodes that run.
pub struct ApiVolumes<'client> {
    client: &'client Client,
    prefix: String,
    made: Vec<MadeVolume>,
    guards: Vec<Guard>,
}

/// A volume that was made.
struct MadeVolume {
    name: String,
    /// The node that is to own it.
    owner: String,
    /// Why it could not be moved there.
    stays_because: Option<String>,
}

impl<'client> ApiVolumes<'client> {
    /// Volumes whose names begin with `prefix`.
    pub fn new(client: &'client Client, prefix: &str) -> Self {
        Self { client, prefix: prefix.to_owned(), made: Vec::new(), guards: Vec::new() }
    }

    /// Removes volumes that an earlier process has left behind under the names that these will have.
    pub fn remove_leftovers(&self) -> Result<(), Error> {
        let volumes: Vec<VolumeStatus> = self.client.get(api::VOLUMES)?;
        let begin = format!("{}-", self.prefix);
        let mut left = volumes.iter().filter(|volume| volume.name.starts_with(&begin));
        left.try_for_each(|volume| self.client.delete(&delete_path(&volume.name)))
    }

    /// Volumes that another node owns than the one that is to: the place of each among those that were made, with its owner.
    fn placed_elsewhere(&self) -> Result<Vec<(usize, Option<String>)>, Error> {
        let volumes: Vec<VolumeStatus> = self.client.get(api::VOLUMES)?;
        let misplaced = |(place, made): (usize, &MadeVolume)| {
            let known = volumes.iter().find(|known| known.name == made.name)?;
            (known.owner.as_ref() != Some(&made.owner)).then(|| (place, known.owner.clone()))
        };
        Ok(self.made.iter().enumerate().filter_map(misplaced).collect())
    }
}

impl ClientVolumes for ApiVolumes<'_> {
    fn prepare(&mut self, request: &VolumeRequest) -> Result<Vec<Target>, Error> {
        let nodes: Vec<NodeStatus> = self.client.get(api::NODES)?;
        let running: Vec<NodeStatus> = nodes.into_iter().filter(|node| node.status.is_healthy()).collect();
        if running.is_empty() {
            return Err(Error::new(
                "NODE_NOT_RUNNING",
                "the fleet has no node to run on",
                "all nodes are stopped, or cut off from the others",
                "start one with `spandrel node start`",
            ));
        }
        check_alignment(request.aligned_percent, running.len())?;
        let mut targets = Vec::new();
        let placements = placements(request.count as usize, running.len(), request.aligned_percent);
        for (number, Placement { client, owner }) in (1..).zip(placements) {
            let (node, owner) = (&running[client].name, &running[owner].name);
            let name = format!("{}-{number:03}", self.prefix);
            let create = VolumeCreate {
                name: name.clone(),
                size_bytes: request.size_bytes.next_multiple_of(BLOCK_BYTES),
                copies: None,
                owner: Some(owner.clone()),
            };
            let created: Result<VolumeCreateAnswer, Error> = self.client.post(api::VOLUMES, &create);
            created.map_err(|error| match error.code.as_ref() {
                "POOL_FULL" => Error {
                    next: "measure on less of each volume (--working-set, --data-scale) or with fewer clients (--vms), delete \
                           volumes, or add drives"
                        .into(),
                    ..error
                },
                _ => error,
            })?;
            self.guards.push(remove_if_interrupted(self.client.directory(), &name));
            self.made.push(MadeVolume { name: name.clone(), owner: owner.clone(), stays_because: None });
            if node != owner {
                let change = VolumeSettingsChange { pinned: Some(true), ..VolumeSettingsChange::default() };
                let _: VolumeStatus = self.client.post(&path_with(api::VOLUME_SETTINGS, &name), &change)?;
            }
            let address = spandrel_platform::Address::Unix(
                self.client.directory().nbd_socket(node).display().to_string(),
            );
            let target = Target::new(name.clone(), address, name);
            targets.push(Target { node: Some(node.clone()), ..target });
        }
        Ok(targets)
    }

    fn settle_owners(&mut self) -> Result<(), Error> {
        for (place, _) in self.placed_elsewhere()? {
            let made = &mut self.made[place];
            let owner = VolumeMove { owner: made.owner.clone() };
            let moved: Result<VolumeStatus, Error> =
                self.client.post(&path_with(api::VOLUME_MOVE, &made.name), &owner);
            made.stays_because = moved.err().map(|error| error.why);
        }
        Ok(())
    }

    fn misplaced(&self) -> Result<Vec<String>, Error> {
        // Whoever is interrupted has his volumes removed meanwhile, and what came of that is not worth telling.
        leave_to_interruption();
        let text = |(place, owner): (usize, Option<String>)| {
            let made: &MadeVolume = &self.made[place];
            let owner = owner.as_deref().unwrap_or("no node");
            let why = made.stays_because.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
            format!(
                "volume {} was to be owned by {}, and is owned by {owner}{why}: its client's way to it is another one than meant",
                made.name, made.owner
            )
        };
        Ok(self.placed_elsewhere()?.into_iter().map(text).collect())
    }

    fn cleanup(&mut self) -> Result<(), Error> {
        let mut outcome = Ok(());
        for MadeVolume { name, .. } in self.made.drain(..) {
            // The first failure is told; the others are tried all the same.
            outcome = outcome.and(self.client.delete(&delete_path(&name)));
        }
        self.guards.clear();
        outcome
    }
}

/// Refuses clients that are apart from their volumes' owners where there is nowhere else to be.
pub fn check_alignment(aligned_percent: u8, nodes_running: usize) -> Result<(), Error> {
    if nodes_running > 1 || aligned_percent == 100 {
        return Ok(());
    }
    Err(Error::new(
        "FLEET_NOT_ALIGNABLE",
        format!(
            "{} % of the clients cannot be on another node than their volume's owner",
            100 - aligned_percent
        ),
        "no other node runs",
        "start other nodes, or leave out --alignment",
    ))
}

/// The request to delete a volume of the fleet: its user is the fleet itself.
fn delete_path(name: &str) -> String {
    format!("{}?force=true", path_with(api::VOLUME, name))
}

fn remove_if_interrupted(directory: &Directory, name: &str) -> Guard {
    let (directory, path) = (directory.clone(), delete_path(name));
    remove_on_interrupt(move || {
        // Best effort: if the cluster has ended as well, the volume waits for the next one.
        let _ = Client::new(directory).and_then(|client| client.delete(&path));
    })
}

/// Reads what the cluster has used through the admin API.
pub struct ApiMeter<'client> {
    /// The cluster.
    pub client: &'client Client,
}

impl ClusterMeter for ApiMeter<'_> {
    fn read(&mut self) -> Result<MeterReading, Error> {
        let usage: Usage = self.client.get(api::USAGE)?;
        Ok(MeterReading {
            cpu: Some(Duration::from_micros(usage.cpu_us)),
            user_written_bytes: Some(usage.user_written_bytes),
            drive_written_bytes: Some(usage.drive_written_bytes),
            cache: self.read_caches()?,
        })
    }

    fn layers(&mut self) -> Option<ClusterReading> {
        let load: ClusterLoad = self.client.get(api::LOAD).ok()?;
        let drives: Vec<DriveStatus> = self.client.get(api::DRIVES).ok()?;
        Some(layers_of(&load, &drives, self.read_caches().ok()?))
    }
}

/// What nodes say of how busy they are, as the fleet reads it.
fn layers_of(load: &ClusterLoad, drives: &[DriveStatus], cache: Option<CacheReading>) -> ClusterReading {
    let mut reading = ClusterReading { cache, ..ClusterReading::default() };
    for (node, load) in load.nodes.iter().filter_map(|node| Some((node, node.load.as_ref()?))) {
        let sum = |of: fn(&VolumeLoad) -> LoadCounts| {
            load.volumes.iter().map(of).fold(LoadCounts::default(), LoadCounts::with)
        };
        reading.nodes.push(NodeReading {
            name: node.name.clone(),
            run: load.incarnation.to_string(),
            at_us: load.at_us,
            cpu_us: load.cpu_us,
            frontend: sum(|volume| volume.frontend),
            owner: sum(|volume| volume.owner),
            bus: load.bus,
        });
        for drive in &load.drives {
            let known = drives.iter().find(|known| known.id == Some(drive.drive));
            reading.drives.push(DriveReading {
                name: known.map_or_else(|| drive.location.clone(), |known| known.name.clone()),
                node: node.name.clone(),
                load: drive.load,
            });
        }
    }
    reading
}

impl ApiMeter<'_> {
    /// What all cache drives hold and have done; nothing if no drive is bound to one.
    pub fn read_caches(&self) -> Result<Option<CacheReading>, Error> {
        let drives: Vec<DriveStatus> = self.client.get(api::DRIVES)?;
        let caches: Vec<DriveCacheStatus> = drives.into_iter().filter_map(|drive| drive.cache).collect();
        let sum = |bytes: fn(&DriveCacheStatus) -> u64| caches.iter().map(bytes).sum();
        Ok((!caches.is_empty()).then(|| CacheReading {
            room_bytes: sum(|cache| cache.total_bytes),
            dirty_bytes: sum(|cache| cache.dirty_bytes),
            copied_bytes: sum(|cache| cache.copied_bytes),
            hit_bytes: sum(|cache| cache.hit_bytes),
            missed_bytes: sum(|cache| cache.missed_bytes),
            populated_bytes: sum(|cache| cache.populated_bytes),
            destaged_bytes: sum(|cache| cache.destaged_bytes),
        }))
    }
}
