//! Runs many tasks on one thread, in the order in which they were woken.
//!
//! Both makes of the platform run their tasks with this: linux one executor per shard thread,
//! the simulator one per simulated process (dropping it is that process's crash). It knows
//! nothing of time or I/O. A driver alternates: [`Executor::run_ready`], then whatever produces
//! wake-ups, then again.
//!
//! Invariants:
//! - A task runs only inside `run_ready`, never nested in another task.
//! - Tasks that are ready run in the order of their wake-ups, each at most once per wake-up, so
//!   that equal inputs give equal orders. Wake-ups from other threads count as of the moment at which they are
//!   taken, before a round.
//! - A waker may be used from any thread. If the driver sleeps, it is unparked.

#[allow(unsafe_code)]
mod wakers;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Context;

use wakers::{RemoteWakes, SLOTS_MAX, WokenTask};

type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// How a wake-up wakes the driver.
pub trait Unpark: Send + Sync + 'static {
    /// Makes the driver return from its wait.
    fn unpark(&self);
}

/// The tasks of one thread. Cheap to clone; all clones are the same executor.
#[derive(Clone)]
pub struct Executor {
    inner: Rc<Inner>,
}

struct Inner {
    /// By which wakers name it.
    number: u32,
    tasks: RefCell<TaskTable>,
    /// The tasks to run, in order.
    ready: RefCell<VecDeque<TaskName>>,
    /// Empty but for its memory, except while what it holds is run.
    batch: RefCell<VecDeque<TaskName>>,
    remote: Arc<RemoteWakes>,
    /// How often tasks were run.
    runs: Cell<u64>,
}

/// One task of an executor.
#[derive(Clone, Copy)]
struct TaskName {
    slot: u32,
    /// How many tasks were in the slot before.
    generation: u64,
}

#[derive(Default)]
struct TaskTable {
    slots: Vec<Slot>,
    free: Vec<u32>,
    live: usize,
}

struct Slot {
    generation: u64,
    /// Whether the task stands in the queue, so that many wake-ups are one.
    queued: bool,
    /// `None` while the task runs and after its end.
    task: Option<TaskFuture>,
}

impl Executor {
    /// An executor whose driver never sleeps in the kernel, as in a simulation.
    pub fn new() -> Self {
        Self::build(None)
    }

    /// An executor whose driver sleeps between [`Executor::prepare_sleep`] and
    /// [`Executor::end_sleep`]; `unpark` ends that sleep.
    pub fn with_unpark(unpark: impl Unpark) -> Self {
        Self::build(Some(Box::new(unpark)))
    }

    fn build(unpark: Option<Box<dyn Unpark>>) -> Self {
        let remote = Arc::new(RemoteWakes::new(unpark));
        let inner = wakers::register(|number| {
            let inner = Inner {
                number,
                tasks: RefCell::default(),
                ready: RefCell::default(),
                batch: RefCell::default(),
                remote: Arc::clone(&remote),
                runs: Cell::default(),
            };
            (Rc::new(inner), remote)
        });
        Self { inner }
    }

    /// Adds a task. It first runs in the next `run_ready` turn. Panics if there are a million already.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) -> TaskHandle {
        let task = self.inner.tasks.borrow_mut().add(Box::pin(future));
        self.inner.queue(task);
        TaskHandle { executor: Rc::downgrade(&self.inner), task }
    }

    /// Runs every task that is ready now, each once. Tasks woken meanwhile wait for the next
    /// call. Returns whether anything ran.
    pub fn run_ready(&self) -> bool {
        self.inner.take_remote();
        let mut batch = self.inner.batch.take();
        std::mem::swap(&mut *self.inner.ready.borrow_mut(), &mut batch);
        let any = !batch.is_empty();
        self.inner.runs.set(self.inner.runs.get() + batch.len() as u64);
        for task in batch.drain(..) {
            self.inner.poll(task);
        }
        self.inner.batch.replace(batch);
        any
    }

    /// Whether a task waits to run.
    pub fn has_ready(&self) -> bool {
        !self.inner.ready.borrow().is_empty() || self.inner.remote.any()
    }

    /// Announces that the driver is about to sleep. If this returns false, a task is ready and the
    /// driver must not sleep.
    pub fn prepare_sleep(&self) -> bool {
        self.inner.remote.set_sleeping(true);
        if !self.has_ready() {
            return true;
        }
        self.end_sleep();
        false
    }

    /// Announces that the driver is awake again.
    pub fn end_sleep(&self) {
        self.inner.remote.set_sleeping(false);
    }

    /// How often tasks were run so far, all together.
    pub fn runs(&self) -> u64 {
        self.inner.runs.get()
    }

    /// Tasks that have not ended.
    pub fn live_tasks(&self) -> usize {
        self.inner.tasks.borrow().live
    }

    /// Drops every task where it stands, as a crash does.
    pub fn drop_all_tasks(&self) {
        // A task's drop may spawn or wake others, so nothing is borrowed while it runs.
        loop {
            let tasks = self.inner.take_all();
            if tasks.is_empty() {
                return;
            }
            drop(tasks);
        }
    }
}

