//! The client of the admin API, for commands, which wait for what they ask.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use spandrel_shared::Error;

use super::http::{HttpClient, Place};
use crate::directory::Directory;
use crate::failure::system_error;

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
        self.runtime.block_on(self.http.get(path))
    }

    /// Asks for something to be done.
    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Error> {
        self.runtime.block_on(self.http.post(path, body))
    }

    /// Asks for something to be removed.
    pub fn delete(&self, path: &str) -> Result<(), Error> {
        self.runtime.block_on(self.http.delete(path))
    }

    /// Lets some time pass before the same is asked again. For what the admin API does not tell by itself.
    pub fn pause(&self, time: Duration) {
        // The timer is the runtime's, so it can only be made within it.
        self.runtime.block_on(async { tokio::time::sleep(time).await });
    }

    /// Asks for something that tells how it gets on: calls `on_line` with each line of the answer.
    pub fn stream<T: DeserializeOwned>(&self, path: &str, on_line: impl FnMut(T)) -> Result<(), Error> {
        self.runtime.block_on(self.http.stream(path, on_line))
    }
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
