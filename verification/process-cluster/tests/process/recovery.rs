//! The cluster's state is lost, or older than what the drives know: nothing is served by mistake, and after a recovery
//! everything that was answered is there.

use std::path::Path;
use std::process::Command;

use spandrel_process_cluster::{
    Daemon, HistoryClient, LoadOptions, Next, Program, Servers, ServersOptions, await_that,
};

const VOLUME_BYTES: u64 = 32 << 20;
const ALL: [&str; 3] = ["n1", "n2", "n3"];

fn servers() -> Servers {
    servers_of(3)
}

fn servers_of(nodes: usize) -> Servers {
    let options = ServersOptions::new(nodes, false);
    Servers::start(&Program::with_test_faults(), &options)
}

fn client_of(servers: &Servers, seed: u64) -> HistoryClient {
    let copies = servers.names().len().min(3).to_string();
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", &copies, "--owner", "n1"]);
    HistoryClient::new(servers.nbd_address("n1"), "v", VOLUME_BYTES, seed)
}

fn load(client: &mut HistoryClient, writes: u64) {
    let next = move |answered| if answered < writes { Next::GoOn } else { Next::End };
    let end = client.load(LoadOptions::default(), next).expect("a cluster that serves");
    assert_eq!((&end.failures, &end.violations, &end.broken), (&Vec::new(), &Vec::new(), &None));
}

fn assert_nothing_is_lost(client: &mut HistoryClient) {
    let violations = client.check().expect("a cluster that serves");
    assert!(violations.is_empty(), "{violations:?}");
}

fn await_votes(servers: &Servers, votes: usize) {
    await_that("the votes", || {
        let state = servers.run("n1", &["cluster", "state", "-o", "json"]);
        let state: serde_json::Value = serde_json::from_str(&state.output).unwrap_or_default();
        let members = state["members"].as_array().into_iter().flatten();
        members.filter(|member| member["votes"] == true).count() == votes
    });
}

fn copy(from: &Path, to: &Path) {
    let _ = std::fs::remove_dir_all(to);
    let copied = Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(copied.is_ok_and(|status| status.success()), "{from:?}");
}

#[test]
fn a_state_whose_majority_is_lost_is_recovered_from_one_member() {
    let mut servers = servers();
    let mut client = client_of(&servers, 1);
    load(&mut client, 1000);
    ALL.iter().for_each(|name| servers.kill(name));
    let database = servers.directory("n2").join("etcd/data/member/snap/db");
    std::fs::write(database, [7; 8192]).expect("it was there");
    let damaged = servers.run("n2", &["cluster", "recover", "--from-member", "--dry-run"]);
    assert!(damaged.errors.contains("STATE_MEMBER_UNKNOWN"), "{damaged:#?}");
    assert!(damaged.errors.contains("etcd ends on it"), "{damaged:#?}");
    for lost in ["n2", "n3"] {
        std::fs::remove_dir_all(servers.directory(lost).join("etcd")).expect("it was there");
    }
    let unconfirmed = servers.run("n1", &["cluster", "recover", "--from-member"]);
    assert!(unconfirmed.errors.contains("NOT_CONFIRMED"), "{unconfirmed:#?}");
    let told = servers.must_run("n1", &["cluster", "recover", "--from-member", "--dry-run"]);
    assert!(told.output.contains("knows 1 volumes"), "{told:#?}");
    servers.must_run("n1", &["cluster", "recover", "--from-member", "--yes"]);
    servers.restart("n1");
    // No copy is believed before all were compared.
    let waits = servers.must_run("n1", &["cluster", "settle"]);
    assert!(waits.output.contains("volumes that wait: v"), "{waits:#?}");
    servers.restart_together(&["n2", "n3"]);
    assert_nothing_is_lost(&mut client);
    load(&mut client, 1000);
    servers.await_health("n1");
    await_votes(&servers, 3);
    let settled = servers.must_run("n1", &["cluster", "settle"]);
    assert!(settled.output.contains("all volumes are settled"), "{settled:#?}");
    assert_nothing_is_lost(&mut client);
}

