//! The journal: groups of records, made into bytes and read from them.

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use spandrel_drive::format::journal::{GroupHeader, GroupWriter, MappingRecord, Record, decode_group};
use spandrel_shared::DriveId;

const DRIVE: DriveId = DriveId::from_bytes([3; 16]);

/// Writes of a block each, as many as a group may hold of a busy volume.
fn records(count: u32) -> Vec<Record> {
    let write = |number: u32| {
        Record::Write(MappingRecord {
            slab_slot: 2,
            first: number * 37,
            counter: 1000 + u64::from(number),
            block: 5000 + number,
            checksums: vec![number ^ 0x5a5a_5a5a].into(),
        })
    };
    (0..count).map(write).collect()
}

fn header() -> GroupHeader {
    GroupHeader {
        sequence: 70,
        previous_checksum: 0x1234_5678,
        lap: 1,
        attach_number: 2,
        root_generation: 3,
        confirmed_sequence: 69,
    }
}

fn group(records: &[Record]) -> Vec<u8> {
    let mut writer = GroupWriter::new(1);
    records.iter().for_each(|record| writer.push(record));
    writer.finish(&header(), DRIVE).0
}

#[divan::bench(args = [1, 16, 256])]
fn write_group(bencher: Bencher<'_, '_>, count: u32) {
    let records = records(count);
    bencher.counter(ItemsCount::new(count)).bench(|| group(black_box(&records)));
}

#[divan::bench(args = [1, 16, 256])]
fn read_group(bencher: Bencher<'_, '_>, count: u32) {
    let bytes = group(&records(count));
    bencher
        .counter(ItemsCount::new(count))
        .bench(|| decode_group(black_box(&bytes), DRIVE).expect("it was just made").records.len());
}
