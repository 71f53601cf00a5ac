//! An etcd that no server of a cluster keeps: one member, with TLS, that lets in whoever shows a certificate of its
//! authority.
//!
//! Invariants:
//! - When it is dropped, its process is dead.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use spandrel_shared::{ClusterId, NodeId};
use spandrel_trust::{Authority, Holder, HolderKey};
use tempfile::TempDir;

use crate::daemon::new_directory;
use crate::servers::new_address;

/// Where it answers clients, and would answer other members.
const CLIENTS_PORT: u16 = 2379;
const MEMBERS_PORT: u16 = 2380;

/// An etcd of others.
pub struct ExternalEtcd {
    child: Child,
    directory: TempDir,
    address: String,
}

impl ExternalEtcd {
    /// Starts it. It may take a moment until it answers.
    ///
    /// # Panics
    ///
    /// If there is no etcd.
    pub fn start() -> Self {
        let directory = new_directory();
        let address = new_address();
        let authority = Authority::create(ClusterId::from_random(9, 9)).expect("it can be made");
        fs::write(directory.path().join("authority.pem"), authority.certificate_pem())
            .expect("there is room");
        // What is connected to over the loopback interface sees clients at the first of these.
        let addresses = ["127.0.0.1", &address].map(|text| text.parse().expect("an address"));
        for (number, name) in [(1, "member"), (2, "client")] {
            let key = HolderKey::generate().expect("it can be made");
            let holder =
                Holder { node: NodeId::from_random(9, number), key: &key.public(), addresses: &addresses };
            let certificate = authority.issue(&holder).expect("it can sign");
            fs::write(directory.path().join(format!("{name}.pem")), certificate).expect("there is room");
            fs::write(directory.path().join(format!("{name}.key")), key.pem()).expect("there is room");
        }
        let child = run(&directory, &address);
        Self { child, directory, address }
    }

    /// What `cluster init` is to be told so that it keeps a cluster's state.
    pub fn init_arguments(&self) -> Vec<String> {
        let file = |name: &str| self.path(name).to_str().expect("a plain name").to_owned();
        vec![
            format!("--state=etcd://{}:{CLIENTS_PORT}", self.address),
            format!("--state-authority={}", file("authority.pem")),
            format!("--state-certificate={}", file("client.pem")),
            format!("--state-key={}", file("client.key")),
        ]
    }

    /// Kills it.
    pub fn kill(&mut self) {
        // That it is dead already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again, with what it had when it was killed.
    pub fn start_again(&mut self) {
        self.child = run(&self.directory, &self.address);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl Drop for ExternalEtcd {
    fn drop(&mut self) {
        self.kill();
    }
}

fn run(directory: &TempDir, address: &str) -> Child {
    let peers = format!("http://{address}:{MEMBERS_PORT}");
    let clients = format!("https://{address}:{CLIENTS_PORT}");
    let log = File::options().append(true).create(true).open(directory.path().join("log"));
    Command::new("etcd")
        .current_dir(directory.path())
        .args(["--data-dir", "data", "--cert-file", "member.pem", "--key-file", "member.key"])
        .args(["--client-cert-auth", "--trusted-ca-file", "authority.pem"])
        .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
        .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
        .args(["--initial-cluster", &format!("default={peers}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.expect("there is room"))
        .spawn()
        .expect("etcd is installed")
}
