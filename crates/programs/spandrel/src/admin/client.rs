//! The client of the admin API, for commands, which wait for what they ask.

use std::pin::pin;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use spandrel_shared::Error;

use super::http::{HttpClient, NOT_RUNNING, Place, Upgraded};
use crate::directory::Directory;
use crate::failure::system_error;
use crate::server::settings::{ServerSettings, is_locked};

/// After how long without an answer whoever waits is told so.
const SLOW_AFTER: Duration = Duration::from_secs(5);

/// How long the cluster may be silent while somebody watches it: it may be finding itself a new leader.
pub const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How often it is asked until then.
const SILENCE_PAUSE: Duration = Duration::from_millis(500);

/// Asks the cluster that runs in a directory, or one elsewhere.
pub struct Client {
    runtime: tokio::runtime::Runtime,
    /// None if the cluster is elsewhere.
    directory: Option<Directory>,
    http: HttpClient,
}

impl Client {
    /// A client for the cluster in `directory`, whether it runs or not.
    pub fn new(directory: Directory) -> Result<Self, Error> {
        directory.check_socket_lengths("n")?;
        let place =
            Place::Directory { socket: directory.admin_socket(), directory: directory.path().to_owned() };
        Ok(Self { runtime: runtime()?, directory: Some(directory), http: HttpClient::new(place, None) })
    }

    /// A client for the cluster at `place`, with what shows who asks.
    pub fn elsewhere(place: Place, bearer: String) -> Result<Self, Error> {
        Ok(Self { runtime: runtime()?, directory: None, http: HttpClient::new(place, Some(bearer)) })
    }

    /// The cluster's directory.
    ///
    /// # Panics
    ///
    /// If it is elsewhere: only for commands that refuse that before they ask anything.
    pub fn directory(&self) -> &Directory {
        self.directory.as_ref().expect("whoever needs the directory was not let begin without one")
    }

    /// Asks for something.
    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.wait_for(self.http.get(path))
    }

    /// Asks for something that is watched: that the cluster does not answer for a while is no reason to end.
    pub fn watch<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        let begun = Instant::now();
        loop {
            match self.get(path) {
                Err(error) if is_passing(&error) && begun.elapsed() < SILENCE_MAX => {
                    self.pause(SILENCE_PAUSE)
                }
                answer => return answer,
            }
        }
    }

    /// Asks for something to be done.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Error> {
        self.wait_for(self.http.post(path, body))
    }

    /// Asks for something to be removed.
    pub fn delete(&self, path: &str) -> Result<(), Error> {
        self.wait_for(self.http.delete(path))
    }

    /// Lets some time pass before the same is asked again. For what the admin API does not tell by itself.
    pub fn pause(&self, time: Duration) {
        // The timer is the runtime's, so it can only be made within it.
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    /// Asks for something that tells how it gets on: calls `on_line` with each line of the answer.
    pub fn stream<T: DeserializeOwned>(&self, path: &str, on_line: impl FnMut(T)) -> Result<(), Error> {
        let streamed = self.runtime.block_on(self.http.stream(path, on_line));
        streamed.map_err(|error| self.explained(error))
    }

    /// Asks for a connection that carries bytes both ways from then on.
    pub fn open_stream(&self, path: &str) -> Result<Upgraded, Error> {
        self.wait_for(self.http.open_stream(path))
    }

    /// Runs something that was begun here.
    pub fn run<T>(&self, task: impl Future<Output = T>) -> T {
        self.runtime.block_on(task)
    }

    /// Waits for an answer, and says so if that takes long.
    fn wait_for<T>(&self, answer: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let answered = self.runtime.block_on(async {
            let mut answer = pin!(answer);
            match tokio::time::timeout(SLOW_AFTER, answer.as_mut()).await {
                Ok(answered) => answered,
                Err(_) => {
                    eprintln!("no answer from {} yet; Ctrl-C ends the waiting", self.http.place());
                    answer.await
                }
            }
        });
        answered.map_err(|error| self.explained(error))
    }

    /// Nobody listens in the directory: with what is known of it, if it is a server's.
    fn explained(&self, error: Error) -> Error {
        let known = self.directory.as_ref().filter(|_| error.code == NOT_RUNNING);
        let settings = known.and_then(|directory| Some((directory, ServerSettings::read(directory).ok()?)));
        let Some((directory, settings)) = settings else { return error };
        let name = &settings.name;
        let path = directory.path().display();
        match is_locked(directory) {
            true => Error::new(
                "SERVER_NOT_READY",
                format!("the server {name} cannot be asked"),
                "it runs, and serves nobody: it waits for the cluster's state, or is being stopped",
                format!(
                    "see what it waits for: it says so where it was started, and in {path}/log/spandrel.log; most of the \
                     servers that keep the state must run"
                ),
            ),
            false => Error::new(
                NOT_RUNNING,
                format!("the server {name} does not run"),
                error.why,
                format!(
                    "start it with `spandrel {} run --dir {path}`, or name another server with --dir or SPANDREL_DIR",
                    if settings.witness { "witness" } else { "node" }
                ),
            ),
        }
    }
}

/// Whether the cluster may answer the same question in a moment.
pub fn is_passing(error: &Error) -> bool {
    let codes = [
        "STATE_UNAVAILABLE",
        "ANSWER_BROKEN",
        "CLUSTER_NOT_RUNNING",
        "CLUSTER_NOT_REACHED",
        "SERVER_NOT_READY",
    ];
    codes.contains(&&*error.code)
}

fn runtime() -> Result<tokio::runtime::Runtime, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(|error| system_error("the program cannot start", &error))
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

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
