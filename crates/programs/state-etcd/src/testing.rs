//! etcd as processes of their own, for tests.

use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use spandrel_cluster::store::{Key, Outcome, Revision, Selection, Snapshot, StateStore, Transaction};
use tempfile::TempDir;

use crate::{EtcdOptions, EtcdState, url};

/// What the tests' keys begin with in etcd.
pub const NAMESPACE: &str = "spandrel/test/";

/// How long etcd may take for anything that has to succeed.
const PATIENCE: Duration = Duration::from_secs(60);

/// An etcd of some members. Killed when dropped.
pub struct Etcd {
    folder: TempDir,
    members: Vec<Process>,
}

struct Process {
    client_url: String,
    peer_url: String,
    process: Option<Child>,
}

impl Etcd {
    /// A new etcd of so many members, which answers.
    pub fn start(count: usize) -> Self {
        let member = |_| Process { client_url: free_url(), peer_url: free_url(), process: None };
        let folder = tempfile::tempdir().expect("temporary folders can be made");
        let mut etcd = Self { folder, members: (0..count).map(member).collect() };
        for index in 0..count {
            etcd.start_member(index);
        }
        for index in 0..count {
            await_answer(&etcd.state_of(index));
        }
        etcd
    }

    /// Starts a member that does not run.
    pub fn start_member(&mut self, index: usize) {
        let peers = self.members.iter().enumerate();
        let peers: Vec<_> = peers.map(|(index, member)| format!("m{index}={}", member.peer_url)).collect();
        let log = std::fs::File::options().append(true).create(true).open(self.path(index, "log"));
        let log = log.expect("the folder is there");
        let data = self.path(index, "data");
        let member = &mut self.members[index];
        let mut command = Command::new("etcd");
        command.args(["--name", &format!("m{index}")]);
        command.arg("--data-dir").arg(data);
        command.args(["--listen-client-urls", &member.client_url]);
        command.args(["--advertise-client-urls", &member.client_url]);
        command.args(["--listen-peer-urls", &member.peer_url]);
        command.args(["--initial-advertise-peer-urls", &member.peer_url]);
        command.args(["--initial-cluster", &peers.join(","), "--initial-cluster-state", "new"]);
        // These tests kill processes, and cut no power.
        command.args(["--heartbeat-interval", "50", "--election-timeout", "500", "--unsafe-no-fsync"]);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = command.spawn();
        member.process = Some(process.expect("etcd is on this machine: cargo xtask packages installs it"));
    }

    /// Kills a member, as a crash of its process would.
    pub fn kill(&mut self, index: usize) {
        let mut process = self.members[index].process.take().expect("it runs");
        process.kill().expect("it has not been waited for");
        process.wait().expect("it has been killed");
    }

    /// Stops a member in the middle of whatever it does; its connections stay.
    pub fn freeze(&self, index: usize) {
        self.signal(index, Signal::STOP);
    }

    /// Lets a stopped member go on.
    pub fn thaw(&self, index: usize) {
        self.signal(index, Signal::CONT);
    }

    fn signal(&self, index: usize, signal: Signal) {
        let process = self.members[index].process.as_ref().expect("it runs");
        kill_process(Pid::from_child(process), signal).expect("the process is ours");
    }

    /// A handle of its own that asks the members in their order.
    pub fn state(&self) -> EtcdState {
        self.state_in(NAMESPACE)
    }

    /// A handle that asks one member alone.
    pub fn state_of(&self, index: usize) -> EtcdState {
        connect(vec![self.members[index].client_url.clone()], NAMESPACE)
    }

    /// The same, in another namespace.
    pub fn state_in(&self, namespace: &str) -> EtcdState {
        connect(self.members.iter().map(|member| member.client_url.clone()).collect(), namespace)
    }

    fn path(&self, index: usize, kind: &str) -> PathBuf {
        self.folder.path().join(format!("m{index}.{kind}"))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for index in 0..self.members.len() {
            if self.members[index].process.is_some() {
                self.kill(index);
            }
            if std::thread::panicking() {
                let log = std::fs::read_to_string(self.path(index, "log")).unwrap_or_default();
                eprintln!("what member {index} said:\n{log}");
            }
        }
    }
}

/// A handle of its own that asks the members at `endpoints` in their order.
pub fn connect(endpoints: Vec<String>, namespace: &str) -> EtcdState {
    EtcdState::connect(&EtcdOptions { endpoints, namespace: namespace.to_owned() })
        .expect("its addresses are right")
}

/// An address on this machine where nothing else listens: each is one of the many of the loopback interface, by the
/// number of this process.
pub fn free_address() -> SocketAddr {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let [_, second, third, fourth] = std::process::id().to_be_bytes();
    let port = 10_000 + COUNT.fetch_add(1, Ordering::Relaxed);
    SocketAddr::from(([127, 64 | second, third, fourth.clamp(1, 254)], port))
}

/// The same, as etcd and its clients write it.
pub fn free_url() -> String {
    url(&free_address())
}

/// Waits until etcd answers.
pub fn await_answer(state: &EtcdState) -> Snapshot {
    let started = Instant::now();
    loop {
        match block_on(state.read(&[Selection::prefix("")])) {
            Ok(snapshot) => return snapshot,
            Err(error) => assert!(started.elapsed() < PATIENCE, "etcd does not answer: {error}"),
        }
    }
}

/// The revision of a transaction that must succeed.
pub fn commit(state: &EtcdState, transaction: Transaction) -> Revision {
    match block_on(state.transact(transaction)).expect("the transaction is answered") {
        Outcome::Committed { revision } => revision,
        conflict @ Outcome::Conflict { .. } => panic!("{conflict:?}"),
    }
}

/// A transaction that sets a key.
pub fn put(key: &str, value: &[u8]) -> Transaction {
    Transaction::new().put(&Key::new(key), value)
}

struct Unparker(Thread);

impl Wake for Unparker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs `future` on this thread, which is no thread of tokio's.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unparker(std::thread::current())));
    let mut future = pin!(future);
    let started = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        assert!(started.elapsed() < PATIENCE, "nothing comes of it");
        std::thread::park_timeout(PATIENCE);
    }
}
