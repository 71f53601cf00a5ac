use std::cell::Cell;
use std::net::SocketAddr;

use spandrel_platform::{Connection, Listener};
use spandrel_platform_simulated::{Random, World, WorldConfig};
use spandrel_shared::ClusterId;

use super::*;
use crate::frame::done_body;
use crate::test_support::raw::*;
use crate::test_support::warnings::warnings_of;
use crate::test_support::{Outcome, *};
use crate::{BusConfig, BusError, BusResponse, Peer};

#[test]
fn a_broken_session_ends_its_calls_and_a_new_one_waits_for_what_is_being_served() {
    for seed in 0..20 {
        let world = World::swarm(seed);
        let (a, b) = pair(&world);
        let first = a.bus.session(b.id()).expect("it is up");
        b.service.held.set(true);
        let calls: Vec<_> = (1..=5).map(|number| a.start_call("b", attach(number), &[])).collect();
        run_until(&world, || b.service.began() == 5);
        world.break_connections(&a.process.host(), &b.process.host());
        run_until(&world, || calls.iter().all(Outcome::is_there));
        assert!(calls.iter().all(|call| call.response() == Some(Err(BusError::SessionLost))));
        assert_eq!(a.bus.session(b.id()), None);
        // Longer than a hello may take, so that several have come by then.
        run(&world, Duration::from_secs(12));
        assert_eq!(a.bus.session(b.id()), None, "seed {seed}");
        assert!(b.bus.session(a.id()).is_some(), "nothing of b's is being served");
        b.service.release();
        a.await_session("b");
        let second = a.bus.session(b.id()).expect("it is up");
        assert!(second.session > first.session && second.incarnation == first.incarnation);
        assert_eq!(a.ask("b", attach(6), &[]).expect("an answer").0, attached(6));
        let log = b.service.log.borrow();
        check_log(&log);
        let over: Vec<_> =
            log.iter().filter(|event| matches!(event, Event::SessionEnded(_))).copied().collect();
        let peer = Peer { shard: a.id(), incarnation: a.bus.identity().incarnation, session: first.session };
        assert_eq!(over, [Event::SessionEnded(peer)], "seed {seed}");
    }
}

#[test]
fn the_owner_of_a_call_learns_at_once_that_its_session_broke() {
    let world = World::new(1);
    let (a, b) = pair(&world);
    let told_at = Rc::new(Cell::new(None));
    let (bus, told) = (a.bus.clone(), Rc::clone(&told_at));
    let (peer, platform) = (b.id(), a.process.platform());
    a.process.spawn(async move {
        bus.changes().wait_until(|| bus.session(peer).is_none()).await;
        told.set(Some(platform.now()));
    });
    run(&world, Duration::from_millis(100));
    let before = a.process.platform().now();
    b.process.crash();
    run_until(&world, || told_at.get().is_some());
    assert!(told_at.get().expect("it was told").since(before) < Duration::from_millis(10));
}

#[test]
fn a_peer_that_crashed_is_dialled_until_it_is_back() {
    let world = World::new(2);
    let (a, b) = pair(&world);
    let first = a.bus.session(b.id()).expect("it is up");
    b.service.held.set(true);
    let call = a.start_call("b", attach(1), &[]);
    run_until(&world, || b.service.began() == 1);
    b.process.crash();
    run_until(&world, || call.is_there());
    assert_eq!(call.response(), Some(Err(BusError::SessionLost)));
    run(&world, Duration::from_secs(30));
    let b = Node::start(&world, "b");
    a.await_session("b");
    let second = a.bus.session(b.id()).expect("it is up");
    assert!(second.session > first.session);
    assert_eq!(second.incarnation, b.bus.identity().incarnation);
    assert_eq!(a.ask("b", attach(2), &[]).expect("an answer").0, attached(2));
}

