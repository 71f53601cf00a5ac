//! How commands reach a cluster: by a server's directory on this machine, or from anywhere with an access token.
//!
//! From elsewhere the token is all that is needed: it carries the fingerprint of the cluster's authority, so that who
//! answers is known to be one of its servers before anything is told to it, the token least of all.

use std::ffi::OsStr;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use spandrel_shared::Error;
use spandrel_trust::{AccessToken, pinned_client_of_any_name};

use crate::admin::client::Client;
use crate::admin::http::Place;
use crate::arguments::ReachArguments;
use crate::directory::Directory;
use crate::server::{PORT_DEFAULT, Port};

/// Where commands are carried out.
#[derive(Clone, Debug)]
pub struct Reach {
    arguments: ReachArguments,
}

impl Reach {
    /// As the command line says.
    pub fn new(arguments: ReachArguments) -> Self {
        Self { arguments }
    }

    /// Whether it is a server elsewhere that is asked.
    pub fn is_elsewhere(&self) -> bool {
        self.arguments.server.is_some()
    }

    /// The server's or cluster's directory, for what cannot be asked for from elsewhere.
    ///
    /// Errors: `ONLY_ON_SERVER`, `DIR_…`.
    pub fn directory(&self) -> Result<Directory, Error> {
        if let Some(server) = &self.arguments.server {
            return Err(Error::new(
                "ONLY_ON_SERVER",
                format!("this cannot be asked of {server}"),
                "it is done in a server's directory, on that server",
                "run it there, with --dir instead of --server",
            ));
        }
        Directory::choose(self.arguments.dir.as_deref())
    }

    /// Who asks the cluster.
    ///
    /// Errors: `ARGUMENTS_CONTRADICT`, `TOKEN_MISSING`, `TOKEN_UNREADABLE`, `TOKEN_INVALID`, `SERVER_UNKNOWN`; those of
    /// [`Self::directory`].
    pub fn client(&self) -> Result<Client, Error> {
        self.check_arguments()?;
        let Some(server) = &self.arguments.server else { return Client::new(self.directory()?) };
        let token = self.token(server)?;
        let addresses: Vec<SocketAddr> =
            resolve(server)?.into_iter().map(|listen| Port::Admin.at(listen)).collect();
        let name = ServerName::IpAddress(addresses[0].ip().into());
        let tls = Arc::new(pinned_client_of_any_name(token.authority)?);
        Client::elsewhere(Place::Addresses { addresses, tls, name }, token.to_string())
    }

    /// Refuses what would be ignored: whoever forgets --server and gives a token means another cluster than the one in
    /// the usual directory. What stands in the environment is there for other commands, too.
    fn check_arguments(&self) -> Result<(), Error> {
        let ReachArguments { dir, server, access_token, token_file } = &self.arguments;
        let is_given =
            |variable: &str, value: &OsStr| std::env::var_os(variable).is_none_or(|known| known != value);
        let contradicts = |why: &str, next: &str| {
            Err(Error::new("ARGUMENTS_CONTRADICT", "it is not clear which cluster is meant", why, next))
        };
        match server {
            Some(_) if dir.as_ref().is_some_and(|dir| is_given("SPANDREL_DIR", dir.as_os_str())) => {
                contradicts("both --server and --dir are given", "leave one of them out")
            }
            None if token_file.is_some()
                || access_token.as_ref().is_some_and(|token| is_given("SPANDREL_TOKEN", token.as_ref())) =>
            {
                contradicts(
                    "an access token is given, which is for a server elsewhere, and no server is",
                    "name the server with --server, or leave the token out to use the directory on this machine",
                )
            }
            _ => Ok(()),
        }
    }

    fn token(&self, server: &str) -> Result<AccessToken, Error> {
        let missing = || {
            Error::new(
                "TOKEN_MISSING",
                format!("the server {server} cannot be asked"),
                "no access token was given: without one nobody knows who answers there, nor the server who asks",
                "have one made on a node of the cluster (`spandrel access create`), and give it with --token-file or \
                 SPANDREL_TOKEN",
            )
        };
        let text = match (&self.arguments.token_file, &self.arguments.access_token) {
            (Some(path), _) => std::fs::read_to_string(path).map_err(|error| {
                let next = "name a file that this user may read, or give the token with SPANDREL_TOKEN";
                let why = format!("{}: {error}", path.display());
                Error::new("TOKEN_UNREADABLE", "the access token cannot be read", why, next)
            })?,
            (None, Some(token)) if !token.trim().is_empty() => token.clone(),
            (None, _) => return Err(missing()),
        };
        text.parse()
    }
}

/// Where a server listens, by what people write: an address or a name, with the first of its ports unless that is the
/// usual one. As in `--listen`.
fn resolve(server: &str) -> Result<Vec<SocketAddr>, Error> {
    if let Ok(address) = server.parse::<SocketAddr>() {
        return checked(server, vec![address]);
    }
    if let Ok(ip) = server.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(vec![SocketAddr::new(ip, PORT_DEFAULT)]);
    }
    let (host, port) = match server.rsplit_once(':') {
        Some((host, port)) => (host, port.parse().map_err(|_| unknown(server, "its port is no number"))?),
        None => (server, PORT_DEFAULT),
    };
    let found = (host, port).to_socket_addrs().map_err(|error| unknown(server, &error.to_string()))?;
    checked(server, found.collect())
}

fn checked(server: &str, addresses: Vec<SocketAddr>) -> Result<Vec<SocketAddr>, Error> {
    let has_room = |address: &SocketAddr| address.port().checked_add(Port::COUNT - 1).is_some();
    match addresses.first() {
        None => Err(unknown(server, "the name has no address")),
        Some(_) if !addresses.iter().all(has_room) => {
            Err(unknown(server, "there are no three ports behind its port"))
        }
        Some(_) => Ok(addresses),
    }
}

fn unknown(server: &str, why: &str) -> Error {
    Error::new(
        "SERVER_UNKNOWN",
        format!("{server:?} cannot be asked"),
        why,
        "write a server's address as in its --listen: 192.0.2.7, or 192.0.2.7:7440 with the first of its four ports",
    )
}

#[cfg(test)]
#[path = "reach_tests.rs"]
mod tests;
