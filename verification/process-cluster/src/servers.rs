//! A cluster of servers, each a process of its own with a member of etcd beside it: started, killed, cut off and asked
//! from outside. Each has an address of its own on the loopback interface, or in networks that can be cut.
//!
//! Invariants:
//! - When it is dropped, all its processes are dead, those of etcd too, and its directory is gone.
//! - Clusters of two tests of one process run at the same time, not more.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use spandrel_platform::Address;
use tempfile::TempDir;

use crate::cluster::{PREFIX_VARIABLE, volumes_are_healthy};
use crate::daemon::{CommandOutput, Daemon, KillSwitch, VM_MEMORY_VARIABLE, new_directory};
use crate::guest::{end_guests, guests_in};
use crate::network::Networks;
use crate::program::Program;
use crate::turn::Turn;
use crate::wait::{await_that, comes_true};

/// How long others may go on using servers that are to be restored.
const RELEASE_TIME_MAX: Duration = Duration::from_secs(60);

/// The first of each server's ports.
const PORT: u16 = 7440;

/// What a witness is called.
const WITNESS: &str = "w";

/// What a cluster of servers consists of.
#[derive(Clone, Debug)]
pub struct ServersOptions {
    /// How many nodes.
    pub nodes: usize,
    /// Whether there is a witness, which is called `w`.
    pub witness: bool,
    /// How large each node's drive is, as `truncate` takes it.
    pub drive_size: String,
    /// What stands before the location of each drive, as `volatile:`; empty for plain files.
    pub drive_prefix: String,
    /// What `cluster init` is told besides.
    pub init_arguments: Vec<String>,
    /// Of how many shards each node is.
    pub shards: u64,
    /// Whether nodes run virtual machines.
    pub runs_guests: bool,
}

impl ServersOptions {
    /// The names of all servers.
    pub fn names(&self) -> Vec<String> {
        let nodes = (1..=self.nodes).map(|number| format!("n{number}"));
        nodes.chain(self.witness.then(|| WITNESS.to_owned())).collect()
    }

    /// So many nodes with drives that lose what was not flushed, and a witness if there is to be one.
    pub fn new(nodes: usize, witness: bool) -> Self {
        Self {
            nodes,
            witness,
            drive_size: "256M".to_owned(),
            drive_prefix: "volatile:".to_owned(),
            init_arguments: Vec::new(),
            shards: 1,
            runs_guests: false,
        }
    }
}

/// A cluster of servers.
pub struct Servers {
    // What they need ends after them.
    /// In the order in which they joined, the witness last.
    servers: Vec<Server>,
    directory: TempDir,
    networks: Option<Networks>,
    turn: Arc<Turn>,
}

/// A server: its name, its process, and its member of etcd, if it has one.
pub struct Server {
    name: String,
    daemon: Daemon,
}

impl Servers {
    /// Makes a new cluster whose nodes are `n1`, `n2` and so on, each with a drive, and waits until all serve and the
    /// state is kept by as many as it should be.
    ///
    /// # Panics
    ///
    /// If it does not come to that.
    pub fn start(program: &Program, options: &ServersOptions) -> Self {
        Self::make(program, options, None, Arc::new(Turn::take()))
    }

    /// The same, with networks between the servers.
    ///
    /// # Panics
    ///
    /// If it does not come to that.
    pub fn start_in(networks: Networks, program: &Program, options: &ServersOptions) -> Self {
        Self::make(program, options, Some(networks), Arc::new(Turn::take()))
    }

    /// Makes another cluster, which has nothing to do with this one.
    ///
    /// # Panics
    ///
    /// If it does not come to serve.
    pub fn start_another(&self, program: &Program, options: &ServersOptions) -> Self {
        Self::make(program, options, None, Arc::clone(&self.turn))
    }

