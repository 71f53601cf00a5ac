//! What the bus knows of requests and answers: what they are about, how much payload they bring or
//! ask for, and by which checksums that is judged.
//!
//! Blocks have their address-mixed checksums in the body, where both sides need them anyway; every
//! other payload has a CRC-32C in its frame's header. Whoever receives a payload judges it before
//! anybody uses it.

use spandrel_platform::Buffer;
use spandrel_replica::{
    Authority, CopyAddress, PartDescription, ReplicaError, ReplicaRequest, ReplicaResponse,
};
use spandrel_shared::checksum::{BlockChecksum, crc32c};
use spandrel_shared::{BLOCK_BYTES, Version};

use crate::frame::Subject;
use crate::{BusError, BusRequest, BusResponse, ClientRequest, ClientResponse};

/// What a request's header repeats of it.
pub(crate) fn subject_of(request: &BusRequest) -> Subject {
    match request {
        BusRequest::Replica(request) => replica_subject(request),
        BusRequest::Client(epoch, request) => {
            Subject { volume: client_volume(request), epoch: *epoch, ..Subject::NONE }
        }
        BusRequest::Heartbeat(_) | BusRequest::GivenUp(_) => Subject::NONE,
    }
}

fn replica_subject(request: &ReplicaRequest) -> Subject {
    match request {
        ReplicaRequest::Write { copy, authority, mark, .. }
        | ReplicaRequest::Trim { copy, authority, mark, .. } => owned(copy, authority, mark.version),
        ReplicaRequest::Read { copy, authority, .. }
        | ReplicaRequest::Check { copy, authority, .. }
        | ReplicaRequest::Heal { copy, authority, .. }
        | ReplicaRequest::Lose { copy, authority, .. }
        | ReplicaRequest::Pages { copy, authority }
        | ReplicaRequest::Prove { copy, authority }
        | ReplicaRequest::BlockStates { copy, authority, .. }
        | ReplicaRequest::Digests { copy, authority, .. }
        | ReplicaRequest::SetPageVersion { copy, authority, .. } => owned(copy, authority, Version::ZERO),
        ReplicaRequest::NoteMark { volume, authority, mark } => Subject {
            volume: *volume,
            epoch: authority.epoch,
            configuration: authority.configuration,
            mark: mark.version,
            ..Subject::NONE
        },
        ReplicaRequest::Doubt { volume, authority, .. } => Subject {
            volume: *volume,
            epoch: authority.epoch,
            configuration: authority.configuration,
            ..Subject::NONE
        },
        ReplicaRequest::Fence { volume, epoch, .. } => {
            Subject { volume: *volume, epoch: *epoch, ..Subject::NONE }
        }
        ReplicaRequest::AddCopy(new) => {
            Subject { volume: new.copy.volume, copy: new.copy.copy, epoch: new.epoch, ..Subject::NONE }
        }
        ReplicaRequest::RemoveCopy { copy } => {
            Subject { volume: copy.volume, copy: copy.copy, ..Subject::NONE }
        }
    }
}

fn owned(copy: &CopyAddress, authority: &Authority, mark: Version) -> Subject {
    Subject {
        volume: copy.volume,
        copy: copy.copy,
        epoch: authority.epoch,
        configuration: authority.configuration,
        mark,
    }
}

fn client_volume(request: &ClientRequest) -> spandrel_shared::VolumeId {
    match request {
        ClientRequest::Attach { volume, .. }
        | ClientRequest::Detach { volume, .. }
        | ClientRequest::Read { volume, .. }
        | ClientRequest::Write { volume, .. }
        | ClientRequest::WriteZeroes { volume, .. }
        | ClientRequest::Trim { volume, .. }
        | ClientRequest::Extents { volume, .. } => *volume,
    }
}

/// Bytes of payload that a request asks for.
pub(crate) fn answer_bytes(request: &BusRequest) -> u64 {
    match request {
        BusRequest::Replica(ReplicaRequest::Read { count, .. }) => u64::from(*count) * BLOCK_BYTES as u64,
        BusRequest::Client(_, ClientRequest::Read { length, .. }) => u64::from(*length),
        _ => 0,
    }
}

/// The checksum of a request's payload for its header: zero where the body has checksums.
pub(crate) fn request_checksum(request: &BusRequest, payload: &[Buffer]) -> u32 {
    if request_blocks(request).is_some() { 0 } else { checksum_of(payload) }
}

/// Whether a request's payload is what its sender sent.
pub(crate) fn request_is_whole(request: &BusRequest, checksum: u32, payload: Option<&Buffer>) -> bool {
    let payload = payload.map_or(&[][..], |payload| payload);
    match request_blocks(request) {
        Some((copy, first, checksums)) => blocks_match(copy, first, checksums, payload),
        None => payload.is_empty() || crc32c(payload) == checksum,
    }
}

/// The block checksums that a request holds of its payload.
fn request_blocks(request: &BusRequest) -> Option<(&CopyAddress, u32, &[u32])> {
    match request {
        BusRequest::Replica(ReplicaRequest::Write { copy, first, checksums, .. }) => {
            Some((copy, *first, checksums))
        }
        BusRequest::Replica(ReplicaRequest::Heal { copy, block, checksum, .. }) => {
            Some((copy, *block, checksum.as_slice()))
        }
        _ => None,
    }
}

/// The checksum of an answer's payload for its header: zero where the body has checksums.
pub(crate) fn response_checksum(response: &BusResponse, payload: &[Buffer]) -> u32 {
    if holds_blocks(response) { 0 } else { checksum_of(payload) }
}

/// Whether the payload of an answer is what its sender sent, as far as its header tells.
pub(crate) fn response_is_whole(response: &BusResponse, checksum: u32, payload: Option<&Buffer>) -> bool {
    holds_blocks(response) || payload.is_none_or(|payload| crc32c(payload) == checksum)
}

