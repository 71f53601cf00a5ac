//! The virtual machines of `spandrel fleet run --guest`: one for each client, on the volume that is the client's.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use spandrel_cluster::{VmBoot, VmDiskBus, VmPriority};
use spandrel_fleet::{
    ClusterMeter, ClusterReading, GuestDiskBus, MeterReading, ProcessMeter, Target, TargetPlace,
};
use spandrel_guest::GuestFiles;
use spandrel_qemu::folder::{LOAD_SOCKET, VmFolder};
use spandrel_results::GuestDescription;
use spandrel_shared::Error;
use spandrel_shared::size::format_size;

use super::fleet::ApiMeter;
use crate::admin::api::{self, VmCreate, VmHostStatus, VmState, VmStatus, VmStop};
use crate::admin::client::{Client, path_with};
use crate::admin::vms::WHERE_NONE_RUNS_VMS;
use crate::interrupt::{Guard, leave_to_interruption, remove_on_interrupt};
use crate::text::counted;

/// How long virtual machines may take to begin: so long, and so much longer for each.
const START_TIME_MAX: Duration = Duration::from_secs(60);
const START_TIME_EACH: Duration = Duration::from_secs(5);

/// How long one may take to end whose power is cut.
const STOP_TIME_MAX: Duration = Duration::from_secs(60);

/// How often it is looked whether they have.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What a guest does.
const TASK: &str = "fleet:agent";

/// The virtual machines of a run. Each is called as its volume.
pub struct GuestVms<'client> {
    client: &'client Client,
    /// Where what they boot is kept.
    files: Option<PathBuf>,
    made: Vec<String>,
    guards: Vec<Guard>,
}

impl<'client> GuestVms<'client> {
    /// None yet. What they will boot is kept in `files`, or in the user's cache.
    pub fn new(client: &'client Client, files: Option<PathBuf>) -> Self {
        Self { client, files, made: Vec::new(), guards: Vec::new() }
    }

    /// Removes those that an earlier process has left behind, whose names begin with `prefix`.
    ///
    /// # Errors
    /// As [`Self::cleanup`].
    pub fn remove_leftovers(&self, prefix: &str) -> Result<(), Error> {
        let vms: Vec<VmStatus> = self.client.get(api::VMS)?;
        let left = vms.into_iter().map(|vm| vm.name).filter(|name| name.starts_with(prefix));
        remove(self.client, left.collect())
    }

    /// Refuses so many that there is no room for.
    ///
    /// # Errors
    /// `FLEET_GUESTS_NOT_RUNNING`.
    pub fn check_room(&self, count: u32, guest: &GuestDescription) -> Result<(), Error> {
        let hosts: Vec<VmHostStatus> = self.client.get(api::VM_HOSTS)?;
        let room: u64 = hosts.iter().map(|host| host.takes(guest.memory_bytes)).sum();
        if u64::from(count) <= room {
            return Ok(());
        }
        let what = format!("{} cannot run", counted(count.into(), "virtual machine"));
        if hosts.is_empty() {
            return Err(Error::new(
                "FLEET_GUESTS_NOT_RUNNING",
                what,
                "no node that is alive runs virtual machines",
                WHERE_NONE_RUNS_VMS,
            ));
        }
        Err(Error::new(
            "FLEET_GUESTS_NOT_RUNNING",
            what,
            format!(
                "the nodes that are not in maintenance have memory for {room} more of {} each",
                format_size(guest.memory_bytes)
            ),
            "use fewer clients (--vms), or less memory for each (--guest-memory); `spandrel vm hosts` shows what nodes have",
        ))
    }

    /// Makes one for each of the `volumes`, off.
    ///
    /// # Errors
    /// `GUEST_NOT_BUILT`, and those of making virtual machines.
    pub fn make(&mut self, volumes: &[Target], guest: &GuestDescription) -> Result<(), Error> {
        let program = std::env::current_exe().map_err(|error| no_folder(&error.to_string()))?;
        let folder = self.files.clone().map_or_else(guest_folder, Ok)?;
        let folder = std::path::absolute(folder).map_err(|error| no_folder(&error.to_string()))?;
        let files = GuestFiles::build(&folder, &program)?;
        let boot = VmBoot::Kernel {
            kernel: files.kernel.display().to_string(),
            initrd: Some(files.initrd.display().to_string()),
            arguments: spandrel_guest::arguments(TASK),
        };
        for volume in volumes {
            // Who is interrupted has them removed meanwhile.
            leave_to_interruption();
            let create = VmCreate {
                name: volume.name.clone(),
                volume: volume.name.clone(),
                processors: guest.processors,
                memory_bytes: guest.memory_bytes,
                boot: boot.clone(),
                disk_bus: match guest.disk_bus {
                    GuestDiskBus::Nbd => VmDiskBus::Nbd,
                    GuestDiskBus::VhostUser => VmDiskBus::VhostUser,
                },
                // It means nothing without the run.
                priority: VmPriority::NoAutoStart,
            };
            let vm: VmStatus = self.client.post(api::VMS, &create)?;
            self.guards.push(remove_if_interrupted(self.client, &vm.name));
            self.made.push(vm.name);
        }
        Ok(())
    }

