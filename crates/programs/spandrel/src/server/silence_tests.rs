use std::collections::BTreeSet;
use std::net::TcpListener;
use std::path::PathBuf;

use spandrel_shared::{ClusterId, NodeId};

use super::*;
use crate::server::settings::StatePlace;

/// A server at the first of four free ports, whose listeners keep others away from them.
fn server() -> (SocketAddr, Vec<TcpListener>) {
    let free = || {
        let first = TcpListener::bind("127.0.0.1:0").ok()?;
        let listen = first.local_addr().ok()?;
        let others = (1..Port::COUNT)
            .map(|behind| TcpListener::bind((listen.ip(), listen.port().checked_add(behind)?)).ok());
        let others = others.collect::<Option<Vec<_>>>()?;
        Some((listen, std::iter::once(first).chain(others).collect()))
    };
    std::iter::from_fn(|| Some(free())).flatten().next().expect("it goes on until there are some")
}

fn settings(listen: SocketAddr, endpoints: Vec<String>) -> ServerSettings {
    ServerSettings {
        format: ServerSettings::format(),
        cluster: ClusterId::from_random(1, 2),
        cluster_name: "demo".to_owned(),
        node: NodeId::from_random(3, 4),
        name: "n1".to_owned(),
        witness: false,
        listen: vec![listen],
        state: StatePlace::Own { program: PathBuf::from("etcd"), endpoints, is_member: true },
        founding: None,
        generation: 0,
        servers: Default::default(),
        drives: Vec::new(),
        cache_drives: BTreeSet::new(),
    }
}

fn backup(nodes: &[(&str, SocketAddr)]) -> StateBackup {
    let entries = nodes.iter().zip(1..).map(|((name, address), number)| {
        let record = serde_json::json!({
            "format": 1, "name": name, "addresses": [address.to_string()], "joined_unix_ms": 1
        });
        (format!("nodes/{}", NodeId::from_bytes([number; 16])), record.to_string())
    });
    let backup = serde_json::json!({
        "format": 1, "cluster": ClusterId::from_random(1, 2), "name": "demo", "generation": 0, "revision": 9,
        "taken_unix_ms": 5, "checksum": 0, "entries": entries.collect::<BTreeMap<String, String>>()
    });
    serde_json::from_value(backup).expect("it is one, but for its checksum")
}

#[test]
fn who_accepts_connections_at_any_of_its_ports_runs() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (own, _own_ports) = server();
    let (other, other_ports) = server();
    let backup = backup(&[("n1", own), ("n2", other)]);
    let running = |endpoints: &[String]| {
        let settings = settings(own, endpoints.to_vec());
        runtime.block_on(running_servers(&settings, Some(&backup))).expect("it can be read")
    };
    assert_eq!(running(&[]), BTreeSet::from(["n2".to_owned()]), "this one does not count");
    for (port, listener) in other_ports.into_iter().enumerate().rev() {
        assert_eq!(running(&[]), BTreeSet::from(["n2".to_owned()]), "port {port}");
        drop(listener);
    }
    assert_eq!(running(&[]), BTreeSet::new());
    // One that has joined since the backup was made.
    let (later, _later_ports) = server();
    let endpoint = format!("https://{}", Port::StateClients.at(later));
    assert_eq!(running(std::slice::from_ref(&endpoint)), BTreeSet::from([endpoint.clone()]));
    let knows = ServerSettings { servers: BTreeSet::from([own, later]), ..settings(own, Vec::new()) };
    let known = runtime.block_on(running_servers(&knows, None)).expect("there is nothing to be read");
    assert_eq!(known, BTreeSet::from([later.to_string()]));
    // An etcd of others runs, and must.
    let external = StatePlace::External { endpoints: vec![endpoint] };
    let external = ServerSettings { state: external, ..settings(own, Vec::new()) };
    assert_eq!(runtime.block_on(running_servers(&external, None)), Ok(BTreeSet::new()));
}

#[test]
fn nothing_is_put_back_while_others_run() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let (own, _own_ports) = server();
    let (other, other_ports) = server();
    let (settings, backup) = (settings(own, Vec::new()), backup(&[("n1", own), ("n2", other)]));
    let error = runtime.block_on(check_stopped(&settings, Some(&backup))).expect_err("n2 runs");
    assert_eq!(error.code, "SERVERS_RUNNING");
    assert!(error.why.ends_with(": n2"), "{error}");
    drop(other_ports);
    assert_eq!(runtime.block_on(check_stopped(&settings, Some(&backup))), Ok(()));
}
