//! What an error of etcd's client says of the request: refused, surely not done, or nobody knows.

use std::error::Error;

use etcd_client::Error as EtcdError;
use spandrel_cluster::store::{Revision, StoreError, StoreErrorKind};
use tonic::{Code, ConnectError, Status};

/// A request that failed.
#[derive(Debug)]
pub struct Failure {
    /// What follows from it.
    pub verdict: Verdict,
    /// What happened, for the log.
    pub detail: String,
}

/// What follows from a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// etcd has decided: every member would say the same, and nothing was changed.
    Refused(StoreErrorKind),
    /// This member has done nothing with it. Another one may.
    NotDone,
    /// It may be done already, later, or never.
    Unknown,
}

impl Failure {
    /// No answer in time.
    pub fn silence() -> Self {
        Self { verdict: Verdict::Unknown, detail: "no answer in time".to_owned() }
    }

    /// The error for a caller. `silence` is the kind where nobody knows.
    pub fn into_error(self, silence: StoreErrorKind) -> StoreError {
        let kind = match self.verdict {
            Verdict::Refused(kind) => kind,
            Verdict::NotDone => StoreErrorKind::Unavailable,
            Verdict::Unknown => silence,
        };
        StoreError::new(kind, self.detail)
    }
}

impl From<EtcdError> for Failure {
    fn from(error: EtcdError) -> Self {
        let verdict = match &error {
            EtcdError::GRpcStatus(status) => of_status(status),
            EtcdError::TransportError(error) if is_no_connection(error) => Verdict::NotDone,
            // The client says so in words alone.
            EtcdError::LeaseKeepAliveError(detail) if detail == "lease not found" => {
                Verdict::Refused(StoreErrorKind::LeaseGone)
            }
            EtcdError::InvalidArgs(_) | EtcdError::InvalidUri(_) => Verdict::Refused(StoreErrorKind::Invalid),
            _ => Verdict::Unknown,
        };
        Self { verdict, detail: chain(&error) }
    }
}

/// etcd's own errors are told by their texts: several share a code.
fn of_status(status: &Status) -> Verdict {
    let message = status.message();
    match (status.code(), message.strip_prefix("etcdserver: ")) {
        _ if is_no_connection(status) => Verdict::NotDone,
        (_, Some("no leader")) => Verdict::NotDone,
        // Too many requests, or no room in its database: it did not take the change.
        (Code::ResourceExhausted, Some(_)) => Verdict::NotDone,
        (Code::NotFound, Some("requested lease not found")) => Verdict::Refused(StoreErrorKind::LeaseGone),
        (_, Some("mvcc: required revision has been compacted")) => {
            Verdict::Refused(StoreErrorKind::Compacted { oldest: Revision::ZERO })
        }
        (Code::InvalidArgument | Code::OutOfRange, Some(_)) => Verdict::Refused(StoreErrorKind::Invalid),
        _ => Verdict::Unknown,
    }
}

/// Whether there was no connection on which it could have been sent.
fn is_no_connection(error: &(dyn Error + 'static)) -> bool {
    causes(Some(error)).any(|error| error.is::<ConnectError>())
}

fn causes<'e>(error: Option<&'e (dyn Error + 'static)>) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(error, |error| Error::source(*error))
}

/// The error with its causes.
fn chain(error: &EtcdError) -> String {
    let mut text = error.to_string();
    let status = match error {
        EtcdError::GRpcStatus(status) => status.source(),
        EtcdError::TransportError(error) => error.source(),
        _ => None,
    };
    for cause in causes(status) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text += &format!(": {cause}");
        }
    }
    text
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
