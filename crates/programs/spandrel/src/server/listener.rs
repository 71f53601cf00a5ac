//! Where a server answers the admin API over TCP, with TLS.
//!
//! Handshakes are done beside each other, so that one that hangs holds up nobody; and there are so many connections of
//! strangers at a time, each for so long (see [`super::strangers`]).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::serve::Listener;
use rustls::ServerConfig;
use spandrel_platform_tls::holder_of;
use spandrel_shared::{Error, NodeId};
use spandrel_trust::HOLDER_ENDING;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::strangers::{Guarded, Places, Proof};
use crate::admin::server::Caller;

/// Connections at the same time whose other side has proven nothing.
const STRANGERS_MAX: usize = 128;

/// How long a connection may last whose other side has proven nothing: the handshake, the request, and for a join the
/// answer.
const STRANGER_TIME_MAX: Duration = Duration::from_secs(30);

/// How long a listener rests that cannot accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection, which ends if nothing is proven in time.
pub type Connection = Guarded<TlsStream<TcpStream>>;

/// Connections over which a handshake was done.
pub struct TlsListener {
    incoming: mpsc::Receiver<(Connection, Caller)>,
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

async fn accept(listener: TcpListener, acceptor: TlsAcceptor, sender: mpsc::Sender<(Connection, Caller)>) {
    let places = Places::new(STRANGERS_MAX, STRANGER_TIME_MAX);
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("no connection to the admin API can be accepted: {error}");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (acceptor, sender, mut place) = (acceptor.clone(), sender.clone(), places.take());
        tokio::spawn(async move {
            let stream = tokio::select! {
                stream = acceptor.accept(stream) => stream,
                () = place.over() => return,
            };
            let Ok(stream) = stream else { return };
            let accepted = match server_of(&stream) {
                Some(server) => (Guarded::new(stream, None), Caller::Server(server)),
                None => {
                    let proof = place.proof();
                    (Guarded::new(stream, Some(place)), Caller::Stranger(proof))
                }
            };
            // Nobody may accept any more.
            let _ = sender.send(accepted).await;
        });
    }
}

/// The server whose certificate was shown, if any was.
fn server_of(stream: &TlsStream<TcpStream>) -> Option<NodeId> {
    let certificates = stream.get_ref().1.peer_certificates();
    certificates.and_then(|certificates| holder_of(certificates.first()?, HOLDER_ENDING))?.parse().ok()
}

impl Listener for TlsListener {
    type Io = Connection;
    type Addr = Caller;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.incoming.recv().await {
            Some(accepted) => accepted,
            // Only when the listener ends.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        Ok(Caller::Stranger(Proof::default()))
    }
}
