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
    ServersOptions {
        drive_size: "64M".to_owned(),
        drive_prefix: String::new(),
        ..ServersOptions::new(1, false)
    }
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
    let (drive, link) = (other.drive_file("n1"), servers.drive_file("foreign"));
    std::fs::hard_link(&drive, &link).expect("it can have two names");
    // By its own name it would be called like the drive that is there.
    for (path, code) in [(drive, "DRIVE_NAME_TAKEN"), (link, "DRIVE_OF_OTHER_CLUSTER")] {
        let refused = servers.run("n1", &["drive", "add", path.to_str().expect("a plain name")]);
        assert!(refused.errors.contains(code), "{refused:?}");
    }
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

/// From a machine without any server's directory, with a token alone.
#[test]
fn who_has_an_access_token_uses_the_cluster_from_elsewhere() {
    let program = Program::with_test_faults();
    let servers = Servers::start(&program, &one_node());
    let other = servers.start_another(&program, &one_node());
    let create = |servers: &Servers, role: &str| {
        let made = servers.must_run("n1", &["access", "create", role, "--role", role]);
        made.output.trim().to_owned()
    };
    let (read, operate, administer) =
        (create(&servers, "read"), create(&servers, "operate"), create(&servers, "administer"));
    let at = settings(&servers.directory("n1"))["listen"][0].as_str().expect("a text").to_owned();
    let home = tempfile::tempdir().expect("temporary directories can be made");
    // Exit status, standard output and standard error.
    let run = |server: &str, token: Option<&str>, arguments: &[&str]| {
        let mut command = std::process::Command::new(program.path());
        command.env_clear().env("HOME", home.path()).args(["--server", server]).args(arguments);
        if let Some(token) = token {
            command.env("SPANDREL_TOKEN", token);
        }
        let output = command.output().expect("the program can be started");
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("it is text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let refused = |token: Option<&str>, arguments: &[&str], code: &str| {
        let (status, _, errors) = run(&at, token, arguments);
        assert_eq!(status, Some(1), "{errors}");
        assert!(errors.starts_with(&format!("error[{code}]")), "{errors}");
    };
    let done = |token: &str, arguments: &[&str]| {
        let (status, output, errors) = run(&at, Some(token), arguments);
        assert_eq!(status, Some(0), "{errors}");
        output
    };
    assert!(done(&read, &["status"]).contains("n1"));
    let made = ["volume", "create", "v", "--size", "8M", "--copies", "1"];
    refused(Some(&read), &made, "ACCESS_DENIED");
    servers.create_volume("n1", "first", &["--size", "4M", "--copies", "1"]);
    done(&operate, &made);
    assert!(done(&operate, &["volume", "verify", "v"]).contains("whole"), "an answer that is a stream");
    refused(Some(&operate), &["volume", "delete", "v", "--yes"], "ACCESS_DENIED");
    done(&administer, &["volume", "delete", "v", "--yes"]);
    let node: serde_json::Value =
        serde_json::from_str(&done(&read, &["node", "get", "n1", "-o", "json"])).expect("it is JSON");
    assert_eq!(node["name"], "n1");
    let file = home.path().join("token");
    std::fs::write(&file, format!("{read}\n")).expect("there is room");
    done("", &["status", "--token-file", file.to_str().expect("a plain name")]);

    refused(None, &["status"], "TOKEN_MISSING");
    refused(Some("nonsense"), &["status"], "TOKEN_INVALID");
    // Of another cluster's authority: who answers is not trusted, and is told nothing.
    let foreign = create(&other, "read");
    refused(Some(&foreign), &["status"], "CLUSTER_NOT_REACHED");
    // The authority's, with another secret; its last character is the secret's.
    let mut wrong = read.clone().into_bytes();
    let last = wrong.last_mut().expect("it is not empty");
    *last = if *last == b'A' { b'Q' } else { b'A' };
    refused(Some(&String::from_utf8(wrong).expect("it is text")), &["status"], "TOKEN_REFUSED");
    servers.must_run("n1", &["access", "delete", "read"]);
    refused(Some(&read), &["status"], "TOKEN_REFUSED");
    // What belongs to a server's directory.
    refused(Some(&administer), &["node", "run"], "ONLY_ON_SERVER");
    refused(Some(&administer), &["drive", "clean", "/nowhere"], "ONLY_ON_SERVER");
    refused(Some(&administer), &["drive", "add", "here.drive"], "DRIVE_PATH_INVALID");
    let (_, _, nobody) = run("127.0.0.1:1", Some(&administer), &["status"]);
    assert!(nobody.contains("CLUSTER_NOT_REACHED"), "{nobody}");
    assert!(!home.path().join(".local").exists(), "nothing is kept");
}
