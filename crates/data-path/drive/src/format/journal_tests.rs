use super::*;

const DRIVE: DriveId = DriveId::from_bytes([6; 16]);

fn example_records() -> Vec<Record> {
    let mapping = |count: u32| MappingRecord {
        slab_slot: 3,
        first: 65_000,
        counter: 1 << 40,
        block: 77,
        checksums: (0..count).map(|index| index * 3 + 1).collect(),
    };
    let version = Version::new(Epoch(4), 500);
    vec![
        Record::Write(mapping(1)),
        Record::Write(MappingRecord { counter: 1 << 48, ..mapping(1) }),
        Record::Write(mapping(RECORD_BLOCKS_MAX)),
        Record::Heal(mapping(2)),
        Record::Trim { slab_slot: 1, first: 0, count: 65_536, counter: 9 },
        Record::Listed { slab_slot: 1, first: 5, count: 6, version, in_doubt: true },
        Record::Unlisted { slab_slot: 1, first: 5, count: 6, version },
        Record::RecordEpoch { volume_slot: 2, epoch: Epoch(4) },
        Record::Fence { volume_slot: 2, epoch: Epoch(5) },
        Record::Mark { volume_slot: 2, mark: version, exceptions: vec![Version::new(Epoch(4), 1); 3] },
        Record::Mark { volume_slot: 2, mark: version, exceptions: vec![version; MARK_EXCEPTIONS_MAX] },
        Record::SetPageVersion { slab_slot: 1, page: 127, version, whole: true },
        Record::VolumeAdd { volume_slot: 9, volume: VolumeId::from_bytes([7; 16]) },
        Record::SlabAdd(SlabAdd {
            slab_slot: 8,
            volume_slot: 9,
            slab: SlabIndex(1000),
            layout: SlabLayout::mirror(3, 1),
            copy: CopyId::from_bytes([5; 16]),
            birth: version,
        }),
        Record::SlabRemove { slab_slot: 8 },
        Record::Proven { slab_slot: 8 },
        Record::Doubted { slab_slot: 8, version: Version::new(Epoch(3), 70) },
    ]
}

fn example_header() -> GroupHeader {
    GroupHeader {
        sequence: 12,
        previous_checksum: 0xDEAD_BEEF,
        lap: 259,
        attach_number: 3,
        root_generation: 4,
        confirmed_sequence: 11,
    }
}

fn example_group(records: &[Record]) -> (Vec<u8>, u32) {
    let mut writer = GroupWriter::new(example_header().lap);
    for record in records {
        let before = writer.length_bytes();
        writer.push(record);
        assert_eq!(writer.length_bytes() - before, record_bytes(record), "{record:?}");
    }
    writer.finish(&example_header(), DRIVE)
}

#[test]
fn groups_read_back_with_every_kind_of_record() {
    let (bytes, checksum) = example_group(&example_records());
    let group = decode_group(&bytes, DRIVE).unwrap();
    assert_eq!(group.header, example_header());
    assert_eq!(group.checksum, checksum);
    assert_eq!(group.records, example_records());
    assert_eq!(group.length_bytes as usize, bytes.len());
}

#[test]
fn a_group_of_another_drive_is_none() {
    let (bytes, _) = example_group(&example_records());
    assert_eq!(decode_group(&bytes, DriveId::from_bytes([7; 16])), Err(FormatError::Inconsistent));
}

#[test]
fn a_write_of_one_block_takes_22_bytes_unless_its_counter_needs_more() {
    let [usual, late, ..] = &example_records()[..] else { panic!("there are more") };
    assert_eq!((record_bytes(usual), record_bytes(late)), (22, 28));
}

