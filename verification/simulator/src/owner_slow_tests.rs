//! A copy that answers, and slowly: reads avoid it, and writes are not kept waiting for ever.

use std::time::Duration;

use spandrel_volume::LegState;

use super::rules::Rules;
use super::*;

/// How long a slow copy takes for a read or write.
const SLOWNESS: Duration = Duration::from_millis(700);

impl Rules {
    /// From now on these nodes take so long for reads and writes, and the others do not.
    fn slow_down(&self, slow: &'static [usize], slowness: Duration) {
        self.owners.judge(move |node, request| match request {
            ReplicaRequest::Write { .. } | ReplicaRequest::Read { .. } if slow.contains(&node) => {
                Fate::Late(slowness)
            }
            _ => Fate::Carry,
        });
    }

    /// Writes one block after the other until a leg is out, for at most so long. How long the last write took.
    fn write_until_out(&self, index: usize, time_max: Duration) -> Duration {
        let now = || self.guests.platform().now();
        let begun = now();
        loop {
            let sent = now();
            self.write(0, 7).unwrap();
            let took = now().since(sent);
            if self.leg(index) == LegState::Stale || now().since(begun) > time_max {
                return took;
            }
        }
    }
}

#[test]
fn a_slow_copy_is_taken_out_rests_and_comes_back() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.slow_down(&[2], SLOWNESS);
    rules.write_until_out(2, Duration::from_secs(10));
    assert_eq!(rules.leg(2), LegState::Stale, "it has kept the others waiting for three seconds");
    assert_eq!((rules.leg(0), rules.leg(1)), (LegState::InSync, LegState::InSync));
    let took = rules.write_until_out(2, Duration::ZERO);
    assert!(took < Duration::from_millis(50), "nobody waits for it: {took:?}");

    rules.owners.judge_no_more();
    rules.run_for(Duration::from_secs(50));
    assert_eq!(rules.leg(2), LegState::Stale, "it rests for a minute");
    rules.run_for(Duration::from_secs(10));
    rules.assert_all_recover(2, 0, 7);
}

/// The next rest is twice as long. But if another copy is lost meanwhile, the slow one is better than none.
#[test]
fn a_copy_that_is_needed_does_not_rest() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    for rest_s in [60, 120] {
        rules.slow_down(&[2], SLOWNESS);
        rules.write_until_out(2, Duration::from_secs(10));
        assert_eq!(rules.leg(2), LegState::Stale);
        rules.owners.judge_no_more();
        rules.run_for(Duration::from_secs(rest_s - 10));
        assert_eq!(rules.leg(2), LegState::Stale, "it rests for {rest_s} s");
        rules.run_for(Duration::from_secs(10));
        rules.await_in_sync();
    }
    rules.slow_down(&[2], SLOWNESS);
    rules.write_until_out(2, Duration::from_secs(10));
    assert_eq!(rules.leg(2), LegState::Stale);
    rules.owners.stop(1, false);
    rules.write(0, 9).unwrap();
    rules.until("the slow one is back", || rules.leg(2) == LegState::InSync);
}

#[test]
fn a_slow_copy_is_not_taken_out_where_only_one_would_stay_or_where_all_are_slow() {
    let rules = Rules::with_nodes(1, 2);
    rules.write(0, 5).unwrap();
    rules.slow_down(&[1], SLOWNESS);
    rules.write_until_out(1, Duration::from_secs(20));
    assert_eq!(rules.leg(1), LegState::InSync, "of two copies none can be spared");

    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.slow_down(&[0, 1, 2], SLOWNESS);
    rules.write_until_out(2, Duration::from_secs(20));
    assert!((0..3).all(|index| rules.leg(index) == LegState::InSync), "there is none that is faster");
}

#[test]
fn a_read_does_not_wait_for_a_slow_copy_and_the_next_ones_avoid_it() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    // The owner's own copy is the nearest.
    rules.slow_down(&[0], Duration::from_secs(2));
    let now = || rules.guests.platform().now();
    let mut took = Vec::new();
    for _ in 0..20 {
        let sent = now();
        assert_eq!(rules.read(0), Ok(5));
        took.push(now().since(sent));
        rules.run_for(Duration::from_millis(200));
    }
    let longest = took.iter().max().copied().unwrap();
    assert!(longest < Duration::from_millis(500), "another copy helps: {took:?}");
    let fast = took.iter().rev().take_while(|took| **took < Duration::from_millis(50)).count();
    assert!(fast >= 10, "the others are asked first from then on: {took:?}");
}

/// A slow copy takes part in everything until it is out, and what it has answered late changes nothing.
#[test]
fn nothing_is_lost_on_a_copy_that_was_slow() {
    for seed in 0..20 {
        let rules = Rules::new(seed);
        rules.slow_down(&[1], Duration::from_millis(500 + 37 * seed));
        let writes: Vec<_> = (0..40).map(|number| rules.begin_write(number % 7, 100 + number)).collect();
        rules.until("all are answered", || writes.iter().all(|write| write.borrow().is_some()));
        rules.write_until_out(1, Duration::from_secs(10));
        rules.owners.judge_no_more();
        rules.run_for(Duration::from_secs(70));
        rules.assert_all_recover(1, 0, 7);
    }
}
