use super::*;
use crate::calls::sequence_of;

type TestOrder = Order<u64, &'static str>;

fn sequence(count: u64) -> u64 {
    sequence_of(count, count)
}

fn ready(order: &mut TestOrder) -> Vec<u64> {
    std::iter::from_fn(|| order.take_ready()).collect()
}

#[test]
fn requests_are_begun_in_their_order_however_they_come() {
    let mut order = TestOrder::new(true, 100, 1000);
    for (count, begun) in [(3, vec![]), (2, vec![]), (1, vec![1, 2, 3]), (4, vec![4]), (6, vec![])] {
        assert!(order.put(sequence(count), Some(count)));
        assert_eq!(ready(&mut order), begun, "{count} has come");
    }
    // What needs no turn takes none, and lets the others go on.
    assert!(order.put(sequence(5), None));
    assert_eq!(ready(&mut order), [6]);
}

#[test]
fn a_request_that_comes_twice_is_begun_once() {
    let mut order = TestOrder::new(true, 100, 1000);
    for count in [1, 3] {
        assert_eq!(order.standing(sequence(count)), Standing::New);
        assert!(order.put(sequence(count), Some(count)));
        assert_eq!(order.standing(sequence(count)), Standing::Repeated);
        assert!(!order.put(sequence(count), Some(count)), "it is there");
    }
    assert!(order.put(sequence(2), Some(2)));
    assert_eq!(ready(&mut order), [1, 2, 3]);
    assert_eq!(order.standing(sequence(3)), Standing::Repeated);
}

#[test]
fn without_repetition_only_the_next_request_is_right() {
    let mut order = TestOrder::new(false, 100, 1000);
    assert_eq!(order.standing(sequence(0)), Standing::Wrong);
    assert_eq!(order.standing(sequence(2)), Standing::Wrong);
    assert!(order.put(sequence(1), Some(1)));
    assert_eq!(order.standing(sequence(1)), Standing::Wrong);
    order.keep(sequence(1), 0, || unreachable!("nobody will ask for it"));
    assert_eq!(order.repeated(sequence(1)), Repeated::Over);
}

#[test]
fn what_is_too_far_ahead_is_not_waited_for() {
    let mut order = TestOrder::new(true, 100, 1000);
    assert_eq!(order.standing(sequence_of((100 * EARLY_FACTOR) as u64, 0)), Standing::New);
    assert_eq!(order.standing(sequence_of((100 * EARLY_FACTOR) as u64 + 1, 0)), Standing::Wrong);
    assert!(!order.put(sequence_of(u64::MAX >> 20, 0), Some(1)));
    assert_eq!(order.standing(sequence_of(0, 5)), Standing::Wrong, "none has this number");
}

#[test]
fn an_answer_is_kept_until_its_slot_is_used_again() {
    let mut order = TestOrder::new(true, 100, 1000);
    let (first, second) = (sequence_of(1, 7), sequence_of(2, 7));
    order.put(first, Some(1));
    assert_eq!(order.repeated(first), Repeated::Open);
    order.keep(first, 10, || "one");
    assert_eq!(order.repeated(first), Repeated::Answered("one"));
    order.put(second, Some(2));
    assert_eq!((order.repeated(first), order.repeated(second)), (Repeated::Over, Repeated::Open));
    order.keep(first, 10, || unreachable!("its slot is used again"));
    assert_eq!(order.kept_bytes, 0);
}

#[test]
fn the_oldest_answers_go_when_they_hold_too_much() {
    let mut order = TestOrder::new(true, 100, 100);
    for count in 1..=4 {
        order.put(sequence(count), None);
        order.keep(sequence(count), if count == 2 { 0 } else { 40 }, || "kept");
    }
    let kept = (1..=4).map(|count| order.repeated(sequence(count)));
    let answered = Repeated::Answered("kept");
    // One without bytes costs nothing.
    assert!(kept.eq([Repeated::Gone, answered, answered, answered]));
    assert_eq!(order.kept_bytes, 80);
}

#[test]
fn the_oldest_answers_go_when_there_are_too_many_slots() {
    let mut order = TestOrder::new(true, 10, 1000);
    let kept = 10 * SLOTS_FACTOR as u64;
    // The first one is being served all the time.
    for count in 1..=kept + 5 {
        order.put(sequence(count), None);
        if count > 1 {
            order.keep(sequence(count), 10, || "kept");
        }
    }
    assert_eq!(order.repeated(sequence(1)), Repeated::Open);
    assert!((2..=6).all(|count| order.repeated(sequence(count)) == Repeated::Gone));
    assert!((7..=kept + 5).all(|count| order.repeated(sequence(count)) == Repeated::Answered("kept")));
    assert_eq!(order.kept_bytes, 10 * (kept - 1));
    assert_eq!(order.holding.len(), 39);
}
