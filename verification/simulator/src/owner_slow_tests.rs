//! A copy that answers, and slowly: reads avoid it, and writes are not kept waiting for ever.

use std::cell::Cell;
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

    /// Begins a write each tenth of a second for so long, to eight blocks one after the other, until `condition` holds;
    /// and awaits their answers. Whether it came to hold.
    fn write_staggered(&self, time: Duration, condition: impl Fn() -> bool) -> bool {
        let mut writes = Vec::new();
        let tenths = u64::try_from(time.as_millis() / 100).unwrap();
        let came = (0..tenths).any(|tenth| {
            writes.push(self.begin_write(tenth % 8, 1000 + tenth));
            self.run_for(Duration::from_millis(100));
            condition()
        });
        self.until("all are answered", || writes.iter().all(|write| write.borrow().is_some()));
        came
    }

    /// Reads one block five times a second, for so long; each read gives 5. How long the longest one took.
    fn read_for(&self, time: Duration) -> Duration {
        let now = || self.guests.platform().now();
        let begun = now();
        let mut longest = Duration::ZERO;
        while now().since(begun) < time {
            let sent = now();
            assert_eq!(self.read(0), Ok(5));
            longest = longest.max(now().since(sent));
            self.run_for(Duration::from_millis(200));
        }
        longest
    }

    /// From now on these nodes answer reads so late. How many they are asked, of each node.
    fn count_reads(&self, slow: &'static [usize], slowness: Duration) -> Rc<[Cell<u32>; 3]> {
        let counts: Rc<[Cell<u32>; 3]> = Rc::default();
        let counted = Rc::clone(&counts);
        self.owners.judge(move |node, request| match request {
            ReplicaRequest::Read { .. } => {
                counted[node].set(counted[node].get() + 1);
                if slow.contains(&node) { Fate::Late(slowness) } else { Fate::Carry }
            }
            _ => Fate::Carry,
        });
        counts
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

#[test]
fn a_slow_copy_is_found_whatever_else_is_under_way() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.slow_down(&[2], SLOWNESS);
    let is_out = rules.write_staggered(Duration::from_secs(8), || rules.leg(2) == LegState::Stale);
    assert!(is_out, "each write has waited for it");
}

/// As with one switch, or one disk, below all of them.
#[test]
fn none_is_taken_out_where_all_stall_at_the_same_time() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.write_staggered(Duration::from_secs(1), || false);
    let platform = rules.guests.platform();
    let end = platform.now() + Duration::from_secs(4);
    rules.owners.judge(move |_, request| match request {
        ReplicaRequest::Write { .. } => Fate::Late(end.since(platform.now())),
        _ => Fate::Carry,
    });
    rules.write_staggered(Duration::from_secs(8), || false);
    assert_eq!(rules.owner().statistics().legs_marked, 0);
}

#[test]
fn one_slow_answer_is_not_enough() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    for _ in 0..3 {
        rules.slow_down(&[2], SLOWNESS);
        rules.write(0, 6).unwrap();
        rules.owners.judge_no_more();
        rules.run_for(Duration::from_secs(12));
        assert_eq!(rules.leg(2), LegState::InSync, "nothing is known of it since");
    }
}

/// The slow copy is to be taken out, but the cluster's state does not answer. Meanwhile a node goes that would have had one
/// of the two others.
#[test]
fn a_slow_copy_stays_if_another_one_is_lost_before_its_mark_is_made() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.owners.fail_changes(|_| true);
    rules.slow_down(&[2], SLOWNESS);
    rules.write_until_out(2, Duration::from_secs(6));
    assert_eq!(rules.leg(2), LegState::InSync);
    rules.owners.stop(1, false);
    rules.run_for(Duration::from_secs(2));
    rules.owners.fail_changes(|_| false);
    rules.until("the lost one is marked", || rules.leg(1) == LegState::Stale);
    rules.write_until_out(2, Duration::from_secs(10));
    assert_eq!(rules.leg(2), LegState::InSync, "one that is slow is better than none");
}

