//! Faults as events in the log: a line when something begins to be the matter, and one when it is over.
//!
//! One server tells for all, the first one whose node runs, so that whoever gathers the logs of all servers reads everything
//! once. When another one takes that over, it tells what is the matter at that moment, as it cannot know what was told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use spandrel_shared::Error;

use super::administration::Administration;
use super::api::{Fault, Severity};
use super::nodes::NodeAccess;
use crate::log::ALL_CLEAR;

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

/// Tells what is the matter, as long as the process runs. What that is follows from what all nodes say of themselves, so they
/// are all asked, each `interval`.
pub async fn tell_faults(administration: Arc<Administration>, interval: Duration) {
    let mut told = Told::new();
    loop {
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
        tokio::time::sleep(interval).await;
    }
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
