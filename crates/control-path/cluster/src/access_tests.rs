use std::time::Duration;

use super::*;
use crate::records::Role;
use crate::test_cluster::TestCluster;

fn record(name: &str, role: Role) -> AccessRecord {
    AccessRecord { name: name.to_owned(), role, created_unix_ms: 1 }
}

#[test]
fn a_name_has_access_once_and_loses_exactly_that() {
    let cluster = TestCluster::new(1, 0, 0, 0);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        state.give_access("d1", &record("a", Role::Read)).await.unwrap();
        state.give_access("d1", &record("a", Role::Read)).await.expect("the same again");
        let taken = state.give_access("d2", &record("a", Role::Administer)).await;
        assert!(matches!(&taken, Err(StateError::Refused(error)) if error.code == "NAME_TAKEN"), "{taken:?}");
        state.give_access("d3", &record("b", Role::Operate)).await.unwrap();
        assert_eq!(state.access().await.unwrap().into_keys().collect::<Vec<_>>(), ["d1", "d3"]);
        assert_eq!(state.take_access_back("a").await, Ok(true));
        assert_eq!(state.take_access_back("a").await, Ok(false));
        assert_eq!(state.access().await.unwrap().into_keys().collect::<Vec<_>>(), ["d3"]);
        state.give_access("d4", &record("a", Role::Read)).await.expect("the name is free again");
    });
}

/// Both look, both find the name free.
#[test]
fn of_two_that_want_a_name_at_once_one_gets_it() {
    for seed in 0..50 {
        let cluster = TestCluster::new(seed, 0, 0, 0);
        let (one, other) = (cluster.state(1), cluster.state(2));
        cluster.platform.run(async move {
            let (first, second) = (record("a", Role::Read), record("a", Role::Administer));
            let both =
                futures_util::future::join(one.give_access("d1", &first), other.give_access("d2", &second));
            let (first, second) = both.await;
            assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
            assert_eq!(one.access().await.unwrap().len(), 1);
        });
    }
}

#[test]
fn what_lets_servers_join_vanishes_with_its_lease() {
    let cluster = TestCluster::new(1, 0, 0, 0);
    let state = cluster.state(1);
    cluster.platform.run(async move {
        let lease = state.store().grant_lease(Duration::from_secs(1000)).await.unwrap();
        let record = JoinRecord { created_unix_ms: 1, expires_unix_ms: 2 };
        state.give_join("d1", &record, lease).await.unwrap();
        assert_eq!(state.joins().await.unwrap().into_keys().collect::<Vec<_>>(), ["d1"]);
        state.store().revoke_lease(lease).await.unwrap();
        assert!(state.joins().await.unwrap().is_empty());
    });
}
