use std::rc::Rc;

use super::*;
use crate::inspection::DamageKind;
use crate::testing::Image;
use crate::testing::machine::Machine;
use crate::testing::workload::Workload;

fn worked() -> Image {
    let machine = Machine::formatted(1, 512);
    let (store, _) = machine.attach().unwrap();
    let workload = Workload::new(&machine, store, 1);
    let oracle = Rc::clone(&workload.oracle);
    machine.run(|_| workload.run(300));
    assert!(oracle.borrow().answers > 100);
    Image::new(machine.drive.snapshot())
}

fn assert_fits(text: &str) {
    for line in text.lines() {
        assert!(line.chars().count() <= WIDTH, "{} columns: {line}", line.chars().count());
    }
}

#[test]
fn a_sound_drive_is_shown() {
    let inspection = worked().inspect().unwrap();
    let text = inspection.to_text(false);
    assert_fits(&text);
    for expected in [
        "drive       03030303-0303-0303-0303-030303030303",
        "superblock  2 of 2 copies whole",
        "24 MiB in sectors of 512 B, slabs of 4 MiB",
        "2 of 2 copies whole; attach 1",
        "no damage",
    ] {
        assert!(text.contains(expected), "{expected} in {text}");
    }
}

#[test]
fn long_lists_are_cut_unless_all_is_asked_for() {
    let mut image = worked();
    let sound = image.inspect().unwrap();
    let chosen: Vec<_> = sound.blocks.iter().filter(|block| !block.in_last_group).take(50).collect();
    chosen.iter().for_each(|block| image.image.flip_bit(block.offset_bytes, 0));
    let inspection = image.inspect().unwrap();
    let short = inspection.to_text(false);
    assert!(short.contains("... and 30 more (--all shows them)"), "{short}");
    assert!(short.ends_with("50 places damaged\n"), "{short}");
    let long = inspection.to_text(true);
    for block in &chosen {
        assert!(long.contains(&format!("block {}\n", block.block)), "block {} in {long}", block.block);
    }
    assert_fits(&long);
    assert_eq!(long.matches("does not match its checksum").count(), 1, "said once");
}

/// The largest numbers that there can be, and every kind of damage.
#[test]
fn the_widest_lines_fit() {
    let mut inspection = worked().inspect().unwrap();
    inspection.path = "drive".into();
    let version = Version::new(spandrel_shared::Epoch(99_999), 99_999_999_999_999);
    let copy = &mut inspection.copies[0];
    (copy.newest, copy.proven, copy.slab) = (version, Some(version), spandrel_shared::SlabIndex(99_999));
    (copy.lost_blocks, copy.damaged_blocks, copy.mapped_blocks) = (65_536, 65_536, 65_536);
    let (volume, slab) = (Some(copy.volume), Some(copy.slab));
    let offset = (16_u64 << 40) - 1;
    let kinds = [
        DamageKind::Superblock,
        DamageKind::Root,
        DamageKind::JournalGroup,
        DamageKind::SlabRoot,
        DamageKind::Leaf,
        DamageKind::Contradiction,
        DamageKind::Data,
        DamageKind::Lost,
    ];
    for (kind, by_crash) in kinds.into_iter().flat_map(|kind| [(kind, false), (kind, true)]) {
        let detail = "many words ".repeat(30);
        let damage = Damage::of_structure(kind, offset, 4096, detail);
        inspection.damage.push(match kind {
            DamageKind::JournalGroup => Damage { sequence: Some(u64::MAX), by_crash, ..damage },
            DamageKind::Leaf => Damage { volume, slab, page: Some(127), by_crash, ..damage },
            DamageKind::Data => Damage { volume, slab, block: Some(65_535), blocks: 1, by_crash, ..damage },
            DamageKind::Lost => {
                Damage { volume, slab, block: Some(10_000), blocks: 50_000, by_crash, ..damage }
            }
            DamageKind::SlabRoot => Damage { volume, slab, by_crash, ..damage },
            _ => Damage { by_crash, ..damage },
        });
    }
    inspection.journal.groups_cut_off = 5;
    inspection.journal.blocks_in_doubt = 1;
    inspection.was_in_use = true;
    let text = inspection.to_text(true);
    assert_fits(&text);
    assert!(text.contains("block 10000-59999"));
    assert!(text.contains("left by a crash"));
    assert!(text.contains("can prove this copy only up to 99999.99999999999999"));
    inspection.root = None;
    assert_fits(&inspection.to_text(true));
}
