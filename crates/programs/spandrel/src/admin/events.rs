//! Faults as events in the log: a line when something begins to be the matter, and one when it is over.
//!
//! One server tells for all, the first one whose node runs, so that whoever gathers the logs of all servers reads everything
//! once. When another one takes that over, it tells once more what is the matter at that moment. What was told stands in the
//! cluster's state, so it tells what is over, too, that others have told.
//!
//! Invariants:
//! - Each fault that was told is over at some time, and that is told: whoever raises an alert by these lines can end it.
//! - That the state does not answer is told as well, by each server for itself, as nobody knows then who is to tell it.
//! - A look takes no more than a part of the time, however large the cluster is.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use spandrel_cluster::{Stored, ToldFault, ToldRecord};
use spandrel_node::PeerReport;
use spandrel_shared::{Error, NodeId};

use super::administration::{Administration, state_error};
use super::api::{Fault, Severity};
use super::nodes::NodeAccess;
use crate::log::ALL_CLEAR;
use crate::running_node::NodeHandle;

/// How long a look may take, before it counts as one without an answer.
const LOOK_TIME_MAX: Duration = Duration::from_secs(60);

/// Of the time, one part in so many is spent with looking.
const LOOK_PART: u32 = 10;

/// For so long the state may not answer, as while it finds a new leader, before that is told.
const SILENCE_MAX: Duration = Duration::from_secs(15);

/// What was told last: faults by their kind and object, with how severe they were said to be; none if another one told that.
type Told = BTreeMap<(String, String), Option<Severity>>;

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
/// are all asked, each `interval`, less often where that takes long, and when the own node hears others than before.
pub async fn tell_faults(
    administration: Arc<Administration>,
    own_node: Option<NodeHandle>,
    interval: Duration,
) {
    let (mut turn, mut silence) = (None, Silence::default());
    loop {
        let heard = heard(own_node.as_ref()).await;
        let begun = Instant::now();
        let looked = tokio::time::timeout(LOOK_TIME_MAX, look(&administration, &mut turn)).await;
        let looked = looked.unwrap_or_else(|_| Err(no_answer()));
        if let Err(error) = &looked {
            tracing::debug!("it is not known what is the matter: {error}");
        }
        if let Some(event) = silence.note(looked.err(), Instant::now()) {
            tell(&event);
        }
        let (ended, pause) = (Instant::now(), pause(interval, begun.elapsed()));
        loop {
            tokio::time::sleep(HEARING_INTERVAL.min(pause)).await;
            if ended.elapsed() >= pause || self::heard(own_node.as_ref()).await != heard {
                break;
            }
        }
    }
}

/// The other nodes of which the node of this process has heard lately; none if there is none.
async fn heard(own_node: Option<&NodeHandle>) -> BTreeSet<NodeId> {
    let Some(own_node) = own_node else { return BTreeSet::new() };
    let peers = own_node.report().await.map(|report| report.peers).unwrap_or_default();
    let is_heard = |peer: &PeerReport| peer.silent_ms.is_some_and(|silent_ms| silent_ms < SILENCE_MS);
    peers.into_iter().filter(is_heard).map(|peer| peer.node).collect()
}

/// How long to wait after a look that has taken so long.
fn pause(interval: Duration, took: Duration) -> Duration {
    interval.max(took * (LOOK_PART - 1))
}

/// Tells what is the matter, if this server is the one to tell it.
async fn look(administration: &Administration, turn: &mut Option<Turn>) -> Result<(), Error> {
    if !matches!(administration.first_access().await?, Some(NodeAccess::Here(_))) {
        *turn = None;
        return Ok(());
    }
    let faults = administration.faults().await?;
    let turn = match turn {
        Some(turn) => turn,
        None => turn.insert(Turn::begin(administration.state().told().await.map_err(state_error)?)),
    };
    turn.take_in(&faults).iter().for_each(tell);
    turn.write_down(administration).await
}

/// What a server knows that tells for all.
struct Turn {
    told: Told,
    /// What stands in the cluster's state.
    written: Option<Stored<ToldRecord>>,
}

impl Turn {
    /// Takes over from whoever has told this.
    fn begin(written: Option<Stored<ToldRecord>>) -> Self {
        let faults = written.iter().flat_map(|stored| &stored.record.faults);
        let told = faults.map(|fault| ((fault.kind.clone(), fault.object.clone()), None)).collect();
        Self { told, written }
    }

