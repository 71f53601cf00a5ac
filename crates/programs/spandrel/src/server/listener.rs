//! Where a server answers the admin API over TCP, with TLS.
//!
//! Handshakes are done beside each other, so that one that hangs holds up nobody.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use rustls::ServerConfig;
use spandrel_platform_tls::holder_of;
use spandrel_shared::Error;
use spandrel_trust::HOLDER_ENDING;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::admin::server::Caller;

/// How long a handshake may take.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(5);

/// Handshakes that go on at the same time.
const HANDSHAKES_MAX: usize = 64;

/// How long a listener rests that cannot accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections that have shown who they are.
pub struct TlsListener {
    incoming: mpsc::Receiver<(TlsStream<TcpStream>, Caller)>,
    accepting: JoinHandle<()>,
}

impl TlsListener {
    /// Listens at `address`.
    pub async fn bind(address: SocketAddr, config: Arc<ServerConfig>) -> Result<Self, Error> {
        let listener = TcpListener::bind(address).await.map_err(|error| {
            Error::new(
                "ADDRESS_UNUSABLE",
                format!("the admin API cannot be served at {address}"),
                error.to_string(),
                "end the program that listens there, or let the server join anew with another --listen",
            )
        })?;
        let (sender, incoming) = mpsc::channel(1);
        let accepting = tokio::spawn(accept(listener, TlsAcceptor::from(config), sender));
        Ok(Self { incoming, accepting })
    }
}

impl Drop for TlsListener {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    acceptor: TlsAcceptor,
    sender: mpsc::Sender<(TlsStream<TcpStream>, Caller)>,
) {
    let places = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("no connection to the admin API can be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (acceptor, sender) = (acceptor.clone(), sender.clone());
        tokio::spawn(async move {
            let handshake = tokio::time::timeout(HANDSHAKE_TIME_MAX, acceptor.accept(stream)).await;
            drop(place);
            if let Ok(Ok(stream)) = handshake {
                let caller = caller_of(&stream);
                // Nobody may accept any more.
                let _ = sender.send((stream, caller)).await;
            }
        });
    }
}

fn caller_of(stream: &TlsStream<TcpStream>) -> Caller {
    let certificates = stream.get_ref().1.peer_certificates();
    let holder = certificates.and_then(|certificates| holder_of(certificates.first()?, HOLDER_ENDING));
    match holder.and_then(|holder| holder.parse().ok()) {
        Some(server) => Caller::Server(server),
        None => Caller::Stranger,
    }
}

impl Listener for TlsListener {
    type Io = TlsStream<TcpStream>;
    type Addr = Caller;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.incoming.recv().await {
            Some(accepted) => accepted,
            // Only when the listener ends.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        Ok(Caller::Stranger)
    }
}
