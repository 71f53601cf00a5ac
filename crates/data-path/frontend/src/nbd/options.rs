//! The messages of the negotiation as bytes: options from the client, replies from the server.
//!
//! An option is the magic `IHAVEOPT` (8 bytes), its number (4), the length of its data (4) and
//! the data. A reply is the magic 0x3e889045565a9 (8), the option's number (4), the reply's type
//! (4), the length of its data (4) and the data.
//!
//! Parsing borrows from the received bytes. It allocates nothing, and trusts no length in them
//! beyond the data's own end.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::protocol::{
    GREETING_MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, STRING_BYTES_MAX, handshake_flags, information,
    option_reply,
};

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WireOption {
    magic: U64,
    option: U32,
    length: U32,
}

/// An option without its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OptionHeader {
    pub(super) option: u32,
    pub(super) length: u32,
}

impl OptionHeader {
    /// Bytes that a header takes on the wire.
    pub(super) const BYTES: usize = size_of::<WireOption>();

    /// The header at the front of `bytes`, which are at least [`Self::BYTES`]; `None` if they do
    /// not begin an option.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (wire, _) = WireOption::ref_from_prefix(bytes).expect("the caller has received a whole header");
        (wire.magic.get() == OPTION_MAGIC)
            .then(|| Self { option: wire.option.get(), length: wire.length.get() })
    }
}

/// The number of bytes with which a client answers the greeting.
pub(super) const CLIENT_FLAGS_BYTES: usize = 4;

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct WireGreeting {
    greeting: U64,
    option: U64,
    flags: U16,
}

/// What the server says first.
pub(super) fn greeting() -> [u8; 18] {
    zerocopy::transmute!(WireGreeting {
        greeting: GREETING_MAGIC.into(),
        option: OPTION_MAGIC.into(),
        flags: U16::new(handshake_flags::FIXED_NEWSTYLE | handshake_flags::NO_ZEROES),
    })
}

/// Takes fields off the front of an option's data.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take_u16(&mut self) -> Option<u16> {
        let (value, rest) = U16::read_from_prefix(self.0).ok()?;
        self.0 = rest;
        Some(value.get())
    }

    fn take_u32(&mut self) -> Option<u32> {
        let (value, rest) = U32::read_from_prefix(self.0).ok()?;
        self.0 = rest;
        Some(value.get())
    }

    /// A text with its length in front.
    fn take_text(&mut self) -> Option<&'a str> {
        let length = self.take_u32()? as usize;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        parse_text(text)
    }
}

/// `bytes` as a text that the protocol allows.
pub(super) fn parse_text(bytes: &[u8]) -> Option<&str> {
    if bytes.len() > STRING_BYTES_MAX || bytes.contains(&0) {
        return None;
    }
    std::str::from_utf8(bytes).ok()
}

/// The data of the options INFO and GO.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InformationRequest<'a> {
    pub(super) export: &'a str,
    pub(super) name: bool,
    pub(super) description: bool,
}

impl<'a> InformationRequest<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let mut request = Self { export: fields.take_text()?, name: false, description: false };
        let count = fields.take_u16()?;
        for _ in 0..count {
            match fields.take_u16()? {
                information::NAME => request.name = true,
                information::DESCRIPTION => request.description = true,
                // The export and its block sizes are told unasked; others are not known.
                _ => {}
            }
        }
        fields.0.is_empty().then_some(request)
    }
}

/// The data of the options LIST_META_CONTEXT and SET_META_CONTEXT.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ContextRequest<'a> {
    pub(super) export: &'a str,
    query_count: u32,
    queries: &'a [u8],
}

impl<'a> ContextRequest<'a> {
    pub(super) fn parse(data: &'a [u8]) -> Option<Self> {
        let mut fields = Fields(data);
        let export = fields.take_text()?;
        let query_count = fields.take_u32()?;
        let request = Self { export, query_count, queries: fields.0 };
        // Each query takes four bytes at least, so that a false count ends this early.
        for _ in 0..query_count {
            fields.take_text()?;
        }
        fields.0.is_empty().then_some(request)
    }

    pub(super) fn queries(&self) -> impl Iterator<Item = &'a str> {
        let mut fields = Fields(self.queries);
        std::iter::from_fn(move || fields.take_text())
    }

    pub(super) fn has_queries(&self) -> bool {
        self.query_count != 0
    }
}

#[derive(IntoBytes, Immutable, Unaligned)]
#[repr(C)]
struct WireOptionReply {
    magic: U64,
    option: U32,
    reply_type: U32,
    length: U32,
}

/// Appends a reply to `option` whose data are `parts` one behind the other.
pub(super) fn push_reply(replies: &mut Vec<u8>, option: u32, reply_type: u32, parts: &[&[u8]]) {
    let length = parts.iter().map(|part| part.len()).sum::<usize>();
    let head = WireOptionReply {
        magic: OPTION_REPLY_MAGIC.into(),
        option: option.into(),
        reply_type: reply_type.into(),
        length: u32::try_from(length).expect("replies are made of short texts").into(),
    };
    replies.extend_from_slice(head.as_bytes());
    for part in parts {
        replies.extend_from_slice(part);
    }
}

/// Appends one name of the list of exports.
pub(super) fn push_server(replies: &mut Vec<u8>, option: u32, name: &str) {
    let length = U32::new(u32::try_from(name.len()).expect("names are short"));
    push_reply(replies, option, option_reply::SERVER, &[length.as_bytes(), name.as_bytes()]);
}

/// Appends the information that every client needs: size and flags.
pub(super) fn push_export_information(replies: &mut Vec<u8>, option: u32, size_bytes: u64, flags: u16) {
    let kind = U16::new(information::EXPORT);
    let parts = [kind.as_bytes(), &size_bytes.to_be_bytes(), &flags.to_be_bytes()];
    push_reply(replies, option, option_reply::INFO, &parts);
}

/// Appends a piece of information that is a text.
pub(super) fn push_text_information(replies: &mut Vec<u8>, option: u32, kind: u16, text: &str) {
    push_reply(replies, option, option_reply::INFO, &[&kind.to_be_bytes(), text.as_bytes()]);
}

/// Appends the smallest, the preferred and the largest length of a request.
pub(super) fn push_block_sizes(replies: &mut Vec<u8>, option: u32, sizes: [u32; 3]) {
    let kind = U16::new(information::BLOCK_SIZE);
    let sizes = sizes.map(U32::new);
    push_reply(replies, option, option_reply::INFO, &[kind.as_bytes(), sizes.as_bytes()]);
}

/// Appends a metadata context.
pub(super) fn push_context(replies: &mut Vec<u8>, option: u32, id: u32, name: &str) {
    push_reply(replies, option, option_reply::META_CONTEXT, &[&id.to_be_bytes(), name.as_bytes()]);
}

/// Appends the answer to EXPORT_NAME, which has a form of its own.
pub(super) fn push_export_name_answer(replies: &mut Vec<u8>, size_bytes: u64, flags: u16, padded: bool) {
    replies.extend_from_slice(&size_bytes.to_be_bytes());
    replies.extend_from_slice(&flags.to_be_bytes());
    if padded {
        replies.extend_from_slice(&[0; 124]);
    }
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
