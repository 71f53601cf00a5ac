use super::*;

fn limits() -> DeviceLimits {
    DeviceLimits {
        size_bytes: 3 << 30,
        request_bytes_min: 512,
        request_bytes_preferred: 4096,
        request_bytes_max: 32 << 20,
        read_only: false,
    }
}

#[test]
fn sizes_stand_where_virtio_puts_them() {
    let config = config_space(&limits(), 3);
    let number = |at: usize, bytes: usize| {
        let mut number = [0; 8];
        number[..bytes].copy_from_slice(&config[at..at + bytes]);
        u64::from_le_bytes(number)
    };
    assert_eq!(number(0, 8), (3 << 30) / 512, "capacity in sectors");
    assert_eq!(number(12, 4), 126, "seg_max");
    assert_eq!(number(20, 4), 512, "blk_size");
    assert_eq!((number(24, 1), number(26, 2)), (3, 8), "physical blocks of 4 KiB");
    assert_eq!(number(34, 2), 3, "num_queues");
    assert_eq!((number(36, 4), number(40, 4), number(44, 4)), (1 << 21, 32, 8), "discard");
    assert_eq!((number(48, 4), number(52, 4), number(56, 1)), (1 << 21, 32, 1), "write zeroes");
}

#[test]
fn a_disk_says_what_it_can_and_that_it_has_no_cache() {
    let has = |limits: &DeviceLimits, bit: u32| features(limits) >> bit & 1 == 1;
    let (writable, read_only) = (limits(), DeviceLimits { read_only: true, ..limits() });
    assert!(!has(&writable, 5) && has(&read_only, 5), "read-only");
    for bit in [2, 6, 10, 12, 13, 14, 28, 29, 32] {
        assert!(has(&writable, bit), "bit {bit}");
    }
    assert!(!has(&writable, 9), "flush: what was answered is on stable storage");
}
