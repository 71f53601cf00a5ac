//! Cache drives that come and go under load, judged by what is kept.

use serde_json::Value;
use spandrel_process_cluster::{LoadOptions, LoadThread, Program, Servers, ServersOptions};

const VOLUME_BYTES: u64 = 32 << 20;

/// A file that becomes a cache drive of n2: its path.
fn add_cache(servers: &Servers) -> String {
    let file = servers.drive_file("fast");
    let made = std::fs::File::create(&file).and_then(|made| made.set_len(64 << 20));
    made.expect("there is room for a sparse file");
    let path = file.to_str().expect("a plain name").to_owned();
    let added = servers.must_run("n2", &["drive", "add", &path, "--role", "cache"]);
    assert!(added.output.contains("cache drive n2/fast added"), "{added:?}");
    await_cache_of_n2(servers, "n2's drive is bound to it", |cache| cache["drive"] == "n2/fast");
    path
}

/// Waits until the cache of n2's drive is so; null if it has none.
fn await_cache_of_n2(servers: &Servers, what: &str, condition: impl Fn(&Value) -> bool) {
    servers.await_status("n1", what, |status| {
        let drive = status["drives"].as_array().expect("a list").iter().find(|drive| drive["node"] == "n2");
        drive.is_some_and(|drive| drive["status"]["health"] == "Healthy" && condition(&drive["cache"]))
    });
}

fn settings_of_n2(servers: &Servers) -> String {
    std::fs::read_to_string(servers.directory("n2").join("node.json")).expect("it is there")
}

/// The identity of the cache drive.
fn identity(servers: &Servers) -> String {
    let cache = servers.must_run("n1", &["drive", "get", "n2/fast", "-o", "json"]).json();
    cache["id"].as_str().expect("it has one").to_owned()
}

#[test]
fn a_cache_drive_is_emptied_and_taken_out_and_a_lost_one_is_given_up_while_its_node_is_down() {
    let mut servers = Servers::start(&Program::with_test_faults(), &ServersOptions::new(3, false));
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n1"]);
    let load = LoadThread::start(servers.nbd_address("n1"), "v", VOLUME_BYTES, 1, LoadOptions::default());
    load.await_answers(100);
    let path = add_cache(&servers);
    await_cache_of_n2(&servers, "what is written comes there", |cache| {
        cache["dirty_bytes"].as_u64() > Some(0)
    });
    let told = servers.must_run("n1", &["explain", "drive", "n2/fast"]);
    assert!(told.output.contains("it caches for n2/n2: write-only"), "{told:?}");
    let counted_on =
        servers.run("n1", &["drive", "clean", &path, "--yes", "--drive-id", &identity(&servers)]);
    assert!(counted_on.errors.contains("DRIVE_IN_"), "{counted_on:?}");

    let id = identity(&servers);
    let would = servers.must_run("n1", &["drive", "remove", "n2/fast", "--dry-run"]);
    assert!(would.output.contains("it is left by n2/n2, and"), "{would:?}");
    let unsure = servers.run("n1", &["drive", "remove", "n2/fast"]);
    assert!(unsure.errors.contains("NOT_CONFIRMED"), "{unsure:?}");
    let removed = servers.must_run("n3", &["drive", "remove", "n2/fast", "--yes"]);
    assert!(removed.output.contains("cache drive n2/fast was taken out of the pool"), "{removed:?}");
    assert!(removed.output.contains(&format!("{path}` on its server wipes it")), "{removed:?}");
    await_cache_of_n2(&servers, "it goes on without", Value::is_null);
    let gone = servers.run("n1", &["drive", "get", "n2/fast"]);
    assert!(gone.errors.contains("DRIVE_NOT_FOUND"), "{gone:?}");
    assert!(!settings_of_n2(&servers).contains("fast"), "{}", settings_of_n2(&servers));
    servers.await_health("n1");
    load.await_answers(100);

    servers.must_run("n2", &["drive", "clean", &path, "--yes", "--drive-id", &id]);
    std::fs::remove_file(&path).expect("it is there");
    let path = add_cache(&servers);
    await_cache_of_n2(&servers, "what is written comes there", |cache| {
        cache["dirty_bytes"].as_u64() > Some(0)
    });
    servers.kill("n2");
    std::fs::remove_file(path).expect("it is there");
    // As long as it may run it may use the drive.
    let would = servers.run_again_while("n1", "CACHE_UNSURE", &["drive", "remove", "n2/fast", "--dry-run"]);
    assert!(would.output.contains("what stands there alone is lost for n2/n2"), "{would:?}");
    let removed = servers.must_run("n1", &["drive", "remove", "n2/fast", "--yes"]);
    assert!(removed.output.contains("cache drive n2/fast was given up"), "{removed:?}");
    assert!(removed.errors.contains("it lets go of the drive when it learns of it"), "{removed:?}");
    servers.restart("n2");
    await_cache_of_n2(&servers, "it goes on without", Value::is_null);
    assert!(!settings_of_n2(&servers).contains("fast"), "{}", settings_of_n2(&servers));
    servers.await_health("n1");
    let end = load.end(&["n1", "n2", "n3"].map(|node| servers.nbd_address(node)));
    assert!(end.is_faultless(), "{end:?}");
    let verified = servers.run("n1", &["volume", "verify", "v"]);
    assert_eq!(verified.status, Some(0), "{verified:#?}");
}
