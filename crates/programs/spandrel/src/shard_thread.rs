//! A shard of a node on a thread of its own.
//!
//! The shard and all that it does live on one thread with an event loop of its own; other threads
//! reach it with [`ShardHandle::ask`]. Dropping every handle, or an abrupt stop, drops the event loop
//! with everything in it and tells nobody, as a crash would.

use std::future::Future;
use std::pin::Pin;
use std::thread::JoinHandle;

use futures_channel::{mpsc, oneshot};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use spandrel_node::{Node, NodeConfig, NodeReport, Siblings};
use spandrel_platform::Platform;
use spandrel_platform_linux::{DetachedConnection, LinuxPlatform, Runtime, RuntimeConfig};
use spandrel_platform_tls::{TlsPlatform, TlsSettings};
use spandrel_shared::Error;

use crate::node_state::NodeState;

/// A shard on Linux.
pub type LinuxShard = Node<TlsPlatform<LinuxPlatform>, NodeState>;

/// What a shard is started from.
pub struct ShardStart {
    /// What it is.
    pub config: NodeConfig,
    /// Its thread's event loop.
    pub runtime: RuntimeConfig,
    /// The cluster's state.
    pub store: NodeState,
    /// How it speaks with other machines; without it, it speaks to this one alone.
    pub tls: Option<TlsSettings>,
    /// What it has to do with the other shards of its node.
    pub siblings: Siblings<DetachedConnection>,
}

/// A shard's stack. The future of an operation holds those of all that it waits for, and is built on the stack before it goes to
/// where it stays; code that is not optimised builds it more than once.
const STACK_BYTES: usize = 16 << 20;

/// How long a shard looks for events before it sleeps, while its waits are short. One that holds a copy waits for a whole round of a
/// client's single writes: of those that sleep it takes some 100 us, of those that look half as long. So they must look for longer than
/// the former, or they would never come to the latter.
const SPIN_US_MAX: u32 = 120;

type Task = Pin<Box<dyn Future<Output = ()>>>;

enum Command {
    Run(Box<dyn FnOnce(LinuxShard) -> Task + Send>),
    Stop { abrupt: bool },
}

/// A shard that runs.
pub struct ShardThread {
    commands: mpsc::UnboundedSender<Command>,
    thread: Option<JoinHandle<Option<NodeReport>>>,
    name: String,
}

/// Reaches a shard from any thread. Cheap to clone; the shard may be gone.
#[derive(Clone)]
pub struct ShardHandle {
    commands: mpsc::UnboundedSender<Command>,
    name: String,
}

impl ShardThread {
    /// Starts a shard, and waits until it takes part. Its thread has the name of the node, and one that is not
    /// the first its number behind that.
    pub async fn start(start: ShardStart) -> Result<Self, Error> {
        let NodeConfig { name, shard, .. } = &start.config;
        let thread_name = if *shard == 0 { name.clone() } else { format!("{name}/{shard}") };
        let name = name.clone();
        let (commands, receiver) = mpsc::unbounded();
        let (ready, started) = oneshot::channel();
        let builder = std::thread::Builder::new().name(thread_name).stack_size(STACK_BYTES);
        let running = move || run(start, receiver, ready);
        let thread = builder.spawn(running).map_err(|error| {
            let next = "raise the limit of threads for this user, or end other processes";
            Error::new("NODE_NOT_STARTED", format!("node {name} cannot be started"), error.to_string(), next)
        })?;
        let shard = Self { commands, thread: Some(thread), name };
        match started.await {
            Ok(Ok(())) => Ok(shard),
            Ok(Err(error)) => Err(error),
            Err(oneshot::Canceled) => Err(ended(&shard.name)),
        }
    }

    /// How others reach it.
    pub fn handle(&self) -> ShardHandle {
        ShardHandle { commands: self.commands.clone(), name: self.name.clone() }
    }

    /// Whether it has ended by itself, which it never should.
    pub fn is_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Tells the shard to end.
    pub fn begin_stop(&self, abrupt: bool) {
        let _ = self.commands.unbounded_send(Command::Stop { abrupt });
    }

