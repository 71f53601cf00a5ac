//! How busy a cluster says it is, compared with what its clients have done.

use std::cell::RefCell;

use serde_json::Value;
use spandrel_process_cluster::{LoadOptions, LoadThread, Program, Servers, ServersOptions};

const VOLUME_BYTES: u64 = 32 << 20;

const IN_FLIGHT: usize = 16;

const LAYERS: [&str; 4] = ["front-end", "owner", "bus", "drive"];

fn servers(nodes: usize) -> Servers {
    let servers = Servers::start(&Program::with_test_faults(), &ServersOptions::new(nodes, false));
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n1"]);
    servers
}

fn top(servers: &Servers, asked: &str) -> Value {
    servers.must_run(asked, &["top", "--once", "--json"]).json()
}

fn layer(rates: &Value, name: &str) -> Value {
    let layers = rates["layers"].as_array().expect("a list");
    layers
        .iter()
        .find(|layer| layer["layer"] == name)
        .unwrap_or_else(|| panic!("no {name}: {rates:#}"))
        .clone()
}

/// A count of reads and writes together.
fn both(load: &Value, field: &str) -> f64 {
    let of = |kind: &str| load[kind][field].as_f64().unwrap_or_else(|| panic!("no {kind}.{field}: {load:#}"));
    of("reads") + of("writes")
}

#[test]
fn what_is_shown_is_what_a_client_does() {
    let servers = servers(3);
    let options = LoadOptions { in_flight: IN_FLIGHT, ..LoadOptions::default() };
    let load = LoadThread::start(servers.nbd_address("n2"), "v", VOLUME_BYTES, 1, options);
    load.await_answers(500);

    let before = load.answered();
    let rates = top(&servers, "n3");
    let answered = load.answered() - before;
    let frontend = layer(&rates, "front-end");
    let done = both(&frontend, "done");
    // What is under way at either end is answered there, and not yet counted by the client, or the other way round.
    assert!(done > 0.0 && done <= (answered + 2 * IN_FLIGHT as u64) as f64, "{answered} answers: {rates:#}");
    for kind in ["reads", "writes"] {
        let flow = &frontend[kind];
        let value = |field: &str| flow[field].as_f64().unwrap_or_else(|| panic!("no {field}: {rates:#}"));
        let (rate, queue) = (value("per_second"), value("queue"));
        assert!(rate > 0.0 && value("bytes_per_second") > 0.999 * 4096.0 * rate, "{rates:#}");
        // Little's law holds by the numbers that are shown.
        let under_way = rate * value("latency_us") / 1e6;
        assert!((under_way - queue).abs() <= 0.01 * queue, "{under_way} of {kind}: {rates:#}");
    }
    // The client keeps sixteen under way; some of them are on their way to it or back.
    let queue = both(&frontend, "queue");
    assert!(queue > 1.0 && queue <= IN_FLIGHT as f64 + 0.01, "{rates:#}");
    for name in LAYERS {
        assert!(both(&layer(&rates, name), "per_second") > 0.0, "{name}: {rates:#}");
    }
    let nodes = rates["nodes"].as_array().expect("a list");
    assert_eq!(nodes.iter().map(|node| &node["state"]).collect::<Vec<_>>(), ["Up"; 3], "{rates:#}");
    assert!(nodes.iter().all(|node| node["cpu_percent"].as_f64().is_some_and(|cpu| cpu > 0.0)), "{rates:#}");
    assert!(both(&nodes[1]["frontend"], "done") == done, "they are clients of n2: {rates:#}");
    assert_eq!(rates["volumes"][0]["volume"], "v", "{rates:#}");

    let table = servers.must_run("n1", &["top", "--interval", "200ms"]).output;
    for shown in LAYERS.into_iter().chain(["3 of 3 nodes answer", "longest pause in 5 minutes", "n2", "v "]) {
        assert!(table.contains(shown), "no {shown}:\n{table}");
    }

    let end = load.end(&[]);
    assert!(end.is_faultless(), "{end:?}");
    let rates = top(&servers, "n1");
    let frontend = layer(&rates, "front-end");
    assert_eq!(both(&frontend, "done_since_start"), end.answered as f64, "{rates:#}");
    let owner = layer(&rates, "owner");
    // What is repeated, as its answer got lost on a busy machine, has been done twice there.
    assert!(both(&owner, "done_since_start") >= end.answered as f64, "{rates:#}");
    for name in ["front-end", "owner"] {
        assert_eq!(
            both(&layer(&rates, name), "in_flight"),
            0.0,
            "{name}: nobody asks for anything: {rates:#}"
        );
    }
    assert_eq!(both(&frontend, "per_second"), 0.0, "{rates:#}");
}

