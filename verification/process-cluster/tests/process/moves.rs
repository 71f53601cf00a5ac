//! Copies that move to other drives under load, judged by what is kept.

use spandrel_process_cluster::{LoadOptions, LoadThread, Program, Servers, ServersOptions, await_that};

const VOLUME_BYTES: u64 = 32 << 20;

fn servers(nodes: usize) -> Servers {
    Servers::start(&Program::with_test_faults(), &ServersOptions::new(nodes, false))
}

/// What is promised on the drive of a node, as the whole cluster's status has it.
fn promised_bytes(status: &serde_json::Value, node: &str) -> u64 {
    let drives = status["drives"].as_array().expect("a list");
    let drive = drives.iter().find(|drive| drive["node"] == node).expect("each node has one");
    drive["promised_bytes"].as_u64().expect("a number")
}

fn drive_of(servers: &Servers, node: &str) -> String {
    let drives = servers.must_run("n1", &["drive", "list", "-o", "json"]).json();
    let drive = drives.as_array().expect("a list").iter().find(|drive| drive["node"] == node).cloned();
    drive.expect("each node has one")["name"].as_str().expect("it has a name").to_owned()
}

/// A volume with copies on n1, n2 and n3 alone; n4 has room for them.
fn volume_beside_an_empty_node() -> Servers {
    let servers = servers(4);
    servers.must_run("n1", &["node", "drain", "n4"]);
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n1"]);
    servers.must_run("n1", &["node", "resume", "n4"]);
    let status = servers.must_run("n1", &["status", "-o", "json"]).json();
    assert_eq!(promised_bytes(&status, "n4"), 0, "{status}");
    servers
}

#[test]
fn a_drive_is_emptied_under_load_and_its_server_can_be_lost_then() {
    let mut servers = volume_beside_an_empty_node();
    let drive = drive_of(&servers, "n2");
    let load = LoadThread::start(servers.nbd_address("n1"), "v", VOLUME_BYTES, 1, LoadOptions::default());
    load.await_answers(500);
    let would = servers.must_run("n3", &["drive", "retire", &drive, "--dry-run"]);
    assert!(would.output.contains("can be retired: 8 copies of slabs (32 MiB"), "{would:?}");
    let retired = servers.must_run("n3", &["drive", "retire", &drive]);
    assert!(retired.output.contains("move to other drives"), "{retired:?}");
    servers.await_status("n1", "the drive is empty", |status| promised_bytes(status, "n2") == 0);
    servers.await_health("n1");
    load.await_answers(500);
    // Three copies are elsewhere: without n2 and the owner there are two yet.
    servers.kill("n2");
    load.await_answers(500);
    let end = load.end(&["n1", "n3", "n4"].map(|node| servers.nbd_address(node)));
    assert!(end.is_faultless(), "{end:?}");
    let refused = servers.run("n1", &["drive", "retire", &drive_of(&servers, "n3")]);
    assert!(
        refused.errors.contains("DRIVE_NEEDED"),
        "with n2's drive gone only two nodes would be left: {refused:?}"
    );
    servers.restart("n2");
    let back = servers.must_run("n1", &["drive", "retire", &drive, "--undo"]);
    assert!(back.output.contains("is used again"), "{back:?}");
    let verified = servers.run("n1", &["volume", "verify", "v"]);
    assert_eq!(verified.status, Some(0), "{verified:#?}");
}

/// A drive that came to the pool after the volume was made takes over from the one beside it.
#[test]
fn a_drive_is_replaced_by_another_one_of_its_server() {
    let servers = servers(3);
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n1"]);
    let load = LoadThread::start(servers.nbd_address("n1"), "v", VOLUME_BYTES, 3, LoadOptions::default());
    load.await_answers(500);
    let file = servers.directory("n2").join("second.drive");
    let made = std::fs::File::create(&file).and_then(|made| made.set_len(256 << 20));
    made.expect("there is room for a sparse file");
    let former = drive_of(&servers, "n2");
    let refused = servers.run("n1", &["drive", "retire", &former]);
    assert!(refused.errors.contains("DRIVE_NEEDED"), "only two nodes would be left: {refused:?}");
    servers.must_run("n2", &["drive", "add", file.to_str().expect("a plain name")]);
    servers.must_run("n1", &["drive", "retire", &former]);
    let is_empty = |status: &serde_json::Value| {
        let drives = status["drives"].as_array().expect("a list");
        drives.iter().any(|drive| drive["name"] == *former && drive["promised_bytes"] == 0)
    };
    servers.await_status("n1", "the former drive is empty", is_empty);
    servers.await_health("n1");
    load.await_answers(500);
    let end = load.end(&["n1", "n2", "n3"].map(|node| servers.nbd_address(node)));
    assert!(end.is_faultless(), "{end:?}");
    let verified = servers.run("n1", &["volume", "verify", "v"]);
    assert_eq!(verified.status, Some(0), "{verified:#?}");
}

