use std::collections::BTreeSet;
use std::time::Duration;

use spandrel_platform::before;
use spandrel_platform_simulated::{DelayRange, Random, World, WorldConfig};
use spandrel_replica::{BlockState, PartDescription, ReplicaRequest, ReplicaResponse};
use spandrel_shared::{BLOCK_BYTES, LoadCounts};

use super::*;
use crate::frame::PAYLOAD_BYTES_MAX;
use crate::statistics::RequestKind;
use crate::test_support::*;
use crate::{ClientResponse, Heartbeat};

fn heartbeat(number: u64) -> BusRequest {
    BusRequest::Heartbeat(Heartbeat { number, ..Heartbeat::default() })
}

#[test]
fn requests_and_answers_of_every_size_arrive_whole() {
    for seed in 0..12 {
        let world = World::swarm(seed);
        let (a, b) = pair(&world);
        for length in [1, 4095, 4096, 4097, 30_000, 100_000, 300_000, 2 << 20] {
            let written = a.ask("b", client_write(length), &pattern(length, length as usize));
            assert_eq!(written.expect("it is carried out").0, done(), "seed {seed}, {length} bytes");
            let (response, read) = b.ask("a", client_read(length, length as u32), &[]).expect("data");
            assert_eq!(response, BusResponse::Client(Ok(ClientResponse::Data)));
            assert!(read.len() == 1 && *read[0] == *pattern(length, length as usize), "seed {seed}");
        }
        let empty = a.ask("b", client_write(1), &[]).expect("it is carried out");
        assert_eq!(empty.0, done());
    }
}

#[test]
fn blocks_reach_a_copy_and_come_back_part_by_part() {
    let world = World::new(1);
    let (a, b) = pair(&world);
    for count in [1, 8, 300] {
        let (request, payload) = copy_write(5, count);
        let (response, _) = a.ask("b", request, &payload).expect("it is carried out");
        assert_eq!(response, BusResponse::Replica(Ok(ReplicaResponse::Done)));
        let (response, data) = b.ask("a", copy_read(5, count), &[]).expect("data");
        let parts = copy_parts(&copy(), 5, count);
        assert_eq!(response, BusResponse::Replica(Ok(ReplicaResponse::Parts(parts.clone()))));
        let described: Vec<usize> = parts
            .iter()
            .filter_map(|part| match part {
                PartDescription::Data(checksums) => Some(checksums.len() * BLOCK_BYTES),
                _ => None,
            })
            .collect();
        assert_eq!(data.iter().map(|part| part.len()).collect::<Vec<_>>(), described);
        assert_eq!(*data[0], *block_content(5));
    }
}

#[test]
fn an_answer_may_be_longer_than_any_request() {
    let world = World::new(2);
    let (a, _b) = pair(&world);
    let count = 400_000;
    let request = ReplicaRequest::BlockStates { copy: copy(), authority: authority(), first: 0, count };
    let (response, _) = a.ask("b", BusRequest::Replica(request), &[]).expect("an answer");
    let states: Vec<_> = (0..count).map(BlockState::Data).collect();
    assert_eq!(response, BusResponse::Replica(Ok(ReplicaResponse::BlockStates(states))));
    let after = a.ask("b", attach(3), &[]).expect("small ones still come through");
    assert_eq!(after.0, attached(3));
}

#[test]
fn many_calls_are_in_flight_and_their_answers_come_in_any_order() {
    let mut overtaken = 0;
    for seed in 0..8 {
        let world = World::swarm(seed);
        let (a, b) = pair(&world);
        b.service.delay_us_max.set(5000);
        let order = Rc::new(RefCell::new(Vec::new()));
        for number in 1..=300 {
            let order = Rc::clone(&order);
            let length = (number as usize * 37) % 9000;
            let call = a.call("b", client_write(number), &pattern(number, length));
            a.process.spawn(async move {
                assert_eq!(call.await.expect("it is carried out").0, done());
                order.borrow_mut().push(number);
            });
        }
        run_until(&world, || order.borrow().len() == 300);
        overtaken += order.borrow().windows(2).filter(|pair| pair[0] > pair[1]).count();
        let began: Vec<u64> = b.service.log.borrow().iter().filter_map(began_number).collect();
        assert_eq!(began, (1..=300).collect::<Vec<_>>(), "requests begin in their order, seed {seed}");
        assert_eq!(a.bus.unanswered(b.id()), 0);
    }
    assert!(overtaken > 100, "{overtaken}");
}