#[test]
fn what_a_crashed_process_asked_for_ends_before_its_successor_is_served() {
    let world = World::new(3);
    let (a, b) = pair(&world);
    b.service.held.set(true);
    let _call = a.start_call("b", attach(1), &[]);
    run_until(&world, || b.service.began() == 1);
    let former = a.bus.identity().incarnation;
    a.process.crash();
    run(&world, Duration::from_secs(1));
    let a = Node::start(&world, "a");
    a.dial(&world, "b");
    run(&world, Duration::from_secs(8));
    assert_eq!(a.bus.session(b.id()), None);
    b.service.release();
    a.await_session("b");
    assert_eq!(a.ask("b", attach(2), &[]).expect("an answer").0, attached(2));
    let log = b.service.log.borrow();
    check_log(&log);
    let order: Vec<_> = log
        .iter()
        .map(|event| match event {
            Event::Began(peer, _) | Event::Ended(peer, _) | Event::SessionEnded(peer) => peer.incarnation,
        })
        .collect();
    let present = a.bus.identity().incarnation;
    assert_eq!(order, [former, former, former, present, present]);
}

#[test]
fn a_session_outlives_a_partition_and_its_calls_wait() {
    let world = World::new(4);
    let (a, b) = pair(&world);
    let session = a.bus.session(b.id());
    let (host_a, host_b) = (a.process.host(), b.process.host());
    world.cut(&host_a, &host_b);
    let call = a.start_call("b", attach(1), &[]);
    run(&world, Duration::from_secs(60));
    assert!(!call.is_there());
    world.heal(&host_a, &host_b);
    run_until(&world, || call.is_there());
    assert_eq!(call.response(), Some(Ok(attached(1))));
    assert_eq!(a.bus.session(b.id()), session);
}

#[test]
fn a_session_that_is_broken_on_purpose_ends_its_calls_and_comes_back_after_the_partition() {
    let world = World::new(5);
    let (a, b) = pair(&world);
    let first = a.bus.session(b.id()).expect("it is up");
    let (host_a, host_b) = (a.process.host(), b.process.host());
    world.cut(&host_a, &host_b);
    let call = a.start_call("b", attach(1), &[]);
    run(&world, Duration::from_millis(10));
    a.bus.break_session(b.id());
    run_until(&world, || call.is_there());
    assert_eq!(call.response(), Some(Err(BusError::SessionLost)));
    assert_eq!(a.ask("b", attach(2), &[]).err(), Some(BusError::NotConnected));
    run(&world, Duration::from_secs(20));
    assert_eq!(a.bus.session(b.id()), None);
    world.heal(&host_a, &host_b);
    a.await_session("b");
    assert!(a.bus.session(b.id()).is_some_and(|second| second.session > first.session));
    assert_eq!(a.ask("b", attach(3), &[]).expect("an answer").0, attached(3));
    check_log(&b.service.log.borrow());
}

fn two_networks(seed: u64) -> World {
    let mut config = WorldConfig::default();
    config.network.networks = 2;
    World::with_config(seed, config)
}

fn address_on(world: &World, name: &str, network: u8) -> Address {
    Address::Tcp(SocketAddr::new(world.host(name).address(network), PORT))
}

#[test]
fn a_session_with_a_process_that_is_no_more_ends_when_its_successor_comes() {
    let world = two_networks(6);
    let (a, b) = (Node::start(&world, "a"), Node::start(&world, "b"));
    a.dial(&world, "b");
    a.await_session("b");
    let host = b.process.host();
    world.cut_network(0, &a.process.host(), &host);
    host.power_cut();
    let call = a.start_call("b", attach(1), &[]);
    host.power_on();
    let b = Node::start(&world, "b");
    run(&world, Duration::from_secs(5));
    assert!(!call.is_there(), "nobody says that the process is gone");
    b.dial_at("a", vec![address_on(&world, "a", 1)]);
    b.await_session("a");
    run(&world, Duration::from_millis(1));
    assert_eq!(call.response(), Some(Err(BusError::SessionLost)));
    a.dial_at("b", vec![address_on(&world, "b", 1)]);
    a.await_session("b");
    assert_eq!(a.ask("b", attach(2), &[]).expect("an answer").0, attached(2));
}

