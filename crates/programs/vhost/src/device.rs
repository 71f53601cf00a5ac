//! The queues of one connection, on the thread of the shard that serves the disk.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::Future;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use futures_channel::mpsc::UnboundedReceiver;
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use spandrel_frontend::virtio::{GuestSide, QueueSetup, VirtioQueue};
use spandrel_platform_linux::{LinuxPlatform, Watched};
use spandrel_volume::{BlockDevice, DeviceLimits};

use crate::dirty_log::{DirtyBitmap, DirtyLog};
use crate::memory::Memory;
use crate::record::QueueRecord;

/// Where a word of the shard is awaited.
pub(crate) type Reply<T> = SyncSender<T>;

/// What the shard is told. Whoever waits for a reply that does not come learns that by its sender's end.
pub(crate) enum Command {
    /// A machine has connected.
    Connected(CutOff),
    /// The guest's memory is this from now on. No queue is served before.
    Memory(Arc<Memory>, Reply<()>),
    /// A queue is to be served.
    Start(Box<Start>),
    /// A queue is not to be served any more. How many requests were taken from it, modulo 65,536; none if it was not served.
    Stop(u32, Reply<Option<u16>>),
    /// The guest is woken by this from now on.
    Call(u32, Option<OwnedFd>),
    /// The disk's sizes are asked for.
    Limits(Reply<DeviceLimits>),
    /// What is changed in the guest's memory is marked in this bitmap from now on, or in none.
    MarkIn(Arc<DirtyLog>, Option<DirtyBitmap>, Reply<()>),
}

/// The connection of a machine, which is cut off when this is dropped: if the shard ends, it is to look for whoever serves it next.
pub(crate) struct CutOff(pub(crate) UnixStream);

impl Drop for CutOff {
    fn drop(&mut self) {
        // One that is gone already needs no word.
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

/// A queue that is to be served.
pub(crate) struct Start {
    pub(crate) index: u32,
    pub(crate) setup: QueueSetup,
    /// By which the guest wakes this side.
    pub(crate) kick: OwnedFd,
    /// By which it is woken.
    pub(crate) call: Option<OwnedFd>,
    pub(crate) record: QueueRecord,
    pub(crate) reply: Reply<Result<(), String>>,
}

/// A guest's side of one queue.
struct Ring {
    memory: Rc<RefCell<Arc<Memory>>>,
    kick: Watched,
    call: Rc<RefCell<Option<OwnedFd>>>,
    record: QueueRecord,
}

impl GuestSide for Ring {
    type Memory = Memory;

    fn memory(&self) -> Arc<Memory> {
        Arc::clone(&self.memory.borrow())
    }

    fn kicked(&self) -> impl Future<Output = ()> {
        self.kick.written()
    }

    fn interrupt(&self) {
        wake(self.call.borrow().as_ref());
    }

    fn begun(&self, head: u16) {
        self.record.begun(head);
    }

    fn ending(&self, head: u16) {
        self.record.ending(head);
    }

    fn ended(&self, head: u16, used: u16) {
        self.record.ended(head, used);
    }
}

/// Wakes the guest, if there is something by which.
fn wake(call: Option<&OwnedFd>) {
    if let Some(call) = call {
        // This fails only when the guest has been woken very often and has not looked.
        let _ = rustix::io::write(call, &1_u64.to_ne_bytes());
    }
}

/// A queue that is served, and by what its guest is woken.
struct Served<D: BlockDevice> {
    queue: VirtioQueue<LinuxPlatform, D, Ring>,
    call: Rc<RefCell<Option<OwnedFd>>>,
}

/// Serves a disk's queues as it is told, until nobody tells it anything any more and all that was begun has ended.
pub(crate) async fn serve<D: BlockDevice>(
    platform: LinuxPlatform,
    device: D,
    mut commands: UnboundedReceiver<Command>,
) {
    let mut memory: Option<Rc<RefCell<Arc<Memory>>>> = None;
    let mut queues: BTreeMap<u32, Served<D>> = BTreeMap::new();
    let mut machine: Option<CutOff> = None;
    while let Some(command) = commands.next().await {
        // Whoever does not wait for a reply any more needs none.
        match command {
            Command::Connected(connected) => machine = Some(connected),
            Command::Memory(new, reply) => {
                match &memory {
                    Some(memory) => *memory.borrow_mut() = new,
                    None => memory = Some(Rc::new(RefCell::new(new))),
                }
                let _ = reply.send(());
            }
            Command::Start(start) => {
                let (index, reply) = (start.index, start.reply.clone());
                let started = start_queue(&platform, &device, memory.as_ref(), *start);
                let _ = reply.send(started.map(|served| drop(queues.insert(index, served))));
            }
            Command::Stop(index, reply) => {
                let taken = match queues.remove(&index) {
                    Some(served) => Some(served.queue.stop().await),
                    None => None,
                };
                let _ = reply.send(taken);
            }
            Command::Call(index, call) => {
                if let Some(served) = queues.get(&index) {
                    // Of what was answered so far the former one may have told nobody.
                    wake(call.as_ref());
                    served.call.replace(call);
                }
            }
            Command::Limits(reply) => drop(reply.send(device.limits())),
            Command::MarkIn(log, bitmap, reply) => {
                log.set(bitmap);
                let _ = reply.send(());
            }
        }
    }
    // All at once, so that none takes anything any more while others end.
    join_all(queues.values().map(|served| served.queue.stop())).await;
    drop(machine);
}

fn start_queue<D: BlockDevice>(
    platform: &LinuxPlatform,
    device: &D,
    memory: Option<&Rc<RefCell<Arc<Memory>>>>,
    start: Start,
) -> Result<Served<D>, String> {
    let memory = memory.ok_or("a queue is begun before the guest's memory is known")?;
    let kick = platform
        .watch(start.kick)
        .map_err(|error| format!("a queue's eventfd cannot be watched: {error}"))?;
    let call = Rc::new(RefCell::new(start.call));
    let ring = Ring { memory: Rc::clone(memory), kick, call: Rc::clone(&call), record: start.record };
    let queue = VirtioQueue::start(platform.clone(), device.clone(), ring, start.setup)?;
    Ok(Served { queue, call })
}
