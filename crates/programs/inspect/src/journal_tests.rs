use super::*;

fn drive() -> DriveId {
    DriveId::from_bytes(std::array::from_fn(|index| index as u8))
}

/// A group as the document has it, byte by byte.
fn group(lap: u32, records: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; 4];
    bytes.extend(b"SpJg");
    bytes.extend((64 + records.len() as u32).to_le_bytes());
    bytes.extend(0xAAAA_BBBB_u32.to_le_bytes());
    for number in [9_u64, 5, 4, 8] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(lap.to_le_bytes());
    bytes.extend(&drive().to_bytes()[..12]);
    bytes.extend(records);
    let checksum = spandrel_shared::checksum::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn record(kind: u8, lap: u8, fields: &[u8]) -> Vec<u8> {
    let mut bytes = vec![kind, lap];
    bytes.extend((4 + fields.len() as u16).to_le_bytes());
    bytes.extend(fields);
    bytes
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn parse(bytes: &[u8]) -> Place {
    parse_group(parse_header(bytes, drive()).unwrap(), bytes)
}

#[test]
fn every_record_is_read_as_the_document_has_it() {
    let lap = 0x0102;
    let write = words(&[7, 3 | 2 << 16, 11, 0, 100, 0xC1, 0xC2]);
    let heal = words(&[7, 3 | 1 << 16, 0, 0, 100, 0xC1]);
    // The first block stands in place of the length.
    let one = [&[15, 2, 3, 0][..], &words(&[7, 11])[..], &[1, 0], &words(&[100, 0xC1])[..]].concat();
    let records = [
        // As earlier programs have written all of one block.
        (1, words(&[7, 3 | 1 << 16, 11, 0, 100, 0xC1])),
        (1, words(&[7, 3 | 1 << 16, 11, 0, 100, 90, 0xC1])),
        (1, write),
        // An earlier program's.
        (1, words(&[7, 3 | 2 << 16, 11, 0, 100, 90, 0xC1, 0xC2])),
        (2, heal),
        (3, words(&[7, 1, 2, 12, 0, 0, 0])),
        (4, words(&[7, 1, 2, 12, 0, 3, 1])),
        (12, words(&[7, 1, 2, 12, 0, 3, 0])),
        (5, words(&[1, 4, 0, 0, 0])),
        (6, words(&[1, 4, 0, 0, 0])),
        (7, words(&[1, 4, 1, 33, 0, 4, 30, 0])),
        (8, words(&[7, 1, 1, 12, 0, 3, 1])),
        (9, words(&[1, 0x1111_1111, 0x1111_1111, 0x1111_1111, 0x1111_1111])),
        (10, words(&[7, 1, 5, 0x0001_0003, 3, 9, 0, 0x2222_2222, 0x2222_2222, 0x2222_2222, 0x2222_2222])),
        (11, words(&[7, 0, 0, 0, 0, 0, 0])),
        (13, words(&[7, 0, 0, 0, 0, 0, 0])),
        (14, words(&[7, 0, 0, 40, 0, 3, 0])),
    ];
    let mut bytes: Vec<u8> =
        records.iter().flat_map(|(kind, fields)| record(*kind, lap as u8, fields)).collect();
    bytes.extend(one);
    let Place::Group(group) = parse(&group(lap, &bytes)) else { panic!("it is whole") };
    let header = group.header;
    assert_eq!((header.sequence, header.attach_number, header.root_generation), (9, 5, 4));
    assert_eq!((header.previous_checksum, header.lap), (0xAAAA_BBBB, lap));
    let version = |epoch, counter| Version::new(Epoch(epoch), counter);
    let (slab_slot, volume_slot) = (7, 1);
    let run = Run { slab_slot, first: 3, counter: 11, physical: 100, checksums: vec![0xC1, 0xC2] };
    let one = Run { checksums: vec![0xC1], ..run.clone() };
    let expected = [
        Record::Write(one.clone()),
        Record::Write(one),
        Record::Write(run.clone()),
        Record::Write(run.clone()),
        Record::Heal(Run { counter: 0, checksums: vec![0xC1], ..run.clone() }),
        Record::Trim { slab_slot, first: 1, count: 2, counter: 12 },
        Record::Listed { slab_slot, first: 1, count: 2, version: version(3, 12), in_doubt: true },
        Record::Unlisted { slab_slot, first: 1, count: 2, version: version(3, 12) },
        Record::CounterEpoch { volume_slot, epoch: Epoch(4) },
        Record::Fence { volume_slot, epoch: Epoch(4) },
        Record::Mark { volume_slot, mark: version(4, 33), exceptions: vec![version(4, 30)] },
        Record::SetPageVersion { slab_slot, page: 1, version: version(3, 12), whole: true },
        Record::VolumeAdd { volume_slot, volume: VolumeId::from_bytes([0x11; 16]) },
        Record::SlabAdd(SlabAdd {
            slab_slot,
            volume_slot,
            slab: SlabIndex(5),
            layout: SlabLayout { kind: 3, data: 0, parity: 1, part: 0 },
            birth: version(3, 9),
            copy: CopyId::from_bytes([0x22; 16]),
        }),
        Record::SlabRemove { slab_slot },
        Record::Proven { slab_slot },
        Record::Doubted { slab_slot, version: version(3, 40) },
        Record::Write(Run { counter: 11 + (1 << 32), checksums: vec![0xC1], ..run }),
    ];
    assert_eq!(group.records, expected);
}

#[test]
fn groups_that_are_not_whole_are_told_from_other_bytes() {
    let whole = group(1, &record(11, 1, &words(&[7, 0, 0, 0, 0, 0, 0])));
    assert!(matches!(parse(&whole), Place::Group(_)));
    assert!(
        matches!(parse(&group(1, &record(99, 1, &[]))), Place::Damaged(_, why) if why.contains("not understood"))
    );
    assert!(matches!(parse(&group(1, &record(11, 2, &words(&[7, 0, 0, 0, 0, 0, 0])))), Place::Damaged(..)));
    assert!(matches!(parse(&group(1, &record(11, 1, &words(&[7])))), Place::Damaged(..)));
    // A write of one block says its length by its type.
    let one = [&[15, 1, 3, 0][..], &words(&[7, 11])[..], &[1, 0], &words(&[100, 0xC1])[..]].concat();
    assert!(matches!(parse(&group(1, &one)), Place::Group(_)));
    for length in 1..one.len() {
        assert!(matches!(parse(&group(1, &one[..length])), Place::Damaged(..)), "{length} bytes");
    }
    let foreign = [&[15, 2][..], &one[2..]].concat();
    assert!(matches!(parse(&group(1, &foreign)), Place::Damaged(..)), "of another lap");
    assert!(matches!(parse(&whole[..whole.len() - 1]), Place::Damaged(_, why) if why.contains("length")));
    let mut flipped = whole.clone();
    flipped[70] ^= 1;
    assert!(matches!(parse(&flipped), Place::Damaged(_, why) if why.contains("checksum")));
    assert_eq!(parse_header(&whole, DriveId::from_bytes([9; 16])), None, "another drive's");
    assert_eq!(parse_header(&[0; 64], drive()), None);
}
