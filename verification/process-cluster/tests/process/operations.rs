//! The operations guide, section by section: its commands as they stand there, under load, judged by what is kept.
//!
//! A test takes a section of the guide and runs its commands. One that the section does not have cannot be run, and one that
//! was not run fails the test in the end: so the guide says nothing that was not tried.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use spandrel_process_cluster::{
    CommandOutput, Daemon, HistoryClient, LoadOptions, LoadThread, Next, Program, Servers, ServersOptions,
    await_that,
};

const GUIDE: &str = include_str!("../../../../docs/guide/operations.md");

const VOLUME_BYTES: u64 = 32 << 20;

/// What commands begin with in the guide.
const PROGRAM: &str = "spandrel ";

/// What stands in the guide for a drive's path, and for a drive of n2.
const PATH: &str = "/dev/disk/by-id/…";
const DRIVE: &str = "n2/sdb";

/// A section of the guide.
struct Section {
    title: &'static str,
    commands: BTreeSet<String>,
    was_run: RefCell<BTreeSet<String>>,
}

impl Section {
    /// The section of this title, with its subsections' text.
    fn of(title: &'static str) -> Self {
        let head = format!("\n## {title}\n");
        let (_, text) =
            GUIDE.split_once(&head).unwrap_or_else(|| panic!("the guide has no section {title:?}"));
        let text = text.split("\n## ").next().unwrap_or_default();
        let command = |line: &str| {
            let command = line.strip_prefix("    ")?.split('#').next()?.trim_end();
            command.starts_with(PROGRAM).then(|| command.to_owned())
        };
        let commands: BTreeSet<String> = text.lines().filter_map(command).collect();
        assert!(!commands.is_empty(), "{title:?} has no commands");
        Self { title, commands, was_run: RefCell::default() }
    }

    /// Takes note that a command of the section is run.
    fn note(&self, command: &str) {
        assert!(
            self.commands.contains(command),
            "{:?} does not say {command:?}: {:?}",
            self.title,
            self.commands
        );
        self.was_run.borrow_mut().insert(command.to_owned());
    }

    /// Runs a command of the section on a server, with other words in the place of some, and says yes to what it asks.
    fn run(&self, servers: &Servers, server: &str, command: &str, words: &[(&str, &str)]) -> CommandOutput {
        self.note(command);
        let arguments = command.strip_prefix(PROGRAM).expect("it begins so");
        let asks = ["drive remove", "node remove", "volume delete"];
        let yes = asks.iter().any(|ask| arguments.starts_with(ask)) && !arguments.contains("--dry-run");
        let mut told: Vec<&str> = Vec::new();
        for word in arguments.split_whitespace() {
            let other = words.iter().find(|(stands, _)| *stands == word);
            told.push(other.map_or(word, |(_, is)| is));
        }
        told.extend(yes.then_some("--yes"));
        servers.run_once_available(server, &told)
    }

    /// The same for a command that must succeed.
    fn must_run(
        &self,
        servers: &Servers,
        server: &str,
        command: &str,
        words: &[(&str, &str)],
    ) -> CommandOutput {
        let output = self.run(servers, server, command, words);
        assert_eq!(output.status, Some(0), "{command}: {output:#?}");
        output
    }

    /// Every command of the section was run.
    fn end(self) {
        let was_run = self.was_run.into_inner();
        let left: Vec<&String> = self.commands.difference(&was_run).collect();
        assert!(left.is_empty(), "not tried of {:?}: {left:?}", self.title);
    }
}

fn servers(nodes: usize) -> Servers {
    Servers::start(&Program::with_test_faults(), &ServersOptions::new(nodes, false))
}

/// A cluster with the guide's volume, and a client that loads it at n1.
fn under_load(nodes: usize, seed: u64) -> (Servers, LoadThread) {
    let servers = servers(nodes);
    servers.create_volume("n1", "disk1", &["--size", "32M", "--copies", "3", "--owner", "n2"]);
    let load =
        LoadThread::start(servers.nbd_address("n1"), "disk1", VOLUME_BYTES, seed, LoadOptions::default());
    load.await_answers(500);
    (servers, load)
}

