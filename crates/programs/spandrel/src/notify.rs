//! Telling the service manager how the daemon is (systemd's Type=notify).

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Tells what `message` says, if a service manager wants to know.
pub fn notify(message: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    let name = name.to_string_lossy();
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&*name),
    };
    let told = address.and_then(|address| {
        let socket = UnixDatagram::unbound()?;
        socket.send_to_addr(message.as_bytes(), &address)
    });
    if let Err(error) = told {
        tracing::warn!("the service manager cannot be told {message:?}: {error}");
    }
}
