use std::cell::RefCell;
use std::rc::Rc;

use super::*;
use crate::keys;
use crate::records::NodeRecord;
use crate::store::{Expected, Transaction};
use crate::test_cluster::{TestCluster, TestStore, hostile, node, quick};
use crate::test_platform::TestPlatform;

type TestMirror = Mirror<TestPlatform, TestStore>;

fn mirror(cluster: &TestCluster, prefix: &str) -> TestMirror {
    Mirror::new(cluster.platform.clone(), cluster.state(9).store().clone(), prefix)
}

#[test]
fn it_shows_what_changes() {
    let cluster = TestCluster::new(1, 2, 1, 1);
    let mut mirror = mirror(&cluster, keys::NODES);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        assert_eq!(mirror.revision(), Revision::ZERO);
        let first = mirror.changed().await;
        assert_eq!(first, BTreeSet::from([1, 2].map(|number| StateKey::Node(node(number)).key())));
        let key = StateKey::Node(node(3));
        let record = NodeRecord {
            name: "n3".to_owned(),
            addresses: Vec::new(),
            further_shards: Vec::new(),
            joined_unix_ms: 1,
            key_digest: None,
            maintenance_since_unix_ms: None,
            place: Default::default(),
            unknown: Default::default(),
        };
        let stored = state.put(&key, Expected::Absent, record).await.unwrap();
        assert_eq!(mirror.changed().await, BTreeSet::from([key.key()]));
        assert_eq!(mirror.get(&key), Ok(Some(stored.clone())));
        assert_eq!(mirror.revision(), stored.revision);
        assert_eq!(mirror.entry(&key.key()).map(|entry| entry.modified), Some(stored.revision));
        state.remove_server(node(3), 7, false).await.unwrap();
        assert_eq!(mirror.changed().await, BTreeSet::from([key.key()]));
        assert_eq!(mirror.get::<NodeRecord>(&key), Ok(None));
    });
}

#[test]
fn an_empty_part_is_known_to_be_empty() {
    let cluster = TestCluster::new(1, 1, 1, 1);
    let mut mirror = mirror(&cluster, keys::VOLUMES);
    cluster.platform.run(async move {
        assert_eq!(mirror.changed().await, BTreeSet::new());
        assert!(mirror.revision() > Revision::ZERO);
    });
}

#[test]
fn a_state_that_was_set_back_is_noticed() {
    let cluster = TestCluster::new(1, 1, 1, 1);
    let mut mirror = mirror(&cluster, "x/");
    let (service, store) = (cluster.service.clone(), cluster.state(1).store().clone());
    cluster.platform.run(async move {
        let put = |name: &str| Transaction::new().put(&Key::new(name), *b"1");
        store.transact(put("x/old")).await.unwrap();
        let backup = service.backup();
        for name in ["x/a", "x/b", "x/c"] {
            store.transact(put(name)).await.unwrap();
        }
        assert_eq!(mirror.changed().await.len(), 4);
        service.restore(backup);
        assert_eq!(mirror.changed().await, BTreeSet::from(["x/a", "x/b", "x/c"].map(Key::new)));
        store.transact(put("x/new")).await.unwrap();
        assert_eq!(mirror.changed().await, BTreeSet::from([Key::new("x/new")]));
    });
}

/// Whatever fails, in the end the mirror shows the state.
#[test]
fn it_catches_up_with_everything() {
    for seed in 0..30 {
        let cluster = TestCluster::new(seed, 1, 1, 1);
        let mut faults = hostile();
        // So little history that watches fall behind it.
        faults.history_events_max = 3;
        cluster.service.set_faults(faults);
        let (service, platform) = (cluster.service.clone(), cluster.platform.clone());
        let store = cluster.state(1).store().clone();
        let shared = Rc::new(RefCell::new(BTreeMap::new()));
        let mut mirror = mirror(&cluster, "x/");
        let shown = Rc::clone(&shared);
        platform.spawn(async move {
            loop {
                mirror.changed().await;
                *shown.borrow_mut() = mirror.entries.clone();
            }
        });
        cluster.platform.run(async move {
            for round in 0..80_u64 {
                let key = Key::new(&format!("x/{}", platform.random_u64() % 6));
                let transaction = match round % 3 {
                    0 => Transaction::new().delete(&key),
                    _ => Transaction::new().put(&key, round.to_le_bytes()),
                };
                // Lost or made: the mirror has to show the truth in either case.
                let _ = store.transact(transaction).await;
                if round % 20 == 10 {
                    service.set_cut_off(9, true);
                }
                if round % 20 == 15 {
                    service.set_cut_off(9, false);
                }
            }
            service.set_faults(quick());
            platform.sleep(Duration::from_secs(5)).await;
            let truth = service.inspect(&[Selection::prefix("x/")]).groups.remove(0);
            let shown: Vec<_> = shared.borrow().values().cloned().collect();
            assert_eq!(shown, truth, "seed {seed}");
        });
    }
}
