//! How the cluster's state is asked for what has to be done: again and again, until it answers.

use std::future::Future;
use std::time::Duration;

use spandrel_cluster::StateError;
use spandrel_cluster::store::StateStore;
use spandrel_platform::Platform;
use spandrel_shared::Error;

use crate::parts::NodeParts;

/// How long to wait before the cluster's state is asked again.
const STATE_RETRY: Duration = Duration::from_millis(100);

/// Repeats an attempt that could not reach the store, or whose outcome is not known: it must have
/// the same effect as once.
pub(crate) async fn retry_store<P: Platform, S: StateStore, T, F>(
    parts: &NodeParts<P, S>,
    attempt: impl Fn() -> F,
) -> Result<T, StateError>
where
    F: Future<Output = Result<T, StateError>>,
{
    loop {
        match attempt().await {
            Err(StateError::Store(error)) => {
                tracing::warn!("the cluster's state: {error}; trying again");
                parts.platform.sleep(STATE_RETRY).await;
            }
            outcome => return outcome,
        }
    }
}

/// The same, also repeating what met a change by somebody else.
pub(crate) async fn retry<P: Platform, S: StateStore, T, F>(
    parts: &NodeParts<P, S>,
    attempt: impl Fn() -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, StateError>>,
{
    loop {
        match retry_store(parts, &attempt).await {
            Err(StateError::Conflict) => {}
            outcome => return outcome.map_err(state_error),
        }
    }
}

/// The error that a person sees.
pub(crate) fn state_error(error: StateError) -> Error {
    match error {
        StateError::Refused(error) => error,
        error => Error::new(
            "STATE_UNAVAILABLE",
            "the cluster's state could not be changed",
            error.to_string(),
            "try again; if it stays so, look whether the cluster's state is reachable",
        ),
    }
}
