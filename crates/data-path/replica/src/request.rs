//! What an owner asks of a node's copies, and the answers. The same values travel within a node
//! and, serialized, on the bus; block data travel beside them.

use std::fmt;

use serde::{Deserialize, Serialize};
use spandrel_shared::checksum::Checksums;
use spandrel_shared::{ConfigurationVersion, CopyId, DriveId, Epoch, SlabIndex, Version, VolumeId};

/// Names one copy of one slab.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CopyAddress {
    /// The volume.
    pub volume: VolumeId,
    /// Which slab of it.
    pub slab: SlabIndex,
    /// The incarnation of the copy.
    pub copy: CopyId,
}

/// By what right an owner asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// The asking owner's epoch.
    pub epoch: Epoch,
    /// The membership that the owner goes by.
    pub configuration: ConfigurationVersion,
}

/// The committed mark: every write at or below `version`, but for the exceptions, is complete on
/// every in-sync copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The mark.
    pub version: Version,
    /// Lower versions that are not complete, ascending.
    pub exceptions: Vec<Version>,
}

impl Mark {
    /// Whether a write is known to be complete on every in-sync copy.
    pub fn covers(&self, version: Version) -> bool {
        version <= self.version && self.exceptions.binary_search(&version).is_err()
    }

    /// The mark that says more: the higher one; at equal versions the one with fewer exceptions.
    pub fn newest(self, other: Mark) -> Mark {
        let key = |mark: &Mark| (mark.version, std::cmp::Reverse(mark.exceptions.len()));
        if key(&other) > key(&self) { other } else { self }
    }

    /// The highest version at or below which there is no exception.
    pub fn complete_up_to(&self) -> Version {
        match self.exceptions.first() {
            Some(first) => Version::new(first.epoch, first.counter.saturating_sub(1)),
            None => self.version,
        }
    }
}

