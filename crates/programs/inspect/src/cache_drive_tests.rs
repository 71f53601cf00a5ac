use spandrel_drive::{CacheLayout, CacheSuperblock as Written};

use super::*;

/// What the store writes, read by a program that shares no code with it.
#[test]
fn what_the_store_writes_is_read() {
    for size_bytes in [8 << 20, 512 << 20, 3 << 40] {
        let layout = CacheLayout::for_drive(size_bytes, 4096).expect("it is large enough");
        let written = Written {
            cluster: ClusterId::from_bytes([1; 16]),
            node: NodeId::from_bytes([2; 16]),
            drive: DriveId::from_bytes([3; 16]),
            layout,
            created_unix_ms: 7,
        };
        let mut block = vec![0; BLOCK_BYTES];
        written.encode(&mut block);
        let read = CacheSuperblock::parse(&block).expect("it is whole");
        assert_eq!((read.cluster, read.node, read.drive), (written.cluster, written.node, written.drive));
        assert_eq!(read.tables_end_bytes(), layout.chunk_offset(0));
        assert_eq!(read.second_superblock_bytes(), layout.last_block() * BLOCK_BYTES as u64);
        block[100] ^= 1;
        assert_eq!(CacheSuperblock::parse(&block), None, "it is damaged");
    }
}