    fn make(
        program: &Program,
        options: &ServersOptions,
        networks: Option<Networks>,
        turn: Arc<Turn>,
    ) -> Self {
        let mut servers = Self { servers: Vec::new(), directory: new_directory(), networks, turn };
        let mut token = None;
        for name in options.names() {
            let is_witness = name == WITNESS;
            let kind = if is_witness { "witness" } else { "node" };
            let daemon = servers.daemon(program, &name, kind, options);
            let listen = servers.new_addresses(&name);
            let own = ["--node-name", &name, "--listen", &listen];
            match &token {
                None => {
                    let made = ["cluster", "init", "--name", "test", "--slab-size", "4M"];
                    let besides: Vec<&str> = options.init_arguments.iter().map(String::as_str).collect();
                    let made = daemon.must_run(&[&made[..], &own[..], &besides[..]].concat());
                    token = Some(made.output.lines().last().expect("it prints a token").to_owned());
                }
                Some(token) => {
                    daemon.must_run(&[&[kind, "join", token], &own[..]].concat());
                }
            }
            servers.servers.push(Server { name: name.clone(), daemon });
            servers.server_mut(&name).daemon.start();
            if !is_witness {
                servers.add_drive(&name, &options.drive_size);
            }
        }
        if options.init_arguments.is_empty() {
            servers.await_state();
        }
        servers.await_drives(options.nodes as u64);
        servers
    }

    fn add_drive(&self, node: &str, size: &str) {
        self.add_drive_at(node, &self.drive_file(node), size);
    }

    /// Makes a file of this size and gives it to a node as a drive.
    ///
    /// # Panics
    ///
    /// If that does not work.
    pub fn add_drive_at(&self, node: &str, drive: &Path, size: &str) {
        let made = Command::new("truncate").args(["-s", size]).arg(drive).status();
        assert!(made.is_ok_and(|status| status.success()), "a drive can be made");
        self.must_run(node, &["drive", "add", drive.to_str().expect("a plain name")]);
    }

    fn await_drives(&self, drives: u64) {
        let all_usable = |status: &serde_json::Value| {
            let nodes = status["nodes"].as_array();
            nodes.is_some_and(|nodes| {
                nodes.iter().filter_map(|node| node["drives_usable"].as_u64()).sum::<u64>() == drives
            })
        };
        self.await_status("n1", "of all drives", all_usable);
    }

    fn daemon(&self, program: &Program, name: &str, kind: &str, options: &ServersOptions) -> Daemon {
        let arguments = vec![kind.to_owned(), "run".to_owned()];
        let mut daemon = Daemon::new(program.clone(), &self.directory.path().join(name), arguments);
        daemon.set_variable(PREFIX_VARIABLE, &options.drive_prefix);
        if options.runs_guests {
            daemon.set_variable(VM_MEMORY_VARIABLE, "1G");
        }
        if options.shards > 1 && kind == "node" {
            daemon.set_option("--shards", &options.shards.to_string());
        }
        if let Some(networks) = &self.networks {
            daemon.set_namespace(networks.namespace(name));
        }
        daemon
    }

    /// Where a server is to listen.
    fn new_addresses(&self, name: &str) -> String {
        let addresses = match &self.networks {
            Some(networks) => networks.addresses(name),
            None => vec![new_address()],
        };
        addresses.iter().map(|address| format!("{address}:{PORT}")).collect::<Vec<_>>().join(",")
    }

    /// The networks between the servers.
    ///
    /// # Panics
    ///
    /// If the cluster was started without.
    pub fn networks(&self) -> &Networks {
        self.networks.as_ref().expect("a cluster in networks")
    }

    /// Waits until the state is kept by as many servers as it should be.
    fn await_state(&self) {
        let votes = match self.servers.len() {
            0..=2 => 1,
            3..=4 => 3,
            _ => 5,
        };
        let has_votes = |state: &serde_json::Value| {
            let members = state["members"].as_array();
            members.is_some_and(|members| {
                members.iter().filter(|member| member["votes"] == true).count() == votes
            })
        };
        self.servers[0].daemon.await_answer(&["cluster", "state", "-o", "json"], "kept by all", has_votes);
    }

