//! Which state counts, if an older one was put in place of one that was lost.
//!
//! Each generation of the state has a place of its own in etcd, and one key says which of them counts. So a process
//! that has seen a former generation, and knows at which revisions what was changed there, finds nothing where it
//! looks: no transaction of its can be made by chance, for none of its conditions holds.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::join_all;
use spandrel_cluster::StateError;
use spandrel_cluster::store::{Key, Selection, StateStore as _, StoreError, StoreErrorKind, Transaction};
use spandrel_shared::ClusterId;
use spandrel_state_etcd::{EtcdOptions, EtcdState, secured_url};
use spandrel_trust::Credentials;

use super::Port;
use super::run::own_identity;
use super::settings::{ServerSettings, StatePlace};

/// How long another server may take to say which generation counts.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(2);

/// The key that says which generation counts.
const PRESENT: &str = "present";

/// Where a generation of a cluster's state is in etcd.
pub fn namespace(cluster: ClusterId, generation: u32) -> String {
    match generation {
        0 => format!("spandrel/{cluster}/"),
        generation => format!("spandrel/{cluster}.{generation}/"),
    }
}

fn pointer(etcd: &EtcdState, cluster: ClusterId) -> EtcdState {
    etcd.within(&format!("spandrel/{cluster}.generation/"))
}

/// The generation that counts. `None` as long as the first one does.
pub async fn generation(etcd: &EtcdState, cluster: ClusterId) -> Result<Option<u32>, StateError> {
    let snapshot = pointer(etcd, cluster).read(&[Selection::key(&Key::new(PRESENT))]).await?;
    let Some(entry) = snapshot.entry(0) else { return Ok(None) };
    let number = std::str::from_utf8(&entry.value).ok().and_then(|text| text.parse().ok());
    let nonsense =
        || StoreError::new(StoreErrorKind::Invalid, "which generation of the state counts is no number");
    number.map(Some).ok_or_else(|| nonsense().into())
}

/// The state that counts.
pub async fn present(etcd: &EtcdState, cluster: ClusterId) -> Result<EtcdState, StateError> {
    let number = generation(etcd, cluster).await?.unwrap_or_default();
    Ok(etcd.within(&namespace(cluster, number)))
}

/// From now on this generation counts.
pub async fn set_generation(etcd: &EtcdState, cluster: ClusterId, generation: u32) -> Result<(), StateError> {
    let transaction = Transaction::new().put(&Key::new(PRESENT), generation.to_string().into_bytes());
    pointer(etcd, cluster).transact(transaction).await?;
    Ok(())
}

/// Where a state of a later generation is kept than the one that this server has gone by: all servers are asked, since it
/// may have been put back on one that kept no part of the former one. Who goes by the former one
/// must end, and a part of the former one must not go on: with others that come back as well it could be taken for the
/// state.
pub async fn later_elsewhere(settings: &ServerSettings, credentials: &Credentials) -> Option<Vec<String>> {
    let StatePlace::Own { endpoints, .. } = &settings.state else { return None };
    let of_servers = settings.servers.iter().map(|listen| secured_url(&Port::StateClients.at(*listen)));
    let mut others: BTreeSet<String> = endpoints.iter().cloned().chain(of_servers).collect();
    for own in settings.addresses(Port::StateClients) {
        others.remove(&secured_url(&own));
    }
    // Each alone: some may still have the former state.
    let asked = others.into_iter().map(|endpoint| async move {
        let options = EtcdOptions {
            endpoints: vec![endpoint.clone()],
            namespace: namespace(settings.cluster, 0),
            identity: Some(own_identity(credentials)),
        };
        let etcd = EtcdState::connect(&options).ok()?;
        let answer = tokio::time::timeout(ANSWER_TIME_MAX, generation(&etcd, settings.cluster)).await;
        Some((answer.ok()?.ok()??, endpoint))
    });
    let mut latest = (settings.generation, Vec::new());
    for (generation, endpoint) in join_all(asked).await.into_iter().flatten() {
        if generation > latest.0 {
            latest = (generation, Vec::new());
        }
        if generation == latest.0 {
            latest.1.push(endpoint);
        }
    }
    (latest.0 > settings.generation).then_some(latest.1)
}