#[test]
fn a_session_that_lasted_comes_back_without_a_pause() {
    let world = World::new(7);
    let (a, b) = (Node::start(&world, "a"), Node::start(&world, "b"));
    a.dial(&world, "b");
    a.await_session("b");
    run(&world, Duration::from_secs(2));
    let before = world.now();
    world.break_connections(&a.process.host(), &b.process.host());
    run_until(&world, || a.bus.session(b.id()).is_none());
    a.await_session("b");
    assert!(world.now() - before < Duration::from_millis(2), "{:?}", world.now() - before);
}

#[test]
fn requests_that_wait_when_their_session_breaks_were_not_sent() {
    let world = World::new(8);
    let a = Node::start(&world, "a");
    let config = BusConfig { requests_max: 3, ..BusConfig::default() };
    let b = Node::start_with(&world, "b", cluster(), config);
    a.dial(&world, "b");
    a.await_session("b");
    b.service.held.set(true);
    let calls: Vec<_> = (1..=10).map(|number| a.start_call("b", attach(number), &[])).collect();
    run_until(&world, || b.service.began() == 3);
    world.break_connections(&a.process.host(), &b.process.host());
    run_until(&world, || calls.iter().all(Outcome::is_there));
    let errors: Vec<_> = calls.iter().map(|call| call.outcome().expect_err("nothing was answered")).collect();
    assert_eq!(errors[..3], [BusError::SessionLost, BusError::SessionLost, BusError::SessionLost]);
    assert!(errors[3..].iter().all(|error| *error == BusError::NotConnected));
    run(&world, Duration::from_secs(1));
    assert_eq!(b.service.began(), 3);
}

#[test]
fn a_node_of_another_cluster_is_refused_and_both_sides_say_so_once() {
    let world = World::new(7);
    let warnings = warnings_of(|| {
        let a = Node::start(&world, "a");
        let stranger = ClusterId::from_bytes([2; 16]);
        let b = Node::start_with(&world, "b", stranger, BusConfig::default());
        a.dial(&world, "b");
        run(&world, Duration::from_secs(60));
        assert_eq!(a.bus.session(b.id()), None);
        assert!(b.bus.statistics().hellos_refused > 30, "it is tried again and again");
        assert_eq!(a.ask("b", attach(1), &[]).err(), Some(BusError::NotConnected));
    });
    assert_eq!(warnings, 2);
}

#[test]
fn another_node_at_the_address_is_not_taken_for_the_one_that_was_meant() {
    let world = World::new(8);
    let warnings = warnings_of(|| {
        let (a, c) = (Node::start(&world, "a"), Node::start(&world, "c"));
        let meant = shard_id("b");
        a.dial_at("b", vec![address_of(&world, "c")]);
        run(&world, Duration::from_secs(10));
        assert_eq!((a.bus.session(meant), c.bus.statistics().sessions_accepted), (None, 0));
    });
    assert_eq!(warnings, 2);
}

#[test]
fn each_address_is_tried_in_turn() {
    let world = two_networks(9);
    let (a, b) = (Node::start(&world, "a"), Node::start(&world, "b"));
    let nobody = Address::Tcp(SocketAddr::new(b.process.host().address(0), PORT + 1));
    a.dial_at("b", vec![nobody, address_on(&world, "b", 0), address_on(&world, "b", 1)]);
    a.await_session("b");
    world.cut_network(0, &a.process.host(), &b.process.host());
    world.cut_network(0, &b.process.host(), &a.process.host());
    a.bus.break_session(b.id());
    let before = world.now();
    a.await_session("b");
    assert!(world.now() - before < Duration::from_secs(5), "{:?}", world.now() - before);
    assert_eq!(a.ask("b", attach(1), &[]).expect("an answer").0, attached(1));
}

/// Starts a process that accepts each connection on `b`'s port, counts it and drops it.
fn count_attempts(world: &World) -> Rc<Cell<u32>> {
    let process = world.process("b");
    let listener = process.platform().listen(&address_of(world, "b")).expect("the port is free");
    let accepted = Rc::new(Cell::new(0));
    let count = Rc::clone(&accepted);
    process.spawn(async move {
        while let Ok(connection) = listener.accept().await {
            count.set(count.get() + 1);
            connection.close();
        }
    });
    accepted
}

