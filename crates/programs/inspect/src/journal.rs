//! Journal groups and their records.

use spandrel_shared::{CopyId, DriveId, Epoch, SlabIndex, Version, VolumeId};

use crate::fields::{Fields, is_sealed};
use crate::map::Mapping;
use crate::root::{COUNT_MAX, LAP_MAX, SlabLayout};

const MAGIC: &[u8; 4] = b"SpJg";

/// Bytes of a group before its records.
pub const HEADER_BYTES: usize = 64;

/// No group is longer.
pub const GROUP_BYTES_MAX: usize = 128 << 10;

/// Bytes of the drive's identity in a group.
const DRIVE_BYTES: usize = 12;

/// What a group says before its records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    pub checksum: u32,
    pub length_bytes: usize,
    pub previous_checksum: u32,
    pub sequence: u64,
    pub attach_number: u64,
    pub root_generation: u64,
    pub lap: u32,
}

/// A whole group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    pub header: GroupHeader,
    pub records: Vec<Record>,
}

/// A change of a drive's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    Write(Run),
    Heal(Run),
    Trim {
        slab_slot: u32,
        first: u32,
        count: u32,
        counter: u64,
    },
    Listed {
        slab_slot: u32,
        first: u32,
        count: u32,
        version: Version,
        in_doubt: bool,
    },
    Unlisted {
        slab_slot: u32,
        first: u32,
        count: u32,
        version: Version,
    },
    /// The record epoch of a volume.
    CounterEpoch {
        volume_slot: u32,
        epoch: Epoch,
    },
    Fence {
        volume_slot: u32,
        epoch: Epoch,
    },
    Mark {
        volume_slot: u32,
        mark: Version,
        exceptions: Vec<Version>,
    },
    SetPageVersion {
        slab_slot: u32,
        page: u32,
        version: Version,
        whole: bool,
    },
    VolumeAdd {
        volume_slot: u32,
        volume: VolumeId,
    },
    SlabAdd(SlabAdd),
    SlabRemove {
        slab_slot: u32,
    },
    /// A resync has made the copy whole.
    Proven {
        slab_slot: u32,
    },
    /// A resync is about to begin: the copy is sure to hold writes only up to a version.
    Doubted {
        slab_slot: u32,
        version: Version,
    },
}

/// Blocks of a slab that are mapped to consecutive physical blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    pub slab_slot: u32,
    pub first: u32,
    pub counter: u64,
    pub physical: u32,
    pub checksums: Vec<u32>,
}

impl Run {
    /// Each block of the slab with what it is mapped to.
    pub fn mappings(&self) -> impl Iterator<Item = (u32, Mapping)> + '_ {
        (0..)
            .zip(&self.checksums)
            .map(|(index, checksum)| (self.first + index, Mapping::named(self.physical + index, *checksum)))
    }
}

/// A new, empty copy of a slab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlabAdd {
    pub slab_slot: u32,
    pub volume_slot: u32,
    pub slab: SlabIndex,
    pub layout: SlabLayout,
    pub birth: Version,
    pub copy: CopyId,
}

/// What stands at a place of the journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing that looks like a group of this drive.
    Nothing,
    Group(Group),
    /// What looks like one and is not whole, and why.
    Damaged(GroupHeader, &'static str),
}

/// The header that may stand at the start of `bytes`. Nothing but its kind and its drive is
/// checked.
pub fn parse_header(bytes: &[u8], drive: DriveId) -> Option<GroupHeader> {
    let mut fields = Fields::new(bytes);
    let checksum = fields.u32()?;
    if fields.bytes(4)? != MAGIC {
        return None;
    }
    let length_bytes = fields.u32()? as usize;
    let previous_checksum = fields.u32()?;
    let (sequence, attach_number, root_generation) = (fields.u64()?, fields.u64()?, fields.u64()?);
    fields.skip(8)?;
    let lap = fields.u32()?;
    if fields.array::<DRIVE_BYTES>()?[..] != drive.to_bytes()[..DRIVE_BYTES] {
        return None;
    }
    Some(GroupHeader {
        checksum,
        length_bytes,
        previous_checksum,
        sequence,
        attach_number,
        root_generation,
        lap,
    })
}

/// Reads the group whose header is `header` and whose bytes are the first of `bytes`.
pub fn parse_group(header: GroupHeader, bytes: &[u8]) -> Place {
    let Some(bytes) = bytes.get(..header.length_bytes).filter(|bytes| bytes.len() >= HEADER_BYTES) else {
        return Place::Damaged(header, "its length is wrong");
    };
    if !is_sealed(bytes) {
        return Place::Damaged(header, "it does not match its checksum");
    }
    let counters = [header.sequence, header.attach_number, header.root_generation];
    if counters.iter().any(|counter| *counter >= COUNT_MAX) || header.lap >= LAP_MAX {
        return Place::Damaged(header, "it counts beyond what any drive has seen");
    }
    match parse_records(&bytes[HEADER_BYTES..], header.lap as u8) {
        Some(records) => Place::Group(Group { header, records }),
        None => Place::Damaged(header, "it holds a record that is not understood"),
    }
}

