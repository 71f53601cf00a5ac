use std::fs::File;
use std::time::Duration;

use crate::cell::{fill, run_cell};
use crate::spec::CellSpec;
use crate::target::{Target, TargetPlace};

const DRIVE_BYTES: u64 = 4 << 20;

fn drive_at(path: &std::path::Path) -> Target {
    Target::at("disk", TargetPlace::Drive(path.display().to_string()))
}

#[test]
fn a_drive_is_filled_and_takes_load() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    File::create(&path).unwrap().set_len(DRIVE_BYTES).unwrap();
    let targets = [drive_at(&path)];
    fill(&targets, None, 1, |_, _| {}).unwrap();
    let content = std::fs::read(&path).unwrap();
    assert!(content.chunks(512).all(|sector| sector.iter().any(|byte| *byte != 0)), "all of it was written");
    let spec = CellSpec {
        warmup: Duration::ZERO,
        duration: Duration::from_millis(200),
        write_percent: 50,
        outstanding: 4,
        write_source_bytes: 64 << 10,
        ..CellSpec::default()
    };
    let result = run_cell(&targets, &spec).unwrap();
    assert!(result.read.count > 0 && result.write.count > 0, "{result:?}");
    assert!(!result.has_failures() && result.littles_law.outstanding_set == 4, "{result:?}");
    assert_ne!(std::fs::read(&path).unwrap(), content, "what is written is another piece each time");
}

#[test]
fn a_drive_that_is_not_there_or_too_small_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    let error = run_cell(&[drive_at(&path)], &CellSpec::default()).unwrap_err();
    assert_eq!(error.code, "FLEET_DRIVE_UNUSABLE");
    File::create(&path).unwrap().set_len(DRIVE_BYTES).unwrap();
    let spec = CellSpec { working_set_bytes: Some(DRIVE_BYTES + 4096), ..CellSpec::default() };
    assert_eq!(run_cell(&[drive_at(&path)], &spec).unwrap_err().code, "FLEET_VOLUME_UNFIT");
}