#[test]
fn attempts_become_rarer_but_never_end() {
    for seed in 0..5 {
        let world = World::new(seed);
        let accepted = count_attempts(&world);
        let a = Node::start(&world, "a");
        a.dial(&world, "b");
        run(&world, Duration::from_millis(200));
        let soon = accepted.get();
        assert!((4..=8).contains(&soon), "{soon} attempts at first");
        run(&world, Duration::from_secs(60));
        let later = accepted.get() - soon;
        assert!((59..=125).contains(&later), "{later} attempts in a minute");
        run(&world, Duration::from_secs(3600));
        assert!(accepted.get() > 3000);
    }
}

#[test]
fn new_addresses_are_tried_at_once_and_a_removed_peer_no_more() {
    let world = World::new(10);
    let accepted = count_attempts(&world);
    let (a, c) = (Node::start(&world, "a"), Node::start(&world, "c"));
    a.dial(&world, "b");
    run(&world, Duration::from_secs(30));
    a.bus.remove_peer(shard_id("b"));
    let attempts = accepted.get();
    run(&world, Duration::from_secs(30));
    assert_eq!((accepted.get(), a.bus.peers()), (attempts, Vec::new()));
    let peer = c.id();
    a.dial_at("c", vec![address_of(&world, "b")]);
    run(&world, Duration::from_secs(30));
    let before = world.now();
    a.dial(&world, "c");
    a.await_session("c");
    assert!(world.now() - before < Duration::from_millis(10));
    let call = a.start_call("c", attach(1), &[]);
    c.service.held.set(true);
    run_until(&world, || c.service.began() == 1);
    a.bus.remove_peer(peer);
    run_until(&world, || call.is_there());
    assert_eq!(call.response(), Some(Err(BusError::SessionLost)));
    assert_eq!(a.ask("c", attach(2), &[]).err(), Some(BusError::NotConnected));
    c.service.release();
    run(&world, Duration::from_secs(5));
    assert_eq!(a.bus.session(peer), None);
    assert!(matches!(c.service.log.borrow().last(), Some(Event::SessionEnded(_))));
}

#[test]
fn a_peer_that_is_expelled_asks_no_more() {
    let world = World::new(11);
    let (a, c) = (Node::start(&world, "a"), Node::start(&world, "c"));
    a.dial(&world, "c");
    a.await_session("c");
    let call = a.start_call("c", attach(1), &[]);
    run_until(&world, || call.is_there());
    assert!(matches!(call.response(), Some(Ok(_))));
    c.service.held.set(true);
    let call = a.start_call("c", attach(2), &[]);
    run_until(&world, || c.service.began() == 2);
    c.bus.expel(a.id());
    run_until(&world, || call.is_there());
    assert_eq!(call.response(), Some(Err(BusError::SessionLost)));
    c.service.release();
}

/// A process at `b`'s place that answers each connection with `answer` to what it received first.
fn answering(world: &World, answer: impl Fn(&Header) -> Vec<u8> + 'static) {
    let process = world.process("b");
    let platform = process.platform();
    let listener = platform.listen(&address_of(world, "b")).expect("the port is free");
    process.spawn(async move {
        while let Ok(connection) = listener.accept().await {
            let mut frames = FrameReceiver::new(&platform, connection.clone());
            while let Ok((header, _, _)) = receive_frame(&mut frames).await {
                connection.send(&answer(&header), &[]);
            }
        }
    });
}

fn welcome_frame(hello: &Hello, session: u32) -> Vec<u8> {
    frame_of(Header::new(FrameKind::Welcome, 1, session, 0), &hello.encode())
}

