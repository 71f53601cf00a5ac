use futures_util::FutureExt;

use super::*;
use crate::places::Places;
use crate::test_support::{attached, done};

fn place(places: &Rc<Places>) -> Option<Place> {
    Some(places.take(1).now_or_never().expect("there is room").expect("it is open"))
}

#[test]
fn answers_find_their_calls_in_any_order() {
    let (calls, places) = (Rc::new(Calls::default()), Places::new(100, 100));
    let answers: Vec<_> = (0..50).map(|_| calls.begin(place(&places)).expect("there is room")).collect();
    let sequences: Vec<u64> = answers.iter().map(Answer::sequence).collect();
    assert!(sequences.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(calls.unanswered(), 50);
    for (number, sequence) in sequences.iter().enumerate().rev() {
        assert!(calls.settle(*sequence, Ok((attached(number as u64), None))));
        assert!(!calls.settle(*sequence, Ok((done(), None))), "it has its answer");
        assert!(!calls.is_open(*sequence));
    }
    for (number, answer) in answers.into_iter().enumerate() {
        let outcome = answer.now_or_never().expect("it was answered");
        assert_eq!(outcome.map(|(response, _)| response), Ok(attached(number as u64)));
    }
    let next = calls.begin(place(&places)).expect("there is room");
    assert!(next.sequence() > sequences[49], "numbers grow where slots are used again");
    assert_eq!(calls.inner.borrow().slots.len(), 50);
}

#[test]
fn an_answer_for_a_former_call_of_a_slot_is_for_nobody() {
    let (calls, places) = (Rc::new(Calls::default()), Places::new(100, 100));
    let first = calls.begin(place(&places)).expect("there is room");
    let sequence = first.sequence();
    calls.settle(sequence, Ok((done(), None)));
    drop(first);
    let mut second = calls.begin(place(&places)).expect("there is room");
    assert!(!calls.settle(sequence, Ok((done(), None))));
    assert!((&mut second).now_or_never().is_none());
}

#[test]
fn a_call_that_was_given_up_keeps_its_place_until_it_is_answered() {
    let (calls, places) = (Rc::new(Calls::default()), Places::new(1, 100));
    let answer = calls.begin(place(&places)).expect("there is room");
    let sequence = answer.sequence();
    drop(answer);
    assert!(calls.is_open(sequence) && calls.unanswered() == 1);
    assert!(places.take(1).now_or_never().is_none());
    assert!(calls.settle(sequence, Ok((done(), None))));
    assert_eq!(calls.unanswered(), 0);
    assert!(places.take(1).now_or_never().is_some());
    let again = calls.begin(None).expect("there is room");
    assert_eq!(calls.inner.borrow().slots.len(), 1);
    drop(again);
}

#[test]
fn the_end_of_a_session_ends_all_calls() {
    let (calls, places) = (Rc::new(Calls::default()), Places::new(100, 100));
    let waiting = calls.begin(place(&places)).expect("there is room");
    let given_up = calls.begin(place(&places)).expect("there is room");
    drop(given_up);
    let answered = calls.begin(place(&places)).expect("there is room");
    calls.settle(answered.sequence(), Ok((done(), None)));
    calls.end();
    assert!(matches!(waiting.now_or_never(), Some(Err(BusError::SessionLost))));
    assert!(answered.now_or_never().is_some_and(|outcome| outcome.is_ok()), "its answer had come");
    assert_eq!(calls.begin(None).map(|answer| answer.sequence()).err(), Some(BusError::NotConnected));
    assert!(places.emptied().now_or_never().is_some());
}

#[test]
fn heartbeats_are_bounded_and_take_no_place() {
    let calls = Rc::new(Calls::default());
    let mut answers: Vec<_> =
        (0..HEARTBEATS_MAX).map(|_| calls.begin(None).expect("it is bounded")).collect();
    assert_eq!(calls.begin(None).map(drop).err(), Some(BusError::TooManyHeartbeats));
    let first = answers.remove(0);
    calls.settle(first.sequence(), Ok((done(), None)));
    // Given up ones count until they are answered.
    answers.clear();
    let one_more = calls.begin(None).expect("one was answered");
    assert_eq!(calls.begin(None).map(drop).err(), Some(BusError::TooManyHeartbeats));
    one_more.withdraw();
    assert!(calls.begin(None).is_ok());
}
