use spandrel_cluster::ScrubFindings;

use super::*;

fn found(blocks_damaged: u64, blocks_healed: u64, blocks_different: u64, pages_lacking: u64) -> ScrubSummary {
    let found = ScrubFindings {
        blocks_damaged,
        blocks_healed,
        blocks_different,
        pages_lacking,
        ..ScrubFindings::default()
    };
    ScrubSummary { found, ..ScrubSummary::default() }
}

#[test]
fn all_that_was_flipped_must_be_found_healed_and_counted() {
    let before = found(5, 4, 1, 0);
    assert_eq!(check_damage(3, &before, &found(8, 7, 1, 0)), Ok(()));
    for wrong in
        [found(5, 4, 1, 0), found(7, 6, 1, 0), found(8, 6, 1, 0), found(9, 8, 1, 0), found(8, 7, 2, 0)]
    {
        assert!(check_damage(3, &before, &wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn copies_that_differ_must_be_told_as_long_as_they_do() {
    let summary = |blocks_different_now, blocks_lost_now| ScrubSummary {
        blocks_different_now,
        blocks_lost_now,
        ..found(0, 0, 9, 0)
    };
    assert_eq!(check_difference(1, &summary(1, 0)), Ok(()));
    assert_eq!(check_difference(0, &summary(0, 0)), Ok(()));
    for wrong in [summary(0, 0), summary(2, 0), summary(1, 1)] {
        assert!(check_difference(1, &wrong).is_err(), "{wrong:?}");
    }
}

#[test]
fn copies_never_differ_and_lack_nothing_without_a_cause() {
    assert_eq!(check_without_cause(false, &found(3, 3, 0, 0)), Ok(()));
    assert_eq!(check_without_cause(true, &found(3, 3, 0, 2)), Ok(()));
    assert!(check_without_cause(false, &found(0, 0, 0, 1)).is_err());
    assert!(check_without_cause(true, &found(0, 0, 1, 0)).is_err());
}
