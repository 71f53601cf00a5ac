//! How the use of an NBD server can fail.

use std::fmt;

use spandrel_platform::LinkError;

use super::protocol::Request;

/// Why an export could not be opened, or a request was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NbdError {
    /// The server cannot be reached, or the connection to it broke.
    Link(LinkError),
    /// The server closed the connection.
    Closed,
    /// The server does not let this client use the export. The text says why.
    Refused(String),
    /// The server did not answer in time.
    Silent(String),
    /// The server said something that the protocol does not allow. The connection is of no use
    /// any more.
    Protocol(String),
    /// The request is one that the export does not take; it was not sent.
    Invalid(String),
    /// The server answered a request with an error.
    Failed(RequestFailure),
}

impl fmt::Display for NbdError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NbdError::Link(error) => write!(formatter, "{error}"),
            NbdError::Closed => formatter.write_str("the server closed the connection"),
            NbdError::Refused(why) => write!(formatter, "the server refuses: {why}"),
            NbdError::Silent(what) => write!(formatter, "the server did not answer {what}"),
            NbdError::Protocol(what) => write!(formatter, "the server does not keep to the protocol: {what}"),
            NbdError::Invalid(why) => formatter.write_str(why),
            NbdError::Failed(failure) => write!(formatter, "{failure}"),
        }
    }
}

impl std::error::Error for NbdError {}

impl From<LinkError> for NbdError {
    fn from(error: LinkError) -> Self {
        NbdError::Link(error)
    }
}

/// A request that the server answered with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFailure {
    pub(crate) request: Request,
    /// The protocol's number of the error, which is Linux's.
    pub number: u32,
}

impl RequestFailure {
    /// The error in words.
    pub fn reason(&self) -> String {
        let name = match self.number {
            1 => "not permitted",
            5 => "I/O error",
            12 => "out of memory",
            22 => "invalid request",
            28 => "no room",
            75 => "too long",
            95 => "not supported",
            108 => "the server is shutting down",
            number => return format!("error {number}"),
        };
        name.to_owned()
    }
}

impl fmt::Display for RequestFailure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Request { command, offset, length } = self.request;
        write!(formatter, "{} of {length} bytes at byte {offset}: {}", command.name(), self.reason())
    }
}
