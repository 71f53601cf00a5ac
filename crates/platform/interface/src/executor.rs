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
//!   that equal inputs give equal orders.
//! - A waker may be used from any thread. If the driver sleeps, it is unparked.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// How another thread's wake-up gets the driver out of its sleep.
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
    tasks: RefCell<TaskTable>,
    ready: Arc<ReadyQueue>,
    /// Empty but for its memory, except while what it holds is run.
    batch: RefCell<VecDeque<(usize, u64)>>,
    /// How often tasks were run.
    runs: Cell<u64>,
}

#[derive(Default)]
struct TaskTable {
    slots: Vec<Slot>,
    free: Vec<usize>,
    live: usize,
}

struct Slot {
    generation: u64,
    /// `None` while the task runs and after its end.
    task: Option<Task>,
}

struct Task {
    future: TaskFuture,
    state: Arc<TaskWaker>,
    /// The same, as futures are given it: not made anew each time that the task runs.
    waker: Waker,
}

struct ReadyQueue {
    /// Slot and generation of the tasks to run, in order.
    tasks: Mutex<VecDeque<(usize, u64)>>,
    sleeping: AtomicBool,
    unpark: Option<Box<dyn Unpark>>,
}

impl ReadyQueue {
    fn push(&self, slot: usize, generation: u64) {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).push_back((slot, generation));
        if self.sleeping.load(Ordering::SeqCst)
            && let Some(unpark) = &self.unpark
        {
            unpark.unpark();
        }
    }

    fn take(&self, into: &mut VecDeque<(usize, u64)>) {
        std::mem::swap(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner), into);
    }

    fn is_empty(&self) -> bool {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

struct TaskWaker {
    slot: usize,
    generation: u64,
    /// Set while the task stands in the queue, so that many wake-ups are one.
    queued: AtomicBool,
    ready: Arc<ReadyQueue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.push(self.slot, self.generation);
        }
    }
}

impl Executor {
    /// An executor whose driver never sleeps in the kernel, as in a simulation.
    pub fn new() -> Self {
        Self::build(None)
    }

    /// An executor whose driver sleeps between [`Executor::prepare_sleep`] and
    /// [`Executor::end_sleep`]; `unpark` ends that sleep from another thread.
    pub fn with_unpark(unpark: impl Unpark) -> Self {
        Self::build(Some(Box::new(unpark)))
    }

    fn build(unpark: Option<Box<dyn Unpark>>) -> Self {
        let ready =
            ReadyQueue { tasks: Mutex::new(VecDeque::new()), sleeping: AtomicBool::new(false), unpark };
        let (tasks, batch, runs) = (RefCell::default(), RefCell::default(), Cell::default());
        Self { inner: Rc::new(Inner { tasks, ready: Arc::new(ready), batch, runs }) }
    }

    /// Adds a task. It first runs in the next `run_ready` turn.
    pub fn spawn(&self, future: impl Future<Output = ()> + 'static) -> TaskHandle {
        let mut tasks = self.inner.tasks.borrow_mut();
        let slot = tasks.free.pop().unwrap_or_else(|| {
            tasks.slots.push(Slot { generation: 0, task: None });
            tasks.slots.len() - 1
        });
        tasks.live += 1;
        let entry = &mut tasks.slots[slot];
        let generation = entry.generation;
        let state = Arc::new(TaskWaker {
            slot,
            generation,
            queued: AtomicBool::new(true),
            ready: Arc::clone(&self.inner.ready),
        });
        let waker = Waker::from(Arc::clone(&state));
        entry.task = Some(Task { future: Box::pin(future), state, waker });
        drop(tasks);
        self.inner.ready.push(slot, generation);
        TaskHandle { executor: Rc::downgrade(&self.inner), slot, generation }
    }

    /// Runs every task that is ready now, each once. Tasks woken meanwhile wait for the next
    /// call. Returns whether anything ran.
    pub fn run_ready(&self) -> bool {
        let mut batch = self.inner.batch.take();
        self.inner.ready.take(&mut batch);
        let any = !batch.is_empty();
        self.inner.runs.set(self.inner.runs.get() + batch.len() as u64);
        for (slot, generation) in batch.drain(..) {
            self.inner.poll(slot, generation);
        }
        self.inner.batch.replace(batch);
        any
    }

    /// Whether a task waits to run.
    pub fn has_ready(&self) -> bool {
        !self.inner.ready.is_empty()
    }

    /// Announces that the driver is about to sleep. If this returns false, a task is ready and the
    /// driver must not sleep.
    pub fn prepare_sleep(&self) -> bool {
        self.inner.ready.sleeping.store(true, Ordering::SeqCst);
        if self.inner.ready.is_empty() {
            return true;
        }
        self.end_sleep();
        false
    }

    /// Announces that the driver is awake again.
    pub fn end_sleep(&self) {
        self.inner.ready.sleeping.store(false, Ordering::SeqCst);
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
    fn poll(&self, slot: usize, generation: u64) {
        let mut task = {
            let mut tasks = self.tasks.borrow_mut();
            let entry = &mut tasks.slots[slot];
            if entry.generation != generation {
                return;
            }
            let Some(task) = entry.task.take() else { return };
            task
        };
        // From here on a wake-up queues the task again. Swapped, not stored: whoever woke the task before this, and found it queued,
        // has left something that the run has to see, and a store might take effect only after the run has looked for it.
        task.state.queued.swap(false, Ordering::AcqRel);
        let done = task.future.as_mut().poll(&mut Context::from_waker(&task.waker)) == Poll::Ready(());
        let mut tasks = self.tasks.borrow_mut();
        let aborted = tasks.slots[slot].generation != generation;
        if !done && !aborted {
            tasks.slots[slot].task = Some(task);
            return;
        }
        if done && !aborted {
            tasks.retire(slot);
        }
        drop(tasks);
        drop(task);
    }

    fn take_all(&self) -> Vec<Task> {
        let mut tasks = self.tasks.borrow_mut();
        let mut taken = Vec::new();
        for slot in 0..tasks.slots.len() {
            if let Some(task) = tasks.slots[slot].task.take() {
                taken.push(task);
                tasks.retire(slot);
            }
        }
        taken
    }
}

impl TaskTable {
    fn retire(&mut self, slot: usize) {
        let entry = &mut self.slots[slot];
        entry.generation += 1;
        self.free.push(slot);
        self.live -= 1;
    }
}

/// Names a spawned task. Dropping the handle leaves the task running.
#[derive(Clone)]
pub struct TaskHandle {
    executor: Weak<Inner>,
    slot: usize,
    generation: u64,
}

impl TaskHandle {
    /// Drops the task where it stands; if it is running right now, at its next await.
    pub fn abort(&self) {
        let Some(inner) = self.executor.upgrade() else { return };
        let task = {
            let mut tasks = inner.tasks.borrow_mut();
            let entry = &mut tasks.slots[self.slot];
            if entry.generation != self.generation {
                return;
            }
            let task = entry.task.take();
            tasks.retire(self.slot);
            task
        };
        drop(task);
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        let Some(inner) = self.executor.upgrade() else { return true };
        inner.tasks.borrow().slots[self.slot].generation != self.generation
    }
}

#[cfg(test)]
#[path = "executor_tests.rs"]
mod tests;
