use super::*;

#[test]
fn ranges_split_at_slab_borders() {
    let geometry = SlabGeometry::new(4 << 20).unwrap();
    assert_eq!(geometry.slab_blocks(), 1024);
    assert_eq!(geometry.slab_pages(), 2);
    let parts: Vec<_> = geometry.split(BlockRange::new(1000, 1100)).collect();
    let expected = [(0, 1000, 24), (1, 0, 1024), (2, 0, 52)].map(|(slab, first, count)| SlabRange {
        slab: SlabIndex(slab),
        first,
        count,
    });
    assert_eq!(parts, expected);
    assert_eq!(parts[2].in_volume(geometry), BlockRange::new(2048, 52));
    assert_eq!(geometry.split(BlockRange::new(5, 0)).count(), 0);
}

#[test]
fn slab_sizes_outside_the_limits_are_refused() {
    for size in [0, 1 << 20, (4 << 20) + 1, 512 << 20] {
        assert_eq!(SlabGeometry::new(size), None, "{size}");
    }
}

#[test]
fn covering_rounds_outwards() {
    assert_eq!(BlockRange::covering(511, 1), BlockRange::new(0, 1));
    assert_eq!(BlockRange::covering(4095, 2), BlockRange::new(0, 2));
    assert_eq!(BlockRange::covering(4096, 4096), BlockRange::new(1, 1));
}
