//! Virtual machines of a simulated world: a guest is a task that counts on its disk.
//!
//! It reads the number that stands there, and writes the next one again and again, each when the one before was answered. So
//! what its disk has lost shows when it is started next, and so does a guest that goes on beside it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{FutureExt as _, LocalBoxFuture, ready};
use spandrel_cluster::VmHost;
use spandrel_cluster::simulated::SimulatedStore;
use spandrel_node::NodeDevice;
use spandrel_platform::sync::Signal;
use spandrel_platform::{Platform as _, TaskHandle};
use spandrel_platform_simulated::SimulatedPlatform;
use spandrel_shared::{Error, NodeId, VmId};
use spandrel_vm::disk::DiskName;
use spandrel_vm::{Condition, Hypervisor, Instance, VmSpec};
use spandrel_volume::{BlockDevice as _, DeviceError, Exports as _};

use crate::history::{BLOCK_SECTORS, content, value_of};
use crate::nodes::SimulatedNode;

type Disk = NodeDevice<SimulatedPlatform, SimulatedStore<SimulatedPlatform>>;

/// How long a guest takes to boot.
const BOOT_TIME: Duration = Duration::from_millis(500);

/// How long it does something else between two writes.
const PAUSE: Duration = Duration::from_millis(1);

/// How long it takes to send what a guest has in memory.
const SEND_TIME: Duration = Duration::from_millis(200);

/// A block, in bytes.
const BLOCK: u32 = 4096;

/// A number that a guest is at, if it is there.
type Number = Rc<Cell<Option<u64>>>;

/// What guests have seen and done, in order; and the way that those take that move.
#[derive(Default)]
pub struct GuestLog {
    entries: RefCell<Vec<GuestEntry>>,
    /// How long guests do something else between two writes, if not as long as usual.
    pause: Cell<Option<Duration>>,
    /// What was sent to those that wait for it.
    arrivals: RefCell<BTreeMap<(VmId, NodeId), Number>>,
}

/// Something that a guest has seen or done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GuestEntry {
    /// It has started, and found this number on its disk.
    Found(DiskName, u64),
    /// It has moved, and goes on behind this number.
    Arrived(DiskName, u64),
    /// The write of this number was answered.
    Wrote(DiskName, u64),
    /// A request has failed.
    Failed(DiskName),
}

impl GuestLog {
    /// Has guests write so seldom from their next write on.
    pub fn set_pause(&self, pause: Duration) {
        self.pause.set(Some(pause));
    }

    /// All of it.
    pub fn entries(&self) -> Vec<GuestEntry> {
        self.entries.borrow().clone()
    }

    /// How many writes of a run were answered.
    pub fn writes(&self, disk: DiskName) -> usize {
        let is_of = |entry: &&GuestEntry| matches!(entry, GuestEntry::Wrote(of, _) if *of == disk);
        self.entries.borrow().iter().filter(is_of).count()
    }

    /// That no write was lost that was answered, and that none was answered for a run once a later one has started.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self) -> Result<(), String> {
        let mut last: BTreeMap<VmId, (u64, u64)> = BTreeMap::new();
        for entry in self.entries.borrow().iter() {
            match *entry {
                GuestEntry::Found(disk, found) => {
                    let (run, written) = last.get(&disk.vm).copied().unwrap_or_default();
                    if disk.run <= run {
                        return Err(format!("run {} has started behind run {run}", disk.run));
                    }
                    // One more may have been written that was not answered.
                    if found < written || found > written + 1 {
                        return Err(format!("run {} found {found}, and {written} was answered", disk.run));
                    }
                    last.insert(disk.vm, (disk.run, found));
                }
                GuestEntry::Wrote(disk, value) => {
                    let (run, _) = last.get(&disk.vm).copied().unwrap_or_default();
                    if disk.run != run {
                        return Err(format!(
                            "run {} has written {value} while run {run} was the last",
                            disk.run
                        ));
                    }
                    last.insert(disk.vm, (run, value));
                }
                GuestEntry::Arrived(disk, value) => {
                    let (run, written) = last.get(&disk.vm).copied().unwrap_or_default();
                    // One that was not moved after all goes on by the run that it has.
                    if disk.run < run || value != written {
                        return Err(format!(
                            "run {} goes on behind {value}, run {run} was at {written}",
                            disk.run
                        ));
                    }
                    last.insert(disk.vm, (disk.run, value));
                }
                GuestEntry::Failed(_) => {}
            }
        }
        Ok(())
    }
}

/// What runs guests on a node.
pub struct Guests {
    node: SimulatedNode,
    platform: SimulatedPlatform,
    log: Rc<GuestLog>,
    memory_bytes: u64,
    guests: RefCell<BTreeMap<VmId, Rc<Guest>>>,
    changed: Rc<Signal>,
}

struct Guest {
    disk: DiskName,
    device: Disk,
    condition: RefCell<Condition>,
    /// What it goes on behind when it runs again: what it was at when it was stopped to be sent, or what has come of it.
    at: Number,
    /// Whether it is to stop where it is.
    stops: Cell<bool>,
    /// Notified when it has.
    stopped: Signal,
    task: RefCell<Option<TaskHandle>>,
}

impl Guests {
    /// For a node, with so much memory.
    pub fn new(
        node: SimulatedNode,
        platform: SimulatedPlatform,
        log: Rc<GuestLog>,
        memory_bytes: u64,
    ) -> Rc<Self> {
        let (guests, changed) = (RefCell::default(), Rc::new(Signal::new()));
        Rc::new(Self { node, platform, log, memory_bytes, guests, changed })
    }

