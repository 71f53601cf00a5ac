//! Watches: a stream of changes from one member.

use std::sync::Arc;

use etcd_client::{WatchOptions, WatchResponse, WatchStream};
use spandrel_cluster::store::{Event, Revision, StateWatch, StoreError, StoreErrorKind};
use tokio::sync::mpsc;

use crate::Connection;
use crate::convert::{self, Namespace};
use crate::failure::Failure;
use crate::members::{Member, Members};

/// Messages that wait to be taken. More of them wait at etcd.
const WAITING_MAX: usize = 16;

pub(crate) type Message = Result<Vec<Event>, StoreError>;

/// A watch on the state. Ends when dropped, and keeps the state's connections as long.
pub struct EtcdWatch {
    _connection: Arc<Connection>,
    messages: mpsc::Receiver<Message>,
}

impl EtcdWatch {
    /// A watch whose messages come from [`begin`].
    pub(crate) fn new(connection: Arc<Connection>, messages: mpsc::Receiver<Message>) -> Self {
        Self { _connection: connection, messages }
    }
}

impl StateWatch for EtcdWatch {
    async fn next(&mut self) -> Message {
        self.messages.recv().await.unwrap_or_else(|| Err(unavailable("the watch has ended")))
    }
}

/// Begins a watch at the member that is asked at present.
pub async fn begin(
    members: Arc<Members>,
    namespace: Namespace,
    prefix: &str,
    from: Revision,
) -> Result<mpsc::Receiver<Message>, StoreError> {
    // One revision earlier, whose changes are left out: etcd lets a watch begin at the very revision up to which it
    // has forgotten the history, but no longer knows all that changed there.
    let start = convert::revision_number(from).saturating_sub(1).max(1);
    let prefix = namespace.outer(prefix);
    let begin = |member: Member| {
        let prefix = prefix.clone();
        async move {
            let options = WatchOptions::new().with_start_revision(start);
            let options = if prefix.is_empty() { options.with_all_keys() } else { options.with_prefix() };
            Ok((member.turn, member.watches().watch(prefix, Some(options)).await?))
        }
    };
    let (turn, stream) = members.repeat(StoreErrorKind::Unavailable, begin).await?;
    let (sender, messages) = mpsc::channel(WAITING_MAX);
    tokio::spawn(async move {
        tokio::select! {
            () = sender.closed() => {}
            () = forward(stream, &namespace, from, &sender) => {}
            () = members.left(turn) => {
                drop(sender.send(Err(unavailable("the member that was watched has failed"))).await);
            }
        }
    });
    Ok(messages)
}

/// Passes on what the stream brings, until an error ends it.
async fn forward(
    mut stream: WatchStream,
    namespace: &Namespace,
    mut from: Revision,
    sender: &mpsc::Sender<Message>,
) {
    loop {
        let message = match stream.message().await {
            Ok(Some(response)) => events(&response, namespace, from),
            Ok(None) => Err(unavailable("etcd has ended the watch")),
            Err(error) => Err(Failure::from(error).into_error(StoreErrorKind::Unavailable)),
        };
        // The first answer, and others, bring no change.
        if matches!(&message, Ok(events) if events.is_empty()) {
            continue;
        }
        if let Ok(Some(last)) = message.as_ref().map(|events| events.last()) {
            // A member that was given the whole state anew may tell its watches of the past once more.
            from = last.revision().next();
        }
        let is_over = message.is_err();
        if sender.send(message).await.is_err() || is_over {
            return;
        }
    }
}

/// The changes of a message, from `from` on. etcd sends those of one revision in one message.
fn events(response: &WatchResponse, namespace: &Namespace, from: Revision) -> Message {
    if response.canceled() {
        return Err(match u64::try_from(response.compact_revision()) {
            Ok(compacted) if compacted > 0 => {
                let oldest = Revision(compacted).next();
                StoreError::new(StoreErrorKind::Compacted { oldest }, format!("compacted up to {compacted}"))
            }
            _ => unavailable(response.cancel_reason()),
        });
    }
    let events = response.events().iter().map(|event| namespace.event(event));
    let events = events.collect::<Result<Vec<_>, _>>();
    let mut events = events.map_err(|nonsense| nonsense.error(StoreErrorKind::Unavailable))?;
    events.retain(|event| event.revision() >= from);
    Ok(events)
}

fn unavailable(detail: &str) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, detail)
}
