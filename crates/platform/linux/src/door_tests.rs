use std::io::IoSlice;
use std::task::Waker;

use super::*;

fn at(path: &str) -> Address {
    Address::Unix(path.to_owned())
}

fn next(door: &Door) -> Option<MemoryStream> {
    match door.poll_next(&Context::from_waker(Waker::noop())) {
        Poll::Ready(stream) => Some(stream),
        Poll::Pending => None,
    }
}

#[test]
fn a_stream_leads_to_whoever_listens_there() {
    let here = Door::open(&at("/door_tests/here"));
    let elsewhere = Door::open(&at("/door_tests/elsewhere"));
    let client = knock(&at("/door_tests/here")).unwrap();
    client.send(&[IoSlice::new(b"hello")]).unwrap();
    assert!(next(&elsewhere).is_none());
    let server = next(&here).unwrap();
    assert!(next(&here).is_none());
    let mut into = [0; 8];
    assert_eq!(server.receive(&mut into), Ok(5));
    assert_eq!(&into[..5], b"hello");
}

#[test]
fn where_nobody_listens_any_more_there_is_no_door() {
    let path = "/door_tests/gone";
    assert!(knock(&at(path)).is_none());
    let door = Door::open(&at(path));
    let waiting = knock(&at(path)).unwrap();
    drop(door);
    assert!(knock(&at(path)).is_none());
    assert_eq!(waiting.receive(&mut [0; 1]), Ok(0), "whoever waited hears of the end");
}

#[test]
fn a_door_that_closes_late_leaves_its_successor_open() {
    let path = "/door_tests/taken_over";
    let first = Door::open(&at(path));
    let second = Door::open(&at(path));
    drop(first);
    let _client = knock(&at(path)).unwrap();
    assert!(next(&second).is_some());
}

#[test]
fn a_full_door_sends_people_to_the_socket() {
    let path = "/door_tests/full";
    let door = Door::open(&at(path));
    let waiting: Vec<_> = (0..WAITING_MAX).map(|_| knock(&at(path)).unwrap()).collect();
    assert!(knock(&at(path)).is_none());
    assert!(next(&door).is_some());
    assert!(knock(&at(path)).is_some());
    drop(waiting);
}
