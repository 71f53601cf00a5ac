//! The clients of one thread of the load generator, from their connections to their counts: those that do their I/Os here, and those
//! that have them done in a guest.
//!
//! It is generic over the platform: the real fleet runs it on Linux, one per thread; tests run it in a
//! simulated world where every latency is known.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select};
use serde::{Deserialize, Serialize};
use spandrel_platform::sync::Signal;
use spandrel_platform::{Connection, DriveError, Instant, LinkError, Platform, TaskHandle, before};
use spandrel_shared::Error;

use crate::client_load::{self, ClientLoad, ClientParts, Common};
use crate::guest::{GuestCost, GuestLoad, GuestSession, Preparation};
use crate::medium::{DriveReceiver, DriveSender, IoReceiver, IoSender, open_drive};
use crate::nbd_client::{Export, NbdError, Session};
use crate::source::WriteSource;
use crate::spec::CellSpec;
use crate::tally::{ClientCounters, ClientTally};
use crate::target::{Target, TargetPlace};
use crate::times::LoadTimes;
use crate::workload::{Workload, content_stream, paces};

/// How much longer a guest may take for its last words than its load.
const GUEST_REPORT_TIME_MAX: Duration = Duration::from_secs(20);

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Task {
    /// The load that the spec describes, for as long as the times say.
    Load,
    /// All of the working set once, from start to end.
    Pass,
}

/// A client that a load thread is to run.
#[derive(Clone)]
pub(crate) struct Assignment {
    pub(crate) target: Target,
    /// The number of the client among all.
    pub(crate) number: usize,
    pub(crate) counters: Arc<ClientCounters>,
}

/// Clients that are connected and wait for the start.
pub(crate) struct LoadThread<P: Platform> {
    platform: P,
    spec: CellSpec,
    clients: Vec<Connected<P>>,
    source: WriteSource,
}

struct Connected<P: Platform> {
    assignment: Assignment,
    medium: Medium<P>,
}

/// What a client uses, and what it is to do there.
enum Medium<P: Platform> {
    Export(Session<P::Connection>, Workload),
    Drive(DriveSender<P>, DriveReceiver, Workload),
    Guest(GuestSession<P::Connection>),
}

/// A client while its load runs.
trait Running {
    /// Ends it before its time, if it does not see that by itself.
    fn stop(&self) {}

    /// What was counted until `now`, when it ends.
    fn finish(&self, now: Instant, times: &LoadTimes) -> ClientTally;

    /// What it has cost elsewhere than in this thread.
    fn cost_elsewhere(&self) -> Option<GuestCost> {
        None
    }
}

impl<S: IoSender> Running for RefCell<ClientLoad<S>> {
    fn finish(&self, now: Instant, _: &LoadTimes) -> ClientTally {
        self.borrow_mut().finish(now)
    }
}

impl<C: Connection> Running for GuestLoad<C> {
    fn stop(&self) {
        GuestLoad::stop(self);
    }

    fn finish(&self, now: Instant, times: &LoadTimes) -> ClientTally {
        GuestLoad::finish(self, now.since(times.start))
    }

    fn cost_elsewhere(&self) -> Option<GuestCost> {
        self.cost()
    }
}

/// What a load thread has counted.
pub(crate) struct ThreadOutcome {
    /// By number of the client.
    pub(crate) clients: Vec<(usize, ClientTally)>,
    /// What load generators in guests have cost there.
    pub(crate) guests: Vec<GuestCost>,
}

impl<P: Platform> LoadThread<P> {
    /// Connects the clients, all at once. Fails if any of them cannot be used.
    pub(crate) async fn connect(
        platform: &P,
        spec: &CellSpec,
        task: Task,
        assignments: Vec<Assignment>,
    ) -> Result<Self, Error> {
        // The other load threads have as many.
        let clients = u32::try_from(assignments.len()).unwrap_or(u32::MAX).saturating_mul(spec.load_threads);
        let connect = |assignment| connect_one(platform, spec, task, assignment, clients);
        let connects = assignments.into_iter().map(connect);
        let clients = join_all(connects).await.into_iter().collect::<Result<_, _>>()?;
        let source = WriteSource::new(platform.buffers(), spec);
        Ok(Self { platform: platform.clone(), spec: spec.clone(), clients, source })
    }

    /// Runs the load from the start that `times` has until its stop, or until `stopped`, which comes
    /// with a stop in `times`. Then waits for what is in flight, as long as the spec allows.
    pub(crate) async fn run(self, times: Arc<LoadTimes>, stopped: impl Future<Output = ()>) -> ThreadOutcome {
        let Self { platform, spec, clients, source } = self;
        let common = Rc::new(Common { times: Arc::clone(&times), source, with_intervals: spec.intervals });
        platform.sleep_until(times.start).await;
        let mut crew = Crew {
            platform,
            spec,
            common,
            live: Rc::default(),
            tasks: Vec::new(),
            running: Vec::new(),
            patience: Duration::ZERO,
        };
        for Connected { assignment, medium } in clients {
            match medium {
                Medium::Export(session, workload) => {
                    crew.begin(assignment, session.sender, session.receiver, workload);
                }
                Medium::Drive(sender, receiver, workload) => {
                    crew.begin(assignment, sender, receiver, workload);
                }
                Medium::Guest(session) => crew.begin_in_guest(assignment, session),
            }
        }
        crew.run(stopped).await
    }
}