/// A request to a node's copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaRequest {
    /// Writes whole blocks; the data are the payload. Answered with `Done` when durable.
    Write {
        /// The copy.
        copy: CopyAddress,
        /// The owner's right.
        authority: Authority,
        /// The owner's newest mark.
        mark: Mark,
        /// The first block within the slab.
        first: u32,
        /// The write's version; in a roll-forward an older one than the owner's epoch; zero for what a
        /// resync copies, which is no write of the volume.
        version: Version,
        /// The address-mixed checksum of each block.
        checksums: Checksums,
    },
    /// Unmaps blocks. Answered with `Done` when durable.
    Trim {
        /// The copy.
        copy: CopyAddress,
        /// The owner's right.
        authority: Authority,
        /// The owner's newest mark.
        mark: Mark,
        /// The first block within the slab.
        first: u32,
        /// How many blocks.
        count: u32,
        /// The trim's version; zero for what a resync copies.
        version: Version,
    },
    /// Reads whole blocks. Answered with `Parts` and the data as payload.
    Read {
        /// The copy.
        copy: CopyAddress,
        /// The owner's right.
        authority: Authority,
        /// The first block within the slab.
        first: u32,
        /// How many blocks.
        count: u32,
    },
    /// Reads whole blocks and checks them, but keeps the data: answered with `Parts` without
    /// payload.
    Check {
        /// The copy.
        copy: CopyAddress,
        /// The owner's right.
        authority: Authority,
        /// The first block within the slab.
        first: u32,
        /// How many blocks.
        count: u32,
    },
    /// Replaces a damaged block by a good one (the payload), or by a hole without payload, if the
    /// map still names what was damaged. Answered with `Done`.
    Heal {
        /// The copy.
        copy: CopyAddress,
        /// The owner's right.
        authority: Authority,
        /// The block within the slab.
        block: u32,
        /// What the map named when the damage was seen.
        token: u64,
        /// The good block's checksum; none for a hole.
        checksum: Option<u32>,
    },
    /// Refuses lower epochs of a volume from now on, durably. Answered with `Gathered`.
    Fence {
        /// The volume.
        volume: VolumeId,
        /// The new owner's epoch.
        epoch: Epoch,
        /// Whether the owner compares the copies here with the others, or counts on none of them. Only then is
        /// anything promised again for copies that were attached lately.
        settles: bool,
        /// The copies of which whoever asks takes note what they can prove. Others stay untold.
        heeds: Heeded,
    },
    /// Tells the newest mark, as when a volume falls idle. Answered with `Done`.
    NoteMark {
        /// The volume.
        volume: VolumeId,
        /// The owner's right.
        authority: Authority,
        /// The mark.
        mark: Mark,
    },
    /// Asks for the pages of a copy. Answered with `Pages`.
    Pages {
        /// The copy.
        copy: CopyAddress,
        /// The owner's right.
        authority: Authority,
    },
    /// Asks what the map says of blocks; nothing is read. Answered with `BlockStates`.
    BlockStates {
        /// The copy.
        copy: CopyAddress,
        /// The owner's right.
        authority: Authority,
        /// The first block within the slab.
        first: u32,
        /// How many blocks.
        count: u32,
    },
    /// Sets a page's version to the resync source's. Answered with `Done` when durable.
    SetPageVersion {
        /// The copy.
        copy: CopyAddress,
        /// The owner's right.
        authority: Authority,
        /// The page within the slab.
        page: u32,
        /// The source's version.
        version: Version,
        /// Whether the page is whole now.
        whole: bool,
    },
    /// Creates an empty copy, in place of any former one of the slab on its drive. Answered with
    /// `Done` when durable.
    AddCopy(NewCopy),
    /// Gives a copy and its room up. Answered with `Done` when durable.
    RemoveCopy {
        /// The copy.
        copy: CopyAddress,
    },
    /// Forgets what a block holds, as the source of a resync has lost it too. Answered with `Done`
    /// when durable.
    Lose {
        /// The copy.
        copy: CopyAddress,
        /// The owner's right.
        authority: Authority,
        /// The block within the slab.
        block: u32,
    },
    /// A resync has made the copy whole: what its drive could not prove counts no more. Durable when it
    /// is answered, with `Done`.
    Prove {
        /// The copy.
        copy: CopyAddress,
        /// The owner's right.
        authority: Authority,
    },
    /// The copies of a volume on a drive are about to be brought up to date, and get newer writes before older ones:
    /// until they are whole they are proven up to `proven` alone. Durable when it is answered, with `Done`.
    Doubt {
        /// The volume.
        volume: VolumeId,
        /// The drive.
        drive: DriveId,
        /// The owner's right.
        authority: Authority,
        /// Up to which version they hold every write.
        proven: Version,
    },
    /// Reads and checks whole blocks, and sums their contents up. Answered with `Digests`.
    Digests {
        /// The copy.
        copy: CopyAddress,
        /// The owner's right.
        authority: Authority,
        /// The first block within the slab.
        first: u32,
        /// How many blocks.
        count: u32,
    },
}

/// A copy to be created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewCopy {
    /// The new copy.
    pub copy: CopyAddress,
    /// The drive that is to hold it.
    pub drive: DriveId,
    /// How many whole copies the slab has.
    pub copies: u8,
    /// Which of them this one is, from zero.
    pub part: u8,
    /// The epoch in which it is created.
    pub epoch: Epoch,
}

/// The answer to a request that was carried out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaResponse {
    /// It was done; a change is durable.
    Done,
    /// What was read, in order. The data of all `Data` parts follow each other in the payload.
    Parts(Vec<PartDescription>),
    /// What the node's copies of a volume know, and which drives of the node work, whether they have any or not.
    Gathered(Vec<GatheredCopy>, Vec<DriveId>),
    /// The pages of a copy, in order.
    Pages(Vec<PageState>),
    /// What the map says of each block.
    BlockStates(Vec<BlockState>),
    /// Of each block; none of one that holds nothing, or that the copy cannot give.
    Digests(Vec<Option<ContentDigest>>),
}

/// The first 128 bits of the SHA-256 of a block's content: two blocks with the same one hold the same.
///
/// A checksum says that for two states of a block only once in 4 billion times wrongly, which is too often for whoever
/// compares that many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ContentDigest(pub [u8; 16]);

