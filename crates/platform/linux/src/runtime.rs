//! The event loop of one shard.
//!
//! One turn is: take in what other threads, timers and the kernel have brought; run the tasks that
//! are ready, round after round up to a bound; send what they queued, one call per connection; give
//! their drive operations to the kernel in one call; then wait. The order carries the throughput:
//! messages that leave together cost a tenth of single ones, and what goes to other machines leaves
//! before the local drive is kept busy.
//!
//! Invariants:
//! - The loop sleeps in the kernel when there is nothing to do, and only then.
//! - Whatever is queued is sent or submitted before the loop sleeps.
//! - No memory that the kernel may still use is freed, not even when the runtime is dropped.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use spandrel_platform::Instant;

use crate::cores::Cores;
use crate::drive::SimulatedMedium;
use crate::platform::LinuxPlatform;
use crate::remote::RemoteHandle;
use crate::scheduling;
use crate::shard::Shard;
use crate::spin::Spin;
use crate::statistics::RuntimeStatistics;

/// Rounds of ready tasks in one turn. Tasks that wake each other settle within few; the bound keeps
/// tasks that are always ready from holding up everybody's messages.
const ROUNDS_PER_TURN: usize = 16;

/// Turns in a row that may leave the sockets unasked while there is other work.
const TURNS_WITHOUT_POLL_MAX: u32 = 3;

/// What can be set of a runtime.
#[derive(Clone, Debug)]
pub struct RuntimeConfig {
    /// How long [`connect`](spandrel_platform::Platform::connect) waits for an answer.
    pub connect_timeout: Duration,
    /// How long the loop looks for events before it sleeps, in microseconds, when its last waits were shorter than that. Zero,
    /// the default, sleeps at once. Between looks it gives its core away.
    pub spin_us_max: u32,
    /// The cores on which the runtime's thread, and those that serve drives for it, the kernel's too, stay; anywhere if there
    /// are none.
    pub cores: Option<Cores>,
    /// Whether the runtime's thread gives way: when it wakes, and a core is busy with another thread, it waits for its turn
    /// instead of taking the core at once (the kernel's `SCHED_BATCH`). Threads that wake each other all the time then do more
    /// at once and change places less often. The threads that it starts do the same. Where the system forbids it, or somebody has
    /// chosen another policy for the thread, that stays as it is. After a short wait the runtime's thread also lets others go
    /// first once before it sleeps, if it may look for events.
    pub gives_way: bool,
    /// Whether connections to threads of this process that have this set as well go through memory instead of the kernel's
    /// sockets, also those by TCP.
    pub stays_in_process: bool,
    /// Whether drives may use io_uring. Where it is false, or the kernel says no, drives are served
    /// by threads.
    pub use_io_uring: bool,
    /// Drive operations that the ring takes in one call.
    pub ring_entries: u32,
    /// Memory for block buffers that is kept for reuse, in bytes.
    pub idle_buffer_bytes_max: usize,
    /// Drives that take the time of other ones, by their locations.
    pub simulated_media: BTreeMap<String, SimulatedMedium>,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(3),
            spin_us_max: 0,
            cores: None,
            gives_way: false,
            stays_in_process: false,
            use_io_uring: true,
            ring_entries: 256,
            idle_buffer_bytes_max: 64 << 20,
            simulated_media: BTreeMap::new(),
        }
    }
}

/// Why no runtime could be made.
#[derive(Debug)]
pub struct RuntimeError {
    step: String,
    source: std::io::Error,
}

impl RuntimeError {
    pub(crate) fn new(step: impl Into<String>, error: Errno) -> Self {
        Self { step: step.into(), source: error.into() }
    }
}

impl fmt::Display for RuntimeError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, source } = self;
        write!(formatter, "the event loop cannot {step}: {source}")?;
        if source.raw_os_error().is_some_and(|code| Errno::from_raw_os_error(code) == Errno::MFILE) {
            write!(formatter, "; raise the limit of open files (ulimit -n)")?;
        }
        Ok(())
    }
}

impl std::error::Error for RuntimeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// The event loop of one shard, on the thread that made it.
///
/// Dropping it drops all tasks, and waits for the drive operations that are under way. Handles that
/// outlive it are harmless: nothing that they start ever completes, or it fails.
pub struct Runtime {
    shard: Rc<Shard>,
}

impl Runtime {
    /// A runtime without tasks, on the calling thread, which stays on the configured cores from then on. Fails if the
    /// process may open no more files, or may not run on these cores.
    pub fn new(config: RuntimeConfig) -> Result<Self, RuntimeError> {
        if let Some(cores) = &config.cores {
            cores
                .keep_thread()
                .map_err(|error| RuntimeError::new(format!("stay on cores {cores}"), error))?;
        }
        if config.gives_way
            && let Err(error) = scheduling::give_way()
        {
            tracing::info!(%error, "the system does not let threads wait for their turn: they cost more");
        }
        Ok(Self { shard: Shard::new(config)? })
    }