/// The server that copies are built on is killed meanwhile, and the owner; they are built on when it is back.
#[test]
fn copies_are_built_on_after_their_server_and_the_owner_were_killed() {
    let mut servers = volume_beside_an_empty_node();
    let drive = drive_of(&servers, "n2");
    let load = LoadThread::start(servers.nbd_address("n3"), "v", VOLUME_BYTES, 2, LoadOptions::default());
    load.await_answers(2000);
    servers.must_run("n3", &["drive", "retire", &drive]);
    servers.await_status("n3", "copies are being built", |status| promised_bytes(status, "n4") > 0);
    servers.kill("n4");
    load.await_answers(200);
    servers.restart("n4");
    let owner = servers.owner("n3", "v").filter(|owner| owner != "n3");
    if let Some(owner) = &owner {
        servers.kill(owner);
        load.await_answers(200);
        servers.restart(owner);
    }
    servers.await_status("n3", "the drive is empty", |status| promised_bytes(status, "n2") == 0);
    servers.await_health("n3");
    let end = load.end(&["n1", "n2", "n3", "n4"].map(|node| servers.nbd_address(node)));
    assert!(end.is_faultless(), "{end:?}");
    let verified = servers.run("n1", &["volume", "verify", "v"]);
    assert_eq!(verified.status, Some(0), "{verified:#?}");
}

/// How the pool is and what is being done with its copies.
fn pool(servers: &Servers) -> serde_json::Value {
    servers.must_run("n1", &["pool", "status", "-o", "json"]).json()
}

/// Waits until the pool is so.
fn await_pool(servers: &Servers, what: &str, is_so: impl Fn(&serde_json::Value) -> bool) {
    servers.await_status("n1", what, |_| is_so(&pool(servers)));
}

/// What a server held that is gone for longer than the pool waits is built anew on the others, under load. When it is
/// back it is empty, and takes its part again.
#[test]
fn a_server_that_stays_away_is_made_up_for_and_takes_its_part_again() {
    let mut servers = volume_beside_an_empty_node();
    let set =
        ["pool", "set", "--rebuild-after-node", "3s", "--rebuild-after-drive", "1h", "--balance", "off"];
    let set = servers.must_run("n1", &set);
    assert!(
        set.output.contains("1 h (drives), 3 s (nodes)") && set.output.contains("only when asked"),
        "{set:?}"
    );
    let load = LoadThread::start(servers.nbd_address("n1"), "v", VOLUME_BYTES, 1, LoadOptions::default());
    load.await_answers(500);
    servers.kill("n3");
    servers.await_status("n1", "its copies are elsewhere", |status| promised_bytes(status, "n3") == 0);
    await_pool(&servers, "all is built", |pool| pool["jobs"] == serde_json::json!([]));
    // Each slab has three copies on the others again. n2's member of etcd stays: with n3's the majority would be gone,
    // and nobody could write down that n2 is away.
    servers.kill_process("n2");
    load.await_answers(500);
    servers.restart("n2");
    servers.restart("n3");
    servers.await_health("n1");
    let would = servers.must_run("n4", &["pool", "optimize", "--dry-run"]);
    assert!(would.output.contains("copies of slabs"), "{would:?}");
    let even = servers.must_run("n4", &["pool", "optimize"]);
    assert!(even.output.contains("as even as it can be"), "{even:?}");
    let even = pool(&servers);
    let share = |drive: &str| even[drive]["promised_per_mille"].as_u64().expect("there are drives");
    assert!(share("fullest") - share("emptiest") <= 50, "{even:#}");
    load.await_answers(500);
    let end = load.end(&["n1", "n2", "n3", "n4"].map(|node| servers.nbd_address(node)));
    assert!(end.is_faultless(), "{end:?}");
    servers.await_health("n1");
    let verified = servers.run("n1", &["volume", "verify", "v"]);
    assert_eq!(verified.status, Some(0), "{verified:#?}");
}