impl ContentDigest {
    /// That of this content.
    pub fn of(content: &[u8]) -> Self {
        let digest = ring::digest::digest(&ring::digest::SHA256, content);
        let mut first = [0; 16];
        first.copy_from_slice(&digest.as_ref()[..16]);
        Self(first)
    }
}

/// A stretch of what was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PartDescription {
    /// So many blocks of which nothing is stored.
    Hole(u32),
    /// Blocks with these checksums.
    Data(Vec<u32>),
    /// A block that this copy cannot give.
    Damaged {
        /// The block within the slab.
        block: u32,
        /// What the map names; to be sent back with the good content.
        token: u64,
    },
}

/// What a copy says when a new owner gathers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GatheredCopy {
    /// Which slab of the volume.
    pub slab: SlabIndex,
    /// The incarnation of the copy.
    pub copy: CopyId,
    /// The drive that holds it.
    pub drive: DriveId,
    /// The newest mark that the drive knows.
    pub mark: Mark,
    /// The copy's writes above the mark or among its exceptions.
    pub listed: Vec<ListedWrite>,
    /// If the drive cannot prove this copy whole: the version up to which it can.
    pub proven: Option<Version>,
}

/// A write above the mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListedWrite {
    /// Its version.
    pub version: Version,
    /// The first block within the slab.
    pub first: u32,
    /// How many blocks.
    pub count: u32,
    /// Whether its data were missing after a crash, so that the former content was kept.
    pub in_doubt: bool,
}

/// What a copy knows of a page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PageState {
    /// The highest version written in it.
    pub version: Version,
    /// On a copy that is not in sync: whether resync has made it whole.
    pub whole: bool,
    /// Blocks that hold data, or did: what is lost counts.
    pub mapped_blocks: u16,
    /// Blocks of which it is not known any more what they held.
    pub lost_blocks: u16,
}

/// What a copy's map says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BlockState {
    /// Nothing is stored.
    Hole,
    /// Data with this checksum.
    Data(u32),
    /// It is not known what was stored.
    Lost,
}

/// The copies of which a fence's answer is heeded; see [`ReplicaError::Untold`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Heeded {
    /// All that it tells of.
    All,
    /// These.
    Copies(Vec<CopyId>),
}

impl Heeded {
    /// None of them: the fence is for its other effects.
    pub const NONE: Self = Self::Copies(Vec::new());

    pub(crate) fn includes(&self, copy: CopyId) -> bool {
        match self {
            Self::All => true,
            Self::Copies(copies) => copies.contains(&copy),
        }
    }
}

/// Why a request was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplicaError {
    /// A higher epoch was accepted: the asking owner is not the owner any more. Nothing changed.
    Fenced {
        /// The epoch that counts.
        epoch: Epoch,
    },
    /// The node has no such copy, or the range lies outside it. Nothing changed.
    NotFound,
    /// The drive has no room. Nothing changed.
    NoRoom,
    /// The drive failed; the change may be found on it later or not.
    DriveFailed(String),
    /// The data did not match their checksums on arrival. Nothing changed.
    DamagedOnArrival,
    /// The drive was attached anew, cannot prove that the copy has all that it had, and no owner has been told that since,
    /// which a fence asks for that heeds this copy. Nothing changed.
    Untold,
}

impl fmt::Display for ReplicaError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReplicaError::Fenced { epoch } => write!(formatter, "epoch {epoch} was accepted since"),
            ReplicaError::NotFound => formatter.write_str("no such copy or blocks"),
            ReplicaError::NoRoom => formatter.write_str("the drive has no room"),
            ReplicaError::DriveFailed(detail) => write!(formatter, "the drive failed: {detail}"),
            ReplicaError::DamagedOnArrival => formatter.write_str("the data were damaged on the way"),
            ReplicaError::Untold => formatter.write_str("the drive came back without all that it had"),
        }
    }
}

impl std::error::Error for ReplicaError {}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
