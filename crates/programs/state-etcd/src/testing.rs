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

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use spandrel_cluster::store::{
    Key, Outcome, Revision, Selection, Snapshot, StateStore, StoreError, StoreErrorKind, Transaction,
};
use tempfile::TempDir;

use crate::member::Member;
use crate::{EtcdOptions, EtcdState, url};

/// What the tests' keys begin with in etcd.
pub const NAMESPACE: &str = "spandrel/test/";

/// How long etcd may take for anything that has to succeed.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How long a whole test may take.
const TEST_TIME_MAX: Duration = Duration::from_secs(600);

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
        command.args(["--heartbeat-interval", "100", "--election-timeout", "1000", "--unsafe-no-fsync"]);
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

    /// Stops a member in the middle of whatever it does; its connections stay. Returns when it has stopped.
    pub fn freeze(&self, index: usize) {
        self.signal(index, Signal::STOP);
        let process = self.members[index].process.as_ref().expect("it runs");
        let stopped = waitpid(Some(Pid::from_child(process)), WaitOptions::UNTRACED);
        assert!(stopped.is_ok_and(|status| status.is_some_and(|(_, status)| status.stopped())));
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
        connect(self.endpoints(), namespace)
    }

    /// Where each member answers clients.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(|member| member.client_url.clone()).collect()
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
    EtcdState::connect(&EtcdOptions { endpoints, namespace: namespace.to_owned(), identity: None })
        .expect("its addresses are right")
}

/// An address on this machine where nothing else listens: each is one of the many of the loopback interface, by the
/// number of this process.
pub fn free_address() -> SocketAddr {
    static COUNT: AtomicU16 = AtomicU16::new(0);
    let [_, second, third, fourth] = std::process::id().to_be_bytes();
    let port = 10_000 + COUNT.fetch_add(1, Ordering::Relaxed);
    SocketAddr::from(([127, 64 | second, third, fourth], port))
}

/// The same, as etcd and its clients write it.
pub fn free_url() -> String {
    url(&free_address())
}

/// Everything that is there, as soon as etcd answers.
pub fn await_answer(state: &EtcdState) -> Snapshot {
    when_possible(|| block_on(state.read(&[Selection::prefix("")])))
}

/// The revision of a transaction that does the same when it is done twice, and must succeed. A busy machine may make
/// etcd elect a leader at any time.
pub fn commit(state: &EtcdState, transaction: Transaction) -> Revision {
    match when_possible(|| block_on(state.transact(transaction.clone()))) {
        Outcome::Committed { revision } => revision,
        conflict @ Outcome::Conflict { .. } => panic!("{conflict:?}"),
    }
}

/// What `attempt` gives as soon as etcd answers it.
pub fn when_possible<T>(attempt: impl Fn() -> Result<T, StoreError>) -> T {
    let started = Instant::now();
    loop {
        match attempt() {
            Ok(answer) => return answer,
            Err(error) => assert!(passes(&error) && started.elapsed() < PATIENCE, "{error}"),
        }
    }
}

/// Whether the same request may succeed a little later.
pub fn passes(error: &StoreError) -> bool {
    matches!(error.kind, StoreErrorKind::Unavailable | StoreErrorKind::Unknown)
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
        assert!(started.elapsed() < TEST_TIME_MAX, "nothing comes of it");
        std::thread::park_timeout(TEST_TIME_MAX);
    }
}

/// A member that does not outlive its test.
pub struct KilledAtLast(Option<Member>);

impl KilledAtLast {
    /// Kills `member`'s process at last.
    pub fn new(member: Member) -> Self {
        Self(Some(member))
    }

    /// The member.
    pub fn member(&mut self) -> &mut Member {
        self.0.as_mut().expect("it is there until the end")
    }

    /// Leaves the process running, as the end of a node would, and gives its number.
    pub fn leave(mut self) -> u32 {
        self.0.take().expect("it is there until the end").status().process().expect("it runs")
    }

    /// Ends it in order.
    pub async fn stop(mut self) {
        self.0.take().expect("it is there until the end").stop().await;
    }
}

impl Drop for KilledAtLast {
    fn drop(&mut self) {
        let process = self.0.take().and_then(|member| member.status().process());
        if let Some(id) = process.and_then(|process| Pid::from_raw(process.try_into().ok()?)) {
            // It may have ended by itself.
            let _ = kill_process(id, Signal::KILL);
        }
    }
}
