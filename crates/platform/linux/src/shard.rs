//! What all handles of one runtime share.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use rustix::fd::AsFd;
use rustix::rand::GetRandomFlags;
use rustix::time::ClockId;
use spandrel_platform::{BufferPool, Executor, Instant};

use crate::batch::Batch;
use crate::connection::Stream;
use crate::drive::DriveQueue;
use crate::mailbox::{Mailbox, Unparker, WakeFd};
use crate::reactor::Reactor;
use crate::remote::RemoteTask;
use crate::runtime::{RuntimeConfig, RuntimeError};
use crate::statistics::Counters;
use crate::timers::Timers;

/// The state of one runtime, on its thread.
pub(crate) struct Shard {
    pub(crate) config: RuntimeConfig,
    pub(crate) executor: Executor,
    pub(crate) reactor: Reactor,
    pub(crate) timers: Timers,
    pub(crate) buffers: BufferPool,
    pub(crate) counters: Counters,
    pub(crate) drives: DriveQueue,
    pub(crate) remote: Arc<Mailbox<RemoteTask>>,
    /// Connections that have something to send at the end of this turn.
    senders: Batch<Rc<Stream>>,
    /// Tasks that have had their share of this turn.
    deferred: Batch<Waker>,
    random: RefCell<RandomReserve>,
}

impl Shard {
    pub(crate) fn new(config: RuntimeConfig) -> Result<Rc<Self>, RuntimeError> {
        let wake = WakeFd::new().map_err(|error| RuntimeError::new("create an eventfd", error))?;
        let wake = Arc::new(wake);
        let reactor = Reactor::new(wake.as_ref().as_fd())
            .map_err(|error| RuntimeError::new("create an epoll set", error))?;
        let buffers = BufferPool::new(config.idle_buffer_bytes_max);
        Ok(Rc::new(Self {
            executor: Executor::with_unpark(Unparker(Arc::clone(&wake))),
            reactor,
            timers: Timers::default(),
            buffers,
            counters: Counters::default(),
            drives: DriveQueue::new(&config, Arc::clone(&wake)),
            remote: Arc::new(Mailbox::new(wake)),
            senders: Batch::default(),
            deferred: Batch::default(),
            random: RefCell::default(),
            config,
        }))
    }

    /// The time since the machine started.
    pub(crate) fn now(&self) -> Instant {
        let time = rustix::time::clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
        Instant::from_nanoseconds(seconds * 1_000_000_000 + nanoseconds)
    }

    /// The number of the present turn.
    pub(crate) fn turn(&self) -> u64 {
        self.counters.turns.get()
    }

    pub(crate) fn random_u64(&self) -> u64 {
        self.random.borrow_mut().next()
    }

    /// Has `stream` flushed at the end of this turn.
    pub(crate) fn add_sender(&self, stream: Rc<Stream>) {
        self.senders.push(stream);
    }

    /// Sends what connections have queued, one call for each.
    pub(crate) fn flush_senders(&self) {
        self.senders.for_each(Stream::flush_in_turn);
    }

    /// Wakes `waker` in the next turn.
    pub(crate) fn defer(&self, waker: Waker) {
        self.deferred.push(waker);
    }

    /// Completes in the next turn.
    pub(crate) async fn next_turn(&self) {
        let turn = self.turn();
        poll_fn(|context| {
            if self.turn() != turn {
                return Poll::Ready(());
            }
            self.defer(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Wakes those who waited for this turn.
    pub(crate) fn wake_deferred(&self) {
        self.deferred.for_each(Waker::wake);
    }

    /// Whether something is left to do that no event would announce.
    pub(crate) fn has_work(&self) -> bool {
        self.executor.has_ready()
            || !self.deferred.is_empty()
            || !self.senders.is_empty()
            || self.remote.is_pending()
            || self.drives.has_work()
    }

    /// Lets go of everything that tasks left behind and waits for the drives to be done with their
    /// memory and files.
    pub(crate) fn end(&self) {
        drop(self.remote.close());
        self.executor.drop_all_tasks();
        self.deferred.clear();
        self.senders.clear();
        self.drives.end();
    }
}

/// How much of a turn one receiver, or one listener, may use before the others have theirs.
#[derive(Default)]
pub(crate) struct TurnBudget {
    turn: Cell<u64>,
    used: Cell<usize>,
}

impl TurnBudget {
    /// Whether less than `limit` was spent in `turn`.
    pub(crate) fn is_left(&self, turn: u64, limit: usize) -> bool {
        self.turn.get() != turn || self.used.get() < limit
    }

    /// Spends `amount` in `turn`.
    pub(crate) fn spend(&self, turn: u64, amount: usize) {
        let before = if self.turn.replace(turn) == turn { self.used.get() } else { 0 };
        self.used.set(before + amount);
    }
}

/// Random numbers in stock, so that few of them cost a system call.
#[derive(Default)]
struct RandomReserve {
    stock: Vec<u64>,
}

impl RandomReserve {
    fn next(&mut self) -> u64 {
        if let Some(number) = self.stock.pop() {
            return number;
        }
        // The kernel delivers up to 256 bytes whole.
        let mut bytes = [0_u8; 256];
        let count = rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty())
            .expect("getrandom waits until the kernel has randomness and takes up to 256 bytes");
        assert_eq!(count, bytes.len(), "getrandom delivers 256 bytes whole");
        let numbers = bytes.as_chunks::<8>().0.iter().map(|chunk| u64::from_ne_bytes(*chunk));
        self.stock.extend(numbers);
        self.stock.pop().expect("the stock was just filled")
    }
}
