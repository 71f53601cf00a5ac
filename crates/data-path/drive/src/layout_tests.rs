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

/// A drive of 64 MiB for slabs of 4 MiB.
fn example() -> Layout {
    Layout::for_drive(64 << 20, 512, SlabGeometry::new(4 << 20).unwrap()).unwrap()
}

#[test]
fn the_places_of_a_small_drive_are_these() {
    let layout = example();
    let places = Layout {
        size_blocks: 16_384,
        sector_bytes: 512,
        slab_geometry: SlabGeometry::new(4 << 20).unwrap(),
        slab_count_max: 16,
        root_first_block: 1,
        root_slot_blocks: 1,
        journal_first_block: 5,
        journal_blocks: 256,
        data_first_block: 261,
        area_blocks: 0,
    };
    assert_eq!(layout, places);
    // A slab has two leaves and a root page, each of which may be there twice.
    assert_eq!(layout.checkpoint_reserve_blocks(), 2 * 16 * 3);
    // A block of the journal holds 170 records of 24 bytes.
    assert_eq!(layout.slots_max(), 16 + 256 * 170);
    assert_eq!(layout.journal_sectors(), 2048);
    assert_eq!(Layout { sector_bytes: 4096, ..layout }.journal_sectors(), 256);
}

#[test]
fn the_journals_share_falls_with_the_size_of_the_drive() {
    let journal_bytes = |size_bytes: u64| {
        Layout::for_drive(size_bytes, 512, SlabGeometry::new(4 << 20).unwrap()).unwrap().journal_bytes()
    };
    assert_eq!(journal_bytes(24 << 20), 1 << 20, "not less than this");
    assert_eq!(journal_bytes(64 << 20), 1 << 20);
    assert_eq!(journal_bytes(64 << 30), 1 << 30, "a 64th");
    assert_eq!(journal_bytes(256 << 30), 4 << 30);
    assert_eq!(journal_bytes(800 << 30), 4 << 30, "and no more, until that is 0.5 %");
    assert_eq!(journal_bytes(1600 << 30), 8 << 30);
}

#[test]
fn root_slots_lie_behind_each_other_before_the_journal() {
    let layout = Layout { root_slot_blocks: 3, root_first_block: 2, ..example() };
    assert_eq!([0, 1, 2, 3].map(|slot| layout.root_slot(slot)), [2, 5, 8, 11]);
}

/// A superblock can be whole and say what no layout says.
#[test]
fn a_layout_with_parts_that_overlap_or_are_too_small_is_not_consistent() {
    let good = example();
    let fine = [
        good,
        Layout { sector_bytes: 4096, ..good },
        // Room between the parts does no harm.
        Layout { journal_first_block: 9, data_first_block: 300, ..good },
        Layout { root_first_block: 2, journal_first_block: 6, data_first_block: 262, ..good },
        // One block for data.
        Layout { data_first_block: 16_382, ..good },
        // As many slabs as a slot of one block has room for.
        Layout { slab_count_max: 20, ..good },
    ];
    for layout in fine {
        assert!(layout.is_consistent(), "{layout:?}");
    }
    let bad = [
        // The superblock stands in block zero.
        Layout { root_first_block: 0, ..good },
        Layout { root_slot_blocks: 0, ..good },
        Layout { slab_count_max: 21, ..good },
        Layout { journal_first_block: 4, ..good },
        Layout { root_first_block: 2, ..good },
        Layout { root_slot_blocks: 2, ..good },
        Layout { journal_blocks: 255, ..good },
        Layout { journal_blocks: 257, ..good },
        Layout { data_first_block: 260, ..good },
        Layout { data_first_block: 16_383, ..good },
        Layout { size_blocks: 262, ..good },
        Layout { size_blocks: 0, ..good },
        Layout { sector_bytes: 1024, ..good },
        Layout { sector_bytes: 0, ..good },
        // Sums that do not fit 32 bits.
        Layout { root_slot_blocks: u32::MAX, ..good },
        Layout { journal_blocks: u32::MAX, ..good },
    ];
    for layout in bad {
        assert!(!layout.is_consistent(), "{layout:?}");
    }
}

#[test]
fn a_layout_fits_a_drive_that_is_as_large_and_writes_sectors_as_small() {
    let fits = |sector_bytes, drive: (u64, u32)| {
        let geometry = DriveGeometry { size_bytes: drive.0, sector_bytes: drive.1, volatile_cache: true };
        Layout { sector_bytes, ..example() }.fits(geometry)
    };
    let size = 64 << 20;
    assert!(fits(512, (size, 512)));
    assert!(fits(512, (size + 1, 512)));
    assert!(!fits(512, (size - 1, 512)));
    assert!(!fits(512, (size, 4096)));
    assert!(!fits(512, (size - 1, 4096)));
    assert!(fits(4096, (size, 512)));
    assert!(fits(4096, (size, 4096)));
    assert!(!fits(4096, (size / 2, 4096)));
}