/// With three copies on three servers nothing can be built anew without one of them, and that is said.
#[test]
fn what_cannot_be_built_anywhere_waits_and_is_told() {
    let mut servers = servers(3);
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n1"]);
    servers.must_run("n1", &["pool", "set", "--rebuild-after-node", "2s"]);
    servers.kill("n3");
    await_pool(&servers, "its copies have no place", |pool| pool["copies_without_place"] == 8);
    let told = servers.must_run("n2", &["pool", "status"]);
    assert!(told.output.contains("8 copies of slabs (32 MiB at most) are yet to be built"), "{told:?}");
    assert!(told.output.contains("of these 8 wait"), "{told:?}");
    servers.restart("n3");
    await_pool(&servers, "nothing waits", |pool| {
        pool["copies_without_place"] == 0 && pool["copies_to_replace"] == 0
    });
    servers.await_health("n1");
}

/// A file that can become a drive.
fn new_drive_file(servers: &Servers, node: &str) -> String {
    let file = servers.drive_file(&format!("{node}-second"));
    let made = std::fs::File::create(&file).and_then(|made| made.set_len(256 << 20));
    made.expect("there is room for a sparse file");
    file.to_str().expect("a plain name").to_owned()
}

fn drive_names(servers: &Servers, node: &str) -> Vec<String> {
    let drives = servers.must_run("n1", &["drive", "list", "-o", "json"]).json();
    let drives = drives.as_array().expect("a list").iter().filter(|drive| drive["node"] == node);
    drives.map(|drive| drive["name"].as_str().expect("it has a name").to_owned()).collect()
}

/// A drive is emptied and taken out under load; its node does not take it up again, and it can come back as a new one.
#[test]
fn a_drive_leaves_the_pool_and_comes_back_as_a_new_one() {
    let mut servers = servers(3);
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n1"]);
    let (former, path) = (drive_of(&servers, "n2"), servers.drive_file("n2"));
    let status = servers.must_run("n1", &["drive", "get", &former, "-o", "json"]).json();
    let id = status["id"].as_str().expect("it is known").to_owned();
    let path = path.to_str().expect("a plain name");
    let refused = servers.run("n1", &["drive", "remove", &former, "--yes"]);
    assert!(refused.errors.contains("DRIVE_NEEDED"), "only two nodes would be left: {refused:?}");
    servers.must_run("n2", &["drive", "add", &new_drive_file(&servers, "n2")]);
    let unsure = servers.run("n1", &["drive", "remove", &former]);
    assert!(unsure.errors.contains("NOT_CONFIRMED"), "{unsure:?}");
    let load = LoadThread::start(servers.nbd_address("n1"), "v", VOLUME_BYTES, 1, LoadOptions::default());
    load.await_answers(500);
    let removed = servers.must_run("n3", &["drive", "remove", &former, "--yes"]);
    assert!(removed.output.contains(&format!("drive {former} was taken out of the pool")), "{removed:?}");
    assert!(removed.output.contains(&format!("{path}` on its server wipes it")), "{removed:?}");
    let left = drive_names(&servers, "n2");
    assert!(left.len() == 1 && left[0] != former, "{left:?}");
    servers.await_health("n1");
    load.await_answers(500);

    servers.stop("n2");
    servers.restart("n2");
    assert_eq!(drive_names(&servers, "n2"), left, "it is not taken up again");
    let refused = servers.run("n2", &["drive", "add", path]);
    assert!(refused.errors.contains("taken out of the pool"), "{refused:?}");
    assert!(refused.errors.contains("spandrel drive clean"), "{refused:?}");
    servers.must_run("n2", &["drive", "clean", path, "--yes", "--drive-id", &id]);
    servers.must_run("n2", &["drive", "add", path]);
    assert_eq!(drive_names(&servers, "n2").len(), 2);
    servers.await_health("n1");
    let end = load.end(&["n1", "n2", "n3"].map(|node| servers.nbd_address(node)));
    assert!(end.is_faultless(), "{end:?}");
    let verified = servers.run("n1", &["volume", "verify", "v"]);
    assert_eq!(verified.status, Some(0), "{verified:#?}");
}