/// The client was answered throughout, and all of it stands on all copies.
fn assert_kept(servers: &Servers, load: LoadThread, nodes: &[&str]) {
    load.await_answers(500);
    servers.await_health("n1");
    let end = load.end(&nodes.iter().map(|node| servers.nbd_address(node)).collect::<Vec<_>>());
    assert!(end.is_faultless(), "{end:?}");
    let verified = servers.run("n1", &["volume", "verify", "disk1"]);
    assert_eq!(verified.status, Some(0), "{verified:#?}");
}

/// A new file for a drive, as it would be a new disk in the server.
fn new_drive(servers: &Servers, node: &str, size: &str) -> String {
    let file = servers.directory(node).join("new.drive");
    let made = Command::new("truncate").args(["-s", size]).arg(&file).status();
    assert!(made.is_ok_and(|status| status.success()), "a drive can be made");
    file.to_str().expect("a plain name").to_owned()
}

fn promised_bytes(status: &serde_json::Value, drive: &str) -> Option<u64> {
    let drives = status["drives"].as_array()?;
    drives.iter().find(|known| known["name"] == drive)?["promised_bytes"].as_u64()
}

#[test]
fn replace_a_drive() {
    let section = Section::of("Replace a drive");
    let (servers, load) = under_load(4, 1);
    let drive = [(DRIVE, "n2/n2")];
    let would = section.must_run(&servers, "n1", "spandrel drive remove n2/sdb --dry-run", &drive);
    assert!(would.output.contains("can be taken out of the pool"), "{would:?}");
    let told = section.must_run(&servers, "n1", "spandrel explain drive n2/sdb", &drive);
    assert!(told.output.contains("it works"), "{told:?}");
    section.must_run(&servers, "n1", "spandrel drive remove n2/sdb", &drive);
    let path = new_drive(&servers, "n2", "256M");
    section.must_run(&servers, "n2", "spandrel drive add /dev/disk/by-id/…", &[(PATH, &path)]);
    let shown = servers.must_run("n1", &["drive", "get", "n2/new", "-o", "json"]).json();
    assert!(shown["media"].is_null(), "what a file lies on is no property of it: {shown}");
    section.end();
    assert_kept(&servers, load, &["n1", "n2", "n3", "n4"]);
}

/// A server that the cluster does not know yet: its process ends with the test, and its member of etcd.
struct Newcomer {
    directory: PathBuf,
    daemon: Daemon,
}

impl Newcomer {
    fn beside(servers: &Servers, name: &str) -> Self {
        let directory = servers.directory(name);
        let arguments = vec!["node".to_owned(), "run".to_owned()];
        let daemon = Daemon::new(Program::with_test_faults(), &directory, arguments);
        Self { directory, daemon }
    }

    /// Where no other server of a test listens.
    fn address(number: u8) -> String {
        let [_, _, third, fourth] = std::process::id().to_be_bytes();
        format!("{}:7440", Ipv4Addr::new(127, 32 | (third & 0x1F), fourth, number))
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        self.daemon.kill();
        let pattern = format!("--data-dir={}", self.directory.join("etcd/data").display());
        let _ = Command::new("pkill").args(["-KILL", "-f", "--", &pattern]).status();
    }
}

#[test]
fn add_a_node() {
    let section = Section::of("Add a node");
    let (servers, load) = under_load(4, 2);
    let token = section.must_run(&servers, "n1", "spandrel cluster join-token", &[]).output.trim().to_owned();
    let mut newcomer = Newcomer::beside(&servers, "n5");
    let join = "spandrel node join TOKEN --node-name n5 --listen ADDRESS";
    section.note(join);
    let address = Newcomer::address(1);
    newcomer.daemon.must_run(&["node", "join", &token, "--node-name", "n5", "--listen", &address]);
    section.note("spandrel node run");
    newcomer.daemon.start();
    section.note("spandrel drive add /dev/disk/by-id/…");
    newcomer.daemon.must_run(&["drive", "add", &new_drive(&servers, "n5", "256M")]);
    section.must_run(&servers, "n1", "spandrel pool optimize", &[]);
    section.must_run(&servers, "n1", "spandrel pool status", &[]);
    let has_copies =
        |status: &serde_json::Value| promised_bytes(status, "n5/new").is_some_and(|bytes| bytes > 0);
    servers.await_status("n1", "filled where it is new", has_copies);
    section.end();
    assert_kept(&servers, load, &["n1", "n2", "n3", "n4"]);
}

