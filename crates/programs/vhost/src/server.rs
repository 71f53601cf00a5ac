//! The socket of one disk, and the machine that connects to it.
//!
//! The disk is opened before the socket can be connected to: a machine (QEMU) waits for the answer to each word, and does nothing else
//! meanwhile, while it tries again by itself what it cannot connect to. One machine is served at a time. One that connects anew, as it
//! does when this process has begun anew, finds the socket again when all that was begun for the former connection has ended.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_channel::mpsc::{UnboundedSender, unbounded};
use futures_channel::oneshot;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use rustix::net::Shutdown;
use spandrel_frontend::virtio::SERIAL_BYTES;
use spandrel_platform_linux::LinuxPlatform;
use spandrel_volume::BlockDevice;
use vhost::vhost_user::{BackendReqHandler, Error};

use crate::control::Control;
use crate::device::{self, Command, CutOff};

/// How long until it is tried again what has failed.
const TRY_AGAIN: Duration = Duration::from_millis(200);

/// What is done with the disk on its shard's thread, or with the words why it cannot be opened. Dropped if there is no such thread any more.
pub type DiskTask<D> =
    Box<dyn FnOnce(LinuxPlatform, Result<D, String>) -> LocalBoxFuture<'static, ()> + Send>;

/// Opens the disk on its shard's thread, and has the task done there. It is called again for each connection.
pub type OpenDisk<D> = Arc<dyn Fn(DiskTask<D>) + Send + Sync>;

/// The socket of one disk, served. Dropped, the machine is cut off, and what was begun for it ends by itself.
pub struct DiskServer {
    shared: Arc<Shared>,
    opened: Option<oneshot::Receiver<Result<(), String>>>,
    thread: Option<JoinHandle<()>>,
}

/// What the server's thread and its owner share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    ending: Condvar,
}

#[derive(Default)]
struct State {
    /// What the thread waits at: the socket that is listened at, or the machine's connection.
    waits_at: Option<OwnedFd>,
    ends: bool,
}

impl DiskServer {
    /// Serves a disk to whoever connects at `path`, where a socket that was left behind is replaced, from now on.
    ///
    /// # Errors
    /// The system's, if there is no such folder or no thread can be started.
    pub fn start<D: BlockDevice>(
        path: &Path,
        serial: [u8; SERIAL_BYTES],
        open: OpenDisk<D>,
    ) -> io::Result<Self> {
        let place = SocketPlace::at(path)?;
        let shared = Arc::new(Shared::default());
        let (first, opened) = oneshot::channel();
        let session = Session { shared: Arc::clone(&shared), place, serial, open };
        let serve = move || session.serve(first);
        let thread = std::thread::Builder::new().name("vhost-user".to_owned()).spawn(serve)?;
        Ok(Self { shared, opened: Some(opened), thread: Some(thread) })
    }

    /// Waits until a machine can connect for the first time.
    ///
    /// # Errors
    /// In words, if the disk could not be opened at the first attempt. It is tried again all the same.
    pub async fn opened(&mut self) -> Result<(), String> {
        match self.opened.take() {
            Some(opened) => opened.await.unwrap_or_else(|_| Err(GONE.to_owned())),
            None => Ok(()),
        }
    }

    /// Cuts the machine off, and waits until nothing is left that was begun for it. That waits for the shard, so it is not to be called on
    /// the shard's own thread.
    pub fn stop(mut self) {
        self.shared.end();
        if let Some(thread) = self.thread.take() {
            // That it has panicked was told by itself.
            let _ = thread.join();
        }
    }
}

impl Drop for DiskServer {
    fn drop(&mut self) {
        self.shared.end();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        let mut state = self.state();
        state.ends = true;
        if let Some(socket) = state.waits_at.take() {
            // One that is over already needs no word.
            let _ = rustix::net::shutdown(socket, Shutdown::Both);
        }
        self.ending.notify_all();
    }

    fn ends(&self) -> bool {
        self.state().ends
    }

    /// Makes what the thread waits at next, whose wait ends when the server is to. None if that is so already: then nothing is made, since
    /// another server may be at the same place.
    fn wait_at<T: AsFd>(&self, make: impl FnOnce() -> io::Result<T>) -> io::Result<Option<T>> {
        let mut state = self.state();
        if state.ends {
            return Ok(None);
        }
        let made = make()?;
        state.waits_at = Some(made.as_fd().try_clone_to_owned()?);
        Ok(Some(made))
    }

    /// Waits until something is to be tried again, or the server is to end.
    fn try_again(&self) {
        let state = self.state();
        drop(self.ending.wait_timeout_while(state, TRY_AGAIN, |state| !state.ends));
    }
}

/// What the server's thread does.
struct Session<D> {
    shared: Arc<Shared>,
    place: SocketPlace,
    serial: [u8; SERIAL_BYTES],
    open: OpenDisk<D>,
}

