use super::*;

#[test]
fn parts_lie_behind_each_other_and_leave_four_percent() {
    for (size, slab) in
        [(32 << 20, 4 << 20), (4 << 30, 16 << 20), (1 << 40, 256 << 20), (20 << 40, 256 << 20)]
    {
        let layout = Layout::for_drive(size, 512, SlabGeometry::new(slab).unwrap()).unwrap();
        assert!(layout.is_consistent(), "{layout:?}");
        let promised = u64::from(layout.promised_slabs()) * u64::from(layout.slab_geometry.slab_blocks());
        assert!(promised * 100 <= u64::from(layout.data_blocks()) * 96, "{layout:?}");
        // Mapped blocks, their map pages, and a second copy of all pages fit together.
        let needed = promised + u64::from(layout.checkpoint_reserve_blocks());
        assert!(needed <= u64::from(layout.data_blocks()), "{layout:?}");
    }
}

#[test]
fn a_drive_without_room_for_one_slab_is_refused() {
    let geometry = SlabGeometry::new(4 << 20).unwrap();
    assert_eq!(Layout::for_drive(4 << 20, 512, geometry), None);
    assert_eq!(Layout::for_drive(0, 512, geometry), None);
    assert!(Layout::for_drive(8 << 20, 512, geometry).is_some());
}
