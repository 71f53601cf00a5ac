//! What a server is: decided when it makes or joins a cluster, kept in its directory.
//!
//! ```text
//! DIR/node.json        what the server is, see below
//! DIR/join.json        what it has asked for, until it is answered; see `pending`
//! DIR/lock             locked by the process that sets it up or runs it
//! DIR/pki/             the authority's certificate (and its key, on nodes), the server's own certificate and key, and
//!                      those for an etcd of others
//! DIR/etcd/            its member of etcd, if it has one
//! DIR/admin.sock       where commands on this machine reach it
//! DIR/nbd.sock         where clients on this machine reach volumes
//! DIR/log/             logs
//! ```
//!
//! Invariants:
//! - Whoever can read the directory can speak for the server; so it is its owner's alone.
//! - `node.json` is written whole or not at all, and last: with it the server exists.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use spandrel_shared::{ClusterId, Error, NodeId, SlabGeometry};
use spandrel_trust::{Authority, Credentials, HolderKey, revocation_list};

use super::Port;
use crate::admin::api::StateIdentity;
use crate::directory::Directory;

/// The format of `node.json` that this version writes, and the newest that it knows.
const FORMAT: u32 = 1;

const SETTINGS_FILE: &str = "node.json";

/// What a server has asked for that wants to join; see [`super::pending`].
pub(super) const PENDING_FILE: &str = "join.json";

/// What may be in a directory before a server is in it: what is left of attempts that were interrupted.
const OWN_FILES: [&str; 5] = ["lock", "pki", PENDING_FILE, "join.new", "node.new"];

/// What a server is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerSettings {
    /// The format of this record.
    pub format: u32,
    /// The cluster.
    pub cluster: ClusterId,
    /// Its name.
    pub cluster_name: String,
    /// The server.
    pub node: NodeId,
    /// Its name.
    pub name: String,
    /// Whether it has no drives and only helps to keep the cluster's state.
    pub witness: bool,
    /// The first of its ports, at each of its addresses.
    pub listen: Vec<SocketAddr>,
    /// Where the cluster's state is.
    pub state: StatePlace,
    /// What is to be put into the state of a new cluster; none once that was done.
    #[serde(default)]
    pub founding: Option<Founding>,
    /// The generation of the state that it has gone by last.
    #[serde(default)]
    pub generation: u32,
    /// The first ports of all servers of the cluster, as far as this one has seen: where a state may be kept that was
    /// put back meanwhile.
    #[serde(default)]
    pub servers: BTreeSet<SocketAddr>,
    /// The node's drives: paths of block devices or files.
    #[serde(default)]
    pub drives: Vec<String>,
    /// Those of its drives that cache for the others.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub cache_drives: BTreeSet<String>,
}

/// Where the cluster's state is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StatePlace {
    /// In an etcd that the cluster's own servers keep.
    Own {
        /// The program, a path or a name in `PATH`.
        program: PathBuf,
        /// Where its members answer clients, as far as this server knows.
        endpoints: Vec<String>,
        /// Whether this server has begun to be one of them.
        is_member: bool,
    },
    /// In an etcd that others keep.
    External {
        /// Where its members answer clients: all of them with TLS (`https://`), or none.
        endpoints: Vec<String>,
    },
}

impl StatePlace {
    /// Where the members answer clients.
    pub fn endpoints(&self) -> &[String] {
        match self {
            Self::Own { endpoints, .. } | Self::External { endpoints } => endpoints,
        }
    }

    /// Whether it is in an etcd that others keep, and servers must prove to it who they are.
    pub fn is_external_with_tls(&self) -> bool {
        let Self::External { endpoints } = self else { return false };
        endpoints.iter().any(|endpoint| endpoint.starts_with("https://"))
    }
}

/// What is to be put into the state of a new cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Founding {
    /// The pool's slab size.
    pub slab_bytes: SlabGeometry,
    /// When the cluster was made.
    pub created_unix_ms: u64,
    /// The digest of the first join token's secret.
    pub join_digest: String,
    /// The digest of the first node's public key.
    pub key_digest: String,
    /// Until when that lets servers join.
    pub join_expires_unix_ms: u64,
}

#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

impl ServerSettings {
    /// The drive at a path is none of the node's any more.
    pub fn forget_drive(&mut self, path: &str) {
        self.drives.retain(|known| known != path);
        self.cache_drives.remove(path);
    }

