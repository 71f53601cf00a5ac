use super::*;

#[test]
fn the_counter_counts_alike_whenever_it_is_asked() {
    let Some(first) = time_stamp_khz() else { return };
    assert!((100_000..20_000_000).contains(&first), "{first} kHz");
    // A thread that is held up between the counter and the clock is off by that.
    let is_close = |again: u64| first.abs_diff(again) < first / 20;
    assert!((0..20).any(|_| time_stamp_khz().is_some_and(is_close)));
}
