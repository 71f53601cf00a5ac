use std::rc::Rc;

use spandrel_platform_simulated::DriveImage;

use super::*;
use crate::testing::Image;
use crate::testing::machine::Machine;
use crate::testing::workload::Workload;

fn worked_image() -> DriveImage {
    let machine = Machine::formatted(1, 512);
    let (store, _) = machine.attach().unwrap();
    let workload = Workload::new(&machine, store.clone(), 1);
    let oracle = Rc::clone(&workload.oracle);
    machine.run(|_| workload.run(300));
    assert!(oracle.borrow().answers > 100);
    machine.run(|_| async move { store.detach().await.unwrap() });
    machine.drive.snapshot()
}

#[test]
fn every_copy_is_written_out_block_by_block() {
    let image = Image::new(worked_image());
    let inspection = image.inspect().unwrap();
    let folder = tempfile::tempdir().unwrap();
    for (number, copy) in inspection.copies.iter().enumerate() {
        let output = folder.path().join(number.to_string());
        let export = || {
            export_source(
                &image,
                Caches::Lost,
                Path::new("image"),
                (copy.volume, copy.slab),
                &output,
                ExportOptions::default(),
            )
        };
        let report = export().unwrap();
        assert_eq!((report.blocks_written, report.zeroed_blocks.len()), (copy.mapped_blocks, 0));
        let mut expected = vec![0; 4 << 20];
        let blocks = inspection.blocks.iter();
        for block in blocks.filter(|block| (block.volume, block.slab) == (copy.volume, copy.slab)) {
            let start = block.block as usize * BLOCK_BYTES;
            image.image.read(block.offset_bytes, &mut expected[start..start + BLOCK_BYTES]);
        }
        assert!(std::fs::read(&output).unwrap() == expected);
        assert_eq!(export().unwrap_err().code, "EXPORT_EXISTS");
    }
    assert!(inspection.copies.len() >= 2);
}

#[test]
fn damaged_copies_are_written_only_when_that_was_asked_for() {
    let mut image = Image::new(worked_image());
    let inspection = image.inspect().unwrap();
    let block = inspection.blocks[3];
    image.flip_bit(&inspection, block.offset_bytes + 77, 1);
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("slab");
    let export = |options| {
        export_source(&image, Caches::Lost, Path::new("image"), (block.volume, block.slab), &output, options)
    };
    let error = export(ExportOptions::default()).unwrap_err();
    assert_eq!(error.code, "COPY_DAMAGED");
    assert!(error.why.contains(&format!("block {}", block.block)), "{}", error.why);
    assert!(!output.exists(), "nothing was written");
    let report = export(ExportOptions { zero_damaged: true, ..ExportOptions::default() }).unwrap();
    assert_eq!(report.zeroed_blocks, [block.block]);
    let start = block.block as usize * BLOCK_BYTES;
    let bytes = std::fs::read(&output).unwrap();
    assert!(bytes[start..start + BLOCK_BYTES].iter().all(|byte| *byte == 0));
    assert!(bytes.iter().any(|byte| *byte != 0));
}

#[test]
fn copies_that_are_not_there_are_not_found() {
    let image = Image::new(worked_image());
    let output = Path::new("/nowhere/at/all");
    let export = |volume, slab| {
        let options = ExportOptions::default();
        export_source(&image, Caches::Lost, Path::new("image"), (volume, slab), output, options)
            .unwrap_err()
            .code
    };
    let copy = &image.inspect().unwrap().copies[0];
    assert_eq!(export(VolumeId::from_bytes([7; 16]), copy.slab), "COPY_NOT_FOUND");
    assert_eq!(export(copy.volume, SlabIndex(999)), "COPY_NOT_FOUND");
    assert_eq!(export(copy.volume, copy.slab), "EXPORT_FAILED");
}