impl Default for Executor {
    fn default() -> Self {
        Self::new()
    }
}

impl Inner {
    /// Queues what other threads have woken.
    fn take_remote(&self) {
        for task in self.remote.take() {
            self.wake(task);
        }
    }

    /// Queues a task, unless it stands in the queue or has ended.
    fn wake(&self, woken: WokenTask) {
        let mut tasks = self.tasks.borrow_mut();
        if let Some(entry) = tasks.slots.get_mut(woken.slot as usize)
            && woken.may_be(entry.generation)
            && !std::mem::replace(&mut entry.queued, true)
        {
            let task = TaskName { slot: woken.slot, generation: entry.generation };
            drop(tasks);
            self.queue(task);
        }
    }

    fn queue(&self, task: TaskName) {
        self.ready.borrow_mut().push_back(task);
        // A driver may let others of its thread run while it sleeps, as the simulator does.
        self.remote.end_any_sleep();
    }

    fn poll(&self, task: TaskName) {
        let future = self.tasks.borrow_mut().entry(task).and_then(|entry| {
            // From here on a wake-up queues the task again.
            entry.queued = false;
            entry.task.take()
        });
        let Some(mut future) = future else { return };
        let waker = wakers::waker(self.number, task);
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let mut tasks = self.tasks.borrow_mut();
        match tasks.entry(task) {
            Some(entry) if !done => {
                entry.task = Some(future);
                return;
            }
            Some(_) => tasks.retire(task.slot),
            // It was aborted.
            None => {}
        }
        drop(tasks);
        drop(future);
    }

    fn take_all(&self) -> Vec<TaskFuture> {
        let mut tasks = self.tasks.borrow_mut();
        let mut taken = Vec::new();
        for slot in 0..tasks.slots.len() {
            if let Some(task) = tasks.slots[slot].task.take() {
                taken.push(task);
                tasks.retire(slot as u32);
            }
        }
        taken
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        wakers::unregister(self.number);
    }
}

impl TaskTable {
    fn add(&mut self, future: TaskFuture) -> TaskName {
        let slot = self.free.pop().unwrap_or_else(|| {
            assert!(self.slots.len() < SLOTS_MAX, "no more than {SLOTS_MAX} tasks at the same time");
            self.slots.push(Slot { generation: 0, queued: false, task: None });
            (self.slots.len() - 1) as u32
        });
        self.live += 1;
        let entry = &mut self.slots[slot as usize];
        (entry.queued, entry.task) = (true, Some(future));
        TaskName { slot, generation: entry.generation }
    }

    /// The slot of a task that has not ended.
    fn entry(&mut self, task: TaskName) -> Option<&mut Slot> {
        self.slots.get_mut(task.slot as usize).filter(|entry| entry.generation == task.generation)
    }

    fn retire(&mut self, slot: u32) {
        let entry = &mut self.slots[slot as usize];
        entry.generation += 1;
        self.free.push(slot);
        self.live -= 1;
    }
}

/// Names a spawned task. Dropping the handle leaves the task running.
#[derive(Clone)]
pub struct TaskHandle {
    executor: Weak<Inner>,
    task: TaskName,
}

impl TaskHandle {
    /// Drops the task where it stands; if it is running right now, at its next await.
    pub fn abort(&self) {
        let Some(inner) = self.executor.upgrade() else { return };
        let future = {
            let mut tasks = inner.tasks.borrow_mut();
            let Some(entry) = tasks.entry(self.task) else { return };
            let future = entry.task.take();
            tasks.retire(self.task.slot);
            future
        };
        drop(future);
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        let Some(inner) = self.executor.upgrade() else { return true };
        inner.tasks.borrow_mut().entry(self.task).is_none()
    }
}

#[cfg(test)]
#[path = "executor_tests.rs"]
mod tests;