fn parse_records(bytes: &[u8], lap: u8) -> Option<Vec<Record>> {
    let mut fields = Fields::new(bytes);
    let mut records = Vec::new();
    while !fields.rest().is_empty() {
        let mut head = Fields::new(fields.rest());
        let (kind, record_lap, length) = (head.u8()?, head.u8()?, usize::from(head.u16()?));
        // A write of one block has another number there.
        let (length, before_fields) = if kind == 15 { (22, 2) } else { (length, 4) };
        if record_lap != lap || length < 4 {
            return None;
        }
        let mut record = Fields::new(fields.bytes(length)?);
        record.skip(before_fields)?;
        records.push(parse_record(kind, &mut record)?);
        if !record.rest().is_empty() {
            return None;
        }
    }
    Some(records)
}

fn parse_record(kind: u8, fields: &mut Fields<'_>) -> Option<Record> {
    Some(match kind {
        1 => Record::Write(parse_run(fields)?),
        2 => Record::Heal(parse_run(fields)?),
        3 | 4 | 8 | 11..=14 => parse_range(kind, fields)?,
        5..=7 => parse_volume(kind, fields)?,
        9 => Record::VolumeAdd { volume_slot: fields.u32()?, volume: VolumeId::from_bytes(fields.array()?) },
        10 => Record::SlabAdd(SlabAdd {
            slab_slot: fields.u32()?,
            volume_slot: fields.u32()?,
            slab: SlabIndex(fields.u32()?),
            layout: SlabLayout::parse(fields)?,
            birth: fields.version()?,
            copy: CopyId::from_bytes(fields.array()?),
        }),
        15 => Record::Write(parse_write_of_block(fields)?),
        _ => return None,
    })
}

fn parse_write_of_block(fields: &mut Fields<'_>) -> Option<Run> {
    let (first, slab_slot) = (fields.u16()?.into(), fields.u32()?);
    let (counter_low, counter_high) = (fields.u32()?, fields.u16()?);
    let counter = u64::from(counter_high) << 32 | u64::from(counter_low);
    Some(Run { slab_slot, first, counter, physical: fields.u32()?, checksums: vec![fields.u32()?] })
}

fn parse_run(fields: &mut Fields<'_>) -> Option<Run> {
    let slab_slot = fields.u32()?;
    let (first, count) = (u32::from(fields.u16()?), fields.u16()?);
    let (counter, physical) = (fields.u64()?, fields.u32()?);
    // Earlier programs wrote a number more, which says nothing that is needed.
    if fields.rest().len() > 4 * usize::from(count.max(1)) {
        fields.skip(4)?;
    }
    let checksums = (0..count.max(1)).map(|_| fields.u32()).collect::<Option<Vec<_>>>()?;
    // The last block has a number too.
    physical.checked_add(u32::from(count.saturating_sub(1)))?;
    (count > 0).then_some(Run { slab_slot, first, counter, physical, checksums })
}

/// A record of 32 bytes: a slab's slot, two numbers, a version and flags.
fn parse_range(kind: u8, fields: &mut Fields<'_>) -> Option<Record> {
    let (slab_slot, first, count) = (fields.u32()?, fields.u32()?, fields.u32()?);
    let version = fields.counter_and_epoch()?;
    let flag = fields.u32()? != 0;
    Some(match kind {
        3 => Record::Trim { slab_slot, first, count, counter: version.counter },
        4 => Record::Listed { slab_slot, first, count, version, in_doubt: flag },
        8 => Record::SetPageVersion { slab_slot, page: first, version, whole: flag },
        11 => Record::SlabRemove { slab_slot },
        13 => Record::Proven { slab_slot },
        14 => Record::Doubted { slab_slot, version },
        _ => Record::Unlisted { slab_slot, first, count, version },
    })
}

/// A record of a volume's slot, an epoch, a number of exceptions, a counter, and the exceptions.
fn parse_volume(kind: u8, fields: &mut Fields<'_>) -> Option<Record> {
    let (volume_slot, epoch) = (fields.u32()?, Epoch(fields.u32()?));
    let exception_count = fields.u32()?;
    let counter = fields.u64()?;
    let exceptions = (0..exception_count).map(|_| fields.version()).collect::<Option<Vec<_>>>()?;
    Some(match kind {
        5 => Record::CounterEpoch { volume_slot, epoch },
        6 => Record::Fence { volume_slot, epoch },
        _ => Record::Mark { volume_slot, mark: Version::new(epoch, counter), exceptions },
    })
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