    async fn begin(&self, spec: VmSpec) -> Result<(), Error> {
        let disk = spec.disk;
        let device = self.node.exports().open(&disk.to_string()).await;
        let device = device.map_err(|error| refused(&format!("{error:?}")))?;
        if device.limits().read_only {
            return Err(refused("somebody else writes"));
        }
        let condition = if spec.is_arriving { Condition::Arriving } else { Condition::Running };
        let guest = Rc::new(Guest {
            disk,
            device,
            condition: RefCell::new(condition),
            at: Rc::default(),
            stops: Cell::new(false),
            stopped: Signal::new(),
            task: RefCell::default(),
        });
        if spec.is_arriving {
            self.log.arrivals.borrow_mut().insert((disk.vm, self.node.id()), Rc::clone(&guest.at));
        } else {
            self.run(&guest);
        }
        self.guests.borrow_mut().insert(disk.vm, guest);
        self.changed.notify_all();
        Ok(())
    }

    /// Has a guest run, from its boot on or from where it is.
    fn run(&self, guest: &Rc<Guest>) {
        let (platform, log, changed) =
            (self.platform.clone(), Rc::clone(&self.log), Rc::clone(&self.changed));
        guest.stops.set(false);
        let running = Rc::clone(guest);
        let task = self.platform.spawn(async move {
            match count(&running, &platform, &log).await {
                Ok(at) => running.at.set(Some(at)),
                Err(error) => {
                    log.entries.borrow_mut().push(GuestEntry::Failed(running.disk));
                    *running.condition.borrow_mut() =
                        Condition::Paused(format!("its disk has failed: {error}"));
                }
            }
            running.stopped.notify_all();
            changed.notify_all();
        });
        *guest.task.borrow_mut() = Some(task);
        *guest.condition.borrow_mut() = Condition::Running;
    }

    fn guest(&self, vm: VmId) -> Result<Rc<Guest>, Error> {
        self.guests.borrow().get(&vm).cloned().ok_or_else(|| refused("it is not here"))
    }
}

fn refused(why: &str) -> Error {
    Error::new("VM_NOT_STARTED", "nothing is done about a guest", why, "try again")
}

/// Counts on a disk, until that fails, or the guest is to stop: where it is then.
async fn count(guest: &Guest, platform: &SimulatedPlatform, log: &GuestLog) -> Result<u64, DeviceError> {
    let (disk, device) = (guest.disk, &guest.device);
    let mut value = match guest.at.take() {
        Some(at) => {
            log.entries.borrow_mut().push(GuestEntry::Arrived(disk, at));
            at
        }
        None => {
            platform.sleep(BOOT_TIME).await;
            let parts = device.read(0, BLOCK).await?;
            let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            let found = value_of(&bytes).expect("a block is never torn");
            log.entries.borrow_mut().push(GuestEntry::Found(disk, found));
            found
        }
    };
    while !guest.stops.get() {
        value += 1;
        device.write(0, content(platform.buffers(), value, BLOCK_SECTORS)).await?;
        log.entries.borrow_mut().push(GuestEntry::Wrote(disk, value));
        platform.sleep(log.pause.get().unwrap_or(PAUSE)).await;
    }
    Ok(value)
}

impl Hypervisor for Guests {
    fn host(&self) -> VmHost {
        VmHost { memory_bytes: self.memory_bytes, accelerator: "simulated".to_owned() }
    }

    fn instances(&self) -> LocalBoxFuture<'_, BTreeMap<VmId, Instance>> {
        let guests = self.guests.borrow();
        let instance =
            |guest: &Guest| Instance { run: guest.disk.run, condition: guest.condition.borrow().clone() };
        ready(guests.iter().map(|(vm, guest)| (*vm, instance(guest))).collect()).boxed_local()
    }

    fn start(&self, spec: VmSpec) -> LocalBoxFuture<'_, Result<(), Error>> {
        self.begin(spec).boxed_local()
    }

    fn send(&self, vm: VmId, to: NodeId) -> LocalBoxFuture<'_, Result<(), Error>> {
        let send = async move {
            let guest = self.guest(vm)?;
            let arrival = self.log.arrivals.borrow_mut().remove(&(vm, to));
            let arrival = arrival.ok_or_else(|| refused("nobody waits for it there"))?;
            self.platform.sleep(SEND_TIME).await;
            guest.stops.set(true);
            guest
                .stopped
                .wait_until(|| guest.at.get().is_some() || *guest.condition.borrow() != Condition::Running)
                .await;
            let at = guest.at.get().ok_or_else(|| refused("its disk has failed meanwhile"))?;
            *guest.condition.borrow_mut() = Condition::Paused("it was sent".to_owned());
            arrival.set(Some(at));
            Ok(())
        };
        send.boxed_local()
    }

    fn resume(&self, vm: VmId) -> LocalBoxFuture<'_, Result<(), Error>> {
        let resume = async move {
            let guest = self.guest(vm)?;
            if *guest.condition.borrow() != Condition::Running {
                self.run(&guest);
            }
            self.changed.notify_all();
            Ok(())
        };
        resume.boxed_local()
    }

    fn shut_down(&self, vm: VmId) -> LocalBoxFuture<'_, ()> {
        if let Ok(guest) = self.guest(vm) {
            if let Some(task) = guest.task.take() {
                task.abort();
            }
            *guest.condition.borrow_mut() = Condition::ShutDown;
        }
        self.changed.notify_all();
        ready(()).boxed_local()
    }

    fn end(&self, vm: VmId) -> LocalBoxFuture<'_, Result<(), Error>> {
        let guest = self.guests.borrow_mut().remove(&vm);
        if let Some(task) = guest.and_then(|guest| guest.task.take()) {
            task.abort();
        }
        self.changed.notify_all();
        ready(Ok(())).boxed_local()
    }

    fn changed(&self) -> LocalBoxFuture<'_, ()> {
        self.changed.notified().boxed_local()
    }
}
