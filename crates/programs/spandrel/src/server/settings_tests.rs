use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::arguments::{LogArguments, ThreadArguments, VmHostArguments};
use crate::server::found::{ExternalState, NewCluster, found};

fn directory(parent: &tempfile::TempDir, name: &str) -> Directory {
    Directory::choose(Some(&parent.path().join(name))).expect("it is a good path")
}

fn new_cluster() -> NewCluster {
    NewCluster {
        name: "test".to_owned(),
        node_name: "n1".to_owned(),
        listen: vec![
            "127.0.0.1:7440".parse().expect("an address"),
            "127.0.0.2:7450".parse().expect("an address"),
        ],
        slab_bytes: None,
        etcd: "etcd".into(),
        state: Some(ExternalState { addresses: vec!["127.0.0.1:2379".to_owned()], identity: None }),
    }
}

#[test]
fn a_server_is_what_it_was_made_as() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let directory = directory(&parent, "n1");
    let token = found(&directory, new_cluster()).expect("it can be made");
    let settings = ServerSettings::read(&directory).expect("it was written");
    assert_eq!((settings.cluster, &*settings.name, settings.witness), (token.cluster, "n1", false));
    assert_eq!(settings.state.endpoints(), ["http://127.0.0.1:2379"]);
    assert_eq!(token.addresses, settings.addresses(Port::Admin));
    assert_eq!(settings.addresses(Port::StateMembers)[1], "127.0.0.2:7453".parse().expect("an address"));
    let pki = Pki(&directory);
    let credentials = pki.credentials(settings.cluster).expect("they were written");
    assert_eq!(credentials.fingerprint().expect("it is a certificate"), token.authority);
    assert!(credentials.server(true).is_ok() && credentials.client().is_ok());
    assert!(pki.load_authority(settings.cluster).is_ok());
    for path in [pki.authority_key(), pki.key(), directory.join(SETTINGS_FILE)] {
        let mode = std::fs::metadata(&path).expect("it was written").permissions().mode();
        assert_eq!(mode & 0o077, 0, "{} is its owner's alone", path.display());
    }
}

#[test]
fn what_is_there_already_is_left_alone() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let code = |directory: &Directory| found(directory, new_cluster()).expect_err("it is refused").code;
    let taken = directory(&parent, "n1");
    found(&taken, new_cluster()).expect("it can be made");
    let before = ServerSettings::read(&taken).expect("it was written");
    assert_eq!(code(&taken), "SERVER_EXISTS");
    assert_eq!(ServerSettings::read(&taken).expect("it is still there"), before);
    let foreign = directory(&parent, "foreign");
    std::fs::create_dir(foreign.path()).expect("it can be made");
    std::fs::write(foreign.join("letters"), "dear").expect("it can be written");
    assert_eq!(code(&foreign), "DIR_FOREIGN");
}

#[test]
fn a_directory_that_is_no_servers_or_too_new_or_damaged_is_told_so() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let code = |directory: &Directory| ServerSettings::read(directory).expect_err("it is refused").code;
    assert_eq!(code(&directory(&parent, "nothing")), "SERVER_UNKNOWN");
    let server = directory(&parent, "n1");
    found(&server, new_cluster()).expect("it can be made");
    std::fs::write(server.join(SETTINGS_FILE), "{\"format\": 2}").expect("it can be written");
    assert_eq!(code(&server), "DIR_TOO_NEW");
    std::fs::write(server.join(SETTINGS_FILE), "{\"format\": 1").expect("it can be written");
    assert_eq!(code(&server), "DIR_DAMAGED");
}

#[test]
fn a_directory_in_which_something_was_interrupted_says_what_next() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let half_made = directory(&parent, "n1");
    std::fs::create_dir_all(half_made.join("pki")).expect("it can be made");
    let error = found(&half_made, new_cluster()).expect_err("it is refused");
    assert_eq!(error.code, "DIR_HALF_MADE");
    assert!(error.next.contains("delete the directory"), "{error}");
    assert_eq!(ServerSettings::read(&half_made).expect_err("it is none").code, "DIR_HALF_MADE");
    let locked_once = directory(&parent, "n2");
    std::fs::create_dir(locked_once.path()).expect("it can be made");
    std::fs::write(locked_once.join("lock"), "").expect("it can be written");
    found(&locked_once, new_cluster()).expect("a lock alone is nothing");
}

