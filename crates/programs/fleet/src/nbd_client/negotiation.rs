//! How a client opens an export: fixed newstyle, structured replies if the server has them, GO.

use spandrel_platform::Connection;

use super::Export;
use super::error::NbdError;
use super::protocol::{
    GREETING_MAGIC, HANDSHAKE_FIXED_NEWSTYLE, HANDSHAKE_NO_ZEROES, OPTION_MAGIC, OPTION_REPLY_MAGIC, go_data,
    information, option, option_bytes, option_reply, transmission_flags, u16_at, u32_at, u64_at,
};
use super::receiver::Receiver;

/// The longest reply to an option: a name, a description or a message of 4096 bytes, and a few
/// numbers.
const REPLY_BYTES_MAX: u32 = 8192;

/// What a server that names no sizes takes in one request, by the protocol's word.
const REQUEST_BYTES_MAX_UNSAID: u32 = 32 << 20;

/// Opens `name`. The receiver is the connection's.
pub(super) async fn negotiate<C: Connection>(
    connection: &C,
    receiver: &mut Receiver<C>,
    name: &str,
) -> Result<Export, NbdError> {
    greet(connection, receiver).await?;
    connection.send(&option_bytes(option::STRUCTURED_REPLY, &[]), &[]);
    let reply = receive_reply(receiver, option::STRUCTURED_REPLY).await?;
    let structured_replies = match reply.kind {
        option_reply::ACKNOWLEDGED => true,
        kind if kind & option_reply::ERROR != 0 => false,
        kind => return Err(unexpected(option::STRUCTURED_REPLY, kind)),
    };
    connection.send(&option_bytes(option::GO, &go_data(name)), &[]);
    let mut size_and_flags = None;
    let mut limits = (1, REQUEST_BYTES_MAX_UNSAID);
    loop {
        let reply = receive_reply(receiver, option::GO).await?;
        match reply.kind {
            option_reply::ACKNOWLEDGED => break,
            option_reply::INFO => match (reply.information(), reply.data.len()) {
                (Some(information::EXPORT), 12) => {
                    size_and_flags = Some((u64_at(&reply.data, 2), u16_at(&reply.data, 10)));
                }
                (Some(information::BLOCK_SIZE), 14) => {
                    limits = (u32_at(&reply.data, 2), u32_at(&reply.data, 10));
                }
                (Some(information::EXPORT | information::BLOCK_SIZE) | None, length) => {
                    return Err(NbdError::Protocol(format!("information of {length} bytes")));
                }
                _ => {}
            },
            kind if kind & option_reply::ERROR != 0 => return Err(refusal(name, &reply)),
            kind => return Err(unexpected(option::GO, kind)),
        }
    }
    let Some((size_bytes, flags)) = size_and_flags else {
        return Err(NbdError::Protocol("an export without a size".to_owned()));
    };
    Ok(Export {
        size_bytes,
        request_bytes_min: limits.0.max(1),
        request_bytes_max: limits.1,
        read_only: flags & transmission_flags::READ_ONLY != 0,
        can_flush: flags & transmission_flags::SEND_FLUSH != 0,
        can_trim: flags & transmission_flags::SEND_TRIM != 0,
        can_write_zeroes: flags & transmission_flags::SEND_WRITE_ZEROES != 0,
        structured_replies,
    })
}

async fn greet<C: Connection>(connection: &C, receiver: &mut Receiver<C>) -> Result<(), NbdError> {
    let greeting = receiver.exactly(18).await?;
    let (first, second, flags) = (u64_at(greeting, 0), u64_at(greeting, 8), u16_at(greeting, 16));
    if first != GREETING_MAGIC {
        return Err(NbdError::Protocol(format!("it is no NBD server: it begins with {first:#018x}")));
    }
    if second != OPTION_MAGIC || flags & HANDSHAKE_FIXED_NEWSTYLE == 0 {
        return Err(NbdError::Refused(
            "it speaks an old form of the protocol, not fixed newstyle".to_owned(),
        ));
    }
    let chosen = flags & (HANDSHAKE_FIXED_NEWSTYLE | HANDSHAKE_NO_ZEROES);
    connection.send(&u32::from(chosen).to_be_bytes(), &[]);
    Ok(())
}

struct OptionReply {
    kind: u32,
    data: Vec<u8>,
}

impl OptionReply {
    /// Which information it carries.
    fn information(&self) -> Option<u16> {
        (self.data.len() >= 2).then(|| u16_at(&self.data, 0))
    }
}

async fn receive_reply<C: Connection>(
    receiver: &mut Receiver<C>,
    option: u32,
) -> Result<OptionReply, NbdError> {
    let head = receiver.exactly(20).await?;
    let (magic, asked) = (u64_at(head, 0), u32_at(head, 8));
    let (kind, length) = (u32_at(head, 12), u32_at(head, 16));
    if magic != OPTION_REPLY_MAGIC || asked != option || length > REPLY_BYTES_MAX {
        return Err(NbdError::Protocol(format!(
            "option {option} is answered with {magic:#018x} for option {asked} with {length} bytes"
        )));
    }
    let data = receiver.exactly(length as usize).await?.to_vec();
    Ok(OptionReply { kind, data })
}

fn unexpected(option: u32, kind: u32) -> NbdError {
    NbdError::Protocol(format!("option {option} is answered with reply {kind}"))
}

/// Why the server does not open the export, in its words if it has any.
fn refusal(name: &str, reply: &OptionReply) -> NbdError {
    let text = String::from_utf8_lossy(&reply.data);
    let reason = match reply.kind {
        option_reply::ERROR_UNKNOWN => format!("there is no export {name:?}"),
        option_reply::ERROR_POLICY => format!("the use of {name:?} is not allowed"),
        option_reply::ERROR_TLS_REQUIRED => "it wants TLS".to_owned(),
        option_reply::ERROR_SHUTDOWN => "it is shutting down".to_owned(),
        option_reply::ERROR_UNSUPPORTED => "it does not know how to open an export by GO".to_owned(),
        kind => format!("error {} for {name:?}", kind & !option_reply::ERROR),
    };
    NbdError::Refused(if text.is_empty() { reason } else { format!("{reason}: {text}") })
}
