//! All virtual machines of a node.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_channel::mpsc;
use futures_util::future::join_all;
use spandrel_cluster::VmHost;
use spandrel_shared::{Error, VmId};
use spandrel_vm::{Condition, Instance, VmSpec};
use tokio::io::AsyncWrite;

use crate::disk::ServeDisk;
use crate::folder::VmFolder;
use crate::machine::Machine;
use crate::probe::Emulator;

/// How long it is waited for those that are being started when all are to end, and how often it is looked.
const STARTED_WITHIN: Duration = Duration::from_secs(10);
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// How a node runs virtual machines.
#[derive(Clone)]
pub struct QemuOptions {
    /// QEMU's program.
    pub program: PathBuf,
    /// What that is.
    pub emulator: Emulator,
    /// The folder of all virtual machines of the node.
    pub folder: PathBuf,
    /// Where the node serves disks over NBD.
    pub nbd_socket: PathBuf,
    /// Serves those that share their guests' memory.
    pub serve_disk: ServeDisk,
    /// Memory that virtual machines may have in all, in bytes.
    pub memory_bytes: u64,
}

/// The virtual machines of a node.
pub struct Qemu {
    options: QemuOptions,
    slots: Mutex<BTreeMap<VmId, Slot>>,
    /// Whether all of them end, and none is started any more.
    ends: AtomicBool,
    listeners: Mutex<Vec<mpsc::UnboundedSender<()>>>,
}

/// What is there of a virtual machine.
enum Slot {
    /// It is being started.
    Starting,
    /// It has a process, or had one until lately.
    There(Arc<Machine>),
    /// A former run of the node has left it, and its process has ended.
    Left(Instance, VmFolder),
}

