use std::cell::RefCell;
use std::future::ready;

use futures_util::FutureExt as _;

use super::*;

/// Starts three shards of which the one of this number is refused; what happened.
fn start_three(refused: Option<u8>) -> (Result<Vec<u8>, Error>, Vec<String>) {
    let told = RefCell::new(Vec::new());
    let start = |number: u8| {
        told.borrow_mut().push(format!("start {number}"));
        ready(match refused {
            Some(refused) if refused == number => Err(Error::new("REFUSED", "what", "why", "next")),
            _ => Ok(number),
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
fn the_first_shard_decides_whether_the_others_begin() {
    let (started, told) = start_three(None);
    assert_eq!(started.expect("nobody refuses"), [0, 1, 2]);
    assert_eq!(told, ["start 0", "start 1", "start 2"]);
    let (started, told) = start_three(Some(0));
    assert_eq!(started.expect_err("it was refused").code, "REFUSED");
    assert_eq!(told, ["start 0"]);
}

#[test]
fn one_that_is_refused_takes_all_with_it() {
    let (started, told) = start_three(Some(1));
    assert_eq!(started.expect_err("it was refused").code, "REFUSED");
    assert_eq!(told, ["start 0", "start 1", "start 2", "stop 0", "stop 2"]);
}

#[test]
fn a_drive_stays_with_the_shard_that_had_it_first() {
    let siblings = Siblings::<()>::among(2);
    let (one, other) = (DriveId::from_bytes([1; 16]), DriveId::from_bytes([2; 16]));
    assert_eq!(siblings[0].homes().of(one), None);
    assert_eq!(siblings[1].homes.claim(one, 1), Ok(()));
    assert_eq!(siblings[0].homes.claim(one, 0), Err(1));
    assert_eq!(siblings[1].clone().homes.claim(one, 1), Ok(()), "again, after it was away");
    assert_eq!(siblings[0].homes.claim(other, 0), Ok(()));
    assert_eq!((siblings[0].homes().of(one), siblings[1].homes().of(other)), (Some(1), Some(0)));
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
