//! Taking a directory for `up`: everything that can be refused is refused here, before anything is
//! started.
//!
//! Invariants:
//! - A directory is used by one process at a time, which holds the lock on `DIR/lock`.
//! - Nothing in a directory that is not a cluster's is changed.
//! - If making a new cluster fails, what was made for it is removed again.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use spandrel_platform::{DriveError, DriveErrorKind};
use spandrel_platform_linux::{create_drive_file, preallocate};
use spandrel_shared::Error;
use spandrel_shared::size::format_size;

use super::settings::{FORMAT_FILE, Settings};
use crate::arguments::UpArguments;
use crate::directory::Directory;
use crate::random::random;
use crate::running_node::check_roles;

/// Room that a cluster takes besides its drives: state and logs.
const SPARE_BYTES: u64 = 64 << 20;

const LOCK_FILE: &str = "lock";

/// A directory that belongs to this process, with a cluster in it.
#[derive(Debug)]
pub struct Claim {
    /// The directory.
    pub directory: Directory,
    /// What the cluster consists of.
    pub settings: Settings,
    /// Whether it was made just now.
    pub is_new: bool,
    /// Held until the process ends.
    _lock: File,
}

/// Takes the directory, and makes a cluster in it if there is none.
pub fn claim(directory: Directory, arguments: &UpArguments) -> Result<Claim, Error> {
    check_listen(arguments.listen)?;
    let found = Settings::read(directory.path())?;
    let kept = match found {
        // What was in memory is gone, and what was not finished was never used.
        Some(settings) if settings.memory || !settings.complete => None,
        Some(settings) => {
            settings.check_arguments(directory.path(), arguments)?;
            Some(settings)
        }
        None => {
            check_foreign(&directory)?;
            None
        }
    };
    let is_new = kept.is_none();
    let mut settings = match kept {
        Some(settings) => settings,
        None => Settings::from_arguments(arguments, random)?,
    };
    directory.check_socket_lengths(settings.longest_node_name())?;
    let drives: Vec<_> = settings.drives().collect();
    check_roles(drives.iter().map(|drive| (&drive.name[..], drive.role)), arguments.threads.shards)?;
    let made_directory = make_directory(&directory)?;
    let claimed = lock(&directory).and_then(|lock| {
        check_addresses(&directory, &settings, arguments)?;
        if is_new {
            create(&directory, &mut settings, arguments.sparse)?;
        }
        Ok(lock)
    });
    match claimed {
        Ok(lock) => Ok(Claim { directory, settings, is_new, _lock: lock }),
        Err(error) => {
            if made_directory {
                // Only what this call has made: the lock's file, and the directory if nothing else is in it.
                let _ = fs::remove_file(directory.join(LOCK_FILE));
                let _ = fs::remove_dir(directory.path());
            }
            Err(error)
        }
    }
}

fn check_listen(address: IpAddr) -> Result<(), Error> {
    if address.is_loopback() {
        return Ok(());
    }
    Err(Error::new(
        "LISTEN_NOT_LOOPBACK",
        format!("the cluster cannot listen on {address}"),
        "connections are not encrypted yet, so only this machine itself may connect",
        "use 127.0.0.1 or ::1, and a tunnel such as ssh -L for clients elsewhere",
    ))
}

/// Refuses a directory that holds something else.
fn check_foreign(directory: &Directory) -> Result<(), Error> {
    let path = directory.path();
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(not_writable(path, &error)),
    };
    let own = |name: &str| name == LOCK_FILE || name == "log" || name == "format.json.new";
    let foreign =
        entries.flatten().map(|entry| entry.file_name()).find(|name| !name.to_str().is_some_and(own));
    let Some(name) = foreign else { return Ok(()) };
    Err(Error::new(
        "DIR_FOREIGN",
        format!("no cluster can be made in {}", path.display()),
        format!("it holds something else ({}) and no {FORMAT_FILE}", name.display()),
        "name an empty or new directory with --dir",
    ))
}

/// Makes the directory if it is not there. Returns whether it did.
fn make_directory(directory: &Directory) -> Result<bool, Error> {
    let path = directory.path();
    if path.is_dir() {
        return Ok(false);
    }
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map(|()| true).map_err(|error| not_writable(path, &error))
}

