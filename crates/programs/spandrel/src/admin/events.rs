//! Faults as events in the log: a line when something begins to be the matter, and one when it is over.
//!
//! One server tells for all, the first one whose node runs, so that whoever gathers the logs of all servers reads everything
//! once. When another one takes that over, it tells what is the matter at that moment, as it cannot know what was told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use spandrel_node::PeerReport;
use spandrel_shared::{Error, NodeId};

use super::administration::Administration;
use super::api::{Fault, Severity};
use super::nodes::NodeAccess;
use crate::log::ALL_CLEAR;
use crate::node_thread::NodeHandle;

/// What was told last: faults by their kind and object.
type Told = BTreeMap<(String, String), Severity>;

/// Something to tell.
#[derive(Debug, PartialEq, Eq)]
enum Event {
    /// It is the matter now, or matters more or less than before.
    Is(Fault),
    /// It is the matter no more.
    IsOver { kind: String, object: String },
}

/// How often it is looked whom the own node hears: that costs nothing.
const HEARING_INTERVAL: Duration = Duration::from_secs(1);

/// After how long a silence a node counts as not heard.
const SILENCE_MS: u64 = 2000;

/// Tells what is the matter, as long as the process runs. What that is follows from what all nodes say of themselves, so they
/// are all asked, each `interval`, and when the own node hears others than before.
pub async fn tell_faults(
    administration: Arc<Administration>,
    own_node: Option<NodeHandle>,
    interval: Duration,
) {
    let mut told = Told::new();
    loop {
        let heard = heard(own_node.as_ref()).await;
        let asked = Instant::now();
        match look(&administration).await {
            Ok(Some(faults)) => {
                for event in events(&told, &faults) {
                    tell(&event);
                }
                told = told_by(&faults);
            }
            Ok(None) => told.clear(),
            Err(error) => tracing::debug!("it is not known what is the matter: {error}"),
        }
        loop {
            tokio::time::sleep(HEARING_INTERVAL).await;
            if asked.elapsed() >= interval || self::heard(own_node.as_ref()).await != heard {
                break;
            }
        }
    }
}

/// The other nodes of which the node of this process has heard lately; none if there is none.
async fn heard(own_node: Option<&NodeHandle>) -> BTreeSet<NodeId> {
    let Some(own_node) = own_node else { return BTreeSet::new() };
    let report = own_node.ask(|node| async move { node.report() }).await;
    let peers = report.map(|report| report.peers).unwrap_or_default();
    let is_heard = |peer: &PeerReport| peer.silent_ms.is_some_and(|silent_ms| silent_ms < SILENCE_MS);
    peers.into_iter().filter(is_heard).map(|peer| peer.node).collect()
}

/// What is the matter, if this server is the one to tell it.
async fn look(administration: &Administration) -> Result<Option<Vec<Fault>>, Error> {
    let is_first = matches!(administration.first_access().await?, Some(NodeAccess::Here(_)));
    if is_first { administration.faults().await.map(Some) } else { Ok(None) }
}

fn key(fault: &Fault) -> (String, String) {
    (fault.kind.clone(), fault.object.clone())
}

fn told_by(faults: &[Fault]) -> Told {
    faults.iter().map(|fault| (key(fault), fault.severity)).collect()
}

/// What is to be told, by what was told last. What somebody wanted so, or mends itself, is none of it.
fn events(told: &Told, faults: &[Fault]) -> Vec<Event> {
    let now = told_by(faults);
    let matters = |severity: Severity| severity > Severity::Informational;
    let begun = faults
        .iter()
        .filter(|fault| matters(fault.severity) && told.get(&key(fault)) != Some(&fault.severity))
        .map(|fault| Event::Is(fault.clone()));
    let over = told
        .iter()
        .filter(|(key, severity)| matters(**severity) && !now.get(*key).copied().is_some_and(matters))
        .map(|((kind, object), _)| Event::IsOver { kind: kind.clone(), object: object.clone() });
    begun.chain(over).collect()
}

fn tell(event: &Event) {
    match event {
        Event::Is(fault) => {
            let Fault { severity, kind, object, place, reason, actions, must_not, .. } = fault;
            let (place, actions) = (place.as_deref().unwrap_or("-"), actions.join("; "));
            let must_not = must_not.join("; ");
            match severity {
                Severity::Informational => {}
                Severity::Warning => {
                    tracing::warn!(%severity, kind, object, place, actions, must_not, "{object}: {reason}");
                }
                Severity::Major | Severity::Critical => {
                    tracing::error!(%severity, kind, object, place, actions, must_not, "{object}: {reason}");
                }
            }
        }
        Event::IsOver { kind, object } => {
            tracing::info!(target: ALL_CLEAR, kind, object, "{object}: that is over ({kind})")
        }
    }
}

#[cfg(test)]
#[path = "events_tests.rs"]
mod tests;