    /// A server's directory.
    pub fn directory(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Whether virtual machines run at a node.
    pub fn runs_guests(&self, node: &str) -> bool {
        !guests_in(&self.directory(node)).is_empty()
    }

    /// The file that is a node's drive.
    pub fn drive_file(&self, node: &str) -> PathBuf {
        self.directory.path().join(format!("{node}.drive"))
    }

    /// Where a node serves NBD on its own machine.
    pub fn nbd_address(&self, node: &str) -> Address {
        let path = self.directory.path().join(node).join("nbd.sock");
        Address::Unix(path.to_str().expect("temporary directories have plain names").to_owned())
    }

    /// The names of all servers.
    pub fn names(&self) -> Vec<String> {
        self.servers.iter().map(|server| server.name.clone()).collect()
    }

    fn server(&self, name: &str) -> &Server {
        let server = self.servers.iter().find(|server| server.name == name);
        server.unwrap_or_else(|| panic!("there is no server {name}"))
    }

    fn server_mut(&mut self, name: &str) -> &mut Server {
        let server = self.servers.iter_mut().find(|server| server.name == name);
        server.unwrap_or_else(|| panic!("there is no server {name}"))
    }

    /// Sets what stands before the location of a node's drive from its next start on.
    pub fn set_drive_prefix(&mut self, node: &str, prefix: &str) {
        self.server_mut(node).daemon.set_variable(PREFIX_VARIABLE, prefix);
    }

    /// Sets of how many shards a node is from its next start on.
    pub fn set_shards(&mut self, node: &str, shards: u64) {
        self.server_mut(node).daemon.set_option("--shards", &shards.to_string());
    }

    /// Kills a server's process, which leaves its member of etcd running.
    pub fn kill_process(&mut self, name: &str) {
        self.server_mut(name).daemon.kill();
    }

    /// Kills a server's process now, which leaves its member of etcd running. Nobody waits for it yet.
    pub fn kill_now(&self, name: &str) {
        self.server(name).daemon.kill_switch().kill();
    }

    /// Starts whatever does not run any more, and waits until all is healthy again.
    ///
    /// # Panics
    ///
    /// If it does not come to that, or if somebody else still uses the servers.
    pub fn restore(servers: &mut Arc<Self>) {
        let deadline = Instant::now() + RELEASE_TIME_MAX;
        let servers = loop {
            match Arc::get_mut(servers) {
                Some(alone) => break alone,
                // A thread that has killed something is about to end.
                None => assert!(Instant::now() < deadline, "somebody else uses the servers"),
            }
            std::thread::yield_now();
        };
        let dead = servers
            .servers
            .iter_mut()
            .filter_map(|server| (!server.daemon.is_running()).then(|| server.name.clone()));
        let dead: Vec<String> = dead.collect();
        servers.restart_together(&dead.iter().map(String::as_str).collect::<Vec<_>>());
        for name in servers.names() {
            servers.await_state_members(&name);
        }
        servers.await_health("n1");
        let all_up = |status: &serde_json::Value| {
            let nodes = status["nodes"].as_array();
            nodes.is_some_and(|nodes| nodes.iter().all(|node| node["status"]["health"] == "Healthy"))
        };
        servers.await_status("n1", "of all nodes", all_up);
        servers.await_paths();
    }

    /// Waits until every node reaches every other one over each of their networks: a path that was lost is dialled anew
    /// after some seconds only.
    fn await_paths(&self) {
        let networks = self.networks.as_ref().map_or(1, Networks::count);
        let all_there = |node: &serde_json::Value| {
            let peers = node["peers"].as_array();
            peers.is_some_and(|peers| {
                peers.iter().all(|peer| peer["paths"].as_array().is_some_and(|paths| paths.len() == networks))
            })
        };
        for name in self.names().iter().filter(|name| *name != WITNESS) {
            let question = ["node", "get", name, "-o", "json"];
            self.server(name).daemon.await_answer(&question, "connected over all networks", all_there);
        }
    }

    /// Kills the processes of these servers and their members of etcd, from wherever and whenever that is to be.
    pub fn power_switch(&self, names: &[&str]) -> PowerSwitch {
        let each = names.iter().map(|name| self.server(name));
        PowerSwitch {
            servers: each.map(|server| (server.daemon.kill_switch(), server.etcd_pattern())).collect(),
        }
    }

    /// Kills a server's process and its member of etcd: what the loss of its power would do.
    pub fn kill(&mut self, name: &str) {
        let server = self.server_mut(name);
        server.daemon.kill();
        server.kill_etcd();
    }

    /// Kills a server's member of etcd alone. Whether it ran.
    pub fn kill_etcd(&self, name: &str) -> bool {
        self.server(name).kill_etcd()
    }

    /// Whether a server's process runs.
    pub fn is_running(&self, name: &str) -> bool {
        self.server(name).daemon.is_running()
    }

    /// Waits until a server's process has ended by itself.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn await_end(&mut self, name: &str) {
        await_that(&format!("the end of {name}"), || !self.is_running(name));
    }

    /// What a server's process has said.
    pub fn log(&self, name: &str) -> String {
        self.server(name).daemon.log()
    }

    /// Ends a server's process in order.
    pub fn stop(&mut self, name: &str) {
        self.server_mut(name).daemon.stop();
    }

