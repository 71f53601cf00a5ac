//! The load generator on Linux: load threads with an event loop each, and their common start.
//!
//! The thread that makes a [`Generator`] drives it: it connects all clients, then starts them together,
//! watches, and collects what was counted. It may also look at every client while the load runs.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use futures_channel::oneshot;
use rustix::time::ClockId;
use spandrel_platform::{Instant, Platform};
use spandrel_platform_linux::{LinuxPlatform, Runtime, RuntimeConfig};
use spandrel_shared::Error;

use crate::load_thread::{Assignment, LoadThread, Task, ThreadOutcome};
use crate::spec::{CellSpec, invalid};
use crate::tally::ClientCounters;
use crate::target::Target;
use crate::times::{LoadTimes, now};

/// How long after the order to start the load starts, so that every thread has heard of it.
const START_DELAY: Duration = Duration::from_millis(5);

/// Load threads with connected clients.
pub(crate) struct Generator {
    threads: Vec<Thread>,
    clients: Vec<Client>,
    times: Option<Arc<LoadTimes>>,
}

/// A client as the driving thread sees it.
pub(crate) struct Client {
    pub(crate) name: String,
    pub(crate) counters: Arc<ClientCounters>,
}

/// A load thread as the driving thread sees it.
struct Thread {
    connected: mpsc::Receiver<Result<(), Error>>,
    start: Option<oneshot::Sender<Arc<LoadTimes>>>,
    stop: Option<oneshot::Sender<()>>,
    handle: JoinHandle<Option<ThreadReport>>,
}

/// What a load thread has counted, and its own cost.
pub(crate) struct ThreadReport {
    pub(crate) outcome: ThreadOutcome,
    /// Processor time of the thread within the measurement.
    pub(crate) cpu: Duration,
    /// The time over which that was taken.
    pub(crate) wall: Duration,
}

impl Generator {
    /// Makes the threads and connects a client to each target.
    pub(crate) fn connect(targets: &[Target], spec: &CellSpec, task: Task) -> Result<Self, Error> {
        Self::connect_from(0, targets, spec, task)
    }

    /// The same, where these clients are not all that there are: the number of the first one is `first`.
    pub(crate) fn connect_from(
        first: usize,
        targets: &[Target],
        spec: &CellSpec,
        task: Task,
    ) -> Result<Self, Error> {
        if targets.is_empty() {
            return Err(invalid("a load without clients", "there is no target", "give at least one volume"));
        }
        let counters = || Arc::<ClientCounters>::default();
        let client = |target: &Target| Client { name: target.name.clone(), counters: counters() };
        let clients: Vec<Client> = targets.iter().map(client).collect();
        let thread_count = (spec.load_threads as usize).min(targets.len());
        let mut shares = vec![Vec::new(); thread_count];
        for (place, (target, client)) in targets.iter().zip(&clients).enumerate() {
            let (counters, number) = (Arc::clone(&client.counters), first + place);
            shares[place % thread_count].push(Assignment { target: target.clone(), number, counters });
        }
        let threads = shares.into_iter().enumerate();
        let threads =
            threads.map(|(number, share)| spawn(number, share, spec, task)).collect::<Result<_, _>>()?;
        let generator = Self { threads, clients, times: None };
        for thread in &generator.threads {
            // The thread says this once, unless it panics.
            thread.connected.recv().unwrap_or_else(|_| Err(thread_died()))?;
        }
        Ok(generator)
    }

    /// Starts the load on all clients together, with the times that `plan` makes of the start.
    pub(crate) fn start(&mut self, plan: impl FnOnce(Instant) -> LoadTimes) -> Arc<LoadTimes> {
        let times = Arc::new(plan(now() + START_DELAY));
        for thread in &mut self.threads {
            if let Some(start) = thread.start.take() {
                // A thread that died says so when it is joined.
                let _ = start.send(Arc::clone(&times));
            }
        }
        self.times = Some(Arc::clone(&times));
        times
    }

    /// The clients, in the order of their targets.
    pub(crate) fn clients(&self) -> &[Client] {
        &self.clients
    }

    /// Whether nothing runs any more.
    pub(crate) fn is_over(&self) -> bool {
        self.threads.iter().all(|thread| thread.handle.is_finished())
    }

    /// Waits until `deadline`, or until nothing runs any more, and calls `tick` now and then.
    pub(crate) fn wait_until(&self, deadline: Instant, interval: Duration, mut tick: impl FnMut(Instant)) {
        loop {
            let at = now();
            tick(at);
            if at >= deadline || self.is_over() {
                return;
            }
            std::thread::park_timeout(deadline.since(at).min(interval));
        }
    }

    /// Ends the load now, unless it has ended.
    pub(crate) fn stop(&mut self) {
        if let Some(times) = &self.times {
            times.stop(now());
        }
        for thread in &mut self.threads {
            thread.stop = None;
        }
    }

