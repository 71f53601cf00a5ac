//! The root of a drive: all its slab copies and volumes, and where the journal goes on.
//!
//! A root stands in one slot, as a header and two tables, under one checksum:
//!
//! ```text
//! header     128 bytes
//! volumes    64 bytes each
//! slabs      128 bytes each
//! ```
//!
//! Slot numbers in journal records are places in these tables. A freed slot is not given out
//! again before a checkpoint that began after its deletion, so that no replayed record meets
//! another slab or volume than it was written for.

use spandrel_shared::{BLOCK_BYTES, CopyId, DriveId, Epoch, SlabIndex, Version, VolumeId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{COUNT_MAX, FormatError, LAP_MAX};
use crate::format::cache::Binding;
use crate::format::map::{LEAF_FORMAT, PagePointer};

/// The first bytes behind the checksum of every root.
pub const ROOT_MAGIC: [u8; 4] = *b"SpRt";

/// The same for a drive that is bound to a cache drive: without that one it can be attached only as one that has lost it.
pub const BOUND_ROOT_MAGIC: [u8; 4] = *b"SpRb";

const HEADER_BYTES: usize = 128;
const VOLUME_BYTES: usize = 64;
const SLAB_BYTES: usize = 128;

/// Blocks that a root slot takes on a drive of up to `slab_count_max` slabs. Each may belong to
/// another volume.
pub const fn slot_blocks(slab_count_max: u32) -> u32 {
    let bytes = HEADER_BYTES + slab_count_max as usize * (VOLUME_BYTES + SLAB_BYTES);
    bytes.div_ceil(BLOCK_BYTES) as u32
}

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct HeaderBytes {
    checksum: U32,
    magic: [u8; 4],
    length_bytes: U32,
    volume_count: U32,
    slab_count: U32,
    reserved: U32,
    generation: U64,
    attach_number: U64,
    state_revision: U64,
    journal_sequence: U64,
    journal_sector: U32,
    journal_lap: U32,
    journal_previous_checksum: U32,
    /// One more than the sector; zero if it is not known.
    journal_previous_sector: U32,
    drive: [u8; 16],
    cache: [u8; 16],
    binding_number: U64,
    reserved_2: [u8; 16],
}

impl HeaderBytes {
    /// Whether its counters can be raised, and a group can stand before the next one.
    fn can_go_on(&self) -> bool {
        let counters = [self.generation, self.attach_number, self.journal_sequence];
        counters.iter().all(|counter| counter.get() < COUNT_MAX)
            && self.journal_sequence.get() > 0
            && self.journal_lap.get() < LAP_MAX
    }
}

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct VolumeBytes {
    slot: U32,
    volume: [u8; 16],
    fence_epoch: U32,
    record_epoch: U32,
    mark_epoch: U32,
    mark_counter: U64,
    reserved: [u8; 24],
}

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SlabBytes {
    slot: U32,
    volume_slot: U32,
    slab: U32,
    layout_kind: u8,
    layout_data: u8,
    layout_parity: u8,
    part: u8,
    copy: [u8; 16],
    leaf_format: U16,
    reserved: [u8; 6],
    birth_epoch: U32,
    birth_counter: U64,
    map_block: U32,
    map_checksum: U32,
    parent_snapshot: [u8; 16],
    key: [u8; 16],
    unproven: u8,
    reserved_2: [u8; 3],
    proven_epoch: U32,
    proven_counter: U64,
    reserved_3: [u8; 20],
}

const _: () = assert!(size_of::<HeaderBytes>() == HEADER_BYTES);
const _: () = assert!(size_of::<VolumeBytes>() == VOLUME_BYTES);
const _: () = assert!(size_of::<SlabBytes>() == SLAB_BYTES);

/// Where the journal goes on: the first group that is not part of the root's maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPosition {
    /// The number of the group that stands, or will stand, here.
    pub sequence: u64,
    /// Its first sector, counted from the journal's start.
    pub sector: u32,
    /// How often the journal had wrapped around before it.
    pub lap: u32,
    /// The checksum of the group before it.
    pub previous_checksum: u32,
    /// The first sector of the group before it, if that stands in the same journal.
    pub previous_sector: Option<u32>,
}

