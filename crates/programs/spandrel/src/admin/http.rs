//! HTTP to an admin API: over a unix socket on this machine, or over TCP with TLS.
//!
//! Each request has a connection of its own: there are few, and a cluster that was started anew
//! in between is found again.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::http::request::Builder;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use spandrel_shared::Error;

use super::api::STREAM_PROTOCOL;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;

/// How long an answer is waited for. Making a volume is the longest that is no stream.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a connection may take to be made.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// How long one address is waited for before the next is tried beside it: what RFC 8305 recommends. A server whose
/// first network is cut is so reached over its second without anybody noticing.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);

/// The error that nobody listens in a directory.
pub const NOT_RUNNING: &str = "CLUSTER_NOT_RUNNING";

/// A connection that carries bytes both ways.
pub type Upgraded = TokioIo<hyper::upgrade::Upgraded>;

/// Asks an admin API. Cheap to clone.
#[derive(Clone)]
pub struct HttpClient {
    place: Place,
    /// What is shown as proof of who asks, where that is needed.
    bearer: Option<String>,
}

/// Where an admin API is.
#[derive(Clone)]
pub enum Place {
    /// On this machine: the socket, and the directory that it is in, for messages.
    Directory {
        /// The unix socket.
        socket: PathBuf,
        /// The cluster's or node's directory.
        directory: PathBuf,
    },
    /// Elsewhere: at whichever of these addresses answers first, of which the earlier ones have a head start.
    Addresses {
        /// Where it listens.
        addresses: Vec<SocketAddr>,
        /// What is trusted, and with what this side proves who it is.
        tls: Arc<ClientConfig>,
        /// The name in the other side's certificate, or any where that is not looked at.
        name: ServerName<'static>,
    },
}

impl std::fmt::Display for Place {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Directory { directory, .. } => write!(formatter, "the cluster in {}", directory.display()),
            Self::Addresses { addresses, .. } => {
                let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
                write!(formatter, "the cluster at {}", addresses.join(", "))
            }
        }
    }
}

impl HttpClient {
    /// Asks at `place`, with `bearer` as what proves who asks.
    pub fn new(place: Place, bearer: Option<String>) -> Self {
        Self { place, bearer }
    }

    /// Where it asks.
    pub fn place(&self) -> &Place {
        &self.place
    }

