use super::*;
use crate::checkers::testing::volume;

#[test]
fn a_volume_that_became_smaller_is_found() {
    let mut seen = volume(&[&[0, 1], &[1, 2]]);
    let size_bytes = seen.record.size_bytes;
    let growth = Growth::of(size_bytes);
    assert_eq!(growth.check(&seen), Ok(()));
    seen.record.size_bytes = size_bytes + 4096;
    assert_eq!(growth.check(&seen), Ok(()));
    assert_eq!(growth.present_bytes(), size_bytes + 4096);
    seen.record.size_bytes = size_bytes;
    assert!(growth.check(&seen).expect_err("it is smaller").contains("had"));
}

#[test]
fn a_growth_that_was_answered_stays() {
    let mut seen = volume(&[&[0, 1]]);
    let size_bytes = seen.record.size_bytes;
    let growth = Growth::of(size_bytes);
    growth.answered(size_bytes + 4096);
    assert!(growth.check(&seen).is_err());
    seen.record.size_bytes = size_bytes + 4096;
    assert_eq!(growth.check(&seen), Ok(()));
}

#[test]
fn a_volume_grows_no_further_than_the_world_has_room_for() {
    let growth = Growth::of(4 << 20);
    assert!(!growth.is_enough(12 << 20) && growth.is_enough((12 << 20) + 4096));
}
