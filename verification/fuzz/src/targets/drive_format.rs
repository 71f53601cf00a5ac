//! The structures on a drive, one by one: superblock, root, journal group, leaf, slab root.
//!
//! An input names a structure and what of it is changed; then it is sealed anew, so that what reads it
//! must judge the content and not only the checksum. What is read is written and read again to the same.

use std::cell::OnceCell;

use spandrel_drive::format::journal::{
    Group, GroupHeader, GroupWriter, MappingRecord, Record, SlabAdd, decode_group, group_length, record_bytes,
};
use spandrel_drive::format::map::{
    Leaf, Mapping, PageEntry, PagePointer, decode_leaf, decode_slab_root, encode_leaf, encode_slab_root,
};
use spandrel_drive::format::root::{JournalPosition, Root, RootSlab, RootVolume};
use spandrel_drive::format::seal;
use spandrel_drive::{Layout, SlabLayout, Superblock};
use spandrel_shared::checksum::crc32c;
use spandrel_shared::{
    BLOCK_BYTES, ClusterId, CopyId, DriveId, Epoch, NodeId, PAGE_BLOCKS, SlabGeometry, SlabIndex, Version,
    VolumeId,
};

use crate::Target;
use crate::choices::Choices;
use crate::edit::{edit, edit_in_place};

pub const TARGET: Target = Target {
    name: "drive-format",
    about: "single structures of a drive, sealed anew",
    run,
    seeds,
    smoke_runs: 20_000,
    memory_bytes_max: 1 << 20,
};

const DRIVE: DriveId = DriveId::from_bytes([3; 16]);

/// Structures as the shipping code writes them.
struct Valid {
    superblock: Vec<u8>,
    root: Vec<u8>,
    group: Vec<u8>,
    leaf: Vec<u8>,
    slab_root: Vec<u8>,
}

thread_local! {
    static VALID: OnceCell<Valid> = const { OnceCell::new() };
}

fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let kind = choices.byte();
    let structure =
        |select: fn(&Valid) -> &Vec<u8>| VALID.with(|valid| select(valid.get_or_init(Valid::new)).clone());
    match kind % 8 {
        0 => read_superblock(&changed_in_place(structure(|valid| &valid.superblock), &mut choices)),
        1 => read_root(&changed(structure(|valid| &valid.root), &mut choices)),
        2 => read_group(&with_length(changed(structure(|valid| &valid.group), &mut choices))),
        3 => read_leaf(&changed_in_place(structure(|valid| &valid.leaf), &mut choices)),
        4 => read_slab_root(&changed_in_place(structure(|valid| &valid.slab_root), &mut choices)),
        5 => read_group(&with_length([&structure(|valid| &valid.group)[..64], choices.rest()].concat())),
        _ => {
            let bytes = choices.rest();
            let _ = Superblock::decode(bytes);
            let _ = Root::decode(bytes, DRIVE);
            let _ = decode_group(bytes, DRIVE);
            let _ = decode_leaf(bytes, crc32c(bytes));
            let _ = decode_slab_root(bytes, crc32c(bytes), 128);
        }
    }
}

fn changed_in_place(mut bytes: Vec<u8>, choices: &mut Choices<'_>) -> Vec<u8> {
    while !choices.is_empty() {
        edit_in_place(&mut bytes, choices);
    }
    seal(&mut bytes);
    bytes
}

fn changed(mut bytes: Vec<u8>, choices: &mut Choices<'_>) -> Vec<u8> {
    while !choices.is_empty() {
        edit(&mut bytes, choices);
    }
    // A root is sealed up to the length that it tells.
    let told = bytes.get(8..12).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes);
    let sealed_bytes = if (4..=bytes.len()).contains(&(told as usize)) { told as usize } else { bytes.len() };
    if sealed_bytes >= 4 {
        seal(&mut bytes[..sealed_bytes]);
    }
    bytes
}

/// A group tells the length that it has.
fn with_length(mut bytes: Vec<u8>) -> Vec<u8> {
    if bytes.len() >= 12 {
        let length = bytes.len() as u32;
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        seal(&mut bytes);
    }
    bytes
}

fn read_superblock(block: &[u8]) {
    let Ok(superblock) = Superblock::decode(block) else { return };
    assert!(superblock.layout.is_consistent());
    let mut again = vec![0; BLOCK_BYTES];
    superblock.encode(&mut again);
    // What a node asks of a drive that it looks at.
    let _ = superblock.layout.promised_slabs();
    assert_eq!(Superblock::decode(&again), Ok(superblock));
}

fn read_root(slot: &[u8]) {
    let Ok(root) = Root::decode(slot, DRIVE) else { return };
    assert_eq!(Root::decode(&root.encode(), DRIVE), Ok(root));
}

fn read_group(bytes: &[u8]) {
    let Ok(group) = decode_group(bytes, DRIVE) else { return };
    assert_eq!(group_length(bytes, DRIVE), Ok(group.length_bytes as usize));
    let mut writer = GroupWriter::new(group.header.lap);
    for record in &group.records {
        let before = writer.length_bytes();
        writer.push(record);
        assert_eq!(writer.length_bytes() - before, record_bytes(record), "{record:?}");
    }
    let (again, checksum) = writer.finish(&group.header, DRIVE);
    let length_bytes = again.len() as u32;
    assert_eq!(decode_group(&again, DRIVE), Ok(Group { checksum, length_bytes, ..group }));
}

