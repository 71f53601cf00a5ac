use std::os::unix::fs::PermissionsExt as _;

use spandrel_trust::Authority;

use super::*;
use crate::server::found::{ExternalState, NewCluster, found};
use crate::server::settings::claim_new;

fn token() -> JoinToken {
    let cluster = ClusterId::from_random(1, 2);
    let authority = Authority::create(cluster).expect("it can be made").fingerprint().expect("it has one");
    let secret = spandrel_trust::Secret::random();
    JoinToken { cluster, authority, secret, addresses: Vec::new() }
}

fn new_server() -> NewServer {
    NewServer {
        name: "n2".to_owned(),
        listen: vec!["127.0.0.2:7440".parse().expect("an address")],
        witness: false,
        etcd: "etcd".into(),
    }
}

#[test]
fn what_was_asked_for_is_asked_for_again_and_nothing_else() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let directory = Directory::choose(Some(&parent.path().join("n2"))).expect("it is a good path");
    let (token, new) = (token(), new_server());
    let lock = claim_new(&directory).expect("it is new");
    let begun = PendingJoin::begin(&directory, &token, &new).expect("it can be written");
    drop(lock);
    let mode = std::fs::metadata(directory.join(PENDING_FILE)).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o077, 0, "the key in it is its owner's alone");

    let lock = claim_new(&directory).expect("it goes on");
    let again = PendingJoin::read(&directory).expect("it can be read").expect("it is there");
    assert_eq!((again.node, &again.key_pem), (begun.node, &begun.key_pem));
    HolderKey::load(&again.key_pem).expect("it is a key");
    again.check_same(&directory, &token, &new).expect("it is the same");
    let other_secret = JoinToken { secret: spandrel_trust::Secret::random(), ..token.clone() };
    again.check_same(&directory, &other_secret, &new).expect("another token of the same cluster will do");
    let other_cluster = JoinToken { cluster: ClusterId::from_random(3, 4), ..token.clone() };
    for (token, new) in [
        (&other_cluster, new.clone()),
        (&token, NewServer { name: "n3".to_owned(), ..new.clone() }),
        (&token, NewServer { witness: true, ..new.clone() }),
        (&token, NewServer { listen: vec!["127.0.0.3:7440".parse().expect("an address")], ..new.clone() }),
    ] {
        let error = again.check_same(&directory, token, &new).expect_err("it is something else");
        assert_eq!(error.code, "JOIN_PENDING");
        assert!(error.next.contains("--node-name n2 --listen 127.0.0.2:7440"), "{error}");
    }
    drop(lock);

    let cluster = NewCluster {
        name: "test".to_owned(),
        node_name: "n1".to_owned(),
        listen: new.listen,
        slab_bytes: None,
        etcd: "etcd".into(),
        state: Some(ExternalState { addresses: vec!["127.0.0.1:2379".to_owned()], identity: None }),
    };
    assert_eq!(found(&directory, cluster.clone()).expect_err("it is taken").code, "JOIN_PENDING");
    PendingJoin::remove(&directory).expect("it can be removed");
    PendingJoin::remove(&directory).expect("again is no error");
    found(&directory, cluster).expect("the directory is as new");
}
