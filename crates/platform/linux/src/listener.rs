//! Listeners: where connections arrive, over TCP and unix sockets.
//!
//! A unix socket leaves its file behind when its process dies. Such a stale file is replaced; one
//! that somebody listens on is not, and neither is anything that is no socket. Who looks, replaces
//! and listens holds a lock on the directory meanwhile, so that two starters cannot both take
//! a path for stale.

use std::cell::Cell;
use std::fs::File;
use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::net::{Shutdown, SocketFlags};
use spandrel_platform::{Address, Instant, LinkError, Listener};

use crate::connection::LinuxConnection;
use crate::door::Door;
use crate::memory_stream::MemoryStream;
use crate::platform::Sleep;
use crate::shard::{Shard, TurnBudget};
use crate::socket::{KernelAddress, link_error};
use crate::transport::Transport;
use crate::watched::Watched;

/// Connections that the kernel holds until they are accepted.
const BACKLOG: i32 = 1024;

/// Connections that one listener accepts in one turn before the others have theirs.
const ACCEPTS_PER_TURN: usize = 64;

/// How long a listener rests when the machine or the process is out of files or memory.
const EXHAUSTION_PAUSE: Duration = Duration::from_millis(100);

/// How often a directory's lock is tried, each time after letting other threads run. Who holds it does
/// so for a few system calls.
const DIRECTORY_LOCK_TRIES: u32 = 20_000;

/// A listening TCP or unix socket.
pub struct LinuxListener {
    shard: Rc<Shard>,
    socket: Watched,
    address: Address,
    /// Where threads of this process come, if they do not take the socket.
    door: Option<Door>,
    budget: TurnBudget,
    /// Not to be asked before this.
    rests_until: Cell<Option<Instant>>,
    /// The unix socket's file, removed when the listener goes.
    _file: Option<SocketFile>,
}

impl LinuxListener {
    pub(crate) fn listen(shard: &Rc<Shard>, address: &Address) -> Result<Self, LinkError> {
        let subject = format!("listen on {address}");
        let kernel_address = KernelAddress::new(address)?;
        let (socket, file) = match address {
            Address::Tcp(_) => (listen_on_tcp(&kernel_address).map_err(|e| link_error(e, &subject))?, None),
            Address::Unix(path) => {
                let (socket, file) = listen_on_path(&kernel_address, Path::new(path), &subject)?;
                (socket, Some(file))
            }
        };
        let address = real_address(&socket, address);
        let socket =
            Watched::new(shard, socket, EventFlags::IN).map_err(|error| link_error(error, &subject))?;
        let door = shard.config.stays_in_process.then(|| Door::open(&address));
        Ok(Self {
            shard: Rc::clone(shard),
            socket,
            address,
            door,
            budget: TurnBudget::default(),
            rests_until: Cell::new(None),
            _file: file,
        })
    }

    fn accept_now(&self) -> Result<OwnedFd, Errno> {
        rustix::net::accept_with(self.socket.descriptor(), SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)
    }

    fn connection(&self, socket: OwnedFd) -> Result<LinuxConnection, LinkError> {
        let (peer, transport) = match &self.address {
            Address::Tcp(_) => (tcp_peer(&socket), Transport::Tcp(socket)),
            Address::Unix(path) => (unix_peer(&socket, path), Transport::Unix(socket)),
        };
        LinuxConnection::new(&self.shard, transport, peer)
    }

    /// Completes when the socket is to be asked, or with what has come through the door.
    async fn arrival(&self) -> Option<MemoryStream> {
        let mut asked = pin!(self.socket.ready());
        poll_fn(|context| {
            if let Some(door) = &self.door
                && let Poll::Ready(stream) = door.poll_next(context)
            {
                return Poll::Ready(Some(stream));
            }
            asked.as_mut().poll(context).map(|()| None)
        })
        .await
    }
}

impl Listener for LinuxListener {
    type Connection = LinuxConnection;

    async fn accept(&self) -> Result<LinuxConnection, LinkError> {
        loop {
            if let Some(rests_until) = self.rests_until.get() {
                Sleep::until(&self.shard, rests_until).await;
                self.rests_until.set(None);
            }
            if !self.budget.is_left(self.shard.turn(), ACCEPTS_PER_TURN) {
                self.shard.next_turn().await;
                continue;
            }
            if let Some(stream) = self.arrival().await {
                self.budget.spend(self.shard.turn(), 1);
                let peer = format!("process {} at {}", std::process::id(), self.address);
                return LinuxConnection::new(&self.shard, Transport::memory(stream), peer);
            }
            match self.accept_now() {
                Ok(socket) => {
                    self.budget.spend(self.shard.turn(), 1);
                    return self.connection(socket);
                }
                Err(Errno::AGAIN) => self.socket.clear(),
                // Whoever came has left again.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    self.rests_until.set(Some(self.shard.now() + EXHAUSTION_PAUSE));
                    return Err(link_error(error, &format!("accept on {}", self.address)));
                }
            }
        }
    }

    fn address(&self) -> Address {
        self.address.clone()
    }
}

