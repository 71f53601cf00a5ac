//! Whoever reads and writes a volume asks the cluster's state nothing: what all nodes of a cluster with etcd ask of it
//! is counted while a client has many requests under way.
//!
//! `SPANDREL_TEST_FULL=1` counts for a minute.

use std::rc::Rc;
use std::time::{Duration, Instant};

use spandrel_process_cluster::{HistoryClient, LoadOptions, Next, Program, Servers, ServersOptions, is_full};

const VOLUME_BYTES: u64 = 16 << 20;

/// Writes before the count begins: the client is let in by then.
const WRITES_BEFORE: u64 = 200;

/// What all nodes have asked of the state so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    reads: u64,
    transactions: u64,
    lease_renewals: u64,
}

fn asked(servers: &Servers) -> Asked {
    let nodes = servers.must_run("n1", &["node", "list", "-o", "json"]).json();
    let of_all = |what: &str| {
        let nodes = nodes.as_array().expect("a list").iter();
        nodes.map(|node| node["state_requests"][what].as_u64().expect("a number")).sum()
    };
    Asked {
        reads: of_all("reads"),
        transactions: of_all("transactions"),
        lease_renewals: of_all("lease_renewals"),
    }
}

#[test]
fn a_load_asks_the_clusters_state_nothing() {
    let seconds = if is_full() { 60 } else { 4 };
    let servers = Rc::new(Servers::start(&Program::with_test_faults(), &ServersOptions::new(3, false)));
    let new = asked(&servers);
    servers.create_volume("n1", "v", &["--size", "16M", "--copies", "3", "--owner", "n1"]);
    servers.await_health("n1");
    let created = asked(&servers);
    assert!(created.reads > new.reads && created.transactions > new.transactions, "{new:?}, {created:?}");

    let mut client = HistoryClient::new(servers.nbd_address("n1"), "v", VOLUME_BYTES, 1);
    let counted = Rc::new(std::cell::RefCell::new(Vec::new()));
    let (counts, of) = (Rc::clone(&counted), Rc::clone(&servers));
    let mut began = None;
    // Within one load: a client that comes or goes asks who may write.
    let next = move |answered| {
        let Some((at, writes)) = began else {
            if answered >= WRITES_BEFORE {
                counts.borrow_mut().push((asked(&of), answered));
                began = Some((Instant::now(), answered));
            }
            return Next::GoOn;
        };
        let at: Instant = at;
        if at.elapsed() < Duration::from_secs(seconds) || answered < writes + WRITES_BEFORE {
            return Next::GoOn;
        }
        if counts.borrow().len() == 1 {
            counts.borrow_mut().push((asked(&of), answered));
        }
        Next::End
    };
    let end = client.load(LoadOptions::default(), next).expect("a cluster that serves");
    assert_eq!((&end.failures, &end.violations, &end.broken), (&Vec::new(), &Vec::new(), &None));
    let counted = counted.take();
    let [(before, writes_before), (after, writes_after)] = counted[..] else { panic!("{counted:?}") };
    assert!(writes_after >= writes_before + WRITES_BEFORE, "{writes_before} writes, then {writes_after}");
    assert_eq!((after.reads, after.transactions), (before.reads, before.transactions));
    assert!(after.lease_renewals > before.lease_renewals, "nobody said that it lives: {before:?}, {after:?}");
}
