use super::*;

fn text(drives_usable: usize, drives: usize) -> String {
    status(&PoolFacts { drives, drives_usable }).to_string()
}

#[test]
fn the_majority_decides() {
    assert_eq!(text(8, 8), "Healthy (OK)");
    assert_eq!(text(7, 8), "Warning (Degraded)");
    assert_eq!(text(5, 8), "Warning (Degraded)");
    assert_eq!(text(4, 8), "Unhealthy (Incomplete)");
    assert_eq!(text(0, 8), "Unhealthy (Incomplete)");
}

#[test]
fn a_pool_without_drives_lacks_none() {
    assert_eq!(text(0, 0), "Healthy (OK)");
}