fn began_number(event: &Event) -> Option<u64> {
    if let Event::Began(_, number) = event { Some(*number) } else { None }
}

#[test]
fn a_call_without_a_session_fails_at_once() {
    let world = World::new(1);
    let a = Node::start(&world, "a");
    world.add_host("b");
    a.dial(&world, "b");
    let before = world.now();
    assert_eq!(a.ask("b", attach(1), &[]).err(), Some(BusError::NotConnected));
    assert_eq!(a.ask("nobody", attach(1), &[]).err(), Some(BusError::NotConnected));
    assert_eq!(world.now(), before);
}

#[test]
fn what_no_frame_can_carry_is_not_sent() {
    let world = World::new(1);
    let (a, b) = pair(&world);
    let long = vec![0; PAYLOAD_BYTES_MAX + 1];
    assert_eq!(a.ask("b", client_write(1), &long).err(), Some(BusError::TooLarge));
    let blocks = (PAYLOAD_BYTES_MAX / BLOCK_BYTES) as u32 + 1;
    assert_eq!(a.ask("b", copy_read(0, blocks), &[]).err(), Some(BusError::TooLarge));
    let owned = crate::OwnedVolume { volume: VOLUME, epoch: spandrel_shared::Epoch(1) };
    let long = Heartbeat { owned: vec![owned; 100_000], ..Heartbeat::default() };
    assert_eq!(a.ask("b", BusRequest::Heartbeat(long), &[]).err(), Some(BusError::TooLarge));
    assert_eq!((b.service.began(), a.bus.unanswered(b.id())), (0, 0));
    assert_eq!(a.ask("b", attach(1), &[]).expect("an answer").0, attached(1));
}

#[test]
fn a_call_that_is_given_up_leaves_the_session_whole() {
    let world = World::new(5);
    let (a, b) = pair(&world);
    b.service.held.set(true);
    let call = a.call("b", client_read(9, 70_000), &[]);
    let platform = a.process.platform();
    let given_up = a.process.block_on(async move {
        let deadline = platform.now() + Duration::from_millis(10);
        before(&platform, deadline, call).await.is_none()
    });
    assert_eq!(given_up, Ok(true));
    assert_eq!((a.bus.unanswered(b.id()), b.service.began()), (1, 1));
    b.service.release();
    run_until(&world, || a.bus.unanswered(b.id()) == 0);
    assert_eq!(a.ask("b", attach(4), &[]).expect("an answer").0, attached(4));
}

/// Settings under which a session admits little.
fn narrow() -> BusConfig {
    BusConfig { requests_max: 4, request_bytes_max: 100_000, ..BusConfig::default() }
}

#[test]
fn requests_wait_in_their_order_for_what_the_peer_admits_and_heartbeats_do_not() {
    let world = World::new(3);
    let a = Node::start(&world, "a");
    let b = Node::start_with(&world, "b", cluster(), narrow());
    a.dial(&world, "b");
    a.await_session("b");
    b.service.held.set(true);
    let calls: Vec<_> = (1..=20).map(|number| a.start_call("b", attach(number), &[])).collect();
    run(&world, Duration::from_millis(100));
    assert_eq!((b.service.began(), a.bus.unanswered(b.id())), (4, 4));
    assert!(matches!(a.ask("b", heartbeat(77), &[]), Ok((BusResponse::Heartbeat(_), _))));
    b.service.release();
    run_until(&world, || calls.iter().all(Outcome::is_there));
    let began: Vec<u64> = b.service.log.borrow().iter().filter_map(began_number).collect();
    assert_eq!(began[..5], [1, 2, 3, 4, 77]);
    assert_eq!(began[5..], (5..=20).collect::<Vec<_>>());
    for (call, number) in calls.iter().zip(1..) {
        assert_eq!(call.response(), Some(Ok(attached(number))));
    }
}