/// An empty drive can be taken out while its node is away; the node lets go of it when it learns of that.
#[test]
fn a_node_that_was_away_forgets_a_drive_that_was_removed() {
    let mut servers = servers(3);
    let added = new_drive_file(&servers, "n3");
    servers.must_run("n3", &["drive", "add", &added]);
    let before = drive_names(&servers, "n3");
    let second = before.iter().find(|name| name.contains("second")).expect("it was added").clone();
    servers.kill("n3");
    let removed = servers.must_run("n1", &["drive", "remove", &second, "--yes"]);
    assert!(removed.errors.contains("it lets go of the drive when it learns of it"), "{removed:?}");
    servers.restart("n3");
    let after = drive_names(&servers, "n3");
    assert_eq!(after.len(), 1, "{after:?}");
    assert!(!settings_of(&servers, "n3").contains("second"), "{}", settings_of(&servers, "n3"));
}

/// What a server keeps of itself, its drives among it.
fn settings_of(servers: &Servers, name: &str) -> String {
    std::fs::read_to_string(servers.directory(name).join("node.json")).expect("it is there")
}

/// A node that could not be told lets go by itself, and for good: its drive, wiped, would be taken for a new one at the next
/// start.
#[test]
fn a_drive_that_its_node_lets_go_of_by_itself_does_not_come_back() {
    let mut servers = servers(3);
    let path = new_drive_file(&servers, "n3");
    servers.must_run("n3", &["drive", "add", &path]);
    let before = drive_names(&servers, "n3");
    let name = before.iter().find(|name| name.contains("second")).expect("it was added").clone();
    let drive = servers.must_run("n1", &["drive", "get", &name, "-o", "json"]).json();
    let id = drive["id"].as_str().expect("it is known").to_owned();
    servers.signal("n3", "-STOP");
    let is_down = |status: &serde_json::Value| {
        let node = status["nodes"].as_array().into_iter().flatten().find(|node| node["name"] == "n3");
        node.is_some_and(|node| node["status"]["operational"][0] == "Down")
    };
    servers.await_status("n1", "a server that stands still", is_down);
    let removed = servers.must_run("n1", &["drive", "remove", &name, "--yes"]);
    assert!(removed.errors.contains("it lets go of the drive when it learns of it"), "{removed:?}");
    servers.signal("n3", "-CONT");
    await_that("settings without the drive", || !settings_of(&servers, "n3").contains("second"));
    servers.must_run("n3", &["drive", "clean", &path, "--yes", "--drive-id", &id]);
    servers.stop("n3");
    servers.restart("n3");
    servers.await_health("n1");
    let after = drive_names(&servers, "n3");
    assert_eq!(after.len(), 1, "{after:?}");
}

/// A server that owns a volume, and holds its part of the copies, is emptied under load, hands the volume over and is taken out;
/// it ends by itself.
#[test]
fn a_server_that_runs_is_emptied_and_leaves_the_cluster() {
    let mut servers = servers(4);
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n3"]);
    let load = LoadThread::start(servers.nbd_address("n1"), "v", VOLUME_BYTES, 1, LoadOptions::default());
    load.await_answers(500);
    let would = servers.must_run("n1", &["node", "remove", "n3", "--dry-run"]);
    let expected = "can be taken out of the cluster, and 1 drive out of the pool: 6 copies of slabs (24 MiB";
    assert!(would.output.contains(expected), "{would:?}");
    let removed = servers.must_run("n1", &["node", "remove", "n3", "--yes"]);
    assert!(removed.output.contains("node n3 was taken out of the cluster"), "{removed:?}");
    servers.await_end("n3");
    servers.await_health("n1");
    load.await_answers(500);
    let end = load.end(&["n1", "n2", "n4"].map(|node| servers.nbd_address(node)));
    assert!(end.is_faultless(), "{end:?}");
    let verified = servers.run("n1", &["volume", "verify", "v"]);
    assert_eq!(verified.status, Some(0), "{verified:#?}");

    let refused = servers.run("n1", &["node", "remove", "n4", "--yes"]);
    assert!(refused.errors.contains("NODE_NEEDED"), "only two nodes would be left: {refused:?}");
    assert!(refused.errors.contains("there are 24 copies") && refused.errors.contains("n4 0"), "{refused:?}");
    let drives = servers.must_run("n1", &["drive", "list", "-o", "json"]).json();
    let is_well = |drive: &serde_json::Value| drive["status"]["health"] == "Healthy";
    assert!(drives.as_array().expect("a list").iter().all(is_well), "nothing was begun: {drives:#}");
}

