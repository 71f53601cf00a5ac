//! The NBD protocol's numbers, and the messages of its transmission phase as bytes.
//!
//! Everything is big-endian. A client sends requests of [`RequestHeader::BYTES`] each, a write's
//! data right behind its header:
//!
//! | bytes | field                                            |
//! |-------|--------------------------------------------------|
//! | 4     | magic 0x25609513                                 |
//! | 2     | command flags                                    |
//! | 2     | command                                          |
//! | 8     | cookie: the client's name for the request        |
//! | 8     | offset                                           |
//! | 4     | length                                           |
//!
//! A simple reply is magic 0x67446698, error (4), cookie (8), then a read's data. A structured
//! reply is a row of chunks, each with magic 0x668e33ef, flags (2), type (2), cookie (8), length
//! of the payload (4), payload.
//!
//! Nothing here does I/O or allocates by a number that the other side chose.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first eight bytes that a server sends.
pub(super) const GREETING_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Follows the greeting, and begins each option.
pub(super) const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Begins each reply to an option.
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Begins each request.
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Begins each simple reply.
pub(super) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Begins each chunk of a structured reply.
pub(super) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// The longest text that the protocol allows: export names and error messages.
pub(super) const STRING_BYTES_MAX: usize = 4096;

/// Flags that the server and the client exchange first; both sides use the same bits.
pub(super) mod handshake_flags {
    /// Options other than the export's name are understood and answered.
    pub(in crate::nbd) const FIXED_NEWSTYLE: u16 = 1 << 0;
    /// No padding behind the answer to an export's name.
    pub(in crate::nbd) const NO_ZEROES: u16 = 1 << 1;
}

/// What an export can do.
pub(super) mod transmission_flags {
    pub(in crate::nbd) const HAS_FLAGS: u16 = 1 << 0;
    pub(in crate::nbd) const READ_ONLY: u16 = 1 << 1;
    pub(in crate::nbd) const SEND_FLUSH: u16 = 1 << 2;
    pub(in crate::nbd) const SEND_FUA: u16 = 1 << 3;
    pub(in crate::nbd) const SEND_TRIM: u16 = 1 << 5;
    pub(in crate::nbd) const SEND_WRITE_ZEROES: u16 = 1 << 6;
    pub(in crate::nbd) const SEND_DF: u16 = 1 << 7;
    pub(in crate::nbd) const CAN_MULTI_CONN: u16 = 1 << 8;
    pub(in crate::nbd) const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// What a client asks for during negotiation.
pub(super) mod option {
    pub(in crate::nbd) const EXPORT_NAME: u32 = 1;
    pub(in crate::nbd) const ABORT: u32 = 2;
    pub(in crate::nbd) const LIST: u32 = 3;
    pub(in crate::nbd) const STARTTLS: u32 = 5;
    pub(in crate::nbd) const INFO: u32 = 6;
    pub(in crate::nbd) const GO: u32 = 7;
    pub(in crate::nbd) const STRUCTURED_REPLY: u32 = 8;
    pub(in crate::nbd) const LIST_META_CONTEXT: u32 = 9;
    pub(in crate::nbd) const SET_META_CONTEXT: u32 = 10;
}

/// How an option is answered.
pub(super) mod option_reply {
    pub(in crate::nbd) const ACKNOWLEDGED: u32 = 1;
    pub(in crate::nbd) const SERVER: u32 = 2;
    pub(in crate::nbd) const INFO: u32 = 3;
    pub(in crate::nbd) const META_CONTEXT: u32 = 4;
    pub(in crate::nbd) const ERROR_UNSUPPORTED: u32 = (1 << 31) + 1;
    pub(in crate::nbd) const ERROR_POLICY: u32 = (1 << 31) + 2;
    pub(in crate::nbd) const ERROR_INVALID: u32 = (1 << 31) + 3;
    pub(in crate::nbd) const ERROR_UNKNOWN: u32 = (1 << 31) + 6;
    pub(in crate::nbd) const ERROR_SHUTDOWN: u32 = (1 << 31) + 7;
}

/// The kinds of information about an export.
pub(super) mod information {
    pub(in crate::nbd) const EXPORT: u16 = 0;
    pub(in crate::nbd) const NAME: u16 = 1;
    pub(in crate::nbd) const DESCRIPTION: u16 = 2;
    pub(in crate::nbd) const BLOCK_SIZE: u16 = 3;
}

/// How a request is to be done.
pub(super) mod command_flags {
    /// Answer only when durable. Every answered change is, so there is nothing to do for it.
    pub(in crate::nbd) const FUA: u16 = 1 << 0;
    /// Write zeroes without giving room back.
    pub(in crate::nbd) const NO_HOLE: u16 = 1 << 1;
    /// Answer a read with at most one content chunk.
    pub(in crate::nbd) const DONT_FRAGMENT: u16 = 1 << 2;
    /// Answer a block status with one extent.
    pub(in crate::nbd) const REQUEST_ONE: u16 = 1 << 3;
    /// Write zeroes only if that is faster than writing data.
    pub(in crate::nbd) const FAST_ZERO: u16 = 1 << 4;
}

/// The flag of a chunk that is its reply's last one.
pub(super) const CHUNK_DONE: u16 = 1 << 0;

/// What a chunk holds.
pub(super) mod chunk_type {
    pub(in crate::nbd) const NONE: u16 = 0;
    pub(in crate::nbd) const OFFSET_DATA: u16 = 1;
    pub(in crate::nbd) const OFFSET_HOLE: u16 = 2;
    pub(in crate::nbd) const BLOCK_STATUS: u16 = 5;
    pub(in crate::nbd) const ERROR: u16 = (1 << 15) + 1;
}

/// The one metadata context there is.
pub(super) const ALLOCATION_CONTEXT: &str = "base:allocation";
/// Asks which contexts the standard's own namespace has.
pub(super) const ALLOCATION_NAMESPACE: &str = "base:";
/// The number of [`ALLOCATION_CONTEXT`] in the replies of a session that selected it.
pub(super) const ALLOCATION_CONTEXT_ID: u32 = 1;
/// Nothing is stored there.
pub(super) const STATE_HOLE: u32 = 1 << 0;
/// It reads as zeros.
pub(super) const STATE_ZERO: u32 = 1 << 1;

/// Why a request failed, as the protocol numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum ErrorNumber {
    NotPermitted = 1,
    InputOutput = 5,
    Invalid = 22,
    NoSpace = 28,
    Overflow = 75,
    NotSupported = 95,
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Read,
    Write,
    Disconnect,
    Flush,
    Trim,
    WriteZeroes,
    BlockStatus,
    /// Not known here; it has no data behind its header.
    Unknown(u16),
}