impl Qemu {
    /// Takes over what a former run of the node has left in the folder. Within the program's runtime.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub async fn open(options: QemuOptions) -> Result<Arc<Self>, Error> {
        let folders = VmFolder::list(&options.folder).map_err(|error| {
            Error::new(
                "VM_FOLDER_UNUSABLE",
                format!("{} cannot be read", options.folder.display()),
                error.to_string(),
                "see that this user may read it",
            )
        })?;
        let qemu = Arc::new(Self {
            options,
            slots: Mutex::default(),
            ends: AtomicBool::new(false),
            listeners: Mutex::default(),
        });
        let adoptions = folders.into_iter().map(|folder| {
            let qemu = &qemu;
            async move {
                let file = folder.instance()?;
                let slot = match Machine::adopt(&qemu.options, folder.clone(), &file, qemu.teller()).await {
                    Some(machine) => Slot::There(machine),
                    None => {
                        let why = "its process ended while the node did not run".to_owned();
                        Slot::Left(Instance { run: file.run, condition: Condition::Failed(why) }, folder)
                    }
                };
                Some((file.vm, slot))
            }
        });
        let found: BTreeMap<VmId, Slot> = join_all(adoptions).await.into_iter().flatten().collect();
        *locked(&qemu.slots) = found;
        Ok(qemu)
    }

    /// What the node has for virtual machines.
    pub fn host(&self) -> VmHost {
        VmHost {
            memory_bytes: self.options.memory_bytes,
            accelerator: self.options.emulator.accelerator.qemu_name().to_owned(),
        }
    }

    /// The folder of a virtual machine, if it was ever here.
    pub fn folder_of(&self, vm: VmId) -> VmFolder {
        VmFolder::of(&self.options.folder, vm)
    }

    /// What is there.
    pub fn instances(&self) -> BTreeMap<VmId, Instance> {
        let slots = locked(&self.slots);
        let instance = |(vm, slot): (&VmId, &Slot)| match slot {
            Slot::Starting => None,
            Slot::There(machine) => Some((*vm, machine.instance())),
            Slot::Left(instance, _) => Some((*vm, instance.clone())),
        };
        slots.iter().filter_map(instance).collect()
    }

    /// Starts a virtual machine.
    pub async fn start(self: &Arc<Self>, spec: VmSpec) -> Result<(), Error> {
        let vm = spec.disk.vm;
        {
            let mut slots = locked(&self.slots);
            if slots.contains_key(&vm) {
                return Err(Error::new(
                    "VM_NOT_STARTED",
                    format!("the virtual machine {} is not started", spec.name),
                    "something of it is here already",
                    "wait until that has ended",
                ));
            }
            slots.insert(vm, Slot::Starting);
        }
        let folder = self.folder_of(vm);
        let may_start = || !self.ends.load(Ordering::Relaxed);
        let started = Machine::start(&self.options, folder, &spec, may_start, self.teller()).await;
        let mut slots = locked(&self.slots);
        match started {
            Ok(machine) => {
                slots.insert(vm, Slot::There(machine));
                Ok(())
            }
            Err(error) => {
                slots.remove(&vm);
                Err(error)
            }
        }
    }

    /// Sends what a guest has in memory to `stream`, behind which it is awaited.
    ///
    /// # Errors
    /// `VM_NOT_MOVED`.
    pub async fn send(&self, vm: VmId, stream: impl AsyncWrite + Unpin) -> Result<(), Error> {
        self.machine(vm)?.send(stream).await
    }

    /// Lets a guest run that has arrived here, or that was to leave and stays.
    ///
    /// # Errors
    /// `VM_NOT_RESUMED`.
    pub async fn resume(&self, vm: VmId) -> Result<(), Error> {
        self.machine(vm)?.resume().await
    }

    fn machine(&self, vm: VmId) -> Result<Arc<Machine>, Error> {
        match locked(&self.slots).get(&vm) {
            Some(Slot::There(machine)) => Ok(Arc::clone(machine)),
            _ => Err(Error::new(
                "VM_NOT_RUNNING",
                format!("nothing is done with virtual machine {vm}"),
                "nothing of it runs on this node",
                "see where it runs with `spandrel vm list`",
            )),
        }
    }

    /// Asks a guest to shut down.
    pub async fn shut_down(&self, vm: VmId) {
        let machine = self.machine(vm);
        if let Ok(machine) = machine {
            machine.shut_down().await;
        }
    }

    /// Ends a virtual machine at once, and forgets it.
    pub async fn end(&self, vm: VmId) -> Result<(), Error> {
        let machine = match locked(&self.slots).get(&vm) {
            Some(Slot::There(machine)) => Some(Arc::clone(machine)),
            Some(Slot::Left(_, folder)) => {
                folder.forget_instance();
                None
            }
            _ => None,
        };
        if let Some(machine) = machine {
            machine.end().await?;
        }
        locked(&self.slots).remove(&vm);
        Ok(())
    }

    /// Ends all of them at once, as a server does that loses its power.
    pub async fn end_all(&self) {
        self.ends.store(true, Ordering::Relaxed);
        // What is being started ends once it has been.
        let is_starting = || locked(&self.slots).values().any(|slot| matches!(slot, Slot::Starting));
        let begun = tokio::time::Instant::now();
        while is_starting() && begun.elapsed() < STARTED_WITHIN {
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        let all: Vec<VmId> = locked(&self.slots).keys().copied().collect();
        for error in
            join_all(all.into_iter().map(|vm| self.end(vm))).await.into_iter().filter_map(Result::err)
        {
            tracing::error!("{error}");
        }
    }

    /// Tells from now on when a condition changes.
    pub fn listen(&self) -> mpsc::UnboundedReceiver<()> {
        let (sender, receiver) = mpsc::unbounded();
        locked(&self.listeners).push(sender);
        receiver
    }

    /// What tells those who listen.
    fn teller(self: &Arc<Self>) -> impl Fn() + Send + Sync + 'static {
        let qemu = Arc::downgrade(self);
        move || {
            if let Some(qemu) = qemu.upgrade() {
                locked(&qemu.listeners).retain(|listener| listener.unbounded_send(()).is_ok());
            }
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
