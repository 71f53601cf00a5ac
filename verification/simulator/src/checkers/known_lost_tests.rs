use spandrel_inspect::CopyReport;

use super::*;
use crate::checkers::testing::{copy_report, drive_id, inspection, marked, volume};

/// The drives of two servers, the second of which has lost some blocks of the second slab.
fn drives(lost_blocks: u32) -> BTreeMap<DriveId, Inspection> {
    let copies = |lost_blocks| vec![copy_report(0), CopyReport { lost_blocks, ..copy_report(1) }];
    let drive =
        |node, lost_blocks| (drive_id(node), Inspection { copies: copies(lost_blocks), ..inspection(node) });
    BTreeMap::from([drive(0, 0), drive(1, lost_blocks)])
}

#[test]
fn what_an_in_sync_copy_has_lost_is_found() {
    let volume = volume(&[&[0, 1], &[0, 1]]);
    assert_eq!(check(&volume, &drives(0)), Ok(()));
    let found = check(&volume, &drives(7)).unwrap_err();
    assert!(found.contains("slab 1") && found.contains("7 blocks"), "{found}");
}

#[test]
fn a_copy_that_is_stale_or_the_only_one_may_lack_blocks() {
    let both = volume(&[&[0, 1], &[0, 1]]);
    assert_eq!(check(&marked(both.clone(), 1), &drives(7)), Ok(()), "its resync is to come");
    assert_eq!(check(&marked(both, 0), &drives(7)), Ok(()), "nobody has them");
    assert_eq!(check(&volume(&[&[0, 1], &[1]]), &drives(7)), Ok(()));
}