#[test]
fn a_lost_owner_shows_as_a_pause_and_its_return_as_a_repair() {
    let mut servers = servers(4);
    let load = LoadThread::start(servers.nbd_address("n2"), "v", VOLUME_BYTES, 2, LoadOptions::default());
    load.await_answers(500);
    let owner = servers.owner("n2", "v").expect("a node owns it");
    // The volume may have followed its client.
    if owner == "n2" {
        servers.must_run("n2", &["volume", "move", "v", "--owner", "n1"]);
    }
    let owner = servers.owner("n2", "v").expect("a node owns it");
    assert_ne!(owner, "n2", "its client is elsewhere");
    load.await_answers(500);
    servers.kill(&owner);
    load.await_answers(500);

    let rates = top(&servers, "n2");
    let pause = &rates["longest_pause"];
    assert_eq!((&pause["volume"], &pause["node"]), (&"v".into(), &"n2".into()), "{rates:#}");
    let seen_ms = pause["length_ms"].as_u64().expect("a number");
    let gone = rates["nodes"].as_array().expect("a list").iter().find(|node| node["node"] == *owner).cloned();
    let gone = gone.unwrap_or_else(|| panic!("{owner} is not shown: {rates:#}"));
    assert_eq!(gone["answers"], false, "{rates:#}");
    assert!(["Down", "no answer"].contains(&gone["state"].as_str().expect("a text")), "{rates:#}");

    // Its drive is slow when it is back, so that its copies are not up to date before anybody looks.
    load.await_answers(3000);
    servers.set_drive_prefix(&owner, "volatile,slow-flush=200:");
    let slow = servers.drive_file(&owner).with_extension("drive.slow");
    std::fs::write(&slow, "").expect("the folder is there");
    servers.restart(&owner);
    let repair = await_repair(&servers);
    assert_eq!((&repair["kind"], &repair["volume"]), (&"repair".into(), &"v".into()), "{repair:#}");
    assert!(repair["drive"].as_str().is_some_and(|drive| drive.starts_with(&owner)), "{repair:#}");
    assert!(repair["pages"]["total"].as_u64() >= repair["pages"]["done"].as_u64(), "{repair:#}");
    let shown = servers.must_run("n2", &["top", "--interval", "100ms"]).output;
    let has_bar = ["[=", "[>"].iter().any(|bar| shown.contains(bar));
    assert!(shown.contains("Repair ") && has_bar, "no bar:\n{shown}");
    std::fs::remove_file(&slow).expect("it is there");
    servers.await_health("n2");
    let end = load.end(&[]);
    assert!(end.is_faultless(), "{end:?}");
    // The client has seen the same pause: to a tenth of a second, and what its machine was too busy to see.
    let true_ms = end.pause_max.as_millis() as u64;
    assert!(seen_ms >= 200 && seen_ms <= true_ms + 100, "{seen_ms} ms instead of {true_ms}");
}

/// Asks again and again until a repair shows that has copied something.
fn await_repair(servers: &Servers) -> Value {
    let repair = RefCell::new(Value::Null);
    servers.await_status("n2", "a repair shows and gets on", |_| {
        let rates = servers.must_run("n2", &["top", "--once", "--json", "--interval", "100ms"]).json();
        repair.replace(rates["jobs"][0].clone());
        let repair = repair.borrow();
        repair["pages"]["total"].as_u64() > Some(0) && repair["bytes_per_second"].as_u64() > Some(0)
    });
    repair.into_inner()
}