/// How the parts of a slab are laid out over its copy set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlabLayout {
    /// 0: whole copies.
    pub kind: u8,
    /// Copies, or data parts of an erasure code.
    pub data: u8,
    /// Parity parts of an erasure code; zero for copies.
    pub parity: u8,
    /// Which of them this one is.
    pub part: u8,
}

impl SlabLayout {
    /// Copy number `part` of `copies` whole copies.
    pub const fn mirror(copies: u8, part: u8) -> Self {
        Self { kind: 0, data: copies, parity: 0, part }
    }
}

/// A volume of which the drive holds slabs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootVolume {
    /// Its number in journal records.
    pub slot: u32,
    /// The volume.
    pub volume: VolumeId,
    /// The highest epoch that this drive has accepted; lower ones are refused.
    pub fence_epoch: Epoch,
    /// The epoch of the versions in journal records from the root's position on, until a record
    /// sets another one.
    pub record_epoch: Epoch,
    /// The newest committed mark that was recorded.
    pub mark: Version,
}

impl RootVolume {
    /// A volume of which nothing is known yet.
    pub fn new(slot: u32, volume: VolumeId) -> Self {
        Self { slot, volume, fence_epoch: Epoch::ZERO, record_epoch: Epoch::ZERO, mark: Version::ZERO }
    }
}

/// A slab copy on the drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RootSlab {
    /// Its number in journal records.
    pub slot: u32,
    /// Its volume's number in journal records.
    pub volume_slot: u32,
    /// Which slab of the volume.
    pub slab: SlabIndex,
    /// How the slab's parts are laid out.
    pub layout: SlabLayout,
    /// The identity of this copy.
    pub copy: CopyId,
    /// The version at which this copy began.
    pub birth: Version,
    /// The slab's root page; none while nothing is mapped.
    pub map: PagePointer,
    /// If the copy may lack writes: the version up to which it lacks none.
    pub proven: Option<Version>,
}

/// All of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// The drive; so that a root in the wrong place is noticed.
    pub drive: DriveId,
    /// Raised by each root that is written.
    pub generation: u64,
    /// Raised by each attach of the drive.
    pub attach_number: u64,
    /// The newest revision of the cluster state that the drive has seen.
    pub state_revision: u64,
    /// Where the journal goes on.
    pub journal: JournalPosition,
    /// The area of a cache drive in which the journal stands, and to which maps may lead.
    pub binding: Option<Binding>,
    /// The volumes, in ascending slots.
    pub volumes: Vec<RootVolume>,
    /// The slab copies, in ascending slots.
    pub slabs: Vec<RootSlab>,
}

impl Root {
    /// The bytes for a slot, padded to whole blocks.
    pub fn encode(&self) -> Vec<u8> {
        let length = HEADER_BYTES + self.volumes.len() * VOLUME_BYTES + self.slabs.len() * SLAB_BYTES;
        let mut header = HeaderBytes::new_zeroed();
        header.magic = if self.binding.is_some() { BOUND_ROOT_MAGIC } else { ROOT_MAGIC };
        header.length_bytes = (length as u32).into();
        header.volume_count = (self.volumes.len() as u32).into();
        header.slab_count = (self.slabs.len() as u32).into();
        header.generation = self.generation.into();
        header.attach_number = self.attach_number.into();
        header.state_revision = self.state_revision.into();
        header.journal_sequence = self.journal.sequence.into();
        header.journal_sector = self.journal.sector.into();
        header.journal_lap = self.journal.lap.into();
        header.journal_previous_checksum = self.journal.previous_checksum.into();
        header.journal_previous_sector = self.journal.previous_sector.map_or(0, |sector| sector + 1).into();
        header.drive = self.drive.to_bytes();
        if let Some(binding) = &self.binding {
            header.cache = binding.cache.to_bytes();
            header.binding_number = binding.number.into();
        }

        let mut bytes = Vec::with_capacity(length.next_multiple_of(BLOCK_BYTES));
        bytes.extend_from_slice(header.as_bytes());
        for volume in &self.volumes {
            bytes.extend_from_slice(encode_volume(volume).as_bytes());
        }
        for slab in &self.slabs {
            bytes.extend_from_slice(encode_slab(slab).as_bytes());
        }
        super::seal(&mut bytes);
        bytes.resize(length.next_multiple_of(BLOCK_BYTES), 0);
        bytes
    }

