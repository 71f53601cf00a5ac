//! The journal: a ring of groups, each a header and records, written in whole sectors.
//!
//! ```text
//! group    checksum, magic, length, checksum of the group before, sequence, attach number,
//!          generation of the root, highest confirmed sequence, lap, drive     64 bytes
//!          records, one behind the other
//!          zeros up to the next sector
//! record   type (1), lap (1), length in bytes (2), then what the type needs; in a write of one block, which is what most
//!          records are, the first block stands for the length
//! ```
//!
//! Why it looks so:
//! - Each group holds the checksum of the one before it. A group that was lost, or that was
//!   written elsewhere, breaks the chain, and so is noticed.
//! - Only one group is written at a time. When group *n* is on the drive, group *n-1* and all
//!   data that it names had been durable before: that is the confirmed sequence. So only the
//!   data of the very last group can be missing after a power cut.
//! - Each group names its drive. A drive that is formatted anew may still hold the groups of its
//!   former store at their old places.
//! - A group never straddles the end of the ring. Where the next one does not fit, it begins at
//!   the ring's start, one lap later.

use smallvec::smallvec;
use spandrel_shared::checksum::Checksums;
use spandrel_shared::{CopyId, DriveId, Epoch, SlabIndex, Version, VolumeId};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{COUNT_MAX, FormatError, LAP_MAX};
use crate::format::map::Mapping;
use crate::format::root::SlabLayout;

/// The first bytes behind the checksum of every group.
pub const GROUP_MAGIC: [u8; 4] = *b"SpJg";

/// Bytes of a group's header.
pub const GROUP_HEADER_BYTES: usize = 64;

/// The longest group, in bytes. Far below the smallest journal.
pub const GROUP_BYTES_MAX: usize = 128 << 10;

/// Blocks that one mapping record can name, so that its length fits 16 bits.
pub const RECORD_BLOCKS_MAX: u32 = 8192;

/// Bytes of a record that lists a write.
pub const LISTED_RECORD_BYTES: usize = size_of::<RangeBytes>();

/// Exceptions that one mark record can carry.
pub const MARK_EXCEPTIONS_MAX: usize = 4096;

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct GroupBytes {
    checksum: U32,
    magic: [u8; 4],
    length_bytes: U32,
    previous_checksum: U32,
    sequence: U64,
    attach_number: U64,
    root_generation: U64,
    confirmed_sequence: U64,
    lap: U32,
    drive: [u8; DRIVE_BYTES],
}

/// As many bytes of the drive's identity stand in a group's header.
const DRIVE_BYTES: usize = 12;

const _: () = assert!(size_of::<GroupBytes>() == GROUP_HEADER_BYTES);

/// What a group says of itself and of its place in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupHeader {
    /// Counts all groups of the drive.
    pub sequence: u64,
    /// The checksum of the group before.
    pub previous_checksum: u32,
    /// How often the ring had wrapped around before.
    pub lap: u32,
    /// The attach of the drive during which it was written.
    pub attach_number: u64,
    /// The newest root when it was written.
    pub root_generation: u64,
    /// The groups up to this one, and the data that they name, were durable before.
    pub confirmed_sequence: u64,
}

/// A group that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its header.
    pub header: GroupHeader,
    /// Its own checksum, which the next group repeats.
    pub checksum: u32,
    /// Bytes without the padding to the next sector.
    pub length_bytes: u32,
    /// What it records, in order.
    pub records: Vec<Record>,
}