#[test]
fn replace_or_remove_a_node() {
    let section = Section::of("Replace or remove a node");
    let (servers, load) = under_load(4, 3);
    let would = section.must_run(&servers, "n1", "spandrel node remove n3 --dry-run", &[]);
    assert!(would.output.contains("can be taken out of the cluster"), "{would:?}");
    section.must_run(&servers, "n1", "spandrel node remove n3", &[]);
    await_that("the end of n3", || !servers.is_running("n3"));
    // Of three nodes none can go while there are three copies.
    let refused = servers.run_once_available("n1", &["node", "remove", "n4", "--dry-run"]);
    assert_eq!(refused.status, Some(1), "{refused:?}");
    assert!(refused.errors.contains("NODE_NEEDED"), "{refused:?}");
    section.end();
    assert_kept(&servers, load, &["n1", "n2", "n4"]);
}

#[test]
fn take_a_server_down_for_a_while() {
    let section = Section::of("Take a server down for a while");
    let (mut servers, load) = under_load(3, 4);
    let safe = section.must_run(&servers, "n1", "spandrel node safe-to-stop n2", &[]);
    assert!(safe.output.starts_with("yes"), "{safe:?}");
    section.must_run(&servers, "n1", "spandrel node drain n2", &[]);
    // What is needed now is not stopped, whoever asks.
    for refused in [
        section.run(&servers, "n1", "spandrel node safe-to-stop n2", &[]),
        servers.run("n1", &["node", "stop", "n3", "--dry-run"]),
        servers.run("n1", &["node", "stop", "n3"]),
    ] {
        let is_refused = refused.status == Some(1) && refused.errors.contains("STATE_MAJORITY_NEEDED");
        assert!(is_refused || refused.output.starts_with("yes"), "{refused:?}");
    }
    assert!(servers.is_running("n3"));
    section.must_run(&servers, "n1", "spandrel node resume n2", &[]);
    servers.await_health("n1");
    servers.must_run("n1", &["volume", "move", "disk1", "--owner", "n2"]);
    let would = section.must_run(&servers, "n1", "spandrel node stop n2 --dry-run", &[]);
    assert!(would.output.contains("would hand over 1 volume (disk1)"), "{would:?}");
    assert!(servers.is_running("n2"));
    let stopped = section.must_run(&servers, "n1", "spandrel node stop n2", &[]);
    assert!(stopped.output.contains("node n2 has ended, and is in maintenance"), "{stopped:?}");
    servers.await_end("n2");
    load.await_answers(500);
    let again = servers.run("n1", &["node", "stop", "n2"]);
    assert!(again.errors.contains("NODE_NOT_RUNNING"), "{again:?}");
    section.note("spandrel node run");
    servers.kill_process("n2");
    servers.restart("n2");
    section.must_run(&servers, "n1", "spandrel node resume n2", &[]);
    // On its own server it can be said as well.
    servers.await_health("n1");
    servers.await_state_members("n1");
    servers.must_run("n3", &["node", "stop", "n3"]);
    servers.await_end("n3");
    servers.kill_process("n3");
    servers.restart("n3");
    servers.must_run("n1", &["node", "resume", "n3"]);
    section.end();
    assert_kept(&servers, load, &["n1", "n2", "n3"]);
}

#[test]
fn update_all_servers() {
    let section = Section::of("Update all servers");
    let (servers, load) = under_load(3, 5);
    let run = section.must_run(&servers, "n1", "spandrel cluster servers", &[]);
    assert_eq!(run.output.matches("as installed").count(), 3, "{run:?}");
    let would = section.must_run(&servers, "n1", "spandrel cluster restart --dry-run", &[]);
    assert_eq!(would.output.matches("can be restarted").count(), 3, "{would:?}");
    // A client of a server that restarts connects anew: this one is on the other two in turn.
    servers.must_run("n1", &["cluster", "restart", "n2", "n3"]);
    load.move_to(servers.nbd_address("n2"));
    servers.must_run("n1", &["cluster", "restart", "n1"]);
    assert_kept(&servers, load, &["n1", "n2", "n3"]);
    section.must_run(&servers, "n1", "spandrel cluster restart", &[]);
    servers.await_health("n1");
    section.end();
}

