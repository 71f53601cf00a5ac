//! The protocol of one connection, without any I/O: bytes of the wire go in and come out, and so do those of the
//! application.
//!
//! Invariant: rustls may count on what has arrived and is not done with, for as long as it is not done with it. So
//! whoever asks a session for anything shows it the very bytes that were left last time.

use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use crate::TlsSettings;

/// Bytes of the application in one record.
const RECORD_BYTES_MAX: usize = 16 << 10;

/// What a record of TLS 1.3 adds to its content: a header, the content's type and the tag of the cipher.
const RECORD_EXTRA_BYTES: usize = 5 + 1 + 16;

/// The side of a connection that this process is.
pub(crate) enum Session {
    Client(Box<UnbufferedClientConnection>),
    Server(Box<UnbufferedServerConnection>),
}

/// What a session waits for when it has done all that it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// The other side's part of the handshake.
    Handshake,
    /// Whatever the other side sends. This side may send as well.
    Open,
    /// Nothing: the other side has ended the connection in order.
    Over,
}

/// What comes out of a session that moves on.
#[derive(Debug, Default)]
pub(crate) struct Output {
    /// For the other side.
    pub wire: Vec<u8>,
    /// For this side's receiver.
    pub plain: Vec<u8>,
}

/// What one step came to.
enum Step {
    Again,
    Wait(Wait),
}

impl Session {
    /// The side that connects.
    pub(crate) fn client(settings: &TlsSettings) -> Result<Self, Error> {
        let client =
            UnbufferedClientConnection::new(Arc::clone(&settings.client), settings.common_name.clone());
        Ok(Self::Client(Box::new(client?)))
    }

    /// The side to which the other has come.
    pub(crate) fn server(settings: &TlsSettings) -> Result<Self, Error> {
        Ok(Self::Server(Box::new(UnbufferedServerConnection::new(Arc::clone(&settings.server))?)))
    }

    /// Moves on with what has arrived until more must arrive. Returns how many bytes of `arrived` are done with.
    pub(crate) fn advance(
        &mut self,
        arrived: &mut [u8],
        output: &mut Output,
    ) -> (usize, Result<Wait, Error>) {
        let mut done = 0;
        loop {
            let (discard, step) = match self {
                Self::Client(client) => take_step(client.process_tls_records(&mut arrived[done..]), output),
                Self::Server(server) => take_step(server.process_tls_records(&mut arrived[done..]), output),
            };
            done += discard;
            match step {
                Ok(Step::Again) => {}
                Ok(Step::Wait(wait)) => return (done, Ok(wait)),
                Err(error) => {
                    self.take_alert(&mut arrived[done..], output);
                    return (done, Err(error));
                }
            }
        }
    }

    /// What the other side is to be told of an error, if anything. Nothing can be asked of the session afterwards: a
    /// second step would go on with what has arrived, which rustls forbids once it has said why it ends.
    fn take_alert(&mut self, arrived: &mut [u8], output: &mut Output) {
        let (_, told) = match self {
            Self::Client(client) => take_step(client.process_tls_records(arrived), output),
            Self::Server(server) => take_step(server.process_tls_records(arrived), output),
        };
        // The error itself may come again, which is no news.
        drop(told);
    }

    /// Bytes that `plain_bytes` of the application become at most.
    pub(crate) fn wire_bytes(plain_bytes: usize) -> usize {
        // One more record: one that renews the keys may stand in front.
        plain_bytes + (plain_bytes.div_ceil(RECORD_BYTES_MAX) + 1) * (RECORD_EXTRA_BYTES + 8)
    }

    /// Encrypts for the other side into the front of `wire`, which has room for [`Session::wire_bytes`]. Returns how
    /// many bytes it has become. The session must be open, and have nothing to say itself.
    pub(crate) fn encrypt(
        &mut self,
        arrived: &mut [u8],
        plain: &[u8],
        wire: &mut [u8],
    ) -> Result<usize, Error> {
        match self {
            Self::Client(client) => encrypt_in(client.process_tls_records(arrived), plain, wire),
            Self::Server(server) => encrypt_in(server.process_tls_records(arrived), plain, wire),
        }
    }