#[test]
fn payloads_in_flight_are_bounded_and_a_longer_one_goes_alone() {
    let world = World::new(4);
    let a = Node::start(&world, "a");
    let b = Node::start_with(&world, "b", cluster(), narrow());
    a.dial(&world, "b");
    a.await_session("b");
    b.service.held.set(true);
    let mut calls = Vec::new();
    for (number, length) in [(1, 60_000), (2, 60_000), (3, 500_000), (4, 10)] {
        calls.push(a.start_call("b", client_write(number), &pattern(number, length)));
    }
    run(&world, Duration::from_millis(100));
    assert_eq!(b.service.began(), 1);
    b.service.release();
    run_until(&world, || calls.iter().all(Outcome::is_there));
    assert!(calls.iter().all(|call| call.response() == Some(Ok(done()))));
}

#[test]
fn unanswered_heartbeats_are_bounded() {
    let world = World::new(1);
    let (a, b) = pair(&world);
    b.process.pause_until_resumed();
    let calls: Vec<_> = (1..=100).map(|number| a.start_call("b", heartbeat(number), &[])).collect();
    run(&world, Duration::from_millis(10));
    let refused = calls.iter().filter(|call| call.response() == Some(Err(BusError::TooManyHeartbeats)));
    assert_eq!((refused.count(), a.bus.unanswered(b.id())), (68, 32));
    b.process.resume();
    run_until(&world, || calls.iter().all(Outcome::is_there));
    assert!(matches!(a.ask("b", heartbeat(101), &[]), Ok((BusResponse::Heartbeat(_), _))));
}

#[test]
fn a_peer_that_does_not_read_holds_answers_back_and_takes_no_more_memory() {
    let mut config = WorldConfig::default();
    config.network.socket_buffer_bytes = 64 << 10;
    let world = World::with_config(6, config);
    let queued_bytes_max = 200_000;
    let a = Node::start(&world, "a");
    let b = Node::start_with(&world, "b", cluster(), BusConfig { queued_bytes_max, ..BusConfig::default() });
    a.dial(&world, "b");
    a.await_session("b");
    b.service.held.set(true);
    let calls: Vec<_> = (0..50).map(|number| a.start_call("b", client_read(number, 50_000), &[])).collect();
    run_until(&world, || b.service.began() == 50);
    a.process.pause_until_resumed();
    b.service.release();
    run(&world, Duration::from_millis(100));
    let sent = b.bus.statistics().bytes_sent as usize;
    // What the kernels hold, what may be queued, and the one that went over the line.
    assert!(sent < (64 << 10) + queued_bytes_max + 60_000, "{sent}");
    assert!(sent > queued_bytes_max, "{sent}");
    a.process.resume();
    run_until(&world, || calls.iter().all(Outcome::is_there));
    assert!(calls.iter().all(|call| call.response().is_some_and(|response| response.is_ok())));
}

#[test]
fn a_slow_way_holds_requests_back_and_they_stay_in_order() {
    let mut config = WorldConfig::default();
    config.network.socket_buffer_bytes = 32 << 10;
    config.network.delay = DelayRange::microseconds(1000, 1000);
    let world = World::with_config(6, config);
    let b = Node::start(&world, "b");
    let queued_bytes_max = 100_000;
    let a = Node::start_with(&world, "a", cluster(), BusConfig { queued_bytes_max, ..BusConfig::default() });
    a.dial(&world, "b");
    a.await_session("b");
    let sent_before = a.bus.statistics().bytes_sent as usize;
    let calls: Vec<_> =
        (1..=40).map(|number| a.start_call("b", client_write(number), &pattern(number, 20_000))).collect();
    run(&world, Duration::from_micros(500));
    let sent = a.bus.statistics().bytes_sent as usize - sent_before;
    assert!(sent < (32 << 10) + queued_bytes_max + 21_000, "{sent}");
    run_until(&world, || calls.iter().all(Outcome::is_there));
    let began: Vec<u64> = b.service.log.borrow().iter().filter_map(began_number).collect();
    assert_eq!(began, (1..=40).collect::<Vec<_>>());
}

