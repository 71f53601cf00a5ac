//! Servers that join although answers get lost, and servers that leave for good.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use spandrel_process_cluster::{Daemon, Program, Servers, ServersOptions, await_that};

fn servers(nodes: usize, witness: bool) -> Servers {
    let options = ServersOptions::new(nodes, witness);
    Servers::start(&Program::with_test_faults(), &options)
}

/// A server that is none of the cluster's yet: where it is to be, and where it is to listen.
struct Newcomer {
    directory: PathBuf,
    listen: String,
}

impl Newcomer {
    fn beside(servers: &Servers, name: &str, number: u8) -> Self {
        let [_, _, third, fourth] = std::process::id().to_be_bytes();
        // The harness's own addresses begin with 127.128.
        let address = Ipv4Addr::new(127, 64 | (third & 0x3F), fourth, number);
        Self { directory: servers.directory(name), listen: format!("{address}:7440") }
    }

    fn daemon(&self, kind: &str) -> Daemon {
        let arguments = vec![kind.to_owned(), "run".to_owned()];
        Daemon::new(Program::with_test_faults(), &self.directory, arguments)
    }
}

/// Ends the member of etcd of a server that the harness does not know.
struct EtcdOf<'d>(&'d Path);

impl Drop for EtcdOf<'_> {
    fn drop(&mut self) {
        let pattern = format!("--data-dir={}", self.0.join("etcd/data").display());
        let _ = Command::new("pkill").args(["-KILL", "-f", "--", &pattern]).status();
    }
}

/// Passes on what a client sends to `to`, and of what comes back only what comes before the client has sent for a
/// second time: with TLS that is the handshake. The answer to the request gets lost, and with it the connection.
fn loses_the_answer(to: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        let (client, _) = listener.accept().expect("somebody comes");
        let server = TcpStream::connect(to).expect("it listens");
        let (mut from_client, mut to_server) =
            (client.try_clone().expect("a second handle"), server.try_clone().expect("a second handle"));
        let (asked, was_asked) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 64 << 10];
            let mut bursts = 0;
            while let Ok(count @ 1..) = from_client.read(&mut buffer) {
                bursts += 1;
                if bursts == 2 {
                    let _ = asked.send(());
                }
                if to_server.write_all(&buffer[..count]).is_err() {
                    return;
                }
            }
        });
        let (mut from_server, mut to_client) = (server, client);
        let mut buffer = [0; 64 << 10];
        while let Ok(count @ 1..) = from_server.read(&mut buffer) {
            if was_asked.try_recv().is_ok() {
                // This is the answer.
                let _ = to_client.shutdown(Shutdown::Both);
                return;
            }
            to_client.write_all(&buffer[..count]).expect("the client waits");
        }
    });
    address
}

fn token_of(servers: &Servers) -> String {
    servers.must_run("n1", &["cluster", "join-token"]).output.trim().to_owned()
}

