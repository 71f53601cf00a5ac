//! The NBD protocol's numbers, and the messages that a client sends as bytes.
//!
//! Everything is big-endian. A request is 28 bytes, a write's data right behind it:
//!
//! | bytes | field                                  |
//! |-------|----------------------------------------|
//! | 4     | magic 0x25609513                       |
//! | 2     | flags                                  |
//! | 2     | command                                |
//! | 8     | cookie: the client's name for it       |
//! | 8     | offset                                 |
//! | 4     | length                                 |

use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{Immutable, Unaligned};

/// The first eight bytes that a server sends.
pub(super) const GREETING_MAGIC: u64 = u64::from_be_bytes(*b"NBDMAGIC");
/// Follows the greeting of a newstyle server, and begins each option.
pub(super) const OPTION_MAGIC: u64 = u64::from_be_bytes(*b"IHAVEOPT");
/// Begins each reply to an option.
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Begins each request.
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Begins each simple reply.
pub(super) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Begins each chunk of a structured reply.
pub(super) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// The server understands options other than the export's name. The client answers with the same.
pub(super) const HANDSHAKE_FIXED_NEWSTYLE: u16 = 1 << 0;
/// No padding behind the answer to an export's name. The client answers with the same.
pub(super) const HANDSHAKE_NO_ZEROES: u16 = 1 << 1;

/// What a client asks for during negotiation.
pub(super) mod option {
    pub(in crate::nbd_client) const GO: u32 = 7;
    pub(in crate::nbd_client) const STRUCTURED_REPLY: u32 = 8;
}

/// How an option is answered. Errors have the highest bit set.
pub(super) mod option_reply {
    pub(in crate::nbd_client) const ACKNOWLEDGED: u32 = 1;
    pub(in crate::nbd_client) const INFO: u32 = 3;
    pub(in crate::nbd_client) const ERROR: u32 = 1 << 31;
    pub(in crate::nbd_client) const ERROR_UNSUPPORTED: u32 = ERROR + 1;
    pub(in crate::nbd_client) const ERROR_POLICY: u32 = ERROR + 2;
    pub(in crate::nbd_client) const ERROR_TLS_REQUIRED: u32 = ERROR + 5;
    pub(in crate::nbd_client) const ERROR_UNKNOWN: u32 = ERROR + 6;
    pub(in crate::nbd_client) const ERROR_SHUTDOWN: u32 = ERROR + 7;
}

/// The kinds of information about an export.
pub(super) mod information {
    pub(in crate::nbd_client) const EXPORT: u16 = 0;
    pub(in crate::nbd_client) const BLOCK_SIZE: u16 = 3;
}

/// What an export can do.
pub(super) mod transmission_flags {
    pub(in crate::nbd_client) const READ_ONLY: u16 = 1 << 1;
    pub(in crate::nbd_client) const SEND_FLUSH: u16 = 1 << 2;
    pub(in crate::nbd_client) const SEND_TRIM: u16 = 1 << 5;
    pub(in crate::nbd_client) const SEND_WRITE_ZEROES: u16 = 1 << 6;
}

/// The flag of a chunk that is its reply's last one.
pub(super) const CHUNK_DONE: u16 = 1 << 0;

/// What a chunk holds. Errors have the highest bit set.
pub(super) mod chunk_type {
    pub(in crate::nbd_client) const NONE: u16 = 0;
    pub(in crate::nbd_client) const OFFSET_DATA: u16 = 1;
    pub(in crate::nbd_client) const OFFSET_HOLE: u16 = 2;
    pub(in crate::nbd_client) const ERROR: u16 = 1 << 15;
}

/// What a request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Command {
    /// Reads `length` bytes at `offset`.
    Read = 0,
    /// Writes the `length` bytes behind the request to `offset`.
    Write = 1,
    /// Ends the session; it has no reply.
    Disconnect = 2,
    /// Makes every answered change durable.
    Flush = 3,
    /// Gives the room of a range back.
    Trim = 4,
    /// Makes a range read as zeros.
    WriteZeroes = 6,
}

impl Command {
    /// Its name in messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Command::Read => "read",
            Command::Write => "write",
            Command::Disconnect => "disconnect",
            Command::Flush => "flush",
            Command::Trim => "trim",
            Command::WriteZeroes => "write zeroes",
        }
    }
}

/// A request, without its cookie and a write's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) command: Command,
    pub(crate) offset: u64,
    pub(crate) length: u32,
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct WireRequest {
    magic: U32,
    flags: U16,
    command: U16,
    cookie: U64,
    offset: U64,
    length: U32,
}

impl Request {
    /// The request as the server gets it.
    pub(super) fn bytes(&self, cookie: u64) -> [u8; 28] {
        zerocopy::transmute!(WireRequest {
            magic: REQUEST_MAGIC.into(),
            flags: 0.into(),
            command: (self.command as u16).into(),
            cookie: cookie.into(),
            offset: self.offset.into(),
            length: self.length.into(),
        })
    }
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct WireOption {
    magic: U64,
    option: U32,
    length: U32,
}

/// An option with its data.
pub(super) fn option_bytes(option: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).expect("options are a name and a few numbers");
    let head = WireOption { magic: OPTION_MAGIC.into(), option: option.into(), length: length.into() };
    [head.as_bytes(), data].concat()
}

/// The data of the option that opens an export and asks for its block sizes.
pub(super) fn go_data(export: &str) -> Vec<u8> {
    let name_bytes = u32::try_from(export.len()).expect("an export's name has at most 4096 bytes");
    let mut data = name_bytes.to_be_bytes().to_vec();
    data.extend_from_slice(export.as_bytes());
    data.extend_from_slice(&1_u16.to_be_bytes());
    data.extend_from_slice(&information::BLOCK_SIZE.to_be_bytes());
    data
}

/// The big-endian number of two bytes at `position`; panics if `bytes` ends before it does.
pub(super) fn u16_at(bytes: &[u8], position: usize) -> u16 {
    u16::from_be_bytes(array_at(bytes, position))
}

/// The same with four bytes.
pub(super) fn u32_at(bytes: &[u8], position: usize) -> u32 {
    u32::from_be_bytes(array_at(bytes, position))
}

/// The same with eight bytes.
pub(super) fn u64_at(bytes: &[u8], position: usize) -> u64 {
    u64::from_be_bytes(array_at(bytes, position))
}

fn array_at<const LENGTH: usize>(bytes: &[u8], position: usize) -> [u8; LENGTH] {
    bytes[position..position + LENGTH].try_into().expect("the slice has the array's length")
}