#[test]
fn a_servers_directory_is_closed_to_others_and_a_foreign_one_stays_as_it_is() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let mode = |directory: &Directory| {
        std::fs::metadata(directory.path()).expect("it is there").permissions().mode() & 0o777
    };
    let open = |directory: &Directory| {
        std::fs::create_dir(directory.path()).expect("it can be made");
        let permissions = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(directory.path(), permissions).expect("it is ours");
    };
    let own = directory(&parent, "own");
    open(&own);
    found(&own, new_cluster()).expect("it is empty");
    assert_eq!(mode(&own), 0o700);
    let foreign = directory(&parent, "foreign");
    open(&foreign);
    std::fs::write(foreign.join("letters"), "dear").expect("it can be written");
    found(&foreign, new_cluster()).expect_err("it holds letters");
    assert_eq!(
        crate::server::run::run(
            foreign.clone(),
            false,
            &ThreadArguments::default(),
            &VmHostArguments::default(),
            LogArguments::default(),
        )
        .expect_err("no server")
        .code,
        "SERVER_UNKNOWN"
    );
    assert_eq!((mode(&foreign), foreign.join("lock").exists()), (0o755, false));
}

#[test]
fn one_process_has_a_directory() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let directory = directory(&parent, ".");
    let held = lock(&directory).expect("nobody has it");
    assert_eq!(lock(&directory).expect_err("somebody has it").code, "DIR_IN_USE");
    drop(held);
    lock(&directory).expect("nobody has it any more");
}

#[test]
fn addresses_that_others_cannot_use_are_refused() {
    let refused = |listen: &[&str]| {
        let listen = listen.iter().map(|text| text.parse().expect("an address")).collect();
        let parent = tempfile::tempdir().expect("a temporary directory");
        let outcome = found(&directory(&parent, "n1"), NewCluster { listen, ..new_cluster() });
        outcome.expect_err("it is refused").code
    };
    for listen in [
        &[][..],
        &["0.0.0.0:7440"],
        &["[::]:7440"],
        &["127.0.0.1:65533"],
        &["127.0.0.1:7440", "192.0.2.7:7440"],
        &["192.0.2.7:7440", "192.0.2.7:7443"],
        &["192.0.2.7:7440"; 2],
    ] {
        assert_eq!(refused(listen), "LISTEN_INVALID", "{listen:?}");
    }
}

#[test]
fn an_etcd_of_others_on_another_machine_is_spoken_to_with_tls_alone() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let found_with = |name: &str, address: &str, identity: Option<StateIdentity>| {
        let state = Some(ExternalState { addresses: vec![address.to_owned()], identity });
        let made = found(&directory(&parent, name), NewCluster { state, ..new_cluster() });
        made.map(drop).map_err(|error| error.code)
    };
    for (name, near) in ["127.0.0.1:2379", "[::1]:2379", "localhost:2379", "127.9.0.1:1"].iter().enumerate() {
        assert_eq!(found_with(&format!("near{name}"), near, None), Ok(()), "{near}");
    }
    let none = |name: &str| !directory(&parent, name).join(SETTINGS_FILE).exists();
    for far in ["10.0.0.1:2379", "etcd.example:2379", "[2001:db8::1]:2379", "localhost.example:2379"] {
        assert_eq!(found_with("far", far, None), Err("STATE_NOT_ENCRYPTED".to_owned()), "{far}");
    }
    assert!(none("far"));
    let no_pem = StateIdentity {
        authority_pem: "no".to_owned(),
        certificate_pem: "PEM".to_owned(),
        key_pem: String::new(),
    };
    let refused = found_with("broken", "etcd.example:2379", Some(no_pem));
    assert_eq!(refused, Err("STATE_IDENTITY_INVALID".to_owned()));
    assert!(none("broken"));
    assert_eq!(found_with("broken", "127.0.0.1:2379", None), Ok(()), "nothing is in the way of a second try");
}