    /// Waits until its thread has ended, which blocks the calling thread. What the shard said last, when its drives were left in
    /// order; none after an abrupt end.
    pub fn join(&mut self) -> Option<NodeReport> {
        let ended = self.thread.take()?.join();
        ended.inspect_err(|_| tracing::error!("the thread of node {} had panicked", self.name)).ok().flatten()
    }
}

impl Drop for ShardThread {
    fn drop(&mut self) {
        self.begin_stop(true);
        self.join();
    }
}

impl ShardHandle {
    /// Has something done on the shard's thread. Whoever waits for it sees that `task` was dropped if the shard ends.
    pub fn tell<F>(&self, task: impl FnOnce(LinuxShard) -> F + Send + 'static)
    where
        F: Future<Output = ()> + 'static,
    {
        // If it has ended already, the task is dropped here.
        let _ = self.commands.unbounded_send(Command::Run(Box::new(|shard| Box::pin(task(shard)))));
    }

    /// Runs `question` on the shard's thread and gives its answer.
    pub async fn ask<T, F>(&self, question: impl FnOnce(LinuxShard) -> F + Send + 'static) -> Result<T, Error>
    where
        T: Send + 'static,
        F: Future<Output = T> + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let task = move |shard| {
            let answer = question(shard);
            let task: Task = Box::pin(async move {
                // Whoever asked may have left.
                let _ = sender.send(answer.await);
            });
            task
        };
        let sent = self.commands.unbounded_send(Command::Run(Box::new(task)));
        sent.map_err(|_| ended(&self.name))?;
        receiver.await.map_err(|oneshot::Canceled| ended(&self.name))
    }
}

fn ended(name: &str) -> Error {
    Error::new(
        "NODE_STOPPED",
        format!("node {name} did not answer"),
        "it has stopped meanwhile",
        "start it with `spandrel node start`, or try again: another node is asked then",
    )
}

fn run(
    start: ShardStart,
    mut commands: mpsc::UnboundedReceiver<Command>,
    ready: oneshot::Sender<Result<(), Error>>,
) -> Option<NodeReport> {
    let ShardStart { config, runtime, store, tls, siblings } = start;
    let (name, number) = (config.name.clone(), config.shard);
    let runtime = RuntimeConfig { spin_us_max: SPIN_US_MAX, stays_in_process: true, ..runtime };
    let mut runtime = match Runtime::new(runtime) {
        Ok(runtime) => runtime,
        Err(error) => {
            let next = "raise the limit of open files (ulimit -n), or name cores that this process may use (--cores)";
            let what = format!("node {name} cannot be started");
            let _ = ready.send(Err(Error::new("NODE_NOT_STARTED", what, error.to_string(), next)));
            return None;
        }
    };
    let platform = TlsPlatform::new(runtime.platform(), tls);
    let span = match config.shards {
        1 => tracing::info_span!("node", name = %name),
        _ => tracing::info_span!("node", name = %name, shard = number),
    };
    let _in_node = span.enter();
    runtime.block_on(async move {
        let started = {
            let starting = std::pin::pin!(Node::start(platform.clone(), config, store, siblings));
            let stopped = std::pin::pin!(stopped(&mut commands));
            match select(starting, stopped).await {
                Either::Left((started, _)) => started,
                // Nothing was answered yet, so there is nothing to be ended in order.
                Either::Right(_) => return None,
            }
        };
        let shard = match started {
            Ok(shard) => shard,
            Err(error) => {
                let _ = ready.send(Err(error));
                return None;
            }
        };
        let _ = ready.send(Ok(()));
        while let Some(command) = commands.next().await {
            match command {
                Command::Run(task) => drop(platform.spawn(task(shard.clone()))),
                Command::Stop { abrupt: true } => return None,
                Command::Stop { abrupt: false } => break,
            }
        }
        shard.stop().await;
        Some(shard.report())
    })
}

/// Waits until a shard that does not take part yet is told to stop. Nobody asks it anything else.
async fn stopped(commands: &mut mpsc::UnboundedReceiver<Command>) {
    while let Some(command) = commands.next().await {
        if matches!(command, Command::Stop { .. }) {
            return;
        }
    }
}
