//! How a connection is made: without blocking, and not for ever.

use std::rc::{Rc, Weak};
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use spandrel_platform::{Address, LinkError, before};

use crate::connection::LinuxConnection;
use crate::door;
use crate::platform::{LinuxPlatform, Sleep};
use crate::reactor::{EventSource, Readiness};
use crate::shard::Shard;
use crate::socket::{KernelAddress, link_error};
use crate::transport::Transport;

/// How long to wait before a unix socket whose queue of connects is full is tried again: the kernel
/// does not say when there is room.
const FULL_QUEUE_PAUSE: Duration = Duration::from_millis(2);

/// Connects to `address` within the configured time; through memory if it is one of this process and that is wanted.
pub(crate) async fn connect(shard: &Rc<Shard>, address: &Address) -> Result<LinuxConnection, LinkError> {
    if shard.config.stays_in_process
        && let Some(stream) = door::knock(address)
    {
        return LinuxConnection::new(shard, Transport::memory(stream), address.to_string());
    }
    let subject = format!("connect to {address}");
    let kernel_address = KernelAddress::new(address)?;
    let deadline = shard.now() + shard.config.connect_timeout;
    let platform = LinuxPlatform::new(Rc::clone(shard));
    let Some(socket) = before(&platform, deadline, connect_socket(shard, &kernel_address)).await else {
        let limit = shard.config.connect_timeout.as_secs_f64();
        return Err(LinkError::Other(format!("{subject}: no answer within {limit} seconds")));
    };
    let socket = socket.map_err(|error| link_error(error, &subject))?;
    let transport = match kernel_address {
        KernelAddress::Tcp(_) if is_connected_to_itself(&socket) => {
            return Err(LinkError::Refused(format!("{subject}: nobody listens there")));
        }
        KernelAddress::Tcp(_) => Transport::Tcp(socket),
        KernelAddress::Unix(_) => Transport::Unix(socket),
    };
    LinuxConnection::new(shard, transport, address.to_string())
}

async fn connect_socket(shard: &Rc<Shard>, address: &KernelAddress) -> Result<OwnedFd, Errno> {
    let socket = address.socket()?;
    loop {
        match address.connect(&socket) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => Sleep::until(shard, shard.now() + FULL_QUEUE_PAUSE).await,
            Err(Errno::INPROGRESS) => break,
            Err(error) => return Err(error),
        }
    }
    let watch = Watch::new(shard, socket)?;
    watch.readiness.ready().await;
    rustix::net::sockopt::socket_error(watch.socket())??;
    Ok(watch.into_socket())
}

/// A TCP socket that connects to a port of its own machine where nobody listens may be given that
/// very port as its own, and so meet itself.
fn is_connected_to_itself(socket: &OwnedFd) -> bool {
    match (rustix::net::getsockname(socket), rustix::net::getpeername(socket)) {
        (Ok(own), Ok(Some(peer))) => own == peer,
        _ => false,
    }
}

/// A socket whose connect is in progress.
struct Watch {
    shard: Rc<Shard>,
    /// None only once it was taken out.
    socket: Option<OwnedFd>,
    readiness: Rc<Readiness>,
    token: u64,
}

impl Watch {
    fn new(shard: &Rc<Shard>, socket: OwnedFd) -> Result<Self, Errno> {
        let readiness = Rc::new(Readiness::default());
        let source = Rc::downgrade(&readiness) as Weak<dyn EventSource>;
        let token = shard.reactor.add(&socket, source, EventFlags::OUT)?;
        Ok(Self { shard: Rc::clone(shard), socket: Some(socket), readiness, token })
    }

    fn socket(&self) -> &OwnedFd {
        self.socket.as_ref().expect("the socket stays until into_socket takes the watch")
    }

    fn into_socket(mut self) -> OwnedFd {
        let socket = self.socket.take().expect("the socket is taken out once, with the watch");
        self.shard.reactor.remove(&socket, self.token);
        socket
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(socket) = &self.socket {
            self.shard.reactor.remove(socket, self.token);
        }
    }
}