    /// What tells the other side that nothing more comes.
    pub(crate) fn close(&mut self, arrived: &mut [u8]) -> Vec<u8> {
        let mut wire = vec![0; Self::wire_bytes(2)];
        let closed = match self {
            Self::Client(client) => close_in(client.process_tls_records(arrived), &mut wire),
            Self::Server(server) => close_in(server.process_tls_records(arrived), &mut wire),
        };
        wire.truncate(closed);
        wire
    }

    /// Whom the other side's certificate names, once it has shown it; empty if that names nobody.
    pub(crate) fn holder(&self, settings: &TlsSettings) -> Option<String> {
        let certificates = match self {
            Self::Client(client) => client.peer_certificates(),
            Self::Server(server) => server.peer_certificates(),
        };
        Some(settings.holder(certificates?.first()?).unwrap_or_default())
    }
}

fn take_step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    output: &mut Output,
) -> (usize, Result<Step, Error>) {
    let UnbufferedStatus { mut discard, state } = status;
    let step = match state {
        Ok(ConnectionState::ReadTraffic(mut traffic)) => loop {
            match traffic.next_record() {
                Some(Ok(record)) => {
                    discard += record.discard;
                    output.plain.extend_from_slice(record.payload);
                }
                Some(Err(error)) => break Err(error),
                None => break Ok(Step::Again),
            }
        },
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            let start = output.wire.len();
            let mut encoded = data.encode(&mut []);
            if let Err(EncodeError::InsufficientSize(size)) = &encoded {
                output.wire.resize(start + size.required_size, 0);
                encoded = data.encode(&mut output.wire[start..]);
            }
            encoded.map(|_| Step::Again).map_err(|error| Error::General(error.to_string()))
        }
        Ok(ConnectionState::TransmitTlsData(transmit)) => {
            // The caller sends all of the output before it waits for anything.
            transmit.done();
            Ok(Step::Again)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(Step::Wait(Wait::Handshake)),
        Ok(ConnectionState::WriteTraffic(_)) => Ok(Step::Wait(Wait::Open)),
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(Step::Wait(Wait::Over)),
        // Data before the handshake's end is asked for by nobody.
        Ok(state) => Err(Error::General(format!("an unexpected state: {state:?}"))),
        Err(error) => Err(error),
    };
    (discard, step)
}

fn encrypt_in<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    plain: &[u8],
    wire: &mut [u8],
) -> Result<usize, Error> {
    match status.state? {
        ConnectionState::WriteTraffic(mut traffic) => {
            traffic.encrypt(plain, wire).map_err(|error: EncryptError| Error::General(error.to_string()))
        }
        state => Err(Error::General(format!("nothing can be sent in the state {state:?}"))),
    }
}

fn close_in<Data>(status: UnbufferedStatus<'_, '_, Data>, wire: &mut [u8]) -> usize {
    match status.state {
        Ok(ConnectionState::WriteTraffic(mut traffic)) => traffic.queue_close_notify(wire).unwrap_or(0),
        _ => 0,
    }
}

/// An error in words for people who look for its cause.
pub(crate) fn explain(error: &Error) -> String {
    let cause = match error {
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "its certificate is not one of this cluster"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
        ) => "its certificate is that of another cluster",
        Error::InvalidCertificate(
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. },
        ) => "its certificate is not valid at this time: look at the clocks of both sides",
        Error::NoCertificatesPresented | Error::AlertReceived(AlertDescription::CertificateRequired) => {
            "no certificate was shown"
        }
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::DecryptError
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired,
        ) => "the other side does not accept this side's certificate",
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType | InvalidMessage::UnknownProtocolVersion,
        ) => "the other side does not speak TLS",
        _ => return error.to_string(),
    };
    format!("{cause} ({error})")
}

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