    /// What is to be told when this is the matter.
    fn take_in(&mut self, faults: &[Fault]) -> Vec<Event> {
        let events = events(&self.told, faults);
        self.told = told_by(faults);
        events
    }

    /// What is to stand in the cluster's state, if that is something else than what stands there.
    fn to_write(&self) -> Option<ToldRecord> {
        let told = self.told.iter().filter(|(_, severity)| severity.is_none_or(matters));
        let faults = told.map(|((kind, object), _)| ToldFault { kind: kind.clone(), object: object.clone() });
        let record = ToldRecord { faults: faults.collect() };
        let former = self.written.as_ref().map(|stored| &stored.record);
        (*former.unwrap_or(&ToldRecord::default()) != record).then_some(record)
    }

    /// Writes down what was told, for whoever tells next. Where that fails it is done with the next look.
    async fn write_down(&mut self, administration: &Administration) -> Result<(), Error> {
        let Some(record) = self.to_write() else { return Ok(()) };
        let state = administration.state();
        let known = self.written.as_ref().map(|stored| stored.revision);
        self.written = match state.note_told(known, record).await {
            Ok(stored) => Some(stored),
            // Another one has told something at the same time, or it is not known what was written.
            Err(_) => state.told().await.map_err(state_error)?,
        };
        Ok(())
    }
}

/// Since when the cluster's state has not answered.
#[derive(Default)]
struct Silence {
    since: Option<Instant>,
    is_told: bool,
}

impl Silence {
    /// Takes note of a look, with what has kept it from an answer. What is to be told of that, if anything is.
    fn note(&mut self, error: Option<Error>, now: Instant) -> Option<Event> {
        let Some(error) = error else {
            self.since = None;
            let (kind, object) = (STATE_SILENT.to_owned(), STATE_OBJECT.to_owned());
            return std::mem::take(&mut self.is_told).then_some(Event::IsOver { kind, object });
        };
        let since = *self.since.get_or_insert(now);
        if self.is_told || now.duration_since(since) < SILENCE_MAX {
            return None;
        }
        self.is_told = true;
        Some(Event::Is(state_silent(&error)))
    }
}

const STATE_SILENT: &str = "state.unavailable";
const STATE_OBJECT: &str = "cluster state";

/// That this server cannot read the cluster's state. Nothing else that is the matter can be told then.
fn state_silent(error: &Error) -> Fault {
    Fault {
        severity: Severity::Critical,
        kind: STATE_SILENT.to_owned(),
        object: STATE_OBJECT.to_owned(),
        place: None,
        reason: format!(
            "this server cannot read it ({}): nothing can be changed, lost copies cannot be left behind, and what else is \
             the matter is not known",
            error.why
        ),
        actions: vec![
            "`spandrel cluster state` shows the servers that keep it: start those that do not run".to_owned(),
            error.next.clone(),
        ],
        must_not: Vec::new(),
        since_ms: None,
    }
}

fn no_answer() -> Error {
    Error::new(
        "STATE_UNAVAILABLE",
        "it is not known what is the matter",
        format!("the cluster has not answered within {} s", LOOK_TIME_MAX.as_secs()),
        "see whether most of the servers that keep the state reach each other",
    )
}

fn key(fault: &Fault) -> (String, String) {
    (fault.kind.clone(), fault.object.clone())
}

fn told_by(faults: &[Fault]) -> Told {
    faults.iter().map(|fault| (key(fault), Some(fault.severity))).collect()
}

/// Whether it is told. What somebody wanted so, or mends itself, is not.
fn matters(severity: Severity) -> bool {
    severity > Severity::Informational
}

/// What is to be told, by what was told last.
fn events(told: &Told, faults: &[Fault]) -> Vec<Event> {
    let now = told_by(faults);
    let begun = faults
        .iter()
        .filter(|fault| matters(fault.severity) && told.get(&key(fault)) != Some(&Some(fault.severity)))
        .map(|fault| Event::Is(fault.clone()));
    let is_now = |key| now.get(key).copied().flatten().is_some_and(matters);
    let over = told
        .iter()
        .filter(|(key, severity)| severity.is_none_or(matters) && !is_now(*key))
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