/// Clients under load.
struct Crew<P: Platform> {
    platform: P,
    spec: CellSpec,
    common: Rc<Common>,
    live: Rc<Live>,
    tasks: Vec<TaskHandle>,
    running: Vec<(usize, Rc<dyn Running>)>,
    /// How much longer than the spec allows it is waited for the last of them.
    patience: Duration,
}

impl<P: Platform> Crew<P> {
    fn begin<S: IoSender>(
        &mut self,
        assignment: Assignment,
        sender: S,
        receiver: impl IoReceiver,
        workload: Workload,
    ) {
        let number = assignment.number;
        let parts = ClientParts {
            name: assignment.target.name,
            sender,
            workload,
            paces: paces(&self.spec, number, self.common.times.start),
            outstanding: self.spec.outstanding,
            content: content_stream(self.spec.seed, number),
            counters: assignment.counters,
        };
        let load = Rc::new(RefCell::new(ClientLoad::new(parts, &self.common)));
        let running = client_load::run(self.platform.clone(), Rc::clone(&load), receiver);
        self.tasks.push(self.live.spawn(&self.platform, running));
        self.running.push((number, load));
    }

    fn begin_in_guest(&mut self, assignment: Assignment, session: GuestSession<P::Connection>) {
        self.running.push((assignment.number, session.load()));
        let times = Arc::clone(&self.common.times);
        let running = session.run(self.platform.clone(), times, assignment.counters);
        self.tasks.push(self.live.spawn(&self.platform, running));
        self.patience = GUEST_REPORT_TIME_MAX;
    }

    async fn run(self, stopped: impl Future<Output = ()>) -> ThreadOutcome {
        let (platform, times) = (&self.platform, &self.common.times);
        let was_stopped = Cell::new(false);
        {
            let stopped = pin!(async {
                stopped.await;
                was_stopped.set(true);
            });
            let due = pin!(platform.sleep_until(times.stop_at()));
            select(pin!(self.live.all_ended()), select(stopped, due)).await;
        }
        if was_stopped.get() {
            self.running.iter().for_each(|(_, client)| client.stop());
        }
        let deadline = times.stop_at().max(platform.now()) + self.spec.drain + self.patience;
        before(platform, deadline, self.live.all_ended()).await;
        for task in &self.tasks {
            task.abort();
        }
        let now = platform.now();
        let guests = self.running.iter().filter_map(|(_, client)| client.cost_elsewhere()).collect();
        let finish = |(number, client): &(usize, Rc<dyn Running>)| (*number, client.finish(now, times));
        ThreadOutcome { clients: self.running.iter().map(finish).collect(), guests }
    }
}

async fn connect_one<P: Platform>(
    platform: &P,
    spec: &CellSpec,
    task: Task,
    assignment: Assignment,
    clients: u32,
) -> Result<Connected<P>, Error> {
    let target = &assignment.target;
    let workload = |export: &Export| {
        let span_bytes = spec.span_bytes(&target.name, export)?;
        Ok::<_, Error>(match task {
            Task::Load => Workload::new(spec, assignment.number, span_bytes),
            Task::Pass => Workload::pass(spec, assignment.number, span_bytes),
        })
    };
    let medium = match &target.place {
        TargetPlace::Export { address, export } => {
            let opened = Session::open(platform, address, export).await;
            let session = opened.map_err(|error| cannot_open(target, &error))?;
            let workload = workload(&session.export)?;
            Medium::Export(session, workload)
        }
        TargetPlace::Drive(path) => {
            let opened = open_drive(platform, path).await;
            let (sender, receiver, export) = opened.map_err(|error| cannot_use(target, &error))?;
            Medium::Drive(sender, receiver, workload(&export)?)
        }
        TargetPlace::Guest(socket) => {
            // Its only client needs one thread.
            let spec = CellSpec { load_threads: 1, ..spec.clone() };
            let (client, name) = (assignment.number, target.name.clone());
            let preparation = Preparation { client, name, task, spec };
            Medium::Guest(GuestSession::open(platform, socket, preparation, clients).await?)
        }
    };
    Ok(Connected { assignment, medium })
}

fn cannot_use(target: &Target, error: &DriveError) -> Error {
    Error::new(
        "FLEET_DRIVE_UNUSABLE",
        format!("client {} cannot use {target}", target.name),
        error.to_string(),
        "see that it is there, and that this user may write to it",
    )
}

fn cannot_open(target: &Target, error: &NbdError) -> Error {
    let next = match error {
        NbdError::Link(LinkError::Refused(_)) => "start the node that serves it, or correct the address",
        NbdError::Link(_) => "correct the address; if files are lacking, raise their limit (ulimit -n)",
        NbdError::Refused(_) => {
            "list the server's exports (for example with nbdinfo --list) and correct the name"
        }
        _ => "see the server's log",
    };
    Error::new(
        "FLEET_CLIENT_NOT_CONNECTED",
        format!("client {} cannot open {target}", target.name),
        error.to_string(),
        next,
    )
}

/// Counts the tasks that run.
#[derive(Default)]
struct Live {
    count: Cell<usize>,
    ended: Signal,
}

impl Live {
    fn spawn<P: Platform>(
        self: &Rc<Self>,
        platform: &P,
        task: impl Future<Output = ()> + 'static,
    ) -> TaskHandle {
        self.count.set(self.count.get() + 1);
        let live = Rc::clone(self);
        platform.spawn(async move {
            task.await;
            live.count.set(live.count.get() - 1);
            live.ended.notify_all();
        })
    }

    async fn all_ended(&self) {
        self.ended.wait_until(|| self.count.get() == 0).await;
    }
}

#[cfg(test)]
#[path = "load_thread_tests.rs"]
mod tests;