impl Drop for LinuxListener {
    fn drop(&mut self) {
        // Closing alone would leave it listening for as long as a child process that is just being
        // started has a copy of the descriptor.
        let _ = rustix::net::shutdown(self.socket.descriptor(), Shutdown::Both);
    }
}

fn listen_on_tcp(address: &KernelAddress) -> Result<OwnedFd, Errno> {
    let socket = address.socket()?;
    // Connections of a former listener that still die away do not hold the port.
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    address.bind(&socket)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn real_address(socket: &OwnedFd, asked: &Address) -> Address {
    let bound = rustix::net::getsockname(socket).ok();
    match (asked, bound.and_then(|address| SocketAddr::try_from(address).ok())) {
        (Address::Tcp(_), Some(address)) => Address::Tcp(address),
        _ => asked.clone(),
    }
}

fn tcp_peer(socket: &OwnedFd) -> String {
    let address = rustix::net::getpeername(socket).ok().flatten();
    match address.and_then(|address| SocketAddr::try_from(address).ok()) {
        Some(address) => address.to_string(),
        None => "a client that has left".to_string(),
    }
}

fn unix_peer(socket: &OwnedFd, path: &str) -> String {
    match rustix::net::sockopt::socket_peercred(socket) {
        Ok(credentials) => format!("process {} at {path}", credentials.pid.as_raw_nonzero()),
        Err(_) => format!("a client of {path}"),
    }
}

/// Listens on a unix socket's path, replacing a stale file there.
fn listen_on_path(
    address: &KernelAddress,
    path: &Path,
    subject: &str,
) -> Result<(OwnedFd, SocketFile), LinkError> {
    let explain = |error: Errno| match error {
        // For whoever connects this means that nobody listens; here it is the directory.
        Errno::NOENT => LinkError::Other(format!("{subject}: the directory does not exist")),
        error => link_error(error, subject),
    };
    let _lock = lock_directory(path, subject)?;
    let socket = address.socket().map_err(explain)?;
    match address.bind(&socket) {
        Ok(()) => {}
        Err(Errno::ADDRINUSE) => {
            remove_stale(address, path, subject)?;
            address.bind(&socket).map_err(explain)?;
        }
        Err(error) => return Err(explain(error)),
    }
    let file = SocketFile::at(path).map_err(|error| LinkError::Other(format!("{subject}: {error}")))?;
    rustix::net::listen(&socket, BACKLOG).map_err(explain)?;
    Ok((socket, file))
}

/// Locks the directory of `path`. None if it cannot be opened or locked at all; then two starters at
/// the same moment are not kept apart.
fn lock_directory(path: &Path, subject: &str) -> Result<Option<File>, LinkError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let Ok(directory) = File::open(parent.unwrap_or(Path::new("."))) else { return Ok(None) };
    for _ in 0..DIRECTORY_LOCK_TRIES {
        match rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(directory)),
            Err(Errno::WOULDBLOCK) => std::thread::yield_now(),
            Err(_) => return Ok(None),
        }
    }
    Err(LinkError::Other(format!("{subject}: another program keeps the directory locked")))
}

/// Removes the socket at `path` if nobody listens on it.
fn remove_stale(address: &KernelAddress, path: &Path, subject: &str) -> Result<(), LinkError> {
    let in_use = |reason: &str| LinkError::AddressInUse(format!("{subject}: {reason}"));
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        // It went away by itself.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(LinkError::Other(format!("{subject}: {error}"))),
    };
    if !metadata.file_type().is_socket() {
        return Err(in_use("a file that is no socket is there; it is left alone"));
    }
    let probe = address.socket().map_err(|error| link_error(error, subject))?;
    match address.connect(&probe) {
        Err(Errno::CONNREFUSED) => std::fs::remove_file(path).map_err(|error| {
            LinkError::Other(format!("{subject}: a stale socket cannot be removed: {error}"))
        }),
        // Accepted, or its queue is full: either way somebody is there.
        Ok(()) | Err(Errno::AGAIN) => Err(in_use("another process listens there")),
        Err(error) => Err(in_use(&format!("a socket is there and cannot be asked: {error}"))),
    }
}

/// The file of a unix socket, as it was made.
struct SocketFile {
    path: std::path::PathBuf,
    device: u64,
    inode: u64,
}

impl SocketFile {
    fn at(path: &Path) -> std::io::Result<Self> {
        let metadata = std::fs::symlink_metadata(path)?;
        let path = std::path::absolute(path)?;
        Ok(Self { path, device: metadata.dev(), inode: metadata.ino() })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Somebody may have replaced it; theirs is not ours to remove.
        let own = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == (self.device, self.inode));
        if own {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
#[path = "listener_tests.rs"]
mod tests;