impl Command {
    pub(super) const fn from_number(number: u16) -> Self {
        match number {
            0 => Command::Read,
            1 => Command::Write,
            2 => Command::Disconnect,
            3 => Command::Flush,
            4 => Command::Trim,
            6 => Command::WriteZeroes,
            7 => Command::BlockStatus,
            other => Command::Unknown(other),
        }
    }

    /// Whether it may alter what the device holds.
    pub(super) const fn is_change(self) -> bool {
        matches!(self, Command::Write | Command::Trim | Command::WriteZeroes)
    }
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireRequest {
    magic: U32,
    flags: U16,
    command: U16,
    cookie: U64,
    offset: U64,
    length: U32,
}

/// A request without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestHeader {
    pub(super) flags: u16,
    pub(super) command: Command,
    pub(super) cookie: u64,
    pub(super) offset: u64,
    pub(super) length: u32,
}

impl RequestHeader {
    /// Bytes that a header takes on the wire.
    pub(super) const BYTES: usize = size_of::<WireRequest>();

    /// The header at the front of `bytes`, which are at least [`Self::BYTES`]. An error holds
    /// the number that stands where the magic should.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, u32> {
        let (wire, _) = WireRequest::ref_from_prefix(bytes).expect("the caller has received a whole header");
        if wire.magic.get() != REQUEST_MAGIC {
            return Err(wire.magic.get());
        }
        Ok(Self {
            flags: wire.flags.get(),
            command: Command::from_number(wire.command.get()),
            cookie: wire.cookie.get(),
            offset: wire.offset.get(),
            length: wire.length.get(),
        })
    }
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct WireSimpleReply {
    magic: U32,
    error: U32,
    cookie: U64,
}

