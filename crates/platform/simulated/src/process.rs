//! A simulated process: the tasks of one executor, from start to crash.
//!
//! A process takes turns. In one it runs every task that is ready, each once; then what the tasks
//! queued on connections leaves. Between turns it may be paused or crash; a crash that its own
//! turn asks for (as a planned crash of a drive does) takes effect at once for everything outside
//! and ends the tasks when the turn is over.
//!
//! Invariants:
//! - A stopped process reaches neither drives nor connections.
//! - A process stands in the ready list at most once.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use spandrel_platform::{BufferPool, Executor, TaskHandle, Unpark};

use crate::connection::{ConnectionState, Side};
use crate::events::Event;
use crate::host::{Host, HostState};
use crate::platform::SimulatedPlatform;
use crate::random::{Random, nanoseconds_of};
use crate::trace::Kind;
use crate::world::{RunEnd, Shared};

/// The processes that have something to run, by number. Wakers reach it, and they are `Send`;
/// hence the lock, which nobody contends.
#[derive(Default)]
pub(crate) struct ReadyList {
    processes: Mutex<VecDeque<usize>>,
}

impl ReadyList {
    fn push(&self, process: usize) {
        self.lock().push_back(process);
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Takes the process at `index`. The last one moves to its place, unless it was the first.
    pub(crate) fn take(&self, index: usize) -> Option<usize> {
        let mut processes = self.lock();
        if index == 0 { processes.pop_front() } else { processes.swap_remove_back(index) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<usize>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Puts its process on the ready list, once.
struct ReadyMark {
    process: usize,
    listed: AtomicBool,
    list: Arc<ReadyList>,
}

impl ReadyMark {
    fn set(&self) {
        if !self.listed.swap(true, Ordering::Relaxed) {
            self.list.push(self.process);
        }
    }
}

struct Unparker(Arc<ReadyMark>);

impl Unpark for Unparker {
    fn unpark(&self) {
        self.0.set();
    }
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The process alone; its host's kernel closes its connections.
    Crash,
    /// With its host's power.
    PowerCut,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Running,
    Paused,
    /// Its end is decided; its turn, or what else runs on its behalf, has to return first.
    Doomed,
    Ended,
}

pub(crate) struct ProcessState {
    pub(crate) number: usize,
    pub(crate) name: String,
    pub(crate) incarnation: u64,
    pub(crate) host: Rc<HostState>,
    pub(crate) shared: Rc<Shared>,
    pub(crate) executor: Executor,
    pub(crate) random: Random,
    pub(crate) buffers: BufferPool,
    status: Cell<Status>,
    in_turn: Cell<bool>,
    pauses: Cell<u64>,
    ready: Arc<ReadyMark>,
    /// The connections on which this turn has queued something.
    unsent: RefCell<Vec<(Rc<ConnectionState>, Side)>>,
}

impl ProcessState {
    pub(crate) fn new(
        shared: &Rc<Shared>,
        host: &Rc<HostState>,
        name: &str,
        number: usize,
        incarnation: u64,
    ) -> Rc<Self> {
        let list = Arc::clone(&shared.ready);
        let ready = Arc::new(ReadyMark { process: number, listed: AtomicBool::new(false), list });
        let executor = Executor::with_unpark(Unparker(Arc::clone(&ready)));
        // From here on a task that becomes ready outside a turn puts the process on the list.
        executor.prepare_sleep();
        shared.record(Kind::ProcessStart, [number as u64, incarnation, host.number.into()], || {
            format!("{name}: process starts (incarnation {incarnation})")
        });
        Rc::new(Self {
            number,
            name: name.to_owned(),
            incarnation,
            host: Rc::clone(host),
            shared: Rc::clone(shared),
            executor,
            random: Random::stream(shared.seed, name, incarnation),
            // Thousands of worlds come and go in one test; none needs much idle memory.
            buffers: BufferPool::new(4 << 20),
            status: Cell::new(Status::Running),
            in_turn: Cell::new(false),
            pauses: Cell::new(0),
            ready,
            unsent: RefCell::default(),
        })
    }

    /// Whether nothing of what it does reaches the outside any more.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self.status.get(), Status::Doomed | Status::Ended)
    }

    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + 'static) -> TaskHandle {
        let handle = self.executor.spawn(task);
        if self.status.get() == Status::Ended {
            handle.abort();
        }
        handle
    }

    /// Notes that a connection has something to send when the turn ends.
    pub(crate) fn send_after_turn(&self, connection: Rc<ConnectionState>, side: Side) {
        self.unsent.borrow_mut().push((connection, side));
        if !self.in_turn.get() {
            self.ready.set();
        }
    }

    /// Runs what is ready, then sends what it queued.
    pub(crate) fn take_turn(self: &Rc<Self>) {
        if self.status.get() != Status::Running {
            // A paused process stays marked, so that its wake-ups cost nothing until it resumes.
            return;
        }
        self.shared.record_silently(Kind::Turn, [self.number as u64, 0, 0]);
        self.ready.listed.store(false, Ordering::Relaxed);
        self.executor.end_sleep();
        self.in_turn.set(true);
        self.executor.run_ready();
        self.in_turn.set(false);
        for (connection, side) in self.unsent.take() {
            connection.transmit(side);
        }
        if !self.executor.prepare_sleep() {
            self.ready.set();
        }
    }

    /// Ends the process: at once, or when its turn is over if it is in one.
    pub(crate) fn end(self: &Rc<Self>, end: End) {
        if self.in_turn.get() {
            self.doom(end);
        } else {
            self.end_now(end);
        }
    }

    /// From now on nothing that the process does has an effect; it ends when the present turn or
    /// event is over.
    pub(crate) fn doom(self: &Rc<Self>, end: End) {
        if !self.is_stopped() {
            self.status.set(Status::Doomed);
            self.shared.end_after_step(self, end);
        }
    }

    pub(crate) fn end_now(self: &Rc<Self>, end: End) {
        if self.status.replace(Status::Ended) == Status::Ended {
            return;
        }
        self.shared.record(Kind::ProcessEnd, [self.number as u64, end as u64, 0], || match end {
            End::Crash => format!("{}: process crashes", self.name),
            End::PowerCut => format!("{}: process ends with its host's power", self.name),
        });
        self.shared.process_ended(self, end);
        self.executor.drop_all_tasks();
        self.unsent.take();
    }

    /// Drops all tasks because the world ends.
    pub(crate) fn tear_down(&self) {
        self.status.set(Status::Ended);
        self.executor.drop_all_tasks();
        self.unsent.take();
    }

    fn pause(self: &Rc<Self>) -> u64 {
        self.pauses.set(self.pauses.get() + 1);
        if self.status.get() == Status::Running {
            self.status.set(Status::Paused);
            self.shared.record(Kind::ProcessPause, [self.number as u64, 1, 0], || {
                format!("{}: process pauses", self.name)
            });
        }
        self.pauses.get()
    }

    /// Ends the pause, unless it has been replaced by another.
    pub(crate) fn resume_from(self: &Rc<Self>, pause: u64) {
        if self.pauses.get() == pause {
            self.resume();
        }
    }

    fn resume(&self) {
        if self.status.get() != Status::Paused {
            return;
        }
        self.shared.record(Kind::ProcessPause, [self.number as u64, 0, 0], || {
            format!("{}: process resumes", self.name)
        });
        self.status.set(Status::Running);
        let was_listed = self.ready.listed.swap(false, Ordering::Relaxed);
        if was_listed || self.executor.has_ready() {
            self.ready.set();
        }
    }
}

/// A simulated process. Cheap to clone; all clones are the same incarnation.
#[derive(Clone)]
pub struct Process {
    pub(crate) state: Rc<ProcessState>,
}

impl Process {
    /// The name it was started under.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Which start of this name it is, from 1 on.
    pub fn incarnation(&self) -> u64 {
        self.state.incarnation
    }

    /// The host that it runs on.
    pub fn host(&self) -> Host {
        Host { state: Rc::clone(&self.state.host) }
    }

    /// The platform that its code runs on.
    pub fn platform(&self) -> SimulatedPlatform {
        SimulatedPlatform::new(Rc::clone(&self.state))
    }

    /// Whether it has neither crashed nor lost its host's power.
    pub fn is_alive(&self) -> bool {
        !self.state.is_stopped()
    }

    /// Starts a task in it.
    pub fn spawn(&self, task: impl Future<Output = ()> + 'static) -> TaskHandle {
        self.state.spawn(task)
    }

    /// Runs the world until `future`, run in this process, has completed.
    ///
    /// # Errors
    ///
    /// Why the world stopped before that.
    pub fn block_on<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> Result<T, RunEnd> {
        let output = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&output);
        let task = self.spawn(async move {
            let value = future.await;
            *slot.borrow_mut() = Some(value);
        });
        let limits = self.state.shared.config.limits;
        let end = self.state.shared.run(limits, &mut || output.borrow().is_some());
        match output.take() {
            Some(value) => Ok(value),
            None => {
                task.abort();
                Err(end)
            }
        }
    }

    /// Ends it as a kill does: its tasks are gone, its connections break, its operations in
    /// flight on drives have an open outcome, what completed stays. Does nothing if it has ended.
    pub fn crash(&self) {
        self.state.end(End::Crash);
    }

    /// Runs nothing of it for `duration`, as a stopped virtual machine or a long page fault does.
    /// Drives and connections go on; it finds their results when it resumes.
    pub fn pause(&self, duration: Duration) {
        let pause = self.state.pause();
        let at = self.state.shared.now().saturating_add(nanoseconds_of(duration));
        self.state.shared.plan(at, Event::Resume(Rc::clone(&self.state), pause));
    }

    /// Runs nothing of it until [`Process::resume`].
    pub fn pause_until_resumed(&self) {
        self.state.pause();
    }

    /// Ends any pause.
    pub fn resume(&self) {
        self.state.resume();
    }
}

impl fmt::Debug for Process {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Process({}, incarnation {})", self.state.name, self.state.incarnation)
    }
}