    /// The same with slabs whose leaves have another format.
    #[cfg(test)]
    pub(crate) fn encode_with_leaf_format(&self, leaf_format: u8) -> Vec<u8> {
        let mut bytes = self.encode();
        let slabs = HEADER_BYTES + self.volumes.len() * VOLUME_BYTES;
        let end = slabs + self.slabs.len() * SLAB_BYTES;
        for slab in bytes[slabs..end].chunks_exact_mut(SLAB_BYTES) {
            slab[std::mem::offset_of!(SlabBytes, leaf_format)] = leaf_format;
        }
        super::seal(&mut bytes[..end]);
        bytes
    }

    /// Whether `slot` holds the root of a drive, whichever it is, that was formatted and never attached.
    pub fn is_never_attached(slot: &[u8]) -> bool {
        let Ok((header, _)) = HeaderBytes::ref_from_prefix(slot) else { return false };
        let root = Self::decode(slot, DriveId::from_bytes(header.drive));
        root.is_ok_and(|root| root.generation == 1 && root.attach_number == 0 && root.slabs.is_empty())
    }

    /// Reads what [`Root::encode`] wrote for `drive` from the bytes of a slot. `Newer` if a slab's leaves
    /// have a format that is not known here.
    pub fn decode(slot: &[u8], drive: DriveId) -> Result<Self, FormatError> {
        let (header, rest) = HeaderBytes::ref_from_prefix(slot).map_err(|_| FormatError::Inconsistent)?;
        let is_bound = header.magic == BOUND_ROOT_MAGIC;
        if header.magic != ROOT_MAGIC && !is_bound {
            return Err(FormatError::Magic);
        }
        let volume_count = header.volume_count.get() as usize;
        let slab_count = header.slab_count.get() as usize;
        let length = header.length_bytes.get() as usize;
        let expected = volume_count
            .checked_mul(VOLUME_BYTES)
            .and_then(|volumes| volumes.checked_add(slab_count.checked_mul(SLAB_BYTES)?))
            .and_then(|tables| tables.checked_add(HEADER_BYTES));
        if expected != Some(length) || length > slot.len() {
            return Err(FormatError::Checksum);
        }
        if !super::is_sealed(&slot[..length]) {
            return Err(FormatError::Checksum);
        }
        if header.drive != drive.to_bytes() || !header.can_go_on() {
            return Err(FormatError::Inconsistent);
        }
        let (volumes, rest) = <[VolumeBytes]>::ref_from_prefix_with_elems(rest, volume_count)
            .map_err(|_| FormatError::Inconsistent)?;
        let (slabs, _) = <[SlabBytes]>::ref_from_prefix_with_elems(rest, slab_count)
            .map_err(|_| FormatError::Inconsistent)?;
        let volume_slots = volumes.iter().map(|volume| volume.slot.get());
        let slab_slots = slabs.iter().map(|slab| slab.slot.get());
        if !volume_slots.is_sorted_by(|a, b| a < b) || !slab_slots.is_sorted_by(|a, b| a < b) {
            return Err(FormatError::Inconsistent);
        }
        let unknown = slabs.iter().find(|slab| slab.leaf_format.get() != LEAF_FORMAT);
        if let Some(slab) = unknown {
            let version = slab.leaf_format.get().into();
            return Err(FormatError::Newer { version, unknown_features: 0 });
        }
        Ok(Self {
            drive,
            generation: header.generation.get(),
            attach_number: header.attach_number.get(),
            state_revision: header.state_revision.get(),
            journal: JournalPosition {
                sequence: header.journal_sequence.get(),
                sector: header.journal_sector.get(),
                lap: header.journal_lap.get(),
                previous_checksum: header.journal_previous_checksum.get(),
                previous_sector: header.journal_previous_sector.get().checked_sub(1),
            },
            binding: is_bound.then(|| Binding {
                cache: DriveId::from_bytes(header.cache),
                number: header.binding_number.get(),
            }),
            volumes: volumes.iter().map(decode_volume).collect(),
            slabs: slabs.iter().map(decode_slab).collect(),
        })
    }
}