    /// Waits for the load's end and collects what was counted.
    pub(crate) fn finish(mut self) -> Result<Vec<ThreadReport>, Error> {
        let mut reports = Vec::new();
        for thread in self.threads.drain(..) {
            let Thread { start, stop, handle, .. } = thread;
            // A thread that was never started ends without counts.
            drop(start);
            let report = handle.join().map_err(|_| thread_died())?;
            drop(stop);
            reports.extend(report);
        }
        Ok(reports)
    }
}

impl Drop for Generator {
    fn drop(&mut self) {
        self.stop();
    }
}

fn thread_died() -> Error {
    Error::new(
        "FLEET_LOAD_THREAD_DIED",
        "a thread of the load generator died",
        "it panicked; its message stands above",
        "this is a fault of the program: please report it with that message",
    )
}

fn spawn(number: usize, share: Vec<Assignment>, spec: &CellSpec, task: Task) -> Result<Thread, Error> {
    let (connected_sender, connected) = mpsc::channel();
    let (start, started) = oneshot::channel();
    let (stop, stopped) = oneshot::channel();
    let spec = spec.clone();
    let body = move || run_thread(&spec, task, share, &connected_sender, started, stopped);
    let handle = std::thread::Builder::new().name(format!("fleet-{number}")).spawn(body);
    let handle = handle.map_err(|error| {
        Error::new(
            "FLEET_THREAD_REFUSED",
            "the load generator cannot start a thread",
            error.to_string(),
            "raise the limit of processes (ulimit -u) or use fewer load threads",
        )
    })?;
    Ok(Thread { connected, start: Some(start), stop: Some(stop), handle })
}

/// The life of a load thread. None if it never started its load.
fn run_thread(
    spec: &CellSpec,
    task: Task,
    share: Vec<Assignment>,
    connected: &mpsc::Sender<Result<(), Error>>,
    started: oneshot::Receiver<Arc<LoadTimes>>,
    stopped: oneshot::Receiver<()>,
) -> Option<ThreadReport> {
    // Whoever waits for these words is gone only if the whole load was given up.
    let say = |result| drop(connected.send(result));
    let mut runtime = match Runtime::new(RuntimeConfig::default()) {
        Ok(runtime) => runtime,
        Err(error) => {
            say(Err(no_runtime(&error.to_string())));
            return None;
        }
    };
    let platform = runtime.platform();
    let connecting = {
        let (platform, spec) = (platform.clone(), spec.clone());
        async move { LoadThread::connect(&platform, &spec, task, share).await }
    };
    let thread = match runtime.block_on(connecting) {
        Ok(thread) => thread,
        Err(error) => {
            say(Err(error));
            return None;
        }
    };
    say(Ok(()));
    runtime.block_on(async move {
        let times = started.await.ok()?;
        let meter = CpuMeter::start(&platform, &times);
        let own_times = Arc::clone(&times);
        let stopped = async move {
            // The other end is dropped to say it.
            let _ = stopped.await;
            own_times.stop(now());
        };
        let outcome = thread.run(Arc::clone(&times), stopped).await;
        let (cpu, wall) = meter.finish();
        Some(ThreadReport { outcome, cpu, wall })
    })
}

fn no_runtime(why: &str) -> Error {
    Error::new(
        "FLEET_NO_EVENT_LOOP",
        "the load generator cannot start",
        why,
        "raise the limit of open files (ulimit -n); each client needs one",
    )
}

/// Takes this thread's processor time at the beginning and the end of the measurement.
struct CpuMeter {
    begin: Rc<Cell<Option<CpuReading>>>,
    end: Rc<Cell<Option<CpuReading>>>,
}

#[derive(Clone, Copy)]
struct CpuReading {
    at: Instant,
    cpu: Duration,
}

impl CpuReading {
    fn now() -> Self {
        let time = rustix::time::clock_gettime(ClockId::ThreadCPUTime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        let nanoseconds = u32::try_from(time.tv_nsec).unwrap_or(0);
        Self { at: now(), cpu: Duration::new(seconds, nanoseconds) }
    }
}

impl CpuMeter {
    fn start(platform: &LinuxPlatform, times: &LoadTimes) -> Self {
        let meter = Self { begin: Rc::default(), end: Rc::default() };
        for (at, slot) in [(times.measure_from, &meter.begin), (times.measure_until(), &meter.end)] {
            let (own, slot) = (platform.clone(), Rc::clone(slot));
            platform.spawn(async move {
                own.sleep_until(at).await;
                slot.set(Some(CpuReading::now()));
            });
        }
        meter
    }

    /// Processor time and time, from the beginning of the measurement to its end or until now.
    fn finish(self) -> (Duration, Duration) {
        let end = self.end.get().unwrap_or_else(CpuReading::now);
        let begin = self.begin.get().unwrap_or(end);
        (end.cpu.saturating_sub(begin.cpu), end.at.since(begin.at))
    }
}
