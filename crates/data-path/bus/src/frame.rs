//! Frames: how requests and answers look on the wire. `docs/internals/wire-format.md` says the same
//! in tables.
//!
//! A frame is a header of [`HEADER_BYTES`], a body, and a payload. All numbers are little-endian.
//! The header's checksum is judged before any length is believed, and covers the body's checksum;
//! the payload has checksums of its own.
//!
//! Invariants:
//! - No length of a frame is believed beyond the bounds of its kind.
//! - The header of hello, welcome and refusal is the same in every version of the protocol.

use std::fmt;

use serde::Serialize;
use spandrel_platform::Buffer;
use spandrel_shared::checksum::crc32c;
use spandrel_shared::{ConfigurationVersion, CopyId, Epoch, Version, VolumeId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The first bytes of every frame.
const MAGIC: [u8; 4] = *b"SpBs";

/// The length of a header.
pub(crate) const HEADER_BYTES: usize = 96;

/// Where the header's own checksum stands: it covers everything before.
const CHECKSUM_OFFSET: usize = HEADER_BYTES - size_of::<u32>();

/// The longest body of a hello, welcome or refusal.
pub(crate) const HELLO_BODY_BYTES_MAX: usize = 2048;

/// The longest body of a request.
pub(crate) const REQUEST_BODY_BYTES_MAX: usize = 1 << 20;

/// The longest body of an answer: what a node knows of all its copies of a large volume.
pub(crate) const ANSWER_BODY_BYTES_MAX: usize = 32 << 20;

/// Requests that one frame says are done, at most.
pub(crate) const DONE_MAX: usize = 4096;

/// The longest payload: a front-end's longest write, widened to whole blocks, and some room.
pub(crate) const PAYLOAD_BYTES_MAX: usize = (32 << 20) + (1 << 20);

#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct HeaderBytes {
    magic: [u8; 4],
    version: U16,
    kind: u8,
    status: u8,
    body_bytes: U32,
    payload_bytes: U32,
    session: U32,
    epoch: U32,
    sequence: U64,
    volume: [u8; 16],
    copy: [u8; 16],
    configuration: U64,
    mark_counter: U64,
    mark_epoch: U32,
    payload_checksum: U32,
    body_checksum: U32,
    header_checksum: U32,
}

const _: () = assert!(size_of::<HeaderBytes>() == HEADER_BYTES);

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FrameKind {
    /// The dialler says who it is and what it speaks.
    Hello = 1,
    /// The acceptor agrees to a session.
    Welcome = 2,
    /// The acceptor does not; the body says why, in words.
    Refusal = 3,
    /// A question.
    Request = 4,
    /// Its answer.
    Answer = 5,
    /// Asks for a sign of life of a path.
    Ping = 6,
    /// Gives it.
    Pong = 7,
    /// The dialler has given a path up, whose number stands in the place of the sequence number: what was sent there
    /// comes again.
    PathLost = 8,
    /// Answers requests that were done, each of which is answered with nothing else than that.
    Done = 9,
}

impl FrameKind {
    fn from_byte(byte: u8) -> Option<Self> {
        let all = [
            Self::Hello,
            Self::Welcome,
            Self::Refusal,
            Self::Request,
            Self::Answer,
            Self::Ping,
            Self::Pong,
            Self::PathLost,
            Self::Done,
        ];
        all.into_iter().find(|kind| *kind as u8 == byte)
    }

    fn body_bytes_max(self) -> usize {
        match self {
            Self::Hello | Self::Welcome | Self::Refusal => HELLO_BODY_BYTES_MAX,
            Self::Request => REQUEST_BODY_BYTES_MAX,
            Self::Answer => ANSWER_BODY_BYTES_MAX,
            Self::Done => DONE_MAX * size_of::<U64>(),
            Self::Ping | Self::Pong | Self::PathLost => 0,
        }
    }

    fn payload_bytes_max(self) -> usize {
        match self {
            Self::Request | Self::Answer => PAYLOAD_BYTES_MAX,
            _ => 0,
        }
    }
}

/// The status of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The body is the answer.
    Answered = 0,
    /// The request was not understood. No body.
    NotUnderstood = 1,
    /// The request's payload did not match its checksum. No body.
    PayloadDamaged = 2,
    /// The answer does not fit into a frame. No body.
    TooLarge = 3,
}

