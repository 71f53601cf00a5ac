use std::io::{Read as _, Write as _};

use rustls::{ClientConnection, Connection, ServerConnection};
use spandrel_shared::NodeId;

use super::*;
use crate::{Authority, Holder, pinned_client, pinned_client_of_any_name};

fn cluster() -> ClusterId {
    ClusterId::from_random(1, 2)
}

fn holder(authority: &Authority, cluster: ClusterId) -> Credentials {
    let key = HolderKey::generate().unwrap();
    let holder = Holder { node: NodeId::from_random(5, 6), key: &key.public(), addresses: &[] };
    Credentials {
        cluster,
        authority_pem: authority.certificate_pem().to_owned(),
        certificate_pem: authority.issue(&holder).unwrap(),
        key_pem: key.pem(),
    }
}

/// Moves what one side has to send to the other.
fn carry(from: &mut Connection, to: &mut Connection) -> Result<bool, rustls::Error> {
    let mut wire = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut wire).unwrap();
    }
    let mut rest = &wire[..];
    while !rest.is_empty() {
        to.read_tls(&mut rest).unwrap();
        to.process_new_packets()?;
    }
    Ok(!wire.is_empty())
}

/// Whether the two come to terms: the client's hello arrives, and whether the server knows who it is.
fn speak(
    client: ClientConfig,
    server: ServerConfig,
    name: ServerName<'static>,
) -> Result<bool, rustls::Error> {
    let mut client = Connection::from(ClientConnection::new(Arc::new(client), name).unwrap());
    let mut server = Connection::from(ServerConnection::new(Arc::new(server)).unwrap());
    client.writer().write_all(b"hello").unwrap();
    while carry(&mut client, &mut server)? | carry(&mut server, &mut client)? {}
    let mut heard = [0; 5];
    server.reader().read_exact(&mut heard).unwrap();
    assert_eq!(&heard, b"hello");
    Ok(server.peer_certificates().is_some())
}

#[test]
fn members_of_a_cluster_come_to_terms_and_others_do_not() {
    let authority = Authority::create(cluster()).unwrap();
    let (one, two) = (holder(&authority, cluster()), holder(&authority, cluster()));
    let name = one.common_name().unwrap();
    assert_eq!(speak(one.client().unwrap(), two.server(false).unwrap(), name.clone()), Ok(true));
    let stranger = holder(&Authority::create(cluster()).unwrap(), cluster());
    assert!(speak(stranger.client().unwrap(), two.server(true).unwrap(), name.clone()).is_err());
    assert!(speak(one.client().unwrap(), stranger.server(true).unwrap(), name).is_err());
    // The same authority's, but for another cluster: what the name is for.
    let other = holder(&authority, cluster());
    let elsewhere = Credentials { cluster: ClusterId::from_random(8, 9), ..other }.common_name().unwrap();
    assert!(speak(one.client().unwrap(), two.server(false).unwrap(), elsewhere).is_err());
}

#[test]
fn who_knows_only_the_fingerprint_is_let_in_as_a_stranger() {
    let authority = Authority::create(cluster()).unwrap();
    let member = holder(&authority, cluster());
    let name = member.common_name().unwrap();
    let pinned = || pinned_client(member.fingerprint().unwrap()).unwrap();
    assert_eq!(speak(pinned(), member.server(true).unwrap(), name.clone()), Ok(false));
    assert!(speak(pinned(), member.server(false).unwrap(), name.clone()).is_err(), "it shows no certificate");
    let impostor = holder(&Authority::create(cluster()).unwrap(), cluster());
    assert!(speak(pinned(), impostor.server(true).unwrap(), name.clone()).is_err());
    // Somebody who shows the true authority's certificate beside one that it has not signed.
    let forged = Credentials { authority_pem: member.authority_pem.clone(), ..impostor };
    assert!(speak(pinned(), forged.server(true).unwrap(), name).is_err());
}

#[test]
fn who_does_not_know_the_name_trusts_the_authority_alone() {
    let authority = Authority::create(cluster()).unwrap();
    let member = holder(&authority, cluster());
    let address = ServerName::try_from("192.0.2.7").unwrap();
    let pinned = || pinned_client_of_any_name(member.fingerprint().unwrap()).unwrap();
    assert_eq!(speak(pinned(), member.server(true).unwrap(), address.clone()), Ok(false));
    let impostor = holder(&Authority::create(cluster()).unwrap(), cluster());
    assert!(speak(pinned(), impostor.server(true).unwrap(), address.clone()).is_err());
    let forged = Credentials { authority_pem: member.authority_pem.clone(), ..impostor };
    assert!(speak(pinned(), forged.server(true).unwrap(), address).is_err());
}

#[test]
fn files_that_are_damaged_are_named() {
    let authority = Authority::create(cluster()).unwrap();
    let sound = holder(&authority, cluster());
    for damaged in [
        Credentials { authority_pem: String::new(), ..sound.clone() },
        Credentials { certificate_pem: "nothing".to_owned(), ..sound.clone() },
        Credentials { key_pem: sound.authority_pem.clone(), ..sound.clone() },
    ] {
        assert_eq!(
            damaged.client().err().map(|error| error.code.to_string()),
            Some("CREDENTIALS_UNUSABLE".to_owned())
        );
        assert!(damaged.server(true).is_err());
    }
}
