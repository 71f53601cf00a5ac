//! The front of a reply or of a chunk of one: its header with the fields of fixed size behind it.
//!
//! | kind         | bytes                                                                          |
//! |--------------|--------------------------------------------------------------------------------|
//! | simple reply | magic 0x67446698 (4), error (4), cookie (8); then a read's data                  |
//! | any chunk    | magic 0x668e33ef (4), flags (2), type (2), cookie (8), length of the payload (4) |
//! | data         | the payload is offset (8), then the data                                       |
//! | hole         | the payload is offset (8), length (4)                                          |
//! | error        | the payload is error (4), length of the text (2), text, sometimes an offset    |

use super::error::NbdError;
use super::protocol::{
    CHUNK_DONE, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk_type, u16_at, u32_at, u64_at,
};

const SIMPLE_REPLY_BYTES: usize = 16;
const CHUNK_BYTES: usize = 20;
const DATA_FIELDS_BYTES: u32 = 8;
const HOLE_FIELDS_BYTES: u32 = 12;
const ERROR_FIELDS_BYTES: u32 = 6;

/// The longest payload of an error: the longest text that the protocol allows, and an offset.
const ERROR_PAYLOAD_BYTES_MAX: u32 = ERROR_FIELDS_BYTES + 4096 + 8;

/// What a front says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Front {
    /// The whole answer to any request but a read, or the front of the answer to a read.
    Simple { error: u32 },
    /// `length` bytes of data from `offset` on follow.
    Data { offset: u64, length: u32 },
    /// `length` bytes from `offset` on are zeros.
    Hole { offset: u64, length: u32 },
    /// The request failed. `rest` bytes of explanation follow.
    Error { number: u32, rest: u32 },
    /// There is nothing more to say.
    End,
}

/// A front, the request it belongs to, and how many bytes it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrontOfReply {
    pub(super) cookie: u64,
    pub(super) front: Front,
    /// Whether nothing of the reply comes behind what the front announces.
    pub(super) last: bool,
    pub(super) bytes: usize,
}

/// The front that `bytes` begin with; none if they are only a part of one.
pub(super) fn parse_front(bytes: &[u8]) -> Result<Option<FrontOfReply>, NbdError> {
    if bytes.len() < SIMPLE_REPLY_BYTES {
        return Ok(None);
    }
    match u32_at(bytes, 0) {
        SIMPLE_REPLY_MAGIC => {
            let front = Front::Simple { error: u32_at(bytes, 4) };
            let cookie = u64_at(bytes, 8);
            Ok(Some(FrontOfReply { cookie, front, last: true, bytes: SIMPLE_REPLY_BYTES }))
        }
        STRUCTURED_REPLY_MAGIC if bytes.len() < CHUNK_BYTES => Ok(None),
        STRUCTURED_REPLY_MAGIC => parse_chunk(bytes),
        magic => Err(NbdError::Protocol(format!("a reply begins with {magic:#010x}"))),
    }
}

fn parse_chunk(bytes: &[u8]) -> Result<Option<FrontOfReply>, NbdError> {
    let (flags, kind) = (u16_at(bytes, 4), u16_at(bytes, 6));
    let (cookie, length) = (u64_at(bytes, 8), u32_at(bytes, 16));
    let valid = match kind {
        chunk_type::NONE => length == 0,
        chunk_type::OFFSET_DATA => length > DATA_FIELDS_BYTES,
        chunk_type::OFFSET_HOLE => length == HOLE_FIELDS_BYTES,
        _ => {
            kind & chunk_type::ERROR != 0 && (ERROR_FIELDS_BYTES..=ERROR_PAYLOAD_BYTES_MAX).contains(&length)
        }
    };
    if !valid {
        return Err(NbdError::Protocol(format!("a chunk of type {kind} has {length} bytes")));
    }
    let fields = match kind {
        chunk_type::NONE => 0,
        chunk_type::OFFSET_DATA => DATA_FIELDS_BYTES,
        chunk_type::OFFSET_HOLE => HOLE_FIELDS_BYTES,
        _ => ERROR_FIELDS_BYTES,
    };
    let front_bytes = CHUNK_BYTES + fields as usize;
    if bytes.len() < front_bytes {
        return Ok(None);
    }
    let front = match kind {
        chunk_type::NONE => Front::End,
        chunk_type::OFFSET_DATA => Front::Data { offset: u64_at(bytes, 20), length: length - fields },
        chunk_type::OFFSET_HOLE => Front::Hole { offset: u64_at(bytes, 20), length: u32_at(bytes, 28) },
        _ => Front::Error { number: u32_at(bytes, 20), rest: length - fields },
    };
    Ok(Some(FrontOfReply { cookie, front, last: flags & CHUNK_DONE != 0, bytes: front_bytes }))
}