fn read_leaf(block: &[u8]) {
    let leaf = decode_leaf(block, crc32c(block)).expect("every block is some leaf");
    let mut again = vec![0; BLOCK_BYTES];
    let checksum = encode_leaf(&leaf, &mut again);
    assert_eq!(decode_leaf(&again, checksum), Some(leaf));
}

fn read_slab_root(block: &[u8]) {
    for page_count in [2, 128] {
        let pages = decode_slab_root(block, crc32c(block), page_count).expect("every block is some page");
        assert_eq!(pages.len(), page_count as usize);
        let mut again = vec![0; BLOCK_BYTES];
        let checksum = encode_slab_root(&pages, &mut again);
        assert_eq!(decode_slab_root(&again, checksum, page_count), Some(pages));
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let group = VALID.with(|valid| valid.get_or_init(Valid::new).group.clone());
    let mut seeds: Vec<Vec<u8>> = (0..8).map(|kind| vec![kind]).collect();
    seeds.push([&[5], &group[64..]].concat());
    seeds.push([&[6], &group[..]].concat());
    seeds
}

impl Valid {
    fn new() -> Self {
        let mut superblock = vec![0; BLOCK_BYTES];
        example_superblock().encode(&mut superblock);
        let mut leaf = vec![0; BLOCK_BYTES];
        let mapping = |index| Mapping { block: 1000 + index, checksum: 77 * index };
        let mappings: Leaf = std::array::from_fn(|index| mapping(index as u32));
        encode_leaf(&mappings, &mut leaf);
        let mut slab_root = vec![0; BLOCK_BYTES];
        let page =
            PageEntry { leaf: PagePointer { block: 900, checksum: 1 }, version: version(8), whole: true };
        encode_slab_root(&[page; 128], &mut slab_root);
        Self { superblock, root: example_root().encode(), group: example_group(), leaf, slab_root }
    }
}

fn version(counter: u64) -> Version {
    Version::new(Epoch(2), counter)
}

fn example_superblock() -> Superblock {
    let slabs = SlabGeometry::new(4 << 20).expect("4 MiB is a size of slabs");
    Superblock {
        cluster: ClusterId::from_bytes([1; 16]),
        node: NodeId::from_bytes([2; 16]),
        drive: DRIVE,
        layout: Layout::for_drive(64 << 20, 512, slabs).expect("64 MiB are enough for a drive"),
        created_unix_ms: 1_700_000_000_000,
    }
}

fn example_root() -> Root {
    let volume = |slot: u32| RootVolume {
        fence_epoch: Epoch(2),
        record_epoch: Epoch(2),
        mark: version(5),
        ..RootVolume::new(slot, VolumeId::from_bytes([slot as u8; 16]))
    };
    let slab = |slot: u32| RootSlab {
        slot,
        volume_slot: slot,
        slab: SlabIndex(slot),
        layout: SlabLayout::mirror(3, 1),
        copy: CopyId::from_bytes([slot as u8; 16]),
        birth: version(1),
        map: PagePointer { block: 800 + slot, checksum: 9 },
        proven: (slot == 1).then(|| version(4)),
    };
    Root {
        drive: DRIVE,
        generation: 6,
        attach_number: 2,
        state_revision: 40,
        journal: JournalPosition {
            sequence: 11,
            sector: 22,
            lap: 1,
            previous_checksum: 33,
            previous_sector: Some(19),
        },
        binding: None,
        volumes: vec![volume(0), volume(1)],
        slabs: vec![slab(0), slab(1)],
    }
}

fn example_group() -> Vec<u8> {
    let (slab_slot, volume_slot, first, count) = (1, 0, PAGE_BLOCKS - 1, 3);
    let mapping =
        MappingRecord { slab_slot, first, counter: 9, block: 1200, checksums: vec![1, 2, 3].into() };
    let records = [
        Record::Write(mapping.clone()),
        Record::Write(MappingRecord { checksums: vec![5].into(), ..mapping.clone() }),
        Record::Heal(MappingRecord { checksums: vec![4].into(), ..mapping }),
        Record::Trim { slab_slot, first, count, counter: 10 },
        Record::Listed { slab_slot, first, count, version: version(9), in_doubt: true },
        Record::Unlisted { slab_slot, first, count, version: version(9) },
        Record::RecordEpoch { volume_slot, epoch: Epoch(3) },
        Record::Fence { volume_slot, epoch: Epoch(4) },
        Record::Mark { volume_slot, mark: version(8), exceptions: vec![version(6), version(7)] },
        Record::SetPageVersion { slab_slot, page: 1, version: version(12), whole: true },
        Record::VolumeAdd { volume_slot: 2, volume: VolumeId::from_bytes([8; 16]) },
        Record::SlabAdd(SlabAdd {
            slab_slot: 2,
            volume_slot: 2,
            slab: SlabIndex(5),
            layout: SlabLayout::mirror(2, 0),
            copy: CopyId::from_bytes([9; 16]),
            birth: version(2),
        }),
        Record::SlabRemove { slab_slot },
        Record::Proven { slab_slot },
        Record::Doubted { slab_slot, version: version(7) },
    ];
    let mut writer = GroupWriter::new(1);
    records.iter().for_each(|record| writer.push(record));
    let header = GroupHeader {
        sequence: 11,
        previous_checksum: 33,
        lap: 1,
        attach_number: 2,
        root_generation: 6,
        confirmed_sequence: 10,
    };
    writer.finish(&header, DRIVE).0
}
