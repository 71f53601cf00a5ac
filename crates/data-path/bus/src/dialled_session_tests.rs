//! Two nodes on two networks: their sessions have two paths each.

use std::net::SocketAddr;

use spandrel_platform::{Address, Listener};
use spandrel_platform_simulated::{DelayRange, World, WorldConfig};

use super::*;
use crate::BusConfig;
use crate::hello::{Hello, RefusalStatus};
use crate::test_support::raw::{frame_of, hello_of, receive_frame};
use crate::test_support::{Event, Node, Outcome, *};

/// A world with two networks, picked by `seed`.
fn world(seed: u64) -> World {
    let mut config = WorldConfig::swarm(seed);
    config.network.networks = 2;
    World::with_config(seed, config)
}

/// Where a node is reached on each network.
fn addresses_of(world: &World, name: &str) -> Vec<Address> {
    let host = world.host(name);
    (0..2).map(|network| Address::Tcp(SocketAddr::new(host.address(network), PORT))).collect()
}

/// The same with slow links.
fn slow_world(seed: u64) -> World {
    let mut config = WorldConfig::swarm(seed);
    config.network.networks = 2;
    config.network.bandwidth_bytes_per_second = Some(20_000_000);
    config.network.socket_buffer_bytes = 256 << 10;
    config.network.delay = DelayRange::microseconds(20, 200);
    World::with_config(seed, config)
}

/// Two nodes, `a` with a session to `b` over two paths.
fn two_paths(world: &World) -> (Node, Node) {
    let (a, b) = (Node::start(world, "a"), Node::start(world, "b"));
    a.dial_at("b", addresses_of(world, "b"));
    b.dial_at("a", addresses_of(world, "a"));
    a.await_session("b");
    b.await_session("a");
    run_until(world, || a.bus.paths(b.id()).len() == 2);
    (a, b)
}

fn all_attached(calls: &[Outcome], first: u64) -> bool {
    let expected = (first..).map(|number| Some(Ok(attached(number))));
    calls.iter().zip(expected).all(|(call, expected)| call.response() == expected)
}

/// The numbers of the requests that a node has begun, in this order, heartbeats left out.
fn begun(node: &Node) -> Vec<u64> {
    let log = node.service.log.borrow();
    check_log(&log);
    log.iter()
        .filter_map(|event| if let Event::Began(_, number) = event { Some(*number) } else { None })
        .collect()
}

#[test]
fn the_load_travels_on_both_paths() {
    let world = world(1);
    let (a, _b) = two_paths(&world);
    let bytes = pattern(3, 64 << 10);
    for _ in 0..40 {
        assert_eq!(a.ask("b", client_write(3), &bytes).map(|(response, _)| response), Ok(done()));
    }
    let carried: Vec<u64> = a.bus.paths(shard_id("b")).iter().map(|(_, bytes)| *bytes).collect();
    assert!(carried.iter().all(|bytes| *bytes >= 1 << 20), "{carried:?}");
}

/// Cuts one network in one direction or in both, with calls under way before and after it.
fn cut_a_network(seed: u64, forth: bool, back: bool) {
    let world = world(seed);
    let (a, b) = two_paths(&world);
    let session = a.bus.session(b.id());
    let (host_a, host_b) = (a.process.host(), b.process.host());
    let mut calls: Vec<_> = (1..=30).map(|number| a.start_call("b", attach(number), &[])).collect();
    let network = (seed % 2) as u8;
    if forth {
        world.cut_network(network, &host_a, &host_b);
    }
    if back {
        world.cut_network(network, &host_b, &host_a);
    }
    calls.extend((31..=60).map(|number| a.start_call("b", attach(number), &[])));
    let cut_at = a.process.platform().now();
    run_until(&world, || calls.iter().all(Outcome::is_there));
    let pause = a.process.platform().now().since(cut_at);
    assert!(pause < Duration::from_secs(1), "seed {seed}: {pause:?}");
    assert!(all_attached(&calls, 1), "seed {seed}");
    assert_eq!(begun(&b), (1..=60).collect::<Vec<_>>(), "seed {seed}");
    run(&world, Duration::from_secs(2));
    assert_eq!((a.bus.session(b.id()), a.bus.paths(b.id()).len()), (session, 1), "seed {seed}");
    assert_eq!(a.ask("b", attach(61), &[]).map(|(response, _)| response), Ok(attached(61)));
    world.heal(&host_a, &host_b);
    run_until(&world, || a.bus.paths(b.id()).len() == 2);
    assert_eq!(a.bus.session(b.id()), session);
    assert_eq!(a.ask("b", attach(62), &[]).map(|(response, _)| response), Ok(attached(62)));
}

