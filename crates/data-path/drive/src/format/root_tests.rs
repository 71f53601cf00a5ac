use super::*;

fn example() -> Root {
    Root {
        drive: DriveId::from_bytes([3; 16]),
        generation: 7,
        attach_number: 5,
        state_revision: 99,
        journal: JournalPosition {
            sequence: 1000,
            sector: 17,
            lap: 2,
            previous_checksum: 0xABCD,
            previous_sector: None,
        },
        binding: None,
        volumes: vec![RootVolume {
            slot: 1,
            volume: VolumeId::from_bytes([4; 16]),
            fence_epoch: Epoch(9),
            record_epoch: Epoch(8),
            mark: Version::new(Epoch(8), 77),
        }],
        slabs: (0..40)
            .map(|slot| RootSlab {
                slot,
                volume_slot: 1,
                slab: SlabIndex(slot + 100),
                layout: SlabLayout::mirror(3, 2),
                copy: CopyId::from_bytes([slot as u8; 16]),
                birth: Version::new(Epoch(1), 2),
                map: PagePointer { block: 500 + slot, checksum: slot },
                proven: (slot % 3 == 0).then(|| Version::new(Epoch(slot), 7)),
            })
            .collect(),
    }
}

#[test]
fn a_root_reads_back() {
    let bytes = example().encode();
    assert_eq!(bytes.len(), 2 * BLOCK_BYTES);
    assert_eq!(Root::decode(&bytes, example().drive), Ok(example()));
    assert!(Root::decode(&bytes, DriveId::from_bytes([9; 16])).is_err(), "another drive's root");
}

#[test]
fn flipped_bits_are_noticed() {
    let mut bytes = example().encode();
    let used = 128 + 64 + 40 * 128;
    for bit in 0..used * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(Root::decode(&bytes, example().drive).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

/// What is sealed is whole, and may still say what no drive says.
#[test]
fn a_root_that_cannot_be_gone_on_from_is_refused() {
    type Change = fn(&mut Root);
    let changes: [Change; 7] = [
        |root| root.generation = u64::MAX,
        |root| root.attach_number = COUNT_MAX,
        |root| root.journal.sequence = 0,
        |root| root.journal.sequence = u64::MAX,
        |root| root.journal.lap = LAP_MAX,
        |root| root.slabs[1].slot = 0,
        |root| root.volumes.push(root.volumes[0]),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut root = example();
        change(&mut root);
        let refused = Root::decode(&root.encode(), root.drive);
        assert_eq!(refused, Err(FormatError::Inconsistent), "change {number}");
    }
}

#[test]
fn leaves_of_another_format_are_refused_by_its_number() {
    let bytes = example().encode_with_leaf_format(2);
    let newer = FormatError::Newer { version: 2, unknown_features: 0 };
    assert_eq!(Root::decode(&bytes, example().drive), Err(newer));
}

#[test]
fn a_full_table_fits_its_slot() {
    let mut root = example();
    root.volumes = (0..1000).map(|slot| RootVolume { slot, ..root.volumes[0] }).collect();
    root.slabs = (0..1000).map(|slot| RootSlab { slot, ..root.slabs[0] }).collect();
    assert!(root.encode().len() <= slot_blocks(1000) as usize * BLOCK_BYTES);
}

/// Roots stand on disks. If this fails, old disks can no longer be read.
#[test]
fn the_format_never_changes() {
    assert_eq!(spandrel_shared::checksum::crc32c(&example().encode()), PINNED_CHECKSUM);
}

const PINNED_CHECKSUM: u32 = 3_532_874_088;

/// A header can be whole and claim tables that the slot does not hold.
#[test]
fn a_root_that_claims_other_tables_than_its_length_or_its_slot_has_is_refused() {
    let (root, used) = (example(), 128 + 64 + 40 * 128);
    let bytes = root.encode();
    assert_eq!(Root::decode(&bytes[..used], root.drive), Ok(example()), "a slot that it fills");
    for length in [0, 127, 128, used - 1] {
        assert!(Root::decode(&bytes[..length], root.drive).is_err(), "a slot of {length} bytes");
    }
    // Where the header says the length, the volumes and the slabs.
    for (place, claim) in [(8, used - 1), (8, used + 1), (8, 0), (12, 2), (12, 0), (16, 39), (16, 41)] {
        let mut changed = bytes.clone();
        changed[place..place + 4].copy_from_slice(&(claim as u32).to_le_bytes());
        for sealed in [used - 1, used, used + 1] {
            crate::format::seal(&mut changed[..sealed]);
            let refused = Root::decode(&changed, root.drive);
            assert_eq!(refused, Err(FormatError::Checksum), "{claim} at {place}");
        }
    }
}

#[test]
fn a_drive_was_never_attached_if_its_root_is_the_one_of_the_format() {
    let formatted = || Root { generation: 1, attach_number: 0, slabs: Vec::new(), ..example() };
    assert!(Root::is_never_attached(&formatted().encode()));
    let other = Root { drive: DriveId::from_bytes([9; 16]), ..formatted() };
    assert!(Root::is_never_attached(&other.encode()), "whichever drive it is");
    let later = [
        Root { generation: 2, ..formatted() },
        Root { attach_number: 1, ..formatted() },
        Root { slabs: example().slabs, ..formatted() },
    ];
    for root in later {
        assert!(!Root::is_never_attached(&root.encode()), "{root:?}");
    }
    let mut damaged = formatted().encode();
    damaged[150] ^= 1;
    for bytes in [&damaged[..], &[0; BLOCK_BYTES], &[]] {
        assert!(!Root::is_never_attached(bytes));
    }
}