fn node_names(servers: &Servers) -> Vec<String> {
    let nodes = servers.must_run("n1", &["node", "list", "-o", "json"]).json();
    let nodes = nodes.as_array().expect("a list");
    nodes.iter().map(|node| node["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_join_whose_answer_was_lost_is_repeated() {
    let servers = servers(1, false);
    let token = token_of(&servers);
    let (word, address) = token
        .rsplit_once(".127")
        .map(|(word, rest)| (word, format!("127{rest}")))
        .expect("it ends with an address");
    let proxy = loses_the_answer(address.parse().expect("an address"));
    let newcomer = Newcomer::beside(&servers, "n2", 1);
    let _etcd = EtcdOf(&newcomer.directory);
    let mut daemon = newcomer.daemon("node");
    let join = |daemon: &Daemon, token: &str, name: &str| {
        daemon.run(&["node", "join", token, "--node-name", name, "--listen", &newcomer.listen])
    };
    let lost = join(&daemon, &format!("{word}.{proxy}"), "n2");
    assert_eq!(lost.status, Some(1), "{lost:#?}");
    assert!(lost.errors.contains("do the same again"), "{lost:#?}");
    assert_eq!(node_names(&servers), ["n1", "n2"], "the cluster has got to know it");
    let not_yet = daemon.run(&["node", "run"]);
    assert!(not_yet.errors.contains("JOIN_PENDING"), "{not_yet:#?}");
    let other = join(&daemon, &token, "n3");
    assert!(other.errors.contains("JOIN_PENDING"), "{other:#?}");
    // Another token of the same cluster does as well.
    let again = join(&daemon, &token_of(&servers), "n2");
    assert_eq!(again.status, Some(0), "{again:#?}");
    assert_eq!(node_names(&servers), ["n1", "n2"], "it is still one server");
    assert!(!newcomer.directory.join("join.json").exists());
    daemon.start();
    servers.await_status("n1", "of two nodes", |status| {
        let nodes = status["nodes"].as_array();
        nodes.is_some_and(|nodes| {
            nodes.iter().filter(|node| node["status"]["health"] == "Healthy").count() == 2
        })
    });
}

/// Waits until these servers have a vote in the state, and no others.
fn await_members(servers: &Servers, at: &str, expected: &[&str]) {
    await_that(&format!("members {expected:?}"), || {
        let state = servers.run(at, &["cluster", "state", "-o", "json"]);
        let state: serde_json::Value = serde_json::from_str(&state.output).unwrap_or_default();
        let members = state["members"].as_array().into_iter().flatten();
        let voting = members.filter(|member| member["votes"] == true);
        let mut names: Vec<&str> = voting.filter_map(|member| member["name"].as_str()).collect();
        names.sort_unstable();
        names == expected
    });
}

#[test]
fn a_server_that_is_gone_is_replaced_and_hears_so_when_it_comes_back() {
    let mut servers = servers(4, false);
    await_members(&servers, "n1", &["n1", "n2", "n3"]);
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n3"]);
    servers.kill("n3");
    let unconfirmed = servers.run_once_available("n1", &["node", "remove", "n3"]);
    assert!(unconfirmed.errors.contains("NOT_CONFIRMED"), "{unconfirmed:#?}");
    assert_eq!(node_names(&servers).len(), 4, "nothing was done yet");
    // What it held is built anew on the others first.
    servers.must_run("n1", &["node", "remove", "n3", "--yes"]);
    assert_eq!(node_names(&servers), ["n1", "n2", "n4"]);
    servers.await_health("n1");
    let verified = servers.run("n1", &["volume", "verify", "v"]);
    assert_eq!(verified.status, Some(0), "{verified:#?}");
    await_members(&servers, "n1", &["n1", "n2", "n4"]);
    let back = servers.run("n3", &["node", "run"]);
    assert_eq!(back.status, Some(1), "{back:#?}");
    assert!(back.errors.contains("SERVER_REMOVED"), "{back:#?}");
    // The name is free for another server.
    let newcomer = Newcomer::beside(&servers, "n3-new", 2);
    let _etcd = EtcdOf(&newcomer.directory);
    let mut daemon = newcomer.daemon("node");
    let token = token_of(&servers);
    daemon.must_run(&["node", "join", &token, "--node-name", "n3", "--listen", &newcomer.listen]);
    daemon.start();
    assert_eq!(node_names(&servers), ["n1", "n2", "n4", "n3"]);
}

#[test]
fn a_witness_that_is_removed_ends() {
    let servers = servers(2, true);
    await_members(&servers, "n1", &["n1", "n2", "w"]);
    servers.must_run("n1", &["witness", "remove", "w", "--yes"]);
    await_members(&servers, "n1", &["n1"]);
    await_that("its end", || servers.run("w", &["status"]).errors.contains("CLUSTER_NOT_RUNNING"));
    let back = servers.run("w", &["witness", "run"]);
    assert!(back.errors.contains("SERVER_REMOVED"), "{back:#?}");
}
