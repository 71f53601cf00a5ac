//! Nodes of several shards as processes of their own: asked for all that a node can be asked for, and killed.

use spandrel_process_cluster::{HistoryClient, LoadOptions, Next, Program, Servers, ServersOptions};

const VOLUME_BYTES: u64 = 32 << 20;
const GROWN_BYTES: u64 = 48 << 20;

/// Three servers with three drives each, in two shards.
fn servers() -> Servers {
    let options = ServersOptions { shards: 2, ..ServersOptions::new(3, false) };
    let servers = Servers::start(&Program::with_test_faults(), &options);
    for node in ["n1", "n2", "n3"] {
        for number in 2..=3 {
            servers.add_drive_at(node, &servers.drive_file(&format!("{node}-{number}")), "256M");
        }
    }
    servers
}

/// How many shards a node has, and how many drives they serve.
fn shards_and_drives(servers: &Servers, node: &str) -> (u64, u64) {
    let node = servers.must_run(node, &["node", "get", node, "-o", "json"]).json();
    (node["shards"].as_u64().expect("a number"), node["drives_usable"].as_u64().expect("a number"))
}

#[test]
fn a_cluster_of_several_shards_goes_on_and_does_what_it_is_asked_for() {
    let mut servers = servers();
    for node in ["n1", "n2", "n3"] {
        assert_eq!(shards_and_drives(&servers, node), (2, 3));
    }
    // Several volumes, so that each shard has some.
    let names = ["v1", "v2", "v3", "v4"];
    let mut clients: Vec<HistoryClient> = Vec::new();
    for (seed, name) in (1..).zip(names) {
        servers.create_volume("n1", name, &["--size", "32M", "--copies", "3", "--owner", "n1"]);
        clients.push(HistoryClient::new(servers.nbd_address("n1"), name, VOLUME_BYTES, seed));
    }
    for client in &mut clients {
        load(client, 500);
    }
    // A server is lost, another one has the clients; it comes back with another number of shards.
    servers.kill("n1");
    for client in &mut clients {
        client.use_address(servers.nbd_address("n2"));
        load(client, 500);
    }
    servers.set_shards("n1", 3);
    servers.restart("n1");
    servers.await_health("n2");
    assert_eq!(shards_and_drives(&servers, "n1"), (3, 3));
    // What goes to a volume's owner finds it in whichever shard.
    for name in names {
        servers.must_run("n3", &["volume", "move", name, "--owner", "n3"]);
        servers.must_run("n1", &["volume", "resize", name, "48M"]);
        let verified = servers.run("n1", &["volume", "verify", name]);
        assert_eq!(verified.status, Some(0), "{verified:#?}");
    }
    // A drive is not used twice, in whichever shard its image comes to be.
    for number in ["", "-2", "-3"] {
        let (drive, image) = (servers.drive_file(&format!("n1{number}")), servers.drive_file("image"));
        std::fs::copy(drive, &image).expect("there is room");
        let added = servers.run("n1", &["drive", "add", image.to_str().expect("a plain name")]);
        assert_eq!(added.status, Some(1), "{added:#?}");
        assert!(added.errors.contains("DRIVE_ATTACHED_TWICE"), "{added:#?}");
    }
    // A node is emptied of volumes, and the drives of two of its shards are taken out; one of them is put in again.
    servers.must_run("n1", &["node", "drain", "n3"]);
    servers.must_run("n1", &["node", "resume", "n3"]);
    for number in 2..=3 {
        servers.must_run("n1", &["drive", "remove", &format!("n1/n1-{number}"), "--yes"]);
    }
    let drive = servers.drive_file("n1-2");
    std::fs::remove_file(&drive).expect("nobody needs it");
    servers.add_drive_at("n1", &drive, "256M");
    assert_eq!(shards_and_drives(&servers, "n1"), (3, 2));
    for client in &mut clients {
        client.grow(GROWN_BYTES);
        let violations = client.check().expect("a cluster that serves");
        assert!(violations.is_empty(), "{violations:?}");
        client.use_address(servers.nbd_address("n3"));
        load(client, 200);
    }
    servers.kill("n2");
    for client in &mut clients {
        assert_eq!(client.check().expect("a cluster that serves"), Vec::new());
    }
    servers.set_shards("n2", 1);
    servers.restart("n2");
    servers.await_health("n3");
    // Of two images of a drive that come to different shards as a node starts none is used.
    let (one, other) = (servers.drive_file("n1"), servers.drive_file("n1-2"));
    servers.stop("n1");
    let kept = std::fs::read(&other).expect("it is a file");
    std::fs::copy(&one, &other).expect("there is room");
    servers.restart("n1");
    assert_eq!(shards_and_drives(&servers, "n1"), (3, 0));
    servers.stop("n1");
    std::fs::write(&other, kept).expect("there is room");
    servers.restart("n1");
    servers.await_health("n3");
    assert_eq!(shards_and_drives(&servers, "n1"), (3, 2));
    for client in &mut clients {
        assert_eq!(client.check().expect("a cluster that serves"), Vec::new());
    }
}

/// Loads a volume until so many writes were answered. Nothing may fail.
fn load(client: &mut HistoryClient, writes: u64) {
    let end = client
        .load(LoadOptions::default(), move |answered| if answered < writes { Next::GoOn } else { Next::End })
        .expect("a cluster that serves");
    assert_eq!((&end.failures, &end.violations, &end.broken), (&Vec::new(), &Vec::new(), &None));
}
