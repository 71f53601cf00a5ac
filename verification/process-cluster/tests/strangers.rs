//! What is not the cluster's own is refused: servers without a good token, certificates and drives of another cluster.

use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::{ClientConnection, StreamOwned};
use spandrel_process_cluster::{Program, Servers, ServersOptions};
use spandrel_trust::Credentials;

/// How long a port may keep silent to somebody whom it has let in.
const SILENCE: Duration = Duration::from_secs(1);

fn one_node() -> ServersOptions {
    ServersOptions { nodes: 1, witness: false, drive_size: "64M".to_owned(), drive_prefix: String::new() }
}

fn settings(directory: &Path) -> serde_json::Value {
    let text = std::fs::read_to_string(directory.join("node.json")).expect("it is there");
    serde_json::from_str(&text).expect("it is JSON")
}

/// What somebody has who trusts the server in `trusted`, and shows the certificate of the one in `shown`.
fn credentials(trusted: &Path, shown: &Path) -> Credentials {
    let read = |directory: &Path, name: &str| {
        std::fs::read_to_string(directory.join("pki").join(name)).expect("it is there")
    };
    let cluster = settings(trusted)["cluster"].as_str().and_then(|text| text.parse().ok());
    Credentials {
        cluster: cluster.expect("it is of a cluster"),
        authority_pem: read(trusted, "authority.pem"),
        certificate_pem: read(shown, "node.pem"),
        key_pem: read(shown, "node.key"),
    }
}

/// Whether somebody with these credentials is refused at a port.
fn is_refused(at: SocketAddr, credentials: &Credentials) -> bool {
    let config = Arc::new(credentials.client().expect("they can be used"));
    let name = credentials.common_name().expect("a cluster has a name");
    let connection = ClientConnection::new(config, name).expect("they can be used");
    let socket = TcpStream::connect(at).expect("somebody listens");
    socket.set_read_timeout(Some(SILENCE)).expect("it is some time");
    let mut stream = StreamOwned::new(connection, socket);
    // With TLS 1.3 a client only hears after its handshake that it is refused.
    match stream.read(&mut [0]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
    }
}

#[test]
fn what_belongs_to_another_cluster_is_refused() {
    let program = Program::with_test_faults();
    let servers = Servers::start(&program, &one_node());
    let mut other = servers.start_another(&program, &one_node());
    let (own, foreign) = (servers.directory("n1"), other.directory("n1"));
    let listen: SocketAddr =
        settings(&own)["listen"][0].as_str().expect("a text").parse().expect("an address");
    // The bus, the admin API, etcd's clients, etcd's members.
    for port in listen.port()..listen.port() + 4 {
        let at = SocketAddr::new(listen.ip(), port);
        assert!(!is_refused(at, &credentials(&own, &own)), "{at}: its own");
        assert!(is_refused(at, &credentials(&own, &foreign)), "{at}: another cluster's");
    }
    other.stop("n1");
    let drive = other.drive_file("n1");
    let refused = servers.run("n1", &["drive", "add", drive.to_str().expect("a plain name")]);
    assert!(refused.errors.contains("DRIVE_OF_OTHER_CLUSTER"), "{refused:?}");
}

#[test]
fn a_server_that_may_not_join_is_told_why() {
    let servers = Servers::start(&Program::with_test_faults(), &one_node());
    let token = servers.must_run("n1", &["cluster", "join-token"]).output.trim().to_owned();
    let other = tempfile::tempdir().expect("temporary directories can be made");
    let directory = other.path().join("x");
    let program = Program::with_test_faults();
    let join = |token: &str, name: &str| {
        let mut command = std::process::Command::new(program.path());
        command.arg("--dir").arg(&directory).args(["node", "join", token, "--node-name", name]);
        let output =
            command.args(["--listen", "127.0.0.1:7999"]).output().expect("the program can be started");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let refused = join(&token, "n1");
    assert!(refused.contains("NAME_TAKEN"), "{refused}");
    // The last character of the secrets is the secret's own, the fifth one is the cluster's.
    let changed = |place: usize| {
        let mut bytes = token.clone().into_bytes();
        bytes[place] = if bytes[place] == b'A' { b'Q' } else { b'A' };
        String::from_utf8(bytes).expect("tokens are plain text")
    };
    let refused = join(&changed(4 + 85), "n2");
    assert!(refused.contains("TOKEN_REFUSED"), "{refused}");
    let refused = join(&changed(4 + 1), "n2");
    assert!(refused.contains("CLUSTER_NOT_REACHED") && refused.contains("certificate"), "{refused}");
    assert!(!directory.join("node.json").exists(), "nothing is left of it");
}
