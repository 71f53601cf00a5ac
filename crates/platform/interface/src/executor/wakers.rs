//! Wakers that are numbers.
//!
//! A waker names its executor, and the slot and the generation of its task, in the 64 bits of its pointer. Nothing is counted: to
//! clone it, to drop it and, on its executor's thread, to wake with it takes no atomic read-modify-write. That is worth more than the
//! few instructions: such a one waits for all stores before it, also those past the caches, by which blocks go to drives in memory.
//!
//! Invariants:
//! - What a waker names may be gone. Then it wakes nobody; after a quarter of a million tasks in one slot it may be a spurious
//!   wake-up of another one, which futures tolerate.
//! - Wake-ups from other threads are kept until the driver takes them, each of them: who wakes wakes once for each time that the
//!   task has asked for it.
//! - The number of an executor that lives is no other one's.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::{Inner, TaskName, Unpark};

const EXECUTOR_BITS: u32 = 26;
const SLOT_BITS: u32 = 20;
const GENERATION_BITS: u32 = 18;
const _: () = assert!(EXECUTOR_BITS + SLOT_BITS + GENERATION_BITS == usize::BITS, "64-bit machines alone");

/// Tasks that an executor can have at the same time.
pub(super) const SLOTS_MAX: usize = 1 << SLOT_BITS;

/// What a waker says of its task.
#[derive(Clone, Copy)]
pub(super) struct WokenTask {
    pub(super) slot: u32,
    /// As much of it as there is room for.
    generation: u32,
}

impl WokenTask {
    /// Whether it may mean the task of this generation.
    pub(super) fn may_be(self, generation: u64) -> bool {
        self.generation == low_bits(generation)
    }
}

fn low_bits(generation: u64) -> u32 {
    (generation % (1 << GENERATION_BITS)) as u32
}

thread_local! {
    /// The executors of this thread, by number, ascending.
    static HERE: RefCell<Vec<(u32, Weak<Inner>)>> = const { RefCell::new(Vec::new()) };
}

/// The executors of all threads.
static EVERYWHERE: Mutex<Registry> = Mutex::new(Registry { next: 0, executors: BTreeMap::new() });

struct Registry {
    next: u32,
    executors: BTreeMap<u32, Arc<RemoteWakes>>,
}

fn everywhere() -> MutexGuard<'static, Registry> {
    EVERYWHERE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What other threads have woken of one executor.
pub(super) struct RemoteWakes {
    tasks: Mutex<Vec<WokenTask>>,
    /// Whether there are some, to be seen without the lock. Changed with the lock alone.
    any: AtomicBool,
    sleeping: AtomicBool,
    unpark: Option<Box<dyn Unpark>>,
}

impl RemoteWakes {
    pub(super) fn new(unpark: Option<Box<dyn Unpark>>) -> Self {
        Self {
            tasks: Mutex::default(),
            any: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            unpark,
        }
    }

    fn push(&self, task: WokenTask) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.push(task);
        self.any.store(true, Ordering::SeqCst);
        drop(tasks);
        // Either this sees that the driver sleeps, or the driver has seen that there are some.
        self.end_any_sleep();
    }

    /// Unparks the driver if it sleeps.
    pub(super) fn end_any_sleep(&self) {
        if self.sleeping.load(Ordering::SeqCst)
            && let Some(unpark) = &self.unpark
        {
            unpark.unpark();
        }
    }

    pub(super) fn any(&self) -> bool {
        self.any.load(Ordering::SeqCst)
    }

    /// Takes them. Whatever was left for these tasks before they were woken is seen from here on.
    pub(super) fn take(&self) -> Vec<WokenTask> {
        if !self.any() {
            return Vec::new();
        }
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        self.any.store(false, Ordering::SeqCst);
        std::mem::take(&mut *tasks)
    }

    pub(super) fn set_sleeping(&self, sleeping: bool) {
        self.sleeping.store(sleeping, Ordering::SeqCst);
    }
}

/// Makes an executor of the calling thread known under a number of its own.
pub(super) fn register(build: impl FnOnce(u32) -> (Rc<Inner>, Arc<RemoteWakes>)) -> Rc<Inner> {
    let mut registry = everywhere();
    let mut number = registry.next;
    while registry.executors.contains_key(&number) {
        number = (number + 1) % (1 << EXECUTOR_BITS);
    }
    registry.next = (number + 1) % (1 << EXECUTOR_BITS);
    let (inner, remote) = build(number);
    registry.executors.insert(number, remote);
    drop(registry);
    HERE.with_borrow_mut(|here| {
        let place = here.partition_point(|(other, _)| *other < number);
        here.insert(place, (number, Rc::downgrade(&inner)));
    });
    inner
}

/// Forgets an executor: its tasks are not woken any more.
pub(super) fn unregister(number: u32) {
    // A thread that ends may have forgotten it already.
    let _ = HERE.try_with(|here| here.borrow_mut().retain(|(other, _)| *other != number));
    let remote = everywhere().executors.remove(&number);
    drop(remote);
}

/// A waker of a task of the executor with this number.
pub(super) fn waker(executor: u32, task: TaskName) -> Waker {
    let bits = (executor as usize) << (SLOT_BITS + GENERATION_BITS)
        | (task.slot as usize) << GENERATION_BITS
        | low_bits(task.generation) as usize;
    // SAFETY: the functions of the table never follow the pointer, which is a number; so they may be called from any thread, in any
    // order and at any time.
    unsafe { Waker::from_raw(raw(std::ptr::without_provenance(bits))) }
}

fn raw(data: *const ()) -> RawWaker {
    static TABLE: RawWakerVTable = RawWakerVTable::new(raw, wake, wake, |_| {});
    RawWaker::new(data, &TABLE)
}

fn wake(data: *const ()) {
    let bits = data.addr();
    let field = |bits: usize, width: u32| (bits & ((1 << width) - 1)) as u32;
    let task = WokenTask {
        slot: field(bits >> GENERATION_BITS, SLOT_BITS),
        generation: field(bits, GENERATION_BITS),
    };
    let executor = field(bits >> (SLOT_BITS + GENERATION_BITS), EXECUTOR_BITS);
    let here = HERE.try_with(|here| {
        let here = here.borrow();
        let place = here.binary_search_by_key(&executor, |(number, _)| *number).ok()?;
        Some(here[place].1.upgrade())
    });
    match here {
        Ok(Some(inner)) => inner.iter().for_each(|inner| inner.wake(task)),
        Ok(None) | Err(_) => {
            let remote = everywhere().executors.get(&executor).cloned();
            remote.iter().for_each(|remote| remote.push(task));
        }
    }
}
