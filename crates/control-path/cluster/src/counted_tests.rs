use super::*;
use crate::store::{Expected, Key};
use crate::test_cluster::TestCluster;

#[test]
fn every_request_is_counted_by_its_kind() {
    let cluster = TestCluster::new(1, 1, 1, 1);
    let store = CountedStore::new(cluster.state(1).store().clone());
    let same = store.clone();
    cluster.platform.run(async move {
        let key = Key::new("x/a");
        let revision = store.read(&[Selection::key(&key), Selection::prefix("x/")]).await.unwrap().revision;
        let _watch = store.watch("x/", revision.next()).await.unwrap();
        let lease = store.grant_lease(Duration::from_secs(5)).await.unwrap();
        store.keep_alive(lease).await.unwrap();
        store.revoke_lease(lease).await.unwrap();
        store.transact(Transaction::new().put(&key, *b"1234")).await.unwrap();
        let two = Transaction::new().expect(&key, Expected::Absent).delete(&key).delete(&Key::new("x/b"));
        store.transact(two).await.unwrap();
    });
    let expected = StateRequests {
        reads: 1,
        transactions: 2,
        lease_renewals: 3,
        watches: 1,
        transaction_bytes_max: 9,
        transaction_operations_max: 2,
    };
    assert_eq!(same.requests(), expected);
}

#[test]
fn what_fails_is_counted_too() {
    let cluster = TestCluster::new(1, 1, 1, 1);
    let store = CountedStore::new(cluster.state(1).store().clone());
    cluster.service.set_outage(true);
    let same = store.clone();
    cluster.platform.run(async move {
        store.read(&[]).await.unwrap_err();
        store.transact(Transaction::new()).await.unwrap_err();
    });
    let requests = same.requests();
    assert_eq!((requests.reads, requests.transactions), (1, 1));
}
