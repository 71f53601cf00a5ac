use std::cell::RefCell;
use std::future::ready;

use futures_util::FutureExt as _;
use futures_util::future::join;

use super::*;

/// Starts three shards of which those of these numbers are refused; what happened.
fn start_three(refused: &[(u8, &str)]) -> (Result<Vec<u8>, Error>, Vec<String>) {
    let told = RefCell::new(Vec::new());
    let start = |number: u8| {
        told.borrow_mut().push(format!("start {number}"));
        let refusal = refused.iter().find(|(refused, _)| *refused == number);
        ready(match refusal {
            Some((_, code)) => Err(Error::new(code, "what", "why", "next")),
            None => Ok(number),
        })
    };
    let stop = |number: u8| {
        told.borrow_mut().push(format!("stop {number}"));
        ready(())
    };
    let started = start_shards(0..3, start, stop).now_or_never().expect("nothing waits");
    (started, told.into_inner())
}

#[test]
fn one_that_is_refused_takes_all_with_it() {
    let (started, told) = start_three(&[]);
    assert_eq!(started.expect("nobody refuses"), [0, 1, 2]);
    assert_eq!(told, ["start 0", "start 1", "start 2"]);
    let (started, told) = start_three(&[(1, "DRIVE_FAILED")]);
    assert_eq!(started.expect_err("it was refused").code, "DRIVE_FAILED");
    assert_eq!(told, ["start 0", "start 1", "start 2", "stop 0", "stop 2"]);
    // The one that begins it says why.
    let (started, _) = start_three(&[(0, SIBLING_REFUSED), (1, "DRIVE_FAILED"), (2, SIBLING_REFUSED)]);
    assert_eq!(started.expect_err("all were refused").code, "DRIVE_FAILED");
}

#[test]
fn shards_wait_for_each_other_at_each_stage() {
    let mut siblings = Siblings::<()>::among(2);
    let (other, one) = (siblings.pop().expect("there are two").presence, siblings.remove(0).presence);
    let mut waiting = Box::pin(one.reach(Stage::Looked));
    assert_eq!((&mut waiting).now_or_never(), None);
    assert_eq!((&mut waiting).now_or_never(), None, "the other one has reached nothing");
    let mut further = Box::pin(other.reach(Stage::Attached));
    assert_eq!((&mut further).now_or_never(), None);
    assert_eq!(waiting.now_or_never(), Some(true), "the other one is even further");
    assert_eq!(join(one.reach(Stage::Attached), further).now_or_never(), Some((true, true)));
    // Nobody waits for one that is gone, and all learn of it.
    let mut waiting = Box::pin(one.reach(Stage::Answered));
    assert_eq!((&mut waiting).now_or_never(), None);
    drop(other);
    assert_eq!(waiting.now_or_never(), Some(false));
    assert_eq!(one.reach(Stage::HandedOver).now_or_never(), Some(false));
    let alone = Siblings::<()>::among(1).remove(0).presence;
    assert_eq!(alone.reach(Stage::Looked).now_or_never(), Some(true));
}

#[test]
fn a_drive_stays_with_the_shard_that_had_it_first() {
    let siblings = Siblings::<()>::among(2);
    let (one, other) = (DriveId::from_bytes([1; 16]), DriveId::from_bytes([2; 16]));
    let homes = siblings[0].homes();
    assert_eq!(homes.of(one), None);
    assert!(siblings[1].homes.claim(one, 1));
    assert!(siblings[1].homes.claim(one, 1), "again, after it was away");
    assert!(!homes.is_contested(one));
    assert!(!homes.claim(one, 0));
    assert!(homes.is_contested(one), "two say that they are this drive");
    assert!(homes.claim(other, 0));
    assert_eq!((homes.of(one), siblings[1].homes().of(other)), (Some(1), Some(0)));
    assert!(!homes.is_contested(other));
}

#[test]
fn each_thing_has_one_shard() {
    for shards in 1..=5 {
        let mut all: Vec<u32> = (0..shards).flat_map(|number| by_turns(0..7, number, shards)).collect();
        all.sort_unstable();
        assert_eq!(all, Vec::from_iter(0..7), "{shards} shards");
    }
    assert_eq!(by_turns(["a", "b", "c"], 1, 2).collect::<Vec<_>>(), ["b"]);
}