    /// What the server in `directory` is.
    pub fn read(directory: &Directory) -> Result<Self, Error> {
        let path = directory.join(SETTINGS_FILE);
        let refuse = |code: &str, why: String, next: &str| {
            let what = format!("the server in {} cannot be started", directory.path().display());
            Error::new(code, what, why, next)
        };
        let text = fs::read(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => unknown(directory),
            _ => refuse("DIR_UNREADABLE", format!("{}: {error}", path.display()), "run this as its owner"),
        })?;
        let damaged = |error: serde_json::Error| {
            refuse("DIR_DAMAGED", format!("{}: {error}", path.display()), "put the file back as it was")
        };
        let format: FormatOnly = serde_json::from_slice(&text).map_err(damaged)?;
        if format.format > FORMAT {
            let why =
                format!("its format is {}, and this version knows formats up to {FORMAT}", format.format);
            return Err(refuse("DIR_TOO_NEW", why, "use the newer version of spandrel that wrote it"));
        }
        serde_json::from_slice(&text).map_err(damaged)
    }

    /// The number of the format for a new record.
    pub fn format() -> u32 {
        FORMAT
    }

    /// Writes what the server is, durably, in place of what was there.
    pub fn write(&self, directory: &Directory) -> Result<(), Error> {
        let mut text = serde_json::to_vec_pretty(self).expect("settings are plain data");
        text.push(b'\n');
        write_durably(&directory.join(SETTINGS_FILE), &text).map_err(|error| not_writable(directory, &error))
    }

    /// Where it does what it does at `port`, at each of its addresses.
    pub fn addresses(&self, port: Port) -> Vec<SocketAddr> {
        self.listen.iter().map(|listen| port.at(*listen)).collect()
    }
}

/// The files with which a server proves who it is.
pub struct Pki<'d>(pub &'d Directory);

impl Pki<'_> {
    /// The authority's certificate.
    pub fn authority(&self) -> PathBuf {
        self.0.join("pki/authority.pem")
    }

    /// The authority's private key. Witnesses have none.
    pub fn authority_key(&self) -> PathBuf {
        self.0.join("pki/authority.key")
    }

    /// The server's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.0.join("pki/node.pem")
    }

    /// The server's private key.
    pub fn key(&self) -> PathBuf {
        self.0.join("pki/node.key")
    }

    /// With what servers prove who they are to an etcd that others keep.
    pub fn state_identity(&self) -> Result<StateIdentity, Error> {
        let [authority, certificate, key] = self.state_files();
        Ok(StateIdentity {
            authority_pem: read(&authority)?,
            certificate_pem: read(&certificate)?,
            key_pem: read(&key)?,
        })
    }

    /// Writes it.
    pub fn write_state_identity(&self, identity: &StateIdentity) -> Result<(), Error> {
        let texts = [&identity.authority_pem, &identity.certificate_pem, &identity.key_pem];
        for (path, text) in self.state_files().into_iter().zip(texts) {
            write_durably(&path, text.as_bytes()).map_err(|error| not_writable(self.0, &error))?;
        }
        Ok(())
    }

    fn state_files(&self) -> [PathBuf; 3] {
        ["pki/state-authority.pem", "pki/state.pem", "pki/state.key"].map(|file| self.0.join(file))
    }

    /// The list of certificates that count no more, for etcd.
    pub fn revoked(&self) -> PathBuf {
        self.0.join("pki/removed.crl")
    }

    /// Sees to it that there is a list of certificates that count no more. What it said before holds until the state
    /// answers: nobody who has left comes back.
    pub fn ensure_revoked(&self, cluster: ClusterId) -> Result<(), Error> {
        match self.revoked().exists() {
            true => Ok(()),
            false => self.write_revoked(cluster, &BTreeSet::new()),
        }
    }

    /// Writes the list of certificates that count no more, those of the servers that have left.
    pub fn write_revoked(&self, cluster: ClusterId, removed: &BTreeSet<NodeId>) -> Result<(), Error> {
        let key = HolderKey::load(&read(&self.key())?)?;
        let list = revocation_list(cluster, &key, removed)?;
        write_durably(&self.revoked(), &list).map_err(|error| not_writable(self.0, &error))
    }

    /// Writes what a server needs.
    pub fn write(&self, credentials: &Credentials, authority_key_pem: Option<&str>) -> Result<(), Error> {
        let folder = self.0.join("pki");
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.map_err(|error| not_writable(self.0, &error))?;
        let mut files = vec![
            (self.authority(), &*credentials.authority_pem),
            (self.certificate(), &*credentials.certificate_pem),
            (self.key(), &*credentials.key_pem),
        ];
        files.extend(authority_key_pem.map(|key| (self.authority_key(), key)));
        for (path, text) in files {
            write_durably(&path, text.as_bytes()).map_err(|error| not_writable(self.0, &error))?;
        }
        Ok(())
    }

    /// What the server proves who it is with.
    pub fn credentials(&self, cluster: ClusterId) -> Result<Credentials, Error> {
        Ok(Credentials {
            cluster,
            authority_pem: read(&self.authority())?,
            certificate_pem: read(&self.certificate())?,
            key_pem: read(&self.key())?,
        })
    }

    /// The cluster's authority.
    pub fn load_authority(&self, cluster: ClusterId) -> Result<Authority, Error> {
        Authority::load(cluster, read(&self.authority())?, &read(&self.authority_key())?)
    }
}

