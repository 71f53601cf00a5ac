//! The root: all volumes and slab copies of a drive, and where its journal goes on.

use serde::Serialize;
use spandrel_shared::{CopyId, DriveId, Epoch, SlabIndex, Version, VolumeId};

use crate::fields::{Fields, is_sealed};

const MAGIC: &[u8; 4] = b"SpRt";

/// The same of a drive that is bound to a cache drive.
const BOUND_MAGIC: &[u8; 4] = b"SpRb";

const HEADER_BYTES: usize = 128;
const VOLUME_BYTES: usize = 64;
const SLAB_BYTES: usize = 128;

/// Generations, attach numbers and sequences are below this.
pub const COUNT_MAX: u64 = 1 << 62;

/// Laps are below this.
pub const LAP_MAX: u32 = 1 << 31;

/// What a root says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Bytes under its checksum.
    pub length_bytes: usize,
    pub generation: u64,
    pub attach_number: u64,
    pub state_revision: u64,
    pub journal: JournalPosition,
    pub binding: Option<Binding>,
    pub volumes: Vec<RootVolume>,
    pub slabs: Vec<RootSlab>,
}

/// Where a journal goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPosition {
    pub sequence: u64,
    pub sector: u32,
    pub lap: u32,
    /// The checksum of the group before.
    pub previous_checksum: u32,
    /// Its first sector, if it stands in the same journal.
    pub previous_sector: Option<u32>,
}

/// The area of a cache drive in which the journal stands, and to which maps may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    pub cache: DriveId,
    pub number: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootVolume {
    pub slot: u32,
    pub volume: VolumeId,
    pub fence_epoch: Epoch,
    pub record_epoch: Epoch,
    pub mark: Version,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootSlab {
    pub slot: u32,
    pub volume_slot: u32,
    pub slab: SlabIndex,
    pub layout: SlabLayout,
    pub copy: CopyId,
    pub leaf_format: u16,
    pub birth: Version,
    pub map: PagePointer,
    /// If an earlier recovery found that the copy may lack writes: the version up to which it lacks none.
    pub proven: Option<Version>,
}

/// How a slab's parts are laid out over its copy set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SlabLayout {
    /// 0: whole copies.
    pub kind: u8,
    /// Copies, or data parts of an erasure code.
    pub data: u8,
    /// Parity parts of an erasure code.
    pub parity: u8,
    /// Which of them this one is.
    pub part: u8,
}

impl SlabLayout {
    pub(crate) fn parse(fields: &mut Fields<'_>) -> Option<Self> {
        Some(Self { kind: fields.u8()?, data: fields.u8()?, parity: fields.u8()?, part: fields.u8()? })
    }
}

/// Where a map page stands, and its checksum. Block zero: there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PagePointer {
    pub block: u32,
    pub checksum: u32,
}

impl PagePointer {
    pub fn is_none(self) -> bool {
        self.block == 0
    }
}

/// What stands in a root slot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootSlot {
    /// Nothing was written there yet.
    Empty,
    Whole(Box<Root>),
    /// No whole root of this drive, and why.
    Damaged(String),
}

impl RootSlot {
    /// Reads the bytes of a slot of `drive`.
    pub fn parse(slot: &[u8], drive: DriveId) -> Self {
        if slot.iter().all(|byte| *byte == 0) {
            return Self::Empty;
        }
        match parse(slot, drive) {
            Ok(root) => Self::Whole(Box::new(root)),
            Err(why) => Self::Damaged(why.to_owned()),
        }
    }
}

