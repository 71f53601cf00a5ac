use super::*;

/// As Storage QoS of Windows counts: up to 8 KB as one, 64 KB as eight, 256 KB as 32.
#[test]
fn an_io_counts_by_its_size() {
    let limit = IopsLimit { iops_max: 100, normalized_bytes: IopsLimit::NORMALIZED_BYTES_DEFAULT };
    for (bytes, cost) in [(0, 1), (512, 1), (4096, 1), (8192, 1), (8193, 2), (64 << 10, 8), (256 << 10, 32)] {
        assert_eq!(limit.cost(bytes), cost, "{bytes} bytes");
    }
}

#[test]
fn what_cannot_be_held_is_not_valid() {
    let valid = |iops_max, normalized_bytes| IopsLimit { iops_max, normalized_bytes }.is_valid();
    assert!(valid(1, 1024) && valid(100_000_000, u32::MAX));
    assert!(!valid(0, 8192) && !valid(100_000_001, 8192) && !valid(100, 1023));
}