/// A simple reply: to a read, with the data right behind it unless it is an error.
pub(super) fn simple_reply(cookie: u64, error: Option<ErrorNumber>) -> [u8; 16] {
    let error = error.map_or(0, |error| error as u32);
    zerocopy::transmute!(WireSimpleReply {
        magic: SIMPLE_REPLY_MAGIC.into(),
        error: error.into(),
        cookie: cookie.into()
    })
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct WireChunk {
    magic: U32,
    flags: U16,
    chunk_type: U16,
    cookie: U64,
    length: U32,
}

impl WireChunk {
    fn new(cookie: u64, last: bool, chunk_type: u16, payload_bytes: u32) -> Self {
        Self {
            magic: STRUCTURED_REPLY_MAGIC.into(),
            flags: U16::new(if last { CHUNK_DONE } else { 0 }),
            chunk_type: chunk_type.into(),
            cookie: cookie.into(),
            length: payload_bytes.into(),
        }
    }
}

/// A chunk that ends a reply and says nothing else.
pub(super) fn none_chunk(cookie: u64) -> [u8; 20] {
    zerocopy::transmute!(WireChunk::new(cookie, true, chunk_type::NONE, 0))
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct WireDataChunk {
    chunk: WireChunk,
    offset: U64,
}

/// The front of a chunk with `length` bytes of data from `offset` on. The data follow it.
pub(super) fn data_chunk(cookie: u64, last: bool, offset: u64, length: u32) -> [u8; 28] {
    let payload_bytes = length.checked_add(8).expect("no read is near 4 GiB: the longest is far shorter");
    zerocopy::transmute!(WireDataChunk {
        chunk: WireChunk::new(cookie, last, chunk_type::OFFSET_DATA, payload_bytes),
        offset: offset.into(),
    })
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct WireHoleChunk {
    chunk: WireChunk,
    offset: U64,
    length: U32,
}

/// A chunk that says that `length` bytes from `offset` on are zeros.
pub(super) fn hole_chunk(cookie: u64, last: bool, offset: u64, length: u32) -> [u8; 32] {
    zerocopy::transmute!(WireHoleChunk {
        chunk: WireChunk::new(cookie, last, chunk_type::OFFSET_HOLE, 12),
        offset: offset.into(),
        length: length.into(),
    })
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct WireErrorChunk {
    chunk: WireChunk,
    error: U32,
    message_bytes: U16,
}

/// A chunk that ends a reply with an error and a text for people, which is cut to what the
/// protocol allows.
pub(super) fn error_chunk(cookie: u64, error: ErrorNumber, message: &str) -> Vec<u8> {
    let message = shorten(message);
    // At most 4096, so neither sum nor field overflows.
    let message_bytes = message.len() as u16;
    let head = WireErrorChunk {
        chunk: WireChunk::new(cookie, true, chunk_type::ERROR, u32::from(message_bytes) + 6),
        error: U32::new(error as u32),
        message_bytes: message_bytes.into(),
    };
    [head.as_bytes(), message.as_bytes()].concat()
}

/// As much of `text` as the protocol allows.
fn shorten(text: &str) -> &str {
    let mut end = text.len().min(STRING_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct WireStatusChunk {
    chunk: WireChunk,
    context: U32,
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct WireDescriptor {
    length: U32,
    state: U32,
}

/// A chunk that ends a reply with the allocation of consecutive stretches: length and state.
pub(super) fn status_chunk(cookie: u64, descriptors: &[(u32, u32)]) -> Vec<u8> {
    let payload_bytes = 4 + 8 * descriptors.len();
    let payload_bytes = u32::try_from(payload_bytes).expect("the caller bounds the number of descriptors");
    let head = WireStatusChunk {
        chunk: WireChunk::new(cookie, true, chunk_type::BLOCK_STATUS, payload_bytes),
        context: ALLOCATION_CONTEXT_ID.into(),
    };
    let mut bytes = Vec::with_capacity(size_of::<WireStatusChunk>() + 8 * descriptors.len());
    bytes.extend_from_slice(head.as_bytes());
    for (length, state) in descriptors {
        let descriptor = WireDescriptor { length: U32::new(*length), state: U32::new(*state) };
        bytes.extend_from_slice(descriptor.as_bytes());
    }
    bytes
}

#[cfg(test)]
#[path = "protocol_tests.rs"]
mod tests;