fn holds_blocks(response: &BusResponse) -> bool {
    matches!(response, BusResponse::Replica(Ok(ReplicaResponse::Parts(_))))
}

fn checksum_of(payload: &[Buffer]) -> u32 {
    match payload {
        [] => 0,
        [single] => crc32c(single),
        parts => {
            let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
            for part in parts {
                digest.update(part);
            }
            digest.finalize() as u32
        }
    }
}

fn blocks_match(copy: &CopyAddress, first: u32, checksums: &[u32], data: &[u8]) -> bool {
    let (blocks, rest) = data.as_chunks::<BLOCK_BYTES>();
    let numbered = u32::try_from(blocks.len()).is_ok_and(|count| first.checked_add(count).is_some());
    if !rest.is_empty() || blocks.len() != checksums.len() || !numbered {
        return false;
    }
    let by_address = BlockChecksum::new(copy.volume, copy.slab);
    let mut numbered = (first..).zip(blocks).zip(checksums);
    numbered.all(|((block, data), checksum)| by_address.of(block, data) == *checksum)
}

/// What the answer to a request must be like.
pub(crate) enum Expected {
    /// What a copy holds of these blocks.
    Blocks { copy: CopyAddress, first: u32, count: u32 },
    /// Another answer of a copy, without payload.
    Replica,
    /// So many bytes.
    Bytes(u32),
    /// Another answer of an owner, without payload.
    Client,
    /// A promise.
    Heartbeat,
    /// What became of a volume that was given up.
    GivenUp,
}

impl Expected {
    pub(crate) fn of(request: &BusRequest) -> Self {
        match request {
            BusRequest::Replica(ReplicaRequest::Read { copy, first, count, .. }) => {
                Self::Blocks { copy: *copy, first: *first, count: *count }
            }
            BusRequest::Replica(_) => Self::Replica,
            BusRequest::Client(_, ClientRequest::Read { length, .. }) => Self::Bytes(*length),
            BusRequest::Client(..) => Self::Client,
            BusRequest::Heartbeat(_) => Self::Heartbeat,
            BusRequest::GivenUp(_) => Self::GivenUp,
        }
    }

    /// The answer to a request whose payload was damaged on its way, where copies have one for it.
    pub(crate) fn damaged_on_arrival(&self) -> Result<BusResponse, BusError> {
        match self {
            Self::Blocks { .. } | Self::Replica => {
                Ok(BusResponse::Replica(Err(ReplicaError::DamagedOnArrival)))
            }
            Self::Bytes(_) | Self::Client | Self::Heartbeat | Self::GivenUp => {
                Err(BusError::DamagedOnArrival)
            }
        }
    }

    /// Judges an answer and gives each part of its payload a buffer.
    pub(crate) fn judge(
        &self,
        response: &BusResponse,
        payload: Option<Buffer>,
    ) -> Result<Vec<Buffer>, BusError> {
        match (self, response) {
            (
                Self::Blocks { copy, first, count },
                BusResponse::Replica(Ok(ReplicaResponse::Parts(parts))),
            ) => split_parts(copy, *first, *count, parts, payload),
            (Self::Bytes(length), BusResponse::Client(Ok(ClientResponse::Data))) => {
                if payload.as_ref().map_or(0, |payload| payload.len()) != *length as usize {
                    return Err(BusError::AnswerUnfit("it holds another number of bytes"));
                }
                Ok(payload.into_iter().collect())
            }
            (Self::Blocks { .. }, BusResponse::Replica(Err(_)))
            | (Self::Replica, BusResponse::Replica(_))
            | (Self::Bytes(_), BusResponse::Client(Err(_)))
            | (Self::Client, BusResponse::Client(_))
            | (Self::Heartbeat, BusResponse::Heartbeat(_))
            | (Self::GivenUp, BusResponse::GivenUp { .. }) => match payload {
                None => Ok(Vec::new()),
                Some(_) => Err(BusError::AnswerUnfit("it has a payload")),
            },
            _ => Err(BusError::AnswerUnfit("it is of another kind")),
        }
    }
}

fn split_parts(
    copy: &CopyAddress,
    first: u32,
    count: u32,
    parts: &[PartDescription],
    payload: Option<Buffer>,
) -> Result<Vec<Buffer>, BusError> {
    let end = u64::from(first) + u64::from(count);
    let mut block = u64::from(first);
    let mut offset = 0;
    let mut data = Vec::new();
    for part in parts {
        match part {
            PartDescription::Hole(count) => block += u64::from(*count),
            PartDescription::Damaged { .. } => block += 1,
            PartDescription::Data(checksums) => {
                let bytes = checksums.len() * BLOCK_BYTES;
                let whole = payload.as_ref().filter(|payload| bytes <= payload.len() - offset);
                let (Some(payload), Ok(first)) = (whole, u32::try_from(block)) else {
                    return Err(BusError::AnswerUnfit("it holds fewer blocks than it says"));
                };
                let blocks = payload.slice(offset..offset + bytes);
                if !blocks_match(copy, first, checksums, &blocks) {
                    return Err(BusError::AnswerDamaged);
                }
                data.push(blocks);
                offset += bytes;
                block += checksums.len() as u64;
            }
        }
        if block > end {
            return Err(BusError::AnswerUnfit("it describes more blocks than were asked for"));
        }
    }
    if block != end || offset != payload.map_or(0, |payload| payload.len()) {
        return Err(BusError::AnswerUnfit("it describes other blocks than were asked for"));
    }
    Ok(data)
}

#[cfg(test)]
#[path = "payload_tests.rs"]
mod tests;
