//! A peer that speaks by hand, over several paths.

use std::time::Duration;

use spandrel_platform_simulated::World;

use super::*;
use crate::calls::sequence_of;
use crate::hello::{Hello, RefusalStatus};
use crate::test_support::raw::*;
use crate::test_support::{Event, *};

/// A node that serves, and a peer's first path to it. What is asked may come again.
fn first_path(world: &World, config: BusConfig) -> (Node, RawPeer) {
    let node = Node::start_with(world, "a", cluster(), config);
    let first = RawPeer::connect(world, "r", "a");
    let hello = Hello { repeats: true, ..hello_of("r", 1, "a") };
    assert_eq!(first.greet(&hello, 1).kind, FrameKind::Welcome);
    (node, first)
}

fn join(world: &World, hello: Hello, session: u32) -> (RawPeer, Header) {
    let path = RawPeer::connect(world, "r", "a");
    let answer = path.greet(&hello, session);
    (path, answer)
}

fn path(number: u32) -> Hello {
    Hello { path: number, repeats: true, ..hello_of("r", 1, "a") }
}

fn lost(number: u64) -> Vec<u8> {
    frame_of(Header::new(FrameKind::PathLost, 1, 1, number), &[])
}

#[test]
fn a_path_joins_its_own_session_and_no_other() {
    let world = World::new(1);
    let (_node, first) = first_path(&world, BusConfig::default());
    let over = (FrameKind::Refusal, RefusalStatus::SessionOver as u8);
    let another_process = Hello { path: 1, repeats: true, ..hello_of("r", 2, "a") };
    for (hello, session) in [(path(1), 2), (another_process, 1), (path(0x7000_0000), 0)] {
        let (_, answer) = join(&world, hello, session);
        assert_eq!((answer.kind, answer.status), over);
    }
    let (_second, answer) = join(&world, path(1), 1);
    assert_eq!(answer.kind, FrameKind::Welcome);
    let (_, again) = join(&world, path(1), 1);
    assert_eq!((again.kind, again.status), over, "the path is there");
    first.send(&request_frame(1, 1, &attach(1), &[]));
    assert_eq!(first.receive().expect("an answer").0.kind, FrameKind::Answer);
}

#[test]
fn a_session_that_was_opened_for_one_path_takes_no_other() {
    let world = World::new(2);
    let _node = Node::start(&world, "a");
    let first = RawPeer::connect(&world, "r", "a");
    assert_eq!(first.greet(&hello_of("r", 1, "a"), 1).kind, FrameKind::Welcome);
    assert_eq!(join(&world, path(1), 1).1.kind, FrameKind::Refusal);
}

#[test]
fn what_was_half_sent_on_a_lost_path_takes_no_room_from_its_repetition() {
    let world = World::new(3);
    let config = BusConfig { request_bytes_max: 64 << 10, ..BusConfig::default() };
    let (node, first) = first_path(&world, config);
    let (second, _) = join(&world, path(1), 1);
    let whole = request_frame(1, 1, &client_write(5), &pattern(5, 60 << 10));
    first.send(&whole[..whole.len() - 1]);
    // It waits for its turn, with a place of its own.
    second.send(&request_frame(1, 2, &attach(2), &[]));
    run(&world, Duration::from_millis(500));
    assert_eq!(node.service.began(), 0);
    second.send(&lost(0));
    second.send(&whole);
    let answered: Vec<u64> = (0..2).map(|_| second.receive().expect("an answer").0.sequence).collect();
    assert!([1, 2].iter().all(|count| answered.contains(&sequence_of(*count, *count))), "{answered:?}");
    assert_eq!(first.receive().err(), Some(Ending::Closed));
    check_log(&node.service.log.borrow());
}

#[test]
fn a_request_that_comes_again_is_answered_again_and_served_once() {
    let world = World::new(4);
    let (node, first) = first_path(&world, BusConfig::default());
    let (second, _) = join(&world, path(1), 1);
    let request = request_frame(1, 1, &attach(1), &[]);
    first.send(&request);
    let once = first.receive().expect("an answer");
    second.send(&request);
    let again = second.receive().expect("an answer");
    assert_eq!((once.0.sequence, once.1), (again.0.sequence, again.1));
    assert_eq!(node.service.began(), 1);
    // The slot is used again: its former request can only be late.
    let later = Header { sequence: sequence_of(2, 1), ..request_header(1, 2, &attach(2)) };
    second.send(&frame_of(later, &postcard::to_allocvec(&attach(2)).expect("it is short")));
    assert_eq!(second.receive().expect("an answer").0.sequence, sequence_of(2, 1));
    second.send(&request);
    assert!(second.receive_soon().is_none());
    assert_eq!(node.service.began(), 2);
}

#[test]
fn an_answer_goes_where_its_request_came_last() {
    let world = World::new(6);
    let (node, first) = first_path(&world, BusConfig::default());
    let (second, _) = join(&world, path(1), 1);
    node.service.held.set(true);
    let request = request_frame(1, 1, &attach(1), &[]);
    first.send(&request);
    run_until(&world, || node.service.began() == 1);
    // The other side has given the first path up, and what it said of that was lost.
    second.send(&request);
    run(&world, Duration::from_millis(10));
    node.service.release();
    assert_eq!(second.receive().expect("an answer").0.sequence, sequence_of(1, 1));
    assert_eq!(node.service.began(), 1);
}

#[test]
fn an_answer_that_was_not_kept_ends_the_session_when_it_is_asked_for_again() {
    let world = World::new(7);
    let (node, first) = first_path(&world, BusConfig { request_bytes_max: 64 << 10, ..BusConfig::default() });
    let (second, _) = join(&world, path(1), 1);
    let read = request_frame(1, 1, &client_read(0, 100 << 10), &[]);
    first.send(&read);
    assert_eq!(first.receive().expect("an answer").0.sequence, sequence_of(1, 1));
    second.send(&read);
    assert_eq!(second.receive().err(), Some(Ending::Closed));
    run_until(&world, || {
        node.service.log.borrow().iter().any(|event| matches!(event, Event::SessionEnded(_)))
    });
}

#[test]
fn a_path_that_says_that_it_is_lost_itself_is_not_believed() {
    let world = World::new(5);
    let (_node, first) = first_path(&world, BusConfig::default());
    for number in [0, 1, u64::MAX] {
        first.send(&lost(number));
    }
    first.send(&frame_of(Header::new(FrameKind::Ping, 1, 1, 0), &[]));
    assert_eq!(first.receive().expect("a sign of life").0.kind, FrameKind::Pong);
}
