//! The client of the admin API: HTTP over `DIR/admin.sock`.
//!
//! Each request has a connection of its own: there are few, and a cluster that was started anew
//! in between is found again.

use std::io::ErrorKind;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use spandrel_shared::Error;
use tokio::net::UnixStream;

use crate::directory::Directory;
use crate::failure::system_error;

/// How long an answer is waited for. Making a volume is the longest that is no stream.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// A client for the cluster in one directory.
pub struct Client {
    runtime: tokio::runtime::Runtime,
    directory: Directory,
}

impl Client {
    /// A client for the cluster in `directory`, whether it runs or not.
    pub fn new(directory: Directory) -> Result<Self, Error> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| system_error("the program cannot start", &error))?;
        Ok(Self { runtime, directory })
    }

    /// The cluster's directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Asks for something.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.call(Method::GET, path, None::<&()>)
    }

    /// Asks for something to be done.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Error> {
        self.call(Method::POST, path, Some(body))
    }

    /// Asks for something to be removed.
    pub fn delete(&self, path: &str) -> Result<(), Error> {
        self.call(Method::DELETE, path, None::<&()>)
    }

    /// Asks for something that tells how it gets on: calls `on_line` with each line of the answer.
    pub fn stream<T: DeserializeOwned>(&self, path: &str, mut on_line: impl FnMut(T)) -> Result<(), Error> {
        self.runtime.block_on(async {
            let response = self.send(Method::POST, path, None::<&()>).await?;
            let mut body = checked(response).await?.into_body();
            let mut pending = Vec::new();
            while let Some(frame) = body.frame().await {
                let Ok(data) = frame.map_err(|error| self.broken(&error.to_string()))?.into_data() else {
                    continue;
                };
                pending.extend_from_slice(&data);
                while let Some(end) = pending.iter().position(|byte| *byte == b'\n') {
                    let line: Vec<u8> = pending.drain(..=end).collect();
                    on_line(serde_json::from_slice(&line).map_err(|error| self.unreadable(&error))?);
                }
            }
            if pending.is_empty() { Ok(()) } else { Err(self.broken("its last line is not whole")) }
        })
    }

    fn call<T: DeserializeOwned>(
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
        let text: Bytes = self.runtime.block_on(async {
            let timed = tokio::time::timeout(ANSWER_TIMEOUT, answered).await;
            timed.unwrap_or_else(|_| Err(self.broken("it did not come within a minute")))
        })?;
        // What has nothing to say says `null`.
        serde_json::from_slice(&text).map_err(|error| self.unreadable(&error))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<Response<Incoming>, Error> {
        self.directory.check_socket_lengths("n")?;
        let socket = self.directory.admin_socket();
        let stream = UnixStream::connect(&socket).await.map_err(|error| self.not_reached(&error))?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| self.broken(&error.to_string()))?;
        // Ends by itself when the answer's body is read or dropped.
        tokio::spawn(connection);
        let body = match body {
            Some(body) => serde_json::to_vec(body).expect("requests are plain data"),
            None => Vec::new(),
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "spandrel")
            .header("content-type", "application/json")
            .body(Full::new(Bytes::from(body)))
            .expect("paths are made of constants and escaped names");
        sender.send_request(request).await.map_err(|error| self.broken(&error.to_string()))
    }

    fn not_reached(&self, error: &std::io::Error) -> Error {
        let directory = self.directory.path().display();
        match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory => Error::new(
                "CLUSTER_NOT_RUNNING",
                format!("no cluster runs in {directory}"),
                format!("nobody listens on {}", self.directory.admin_socket().display()),
                format!(
                    "start it with `spandrel up --dir {directory}`, or name another one with --dir or SPANDREL_DIR"
                ),
            ),
            _ => Error::new(
                "CLUSTER_NOT_REACHED",
                format!("the cluster in {directory} cannot be reached"),
                format!("{}: {error}", self.directory.admin_socket().display()),
                "run this as the user who started the cluster",
            ),
        }
    }

    fn broken(&self, why: &str) -> Error {
        Error::new(
            "ANSWER_BROKEN",
            format!("no answer from the cluster in {}", self.directory.path().display()),
            why,
            "look whether it still runs (`spandrel status`), and at its log; what was asked for may have been done",
        )
    }

    fn unreadable(&self, error: &serde_json::Error) -> Error {
        Error::new(
            "ANSWER_UNREADABLE",
            format!("the answer of the cluster in {} cannot be read", self.directory.path().display()),
            error.to_string(),
            "use the version of spandrel that the cluster was started with",
        )
    }
}

/// A path with a name in it. Whatever the name is, it stays one part of the path.
pub fn path_with(pattern: &str, name: &str) -> String {
    let mut escaped = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric()
            || b"-_".contains(&byte)
            || byte == b'.' && !name.trim_matches('.').is_empty()
        {
            escaped.push(char::from(byte));
        } else {
            escaped += &format!("%{byte:02X}");
        }
    }
    pattern.replace("{name}", &escaped)
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
#[path = "client_tests.rs"]
mod tests;
