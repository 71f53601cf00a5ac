use super::*;

fn layout() -> CacheLayout {
    CacheLayout::for_drive(4 << 20, 512).expect("a few chunks fit")
}

fn superblock() -> CacheSuperblock {
    CacheSuperblock {
        cluster: ClusterId::from_bytes([1; 16]),
        node: NodeId::from_bytes([2; 16]),
        drive: DriveId::from_bytes([4; 16]),
        layout: layout(),
        created_unix_ms: 77,
    }
}

fn table() -> CacheTable {
    let area = |drive: u8, chunks: &[u32]| AreaRecord {
        drive: DriveId::from_bytes([drive; 16]),
        number: 1000 + u64::from(drive),
        chunks: chunks.to_vec(),
    };
    CacheTable {
        drive: DriveId::from_bytes([4; 16]),
        generation: 7,
        attach_number: 3,
        areas: vec![area(5, &[2, 0, 1]), area(6, &[9]), area(7, &[])],
    }
}

#[test]
fn chunks_fill_a_drive_of_any_size() {
    for (size_bytes, chunk_blocks, chunk_count) in [
        (4 << 20, 64, 15),
        (1 << 30, 256, 1023),
        (3_840_755_982_336, 1 << 20, 894),
        (64 << 40, 1 << 24, 1023),
    ] {
        let layout = CacheLayout::for_drive(size_bytes, 4096).expect("it is large enough");
        assert_eq!(
            (layout.chunk_blocks, layout.chunk_count),
            (chunk_blocks, chunk_count),
            "{size_bytes} bytes"
        );
        let end = layout.chunk_offset(layout.chunk_count);
        assert!(end <= layout.last_block() * BLOCK_BYTES as u64, "the superblock stands behind them");
        let chunk_bytes = u64::from(layout.chunk_blocks) * BLOCK_BYTES as u64;
        assert!(size_bytes - end < 2 * chunk_bytes, "and nothing else does");
    }
    assert_eq!(CacheLayout::for_drive(256 << 10, 512), None);
    assert_eq!(CacheLayout::for_drive(0, 512), None);
}

#[test]
fn a_superblock_is_read_as_it_was_written() {
    let mut block = vec![0; BLOCK_BYTES];
    superblock().encode(&mut block);
    assert_eq!(&block[4..16], b"SpandrelCach", "drives out there begin so");
    assert_eq!(CacheSuperblock::decode(&block), Ok(superblock()));
    for byte in 4..BLOCK_BYTES {
        let mut damaged = block.clone();
        damaged[byte] ^= 1;
        assert!(CacheSuperblock::decode(&damaged).is_err(), "byte {byte}");
    }
    block[16] = 9;
    super::super::seal(&mut block);
    assert_eq!(CacheSuperblock::decode(&block), Err(FormatError::Newer { version: 9, unknown_features: 0 }));
    assert_eq!(CacheSuperblock::decode(&vec![0; BLOCK_BYTES]), Err(FormatError::Magic));
}

#[test]
fn a_table_is_read_as_it_was_written() {
    let (table, layout) = (table(), layout());
    let bytes = table.encode(&layout);
    assert_eq!(bytes.len(), BLOCK_BYTES);
    assert!(bytes.len() <= layout.table_slot_blocks() as usize * BLOCK_BYTES);
    assert_eq!(CacheTable::decode(&bytes, &layout, table.drive), Ok(table.clone()));
    assert_eq!(table.free_chunks(&layout), [3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14]);
    let other = DriveId::from_bytes([9; 16]);
    assert_eq!(CacheTable::decode(&bytes, &layout, other), Err(FormatError::Inconsistent));
    let length = HEADER_BYTES + 3 * AREA_BYTES + 15 * CHUNK_BYTES;
    for byte in 4..length {
        let mut damaged = bytes.clone();
        damaged[byte] ^= 1;
        assert!(CacheTable::decode(&damaged, &layout, table.drive).is_err(), "byte {byte}");
    }
    let full = CacheTable { areas: vec![table.areas[2].clone(); AREAS_MAX], ..table.clone() };
    assert!(full.encode(&layout).len() <= layout.table_slot_blocks() as usize * BLOCK_BYTES);
    assert_eq!(CacheTable::decode(&full.encode(&layout), &layout, table.drive), Ok(full));
}

/// An area without one of its chunks would put all behind it into the wrong places.
#[test]
fn an_area_that_lacks_a_chunk_is_refused() {
    let (table, layout) = (table(), layout());
    let mut bytes = table.encode(&layout);
    let chunks = HEADER_BYTES + 3 * AREA_BYTES;
    bytes[chunks..chunks + CHUNK_BYTES].fill(0);
    super::super::seal(&mut bytes[..chunks + 15 * CHUNK_BYTES]);
    assert_eq!(CacheTable::decode(&bytes, &layout, table.drive), Err(FormatError::Inconsistent));
}