/// One change of a drive's state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// Blocks of a slab were written to consecutive physical blocks.
    Write(MappingRecord),
    /// Blocks were replaced by a good copy of the same content: maps as a write does, but is no
    /// write of the volume, so its version is zero.
    Heal(MappingRecord),
    /// Blocks of a slab were unmapped.
    Trim {
        /// The slab's slot.
        slab_slot: u32,
        /// The first block within the slab.
        first: u32,
        /// How many blocks, at most a slab.
        count: u32,
        /// The counter of the version.
        counter: u64,
    },
    /// A write above the mark that an earlier part of the journal held, repeated behind a
    /// checkpoint so that the list of such writes survives.
    Listed {
        /// The slab's slot.
        slab_slot: u32,
        /// The first block within the slab.
        first: u32,
        /// How many blocks.
        count: u32,
        /// The write's whole version.
        version: Version,
        /// Whether the data were found missing, so that the former content was kept.
        in_doubt: bool,
    },
    /// A write that is not on the list, although an earlier record brought it: it did not take
    /// place.
    Unlisted {
        /// The slab's slot.
        slab_slot: u32,
        /// The first block within the slab.
        first: u32,
        /// How many blocks.
        count: u32,
        /// The write's whole version.
        version: Version,
    },
    /// From here on, counters in records of this volume belong to `epoch`.
    #[expect(clippy::enum_variant_names, reason = "it is the epoch of records")]
    RecordEpoch {
        /// The volume's slot.
        volume_slot: u32,
        /// The epoch.
        epoch: Epoch,
    },
    /// The drive refuses epochs below this one for the volume.
    Fence {
        /// The volume's slot.
        volume_slot: u32,
        /// The lowest epoch that is still accepted.
        epoch: Epoch,
    },
    /// Every write at or below `mark`, except those listed, is complete on all in-sync copies.
    Mark {
        /// The volume's slot.
        volume_slot: u32,
        /// The mark.
        mark: Version,
        /// Versions below the mark that are not complete.
        exceptions: Vec<Version>,
    },
    /// Resync has set a page to what its source holds.
    SetPageVersion {
        /// The slab's slot.
        slab_slot: u32,
        /// The page within the slab.
        page: u32,
        /// The source's version of the page.
        version: Version,
        /// Whether the page is whole now.
        whole: bool,
    },
    /// The drive gets a slab of a volume, perhaps the first one. A volume without slabs is
    /// forgotten, so no record says that one is removed.
    VolumeAdd {
        /// The volume's new slot.
        volume_slot: u32,
        /// The volume.
        volume: VolumeId,
    },
    /// The drive got an empty copy of a slab.
    SlabAdd(SlabAdd),
    /// The copy and all its blocks are given up.
    SlabRemove {
        /// The slab's slot.
        slab_slot: u32,
    },
    /// The copy, which might have lacked writes, is whole again.
    Proven {
        /// The slab's slot.
        slab_slot: u32,
    },
    /// The copy is sure to hold writes only up to a version: it is about to get newer ones before older ones.
    Doubted {
        /// The slab's slot.
        slab_slot: u32,
        /// The version.
        version: Version,
    },
}

/// Blocks of a slab and the consecutive physical blocks that hold them now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MappingRecord {
    /// The slab's slot.
    pub slab_slot: u32,
    /// The first block within the slab.
    pub first: u32,
    /// The counter of the version.
    pub counter: u64,
    /// The first physical block.
    pub block: u32,
    /// The address-mixed checksum of each block.
    pub checksums: Checksums,
}

impl MappingRecord {
    /// What one block is mapped to is not known any more.
    pub fn lost(slab_slot: u32, block: u32) -> Self {
        let Mapping { block: physical, checksum } = Mapping::UNKNOWN;
        Self { slab_slot, first: block, counter: 0, block: physical, checksums: smallvec![checksum] }
    }

    /// How many blocks.
    pub fn count(&self) -> u32 {
        self.checksums.len() as u32
    }

    /// Each block within the slab and its new mapping.
    pub fn mappings(&self) -> impl Iterator<Item = (u32, Mapping)> + '_ {
        self.checksums
            .iter()
            .zip(0..)
            .map(|(checksum, index)| (self.first + index, Mapping::named(self.block + index, *checksum)))
    }
}

/// A new, empty copy of a slab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlabAdd {
    /// Its slot.
    pub slab_slot: u32,
    /// Its volume's slot.
    pub volume_slot: u32,
    /// Which slab of the volume.
    pub slab: SlabIndex,
    /// How the slab's parts are laid out.
    pub layout: SlabLayout,
    /// The identity of the copy.
    pub copy: CopyId,
    /// The version at which the copy begins.
    pub birth: Version,
}

mod kind {
    pub const WRITE: u8 = 1;
    pub const HEAL: u8 = 2;
    pub const TRIM: u8 = 3;
    pub const LISTED: u8 = 4;
    pub const RECORD_EPOCH: u8 = 5;
    pub const FENCE: u8 = 6;
    pub const MARK: u8 = 7;
    pub const SET_PAGE_VERSION: u8 = 8;
    pub const VOLUME_ADD: u8 = 9;
    pub const SLAB_ADD: u8 = 10;
    pub const SLAB_REMOVE: u8 = 11;
    pub const UNLISTED: u8 = 12;
    pub const PROVEN: u8 = 13;
    pub const DOUBTED: u8 = 14;
    pub const WRITE_BLOCK: u8 = 15;
}

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RecordHead {
    kind: u8,
    lap: u8,
    length_bytes: U16,
}

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct MappingBytes {
    head: RecordHead,
    slab_slot: U32,
    first: U16,
    count: U16,
    counter: U64,
    block: U32,
    // The checksum of each block follows. Earlier programs wrote four bytes more before these, which nobody reads.
}

