//! docs/internals/space.md says what the code does: its tables are made anew here.

use spandrel_shared::size::format_size;
use spandrel_shared::{BLOCK_BYTES, DriveId, NodeId, SlabGeometry};

use crate::plan::{Plan, VolumeRequest, plan_volume};
use crate::space::Space;
use crate::view::{DriveRoom, NodeRoom, PoolView};

const DOCUMENT: &str = include_str!("../../../../docs/internals/space.md");

/// What a drive of the worked example can hold.
const EXAMPLE_SLABS: u32 = 241;

#[track_caller]
fn expect_row(cells: &[String]) {
    let row = format!("| {} |", cells.join(" | ")).replace("|  |", "| |");
    assert!(DOCUMENT.lines().any(|line| line == row), "the document lacks {row}");
}

/// Three significant digits are enough for a table.
fn short_size(bytes: u64) -> String {
    let text = format_size(bytes);
    match text.split_once(' ') {
        Some((number, unit)) if number.contains('.') && number.len() > 4 => {
            let number: f64 = number.parse().unwrap();
            format!("{number:.1} {unit}")
        }
        _ => text,
    }
}

fn example() -> PoolView {
    let geometry = SlabGeometry::new(16 << 20).unwrap();
    let mut view = PoolView { geometry, nodes: Vec::new(), drives: Vec::new() };
    for number in 1..=4 {
        let node = NodeId::from_bytes([number; 16]);
        view.nodes.push(NodeRoom {
            node,
            name: format!("node-{number}"),
            is_online: true,
            volumes_owned: 0,
            place: Default::default(),
            is_in_maintenance: false,
        });
        for place in 1..=2 {
            let drive = DriveId::from_bytes([number * 16 + place; 16]);
            let (slabs_total, slabs_used) = (EXAMPLE_SLABS, 0);
            view.drives.push(DriveRoom {
                drive,
                node,
                slabs_total,
                slabs_used,
                slabs_leaving: 0,
                is_online: true,
            });
        }
    }
    view
}

/// The arithmetic of a drive's layout, as the document explains it.
#[test]
fn drives_hold_what_the_table_says() {
    let rows = [(4_u64 << 30, 16_u64 << 20), (1 << 40, 256 << 20), (16 << 40, 256 << 20)];
    for (drive_bytes, slab_bytes) in rows {
        let block = BLOCK_BYTES as u64;
        // The highest block numbers mean something else.
        let blocks = (drive_bytes / block).min(u64::from(u32::MAX) - 1);
        let slab_blocks = slab_bytes / block;
        let roots = 4 * (128 + 192 * (blocks / slab_blocks)).div_ceil(block);
        let journal = (blocks / 64).min((4 << 30) / block).max(blocks / 200).max((1 << 20) / block);
        let data = blocks - 2 - roots - journal;
        let promised = (data - data.div_ceil(25)) / slab_blocks;
        expect_row(&[
            format_size(drive_bytes),
            format_size(slab_bytes),
            format_size(roots * block),
            short_size(journal * block),
            data.to_string(),
            (data - promised * slab_blocks).to_string(),
            promised.to_string(),
            format!("{:.1} %", (promised * slab_bytes * 100) as f64 / drive_bytes as f64),
        ]);
        assert!(drive_bytes != 4 << 30 || promised == u64::from(EXAMPLE_SLABS));
    }
}

#[test]
fn the_examples_pool_holds_what_the_table_says() {
    let view = example();
    let space = Space::of(&view);
    assert_eq!((space.total(), space.reserve), (1928, 964));
    for copies in [3, 2, 1] {
        let slab_bytes = view.geometry.slab_bytes();
        let size =
            |slabs: u64| format!("{} MiB ({})", (slabs * slab_bytes) >> 20, short_size(slabs * slab_bytes));
        let (usable, advised) = (space.usable_slabs(copies), space.advised_slabs(copies));
        expect_row(&[copies.to_string(), usable.to_string(), size(usable), size(advised)]);
    }
}

#[test]
fn the_examples_volumes_fill_the_pool_as_the_table_says() {
    let mut view = example();
    let request = VolumeRequest { name: "example", size_bytes: 1 << 30, copies: Some(3), owner: None };
    for volumes in 1..=10 {
        let plan = plan_volume(&view, &request).unwrap();
        let owner = carry_out(&mut view, &plan);
        let used = view.drives.iter().map(|drive| drive.slabs_used);
        let warnings: Vec<String> =
            plan.warnings.iter().map(|warning| format!("`{}`", warning.code())).collect();
        expect_row(&[
            volumes.to_string(),
            owner,
            Space::of(&view).free().to_string(),
            format!("{} to {}", used.clone().min().unwrap(), used.max().unwrap()),
            warnings.join(", "),
        ]);
        if volumes == 1 {
            check_first_volume(&view, &plan);
        }
    }
    let error = plan_volume(&view, &request).unwrap_err();
    assert_eq!(error.code, "POOL_FULL");
    assert!(error.next.contains("at most 32 MiB"), "{error}");
}

fn check_first_volume(view: &PoolView, plan: &Plan) {
    assert_eq!((plan.slabs.len(), plan.slabs_local), (64, 64));
    for drive in &view.drives {
        let expected = if drive.node == plan.owner { 32..=32 } else { 21..=22 };
        assert!(expected.contains(&drive.slabs_used), "{drive:?}");
    }
}

/// Returns the owner's name.
fn carry_out(view: &mut PoolView, plan: &Plan) -> String {
    let per_drive = plan.copies_per_drive();
    for drive in &mut view.drives {
        drive.slabs_used += per_drive.get(&drive.drive).copied().unwrap_or(0);
    }
    let owner = view.nodes.iter_mut().find(|node| node.node == plan.owner).unwrap();
    owner.volumes_owned += 1;
    owner.name.clone()
}
