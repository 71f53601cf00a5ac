//! Whole drives: what the store attaches, and what the offline reader says of them.
//!
//! Three targets on the same images, which the shipping store wrote:
//! - [`ATTACH`] changes structures and makes every checksum right again, as no decay does but a bug or a
//!   stranger may. The store refuses the drive or takes it; then it reads all of it, goes on writing, and has
//!   told the same of it as the offline reader.
//! - [`DAMAGE`] changes bytes and mends nothing. What the store then offers as whole is what was
//!   written.
//! - [`INSPECT`] has the offline reader alone look at what both of them do.

mod image;
mod seal;
mod view;

use std::path::Path;

use image::{Written, attach, drive_bytes, written};
use seal::seal_all;
use spandrel_inspect::{Caches, DamageKind, InspectOptions, Inspection, Structure, inspect_source};
use spandrel_platform_simulated::DriveImage;
use spandrel_shared::BLOCK_BYTES;
use view::{Image, View};

use crate::Target;
use crate::choices::Choices;
use crate::edit::edit_in_place;

pub const ATTACH: Target = Target {
    name: "drive-attach",
    about: "a drive whose structures are changed and sealed anew, attached",
    run: attach_resealed,
    seeds,
    smoke_runs: 1000,
    memory_bytes_max: 96 << 20,
};

pub const DAMAGE: Target = Target {
    name: "drive-damage",
    about: "a drive that is damaged anywhere, attached",
    run: attach_damaged,
    seeds: damage_seeds,
    smoke_runs: 500,
    memory_bytes_max: 96 << 20,
};

pub const INSPECT: Target = Target {
    name: "drive-inspect",
    about: "a drive with any changes, read offline",
    run: inspect_changed,
    seeds,
    smoke_runs: 1000,
    memory_bytes_max: 96 << 20,
};

/// Inspects an image, with everything listed.
fn inspect(image: &DriveImage) -> Option<Inspection> {
    let options = InspectOptions { list_blocks: true, ..InspectOptions::default() };
    inspect_source(&Image(image), Caches::Lost, Path::new("image"), options, &mut |_| {}).ok()
}

fn attach_resealed(input: &[u8]) {
    let mut choices = Choices::new(input);
    written(usize::from(choices.byte()), |written| {
        let mut image = written.image.clone();
        while !choices.is_empty() {
            change_structure(&mut image, &written.structures, &mut choices);
        }
        seal_all(&mut image, &written.structures);
        let inspection = inspect(&image);
        let Some(view) = attach(&image) else { return };
        let inspection = inspection.expect("what can be attached can be inspected");
        // Two whole parts that contradict each other are one's to believe and the other's to name.
        let contradicts = inspection.damage.iter().any(|damage| damage.kind == DamageKind::Contradiction);
        if !contradicts {
            View::assert_same(&view, &View::of_inspection(&inspection, &image));
        }
    });
}

/// Changes a structure in place, and its twin alike.
fn change_structure(image: &mut DriveImage, structures: &[Structure], choices: &mut Choices<'_>) {
    let structure = structures[choices.index(structures.len())];
    let mut bytes = image.read_vec(structure.offset_bytes, structure.length_bytes as usize);
    edit_in_place(&mut bytes, choices);
    let is_twin = |other: &&Structure| {
        let has_twin = matches!(structure.kind, DamageKind::Superblock | DamageKind::Root);
        **other == structure || has_twin && other.kind == structure.kind
    };
    for twin in structures.iter().filter(is_twin) {
        image.write(twin.offset_bytes, &bytes);
    }
}

fn attach_damaged(input: &[u8]) {
    let mut choices = Choices::new(input);
    written(usize::from(choices.byte()), |written| {
        let mut image = written.image.clone();
        let mut changes = 0;
        while !choices.is_empty() {
            damage(&mut image, written, &mut choices);
            changes += 1;
        }
        drop(inspect(&image));
        let Some(view) = attach(&image) else {
            assert!(changes > 1, "no single damage keeps a drive from being attached");
            return;
        };
        written.judge(&view, changes <= 1);
    });
}

/// Damages one sector: of a structure, of data, or anywhere.
fn damage(image: &mut DriveImage, written: &Written, choices: &mut Choices<'_>) {
    const SECTOR_BYTES: usize = 512;
    let offset = match choices.byte() % 4 {
        0 => choices.index(usize::from(u16::MAX)) as u64 * SECTOR_BYTES as u64 % drive_bytes(),
        1 => written.data[choices.index(written.data.len())],
        _ => {
            let structure = written.structures[choices.index(written.structures.len())];
            structure.offset_bytes + choices.index(structure.length_bytes as usize) as u64
        }
    };
    let sector = offset - offset % SECTOR_BYTES as u64;
    let mut bytes = image.read_vec(sector, SECTOR_BYTES);
    match choices.byte() % 4 {
        0 => bytes.fill(choices.byte()),
        1 => bytes = image.read_vec(choices.index(BLOCK_BYTES) as u64 * SECTOR_BYTES as u64, SECTOR_BYTES),
        _ => edit_in_place(&mut bytes, choices),
    }
    image.write(sector, &bytes);
}

fn inspect_changed(input: &[u8]) {
    let mut choices = Choices::new(input);
    let base = usize::from(choices.byte());
    written(base, |written| {
        let mut image = written.image.clone();
        let seals = base & 0x80 == 0;
        while !choices.is_empty() {
            if choices.flag() {
                change_structure(&mut image, &written.structures, &mut choices);
            } else {
                damage(&mut image, written, &mut choices);
            }
        }
        if seals {
            seal_all(&mut image, &written.structures);
        }
        if let Some(inspection) = inspect(&image) {
            serde_json::to_string(&inspection).expect("an inspection is plain data");
            drop(View::of_inspection(&inspection, &image));
        }
    });
}

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![0], vec![1]];
    // A number of each size at the front of each structure of the first image.
    let count = written(0, |written| written.structures.len()) as u8;
    seeds.extend((0..count).map(|structure| vec![0, structure, 0, 0, 3, 16, 0, 75]));
    seeds.extend((0..count).map(|structure| vec![1, structure, 0, 0, 4, 40, 0, 79]));
    seeds
}

fn damage_seeds() -> Vec<Vec<u8>> {
    let count = written(0, |written| written.structures.len()) as u8;
    let mut seeds = vec![vec![0], vec![1], vec![0, 1, 0, 0, 0, 7], vec![1, 1, 9, 0, 1, 3, 0]];
    seeds.extend((0..count).map(|structure| vec![0, 2, structure, 0, 0, 0, 0, 0xff]));
    seeds
}