    /// Ends these servers in order, all at the same time, and waits until they are gone.
    ///
    /// # Panics
    ///
    /// If one does not end well, or leaves its member of etcd behind.
    pub fn stop_together(&mut self, names: &[&str]) {
        names.iter().for_each(|name| self.server(name).daemon.signal("-TERM"));
        for name in names {
            let server = self.server_mut(name);
            server.daemon.await_stopped();
            assert!(!server.kill_etcd(), "{name} has left its member of etcd running");
        }
    }

    /// Tells a server twice to end, and waits until it is gone, with its member of etcd: that is told to end in any case,
    /// and perhaps not waited for.
    ///
    /// # Panics
    ///
    /// If either goes on.
    pub fn stop_at_once(&mut self, name: &str) {
        let server = self.server(name);
        (0..2).for_each(|_| server.daemon.signal("-TERM"));
        self.await_end(name);
        let pattern = self.server(name).etcd_pattern();
        await_that(&format!("the end of {name}'s member of etcd"), || !runs_by_pattern(&pattern));
    }

    /// Starts a server again, and waits until it serves.
    pub fn restart(&mut self, name: &str) {
        self.server_mut(name).daemon.start();
    }

    /// Starts these servers again at the same time, and waits until all of them serve: none may without the others.
    pub fn restart_together(&mut self, names: &[&str]) {
        let mut starting = Vec::new();
        for name in names {
            starting.push((*name, self.server_mut(name).daemon.begin()));
        }
        for (name, is_ready) in starting {
            self.server(name).daemon.await_ready(&is_ready);
        }
    }

    /// Stops a server's process in the middle of whatever it does, or lets it go on: `-STOP`, `-CONT`.
    pub fn signal(&self, name: &str, signal: &str) {
        self.server(name).daemon.signal(signal);
    }

    /// Has a server's process see a variable of its environment from its next start on.
    pub fn set_variable(&mut self, name: &str, variable: &str, value: &str) {
        self.server_mut(name).daemon.set_variable(variable, value);
    }

    /// Runs a command on a server.
    pub fn run(&self, name: &str, arguments: &[&str]) -> CommandOutput {
        self.server(name).daemon.run(arguments)
    }

    /// Runs a command on a server once the cluster's state answers: those who keep it may be electing a leader.
    pub fn run_once_available(&self, name: &str, arguments: &[&str]) -> CommandOutput {
        self.server(name).daemon.run_once_available(arguments)
    }

    /// Runs a command on a server again as long as it fails with this error.
    pub fn run_again_while(&self, name: &str, error: &str, arguments: &[&str]) -> CommandOutput {
        self.server(name).daemon.run_again_while(error, arguments)
    }

    /// Runs a command on a server that must succeed.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn must_run(&self, name: &str, arguments: &[&str]) -> CommandOutput {
        self.server(name).daemon.must_run(arguments)
    }

    /// Waits until `spandrel status` on a server says what is asked for.
    ///
    /// # Panics
    ///
    /// If it does not come to that.
    pub fn await_status(&self, name: &str, what: &str, condition: impl Fn(&serde_json::Value) -> bool) {
        self.server(name).daemon.await_answer(&["status", "-o", "json"], what, condition);
    }

    /// Waits until all volumes are healthy, as a server sees it.
    ///
    /// # Panics
    ///
    /// If one does not become so.
    pub fn await_health(&self, name: &str) {
        self.await_status(name, "healthy", volumes_are_healthy);
    }

    /// The server whose member of etcd leads, as another one knows it.
    ///
    /// # Panics
    ///
    /// If none comes to lead.
    pub fn state_leader(&self, name: &str) -> String {
        let leader = |state: &serde_json::Value| {
            let members = state["members"].as_array().into_iter().flatten();
            let mut leading = members.filter(|member| member["leads"] == true);
            leading.next().and_then(|member| member["name"].as_str().map(str::to_owned))
        };
        let command = ["cluster", "state", "-o", "json"];
        let answer = self.server(name).daemon.await_answer(&command, "led", |state| leader(state).is_some());
        leader(&answer).expect("that was waited for")
    }

    /// Waits until all members of etcd run and one of them leads, as a server sees it.
    ///
    /// # Panics
    ///
    /// If it does not come to that.
    pub fn await_state_members(&self, name: &str) {
        let all_run = |state: &serde_json::Value| {
            let members = state["members"].as_array();
            members.is_some_and(|members| {
                members.iter().all(|member| member["runs"] == true)
                    && members.iter().any(|member| member["leads"] == true)
            })
        };
        self.server(name).daemon.await_answer(&["cluster", "state", "-o", "json"], "all there", all_run);
    }

    /// Waits until a server sees that another one's member of etcd does not run.
    ///
    /// # Panics
    ///
    /// If it does not come to that.
    pub fn await_lost_vote(&self, name: &str, lost: &str) {
        let is_lost = |state: &serde_json::Value| {
            let mut members = state["members"].as_array().into_iter().flatten();
            members.any(|member| member["name"] == lost && member["runs"] == false)
        };
        self.server(name).daemon.await_answer(&["cluster", "state", "-o", "json"], "without a vote", is_lost);
    }

    /// Makes a volume.
    ///
    /// # Panics
    ///
    /// If it is refused.
    pub fn create_volume(&self, server: &str, name: &str, arguments: &[&str]) {
        self.server(server).daemon.must_run_once_led(&[&["volume", "create", name], arguments].concat());
    }

    /// Deletes a volume.
    ///
    /// # Panics
    ///
    /// If it is refused.
    pub fn delete_volume(&self, server: &str, name: &str) {
        self.server(server).daemon.must_run_once_led(&["volume", "delete", name, "--yes"]);
    }

    /// The name of the node that owns a volume, as a server sees it. None if nobody does, or there is no such volume.
    ///
    /// # Panics
    ///
    /// If the server cannot say.
    pub fn owner(&self, name: &str, volume: &str) -> Option<String> {
        let daemon = &self.server(name).daemon;
        let answer = daemon.run_once_available(&["volume", "get", volume, "-o", "json"]);
        if answer.status != Some(0) {
            assert!(answer.errors.contains("VOLUME_NOT_FOUND"), "{answer:#?}\n{}", daemon.log());
            return None;
        }
        answer.json()["owner"].as_str().map(str::to_owned)
    }
}