    /// The platform that this runtime's tasks use.
    pub fn platform(&self) -> LinuxPlatform {
        LinuxPlatform::new(Rc::clone(&self.shard))
    }

    /// A handle through which other threads reach this runtime.
    pub fn remote(&self) -> RemoteHandle {
        RemoteHandle::new(Arc::clone(&self.shard.remote))
    }

    /// What the loop has done so far.
    pub fn statistics(&self) -> RuntimeStatistics {
        self.shard.counters.snapshot()
    }

    /// Runs the loop until `future` completes, sends and submits what is queued, drops all
    /// other tasks in the order of their slots, and returns the future's output.
    pub fn block_on<F>(&mut self, future: F) -> F::Output
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let slot = Rc::new(RefCell::new(None));
        let output = Rc::clone(&slot);
        self.shard.executor.spawn(async move {
            let value = future.await;
            *output.borrow_mut() = Some(value);
        });
        let spin = Spin::new(Duration::from_micros(u64::from(self.shard.config.spin_us_max)));
        let mut turns =
            Turns { shard: &self.shard, without_poll: 0, spin, runs_noted: self.shard.executor.runs() };
        loop {
            turns.work();
            if let Some(value) = slot.take() {
                self.shard.executor.drop_all_tasks();
                return value;
            }
            turns.wait();
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.shard.end();
    }
}

/// The turns of one `block_on`.
struct Turns<'shard> {
    shard: &'shard Rc<Shard>,
    /// Turns since the sockets were last asked.
    without_poll: u32,
    spin: Spin,
    /// How often tasks had been run when a wait was noted last.
    runs_noted: u64,
}

impl Turns<'_> {
    fn work(&self) {
        let shard = self.shard;
        shard.counters.turns.add(1);
        self.run_remote_tasks();
        shard.drives.take_completions();
        if shard.timers.next_deadline().is_some() {
            shard.counters.timers_fired.add(shard.timers.fire(shard.now()));
        }
        shard.wake_deferred();
        for _ in 0..ROUNDS_PER_TURN {
            if !shard.executor.run_ready() {
                break;
            }
        }
        shard.flush_senders();
        shard.drives.submit(shard);
    }

    fn run_remote_tasks(&self) {
        for task in self.shard.remote.take() {
            self.shard.counters.remote_tasks.add(1);
            task(LinuxPlatform::new(Rc::clone(self.shard)));
        }
    }

    fn wait(&mut self) {
        let shard = self.shard;
        if shard.has_work() {
            self.without_poll += 1;
            if self.without_poll > TURNS_WITHOUT_POLL_MAX {
                self.poll();
            }
            return;
        }
        if !self.spin.is_possible() {
            self.sleep();
            return;
        }
        let begun = shard.now();
        let is_found = match self.spin.is_wanted() {
            true => self.look(begun),
            false => shard.config.gives_way && self.spin.was_short() && self.give_way(),
        };
        if !is_found {
            self.sleep();
        }
        let runs = shard.executor.runs();
        self.spin.note(runs - self.runs_noted, shard.now().since(begun));
        self.runs_noted = runs;
    }

    fn poll(&mut self) -> bool {
        self.without_poll = 0;
        self.shard.counters.polls.add(1);
        let any = self.shard.reactor.poll();
        if any {
            self.shard.reactor.dispatch();
        }
        any
    }

    /// Looks for events again and again. Returns whether there is work now.
    fn look(&mut self, begun: Instant) -> bool {
        loop {
            if self.poll() || self.shard.has_work() {
                return true;
            }
            let now = self.shard.now();
            if self.shard.timers.next_deadline().is_some_and(|deadline| deadline <= now) {
                return true;
            }
            if !self.spin.goes_on(now.since(begun)) {
                return false;
            }
            std::thread::yield_now();
        }
    }

    /// Lets whoever else can run on this core go first, and looks once. Returns whether there is work now: whoever has sent it has
    /// not had to wake this thread then.
    fn give_way(&mut self) -> bool {
        std::thread::yield_now();
        self.poll() || self.shard.has_work()
    }

    fn sleep(&mut self) {
        let shard = self.shard;
        let deadline = shard.timers.next_deadline();
        let now = deadline.map_or_else(Default::default, |_| shard.now());
        if deadline.is_some_and(|deadline| deadline <= now) || !shard.executor.prepare_sleep() {
            self.poll();
            return;
        }
        self.without_poll = 0;
        shard.counters.polls.add(1);
        shard.counters.sleeps.add(1);
        shard.reactor.sleep(now, deadline);
        // Before the sources wake their tasks, which would otherwise write to the eventfd.
        shard.executor.end_sleep();
        shard.reactor.dispatch();
    }
}

#[cfg(test)]
#[path = "runtime_tests.rs"]
mod tests;