impl Status {
    pub(crate) fn from_byte(byte: u8) -> Option<Self> {
        [Self::Answered, Self::NotUnderstood, Self::PayloadDamaged, Self::TooLarge]
            .into_iter()
            .find(|status| *status as u8 == byte)
    }
}

/// What a request is about, repeated in its header. Zeros where a request says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Subject {
    pub(crate) volume: VolumeId,
    pub(crate) copy: CopyId,
    pub(crate) epoch: Epoch,
    pub(crate) configuration: ConfigurationVersion,
    pub(crate) mark: Version,
}

impl Subject {
    /// What says nothing.
    pub(crate) const NONE: Subject = Subject {
        volume: VolumeId::from_bytes([0; 16]),
        copy: CopyId::from_bytes([0; 16]),
        epoch: Epoch::ZERO,
        configuration: ConfigurationVersion(0),
        mark: Version::ZERO,
    };
}

/// A frame's header, but for its magic and its own checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) version: u16,
    pub(crate) kind: FrameKind,
    /// Of an answer or a refusal; zero otherwise.
    pub(crate) status: u8,
    pub(crate) body_bytes: usize,
    pub(crate) payload_bytes: usize,
    pub(crate) session: u32,
    pub(crate) sequence: u64,
    pub(crate) subject: Subject,
    /// CRC-32C of the payload; zero where the body holds checksums of it, or there is none.
    pub(crate) payload_checksum: u32,
    pub(crate) body_checksum: u32,
}

impl Header {
    /// The header of a frame without body or payload.
    pub(crate) fn new(kind: FrameKind, version: u16, session: u32, sequence: u64) -> Self {
        Self {
            version,
            kind,
            status: 0,
            body_bytes: 0,
            payload_bytes: 0,
            session,
            sequence,
            subject: Subject::NONE,
            payload_checksum: 0,
            body_checksum: 0,
        }
    }

    /// Reads a header and judges its lengths.
    pub(crate) fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Malformed> {
        let fields = HeaderBytes::ref_from_bytes(bytes).map_err(|_| malformed("a header of another size"))?;
        if fields.magic != MAGIC {
            return Err(malformed("it does not speak Spandrel's bus protocol"));
        }
        if fields.header_checksum.get() != crc32c(&bytes[..CHECKSUM_OFFSET]) {
            return Err(malformed("a header does not match its checksum"));
        }
        let Some(kind) = FrameKind::from_byte(fields.kind) else {
            return Err(Malformed(format!("a frame of the unknown kind {}", fields.kind)));
        };
        let body_bytes = bounded(fields.body_bytes, kind.body_bytes_max(), "body")?;
        let payload_bytes = bounded(fields.payload_bytes, kind.payload_bytes_max(), "payload")?;
        Ok(Self {
            version: fields.version.get(),
            kind,
            status: fields.status,
            body_bytes,
            payload_bytes,
            session: fields.session.get(),
            sequence: fields.sequence.get(),
            subject: Subject {
                volume: VolumeId::from_bytes(fields.volume),
                copy: CopyId::from_bytes(fields.copy),
                epoch: Epoch(fields.epoch.get()),
                configuration: ConfigurationVersion(fields.configuration.get()),
                mark: Version::new(Epoch(fields.mark_epoch.get()), fields.mark_counter.get()),
            },
            payload_checksum: fields.payload_checksum.get(),
            body_checksum: fields.body_checksum.get(),
        })
    }

    fn encode(&self, into: &mut [u8]) {
        let mut fields = HeaderBytes::new_zeroed();
        fields.magic = MAGIC;
        fields.version = self.version.into();
        fields.kind = self.kind as u8;
        fields.status = self.status;
        fields.body_bytes = (self.body_bytes as u32).into();
        fields.payload_bytes = (self.payload_bytes as u32).into();
        fields.session = self.session.into();
        fields.sequence = self.sequence.into();
        fields.volume = self.subject.volume.to_bytes();
        fields.copy = self.subject.copy.to_bytes();
        fields.epoch = self.subject.epoch.0.into();
        fields.configuration = self.subject.configuration.0.into();
        fields.mark_epoch = self.subject.mark.epoch.0.into();
        fields.mark_counter = self.subject.mark.counter.into();
        fields.payload_checksum = self.payload_checksum.into();
        fields.body_checksum = self.body_checksum.into();
        fields.header_checksum = crc32c(&fields.as_bytes()[..CHECKSUM_OFFSET]).into();
        into.copy_from_slice(fields.as_bytes());
    }

