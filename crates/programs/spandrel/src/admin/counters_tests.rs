use spandrel_node::{DriveReport, OwnedVolumeReport};

use super::*;
use crate::admin::testing;

fn report(run: u64, drive_written_bytes: u64, owned: &[(u64, u32, u64)]) -> NodeReport {
    let owned = owned.iter().map(|(volume, epoch, write_bytes)| OwnedVolumeReport {
        volume: VolumeId::from_random(0, *volume),
        epoch: Epoch(*epoch),
        write_bytes: *write_bytes,
        ..testing::owned()
    });
    let drive = |written_bytes| DriveReport { written_bytes, ..DriveReport::default() };
    NodeReport {
        incarnation: ProcessIncarnation::from_random(0, run),
        drives: vec![drive(drive_written_bytes), drive(1)],
        owned: owned.collect(),
        ..testing::node_report(1)
    }
}

#[test]
fn totals_go_on_when_a_node_starts_anew_and_a_volume_changes_its_owner() {
    let mut counters = Counters::default();
    counters.take(&report(1, 100, &[(1, 1, 50), (2, 1, 5)]));
    counters.take(&report(1, 200, &[(1, 1, 70)]));
    assert_eq!((counters.drive_written_bytes(), counters.user_written_bytes()), (201, 75));
    counters.take(&report(2, 10, &[(1, 2, 7)]));
    assert_eq!((counters.drive_written_bytes(), counters.user_written_bytes()), (212, 82));
}

#[test]
fn a_report_that_comes_late_takes_nothing_back() {
    let mut counters = Counters::default();
    counters.take(&report(1, 200, &[(1, 1, 70)]));
    counters.take(&report(1, 100, &[(1, 1, 50)]));
    assert_eq!((counters.drive_written_bytes(), counters.user_written_bytes()), (201, 70));
}