impl Server {
    /// What the command line of its member of etcd holds, and no other process's.
    fn etcd_pattern(&self) -> String {
        format!("--data-dir={}", self.daemon.directory().join("etcd/data").display())
    }

    /// Kills the member of etcd, if it runs: the process with its data. Whether it did.
    fn kill_etcd(&self) -> bool {
        kill_by_pattern(&self.etcd_pattern())
    }
}

/// Cuts the power of some servers.
pub struct PowerSwitch {
    servers: Vec<(KillSwitch, String)>,
}

impl PowerSwitch {
    /// Now.
    ///
    /// # Panics
    ///
    /// If a server has no member of etcd.
    pub fn cut(self) {
        for (process, _) in &self.servers {
            process.kill();
        }
        // All of them before any is waited for.
        for (_, pattern) in &self.servers {
            assert!(signal_by_pattern(pattern), "no member of etcd dies: {pattern}");
        }
        self.servers.iter().for_each(|(_, pattern)| _ = kill_by_pattern(pattern));
    }
}

/// Whether there is a process with such a command line.
fn runs_by_pattern(pattern: &str) -> bool {
    let found = Command::new("pgrep").args(["-f", "--", pattern]).stdout(Stdio::null()).status();
    found.is_ok_and(|found| found.success())
}

/// Kills processes by their command lines. Whether there were any.
fn signal_by_pattern(pattern: &str) -> bool {
    let killed = Command::new("pkill").args(["-KILL", "-f", "--", pattern]).status();
    killed.is_ok_and(|found| found.success())
}

/// Kills processes by their command lines, and returns when they are gone. Whether there were any.
fn kill_by_pattern(pattern: &str) -> bool {
    let mut found = false;
    let are_gone = comes_true(|| {
        let runs = signal_by_pattern(pattern);
        found |= runs;
        !runs
    });
    // A test that has failed already says why itself.
    assert!(are_gone || std::thread::panicking(), "killed, and goes on: {pattern}");
    found
}

impl Drop for Server {
    fn drop(&mut self) {
        // Virtual machines outlive what has started them.
        self.daemon.kill();
        end_guests(self.daemon.directory());
        self.kill_etcd();
    }
}

/// An address on this machine where nothing else listens: one of the many of the loopback interface, by the number of
/// this process.
pub(crate) fn new_address() -> String {
    static COUNT: AtomicU8 = AtomicU8::new(1);
    let [_, _, third, fourth] = std::process::id().to_be_bytes();
    let server = COUNT.fetch_add(1, Ordering::Relaxed);
    IpAddr::V4(Ipv4Addr::new(127, 128 | (third & 0x7F), fourth, server)).to_string()
}