/// The older state calls a copy in sync that was marked stale since.
#[test]
fn an_older_state_is_refused_and_once_recovered_believes_no_copy() {
    let mut servers = servers();
    let mut client = client_of(&servers, 2);
    load(&mut client, 500);
    ALL.iter().for_each(|name| servers.stop(name));
    for name in ALL {
        copy(&servers.directory(name).join("etcd/data"), &servers.directory(name).join("etcd/older"));
    }
    servers.restart_together(&ALL);
    servers.await_health("n1");
    servers.kill("n3");
    load(&mut client, 2000);
    await_that("a volume without the node that was killed", || {
        let create = ["volume", "create", "later", "--size", "32M", "--copies", "2"];
        servers.run("n1", &create).status == Some(0)
    });
    ["n1", "n2"].iter().for_each(|name| servers.stop(name));
    for name in ALL {
        copy(&servers.directory(name).join("etcd/older"), &servers.directory(name).join("etcd/data"));
    }
    let mut other = Daemon::new(
        Program::with_test_faults(),
        &servers.directory("n2"),
        vec!["node".to_owned(), "run".to_owned()],
    );
    other.set_variable("SPANDREL_TEST_DRIVE_PREFIX", "volatile:");
    let _ = other.begin();
    let refused = run_with_prefix(&servers, "n1", &["node", "run"]);
    assert!(refused.contains("STATE_OLDER_THAN_DRIVES"), "{refused}");
    assert!(refused.contains("spandrel cluster recover"), "{refused}");
    other.kill();
    for name in ALL {
        servers.kill_etcd(name);
    }
    let told = run_with_prefix(&servers, "n1", &["cluster", "recover", "--from-member", "--dry-run"]);
    assert!(told.contains("what has changed since is lost"), "{told}");
    run_with_prefix(&servers, "n1", &["cluster", "recover", "--from-member", "--yes"]);
    servers.restart("n1");
    servers.restart_together(&["n2", "n3"]);
    assert_nothing_is_lost(&mut client);
    let volumes = servers.must_run("n1", &["volume", "list", "-o", "json"]).json();
    assert_eq!(volumes.as_array().map(Vec::len), Some(1), "the later one is not known: {volumes}");
    servers.await_health("n1");
    await_votes(&servers, 3);
    for node in ALL {
        client.use_address(servers.nbd_address(node));
        assert_nothing_is_lost(&mut client);
    }
    let verified = servers.run("n1", &["volume", "verify", "v"]);
    assert_eq!(verified.status, Some(0), "{verified:#?}");
}

