//! What nodes say to each other. Block data travel beside these values, as the payload.

use serde::{Deserialize, Serialize};
use spandrel_replica::{ReplicaError, ReplicaRequest, ReplicaResponse};
use spandrel_shared::{Epoch, ProcessIncarnation, ShardId, VolumeId};

/// A question from one node to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BusRequest {
    /// To the other node's copies, from the owner of their volume.
    Replica(ReplicaRequest),
    /// To the owner of a volume under this epoch, from a front-end. A node that owns it under another one
    /// refuses: what was held up on the way must not be carried out after it was repeated elsewhere, and
    /// newer changes have come.
    Client(Epoch, ClientRequest),
    /// A sign of life that asks for a promise.
    Heartbeat(Heartbeat),
    /// A volume that the sender owns no more, and will answer nothing of: what it was promised for it counts no
    /// more.
    GivenUp(GivenUp),
}

/// The answer to a [`BusRequest`] of the same kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BusResponse {
    /// What the copies answered.
    Replica(Result<ReplicaResponse, ReplicaError>),
    /// What the owner answered.
    Client(Result<ClientResponse, ClientError>),
    /// The promise.
    Heartbeat(HeartbeatAnswer),
    /// Taken note of.
    GivenUp {
        /// Whether the answering node owns the volume now.
        taken: bool,
    },
}

/// A volume whose owner has given it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GivenUp {
    /// The volume, and the last ownership that its sender had.
    pub ownership: OwnedVolume,
    /// Whether the receiver is to take it, at once.
    pub take: bool,
    /// Whether it is to stay there although its present client is elsewhere: somebody has said where it is to be.
    pub stay: bool,
}

/// A volume and the ownership under which its sender serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnedVolume {
    /// The volume.
    pub volume: VolumeId,
    /// The ownership's epoch.
    pub epoch: Epoch,
}

/// A sign of life. The answer promises its sender that, for a while, the answering node answers no
/// fence against the volumes that the sender owns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heartbeat {
    /// Counts the sender's heartbeats to this node.
    pub number: u64,
    /// The volumes that the sender owns.
    pub owned: Vec<OwnedVolume>,
    /// The highest exclusion number of the receiver that the sender has taken note of.
    pub exclusions_seen: u64,
}

/// A promise, and the volumes that it does not cover.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeartbeatAnswer {
    /// How long no fence is answered, from the heartbeat's receipt on; zero if nothing is promised.
    pub promise_ms: u64,
    /// Of the volumes named in the heartbeat: those whose epoch this incarnation has accepted.
    pub accepted: Vec<OwnedVolume>,
    /// Volumes on which a higher epoch was accepted; sent until the sender has taken note.
    pub exclusions: Vec<OwnedVolume>,
    /// The number of the newest exclusion.
    pub exclusions_number: u64,
}

/// A front-end's request to the owner of a volume. Offsets and lengths are in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientRequest {
    /// Asks for the right to use the volume; answered with `Attached`.
    Attach {
        /// The volume.
        volume: VolumeId,
        /// Names the attachment, so that the same one can come back over another connection.
        attachment: u64,
    },
    /// Gives the right back.
    Detach {
        /// The volume.
        volume: VolumeId,
        /// The attachment.
        attachment: u64,
    },
    /// Reads; the answer is `Data` with the bytes as payload.
    Read {
        /// The volume.
        volume: VolumeId,
        /// Where.
        offset: u64,
        /// How much.
        length: u32,
    },
    /// Writes the payload.
    Write {
        /// The volume.
        volume: VolumeId,
        /// The attachment that writes.
        attachment: u64,
        /// Where.
        offset: u64,
    },
    /// Makes a range read as zeros.
    WriteZeroes {
        /// The volume.
        volume: VolumeId,
        /// The attachment that writes.
        attachment: u64,
        /// Where.
        offset: u64,
        /// How much.
        length: u64,
        /// Whether the room should stay taken.
        keep_allocated: bool,
    },
    /// Gives the room of a range back.
    Trim {
        /// The volume.
        volume: VolumeId,
        /// The attachment that writes.
        attachment: u64,
        /// Where.
        offset: u64,
        /// How much.
        length: u64,
    },
    /// Asks for the allocation of a range; answered with `Extents`.
    Extents {
        /// The volume.
        volume: VolumeId,
        /// Where.
        offset: u64,
        /// How much.
        length: u64,
    },
}

/// The answer of a volume's owner to a front-end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientResponse {
    /// The attachment may be used; the volume's size in bytes.
    Attached {
        /// The size.
        size_bytes: u64,
    },
    /// It was done, durably.
    Done,
    /// The bytes are the payload.
    Data,
    /// The allocation, in order.
    Extents(Vec<ExtentState>),
}

/// A stretch of a volume with one allocation state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExtentState {
    /// How many bytes.
    pub length: u64,
    /// False where nothing is stored.
    pub allocated: bool,
}

/// Why an owner did not serve a front-end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientError {
    /// What it means.
    pub kind: ClientErrorKind,
    /// In words.
    pub detail: String,
}

/// What a [`ClientError`] means to the front-end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ClientErrorKind {
    /// This node does not own the volume (any more); nothing changed. Look for the owner.
    NotOwner {
        /// Where it may be, if the answering node knows.
        owner: Option<ShardId>,
    },
    /// This process of the owner is not the one that the request was for.
    WrongIncarnation {
        /// The one that answers.
        incarnation: ProcessIncarnation,
    },
    /// Another attachment has the volume open for writing.
    Busy,
    /// The request lies outside the volume; nothing changed.
    Invalid,
    /// The pool has no room; nothing changed.
    NoRoom,
    /// The request failed; a change may have happened or not.
    Failed,
}
