use spandrel_platform_simulated::{CrashMoment, CrashPlan, CrashScope, Random};

use super::*;
use crate::DriveStore;
use crate::test_support::machine::Machine;
use crate::test_support::{drive_config, format_options};

#[test]
fn known_marks_are_named_and_unknown_data_are_seen() {
    assert_eq!(recognize_head(&[0; HEAD_BYTES]), None);
    for signature in &SIGNATURES {
        let mut head = vec![0; HEAD_BYTES];
        head[signature.offset..signature.offset + signature.bytes.len()].copy_from_slice(signature.bytes);
        assert_eq!(recognize_head(&head).as_deref(), Some(signature.name));
    }
    let mut head = vec![0; HEAD_BYTES];
    head[777_777] = 1;
    assert_eq!(recognize_head(&head).unwrap(), "unknown data (the first at byte 777777)");
    // A bootable disk with a file system is named by the file system.
    head[0x438..0x43A].copy_from_slice(&[0x53, 0xEF]);
    head[0x1FE..0x200].copy_from_slice(&[0x55, 0xAA]);
    assert!(recognize_head(&head).unwrap().contains("ext4"));
}

/// What is found at the start of a drive, and in the block that a store would have last.
#[test]
fn a_drive_that_holds_something_is_not_empty() {
    let config = drive_config(24);
    let geometry = spandrel_shared::SlabGeometry::new(4 << 20).expect("a slab size");
    let layout = Layout::for_drive(24 << 20, 512, geometry).expect("it is large enough");
    let last = Layout::offset_of(layout.data_end_block());
    let found = |offset: u64, bytes: &'static [u8]| {
        let machine = Machine::new(1, config);
        machine.run(move |platform| async move {
            let drive = platform.open_drive("drive").await.expect("it is free");
            let mut block = platform.buffers().take_zeroed(BLOCK_BYTES);
            block[(offset % BLOCK_BYTES as u64) as usize..][..bytes.len()].copy_from_slice(bytes);
            let start = offset / BLOCK_BYTES as u64 * BLOCK_BYTES as u64;
            drive.write(start, vec![block.freeze()]).await.expect("it works");
            recognize(&platform, &drive, &layout).await.expect("it works")
        })
    };
    assert_eq!(found(0, &[0]), None);
    assert_eq!(found(0x438, &[0x53, 0xEF]).as_deref(), Some("an ext2, ext3 or ext4 file system"));
    assert_eq!(
        found(HEAD_BYTES as u64 - 1, &[1]),
        Some("unknown data (the first at byte 1048575)".to_owned())
    );
    assert_eq!(found(HEAD_BYTES as u64, &[1]), None, "only its start and its end are looked at");
    assert_eq!(found(last + 5, &[1]), Some(format!("data at its end (byte {last})")));
}

/// Whatever a power cut leaves of a formatting, the drive can be formatted again, or is formatted.
#[test]
fn an_interrupted_formatting_can_be_repeated() {
    for operation in 1.. {
        let mut images = Vec::new();
        for moment in
            [CrashMoment::BeforeSubmission, CrashMoment::AfterSubmission, CrashMoment::AfterCompletion]
        {
            let machine = Machine::new(operation, drive_config(24));
            machine.drive.crash_at(CrashPlan { operation, moment, scope: CrashScope::Host });
            let process = machine.process();
            let platform = process.platform();
            let formatted = process.block_on(async move {
                let drive = platform.open_drive("drive").await.unwrap();
                DriveStore::format(&platform, &drive, format_options()).await.unwrap();
            });
            if formatted.is_ok() {
                return;
            }
            images.extend(machine.drive.crash_images(8, 20, &Random::new(operation)));
        }
        assert!(operation < 100, "a formatting ends");
        for image in images {
            let machine = Machine::with_image(operation, drive_config(24), image);
            let is_formatted = machine.run(|platform| async move {
                let drive = platform.open_drive("drive").await.unwrap();
                DriveStore::identify(&platform, &drive).await.is_ok()
            });
            if !is_formatted {
                machine.format();
            }
            machine.attach().unwrap();
        }
    }
}

/// A root of a drive that was attached, without a superblock, is somebody's data.
#[test]
fn a_used_drive_without_its_superblocks_is_not_empty() {
    let (machine, _store) = Machine::attached(1, drive_config(24));
    let mut image = machine.drive.snapshot();
    let last = image.size_bytes() - BLOCK_BYTES as u64;
    for offset in [0, last] {
        image.write(offset, &[0; BLOCK_BYTES]);
    }
    let head = image.read_vec(0, HEAD_BYTES);
    assert!(recognize_head(&head).is_some());
}