#[test]
fn a_call_outlives_the_loss_of_a_path() {
    for seed in 0..30 {
        cut_a_network(seed, true, true);
    }
}

#[test]
fn a_path_that_works_in_one_direction_is_none() {
    for seed in 0..15 {
        cut_a_network(seed, true, false);
        cut_a_network(seed, false, true);
    }
}

#[test]
fn an_answer_that_was_lost_with_its_path_comes_on_another_and_nothing_is_served_twice() {
    for seed in 0..20 {
        let world = world(seed);
        let (a, b) = two_paths(&world);
        b.service.held.set(true);
        let calls: Vec<_> = (1..=20).map(|number| a.start_call("b", attach(number), &[])).collect();
        run_until(&world, || b.service.began() == 20);
        for network in 0..2 {
            // On one network the answers, on the other one nothing gets through: first one, then the other.
            let (host_a, host_b) = (a.process.host(), b.process.host());
            world.cut_network(network, &host_b, &host_a);
            if network == 0 {
                b.service.release();
                run(&world, Duration::from_secs(1));
                world.heal(&host_a, &host_b);
                run_until(&world, || a.bus.paths(b.id()).len() == 2);
            }
        }
        assert!(all_attached(&calls, 1), "seed {seed}");
        assert_eq!(begun(&b), (1..=20).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn paths_that_break_again_and_again_cost_no_call_and_no_order() {
    for seed in 0..40 {
        let world = world(seed);
        let (a, b) = two_paths(&world);
        let mut calls = Vec::new();
        for round in 0..20 {
            for _ in 0..10 {
                let number = calls.len() as u64 + 1;
                calls.push(a.start_call("b", client_write(number), &pattern(number, 30_000)));
            }
            run(&world, Duration::from_micros(round * 50));
            // Only while the other one is there: a session without any path is over.
            if a.bus.paths(b.id()).len() == 2 {
                a.bus.close_path(b.id(), (round % 2) as usize);
            }
            if round % 5 == 4 {
                run_until(&world, || a.bus.paths(b.id()).len() == 2);
            }
        }
        run_until(&world, || calls.iter().all(Outcome::is_there));
        assert!(calls.iter().all(|call| call.response() == Some(Ok(done()))), "seed {seed}");
        assert_eq!(begun(&b), (1..=200).collect::<Vec<_>>(), "seed {seed}");
        assert!(a.bus.statistics().paths_lost >= 4, "{:?}", a.bus.statistics());
    }
}

/// Calls wait for room on a path that takes nothing any more, until its connection breaks.
#[test]
fn calls_that_wait_for_room_on_a_path_that_breaks_go_on_elsewhere() {
    for seed in 0..20 {
        let world = world(seed);
        let config = BusConfig { queued_bytes_max: 64 << 10, ..BusConfig::default() };
        let (a, b) = (Node::start_with(&world, "a", cluster(), config), Node::start(&world, "b"));
        a.dial_at("b", addresses_of(&world, "b"));
        run_until(&world, || a.bus.paths(b.id()).len() == 2);
        let (host_a, host_b) = (a.process.host(), b.process.host());
        (0..2).for_each(|network| world.cut_network(network, &host_a, &host_b));
        let write = |number: u64| a.start_call("b", client_write(number), &pattern(number, 1 << 20));
        let calls: Vec<_> = (1..=60).map(write).collect();
        run(&world, Duration::from_millis(100));
        a.bus.close_path(b.id(), (seed % 2) as usize);
        run(&world, Duration::from_millis(10));
        world.heal(&host_a, &host_b);
        run_until(&world, || calls.iter().all(Outcome::is_there));
        assert!(calls.iter().all(|call| call.response() == Some(Ok(done()))), "seed {seed}");
        assert_eq!(begun(&b), (1..=60).collect::<Vec<_>>(), "seed {seed}");
    }
}

#[test]
fn without_any_path_the_session_is_over() {
    let world = world(9);
    let (a, b) = two_paths(&world);
    b.service.held.set(true);
    let call = a.start_call("b", attach(1), &[]);
    run_until(&world, || b.service.began() == 1);
    world.break_connections(&a.process.host(), &b.process.host());
    run_until(&world, || call.is_there());
    assert_eq!(call.response(), Some(Err(BusError::SessionLost)));
    b.service.release();
    a.await_session("b");
    assert_eq!(a.ask("b", attach(2), &[]).map(|(response, _)| response), Ok(attached(2)));
    check_log(&b.service.log.borrow());
}

#[test]
fn a_node_that_pauses_loses_no_path() {
    let world = world(10);
    let (a, b) = two_paths(&world);
    for _ in 0..5 {
        b.process.pause(Duration::from_millis(1400));
        run(&world, Duration::from_secs(3));
    }
    let statistics = a.bus.statistics();
    assert_eq!((statistics.paths_lost, statistics.sessions_dialled), (0, 1));
}

/// Nothing is answered, so that all is repeated when a path is lost: for longer than a path may be silent.
#[test]
fn a_path_that_is_busy_with_what_is_repeated_is_not_silent() {
    for seed in 0..8 {
        let world = slow_world(seed);
        let (a, b) = two_paths(&world);
        b.service.held.set(true);
        let write = |number: u64| a.start_call("b", client_write(number), &pattern(number, 2 << 20));
        let calls: Vec<_> = (1..=30).map(write).collect();
        run_until(&world, || b.service.began() == 30);
        a.bus.close_path(b.id(), (seed % 2) as usize);
        run(&world, Duration::from_secs(8));
        let statistics = a.bus.statistics();
        assert_eq!((statistics.paths_lost, a.bus.paths(b.id()).len()), (1, 2), "seed {seed}");
        assert!(statistics.requests_repeated > 5, "{statistics:?}");
        b.service.release();
        run_until(&world, || calls.iter().all(Outcome::is_there));
        assert!(calls.iter().all(|call| call.response() == Some(Ok(done()))), "seed {seed}");
        assert_eq!(begun(&b), (1..=30).collect::<Vec<_>>(), "seed {seed}");
    }
}

/// What is asked while much is repeated does not wait behind all of it.
#[test]
fn a_heartbeat_does_not_wait_behind_all_that_is_repeated() {
    for seed in 0..8 {
        let world = slow_world(seed);
        let config = BusConfig { queued_bytes_max: 1 << 20, ..BusConfig::default() };
        let (a, b) = (Node::start_with(&world, "a", cluster(), config), Node::start(&world, "b"));
        a.dial_at("b", addresses_of(&world, "b"));
        run_until(&world, || a.bus.paths(b.id()).len() == 2);
        b.service.held.set(true);
        let write = |number: u64| a.start_call("b", client_write(number), &pattern(number, 1 << 20));
        let calls: Vec<_> = (1..=40).map(write).collect();
        run_until(&world, || b.service.began() == 40);
        // The other one takes all that is repeated.
        world.cut_network(1, &a.process.host(), &b.process.host());
        run_until(&world, || a.bus.paths(b.id()).len() == 1);
        let asked_at = a.process.platform().now();
        let number = 1000;
        let heartbeat = BusRequest::Heartbeat(crate::Heartbeat { number, ..crate::Heartbeat::default() });
        let heartbeat = a.start_call("b", heartbeat, &[]);
        run_until(&world, || heartbeat.is_there());
        let took = a.process.platform().now().since(asked_at);
        assert!(took < Duration::from_millis(300), "seed {seed}: {took:?}");
        b.service.release();
        run_until(&world, || calls.iter().all(Outcome::is_there));
        assert!(calls.iter().all(|call| call.response() == Some(Ok(done()))), "seed {seed}");
    }
}

/// A process that welcomes the first path of each session and answers further ones with a refusal.
fn refusing(world: &World, status: RefusalStatus) {
    let process = world.process("b");
    let platform = process.platform();
    let everywhere = Address::Tcp(([0, 0, 0, 0], PORT).into());
    let listener = platform.listen(&everywhere).expect("the port is free");
    process.spawn(async move {
        while let Ok(connection) = listener.accept().await {
            let platform = platform.clone();
            platform.clone().spawn(async move {
                let mut frames = FrameReceiver::new(&platform, connection.clone());
                while let Ok((header, body, _)) = receive_frame(&mut frames).await {
                    let joins =
                        header.kind == FrameKind::Hello && Hello::decode(&body).expect("whole").path > 0;
                    let kind = if joins { FrameKind::Refusal } else { FrameKind::Welcome };
                    let mut answer = Header::new(kind, 1, header.session, 0);
                    if joins {
                        answer.status = status as u8;
                    }
                    if header.kind == FrameKind::Hello {
                        connection.send(&frame_of(answer, &hello_of("b", 1, "a").encode()), &[]);
                    }
                }
            });
        }
    });
}

#[test]
fn a_session_that_is_over_on_the_other_side_ends() {
    for (status, ends) in [(RefusalStatus::SessionOver, true), (RefusalStatus::Path, false)] {
        let world = world(11);
        refusing(&world, status);
        let a = Node::start(&world, "a");
        a.dial_at("b", addresses_of(&world, "b"));
        a.await_session("b");
        let session = a.bus.session(shard_id("b"));
        let call = a.start_call("b", attach(1), &[]);
        run(&world, Duration::from_secs(1));
        assert_eq!(call.is_there(), ends, "{status:?}");
        assert_eq!(a.bus.session(shard_id("b")) != session, ends, "{status:?}");
    }
}
