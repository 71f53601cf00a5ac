use super::*;

#[test]
fn a_rate_settles_when_it_stops_changing() {
    assert!(!is_steady(&[]));
    assert!(!is_steady(&[10_000, 10_000, 10_000]), "too few windows");
    assert!(is_steady(&[10_000, 10_100, 9_900, 10_050]));
    assert!(is_steady(&[1, 5, 10_000, 10_100, 9_900, 10_050]), "what was before does not count");
    assert!(!is_steady(&[10_000, 12_000, 14_000, 16_000]));
    assert!(!is_steady(&[16_000, 14_000, 12_000, 10_000]));
}

#[test]
fn few_ios_vary_by_chance() {
    assert!(is_steady(&[20, 24, 26, 25]), "16 % of so few says nothing");
    assert!(!is_steady(&[20, 24, 60, 64]));
    assert!(!is_steady(&[20, 24, 0, 0]), "nothing is done");
    assert!(!is_steady(&[0, 0, 0, 0]));
}

#[test]
fn caches_are_warm_when_a_pass_adds_nothing() {
    assert!(!is_warm(&[]));
    assert!(!is_warm(&[40.0]), "one pass says nothing of the next");
    assert!(is_warm(&[99.5]));
    assert!(is_warm(&[0.0, 99.5]));
    assert!(!is_warm(&[0.0, 60.0]));
    assert!(is_warm(&[0.0, 60.0, 60.4]), "the rest finds no room");
    assert!(!is_warm(&[60.0, 50.0]));
}

#[test]
fn caches_are_emptied_as_filled_when_as_much_was_moved_as_stands_there() {
    let is_ripe = |dirty_bytes, destaged_bytes| {
        is_emptied_as_filled(&CacheReading { dirty_bytes, destaged_bytes, ..CacheReading::default() })
    };
    assert!(!is_ripe(0, 0), "nothing was written yet");
    assert!(!is_ripe(100, 99));
    assert!(is_ripe(100, 100));
}