    /// Starts those that were made for the `volumes`, and returns when all run: what their clients use, and their processes.
    ///
    /// # Errors
    /// `FLEET_GUESTS_NOT_RUNNING`, and those of starting virtual machines.
    pub fn start(&self, volumes: &[Target]) -> Result<(Vec<Target>, ProcessMeter), Error> {
        for name in &self.made {
            leave_to_interruption();
            let _: VmStatus = self.client.post(&path_with(api::VM_START, name), &())?;
        }
        let vms = self.await_running()?;
        let folder = |vm: &VmStatus| {
            let all = self.client.directory().vms(vm.node.as_deref().unwrap_or_default());
            VmFolder::of(&all, vm.id)
        };
        let target = |volume: &Target| {
            let vm = vms.get(&volume.name).expect("it is one of those that run");
            let place = TargetPlace::Guest(folder(vm).join(LOAD_SOCKET).display().to_string());
            Target { node: vm.node.clone(), ..Target::at(volume.name.clone(), place) }
        };
        let processes = vms.values().filter_map(|vm| u32::try_from(folder(vm).instance()?.process).ok());
        let processes: Vec<u32> = processes.collect();
        Ok((volumes.iter().map(target).collect(), ProcessMeter::new(&processes)))
    }

    /// Waits until all run.
    fn await_running(&self) -> Result<BTreeMap<String, VmStatus>, Error> {
        let time_max = START_TIME_MAX + START_TIME_EACH * u32::try_from(self.made.len()).unwrap_or(u32::MAX);
        let begun = Instant::now();
        loop {
            let vms: Vec<VmStatus> = self.client.get(api::VMS)?;
            let own: BTreeMap<String, VmStatus> = vms
                .into_iter()
                .map(|vm| (vm.name.clone(), vm))
                .filter(|(name, _)| self.made.contains(name))
                .collect();
            leave_to_interruption();
            if own.len() < self.made.len() {
                return Err(Error::new(
                    "FLEET_GUESTS_NOT_RUNNING",
                    "not all virtual machines of the run are there",
                    "somebody has deleted one",
                    "run it again, and leave those that are called fleet-... alone",
                ));
            }
            let late = own.values().find(|vm| vm.state != VmState::Running);
            let Some(late) = late else { return Ok(own) };
            if begun.elapsed() > time_max {
                return Err(Error::new(
                    "FLEET_GUESTS_NOT_RUNNING",
                    format!("the virtual machine {} does not run", late.name),
                    format!(
                        "it is {} after {} s: {}",
                        late.state,
                        time_max.as_secs(),
                        late.why.clone().unwrap_or_default()
                    ),
                    "use fewer clients, or less memory for each (--guest-memory)",
                ));
            }
            std::thread::park_timeout(LOOK_INTERVAL);
        }
    }

    /// What speaks against the results.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub fn warnings(&self) -> Result<Vec<String>, Error> {
        let vms: Vec<VmStatus> = self.client.get(api::VMS)?;
        let is_translated =
            |vm: &&VmStatus| self.made.contains(&vm.name) && vm.accelerator.as_deref() == Some("tcg");
        let translated = vms.iter().filter(is_translated).count() as u64;
        Ok(if translated == 0 {
            Vec::new()
        } else {
            vec![format!(
                "the processors of {} are translated, as hardware virtualization (KVM) does not work here: rates and latencies are \
                 mostly those of that",
                counted(translated, "virtual machine")
            )]
        })
    }

    /// Ends and removes all of them.
    ///
    /// # Errors
    /// The first one of ending and deleting them; the others are tried all the same.
    pub fn cleanup(&mut self) -> Result<(), Error> {
        let outcome = remove(self.client, std::mem::take(&mut self.made));
        self.guards.clear();
        outcome
    }
}

/// Cuts the power of virtual machines, and deletes them. The error is the first one; the others are tried all the same.
fn remove(client: &Client, names: Vec<String>) -> Result<(), Error> {
    let cut_off = |name: &String| -> Result<VmStatus, Error> {
        client.post(&path_with(api::VM_STOP, name), &VmStop { at_once: true })
    };
    // All, before the first is waited for: one that waits would be started where that makes room.
    let ending: Vec<Result<VmStatus, Error>> = names.iter().map(cut_off).collect();
    let removed = ending.into_iter().map(|vm| delete_once_off(client, vm?));
    removed.fold(Ok(()), Result::and)
}

fn delete_once_off(client: &Client, mut vm: VmStatus) -> Result<(), Error> {
    let begun = Instant::now();
    let path = path_with(api::VM, &vm.name);
    while vm.state != VmState::Off && begun.elapsed() < STOP_TIME_MAX {
        std::thread::park_timeout(LOOK_INTERVAL);
        vm = client.get(&path)?;
    }
    client.delete(&path)
}

fn remove_if_interrupted(client: &Client, name: &str) -> Guard {
    let (directory, name) = (client.directory().clone(), name.to_owned());
    remove_on_interrupt(move || {
        // Best effort: it may be gone, and the cluster with it.
        let _ = Client::new(directory).and_then(|client| remove(&client, vec![name]));
    })
}

/// Where the guest's files are kept from run to run.
fn guest_folder() -> Result<PathBuf, Error> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = cache.or_else(home).ok_or_else(|| no_folder("neither XDG_CACHE_HOME nor HOME is set"))?;
    Ok(cache.join("spandrel").join("guest"))
}

fn no_folder(why: &str) -> Error {
    let what = "the guest's kernel and RAM disk cannot be kept";
    Error::new("GUEST_NOT_BUILT", what, why, "name a folder that can be written to with --guest-files")
}

/// What a cluster and the virtual machines on it use.
pub struct GuestMeter<'run> {
    /// The cluster.
    pub cluster: ApiMeter<'run>,
    /// The virtual machines' processes, once there are any.
    pub machines: &'run RefCell<ProcessMeter>,
}

impl ClusterMeter for GuestMeter<'_> {
    fn read(&mut self) -> Result<MeterReading, Error> {
        let cluster = self.cluster.read()?;
        let machines = self.machines.borrow_mut().read()?.cpu.unwrap_or_default();
        Ok(MeterReading { cpu: cluster.cpu.map(|cpu| cpu + machines), ..cluster })
    }

    fn layers(&mut self) -> Option<ClusterReading> {
        self.cluster.layers()
    }
}
