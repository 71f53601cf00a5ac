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

/// The table of drives in the document on room says what the layout does.
#[test]
fn the_document_on_room_has_the_right_numbers() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/internals/space.md");
    let document = std::fs::read_to_string(path).unwrap();
    let rows: Vec<Vec<&str>> = document
        .lines()
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>())
        .filter(|cells| cells.len() == 8 && cells[0].ends_with("iB"))
        .collect();
    assert_eq!(rows.len(), 3, "{rows:?}");
    for cells in rows {
        let size = |cell: &str| spandrel_shared::size::parse_size(&cell.replace(' ', "")).unwrap();
        let geometry = SlabGeometry::new(size(cells[1])).unwrap();
        let layout = Layout::for_drive(size(cells[0]), 512, geometry).unwrap();
        let slabs = layout.promised_slabs();
        assert_eq!(cells[4], layout.data_blocks().to_string(), "{cells:?}");
        assert_eq!(cells[6], slabs.to_string(), "{cells:?}");
        let share = f64::from(slabs) * geometry.slab_bytes() as f64 / size(cells[0]) as f64;
        assert_eq!(cells[7], format!("{:.1} %", share * 100.0), "{cells:?}");
    }
}
