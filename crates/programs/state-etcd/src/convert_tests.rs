use super::*;

#[test]
fn leases_are_counted_in_whole_seconds_and_never_shorter() {
    for (milliseconds, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (2500, 3), (60_000, 60)] {
        assert_eq!(lease_seconds(Duration::from_millis(milliseconds)), seconds, "{milliseconds} ms");
    }
    assert_eq!(lease_seconds(Duration::MAX), i64::MAX);
}

#[test]
fn numbers_that_etcd_cannot_mean_are_refused() {
    assert_eq!(revision(7), Ok(Revision(7)));
    assert!(revision(-1).is_err());
    assert_eq!(lease_id(7), Ok(LeaseId(7)));
    assert!(lease_id(0).is_err() && lease_id(-7).is_err());
    assert_eq!((revision_number(Revision(7)), lease_number(LeaseId(7))), (7, 7));
    assert_eq!(revision_number(Revision(u64::MAX)), i64::MAX);
}

#[test]
fn keys_outside_the_namespace_are_none_of_ours() {
    let namespace = Namespace::new("ours/");
    assert_eq!(namespace.outer("key"), b"ours/key");
    assert_eq!(namespace.inner(b"ours/key"), Ok(Key::new("key")));
    assert!(namespace.inner(b"theirs/key").is_err());
    assert!(namespace.inner(b"ours/\xff").is_err());
}