fn read(path: &Path) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|error| {
        Error::new(
            "CREDENTIALS_UNUSABLE",
            "this server's keys and certificates cannot be read",
            format!("{}: {error}", path.display()),
            "put the file back as it was, and run this as its owner; else let the server join anew",
        )
    })
}

/// A directory for a new server: made, its owner's alone, and taken for this process until the file is dropped. It is
/// empty, but for what an earlier attempt to join has left.
pub fn claim_new(directory: &Directory) -> Result<File, Error> {
    directory.check_socket_lengths("n")?;
    check_contents(directory)?;
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(directory.path());
    made.map_err(|error| not_writable(directory, &error))?;
    let lock = lock(directory)?;
    // Another process may have been faster.
    check_contents(directory)?;
    Ok(lock)
}

/// Refuses a directory in which no server can be set up.
fn check_contents(directory: &Directory) -> Result<(), Error> {
    let path = directory.path();
    let names: Vec<OsString> = match fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| entry.file_name()).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(not_writable(directory, &error)),
    };
    let has = |name: &str| names.iter().any(|known| known == name);
    let what = format!("no server can be set up in {}", path.display());
    if has(SETTINGS_FILE) {
        let next = "start it with `spandrel node run`, or name another directory with --dir";
        return Err(Error::new("SERVER_EXISTS", what, "there is one in it already", next));
    }
    let is_own = |name: &&OsString| OWN_FILES.iter().any(|own| *own == name.as_os_str());
    if let Some(name) = names.iter().find(|name| !is_own(name)) {
        let why = format!("it holds something else ({})", name.display());
        return Err(Error::new("DIR_FOREIGN", what, why, "name an empty or new directory with --dir"));
    }
    if has("pki") && !has(PENDING_FILE) {
        return Err(Error::new(
            "DIR_HALF_MADE",
            what,
            "making a cluster was interrupted in it; there is no such cluster",
            "delete the directory, and do it again",
        ));
    }
    Ok(())
}

/// Whether a process has the directory in use, as far as the kernel tells. Locks nothing: a server that starts at this
/// moment is not in the way of anybody.
pub fn is_locked(directory: &Directory) -> bool {
    let Ok(metadata) = fs::metadata(directory.join("lock")) else { return false };
    let locks = fs::read_to_string("/proc/locks").unwrap_or_default();
    let file = format!(":{}", metadata.ino());
    let is_its = |line: &str| line.contains("FLOCK") && line.split(' ').any(|word| word.ends_with(&file));
    locks.lines().any(is_its)
}

/// Takes the directory for this process, until the file is dropped, and closes it to other users.
pub fn lock(directory: &Directory) -> Result<File, Error> {
    let path = directory.join("lock");
    let opened =
        OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
    let file = opened.map_err(|error| match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => unknown(directory),
        _ => not_writable(directory, &error),
    })?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            return Err(Error::new(
                "DIR_IN_USE",
                format!("the server in {} cannot be started", directory.path().display()),
                "another process has it in use",
                "end that process first, or name another directory with --dir",
            ));
        }
        Err(fs::TryLockError::Error(error)) => return Err(not_writable(directory, &error)),
    }
    let closed = fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o700));
    closed.map_err(|error| not_writable(directory, &error))?;
    Ok(file)
}

/// Writes a file that is its owner's alone: whole or not at all, and durably.
pub(super) fn write_durably(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&draft, path)?;
    File::open(path.parent().unwrap_or(Path::new("/")))?.sync_all()
}

/// The error that there is no server in a directory, or not yet.
fn unknown(directory: &Directory) -> Error {
    let what = format!("the server in {} cannot be started", directory.path().display());
    if directory.join(PENDING_FILE).exists() {
        let why = "it has asked to join a cluster, and was not answered";
        return Error::new(
            "JOIN_PENDING",
            what,
            why,
            "run the same `spandrel node join` or `witness join` again",
        );
    }
    if directory.join("pki").exists() {
        let why = "making a cluster was interrupted in it; there is no such cluster";
        return Error::new("DIR_HALF_MADE", what, why, "delete the directory, and do it again");
    }
    let why = format!("there is no {}", directory.join(SETTINGS_FILE).display());
    let next = "make a cluster with `spandrel cluster init` or join one with `spandrel node join`, or name another \
                directory with --dir";
    Error::new("SERVER_UNKNOWN", what, why, next)
}

/// The error that a directory cannot be used.
pub fn not_writable(directory: &Directory, error: &std::io::Error) -> Error {
    Error::new(
        "DIR_NOT_WRITABLE",
        format!("{} cannot be the server's directory", directory.path().display()),
        error.to_string(),
        "name a directory that this user may write to with --dir or SPANDREL_DIR",
    )
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