#[test]
fn a_welcome_is_judged_as_a_hello_is() {
    let good = hello_of("b", 1, "a");
    let mut other_cluster = good;
    other_cluster.cluster = ClusterId::from_bytes([3; 16]);
    let mut newer = good;
    (newer.version_min, newer.version_max) = (2, 9);
    let mut needs_more = good;
    needs_more.incompatible_features = 4;
    let other_node = hello_of("c", 1, "a");
    for (welcome, session_change, accepted) in [
        (good, 0, true),
        (good, 1, false),
        (other_cluster, 0, false),
        (newer, 0, false),
        (needs_more, 0, false),
        (other_node, 0, false),
    ] {
        let world = World::new(11);
        answering(&world, move |header| welcome_frame(&welcome, header.session + session_change));
        let a = Node::start(&world, "a");
        a.dial(&world, "b");
        run(&world, Duration::from_secs(1));
        assert_eq!(a.bus.session(shard_id("b")).is_some(), accepted, "{welcome:?}");
    }
}

#[test]
fn a_welcome_from_the_holder_of_another_certificate_counts_for_nothing() {
    for (proven, accepted) in [("b", true), ("c", false)] {
        let world = World::new(11);
        let welcome = hello_of("b", 1, "a");
        answering(&world, move |header| welcome_frame(&welcome, header.session));
        world.host("b").prove_name(&shard_id(proven).to_string());
        let a = Node::start(&world, "a");
        a.dial(&world, "b");
        run(&world, Duration::from_secs(1));
        assert_eq!(a.bus.session(shard_id("b")).is_some(), accepted, "the certificate of {proven}");
    }
}

#[test]
fn answers_that_nobody_asked_for_end_the_session() {
    let answer = |session, sequence, kind| frame_of(Header::new(kind, 1, session, sequence), &[]);
    type Answer = Box<dyn Fn(&Header) -> Vec<u8>>;
    let done = |session, sequences: &[u64]| {
        frame_of(Header::new(FrameKind::Done, 1, session, 0), &done_body(sequences))
    };
    let cases: [(Answer, bool); 10] = [
        (Box::new(|_| vec![0x55; 500]), true),
        (Box::new(move |header| answer(header.session, header.sequence + 1, FrameKind::Answer)), true),
        (Box::new(move |header| answer(header.session + 1, header.sequence, FrameKind::Answer)), true),
        (Box::new(move |header| answer(header.session, header.sequence, FrameKind::Request)), true),
        (Box::new(move |header| answer(header.session, header.sequence, FrameKind::Hello)), true),
        (Box::new(move |header| answer(header.session, 0, FrameKind::Pong)), true),
        (Box::new(move |header| answer(header.session, 0, FrameKind::Done)), true),
        (Box::new(move |header| done(header.session, &[header.sequence + 1])), true),
        // An answer that is not understood costs only its call.
        (Box::new(move |header| answer(header.session, header.sequence, FrameKind::Answer)), false),
        // So does one that a copy may give, where an owner was asked.
        (Box::new(move |header| done(header.session, &[header.sequence])), false),
    ];
    for (number, (answer, ends)) in cases.into_iter().enumerate() {
        let world = World::new(12);
        answering(&world, move |header| match header.kind {
            FrameKind::Hello => welcome_frame(&hello_of("b", 1, "a"), header.session),
            _ => answer(header),
        });
        let a = Node::start(&world, "a");
        a.dial(&world, "b");
        a.await_session("b");
        let outcome = a.ask("b", attach(1), &[]).map(|(response, _)| response);
        let malformed = a.bus.statistics().connections_malformed;
        if ends {
            assert_eq!((outcome, malformed), (Err(BusError::SessionLost), 1), "case {number}");
        } else {
            let unfit = matches!(outcome, Err(BusError::AnswerUnfit(_)));
            assert!(unfit && malformed == 0, "case {number}: {outcome:?}");
        }
    }
}