/// A write of one block. Groups of twenty of them fit a sector of 512 bytes.
#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct WriteBlockBytes {
    kind: u8,
    lap: u8,
    first: U16,
    slab_slot: U32,
    counter_low: U32,
    counter_high: U16,
    block: U32,
    checksum: U32,
}

impl WriteBlockBytes {
    /// Counters from here on stand in a longer record.
    const COUNTERS: u64 = 1 << 48;

    /// Whether a write has such a record.
    fn suits(write: &MappingRecord) -> bool {
        write.count() == 1 && write.counter < Self::COUNTERS
    }
}

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RangeBytes {
    head: RecordHead,
    slab_slot: U32,
    first: U32,
    count: U32,
    counter: U64,
    epoch: U32,
    flags: U32,
}

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct VolumeBytes {
    head: RecordHead,
    volume_slot: U32,
    epoch: U32,
    exception_count: U32,
    counter: U64,
}

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct VersionBytes {
    epoch: U32,
    counter: U64,
}

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct VolumeAddBytes {
    head: RecordHead,
    volume_slot: U32,
    volume: [u8; 16],
}

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct SlabAddBytes {
    head: RecordHead,
    slab_slot: U32,
    volume_slot: U32,
    slab: U32,
    layout_kind: u8,
    layout_data: u8,
    layout_parity: u8,
    part: u8,
    birth_epoch: U32,
    birth_counter: U64,
    copy: [u8; 16],
}

const _: () = assert!(size_of::<MappingBytes>() == 24);
const _: () = assert!(size_of::<WriteBlockBytes>() == 22);
const _: () = assert!(size_of::<RangeBytes>() == 32);

/// Builds one group.
pub struct GroupWriter {
    bytes: Vec<u8>,
    lap: u8,
}

impl GroupWriter {
    /// An empty group.
    pub fn new(lap: u32) -> Self {
        Self { bytes: vec![0; GROUP_HEADER_BYTES], lap: lap as u8 }
    }