fn encode_volume(volume: &RootVolume) -> VolumeBytes {
    let mut bytes = VolumeBytes::new_zeroed();
    bytes.slot = volume.slot.into();
    bytes.volume = volume.volume.to_bytes();
    bytes.fence_epoch = volume.fence_epoch.0.into();
    bytes.record_epoch = volume.record_epoch.0.into();
    bytes.mark_epoch = volume.mark.epoch.0.into();
    bytes.mark_counter = volume.mark.counter.into();
    bytes
}

fn decode_volume(bytes: &VolumeBytes) -> RootVolume {
    RootVolume {
        slot: bytes.slot.get(),
        volume: VolumeId::from_bytes(bytes.volume),
        fence_epoch: Epoch(bytes.fence_epoch.get()),
        record_epoch: Epoch(bytes.record_epoch.get()),
        mark: Version::new(Epoch(bytes.mark_epoch.get()), bytes.mark_counter.get()),
    }
}

fn encode_slab(slab: &RootSlab) -> SlabBytes {
    let mut bytes = SlabBytes::new_zeroed();
    bytes.slot = slab.slot.into();
    bytes.volume_slot = slab.volume_slot.into();
    bytes.slab = slab.slab.0.into();
    bytes.layout_kind = slab.layout.kind;
    bytes.layout_data = slab.layout.data;
    bytes.layout_parity = slab.layout.parity;
    bytes.part = slab.layout.part;
    bytes.copy = slab.copy.to_bytes();
    bytes.leaf_format = LEAF_FORMAT.into();
    bytes.birth_epoch = slab.birth.epoch.0.into();
    bytes.birth_counter = slab.birth.counter.into();
    bytes.map_block = slab.map.block.into();
    bytes.map_checksum = slab.map.checksum.into();
    if let Some(proven) = slab.proven {
        bytes.unproven = 1;
        bytes.proven_epoch = proven.epoch.0.into();
        bytes.proven_counter = proven.counter.into();
    }
    bytes
}

fn decode_slab(bytes: &SlabBytes) -> RootSlab {
    RootSlab {
        slot: bytes.slot.get(),
        volume_slot: bytes.volume_slot.get(),
        slab: SlabIndex(bytes.slab.get()),
        layout: SlabLayout {
            kind: bytes.layout_kind,
            data: bytes.layout_data,
            parity: bytes.layout_parity,
            part: bytes.part,
        },
        copy: CopyId::from_bytes(bytes.copy),
        birth: Version::new(Epoch(bytes.birth_epoch.get()), bytes.birth_counter.get()),
        map: PagePointer { block: bytes.map_block.get(), checksum: bytes.map_checksum.get() },
        proven: (bytes.unproven != 0)
            .then(|| Version::new(Epoch(bytes.proven_epoch.get()), bytes.proven_counter.get())),
    }
}

#[cfg(test)]
#[path = "root_tests.rs"]
mod tests;