impl<D: BlockDevice> Session<D> {
    /// Serves one machine after the other, and tells once whether the disk could be opened.
    fn serve(self, first: oneshot::Sender<Result<(), String>>) {
        let mut first = Some(first);
        let mut tell = |outcome: Result<(), String>| match first.take() {
            // Whoever does not wait for it does not want to know.
            Some(first) => drop(first.send(outcome)),
            None => {
                let _ = outcome.inspect_err(|reason| tracing::warn!(reason, "a disk is not served"));
            }
        };
        let mut failed = String::new();
        while !self.shared.ends() {
            let listen = || self.shared.wait_at(|| self.place.listen());
            let begun = Opened::new(&self.open).and_then(|opened| match listen() {
                Ok(listener) => Ok((opened, listener)),
                Err(error) => Err(NotOpened::Refused(format!("its socket cannot be made: {error}"))),
            });
            let (opened, listener) = match begun {
                Ok((opened, Some(listener))) => (opened, listener),
                Ok((_, None)) => return,
                Err(NotOpened::Gone) => return tell(Err(GONE.to_owned())),
                Err(NotOpened::Refused(reason)) => {
                    if reason != failed {
                        tell(Err(reason.clone()));
                        failed = reason;
                    }
                    self.shared.try_again();
                    continue;
                }
            };
            failed.clear();
            tell(Ok(()));
            match self.accept(listener).and_then(|machine| opened.serve(machine, self.serial)) {
                Err(error) if !self.shared.ends() => {
                    tracing::warn!(%error, "a machine's connection to its disk is not taken");
                    self.shared.try_again();
                }
                Ok(()) | Err(_) => {}
            }
        }
    }

    /// The machine that connects.
    fn accept(&self, listener: UnixListener) -> io::Result<UnixStream> {
        let (machine, _) = listener.accept()?;
        let machine = self.shared.wait_at(|| Ok(machine))?;
        machine.ok_or_else(|| io::ErrorKind::ConnectionAborted.into())
    }
}

/// That the shard has ended.
const GONE: &str = "its node has ended";

/// Why a disk was not opened.
enum NotOpened {
    /// The shard has ended.
    Gone,
    /// It cannot be, for now.
    Refused(String),
}

/// The disk on its shard, for one connection.
struct Opened {
    commands: UnboundedSender<Command>,
    /// Ends when the shard has no more to do with it.
    ended: Receiver<std::convert::Infallible>,
}

impl Opened {
    fn new<D: BlockDevice>(open: &OpenDisk<D>) -> Result<Self, NotOpened> {
        let (commands, incoming) = unbounded();
        let (tell, told) = sync_channel(1);
        let (ends, ended) = sync_channel(0);
        let task = move |platform, disk| {
            let serving = async move {
                let _ends = ends;
                match disk {
                    Ok(disk) => {
                        let _ = tell.send(Ok(()));
                        device::serve(platform, disk, incoming).await;
                    }
                    Err(reason) => drop(tell.send(Err(reason))),
                }
            };
            serving.boxed_local()
        };
        open(Box::new(task));
        match told.recv() {
            Ok(Ok(())) => Ok(Self { commands, ended }),
            Ok(Err(reason)) => Err(NotOpened::Refused(reason)),
            Err(_) => Err(NotOpened::Gone),
        }
    }

    /// Hears what the machine says until it is gone, and returns when all that was begun for it has ended.
    fn serve(self, machine: UnixStream, serial: [u8; SERIAL_BYTES]) -> io::Result<()> {
        let cut_off = CutOff(machine.try_clone()?);
        let own = CutOff(machine.try_clone()?);
        // If the shard has ended, this cuts the machine off here.
        let _ = self.commands.unbounded_send(Command::Connected(cut_off));
        let control = Arc::new(Mutex::new(Control::new(self.commands, serial)));
        let mut requests = BackendReqHandler::from_stream(machine, control);
        let error = loop {
            match requests.handle_request() {
                Ok(()) => {}
                // The machine was told; what it says next may be right.
                Err(Error::InvalidOperation(reason)) => {
                    tracing::info!(reason, "a machine asks for what cannot be")
                }
                Err(error) => break error,
            }
        };
        match error {
            Error::Disconnected | Error::PartialMessage | Error::SocketBroken(_) => {
                tracing::info!("a machine has let go of its disk");
            }
            error => tracing::warn!(%error, "a machine is cut off from its disk: it says what cannot be"),
        }
        drop(requests);
        // It may wait for an answer, and is not to wait for what is under way.
        drop(own);
        let _ = self.ended.recv();
        Ok(())
    }
}

/// Where a socket is made. However long its path is: a socket's own path must be short.
struct SocketPlace {
    folder: File,
    name: OsString,
}

impl SocketPlace {
    fn at(path: &Path) -> io::Result<Self> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        Ok(Self { folder: File::open(folder)?, name: name.to_owned() })
    }

    fn listen(&self) -> io::Result<UnixListener> {
        let path = PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd())).join(&self.name);
        match std::fs::symlink_metadata(&path) {
            Ok(found) if found.file_type().is_socket() => std::fs::remove_file(&path)?,
            // It is not this program's; what the system says of it is told.
            Ok(_) => {}
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) => {}
        }
        UnixListener::bind(path)
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