/// Flips a bit of the first passing `0xA5` run's middle, in one direction.
fn flip_once(forth: bool) -> (Meddle, Rc<Cell<bool>>) {
    let armed = Rc::new(Cell::new(false));
    let trigger = Rc::clone(&armed);
    let meddle: Meddle = Rc::new(move |direction, bytes: &mut Vec<u8>| {
        let marked = bytes.windows(16).position(|window| window == [0xA5; 16]);
        if let (true, true, Some(position)) = (direction == forth, trigger.get(), marked) {
            bytes[position + 5] ^= 0x10;
            trigger.set(false);
        }
    });
    (meddle, armed)
}

#[test]
fn a_payload_that_is_damaged_on_its_way_is_not_carried_out() {
    let world = World::new(13);
    let (a, b) = (Node::start(&world, "a"), Node::start(&world, "b"));
    let (meddle, armed) = flip_once(true);
    let proxy = start_proxy(&world, "p", "b", meddle);
    let peer = b.id();
    a.dial_at("b", vec![proxy]);
    a.await_session("b");
    let marked = vec![0xA5; 8192];
    armed.set(true);
    assert_eq!(a.ask("b", client_write(1), &marked).err(), Some(BusError::DamagedOnArrival));
    assert_eq!((b.service.began(), b.bus.statistics().payloads_damaged), (0, 1));
    armed.set(true);
    let (write, _) = copy_write(0, 2);
    let (response, _) = a.ask("b", write, &marked).expect("an answer");
    let damaged = spandrel_replica::ReplicaError::DamagedOnArrival;
    assert_eq!(response, BusResponse::Replica(Err(damaged)));
    assert_eq!((b.service.began(), b.bus.statistics().payloads_damaged), (0, 2));
    let session = a.bus.session(peer).expect("it has outlived both");
    assert_eq!(a.ask("b", attach(1), &[]).expect("an answer").0, attached(1));
    assert_eq!(a.bus.session(peer), Some(session));
}

#[test]
fn bits_that_flip_anywhere_never_bring_a_wrong_answer() {
    let mut counts = [0; 2];
    for seed in 0..60 {
        let world = World::new(seed);
        let (a, b) = (Node::start(&world, "a"), Node::start(&world, "b"));
        let random = Rc::new(Random::new(seed));
        let chance = Rc::clone(&random);
        let meddle: Meddle = Rc::new(move |_, bytes: &mut Vec<u8>| {
            if chance.chance(30) {
                let position = chance.index(bytes.len());
                bytes[position] ^= 1 << chance.index(8);
            }
        });
        let proxy = start_proxy(&world, "p", "b", meddle);
        a.dial_at("b", vec![proxy]);
        for number in 1..=40 {
            // A flipped bit may make one side wait for the rest of a payload that never comes.
            let length = random.index(12_000);
            let call = match number % 3 {
                0 => a.start_call("b", client_write(number), &pattern(number, length)),
                1 => a.start_call("b", copy_read(number as u32, 3), &[]),
                _ => a.start_call("b", client_read(number, length as u32), &[]),
            };
            if world.run_for(Duration::from_millis(500)) == spandrel_platform_simulated::RunEnd::TimeOver
                && !call.is_there()
            {
                a.bus.break_session(b.id());
            }
            run_until(&world, || call.is_there());
            match call.outcome() {
                Ok((response, payload)) => {
                    counts[0] += 1;
                    match number % 3 {
                        0 => assert_eq!(response, done()),
                        1 => assert_eq!(*payload[0], *block_content_from(number as u32, &response)),
                        _ => assert_eq!(
                            payload.iter().flat_map(|part| part.to_vec()).collect::<Vec<_>>(),
                            pattern(number, length)
                        ),
                    }
                }
                Err(error) => {
                    counts[1] += 1;
                    assert!(!matches!(error, BusError::TooLarge | BusError::AnswerUnfit(_)), "{error}");
                }
            }
        }
        check_log(&b.service.log.borrow());
    }
    assert!(counts[0] > 500 && counts[1] > 100, "{counts:?}");
}

/// Two nodes under faults, and the calls that were made.
struct Turmoil {
    world: World,
    random: Random,
    a: Node,
    b: Node,
    /// With what each call should be answered.
    calls: Vec<(BusResponse, Outcome)>,
}