#[test]
fn a_late_request_does_not_overtake_those_that_wait_for_room() {
    let mut config = WorldConfig::default();
    config.network.socket_buffer_bytes = 32 << 10;
    let world = World::with_config(7, config);
    let b = Node::start(&world, "b");
    let own = BusConfig { queued_bytes_max: 50_000, ..BusConfig::default() };
    let a = Node::start_with(&world, "a", cluster(), own);
    a.dial(&world, "b");
    a.await_session("b");
    let start = |number| a.start_call("b", client_write(number), &pattern(number, 20_000));
    let mut calls: Vec<_> = (1..=20).map(start).collect();
    run(&world, Duration::from_micros(10));
    // The late one is the first to run when the node goes on, and by then there is room.
    a.process.pause_until_resumed();
    calls.push(start(21));
    run(&world, Duration::from_millis(50));
    a.process.resume();
    run_until(&world, || calls.iter().all(Outcome::is_there));
    let began: Vec<u64> = b.service.log.borrow().iter().filter_map(began_number).collect();
    assert_eq!(began, (1..=21).collect::<Vec<_>>());
}

#[test]
fn numbers_say_what_was_sent_and_when_something_came() {
    let world = World::new(9);
    let (a, b) = pair(&world);
    run(&world, Duration::from_millis(50));
    let heard_before = a.bus.last_received(b.id()).expect("the welcome came");
    assert!(heard_before < a.process.platform().now());
    let before = (a.bus.statistics(), b.bus.statistics());
    let (request, payload) = copy_write(1, 2);
    a.ask("b", request, &payload).expect("an answer");
    let after = (a.bus.statistics(), b.bus.statistics());
    assert_eq!(after.0.requests_sent.of(RequestKind::CopyWrite), 1);
    assert_eq!(after.1.requests_served.of(RequestKind::CopyWrite), 1);
    assert_eq!((after.0.requests_sent.total(), after.1.requests_sent.total()), (1, 0));
    assert_eq!(after.0.frames_sent - before.0.frames_sent, 1);
    assert_eq!(after.0.frames_received - before.0.frames_received, 1);
    assert_eq!(after.1.bytes_received - before.1.bytes_received, after.0.bytes_sent - before.0.bytes_sent);
    assert!(after.0.bytes_sent - before.0.bytes_sent > 2 * BLOCK_BYTES as u64);
    let heard = a.bus.last_received(b.id()).expect("an answer came");
    assert!(heard > heard_before && b.bus.last_received(a.id()).is_some());
    assert_eq!(a.bus.last_received(a.id()), None);
}

#[test]
fn what_volumes_hold_is_counted_while_it_is_read_and_written() {
    let world = World::new(12);
    let (a, b) = pair(&world);
    let (request, payload) = copy_write(5, 3);
    a.ask("b", request, &payload).expect("an answer");
    let (_, data) = a.ask("b", copy_read(5, 3), &[]).expect("data");
    a.ask("b", attach(3), &[]).expect("an answer");
    let counts = a.bus.load().counts();
    let read_bytes: usize = data.iter().map(|part| part.len()).sum();
    assert_eq!((counts.writes.done, counts.writes.bytes), (1, 3 * BLOCK_BYTES as u64));
    assert_eq!((counts.reads.done, counts.reads.bytes), (1, read_bytes as u64));
    assert_eq!(counts.in_flight(), 0);
    assert_eq!(b.bus.load().counts(), LoadCounts::default(), "it has asked for nothing");
    b.service.held.set(true);
    let waiting = a.start_call("b", client_read(0, 4096), &[]);
    run(&world, Duration::from_millis(50));
    assert_eq!(a.bus.load().counts().reads.in_flight, 1);
    a.bus.break_session(b.id());
    run_until(&world, || waiting.is_there());
    let counts = a.bus.load().counts();
    assert_eq!((counts.reads.in_flight, counts.reads.done), (0, 1), "nobody has answered it");
    b.service.release();
}

