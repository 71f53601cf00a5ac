//! What an error of etcd's client says of the request: refused, surely not done, or nobody knows.

use std::error::Error;

use etcd_client::Error as EtcdError;
use spandrel_cluster::store::{StoreError, StoreErrorKind};
use tonic::{Code, ConnectError, Status};

/// A request that failed.
#[derive(Debug)]
pub struct Failure {
    /// What follows from it.
    pub verdict: Verdict,
    /// It is this member's: another one had better be asked.
    pub is_of_the_member: bool,
    /// What happened, for the log.
    pub detail: String,
}

/// What follows from a failure for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// etcd has decided: every member would say the same, and nothing was changed.
    Refused(StoreErrorKind),
    /// Nothing was done with it, and nothing will be. It can be sent again.
    NotDone,
    /// It may be done already, later, or never.
    Unknown,
}

impl Failure {
    /// No answer in time.
    pub fn silence() -> Self {
        Self { verdict: Verdict::Unknown, is_of_the_member: true, detail: "no answer in time".to_owned() }
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
        let (verdict, is_of_the_member) = match &error {
            EtcdError::GRpcStatus(status) => of_status(status),
            EtcdError::TransportError(error) if is_no_connection(error) => (Verdict::NotDone, true),
            // The client says so in words alone.
            EtcdError::LeaseKeepAliveError(detail) if detail == "lease not found" => {
                (Verdict::Refused(StoreErrorKind::LeaseGone), false)
            }
            EtcdError::InvalidArgs(_) | EtcdError::InvalidUri(_) => {
                (Verdict::Refused(StoreErrorKind::Invalid), false)
            }
            _ => (Verdict::Unknown, true),
        };
        Self { verdict, is_of_the_member, detail: chain(&error) }
    }
}

/// The verdict, and whether it is the member's failure. etcd's own errors are told by their texts: several share a
/// code.
fn of_status(status: &Status) -> (Verdict, bool) {
    use StoreErrorKind::{Invalid, LeaseGone};
    let Some(words) = status.message().strip_prefix("etcdserver: ") else {
        // The connection's, not etcd's.
        let verdict = if is_no_connection(status) { Verdict::NotDone } else { Verdict::Unknown };
        return (verdict, true);
    };
    match (status.code(), words) {
        (_, "no leader" | "not leader" | "rpc not supported for learner") => (Verdict::NotDone, true),
        (_, "too many requests" | "unhealthy cluster") => (Verdict::NotDone, false),
        // What made the database full was taken, and refused in the same words as what comes after it.
        (_, "mvcc: database space exceeded") => (Verdict::Unknown, false),
        (Code::NotFound, "requested lease not found") => (Verdict::Refused(LeaseGone), false),
        (Code::InvalidArgument | Code::OutOfRange | Code::FailedPrecondition | Code::NotFound, _) => {
            (Verdict::Refused(Invalid), false)
        }
        _ => (Verdict::Unknown, true),
    }
}

/// What etcd says of a compaction that was done before.
pub const COMPACTED: &str = "mvcc: required revision has been compacted";

/// What etcd says of a promotion of a member that has a vote already.
pub const NO_LEARNER: &str = "can only promote a learner member";

/// What etcd says of a member that is not there.
pub const NO_MEMBER: &str = "member not found";

/// Takes a request that was refused in these words, since it was done before, for done.
pub fn done_before<T>(result: Result<T, EtcdError>, words: &str) -> Result<(), EtcdError> {
    match result {
        Err(EtcdError::GRpcStatus(status))
            if status.message().strip_prefix("etcdserver: ") == Some(words) =>
        {
            Ok(())
        }
        result => result.map(drop),
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
    let mut text = match error {
        // Its own text is written for who debugs it.
        EtcdError::GRpcStatus(status) if !status.message().is_empty() => status.message().to_owned(),
        error => error.to_string(),
    };
    let cause = match error {
        EtcdError::GRpcStatus(status) => status.source(),
        EtcdError::TransportError(error) => error.source(),
        _ => None,
    };
    for cause in causes(cause) {
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