/// The kinds of faults that there are. Three small drives have no reserve, which is always told.
fn fault_kinds(servers: &Servers) -> Vec<String> {
    let faults = servers.run_once_available("n1", &["fault", "list", "-o", "json"]).json();
    let kinds =
        faults.as_array().expect("a list").iter().map(|fault| fault["kind"].as_str().expect("a name"));
    kinds.filter(|kind| *kind != "pool.reserve").map(str::to_owned).collect()
}

#[test]
fn what_is_the_matter_is_told_with_what_must_not_be_done_until_it_is_over() {
    let mut servers = servers(3);
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n1"]);
    servers.await_health("n1");
    assert_eq!(fault_kinds(&servers), Vec::<String>::new());
    let explain = |servers: &Servers, what: &str, name: &str| {
        servers.run_once_available("n1", &["explain", what, name]).output
    };
    assert!(explain(&servers, "volume", "v").contains("each of its 8 slabs has 3 copies in sync"));
    servers.kill("n3");
    await_that("a node that is down", || fault_kinds(&servers) == ["server.down", "volume.needs-repair"]);
    let of_node = explain(&servers, "node", "n3");
    assert!(
        of_node.contains("node n3: Unhealthy (Down)") && of_node.contains("spandrel node run"),
        "{of_node}"
    );
    let drive = drive_names(&servers, "n3").remove(0);
    let of_drive = explain(&servers, "drive", &drive);
    assert!(of_drive.contains("Lost Communication") && of_drive.contains("explain node n3"), "{of_drive}");
    let of_volume = explain(&servers, "volume", "v");
    let keep = "must not  pull, wipe or replace a drive with copies of it before it is healthy";
    assert!(of_volume.contains("8 copies of slabs on") && of_volume.contains(keep), "{of_volume}");
    let of_pool = servers.run_once_available("n1", &["explain", "pool"]).output;
    assert!(of_pool.contains("pool: Warning (Degraded)"), "{of_pool}");
    servers.restart("n3");
    servers.await_health("n1");
    await_that("no fault", || fault_kinds(&servers).is_empty());
}

/// Servers are told where they stand when a volume is there already, with both its copies in one rack.
#[test]
fn copies_move_to_different_racks_under_load() {
    let servers = servers(4);
    for node in ["n3", "n4"] {
        servers.must_run("n1", &["node", "drain", node]);
    }
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "2", "--owner", "n1"]);
    for node in ["n3", "n4"] {
        servers.must_run("n1", &["node", "resume", node]);
    }
    let load = LoadThread::start(servers.nbd_address("n1"), "v", VOLUME_BYTES, 23, LoadOptions::default());
    load.await_answers(500);
    let nameless = servers.run("n1", &["node", "set", "n1"]);
    assert_eq!(nameless.status, Some(64), "it says nothing: {nameless:?}");
    let invalid = servers.run("n1", &["node", "set", "n1", "--rack", "a/b"]);
    assert!(invalid.errors.contains("NAME_INVALID"), "{invalid:?}");
    for (node, rack) in [("n1", "a"), ("n2", "a"), ("n3", "b"), ("n4", "b")] {
        let set = servers.must_run("n2", &["node", "set", node, "--site", "s", "--rack", rack]);
        assert_eq!(set.output, format!("node {node} stands at: site s, rack {rack}\n"));
    }
    servers.await_status("n1", "both copies in different racks", |status| {
        let in_b = promised_bytes(status, "n3") + promised_bytes(status, "n4");
        promised_bytes(status, "n2") == 0 && in_b == VOLUME_BYTES
    });
    servers.await_health("n1");
    load.await_answers(500);
    let told = servers.must_run("n1", &["node", "get", "n3"]);
    assert!(told.output.contains("site s, rack b"), "{told:?}");
    // A new volume begins so.
    servers.create_volume("n1", "w", &["--size", "32M", "--copies", "2", "--owner", "n2"]);
    let status = servers.must_run("n1", &["status", "-o", "json"]).json();
    let in_b = promised_bytes(&status, "n3") + promised_bytes(&status, "n4");
    assert_eq!(in_b, 2 * VOLUME_BYTES, "{status}");
    let end = load.end(&["n1", "n2", "n3", "n4"].map(|node| servers.nbd_address(node)));
    assert!(end.is_faultless(), "{end:?}");
}
