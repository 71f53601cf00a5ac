//! Why a call brought no answer.

use std::fmt;

/// Why a call brought no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BusError {
    /// There is no session with the peer. Nothing was sent.
    NotConnected,
    /// The session broke before the answer came: the request was carried out, or not, or in part.
    SessionLost,
    /// The request, or what it asks for, is larger than a frame can be. Nothing was done; only an
    /// answer that alone turned out too large comes after the request was carried out.
    TooLarge,
    /// So many heartbeats are unanswered that no further one was sent.
    TooManyHeartbeats,
    /// The peer does not know this request. Nothing was done.
    NotUnderstood,
    /// The request's payload was damaged on the way. Nothing was done. (A request to copies gets
    /// their own answer for that, `ReplicaError::DamagedOnArrival`.)
    DamagedOnArrival,
    /// The answer's payload was damaged on the way. The request was carried out.
    AnswerDamaged,
    /// The answer does not fit the request, for this reason. What was done is not known.
    AnswerUnfit(&'static str),
}

impl BusError {
    /// Whether it is certain that the peer did nothing.
    pub fn nothing_done(&self) -> bool {
        matches!(
            self,
            BusError::NotConnected
                | BusError::TooManyHeartbeats
                | BusError::NotUnderstood
                | BusError::DamagedOnArrival
        )
    }
}

impl fmt::Display for BusError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BusError::NotConnected => formatter.write_str("there is no session with the node"),
            BusError::SessionLost => formatter.write_str("the session broke before the answer came"),
            BusError::TooLarge => formatter.write_str("the request or its answer is larger than a frame"),
            BusError::TooManyHeartbeats => formatter.write_str("too many heartbeats are unanswered"),
            BusError::NotUnderstood => formatter.write_str("the node does not know this request"),
            BusError::DamagedOnArrival => formatter.write_str("the data were damaged on the way to the node"),
            BusError::AnswerDamaged => formatter.write_str("the data were damaged on the way from the node"),
            BusError::AnswerUnfit(reason) => write!(formatter, "the node's answer does not fit: {reason}"),
        }
    }
}

impl std::error::Error for BusError {}
