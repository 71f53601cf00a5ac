use super::*;

fn change(iops_max: Option<u64>, normalized_bytes: Option<u32>) -> VolumeSettingsChange {
    VolumeSettingsChange { iops_max, normalized_bytes, pinned: None }
}

#[test]
fn what_is_not_said_of_a_limit_stays() {
    let limit = |iops_max, normalized_bytes| Some(IopsLimit { iops_max, normalized_bytes });
    let changed = |present, change: VolumeSettingsChange| changed_limit("v", present, &change);
    assert_eq!(changed(None, change(Some(1100), None)), Ok(limit(1100, 8192)), "the unit of Windows");
    assert_eq!(changed(limit(5, 4096), change(Some(6), None)), Ok(limit(6, 4096)));
    assert_eq!(changed(limit(5, 4096), change(None, Some(1024))), Ok(limit(5, 1024)));
    assert_eq!(changed(limit(5, 4096), change(Some(0), None)), Ok(None));
    assert_eq!(changed(None, change(Some(0), None)), Ok(None));
}

#[test]
fn a_limit_that_cannot_be_held_is_refused() {
    for change in [change(None, Some(4096)), change(Some(5), Some(512)), change(Some(100_000_001), None)] {
        let error = changed_limit("v", None, &change).expect_err("it cannot be held");
        assert_eq!(error.code, "IOPS_LIMIT_INVALID");
    }
}
