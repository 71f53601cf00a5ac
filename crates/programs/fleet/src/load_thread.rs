//! The clients of one thread of the load generator, from their connections to their counts.
//!
//! It is generic over the platform: the real fleet runs it on Linux, one per thread; tests run it in a
//! simulated world where every latency is known.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use futures_util::future::{join_all, select};
use spandrel_platform::sync::Signal;
use spandrel_platform::{LinkError, Platform, before};
use spandrel_shared::Error;

use crate::client_load::{self, ClientLoad, ClientParts, Common};
use crate::nbd_client::{NbdError, Session};
use crate::source::WriteSource;
use crate::spec::CellSpec;
use crate::tally::{ClientCounters, ClientTally};
use crate::target::Target;
use crate::times::LoadTimes;
use crate::workload::{Workload, content_stream, paces};

/// What the clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    session: Session<P::Connection>,
    workload: Workload,
}

/// What a load thread has counted.
pub(crate) struct ThreadOutcome {
    /// By number of the client.
    pub(crate) clients: Vec<(usize, ClientTally)>,
}

impl<P: Platform> LoadThread<P> {
    /// Connects the clients, all at once. Fails if any of them cannot be used.
    pub(crate) async fn connect(
        platform: &P,
        spec: &CellSpec,
        task: Task,
        assignments: Vec<Assignment>,
    ) -> Result<Self, Error> {
        let connects =
            assignments.into_iter().map(|assignment| connect_one(platform, spec, task, assignment));
        let clients = join_all(connects).await.into_iter().collect::<Result<_, _>>()?;
        let source = WriteSource::new(platform.buffers(), spec);
        Ok(Self { platform: platform.clone(), spec: spec.clone(), clients, source })
    }

    /// Runs the load from the start that `times` has until its stop, or until `stopped`, which comes
    /// with a stop in `times`. Then waits for what is in flight, as long as the spec allows.
    pub(crate) async fn run(self, times: Arc<LoadTimes>, stopped: impl Future<Output = ()>) -> ThreadOutcome {
        let platform = self.platform;
        let with_intervals = self.spec.intervals;
        let common = Rc::new(Common { times: Arc::clone(&times), source: self.source, with_intervals });
        platform.sleep_until(times.start).await;
        let live = Rc::new(Live::default());
        let (mut loads, mut tasks) = (Vec::new(), Vec::new());
        for client in self.clients {
            let Connected { assignment, session, workload } = client;
            let parts = ClientParts {
                name: assignment.target.name,
                sender: session.sender,
                workload,
                paces: paces(&self.spec, assignment.number, times.start),
                outstanding: self.spec.outstanding,
                content: content_stream(self.spec.seed, assignment.number),
                counters: assignment.counters,
            };
            let load = Rc::new(RefCell::new(ClientLoad::new(parts, &common)));
            let running = client_load::run(platform.clone(), Rc::clone(&load), session.receiver);
            tasks.push(live.spawn(&platform, running));
            loads.push((assignment.number, load));
        }
        let (stopped, due) = (pin!(stopped), pin!(platform.sleep_until(times.stop_at())));
        select(pin!(live.all_ended()), select(stopped, due)).await;
        let deadline = times.stop_at().max(platform.now()) + self.spec.drain;
        before(&platform, deadline, live.all_ended()).await;
        for task in &tasks {
            task.abort();
        }
        let now = platform.now();
        let finish =
            |(number, load): (usize, Rc<RefCell<ClientLoad<P>>>)| (number, load.borrow_mut().finish(now));
        ThreadOutcome { clients: loads.into_iter().map(finish).collect() }
    }
}

async fn connect_one<P: Platform>(
    platform: &P,
    spec: &CellSpec,
    task: Task,
    assignment: Assignment,
) -> Result<Connected<P>, Error> {
    let target = &assignment.target;
    let opened = Session::open(platform, &target.address, &target.export).await;
    let session = opened.map_err(|error| cannot_open(target, &error))?;
    let span_bytes = spec.span_bytes(&target.name, &session.export)?;
    let workload = match task {
        Task::Load => Workload::new(spec, assignment.number, span_bytes),
        Task::Pass => Workload::pass(spec, assignment.number, span_bytes),
    };
    Ok(Connected { assignment, session, workload })
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
    ) -> spandrel_platform::TaskHandle {
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