#[test]
fn every_flipped_bit_and_every_cut_is_noticed() {
    let records: Vec<_> = example_records().into_iter().filter(|record| record_bytes(record) < 100).collect();
    let (mut bytes, _) = example_group(&records);
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(decode_group(&bytes, DRIVE).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    for length in 0..bytes.len() {
        assert!(decode_group(&bytes[..length], DRIVE).is_err(), "length {length}");
    }
}

#[test]
fn resealed_nonsense_is_refused_without_a_panic() {
    let records: Vec<_> = example_records().into_iter().filter(|record| record_bytes(record) < 100).collect();
    let (bytes, _) = example_group(&records);
    for position in GROUP_HEADER_BYTES..bytes.len() {
        for value in [0, 1, kind::WRITE_BLOCK, 0x7F, 0xFF] {
            let mut changed = bytes.clone();
            changed[position] = value;
            crate::format::seal(&mut changed);
            let _ = decode_group(&changed, DRIVE);
        }
    }
    let mut unknown = bytes.clone();
    unknown[GROUP_HEADER_BYTES] = 200;
    crate::format::seal(&mut unknown);
    assert_eq!(decode_group(&unknown, DRIVE), Err(FormatError::Inconsistent));
}

/// Groups stand on disks. If this fails, old disks can no longer be read.
#[test]
fn the_format_never_changes() {
    let (bytes, _) = example_group(&example_records());
    assert_eq!(spandrel_shared::checksum::crc32c(&bytes), PINNED_CHECKSUM);
}

const PINNED_CHECKSUM: u32 = 2_718_950_091;

#[test]
fn a_write_of_an_earlier_program_is_read() {
    let checksums = vec![11, 12].into();
    let write = Record::Write(MappingRecord { slab_slot: 3, first: 7, counter: 9, block: 1000, checksums });
    let mut writer = GroupWriter::new(0);
    writer.push(&write);
    let mut bytes = writer.bytes[GROUP_HEADER_BYTES..].to_vec();
    assert_eq!(bytes.len(), record_bytes(&write));
    assert_eq!(decode_record(kind::WRITE, &bytes), Some(write.clone()));
    // Four bytes stood before the checksums.
    bytes.splice(24..24, [0xEE; 4]);
    assert_eq!(decode_record(kind::WRITE, &bytes), Some(write));
    bytes.splice(24..24, [0; 4]);
    assert_eq!(decode_record(kind::WRITE, &bytes), None);
    bytes.truncate(28);
    assert_eq!(decode_record(kind::WRITE, &bytes), None);
}

/// Most records of a journal of version 1: this program writes none of them any more.
#[test]
fn a_write_of_one_block_of_an_earlier_program_is_read() {
    let fields = [3, 7 | 1 << 16, 9, 0, 1000];
    let checksums = vec![11].into();
    let write = Record::Write(MappingRecord { slab_slot: 3, first: 7, counter: 9, block: 1000, checksums });
    for tail in [&[11][..], &[0xEEEE, 11]] {
        let words: Vec<u32> = fields.iter().chain(tail).copied().collect();
        let mut bytes = vec![kind::WRITE, 5, 4 + 4 * words.len() as u8, 0];
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        assert_eq!(decode_records(&bytes, 5), Ok(vec![write.clone()]), "{tail:?}");
    }
}

#[test]
fn a_write_of_one_block_that_is_cut_or_of_another_lap_is_refused() {
    let mut writer = GroupWriter::new(5);
    writer.push(&example_records()[0]);
    let bytes = writer.bytes[GROUP_HEADER_BYTES..].to_vec();
    assert_eq!(bytes[0], kind::WRITE_BLOCK);
    assert_eq!(decode_records(&bytes, 5), Ok(vec![example_records()[0].clone()]));
    for length in 1..bytes.len() {
        assert_eq!(decode_records(&bytes[..length], 5), Err(FormatError::Inconsistent), "{length} bytes");
    }
    assert_eq!(decode_records(&bytes, 6), Err(FormatError::Inconsistent));
}

#[test]
fn a_group_that_cannot_be_gone_on_from_is_refused() {
    let decode = |header: GroupHeader, block| {
        let (slab_slot, first, counter) = (0, 0, 1);
        let checksums = vec![1, 2];
        let mut writer = GroupWriter::new(header.lap);
        writer.push(&Record::Write(MappingRecord {
            slab_slot,
            first,
            counter,
            block,
            checksums: checksums.into(),
        }));
        decode_group(&writer.finish(&header, DRIVE).0, DRIVE).map(drop)
    };
    let header = example_header();
    assert_eq!(decode(header, u32::MAX - 1), Ok(()));
    let changed = [
        (GroupHeader { sequence: u64::MAX, ..header }, 7),
        (GroupHeader { attach_number: COUNT_MAX, ..header }, 7),
        (GroupHeader { root_generation: COUNT_MAX, ..header }, 7),
        (GroupHeader { lap: LAP_MAX, ..header }, 7),
        (header, u32::MAX),
    ];
    for (header, block) in changed {
        assert_eq!(decode(header, block), Err(FormatError::Inconsistent), "{header:?}, block {block}");
    }
}

/// A record can be left over from another lap in the middle of a group that is whole otherwise, and say
/// any length.
#[test]
fn records_of_another_lap_or_without_a_length_that_can_be_are_refused() {
    let record = Record::SlabRemove { slab_slot: 3 };
    for (lap, is_good) in [(259, true), (258, false), (260, false)] {
        let mut writer = GroupWriter::new(lap);
        writer.push(&record);
        let (bytes, _) = writer.finish(&example_header(), DRIVE);
        let expected = if is_good { Ok(vec![record.clone()]) } else { Err(FormatError::Inconsistent) };
        assert_eq!(decode_group(&bytes, DRIVE).map(|group| group.records), expected, "lap {lap}");
    }
    let (bytes, _) = example_group(&[record.clone(), record.clone()]);
    for length in (0..80_u16).chain([u16::MAX]) {
        let mut changed = bytes.clone();
        changed[GROUP_HEADER_BYTES + 2..GROUP_HEADER_BYTES + 4].copy_from_slice(&length.to_le_bytes());
        crate::format::seal(&mut changed);
        let records = decode_group(&changed, DRIVE).map(|group| group.records);
        let expected =
            if length == 32 { Ok(vec![record.clone(); 2]) } else { Err(FormatError::Inconsistent) };
        assert_eq!(records, expected, "length {length}");
    }
}
