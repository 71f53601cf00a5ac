//! A peer that speaks by hand, over several paths.

use std::time::Duration;

use spandrel_platform_simulated::{World, WorldConfig};
use spandrel_replica::{Mark, ReplicaRequest};
use spandrel_shared::{Epoch, Version};

use super::*;
use crate::Heartbeat;
use crate::calls::sequence_of;
use crate::frame::read_done;
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

fn heartbeat(number: u64) -> BusRequest {
    BusRequest::Heartbeat(Heartbeat { number, ..Heartbeat::default() })
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
    let refused = (FrameKind::Refusal, RefusalStatus::Path as u8);
    assert_eq!((again.kind, again.status), refused, "the path is there");
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

#[test]
fn a_session_has_no_more_paths_than_it_may() {
    let world = World::new(8);
    let (_node, first) = first_path(&world, BusConfig { paths_max: 2, ..BusConfig::default() });
    // Twice as many, since the other side may have lost some of which it is not known here.
    let more: Vec<_> = (1..4).map(|number| join(&world, path(number), 1)).collect();
    assert!(more.iter().all(|(_, answer)| answer.kind == FrameKind::Welcome));
    let refused = (FrameKind::Refusal, RefusalStatus::Path as u8);
    let (_, answer) = join(&world, path(4), 1);
    assert_eq!((answer.kind, answer.status), refused);
    first.send(&lost(2));
    run(&world, Duration::from_millis(10));
    assert_eq!(join(&world, path(5), 1).1.kind, FrameKind::Welcome);
}

#[test]
fn what_overtakes_a_missing_request_is_bounded() {
    let world = World::new(9);
    let (node, first) = first_path(&world, BusConfig { requests_max: 4, ..BusConfig::default() });
    for number in 2..=5000 {
        first.send(&request_frame(1, number, &heartbeat(number), &[]));
    }
    let mut answers = 0;
    while first.receive().is_ok() {
        answers += 1;
    }
    assert!((100..1000).contains(&answers), "{answers}");
    assert_eq!(node.bus.statistics().connections_malformed, 1);
}

#[test]
fn who_asks_for_signs_of_life_and_reads_none_fills_no_memory() {
    let mut config = WorldConfig::default();
    config.network.socket_buffer_bytes = 16 << 10;
    let world = World::with_config(10, config);
    let (node, first) = first_path(&world, BusConfig { queued_bytes_max: 4 << 10, ..BusConfig::default() });
    for number in 1..=5000 {
        first.send(&request_frame(1, number, &heartbeat(number), &[]));
    }
    run(&world, Duration::from_secs(1));
    let began = node.service.began();
    assert!((100..2000).contains(&began), "{began}");
    for _ in 1..=5000 {
        assert_eq!(first.receive().expect("an answer").0.kind, FrameKind::Answer);
    }
}

#[test]
fn long_requests_are_bounded_by_their_bytes() {
    let world = World::new(11);
    let (node, first) = first_path(&world, BusConfig { request_bytes_max: 64 << 10, ..BusConfig::default() });
    node.service.held.set(true);
    let exceptions = vec![Version::new(Epoch(5), 1 << 40); 10_000];
    let mark = Mark { version: Version::new(Epoch(5), 41), exceptions };
    let long = BusRequest::Replica(ReplicaRequest::NoteMark { volume: VOLUME, authority: authority(), mark });
    for number in 1..=5 {
        first.send(&request_frame(1, number, &long, &[]));
    }
    run(&world, Duration::from_secs(1));
    assert_eq!(node.service.began(), 1);
    node.service.release();
    let mut done = 0;
    while done < 5 {
        done += receive_done(&first).len();
    }
}

/// What the next frame says is done.
fn receive_done(peer: &RawPeer) -> Vec<u64> {
    let (header, body, payload) = peer.receive().expect("an answer");
    assert_eq!((header.kind, header.sequence, payload.len()), (FrameKind::Done, 0, 0));
    read_done(&body).expect("sequence numbers").collect()
}

#[test]
fn what_is_done_together_is_answered_together() {
    const WRITES: u64 = 20;
    let world = World::new(14);
    let (node, first) = first_path(&world, BusConfig::default());
    node.service.held.set(true);
    let (write, payload) = copy_write(5, 1);
    for number in 1..=WRITES {
        first.send(&request_frame(1, number, &write, &payload));
    }
    run_until(&world, || node.service.began() == WRITES as usize);
    node.service.release();
    let (mut done, mut frames) = (Vec::new(), 0);
    while done.len() < WRITES as usize {
        done.extend(receive_done(&first));
        frames += 1;
    }
    // Tasks run in any order here: some of them behind the one that tells.
    assert!(frames <= WRITES / 4, "{frames} frames");
    assert_eq!(node.bus.statistics().answers_joined, WRITES - frames);
    done.sort_unstable();
    let expected: Vec<u64> = (1..=WRITES).map(|number| sequence_of(number, number)).collect();
    assert_eq!(done, expected, "each is answered once");
    assert!(first.receive_soon().is_none());
}

#[test]
fn what_was_done_on_a_path_that_is_lost_is_answered_on_another() {
    let world = World::new(15);
    let (node, first) = first_path(&world, BusConfig::default());
    let (second, _) = join(&world, path(1), 1);
    node.service.held.set(true);
    let (write, payload) = copy_write(5, 1);
    let request = request_frame(1, 1, &write, &payload);
    first.send(&request);
    run_until(&world, || node.service.began() == 1);
    second.send(&lost(0));
    run(&world, Duration::from_millis(10));
    node.service.release();
    assert_eq!(receive_done(&second), [sequence_of(1, 1)]);
    // If that had been lost, too: it is asked for again.
    second.send(&request);
    let (again, body, _) = second.receive().expect("an answer");
    assert_eq!((again.kind, again.sequence), (FrameKind::Answer, sequence_of(1, 1)));
    assert_eq!(postcard::from_bytes(&body), Ok(BusResponse::Replica(Ok(ReplicaResponse::Done))));
    assert_eq!(node.service.began(), 1);
}

#[test]
fn a_path_on_which_nothing_comes_while_another_one_is_in_use_is_closed() {
    let world = World::new(12);
    let (node, first) = first_path(&world, BusConfig::default());
    let (second, _) = join(&world, path(1), 1);
    run(&world, Duration::from_secs(60));
    let ping = frame_of(Header::new(FrameKind::Ping, 1, 1, 0), &[]);
    for peer in [&first, &second] {
        peer.send(&ping);
        assert_eq!(peer.receive().expect("nothing is closed while all are silent").0.kind, FrameKind::Pong);
    }
    for _ in 0..40 {
        first.send(&ping);
        assert_eq!(first.receive().expect("a sign of life").0.kind, FrameKind::Pong);
        run(&world, Duration::from_millis(125));
    }
    assert_eq!(second.receive().err(), Some(Ending::Closed));
    first.send(&request_frame(1, 1, &attach(1), &[]));
    assert_eq!(first.receive().expect("an answer").0.kind, FrameKind::Answer);
    check_log(&node.service.log.borrow());
}

#[test]
fn a_path_that_is_not_read_at_the_moment_is_not_closed() {
    let world = World::new(13);
    let (node, first) = first_path(&world, BusConfig { requests_max: 4, ..BusConfig::default() });
    let (second, _) = join(&world, path(1), 1);
    node.service.held.set(true);
    (1..=100).for_each(|number| second.send(&request_frame(1, number, &attach(number), &[])));
    let ping = frame_of(Header::new(FrameKind::Ping, 1, 1, 0), &[]);
    for _ in 0..40 {
        first.send(&ping);
        assert_eq!(first.receive().expect("a sign of life").0.kind, FrameKind::Pong);
        run(&world, Duration::from_millis(125));
    }
    assert_eq!(node.service.began(), 4 + REQUESTS_EXTRA);
    node.service.release();
    for _ in 1..=100 {
        assert_eq!(second.receive().expect("an answer").0.kind, FrameKind::Answer);
    }
}

/// As a path on which nothing gets through any more: the node has answers for it, and reads nothing until there is room.
#[test]
fn a_path_on_which_nothing_is_taken_while_another_one_is_in_use_is_closed() {
    let mut config = WorldConfig::default();
    config.network.socket_buffer_bytes = 16 << 10;
    let world = World::with_config(15, config);
    let (_node, first) = first_path(&world, BusConfig { queued_bytes_max: 4 << 10, ..BusConfig::default() });
    let (second, _) = join(&world, path(1), 1);
    let ping = frame_of(Header::new(FrameKind::Ping, 1, 1, 0), &[]);
    (0..1000).for_each(|_| second.send(&ping));
    for _ in 0..40 {
        first.send(&ping);
        assert_eq!(first.receive().expect("a sign of life").0.kind, FrameKind::Pong);
        run(&world, Duration::from_millis(125));
    }
    let received = std::iter::from_fn(|| second.receive().ok()).count();
    assert!(received < 1000, "{received}");
}

#[test]
fn a_heartbeat_that_comes_twice_at_once_is_answered_where_it_came_last() {
    let world = World::new(14);
    let (node, first) = first_path(&world, BusConfig::default());
    let (second, _) = join(&world, path(1), 1);
    let request = request_frame(1, 1, &heartbeat(7), &[]);
    let (half, rest) = request.split_at(request.len() - 1);
    second.send(half);
    run(&world, Duration::from_millis(10));
    first.send(&request);
    assert_eq!(first.receive().expect("an answer").0.sequence, sequence_of(1, 1));
    second.send(rest);
    assert_eq!(second.receive().expect("an answer").0.sequence, sequence_of(1, 1));
    assert_eq!(node.service.began(), 1);
}