#[test]
fn out_of_room() {
    let section = Section::of("Out of room");
    let (servers, load) = under_load(3, 6);
    let pool = servers.must_run("n1", &["status", "-o", "json"]).json();
    let left = pool["pool"]["volume_bytes_max"].as_u64().expect("a number");
    servers.create_volume("n1", "disk2", &["--size", &left.to_string(), "--copies", "3"]);
    let refused = servers.run("n1", &["volume", "create", "disk3", "--size", "64M", "--copies", "3"]);
    assert!(refused.errors.contains("POOL_FULL"), "{refused:?}");
    let refused = servers.run("n1", &["volume", "resize", "disk1", "+64M"]);
    assert!(refused.errors.contains("POOL_FULL"), "{refused:?}");
    // Those that have their room go on.
    load.await_answers(500);
    let faults = section.must_run(&servers, "n1", "spandrel fault list", &[]);
    assert!(faults.output.contains("pool.reserve"), "{faults:?}");
    section.must_run(&servers, "n1", "spandrel pool status", &[]);
    section.must_run(&servers, "n1", "spandrel drive list", &[]);
    section.must_run(&servers, "n1", "spandrel volume list", &[]);
    // More room on one node alone is none: each part has a copy on each.
    for node in ["n1", "n2", "n3"] {
        let refused = servers.run("n1", &["volume", "resize", "disk1", "+64M", "--dry-run"]);
        assert!(refused.errors.contains("POOL_FULL"), "before {node}: {refused:?}");
        let path = new_drive(&servers, node, "128M");
        section.must_run(&servers, node, "spandrel drive add /dev/disk/by-id/…", &[(PATH, &path)]);
    }
    servers.must_run("n1", &["volume", "resize", "disk1", "+64M"]);
    let would = section.must_run(&servers, "n1", "spandrel volume delete disk2 --dry-run", &[]);
    assert!(would.output.contains("would be deleted"), "{would:?}");
    let in_use = servers.run("n1", &["volume", "delete", "disk1", "--dry-run"]);
    assert_eq!(in_use.status, Some(1), "{in_use:?}");
    assert!(in_use.errors.contains("VOLUME_IN_USE"), "{in_use:?}");
    let names = |servers: &Servers| servers.must_run("n1", &["volume", "list"]).output;
    assert!(names(&servers).contains("disk2"), "nothing was done");
    section.must_run(&servers, "n1", "spandrel volume delete disk2", &[]);
    assert!(!names(&servers).contains("disk2"));
    section.end();
    assert_kept(&servers, load, &["n1", "n2", "n3"]);
}

/// Loads a volume until the power of all is cut, in the middle of what is under way.
fn load_until_dark(servers: &Servers, client: &mut HistoryClient, names: &[&str]) {
    let mut switch = Some(servers.power_switch(names));
    let next = move |answered| match switch.take() {
        Some(switch) if answered >= 1000 => {
            Next::AndLater(Duration::from_micros(300), Box::new(move || switch.cut()))
        }
        other => {
            switch = other;
            Next::GoOn
        }
    };
    let end = client.load(LoadOptions::default(), next).expect("a cluster that serves");
    assert_eq!((&end.failures, &end.violations), (&Vec::new(), &Vec::new()));
    assert!(end.broken.is_some(), "{end:?}");
}

