use std::path::PathBuf;

use super::*;

fn settings(beginning: Beginning) -> MemberSettings {
    MemberSettings {
        program: PathBuf::from("etcd"),
        folder: PathBuf::from("/folder"),
        name: "n2".to_owned(),
        client_addresses: vec!["127.0.0.1:1".parse().unwrap(), "[::1]:2".parse().unwrap()],
        peer_addresses: vec!["127.0.0.1:3".parse().unwrap(), "127.0.0.2:3".parse().unwrap()],
        identity: None,
        beginning,
    }
}

fn value(arguments: &[OsString], name: &str) -> String {
    let beginning = format!("{name}=");
    let mut words = arguments.iter().map(|word| word.to_str().unwrap());
    words.find_map(|word| word.strip_prefix(&beginning)).expect("it is there").to_owned()
}

#[test]
fn a_member_is_named_with_all_its_addresses() {
    let first = arguments(&settings(Beginning::First("this one".to_owned())));
    let value = |name| value(&first, name);
    assert_eq!(value("--initial-cluster"), "n2=http://127.0.0.1:3,n2=http://127.0.0.2:3");
    assert_eq!(value("--initial-cluster-state"), "new");
    assert_eq!(value("--initial-cluster-token"), "this one");
    assert_eq!(value("--listen-client-urls"), "http://127.0.0.1:1,http://[::1]:2");
    assert_eq!(value("--data-dir"), "/folder/data");
    assert_eq!(value("--pre-vote"), "true", "or who was cut off ends the leader's term when it comes back");
}

#[test]
fn one_that_was_added_names_all_members() {
    let one: SocketAddr = "127.0.0.1:9".parse().unwrap();
    let own = settings(Beginning::Added(Vec::new()));
    let members = vec![("n1".to_owned(), vec![one]), (own.name.clone(), own.peer_addresses.clone())];
    let added = arguments(&settings(Beginning::Added(members)));
    assert_eq!(
        value(&added, "--initial-cluster"),
        "n1=http://127.0.0.1:9,n2=http://127.0.0.1:3,n2=http://127.0.0.2:3"
    );
    assert_eq!(value(&added, "--initial-cluster-state"), "existing");
}