/// A copy rests from when it is out, however long its mark has taken; and one that is well by then stays.
#[test]
fn a_rest_begins_with_the_mark() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.owners.fail_changes(|_| true);
    rules.slow_down(&[2], SLOWNESS);
    rules.write_until_out(2, Duration::from_secs(30));
    assert_eq!(rules.leg(2), LegState::InSync);
    rules.owners.judge_no_more();
    rules.write_until_out(2, Duration::from_secs(1));
    rules.owners.fail_changes(|_| false);
    rules.write_until_out(2, Duration::from_secs(5));
    assert_eq!(rules.leg(2), LegState::InSync, "it is well");
    rules.owners.fail_changes(|_| true);
    rules.slow_down(&[2], SLOWNESS);
    rules.write_until_out(2, Duration::from_secs(30));
    rules.owners.fail_changes(|_| false);
    rules.write_until_out(2, Duration::from_secs(5));
    assert_eq!(rules.leg(2), LegState::Stale);
    rules.owners.judge_no_more();
    rules.run_for(Duration::from_secs(50));
    assert_eq!(rules.leg(2), LegState::Stale, "it rests for a minute");
    rules.run_for(Duration::from_secs(10));
    rules.await_in_sync();
}

/// Nothing is written, so only reads can tell. Each is helped within a fifth of a second.
#[test]
fn a_slow_drive_of_the_owner_is_found_by_reads_alone() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.slow_down(&[0], Duration::from_secs(2));
    let longest = rules.read_for(Duration::from_secs(8));
    assert!(longest < Duration::from_millis(500), "another copy helps: {longest:?}");
    assert_eq!(rules.leg(0), LegState::Stale);
}

/// Of two copies none can be spared, so the slow one stays; and reads come back to it when it is well.
#[test]
fn reads_come_back_to_a_copy_that_is_well_again() {
    let rules = Rules::with_nodes(1, 2);
    rules.write(0, 5).unwrap();
    let reads = rules.count_reads(&[0], Duration::from_secs(2));
    rules.read_for(Duration::from_secs(10));
    assert_eq!(rules.leg(0), LegState::InSync);
    let (slow, fast) = (reads[0].get(), reads[1].get());
    assert!(slow < 10 && fast > 30, "it is avoided, but not forgotten: {slow} {fast}");
    let reads = rules.count_reads(&[], Duration::ZERO);
    rules.read_for(Duration::from_secs(3));
    reads[1].set(0);
    rules.read_for(Duration::from_secs(3));
    assert_eq!(reads[1].get(), 0, "the own copy is nearer");
}

/// A drive that hangs is no slow one: even of two copies it is taken out, though each read was helped long before.
#[test]
fn a_drive_of_the_owner_that_hangs_is_suspected_by_reads_alone() {
    let rules = Rules::with_nodes(1, 2);
    rules.write(0, 5).unwrap();
    rules.owners.judge(|node, request| match request {
        ReplicaRequest::Read { .. } if node == 0 => Fate::Hangs,
        _ => Fate::Carry,
    });
    // More than may be helped before it is known that it is this copy alone.
    let begun = rules.guests.platform().now();
    let reads: Vec<_> = (0..100).map(|_| rules.begin_read(0)).collect();
    rules.until("all are answered", || reads.iter().all(|read| read.borrow().is_some()));
    let took = rules.guests.platform().now().since(begun);
    assert!(took < Duration::from_secs(1), "another copy helps: {took:?}");
    let longest = rules.read_for(Duration::from_secs(8));
    assert!(longest < Duration::from_millis(500), "the other one is asked: {longest:?}");
    assert!(rules.owner().statistics().legs_marked > 0, "it was in sync again soon, as nothing was written");
}

#[test]
fn few_reads_are_sent_twice_where_all_copies_have_too_much_to_do() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    let counts = rules.count_reads(&[0, 1, 2], Duration::from_millis(300));
    let reads: Vec<_> = (0..400).map(|_| rules.begin_read(0)).collect();
    rules.until("all are answered", || reads.iter().all(|read| read.borrow().is_some()));
    let asked: u32 = counts.iter().map(Cell::get).sum();
    assert!((401..440).contains(&asked), "of 400 reads so many were sent: {asked}");
}

#[test]
fn reads_for_repair_are_sent_once() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.make_stale(2);
    let counts = rules.count_reads(&[0], Duration::from_millis(300));
    rules.owners.start(2, false);
    rules.await_in_sync();
    assert!(counts[0].get() > 0);
    assert_eq!(counts[1].get(), 0, "nobody waits for it");
}