    /// Whether `body` is the one that the header was made for.
    pub(crate) fn matches(&self, body: &[u8]) -> bool {
        crc32c(body) == self.body_checksum
    }
}

/// The body that says that these requests are done.
pub(crate) fn done_body(sequences: &[u64]) -> Vec<u8> {
    sequences.iter().flat_map(|sequence| sequence.to_le_bytes()).collect()
}

/// The requests that a body says are done.
pub(crate) fn read_done(body: &[u8]) -> Result<impl Iterator<Item = u64>, Malformed> {
    let (sequences, rest) = body.as_chunks();
    if sequences.is_empty() || !rest.is_empty() {
        return Err(malformed("it does not say which requests are done"));
    }
    Ok(sequences.iter().map(|sequence| u64::from_le_bytes(*sequence)))
}

fn bounded(length: U32, max: usize, what: &str) -> Result<usize, Malformed> {
    let length = length.get() as usize;
    if length <= max {
        return Ok(length);
    }
    Err(Malformed(format!("a {what} of {length} bytes, where {max} are allowed")))
}

/// Why what was received is no frame, or none that may come here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Malformed(pub(crate) String);

impl fmt::Display for Malformed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

pub(crate) fn malformed(reason: &str) -> Malformed {
    Malformed(reason.to_owned())
}

/// What was to be sent does not fit into a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLarge;

/// Memory in which frames are put together, header and body behind each other.
#[derive(Default)]
pub(crate) struct FrameScratch {
    bytes: Vec<u8>,
}

/// Memory that is kept from one frame to the next.
const SCRATCH_BYTES_KEPT: usize = 64 << 10;

impl FrameScratch {
    /// Puts `body` in its place behind a header to come.
    pub(crate) fn write_body(&mut self, kind: FrameKind, body: &impl Serialize) -> Result<(), TooLarge> {
        self.reset();
        let bytes_max = HEADER_BYTES + kind.body_bytes_max();
        let storage = BoundedBytes { bytes: &mut self.bytes, bytes_max };
        postcard::serialize_with_flavor(body, storage).map_err(|_| TooLarge)
    }

    /// Puts a body that is bytes already in its place behind a header to come.
    pub(crate) fn write_raw_body(&mut self, body: &[u8]) {
        self.reset();
        self.bytes.extend_from_slice(body);
    }

    /// Writes the header before the body: header and body, as they are sent.
    pub(crate) fn seal(&mut self, mut header: Header) -> &[u8] {
        let (head, body) = self.bytes.split_at_mut(HEADER_BYTES);
        header.body_bytes = body.len();
        header.body_checksum = crc32c(body);
        header.encode(head);
        &self.bytes
    }

    fn reset(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(SCRATCH_BYTES_KEPT);
        self.bytes.resize(HEADER_BYTES, 0);
    }
}

/// Takes serialized bytes up to a bound.
struct BoundedBytes<'a> {
    bytes: &'a mut Vec<u8>,
    bytes_max: usize,
}

impl postcard::ser_flavors::Flavor for BoundedBytes<'_> {
    type Output = ();

    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        if self.bytes.len() == self.bytes_max {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.bytes.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        if bytes.len() > self.bytes_max - self.bytes.len() {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        Ok(())
    }
}

/// How long a body is.
pub(crate) fn body_bytes(body: &impl Serialize) -> u64 {
    let counted = postcard::serialize_with_flavor(body, postcard::ser_flavors::Size::default());
    counted.unwrap_or(ANSWER_BODY_BYTES_MAX) as u64
}

/// Bytes of a payload, if a frame can carry them.
pub(crate) fn payload_bytes(payload: &[Buffer]) -> Result<usize, TooLarge> {
    let bytes = payload.iter().map(|part| part.len()).sum();
    if bytes <= PAYLOAD_BYTES_MAX { Ok(bytes) } else { Err(TooLarge) }
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