impl Turmoil {
    fn start_calls(&mut self) {
        for _ in 0..self.random.index(20) {
            let number = self.calls.len() as u64 + 1;
            let (node, other) = if self.random.chance(500) { (&self.a, "b") } else { (&self.b, "a") };
            let call = if self.random.chance(500) {
                let payload = pattern(number, self.random.index(30_000));
                (done(), node.start_call(other, client_write(number), &payload))
            } else {
                (attached(number), node.start_call(other, attach(number), &[]))
            };
            self.calls.push(call);
        }
    }

    fn strike(&mut self) {
        let Self { world, random, a, b, .. } = self;
        let (host_a, host_b) = (a.process.host(), b.process.host());
        match random.index(10) {
            0 => drop(world.break_random_connection()),
            1 => drop(world.break_connections(&host_a, &host_b)),
            2 => world.cut_one_way(&host_a, &host_b),
            3 => world.cut(&host_a, &host_b),
            4 => a.bus.break_session(b.id()),
            5 if random.chance(300) => restart(world, b, "a", random.below(50)),
            6 if random.chance(300) => restart(world, a, "b", 0),
            _ => world.heal_all(),
        }
        run(world, Duration::from_micros(random.below(20_000)));
    }

    /// Counts all calls, those that failed, and those of which nobody knows.
    fn judge(&self) -> [usize; 3] {
        let mut counts = [self.calls.len(), 0, 0];
        for (expected, call) in &self.calls {
            match call.response() {
                Some(Ok(response)) => assert_eq!(response, *expected),
                Some(Err(error)) => {
                    assert!(matches!(error, BusError::NotConnected | BusError::SessionLost), "{error}");
                    counts[1] += 1;
                }
                // Its process crashed.
                None => counts[2] += 1,
            }
        }
        for node in [&self.a, &self.b] {
            check_log(&node.service.log.borrow());
            assert_eq!(node.bus.statistics().connections_malformed, 0);
        }
        counts
    }
}

fn restart(world: &World, node: &mut Node, other: &str, down_ms: u64) {
    check_log(&node.service.log.borrow());
    node.process.crash();
    run(world, Duration::from_millis(down_ms));
    *node = Node::start(world, &node.name);
    node.dial(world, other);
}

#[test]
fn crashes_breaks_and_partitions_break_no_promise() {
    let mut counts = [0; 3];
    for seed in 0..40 {
        let world = World::swarm(seed);
        let (a, b) = pair(&world);
        let random = Random::stream(seed, "faults", 0);
        let mut turmoil = Turmoil { world, random, a, b, calls: Vec::new() };
        for _ in 0..60 {
            turmoil.start_calls();
            turmoil.strike();
        }
        let Turmoil { world, a, b, .. } = &turmoil;
        world.heal_all();
        a.await_session("b");
        b.await_session("a");
        run(world, Duration::from_secs(20));
        assert_eq!(a.ask("b", attach(900_001), &[]).expect("an answer").0, attached(900_001));
        assert_eq!(b.ask("a", attach(900_002), &[]).expect("an answer").0, attached(900_002));
        assert_eq!((a.bus.unanswered(b.id()), b.bus.unanswered(a.id())), (0, 0));
        for (count, more) in counts.iter_mut().zip(turmoil.judge()) {
            *count += more;
        }
    }
    let [all, failed, unknown] = counts;
    assert!(failed > 500 && unknown > 20 && all - failed - unknown > 5000, "{counts:?}");
}

#[test]
fn what_is_no_welcome_is_not_waited_for() {
    let world = World::new(14);
    let mut header = Header::new(FrameKind::Answer, 1, 1, 1);
    header.payload_bytes = 1 << 20;
    let long = frame_of(header, &pattern(1, 1 << 20));
    answering(&world, move |_| long[..HEADER_BYTES].to_vec());
    let a = Node::start(&world, "a");
    a.dial(&world, "b");
    run(&world, Duration::from_secs(3));
    let hellos = a.bus.statistics().frames_sent;
    assert!(hellos > 4, "{hellos}: each connection is closed at once");
}