fn lock(directory: &Directory) -> Result<File, Error> {
    let path = directory.join(LOCK_FILE);
    let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
    let mut file = opened.map_err(|error| not_writable(directory.path(), &error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(fs::TryLockError::WouldBlock) => {
            let mut process = String::new();
            let _ = file.read_to_string(&mut process);
            let who = if process.is_empty() {
                "another process".to_owned()
            } else {
                format!("process {}", process.trim())
            };
            return Err(Error::new(
                "DIR_IN_USE",
                format!("the cluster in {} cannot be started", directory.path().display()),
                format!("it runs already: {who} has it"),
                "end that process first (Ctrl-C or SIGTERM), or name another directory with --dir",
            ));
        }
        Err(fs::TryLockError::Error(error)) => return Err(not_writable(directory.path(), &error)),
    }
    // For whoever finds it locked; nothing depends on it.
    let noted =
        file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
    noted.map_err(|error| not_writable(directory.path(), &error))?;
    Ok(file)
}

fn not_writable(path: &Path, error: &std::io::Error) -> Error {
    if error.kind() == ErrorKind::StorageFull {
        return disk_full(path, error.to_string());
    }
    Error::new(
        "DIR_NOT_WRITABLE",
        format!("{} cannot be the cluster's directory", path.display()),
        error.to_string(),
        "name a directory that this user may write to with --dir or SPANDREL_DIR",
    )
}

fn disk_full(path: &Path, why: String) -> Error {
    Error::new(
        "DISK_FULL",
        format!("the cluster in {} cannot be made", path.display()),
        why,
        "make room, choose fewer or smaller drives (--nodes, --drives, --drive-size) or another file system \
         (--dir), or let the drives take room only as they are written to (--sparse)",
    )
}

/// Refuses if somebody listens where this cluster is to listen.
fn check_addresses(directory: &Directory, settings: &Settings, arguments: &UpArguments) -> Result<(), Error> {
    let mut sockets = vec![directory.admin_socket()];
    for node in &settings.nodes {
        sockets.push(directory.nbd_socket(&node.name));
        sockets.extend((0..arguments.threads.shards).map(|shard| directory.bus_socket(&node.name, shard)));
    }
    for socket in sockets {
        if UnixStream::connect(&socket).is_ok() {
            return Err(Error::new(
                "ADDRESS_IN_USE",
                format!("the cluster in {} cannot be started", directory.path().display()),
                format!("another process listens on {}", socket.display()),
                "end that process, or name another directory with --dir",
            ));
        }
    }
    for (number, node) in (0..).zip(&settings.nodes) {
        let Some(port) = arguments.nbd_port else { break };
        let refuse = |why: String| {
            Error::new(
                "ADDRESS_IN_USE",
                format!("node {} cannot serve NBD on {}", node.name, arguments.listen),
                why,
                "choose another --nbd-port, or leave it out: every node has a unix socket anyway",
            )
        };
        let port: u16 =
            port.checked_add(number).ok_or_else(|| refuse("there are no ports above 65535".to_owned()))?;
        let address = SocketAddr::new(arguments.listen, port);
        TcpListener::bind(address).map_err(|error| refuse(format!("port {port}: {error}")))?;
    }
    Ok(())
}

/// Makes a cluster, and removes it again if that fails.
fn create(directory: &Directory, settings: &mut Settings, sparse: bool) -> Result<(), Error> {
    let path = directory.path();
    if !settings.memory && !sparse {
        check_room(path, settings)?;
    }
    let write = |settings: &Settings| settings.write(path).map_err(|error| not_writable(path, &error));
    // From here on the directory is known to be a cluster's, if only half of one.
    remove_cluster(directory);
    write(settings)?;
    let made = create_parts(directory, settings, sparse).and_then(|()| {
        settings.complete = true;
        write(settings)
    });
    if made.is_err() {
        remove_cluster(directory);
        let _ = fs::remove_file(path.join(FORMAT_FILE));
    }
    made
}

fn check_room(path: &Path, settings: &Settings) -> Result<(), Error> {
    let needed = settings.drives_bytes() + SPARE_BYTES;
    // Where the file system does not say, making the files will show.
    let Ok(status) = rustix::fs::statvfs(path) else { return Ok(()) };
    let available = status.f_bavail * status.f_frsize;
    if available >= needed {
        return Ok(());
    }
    let why = format!(
        "its {} drives need {} together, and the file system has {}",
        settings.nodes.len() * settings.drives().count(),
        format_size(needed),
        format_size(available)
    );
    Err(disk_full(path, why))
}

fn create_parts(directory: &Directory, settings: &Settings, sparse: bool) -> Result<(), Error> {
    for node in &settings.nodes {
        let folder = directory.node(&node.name);
        let made = fs::DirBuilder::new().mode(0o700).create(&folder);
        made.map_err(|error| not_writable(&folder, &error))?;
        if settings.memory {
            continue;
        }
        for drive in settings.drives() {
            let file = directory.drive_file(&node.name, &drive.name);
            let failed = |error: DriveError| drive_error(directory.path(), &error);
            create_drive_file(&file, drive.size_bytes).map_err(failed)?;
            if !sparse {
                preallocate(&file, 0, drive.size_bytes).map_err(failed)?;
            }
        }
    }
    Ok(())
}

fn drive_error(path: &Path, error: &DriveError) -> Error {
    if error.kind == DriveErrorKind::NoRoom {
        return disk_full(path, error.detail.clone());
    }
    Error::new(
        "DRIVE_NOT_MADE",
        format!("the cluster in {} cannot be made", path.display()),
        error.detail.clone(),
        "name a directory on another file system with --dir",
    )
}

/// Removes what a cluster has in its directory, except the record, the lock and the log.
fn remove_cluster(directory: &Directory) {
    for entry in fs::read_dir(directory.path()).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_node = |name: &str| {
            name.strip_prefix('n').is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
            })
        };
        if name.to_str().is_some_and(is_node) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
    for file in [directory.state_file(), directory.admin_socket()] {
        let _ = fs::remove_file(file);
    }
}

#[cfg(test)]
#[path = "claim_tests.rs"]
mod tests;
