//! How a connection is made: without blocking, and not for ever.

use std::rc::Rc;
use std::time::Duration;

use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use spandrel_platform::{Address, LinkError, before};

use crate::connection::LinuxConnection;
use crate::door;
use crate::platform::{LinuxPlatform, Sleep};
use crate::shard::Shard;
use crate::socket::{KernelAddress, link_error};
use crate::transport::Transport;
use crate::watched::Watched;

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
    let watched = Watched::new(shard, socket, EventFlags::OUT)?;
    watched.ready().await;
    rustix::net::sockopt::socket_error(watched.descriptor())??;
    Ok(watched.into_descriptor())
}

/// A TCP socket that connects to a port of its own machine where nobody listens may be given that
/// very port as its own, and so meet itself.
fn is_connected_to_itself(socket: &OwnedFd) -> bool {
    match (rustix::net::getsockname(socket), rustix::net::getpeername(socket)) {
        (Ok(own), Ok(Some(peer))) => own == peer,
        _ => false,
    }
}