#[test]
fn everything_went_dark() {
    let section = Section::of("Everything went dark");
    let mut servers = servers(4);
    servers.create_volume("n1", "disk1", &["--size", "32M", "--copies", "3", "--owner", "n1"]);
    servers.create_volume("n1", "disk2", &["--size", "32M", "--copies", "3"]);
    let mut client = HistoryClient::new(servers.nbd_address("n1"), "disk1", VOLUME_BYTES, 7);
    let all = ["n1", "n2", "n3", "n4"];
    load_until_dark(&servers, &mut client, &all[..3]);
    all.iter().for_each(|name| servers.kill(name));
    // One alone has no majority, and says what it waits for.
    section.note("spandrel node run");
    servers.restart_together(&["n1", "n2", "n4"]);
    assert!(client.check().expect("a cluster that serves").is_empty());
    let state = section.must_run(&servers, "n1", "spandrel cluster state", &[]);
    let order: Vec<usize> = ["n1", "n2", "n3"].iter().filter_map(|name| state.output.find(name)).collect();
    assert!(order.is_sorted() && order.len() == 3, "{state:?}");
    section.must_run(&servers, "n1", "spandrel node list", &[]);
    section.must_run(&servers, "n1", "spandrel volume list", &[]);
    let faults = section.must_run(&servers, "n1", "spandrel fault list", &[]);
    assert!(faults.output.contains("server.down") && faults.output.contains("n3"), "{faults:?}");
    let told = section.must_run(&servers, "n1", "spandrel explain node n3", &[]);
    assert!(told.output.contains("Down"), "{told:?}");
    section.must_run(&servers, "n1", "spandrel explain volume disk1", &[]);
    // n3 is gone for good.
    let would = section.must_run(&servers, "n1", "spandrel node remove n3 --dry-run", &[]);
    assert!(would.output.contains("can be taken out"), "{would:?}");
    section.must_run(&servers, "n1", "spandrel node remove n3", &[]);
    servers.await_health("n1");
    section.must_run(&servers, "n1", "spandrel volume verify disk1", &[]);
    for node in ["n1", "n2", "n4"] {
        client.use_address(servers.nbd_address(node));
        assert!(client.check().expect("a cluster that serves").is_empty());
    }
    section.end();
}

/// Each command that can destroy, stop or reduce something says with `--dry-run` what it would do, or why not, and does nothing.
#[test]
fn dry_runs_say_what_would_be_done_and_do_nothing() {
    let servers = Servers::start(&Program::with_test_faults(), &ServersOptions::new(2, true));
    servers.create_volume("n1", "disk1", &["--size", "32M", "--copies", "2", "--owner", "n1"]);
    servers.must_run("n1", &["access", "create", "grafana", "--role", "read"]);
    let lists = [
        &["volume", "list"][..],
        &["access", "list"],
        &["cluster", "join-token", "list", "-o", "json"],
        &["pool", "status", "-o", "json"],
        &["cluster", "servers", "-o", "json"],
    ];
    let said = || lists.map(|list| servers.must_run("n1", list).output);
    servers.await_health("n1");
    let before = said();
    let tokens = servers.must_run("n1", &["cluster", "join-token", "list", "-o", "json"]).json();
    let token = tokens[0]["id"].as_str().expect("the first one is valid").to_owned();
    for (command, says) in [
        ("volume delete disk1", "would be deleted: 32 MiB"),
        ("node stop n2", "would hand over no volume"),
        ("node drain n2", "would have no volume to hand over"),
        ("node restart n2", "can be restarted"),
        ("witness restart w", "can be restarted"),
        ("witness remove w", "would be taken out of the cluster"),
        ("access delete grafana", "grafana, whose role is read, would have no access any more"),
        (&format!("cluster join-token revoke {token}"), "nobody could join with"),
        ("pool set --rebuild-after-node 4h --retire-slow on", "then:"),
        ("pool optimize", "would move"),
    ] {
        let arguments: Vec<&str> = command.split_whitespace().chain(["--dry-run"]).collect();
        let told = servers.run_once_available("n1", &arguments);
        assert_eq!(told.status, Some(0), "{command}: {told:#?}");
        assert!(told.output.contains(says), "{command}: {told:#?}");
    }
    for (command, code) in [
        ("volume delete disk9", "VOLUME_NOT_FOUND"),
        ("node stop n9", "NODE_NOT_FOUND"),
        ("node stop n2 --abrupt", "NODE_IS_A_PROCESS"),
        ("node remove n2", "NODE_NEEDED"),
        ("drive remove n2/n2", "DRIVE_NEEDED"),
        ("drive retire n2/n2", "DRIVE_NEEDED"),
        ("access delete nobody", "ACCESS_NOT_FOUND"),
        ("cluster join-token revoke xyz", "JOIN_TOKEN_NOT_FOUND"),
        ("pool set --scrub-period 2s", "TIME_TOO_SHORT"),
        ("cluster settle --without n2", "NODE_RUNNING"),
    ] {
        let arguments: Vec<&str> = command.split_whitespace().chain(["--dry-run"]).collect();
        let told = servers.run_once_available("n1", &arguments);
        assert_eq!(told.status, Some(1), "{command}: {told:#?}");
        assert!(told.errors.contains(code), "{command}: {told:#?}");
    }
    assert_eq!(said(), before, "nothing was done");
}