#[test]
fn stopping_waits_for_what_is_being_served_and_ends_everything_else() {
    let world = World::new(11);
    let (a, b) = pair(&world);
    b.service.held.set(true);
    let asked = a.start_call("b", attach(1), &[]);
    let asking = b.start_call("a", attach(2), &[]);
    run_until(&world, || b.service.began() == 1 && asking.is_there());
    let stopped = Rc::new(Cell::new(false));
    let (bus, told) = (b.bus.clone(), Rc::clone(&stopped));
    b.process.spawn(async move {
        bus.stop().await;
        told.set(true);
    });
    run(&world, Duration::from_secs(3));
    assert!(!stopped.get());
    assert_eq!(asked.response(), Some(Err(BusError::SessionLost)));
    assert_eq!((a.bus.session(b.id()), b.bus.session(a.id())), (None, None));
    assert_eq!(b.ask("a", attach(3), &[]).err(), Some(BusError::NotConnected));
    b.service.release();
    run_until(&world, || stopped.get());
    let log = b.service.log.borrow().clone();
    assert!(matches!(log[..], [Event::Began(..), Event::Ended(..), Event::SessionEnded(_)]), "{log:?}");
}

#[test]
fn one_seed_and_one_program_replay_one_run() {
    let hash = |seed| {
        let world = World::swarm(seed);
        let (a, b) = pair(&world);
        let random = Random::new(seed);
        let calls: Vec<_> = (1..50)
            .map(|number| {
                let node = if random.chance(500) { &a } else { &b };
                let other = if node.name == "a" { "b" } else { "a" };
                node.start_call(other, client_write(number), &pattern(number, random.index(20_000)))
            })
            .collect();
        run_until(&world, || calls.iter().all(Outcome::is_there));
        world.trace_hash()
    };
    let hashes: BTreeSet<u64> = (0..5).map(hash).collect();
    assert_eq!(hashes.len(), 5);
    assert_eq!(hashes, (0..5).map(hash).collect());
}

#[test]
fn the_shards_of_a_node_are_peers_like_any_others() {
    for seed in 0..6 {
        let world = World::swarm(seed);
        let shards = ["a", "a.1", "b.2"];
        let nodes = shards.map(|name| Node::start(&world, name));
        for (node, other) in nodes.iter().flat_map(|node| shards.map(|other| (node, other))) {
            if node.name != other {
                node.dial(&world, other);
                node.await_session(other);
            }
        }
        for (node, other) in nodes.iter().flat_map(|node| shards.map(|other| (node, other))) {
            if node.name != other {
                let answer = node.ask(other, client_write(5000), &pattern(5000, 5000));
                assert_eq!(
                    answer.expect("it is carried out").0,
                    done(),
                    "seed {seed}, {} to {other}",
                    node.name
                );
            }
        }
        assert_eq!(
            nodes[0].bus.peers(),
            [shard_id("a.1"), shard_id("b.2")],
            "one of the node's own is a peer"
        );
    }
}

#[test]
fn a_hello_for_another_shard_of_the_node_is_refused() {
    let world = World::new(1);
    let (a, b) = (Node::start(&world, "a"), Node::start(&world, "b"));
    a.bus.set_peer(shard_id("b.1"), vec![address_of(&world, "b")]);
    let bus = a.bus.clone();
    let connected = async move { bus.changes().wait_until(|| bus.session(shard_id("b.1")).is_some()).await };
    let platform = a.process.platform();
    let deadline = platform.now() + Duration::from_secs(10);
    let waited = a.process.block_on(async move { before(&platform, deadline, connected).await });
    assert_eq!(waited.expect("the world goes on"), None, "nobody of that name is there");
    assert!(b.bus.statistics().hellos_refused > 0);
}