/// What a command says that opens drives: they are those of the tests.
fn run_with_prefix(servers: &Servers, name: &str, arguments: &[&str]) -> String {
    let output = Command::new(Program::with_test_faults().path())
        .arg("--dir")
        .arg(servers.directory(name))
        .args(arguments)
        .env("SPANDREL_TEST_DRIVE_PREFIX", "volatile:")
        .output()
        .expect("the program can be started");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_node_that_is_lost_with_its_drives_is_gone_on_without() {
    let mut servers = servers();
    let mut client = client_of(&servers, 3);
    load(&mut client, 500);
    let file = servers.directory("n1").join("../backup.json");
    let file = file.to_str().expect("a plain name");
    servers.must_run("n1", &["cluster", "backup", file]);
    load(&mut client, 500);
    ALL.iter().for_each(|name| servers.kill(name));
    servers.must_run("n1", &["cluster", "recover", "--from", file, "--yes"]);
    servers.restart_together(&["n1", "n2"]);
    await_that("n3 being away", || {
        let status = servers.run("n1", &["cluster", "settle", "--dry-run"]);
        status.output.contains("nodes that are away: n3")
    });
    servers.must_run("n1", &["cluster", "settle", "--without", "n3", "--yes"]);
    assert_nothing_is_lost(&mut client);
    load(&mut client, 500);
}

/// Two of three go on with the former state, since nobody has told them of the recovery. What they answer is not lost,
/// and they end once they see the recovered state.
#[test]
fn servers_that_go_on_with_the_former_state_end_when_they_see_the_recovered_one() {
    let mut servers = servers();
    let mut client = client_of(&servers, 4);
    load(&mut client, 500);
    let file = servers.directory("n1").join("../backup.json");
    let file = file.to_str().expect("a plain name");
    servers.must_run("n1", &["cluster", "backup", file]);
    servers.kill("n1");
    let refused = servers.run("n1", &["cluster", "recover", "--from", file, "--yes"]);
    assert!(refused.errors.contains("SERVERS_RUNNING") && refused.errors.contains("n2, n3"), "{refused:#?}");
    ["n2", "n3"].iter().for_each(|name| servers.kill(name));
    servers.must_run("n1", &["cluster", "recover", "--from", file, "--yes"]);
    servers.restart_together(&["n2", "n3"]);
    client.use_address(servers.nbd_address("n2"));
    load(&mut client, 500);
    servers.restart("n1");
    // Its copies are out of date, but it does not know that: without the others nothing is served.
    let waits = servers.must_run("n1", &["cluster", "settle"]);
    assert!(waits.output.contains("volumes that wait: v"), "{waits:#?}");
    for name in ["n2", "n3"] {
        await_that("the end of a server of the former state", || !servers.is_running(name));
        let log = servers.log(name);
        assert!(log.contains("STATE_SET_BACK"), "{log}");
    }
    servers.restart_together(&["n2", "n3"]);
    servers.await_health("n1");
    for node in ALL {
        client.use_address(servers.nbd_address(node));
        assert_nothing_is_lost(&mut client);
    }
    load(&mut client, 500);
    await_votes(&servers, 3);
    let put_aside = std::fs::read_dir(servers.directory("n2").join("etcd")).expect("it is there");
    let mut names = put_aside
        .map(|entry| entry.expect("it can be read").file_name().into_string().expect("a plain name"));
    assert!(names.any(|name| name.starts_with("data.before-recovery-")), "it may be all that is left");
}

/// The state is recovered on the second of two nodes, which has no vote. If the first one comes back after all, it has a
/// majority by itself, and must not go by it.
#[test]
fn of_two_nodes_the_one_that_was_lost_follows_when_it_comes_back() {
    let mut servers = servers_of(2);
    let mut client = client_of(&servers, 5);
    load(&mut client, 500);
    let file = servers.directory("n1").join("../backup.json");
    let file = file.to_str().expect("a plain name");
    servers.must_run("n2", &["cluster", "backup", file]);
    load(&mut client, 500);
    servers.kill("n1");
    servers.kill("n2");
    servers.must_run("n2", &["cluster", "recover", "--from", file, "--yes"]);
    servers.restart("n2");
    let waits = servers.must_run("n2", &["cluster", "settle"]);
    assert!(waits.output.contains("volumes that wait: v"), "{waits:#?}");
    servers.restart("n1");
    for node in ["n1", "n2"] {
        servers.await_health(node);
        client.use_address(servers.nbd_address(node));
        assert_nothing_is_lost(&mut client);
    }
    load(&mut client, 500);
    let state = servers.must_run("n1", &["cluster", "state", "-o", "json"]).json();
    let voters: Vec<_> =
        state["members"].as_array().into_iter().flatten().filter(|one| one["votes"] == true).collect();
    assert!(voters.len() == 1 && voters[0]["name"] == "n2", "{state}");
}

/// The volume has grown since the backup, and was written to there: it waits, says what ends that, and goes on with the size
/// that it had when an operator gives up what came.
#[test]
fn what_a_volume_has_grown_by_since_the_backup_is_given_up_on_purpose() {
    let mut servers = servers();
    let mut client = client_of(&servers, 6);
    load(&mut client, 500);
    let file = servers.directory("n1").join("../backup.json");
    let file = file.to_str().expect("a plain name");
    servers.must_run("n1", &["cluster", "backup", file]);
    servers.must_run("n1", &["volume", "resize", "v", "64M"]);
    client.grow(2 * VOLUME_BYTES);
    load(&mut client, 1000);
    ALL.iter().for_each(|name| servers.kill(name));
    servers.must_run("n1", &["cluster", "recover", "--from", file, "--yes"]);
    servers.restart_together(&ALL);
    await_that("what it waits for", || {
        let waits = servers.run("n1", &["cluster", "settle"]);
        waits.output.contains("volume v waits:") && waits.output.contains("settle --without-growth v`")
    });
    let faults = servers.run_once_available("n1", &["fault", "list"]);
    assert!(
        faults.output.contains("volume.not-compared") && faults.output.contains("has grown"),
        "{faults:#?}"
    );
    let told = servers.run_once_available("n1", &["explain", "volume", "v"]);
    assert!(told.output.contains("--without-growth v"), "{told:#?}");
    let other = servers.run("n1", &["cluster", "settle", "--without-growth", "w", "--yes"]);
    assert!(other.errors.contains("VOLUME_NOT_WAITING"), "{other:#?}");
    let give_up = ["cluster", "settle", "--without-growth", "v"];
    let would = servers.must_run("n1", &[&give_up[..], &["--dry-run"]].concat());
    assert!(would.output.contains("behind the end that the state knows is lost"), "{would:#?}");
    let unconfirmed = servers.run("n1", &give_up);
    assert!(unconfirmed.errors.contains("NOT_CONFIRMED"), "{unconfirmed:#?}");
    servers.must_run("n1", &[&give_up[..], &["--yes"]].concat());
    client.give_up_behind(VOLUME_BYTES);
    assert_nothing_is_lost(&mut client);
    servers.await_health("n1");
    // What comes now is empty, and nothing of what was given up comes back with it.
    servers.must_run("n1", &["volume", "resize", "v", "64M"]);
    client.grow(2 * VOLUME_BYTES);
    assert_nothing_is_lost(&mut client);
    load(&mut client, 500);
    assert_nothing_is_lost(&mut client);
    let verified = servers.run("n1", &["volume", "verify", "v"]);
    assert_eq!(verified.status, Some(0), "{verified:#?}");
}
