use std::io::Read as _;
use std::net::TcpListener;

use rustls::ServerConnection;
use spandrel_shared::{ClusterId, NodeId};
use spandrel_trust::{Authority, Credentials, Holder, HolderKey, Secret};

use super::*;
use crate::admin::api;

fn reach(server: &str, token: Option<String>) -> Reach {
    let server = Some(server.to_owned());
    Reach::new(ReachArguments { dir: None, server, access_token: token, token_file: None })
}

fn token_of(authority: &Authority) -> String {
    let authority = authority.fingerprint().expect("it has one");
    AccessToken { authority, secret: Secret::random() }.to_string()
}

#[test]
fn a_server_is_named_as_it_listens() {
    let resolved = |server| resolve(server).map_err(|error| error.code);
    let at = |text: &str| Ok(vec![text.parse().expect("an address")]);
    assert_eq!(resolved("192.0.2.7"), at("192.0.2.7:7440"));
    assert_eq!(resolved("192.0.2.7:8000"), at("192.0.2.7:8000"));
    assert_eq!(resolved("2001:db8::1"), at("[2001:db8::1]:7440"));
    assert_eq!(resolved("[2001:db8::1]"), at("[2001:db8::1]:7440"));
    assert_eq!(resolved("[2001:db8::1]:8000"), at("[2001:db8::1]:8000"));
    assert!(resolved("localhost").is_ok_and(|found| found.iter().all(|one| one.port() == 7440)));
    for bad in ["192.0.2.7:65535", "localhost:x", "no such name", ""] {
        assert_eq!(resolved(bad), Err("SERVER_UNKNOWN".to_owned()), "{bad}");
    }
}

#[test]
fn what_needs_a_directory_is_not_done_elsewhere() {
    let reach = reach("192.0.2.7", None);
    assert!(reach.is_elsewhere());
    assert_eq!(reach.directory().expect_err("it is elsewhere").code, "ONLY_ON_SERVER");
}

#[test]
fn a_token_is_needed_and_must_be_one() {
    let code = |reach: Reach| reach.client().err().map(|error| error.code);
    assert_eq!(code(reach("192.0.2.7", None)).as_deref(), Some("TOKEN_MISSING"));
    assert_eq!(code(reach("192.0.2.7", Some(" ".to_owned()))).as_deref(), Some("TOKEN_MISSING"));
    assert_eq!(code(reach("192.0.2.7", Some("sj1.x".to_owned()))).as_deref(), Some("TOKEN_INVALID"));
    let mut from_file = reach("192.0.2.7", None);
    from_file.arguments.token_file = Some("/nowhere".into());
    assert_eq!(code(from_file.clone()).as_deref(), Some("TOKEN_UNREADABLE"));
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    let token = token_of(&Authority::create(ClusterId::from_random(1, 1)).expect("a new one"));
    std::fs::write(file.path(), token + "\n").expect("there is room");
    from_file.arguments.token_file = Some(file.path().to_owned());
    assert_eq!(code(from_file), None);
}

/// A server of another cluster answers, which can read what it is sent.
#[test]
fn nothing_is_told_to_a_server_of_another_cluster() {
    let cluster = ClusterId::from_random(1, 1);
    let (own, other) = [(); 2].map(|()| Authority::create(cluster).expect("a new one")).into();
    let key = HolderKey::generate().expect("a new one");
    let holder = Holder { node: NodeId::from_random(1, 2), key: &key.public(), addresses: &[] };
    let credentials = Credentials {
        cluster,
        authority_pem: other.certificate_pem().to_owned(),
        certificate_pem: other.issue(&holder).expect("it can sign"),
        key_pem: key.pem(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let port = listener.local_addr().expect("it listens").port();
    let config = Arc::new(credentials.server(true).expect("they are good"));
    let heard = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody comes");
        let mut session = ServerConnection::new(config).expect("it is good");
        let mut heard = Vec::new();
        let ended = rustls::Stream::new(&mut session, &mut stream).read_to_end(&mut heard);
        (heard, ended.is_err())
    });
    let client =
        reach(&format!("127.0.0.1:{}", port - 1), Some(token_of(&own))).client().expect("a good token");
    let refused = client.get::<()>(api::STATUS).expect_err("it is no server of the cluster");
    assert_eq!(refused.code, "CLUSTER_NOT_REACHED");
    assert!(refused.why.contains("certificate") && refused.next.contains("token"), "{refused}");
    assert_eq!(heard.join().expect("it has not panicked"), (Vec::new(), true), "not even a request");
}