fn parse(slot: &[u8], drive: DriveId) -> Result<Root, &'static str> {
    const SHORT: &str = "it is too short";
    let mut fields = Fields::new(slot);
    fields.skip(4).ok_or(SHORT)?;
    let magic = fields.bytes(4).ok_or(SHORT)?;
    let is_bound = magic == BOUND_MAGIC;
    if magic != MAGIC && !is_bound {
        return Err("it is no root");
    }
    let mut number = || fields.u32().ok_or(SHORT).map(|number| number as usize);
    let (length_bytes, volume_count, slab_count) = (number()?, number()?, number()?);
    let expected = HEADER_BYTES as u128
        + volume_count as u128 * VOLUME_BYTES as u128
        + slab_count as u128 * SLAB_BYTES as u128;
    if length_bytes as u128 != expected || length_bytes > slot.len() {
        return Err("its length is wrong");
    }
    if !is_sealed(&slot[..length_bytes]) {
        return Err("it does not match its checksum");
    }
    parse_sealed(&slot[..length_bytes], [volume_count, slab_count], drive, is_bound).unwrap_or(Err(SHORT))
}

fn parse_sealed(
    bytes: &[u8],
    [volume_count, slab_count]: [usize; 2],
    drive: DriveId,
    is_bound: bool,
) -> Option<Result<Root, &'static str>> {
    let mut header = Fields::new(&bytes[..HEADER_BYTES]);
    header.skip(24)?;
    let (generation, attach_number, state_revision) = (header.u64()?, header.u64()?, header.u64()?);
    let journal = JournalPosition {
        sequence: header.u64()?,
        sector: header.u32()?,
        lap: header.u32()?,
        previous_checksum: header.u32()?,
        previous_sector: header.u32()?.checked_sub(1),
    };
    if header.array()? != drive.to_bytes() {
        return Some(Err("it is another drive's root"));
    }
    let binding = Binding { cache: DriveId::from_bytes(header.array()?), number: header.u64()? };
    let binding = is_bound.then_some(binding);
    let counters = [generation, attach_number, journal.sequence];
    if counters.iter().any(|counter| *counter >= COUNT_MAX) || journal.sequence == 0 || journal.lap >= LAP_MAX
    {
        return Some(Err("it counts beyond what any drive has seen"));
    }
    let mut tables = Fields::new(&bytes[HEADER_BYTES..]);
    let volumes = (0..volume_count).map(|_| parse_volume(tables.bytes(VOLUME_BYTES)?));
    let volumes = volumes.collect::<Option<Vec<_>>>()?;
    let slabs = (0..slab_count).map(|_| parse_slab(tables.bytes(SLAB_BYTES)?));
    let slabs = slabs.collect::<Option<Vec<_>>>()?;
    let volume_slots = volumes.iter().map(|volume| volume.slot);
    let slab_slots = slabs.iter().map(|slab| slab.slot);
    if !volume_slots.is_sorted_by(|a, b| a < b) || !slab_slots.is_sorted_by(|a, b| a < b) {
        return Some(Err("its slots are not in order"));
    }
    let length_bytes = bytes.len();
    Some(Ok(Root {
        length_bytes,
        generation,
        attach_number,
        state_revision,
        journal,
        binding,
        volumes,
        slabs,
    }))
}

fn parse_volume(bytes: &[u8]) -> Option<RootVolume> {
    let mut fields = Fields::new(bytes);
    Some(RootVolume {
        slot: fields.u32()?,
        volume: VolumeId::from_bytes(fields.array()?),
        fence_epoch: Epoch(fields.u32()?),
        record_epoch: Epoch(fields.u32()?),
        mark: fields.version()?,
    })
}

fn parse_slab(bytes: &[u8]) -> Option<RootSlab> {
    let mut fields = Fields::new(bytes);
    let (slot, volume_slot, slab) = (fields.u32()?, fields.u32()?, SlabIndex(fields.u32()?));
    let layout = SlabLayout::parse(&mut fields)?;
    let copy = CopyId::from_bytes(fields.array()?);
    let leaf_format = fields.u16()?;
    fields.skip(6)?;
    let birth = fields.version()?;
    let map = PagePointer { block: fields.u32()?, checksum: fields.u32()? };
    // The parent snapshot and the key are for formats to come.
    fields.skip(32)?;
    let is_unproven = fields.u8()? != 0;
    fields.skip(3)?;
    let proven = Some(fields.version()?).filter(|_| is_unproven);
    Some(RootSlab { slot, volume_slot, slab, layout, copy, leaf_format, birth, map, proven })
}
