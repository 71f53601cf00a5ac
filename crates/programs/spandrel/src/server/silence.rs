//! Whether the other servers of a cluster are stopped. Only then may the state be put back to an older one: who goes on
//! with the former one, and knows nothing of that, could keep answering clients.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use futures_util::future::join_all;
use spandrel_cluster::backup::StateBackup;
use spandrel_shared::Error;
use tokio::net::TcpStream;

use super::Port;
use super::settings::{ServerSettings, StatePlace};

/// How long a server may take to accept a connection. One on the other end of a slow line takes a tenth of that.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(2);

/// The servers that still accept connections, of those that `backup` or this one knows: their names, or else addresses.
/// One that has hung counts as well: it may go on.
async fn running_servers(
    settings: &ServerSettings,
    backup: Option<&StateBackup>,
) -> Result<BTreeSet<String>, Error> {
    let mut places: BTreeMap<SocketAddr, String> = BTreeMap::new();
    // An etcd that others keep must run.
    if let StatePlace::Own { endpoints, .. } = &settings.state {
        for endpoint in endpoints {
            let address = endpoint.rsplit_once("//").and_then(|(_, address)| address.parse().ok());
            places.extend(address.map(|address| (address, endpoint.clone())));
        }
    }
    let mut servers: Vec<(String, SocketAddr)> =
        settings.servers.iter().map(|listen| (listen.to_string(), *listen)).collect();
    for (name, addresses) in backup.map(StateBackup::servers).transpose()?.unwrap_or_default() {
        let listens = addresses.iter().filter_map(|address| address.parse().ok());
        servers.extend(listens.map(|listen| (name.clone(), listen)));
    }
    for (name, listen) in servers {
        let ports = [Port::Bus, Port::Admin, Port::StateClients, Port::StateMembers];
        places.extend(ports.map(|port| (port.at(listen), name.clone())));
    }
    places.retain(|address, _| settings.listen.iter().all(|own| !is_of(*own, *address)));
    let asked = places.into_iter().map(|(address, name)| async move {
        let connected = tokio::time::timeout(CONNECT_TIME_MAX, TcpStream::connect(address)).await;
        matches!(connected, Ok(Ok(_))).then_some(name)
    });
    Ok(join_all(asked).await.into_iter().flatten().collect())
}

/// Whether `address` is one of those of the server whose first port is in `listen`.
fn is_of(listen: SocketAddr, address: SocketAddr) -> bool {
    let ports = listen.port()..listen.port().saturating_add(Port::COUNT);
    address.ip() == listen.ip() && ports.contains(&address.port())
}

/// Refuses to go on while others run, of which this server knows, or `backup` if there is one.
pub async fn check_stopped(settings: &ServerSettings, backup: Option<&StateBackup>) -> Result<(), Error> {
    let running = running_servers(settings, backup).await?;
    if running.is_empty() {
        return Ok(());
    }
    let names = running.into_iter().collect::<Vec<_>>().join(", ");
    Err(Error::new(
        "SERVERS_RUNNING",
        "the state is not put back",
        format!("other servers of the cluster accept connections still: {names}"),
        "stop them first, their members of etcd as well: `spandrel node run` ended with SIGTERM stops both; turn off \
         what does not stop",
    ))
}

#[cfg(test)]
#[path = "silence_tests.rs"]
mod tests;
