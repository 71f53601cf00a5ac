//! The socket of one disk, and the machine that connects to it.
//!
//! One machine is served at a time. One that connects anew, as it does when this process has begun anew, waits until all that was begun
//! for the former connection has ended.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use futures_channel::mpsc::{UnboundedSender, unbounded};
use futures_util::future::LocalBoxFuture;
use rustix::net::Shutdown as SocketShutdown;
use spandrel_frontend::virtio::SERIAL_BYTES;
use spandrel_platform::Platform;
use spandrel_platform_linux::{LinuxPlatform, RemoteHandle};
use spandrel_volume::BlockDevice;
use vhost::vhost_user::{BackendReqHandler, Error};

use crate::control::Control;
use crate::device::{self, Command};

/// How long to wait when a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Opens the disk on the shard's thread, for one connection. In words why it cannot be opened.
pub type Open<D> = Arc<dyn Fn(LinuxPlatform) -> LocalBoxFuture<'static, Result<D, String>> + Send + Sync>;

/// The socket of one disk, served. Dropped, the machine is cut off, and what was begun for it ends: that waits for the shard, so it is
/// not to be dropped on the shard's own thread.
pub struct DiskServer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the server's thread and its owner share.
struct Shared {
    listener: UnixListener,
    /// The machine that is connected. None if there is none; not set any more once the server ends.
    machine: Mutex<Machine>,
}

#[derive(Default)]
struct Machine {
    stream: Option<UnixStream>,
    ends: bool,
}

impl DiskServer {
    /// Listens at `path`, in a folder that is this disk's alone, where whatever was left behind is replaced, and serves the disk to
    /// whoever connects, on the thread of the shard behind `shard`. `open` is called for each connection.
    ///
    /// # Errors
    /// The system's, if it cannot be listened there or no thread be started.
    pub fn start<D: BlockDevice>(
        path: &Path,
        shard: RemoteHandle,
        serial: [u8; SERIAL_BYTES],
        open: Open<D>,
    ) -> io::Result<Self> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(path)?;
        let shared = Arc::new(Shared { listener, machine: Mutex::default() });
        let own = Arc::clone(&shared);
        let serve = move || own.serve(&shard, serial, &open);
        let thread = std::thread::Builder::new().name("vhost-user".to_owned()).spawn(serve)?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for DiskServer {
    fn drop(&mut self) {
        let stream = {
            let mut machine = self.shared.machine();
            machine.ends = true;
            machine.stream.take()
        };
        if let Some(stream) = stream {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // Ends the wait for the next machine.
        let _ = rustix::net::shutdown(&self.shared.listener, SocketShutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn machine(&self) -> std::sync::MutexGuard<'_, Machine> {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn serve<D: BlockDevice>(&self, shard: &RemoteHandle, serial: [u8; SERIAL_BYTES], open: &Open<D>) {
        loop {
            let accepted = self.listener.accept().and_then(|(stream, _)| Ok((stream.try_clone()?, stream)));
            let (own, stream) = match accepted {
                Ok(streams) => streams,
                Err(_) if self.machine().ends => return,
                Err(error) => {
                    tracing::warn!(%error, "a machine's connection to its disk is not accepted");
                    // tidy-allow(sleep): what lacks, files as a rule, lacks for a while, and nobody tells when it is there again.
                    std::thread::sleep(ACCEPT_PAUSE);
                    continue;
                }
            };
            {
                let mut machine = self.machine();
                if machine.ends {
                    return;
                }
                machine.stream = Some(own);
            }
            match Connected::open(shard, open) {
                Ok(connected) => connected.serve(stream, serial),
                Err(reason) => tracing::warn!(reason, "a machine's disk cannot be opened"),
            }
            let mut machine = self.machine();
            // A machine that was cut off learns that only now, when nothing of it is under way here any more.
            if let Some(stream) = machine.stream.take() {
                let _ = stream.shutdown(Shutdown::Both);
            }
            if machine.ends {
                return;
            }
        }
    }
}

/// The shard's side of one connection.
struct Connected {
    commands: UnboundedSender<Command>,
    /// Ends when the shard has no more to do with it.
    ended: Receiver<std::convert::Infallible>,
}

impl Connected {
    fn open<D: BlockDevice>(shard: &RemoteHandle, open: &Open<D>) -> Result<Self, String> {
        let (commands, incoming) = unbounded();
        let (opened, is_opened) = sync_channel(1);
        let (ends, ended) = sync_channel(0);
        let open = Arc::clone(open);
        let task = move |platform: LinuxPlatform| {
            let spawner = platform.clone();
            spawner.spawn(async move {
                let _ends = ends;
                match open(platform.clone()).await {
                    Ok(device) => {
                        let _ = opened.send(Ok(()));
                        device::serve(platform, device, incoming).await;
                    }
                    Err(reason) => drop(opened.send(Err(reason))),
                }
            });
        };
        let gone = || "its node has ended".to_owned();
        if !shard.spawn(Box::new(task)) {
            return Err(gone());
        }
        is_opened.recv().map_err(|_| gone())??;
        Ok(Self { commands, ended })
    }

    /// Hears what the machine says until it is gone, and returns when all that was begun for it has ended.
    fn serve(self, stream: UnixStream, serial: [u8; SERIAL_BYTES]) {
        let control = Arc::new(Mutex::new(Control::new(self.commands, serial)));
        let mut requests = BackendReqHandler::from_stream(stream, control);
        let error = loop {
            match requests.handle_request() {
                Ok(()) => {}
                // The machine was told; what it says next may be right.
                Err(Error::InvalidOperation(reason)) => {
                    tracing::debug!(reason, "a machine asks for too much")
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
        let _ = self.ended.recv();
    }
}

#[cfg(test)]
#[path = "server_tests.rs"]
mod tests;
