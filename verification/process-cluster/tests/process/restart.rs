//! Servers that begin anew with the program that is installed, one after the other, while clients go on.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

use spandrel_process_cluster::{LoadOptions, LoadThread, Program, Servers, ServersOptions};
use tempfile::tempdir;

const VOLUME_BYTES: u64 = 32 << 20;

/// What `cluster servers` says, by the servers' names: when the run began, and whether its program was replaced.
fn runs(servers: &Servers) -> Vec<(String, u64, bool)> {
    let said = servers.must_run("n1", &["cluster", "servers", "-o", "json"]).json();
    let said = said.as_array().expect("a list");
    let run = |server: &serde_json::Value| {
        let run = &server["run"];
        assert!(run["version"].is_string(), "it answers: {server}");
        (
            server["name"].as_str().expect("a name").to_owned(),
            run["started_unix_ms"].as_u64().expect("a time"),
            run["is_replaced"].as_bool().expect("yes or no"),
        )
    };
    said.iter().map(run).collect()
}

fn process(servers: &Servers, name: &str) -> u64 {
    servers.must_run(name, &["status", "-o", "json"]).json()["process"].as_u64().expect("its number")
}

/// Has the program's name mean another file, as an update of its package does.
fn install(program: &Path, link: &Path) {
    let fresh = link.with_extension("fresh");
    symlink(program, &fresh).expect("the directory can be written to");
    std::fs::rename(&fresh, link).expect("the directory can be written to");
}

#[test]
fn all_servers_are_restarted_with_a_replaced_program_while_clients_go_on() {
    let built = Program::with_test_faults();
    let directory = tempdir().expect("a directory can be made");
    let (link, update) = (directory.path().join("spandrel"), directory.path().join("update"));
    install(built.path(), &link);
    let servers = Servers::start(&Program::at(&link), &ServersOptions::new(3, true));
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n2"]);
    let load = LoadThread::start(servers.nbd_address("n1"), "v", VOLUME_BYTES, 41, LoadOptions::default());
    load.await_answers(500);
    let before = runs(&servers);
    assert_eq!(before.iter().map(|(name, ..)| name.as_str()).collect::<Vec<_>>(), ["w", "n1", "n2", "n3"]);
    assert!(before.iter().all(|(_, _, is_replaced)| !is_replaced), "{before:?}");
    let processes: Vec<u64> = ["n1", "n2", "n3"].iter().map(|name| process(&servers, name)).collect();

    std::fs::copy(built.path(), &update).expect("there is room for a second program");
    install(&update, &link);
    assert!(runs(&servers).iter().all(|(_, _, is_replaced)| *is_replaced));
    let would = servers.must_run("n1", &["cluster", "restart", "--outdated", "--dry-run"]);
    assert_eq!(would.output.matches("can be restarted").count(), 4, "{would:?}");
    assert_eq!(
        runs(&servers).iter().map(|(_, started, _)| *started).collect::<Vec<_>>(),
        before.iter().map(|(_, started, _)| *started).collect::<Vec<_>>(),
        "nothing was done"
    );

    // The client's own node comes last, when the client has moved on.
    let most = servers.must_run("n1", &["cluster", "restart", "w", "n2", "n3"]);
    assert!(most.output.contains("3 servers restarted"), "{most:?}");
    load.await_answers(500);
    load.move_to(servers.nbd_address("n2"));
    let last = servers.must_run("n1", &["cluster", "restart", "--outdated"]);
    assert!(last.output.contains("n1 restarted") && last.output.contains("1 server restarted"), "{last:?}");
    load.await_answers(500);

    let after = runs(&servers);
    for ((name, started, _), (_, restarted, is_replaced)) in before.iter().zip(&after) {
        assert!(restarted > started && !is_replaced, "{name}: {before:?} {after:?}");
    }
    for (name, number) in ["n1", "n2", "n3"].iter().zip(processes) {
        assert_eq!(process(&servers, name), number, "the process of {name} goes on under its number");
    }
    servers.await_health("n1");
    let nodes = servers.must_run("n1", &["node", "list"]);
    assert!(!nodes.output.contains("Maintenance"), "all take volumes again: {nodes:?}");
    let end = load.end(&["n1", "n2", "n3"].map(|node| servers.nbd_address(node)));
    assert!(end.is_faultless(), "{end:?}");
}

/// Runs a command on n1 with a program that is not the one that is installed.
fn run_with(program: &Path, servers: &Servers, arguments: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.arg("--dir").arg(servers.directory("n1")).args(arguments);
    command.output().expect("the program can be started")
}

#[test]
fn what_is_needed_or_cannot_be_run_is_not_restarted() {
    let built = Program::with_test_faults();
    let directory = tempdir().expect("a directory can be made");
    let link = directory.path().join("spandrel");
    install(built.path(), &link);
    let mut servers = Servers::start(&Program::at(&link), &ServersOptions::new(3, false));
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n2"]);
    let processes = ["n1", "n2"].map(|name| process(&servers, name));
    servers.kill("n3");
    servers.await_lost_vote("n1", "n3");
    let refused = servers.run_once_available("n1", &["cluster", "restart", "n2"]);
    assert_eq!(refused.status, Some(1), "{refused:?}");
    assert!(refused.errors.contains("STATE_MAJORITY_NEEDED"), "{refused:?}");
    assert!(refused.errors.contains("left: `spandrel cluster restart n2`"), "{refused:?}");
    let away = servers.run_once_available("n1", &["node", "restart", "n3"]);
    assert!(away.errors.contains("SERVER_NOT_RUNNING"), "{away:?}");
    servers.restart("n3");
    servers.await_state_members("n1");
    servers.await_health("n1");

    install(Path::new("/bin/false"), &link);
    let unusable = run_with(built.path(), &servers, &["node", "restart", "n2"]);
    let errors = String::from_utf8_lossy(&unusable.stderr);
    assert!(!unusable.status.success() && errors.contains("PROGRAM_UNUSABLE"), "{errors}");
    install(built.path(), &link);
    let node = servers.must_run("n1", &["node", "get", "n2", "-o", "json"]).json();
    assert_eq!(node["maintenance"], serde_json::Value::Null, "nothing was begun");
    let witness = servers.run("n1", &["witness", "restart", "n2"]);
    assert!(witness.errors.contains("there is no witness \"n2\""), "{witness:?}");
    assert_eq!(["n1", "n2"].map(|name| process(&servers, name)), processes);
    let log = servers.log("n2");
    assert!(!log.contains("begins anew"), "{log}");

    let restarted = servers.must_run("n1", &["node", "restart", "n1"]);
    assert!(restarted.output.starts_with("n1 restarted"), "{restarted:?}");
}