    /// Bytes so far, header included.
    pub fn length_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Appends a record.
    pub fn push(&mut self, record: &Record) {
        let start = self.bytes.len();
        match record {
            // It says by its type how long it is.
            Record::Write(write) if WriteBlockBytes::suits(write) => return self.push_write_of_block(write),
            Record::Write(mapping) => self.push_mapping(kind::WRITE, mapping),
            Record::Heal(mapping) => self.push_mapping(kind::HEAL, mapping),
            Record::Trim { slab_slot, first, count, counter } => {
                let version = Version::new(Epoch::ZERO, *counter);
                self.push_range(kind::TRIM, *slab_slot, *first, *count, version, 0);
            }
            Record::Listed { slab_slot, first, count, version, in_doubt } => {
                self.push_range(kind::LISTED, *slab_slot, *first, *count, *version, u32::from(*in_doubt));
            }
            Record::Unlisted { slab_slot, first, count, version } => {
                self.push_range(kind::UNLISTED, *slab_slot, *first, *count, *version, 0);
            }
            Record::SetPageVersion { slab_slot, page, version, whole } => {
                self.push_range(kind::SET_PAGE_VERSION, *slab_slot, *page, 1, *version, u32::from(*whole));
            }
            Record::RecordEpoch { volume_slot, epoch } => {
                self.push_volume(kind::RECORD_EPOCH, *volume_slot, Version::new(*epoch, 0), &[]);
            }
            Record::Fence { volume_slot, epoch } => {
                self.push_volume(kind::FENCE, *volume_slot, Version::new(*epoch, 0), &[]);
            }
            Record::Mark { volume_slot, mark, exceptions } => {
                self.push_volume(kind::MARK, *volume_slot, *mark, exceptions);
            }
            Record::VolumeAdd { volume_slot, volume } => {
                let bytes = VolumeAddBytes {
                    head: self.head(kind::VOLUME_ADD),
                    volume_slot: (*volume_slot).into(),
                    volume: volume.to_bytes(),
                };
                self.bytes.extend_from_slice(bytes.as_bytes());
            }
            Record::SlabAdd(add) => self.push_slab_add(add),
            Record::SlabRemove { slab_slot } => {
                self.push_range(kind::SLAB_REMOVE, *slab_slot, 0, 0, Version::ZERO, 0);
            }
            Record::Proven { slab_slot } => {
                self.push_range(kind::PROVEN, *slab_slot, 0, 0, Version::ZERO, 0);
            }
            Record::Doubted { slab_slot, version } => {
                self.push_range(kind::DOUBTED, *slab_slot, 0, 0, *version, 0);
            }
        }
        let length = u16::try_from(self.bytes.len() - start).expect("records are bounded to 64 KiB");
        self.bytes[start + 2..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Ends the group of `drive`: the bytes to write, without padding, and the group's checksum.
    pub fn finish(mut self, header: &GroupHeader, drive: DriveId) -> (Vec<u8>, u32) {
        let mut bytes = GroupBytes::new_zeroed();
        bytes.magic = GROUP_MAGIC;
        bytes.length_bytes = (self.bytes.len() as u32).into();
        bytes.previous_checksum = header.previous_checksum.into();
        bytes.sequence = header.sequence.into();
        bytes.attach_number = header.attach_number.into();
        bytes.root_generation = header.root_generation.into();
        bytes.confirmed_sequence = header.confirmed_sequence.into();
        bytes.lap = header.lap.into();
        bytes.drive = first_bytes(drive);
        self.bytes[..GROUP_HEADER_BYTES].copy_from_slice(bytes.as_bytes());
        let checksum = super::seal(&mut self.bytes);
        (self.bytes, checksum)
    }

    fn head(&self, kind: u8) -> RecordHead {
        RecordHead { kind, lap: self.lap, length_bytes: 0.into() }
    }

    fn push_write_of_block(&mut self, write: &MappingRecord) {
        let bytes = WriteBlockBytes {
            kind: kind::WRITE_BLOCK,
            lap: self.lap,
            first: u16::try_from(write.first).expect("a slab has at most so many blocks").into(),
            slab_slot: write.slab_slot.into(),
            counter_low: (write.counter as u32).into(),
            counter_high: ((write.counter >> 32) as u16).into(),
            block: write.block.into(),
            checksum: write.checksums[0].into(),
        };
        self.bytes.extend_from_slice(bytes.as_bytes());
    }

    fn push_mapping(&mut self, kind: u8, mapping: &MappingRecord) {
        let (first, count) = (mapping.first as u16, mapping.count() as u16);
        assert!(u32::from(first) == mapping.first && u32::from(count) == mapping.count() && count > 0);
        let bytes = MappingBytes {
            head: self.head(kind),
            slab_slot: mapping.slab_slot.into(),
            first: first.into(),
            count: count.into(),
            counter: mapping.counter.into(),
            block: mapping.block.into(),
        };
        self.bytes.extend_from_slice(bytes.as_bytes());
        for checksum in &mapping.checksums {
            self.bytes.extend_from_slice(&checksum.to_le_bytes());
        }
    }

    fn push_range(&mut self, kind: u8, slab_slot: u32, first: u32, count: u32, version: Version, flags: u32) {
        let bytes = RangeBytes {
            head: self.head(kind),
            slab_slot: slab_slot.into(),
            first: first.into(),
            count: count.into(),
            counter: version.counter.into(),
            epoch: version.epoch.0.into(),
            flags: flags.into(),
        };
        self.bytes.extend_from_slice(bytes.as_bytes());
    }

    fn push_volume(&mut self, kind: u8, volume_slot: u32, version: Version, exceptions: &[Version]) {
        assert!(exceptions.len() <= MARK_EXCEPTIONS_MAX, "{} exceptions", exceptions.len());
        let bytes = VolumeBytes {
            head: self.head(kind),
            volume_slot: volume_slot.into(),
            epoch: version.epoch.0.into(),
            exception_count: (exceptions.len() as u32).into(),
            counter: version.counter.into(),
        };
        self.bytes.extend_from_slice(bytes.as_bytes());
        for exception in exceptions {
            let bytes = VersionBytes { epoch: exception.epoch.0.into(), counter: exception.counter.into() };
            self.bytes.extend_from_slice(bytes.as_bytes());
        }
    }

    fn push_slab_add(&mut self, add: &SlabAdd) {
        let bytes = SlabAddBytes {
            head: self.head(kind::SLAB_ADD),
            slab_slot: add.slab_slot.into(),
            volume_slot: add.volume_slot.into(),
            slab: add.slab.0.into(),
            layout_kind: add.layout.kind,
            layout_data: add.layout.data,
            layout_parity: add.layout.parity,
            part: add.layout.part,
            birth_epoch: add.birth.epoch.0.into(),
            birth_counter: add.birth.counter.into(),
            copy: add.copy.to_bytes(),
        };
        self.bytes.extend_from_slice(bytes.as_bytes());
    }
}

/// The bytes that the record takes in a group.
pub fn record_bytes(record: &Record) -> usize {
    match record {
        Record::Write(write) if WriteBlockBytes::suits(write) => size_of::<WriteBlockBytes>(),
        Record::Write(mapping) | Record::Heal(mapping) => {
            size_of::<MappingBytes>() + 4 * mapping.checksums.len()
        }
        Record::Mark { exceptions, .. } => 24 + 12 * exceptions.len(),
        Record::RecordEpoch { .. } | Record::Fence { .. } | Record::VolumeAdd { .. } => 24,
        Record::SlabAdd(_) => size_of::<SlabAddBytes>(),
        _ => 32,
    }
}

fn first_bytes(drive: DriveId) -> [u8; DRIVE_BYTES] {
    std::array::from_fn(|index| drive.to_bytes()[index])
}

/// The length that the group at the start of `bytes` says it has, if a group of `drive` may stand
/// there.
pub fn group_length(bytes: &[u8], drive: DriveId) -> Result<usize, FormatError> {
    let (header, _) = GroupBytes::ref_from_prefix(bytes).map_err(|_| FormatError::Inconsistent)?;
    if header.magic != GROUP_MAGIC {
        return Err(FormatError::Magic);
    }
    let length = header.length_bytes.get() as usize;
    if header.drive != first_bytes(drive) || !(GROUP_HEADER_BYTES..=GROUP_BYTES_MAX).contains(&length) {
        return Err(FormatError::Inconsistent);
    }
    Ok(length)
}

/// The sequence that the group at the start of `bytes` says it has. Nothing is checked.
pub fn claimed_sequence(bytes: &[u8]) -> Option<u64> {
    GroupBytes::ref_from_prefix(bytes).ok().map(|(header, _)| header.sequence.get())
}

/// Reads the group of `drive` at the start of `bytes`.
pub fn decode_group(bytes: &[u8], drive: DriveId) -> Result<Group, FormatError> {
    let length = group_length(bytes, drive)?;
    let bytes = bytes.get(..length).ok_or(FormatError::Checksum)?;
    if !super::is_sealed(bytes) {
        return Err(FormatError::Checksum);
    }
    let (header, rest) = GroupBytes::ref_from_prefix(bytes).map_err(|_| FormatError::Inconsistent)?;
    let header_out = GroupHeader {
        sequence: header.sequence.get(),
        previous_checksum: header.previous_checksum.get(),
        lap: header.lap.get(),
        attach_number: header.attach_number.get(),
        root_generation: header.root_generation.get(),
        confirmed_sequence: header.confirmed_sequence.get(),
    };
    let counters = [header_out.sequence, header_out.attach_number, header_out.root_generation];
    if counters.iter().any(|counter| *counter >= COUNT_MAX) || header_out.lap >= LAP_MAX {
        return Err(FormatError::Inconsistent);
    }
    Ok(Group {
        header: header_out,
        checksum: header.checksum.get(),
        length_bytes: length as u32,
        records: decode_records(rest, header.lap.get() as u8)?,
    })
}

fn decode_records(mut rest: &[u8], lap: u8) -> Result<Vec<Record>, FormatError> {
    let mut records = Vec::new();
    while !rest.is_empty() {
        let (head, _) = RecordHead::ref_from_prefix(rest).map_err(|_| FormatError::Inconsistent)?;
        let length = match head.kind {
            kind::WRITE_BLOCK => size_of::<WriteBlockBytes>(),
            _ => usize::from(head.length_bytes.get()),
        };
        if head.lap != lap || length < size_of::<RecordHead>() || length > rest.len() {
            return Err(FormatError::Inconsistent);
        }
        let (bytes, behind) = rest.split_at(length);
        records.push(decode_record(head.kind, bytes).ok_or(FormatError::Inconsistent)?);
        rest = behind;
    }
    Ok(records)
}

fn decode_record(kind: u8, bytes: &[u8]) -> Option<Record> {
    match kind {
        kind::WRITE => decode_mapping(bytes).map(Record::Write),
        kind::WRITE_BLOCK => {
            let bytes = WriteBlockBytes::ref_from_bytes(bytes).ok()?;
            Some(Record::Write(MappingRecord {
                slab_slot: bytes.slab_slot.get(),
                first: bytes.first.get().into(),
                counter: u64::from(bytes.counter_high.get()) << 32 | u64::from(bytes.counter_low.get()),
                block: bytes.block.get(),
                checksums: smallvec![bytes.checksum.get()],
            }))
        }
        kind::HEAL => decode_mapping(bytes).map(Record::Heal),
        kind::TRIM
        | kind::LISTED
        | kind::UNLISTED
        | kind::SET_PAGE_VERSION
        | kind::SLAB_REMOVE
        | kind::PROVEN
        | kind::DOUBTED => decode_range(kind, bytes),
        kind::RECORD_EPOCH | kind::FENCE | kind::MARK => decode_volume(kind, bytes),
        kind::VOLUME_ADD => {
            let bytes = VolumeAddBytes::ref_from_bytes(bytes).ok()?;
            Some(Record::VolumeAdd {
                volume_slot: bytes.volume_slot.get(),
                volume: VolumeId::from_bytes(bytes.volume),
            })
        }
        kind::SLAB_ADD => {
            let bytes = SlabAddBytes::ref_from_bytes(bytes).ok()?;
            Some(Record::SlabAdd(SlabAdd {
                slab_slot: bytes.slab_slot.get(),
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
            }))
        }
        _ => None,
    }
}

fn decode_mapping(bytes: &[u8]) -> Option<MappingRecord> {
    let (fixed, rest) = MappingBytes::ref_from_prefix(bytes).ok()?;
    let numbers = <[U32]>::ref_from_bytes(rest).ok()?;
    let count = usize::from(fixed.count.get());
    let checksums = match numbers.len().checked_sub(count)? {
        0 => numbers,
        // An earlier program's.
        1 => &numbers[1..],
        _ => return None,
    };
    // The last block has a number too.
    fixed.block.get().checked_add(u32::from(fixed.count.get()).checked_sub(1)?)?;
    Some(MappingRecord {
        slab_slot: fixed.slab_slot.get(),
        first: fixed.first.get().into(),
        counter: fixed.counter.get(),
        block: fixed.block.get(),
        checksums: checksums.iter().map(|checksum| checksum.get()).collect(),
    })
}

fn decode_range(kind: u8, bytes: &[u8]) -> Option<Record> {
    let range = RangeBytes::ref_from_bytes(bytes).ok()?;
    let (slab_slot, first, count) = (range.slab_slot.get(), range.first.get(), range.count.get());
    let version = Version::new(Epoch(range.epoch.get()), range.counter.get());
    let flag = range.flags.get() != 0;
    Some(match kind {
        kind::TRIM => Record::Trim { slab_slot, first, count, counter: version.counter },
        kind::LISTED => Record::Listed { slab_slot, first, count, version, in_doubt: flag },
        kind::UNLISTED => Record::Unlisted { slab_slot, first, count, version },
        kind::SET_PAGE_VERSION => Record::SetPageVersion { slab_slot, page: first, version, whole: flag },
        kind::SLAB_REMOVE => Record::SlabRemove { slab_slot },
        kind::PROVEN => Record::Proven { slab_slot },
        kind::DOUBTED => Record::Doubted { slab_slot, version },
        _ => return None,
    })
}

fn decode_volume(kind: u8, bytes: &[u8]) -> Option<Record> {
    let (fixed, rest) = VolumeBytes::ref_from_prefix(bytes).ok()?;
    let exceptions = <[VersionBytes]>::ref_from_bytes(rest).ok()?;
    if exceptions.len() != fixed.exception_count.get() as usize {
        return None;
    }
    let volume_slot = fixed.volume_slot.get();
    let epoch = Epoch(fixed.epoch.get());
    Some(match kind {
        kind::RECORD_EPOCH => Record::RecordEpoch { volume_slot, epoch },
        kind::FENCE => Record::Fence { volume_slot, epoch },
        _ => Record::Mark {
            volume_slot,
            mark: Version::new(epoch, fixed.counter.get()),
            exceptions: exceptions
                .iter()
                .map(|bytes| Version::new(Epoch(bytes.epoch.get()), bytes.counter.get()))
                .collect(),
        },
    })
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