    /// Asks for something.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.call(Method::GET, path, None::<&()>).await
    }

    /// Asks for something to be done.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Error> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Asks for something to be removed.
    pub async fn delete(&self, path: &str) -> Result<(), Error> {
        self.call(Method::DELETE, path, None::<&()>).await
    }

    /// Asks for something that tells how it gets on: calls `on_line` with each line of the answer.
    pub async fn stream<T: DeserializeOwned>(
        &self,
        path: &str,
        mut on_line: impl FnMut(T),
    ) -> Result<(), Error> {
        let silent = |_| self.broken("nothing came for a minute");
        let begun = async { checked(self.send(Method::POST, path, None::<&()>).await?).await };
        let response =
            tokio::time::timeout(ANSWER_TIMEOUT, begun).await.unwrap_or_else(|late| Err(silent(late)))?;
        let mut body = response.into_body();
        let mut pending = Vec::new();
        while let Some(frame) = tokio::time::timeout(ANSWER_TIMEOUT, body.frame()).await.map_err(silent)? {
            let Ok(data) = frame.map_err(|error| self.broken(&error.to_string()))?.into_data() else {
                continue;
            };
            pending.extend_from_slice(&data);
            while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = pending.drain(..=end).collect();
                // Only a sign that the other side is there.
                if line == b"\n" {
                    continue;
                }
                on_line(serde_json::from_slice(&line).map_err(|error| self.unreadable(&error))?);
            }
        }
        if pending.is_empty() { Ok(()) } else { Err(self.broken("its last line is not whole")) }
    }

    /// Asks for a connection that carries bytes both ways from then on.
    pub async fn open_stream(&self, path: &str) -> Result<Upgraded, Error> {
        let upgraded = async {
            let mut request = self.request(Method::GET, path);
            request = request.header("connection", "upgrade").header("upgrade", STREAM_PROTOCOL);
            let response = self.send_request(request, Vec::new()).await?;
            if response.status() != StatusCode::SWITCHING_PROTOCOLS {
                checked(response).await?;
                return Err(self.broken("it does not carry bytes both ways"));
            }
            hyper::upgrade::on(response)
                .await
                .map(TokioIo::new)
                .map_err(|error| self.broken(&error.to_string()))
        };
        let timed = tokio::time::timeout(ANSWER_TIMEOUT, upgraded).await;
        timed.unwrap_or_else(|_| Err(self.broken("it did not come within a minute")))
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, Error> {
        let answered = async {
            let response = checked(self.send(method, path, body).await?).await?;
            let whole = response.into_body().collect().await;
            Ok(whole.map_err(|error| self.broken(&error.to_string()))?.to_bytes())
        };
        let timed = tokio::time::timeout(ANSWER_TIMEOUT, answered).await;
        let text: Bytes = timed.unwrap_or_else(|_| Err(self.broken("it did not come within a minute")))?;
        // What has nothing to say says `null`.
        serde_json::from_slice(&text).map_err(|error| self.unreadable(&error))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Response<Incoming>, Error> {
        let body = match body {
            Some(body) => serde_json::to_vec(body).expect("requests are plain data"),
            None => Vec::new(),
        };
        self.send_request(self.request(method, path), body).await
    }

    fn request(&self, method: Method, path: &str) -> Builder {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "spandrel")
            .header("content-type", "application/json");
        match &self.bearer {
            Some(bearer) => request.header("authorization", format!("Bearer {bearer}")),
            None => request,
        }
    }

    async fn send_request(&self, request: Builder, body: Vec<u8>) -> Result<Response<Incoming>, Error> {
        let mut sender = self.connect().await?;
        let request = request
            .body(Full::new(Bytes::from(body)))
            .expect("paths are made of constants and escaped names, tokens of letters and digits");
        sender.send_request(request).await.map_err(|error| self.broken(&error.to_string()))
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, Error> {
        let (addresses, tls, name) = match &self.place {
            Place::Directory { socket, .. } => {
                let stream = UnixStream::connect(socket).await;
                return self.begin(stream.map_err(|error| self.not_here(&error))?).await;
            }
            Place::Addresses { addresses, tls, name } => (addresses, tls, name),
        };
        let connector = TlsConnector::from(Arc::clone(tls));
        let attempt = async |address: SocketAddr| {
            let connected = async {
                let stream = TcpStream::connect(address).await?;
                connector.connect(name.clone(), stream).await
            };
            let timed = tokio::time::timeout(CONNECT_TIMEOUT, connected).await;
            timed.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())).map_err(|error| (address, error))
        };
        let (mut attempts, mut addresses) = (FuturesUnordered::new(), addresses.iter());
        let (mut failures, mut is_other) = (Vec::new(), false);
        loop {
            match addresses.next() {
                Some(address) => attempts.push(attempt(*address)),
                None if attempts.is_empty() => break,
                None => {}
            }
            let ended = match addresses.len() {
                0 => Ok(attempts.next().await),
                _ => tokio::time::timeout(NEXT_ADDRESS_AFTER, attempts.next()).await,
            };
            match ended {
                Ok(Some(Ok(stream))) => return self.begin(stream).await,
                Ok(Some(Err((address, error)))) if error.kind() == ErrorKind::TimedOut => {
                    failures.push(format!("{address}: no answer"));
                }
                Ok(Some(Err((address, error)))) => {
                    is_other |= is_untrusted(&error);
                    failures.push(format!("{address}: {error}"));
                }
                Ok(None) | Err(_) => {}
            }
        }
        Err(Error::new(
            "CLUSTER_NOT_REACHED",
            format!("{} cannot be reached", self.place),
            failures.join("; "),
            match is_other {
                false => "look whether the node runs there, and whether its ports are open",
                true => {
                    "what answers shows no certificate of the cluster that has given the token, so nothing was told \
                     to it: look whether address and token belong together, and whether the port is the first of the \
                     server's four, as in its --listen"
                }
            },
        ))
    }

    async fn begin(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Result<SendRequest<Full<Bytes>>, Error> {
        let (sender, connection) =
            handshake(TokioIo::new(stream)).await.map_err(|error| self.broken(&error.to_string()))?;
        // Ends by itself when the answer's body is read or dropped.
        tokio::spawn(connection.with_upgrades());
        Ok(sender)
    }

    fn not_here(&self, error: &std::io::Error) -> Error {
        let Place::Directory { socket, directory } = &self.place else {
            return self.broken(&error.to_string());
        };
        let directory = directory.display();
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory => Error::new(
                NOT_RUNNING,
                format!("no cluster runs in {directory}"),
                format!("nobody listens on {}", socket.display()),
                format!(
                    "start it with `spandrel up --dir {directory}` (a node: `spandrel node run --dir {directory}`), \
                     or name another one with --dir or SPANDREL_DIR"
                ),
            ),
            _ => Error::new(
                "CLUSTER_NOT_REACHED",
                format!("the cluster in {directory} cannot be reached"),
                format!("{}: {error}", socket.display()),
                "run this as the user who started the cluster",
            ),
        }
    }

    /// The error that an answer is missing or cut off.
    pub fn broken(&self, why: &str) -> Error {
        Error::new(
            "ANSWER_BROKEN",
            format!("no answer from {}", self.place),
            why,
            "look whether it still runs (`spandrel status`), and at its log; what was asked for may have been done",
        )
    }

    fn unreadable(&self, error: &serde_json::Error) -> Error {
        Error::new(
            "ANSWER_UNREADABLE",
            format!("the answer of {} cannot be read", self.place),
            error.to_string(),
            "use the version of spandrel that the cluster was started with",
        )
    }
}

/// Whether the other side has not shown what was to be shown.
fn is_untrusted(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented))
}

/// The response, or the error that it carries.
async fn checked(response: Response<Incoming>) -> Result<Response<Incoming>, Error> {
    let status = response.status();
    if status.is_success() {
        return Ok(response);
    }
    let body = response.into_body().collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    Err(serde_json::from_slice(&body).unwrap_or_else(|_| {
        Error::new(
            "REQUEST_REFUSED",
            "the cluster refused the request",
            format!("HTTP status {status}: {}", String::from_utf8_lossy(&body)),
            "use the version of spandrel that the cluster was started with",
        )
    }))
}

#[cfg(test)]
#[path = "http_tests.rs"]
mod tests;
