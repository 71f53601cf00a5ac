use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use spandrel_platform::{Address, Listener, Platform};

use super::*;
use crate::{DelayRange, Host, Process, RunEnd, SimulatedListener, World, WorldConfig};

const PORT: u16 = 7000;

fn config() -> WorldConfig {
    let mut config = WorldConfig { timer_slack_max: Duration::ZERO, ..WorldConfig::default() };
    config.clock_drift_ppm_max = 0;
    config.network.delay = DelayRange::microseconds(100, 100);
    config.network.split_per_mille = 0;
    config
}

fn address_of(host: &Host) -> Address {
    Address::Tcp(SocketAddr::new(host.address(0), PORT))
}

/// A server and a client with one connection.
struct Pair {
    world: World,
    server: Process,
    client: Process,
    listener: Rc<SimulatedListener>,
    near: SimulatedConnection,
    far: SimulatedConnection,
}

impl Pair {
    fn new(seed: u64, config: WorldConfig) -> Self {
        let world = World::with_config(seed, config);
        let (server, client) = (world.process("server"), world.process("client"));
        let address = address_of(&server.host());
        let listener = Rc::new(server.platform().listen(&address).expect("the port is free"));
        let near = connect(&client, &address).expect("somebody listens");
        let far = accept(&server, &listener);
        Self { world, server, client, listener, near, far }
    }

    fn run(&self, time: Duration) {
        let end = self.world.run_for(time);
        assert_eq!(end, RunEnd::TimeOver);
    }
}

fn connect(process: &Process, address: &Address) -> Result<SimulatedConnection, LinkError> {
    let (platform, address) = (process.platform(), address.clone());
    process.block_on(async move { platform.connect(&address).await }).expect("it ends")
}

fn accept(process: &Process, listener: &Rc<SimulatedListener>) -> SimulatedConnection {
    let listener = Rc::clone(listener);
    let accepted = process.block_on(async move { listener.accept().await });
    accepted.expect("one arrives").expect("a connection")
}

/// One receive; `Err(None)` if the world has nothing left to do before it returns.
fn receive(process: &Process, connection: &SimulatedConnection) -> Result<Vec<u8>, Option<LinkError>> {
    let connection = connection.clone();
    let received = process.block_on(async move {
        let mut bytes = vec![0; 100_000];
        let count = connection.receive(&mut bytes).await?;
        bytes.truncate(count);
        Ok(bytes)
    });
    received.map_err(|_| None)?.map_err(Some)
}

/// Receives until the end, whichever it is.
fn receive_all(process: &Process, connection: &SimulatedConnection) -> (Vec<u8>, Option<LinkError>) {
    let mut all = Vec::new();
    loop {
        match receive(process, connection) {
            Ok(bytes) if bytes.is_empty() => return (all, None),
            Ok(bytes) => all.extend(bytes),
            Err(error) => return (all, Some(error.expect("the connection ends"))),
        }
    }
}

fn is_closed(result: Result<Vec<u8>, Option<LinkError>>) -> bool {
    matches!(result, Err(Some(LinkError::Closed(_))))
}

fn numbered(count: usize) -> Vec<u8> {
    (0..count).map(|index| (index * 31 % 251) as u8).collect()
}

#[test]
fn bytes_arrive_in_order_after_the_delay() {
    let pair = Pair::new(1, config());
    let before = pair.world.now();
    let buffer = pair.client.platform().buffers().copy_of(b" and a body").freeze();
    pair.near.send(b"a head", &[buffer.slice(0..4), buffer.slice(4..11)]);
    assert_eq!(receive(&pair.server, &pair.far), Ok(b"a head and a body".to_vec()));
    assert_eq!(pair.world.now() - before, Duration::from_micros(100));
    pair.far.send(b"back", &[]);
    assert_eq!(receive(&pair.client, &pair.near), Ok(b"back".to_vec()));
    assert!(pair.near.peer().starts_with("10.0.0.1:7000") && pair.far.peer().starts_with("10.0.0.2:"));
}

#[test]
fn what_all_tasks_queue_in_a_turn_leaves_together_at_its_end() {
    let pair = Pair::new(1, config());
    let queued = Rc::new(RefCell::new(Vec::new()));
    for word in ["one ", "two ", "three"] {
        let (near, queued) = (pair.near.clone(), Rc::clone(&queued));
        pair.client.spawn(async move {
            near.send(word.as_bytes(), &[]);
            queued.borrow_mut().push(near.queued_bytes());
        });
    }
    assert_eq!(receive(&pair.server, &pair.far), Ok(b"one two three".to_vec()));
    assert_eq!((queued.take(), pair.near.queued_bytes()), (vec![4, 8, 13], 0));
}

#[test]
fn receivers_get_pieces_of_any_size_and_lose_nothing() {
    let mut lengths = BTreeSet::new();
    for seed in 0..10 {
        let mut config = WorldConfig::swarm(seed);
        config.network.split_per_mille = 500;
        let pair = Pair::new(seed, config);
        let sent = numbered(3000);
        let (near, bytes) = (pair.near.clone(), sent.clone());
        let platform = pair.client.platform();
        pair.client.spawn(async move {
            for part in bytes.chunks(100) {
                near.send(part, &[]);
                platform.sleep(Duration::from_micros(platform.random_u64() % 100)).await;
            }
            near.close();
        });
        let mut received = Vec::new();
        loop {
            let bytes = receive(&pair.server, &pair.far).expect("no fault is injected");
            if bytes.is_empty() {
                break;
            }
            lengths.insert(bytes.len());
            received.extend(bytes);
        }
        assert!(received == sent, "seed {seed}");
    }
    assert!(lengths.len() > 50, "{lengths:?}");
}

#[test]
fn what_leaves_in_one_turn_may_arrive_at_different_times() {
    let mut split = 0;
    for seed in 0..40 {
        let mut config = config();
        config.network.split_per_mille = 500;
        config.network.delay = DelayRange::microseconds(10, 1000);
        let pair = Pair::new(seed, config);
        pair.near.send(&numbered(100), &[]);
        let first = receive(&pair.server, &pair.far).expect("bytes").len();
        let before = pair.world.now();
        let mut received = first;
        while received < 100 {
            received += receive(&pair.server, &pair.far).expect("bytes").len();
        }
        split += usize::from(pair.world.now() > before);
    }
    assert!((5..35).contains(&split), "{split} of 40");
}

#[test]
fn a_receive_may_return_less_than_has_arrived() {
    let mut partial = 0;
    for seed in 0..40 {
        let mut config = config();
        config.network.split_per_mille = 500;
        let pair = Pair::new(seed, config);
        pair.near.send(&numbered(100), &[]);
        pair.run(Duration::from_millis(10));
        partial += usize::from(receive(&pair.server, &pair.far).expect("bytes").len() < 100);
    }
    assert!((5..35).contains(&partial), "{partial} of 40");
}

#[test]
fn two_connections_may_overtake_each_other_and_one_never_does() {
    let mut orders = BTreeSet::new();
    for seed in 0..30 {
        let mut config = config();
        config.network.delay = DelayRange::microseconds(10, 1000);
        let pair = Pair::new(seed, config);
        let second = connect(&pair.client, &address_of(&pair.server.host())).expect("somebody listens");
        let second_far = accept(&pair.server, &pair.listener);
        let order = Rc::new(RefCell::new(String::new()));
        for far in [pair.far.clone(), second_far] {
            let order = Rc::clone(&order);
            pair.server.spawn(async move {
                let mut byte = [0];
                while let Ok(1) = far.receive(&mut byte).await {
                    order.borrow_mut().push(byte[0].into());
                }
            });
        }
        for (connection, letters) in [(&pair.near, ["a", "b"]), (&second, ["x", "y"])] {
            for letter in letters {
                connection.send(letter.as_bytes(), &[]);
                pair.run(Duration::ZERO);
            }
        }
        assert_eq!(pair.world.run_until(|| order.borrow().len() == 4), RunEnd::ConditionMet);
        let order = order.take();
        assert!(order.find('a') < order.find('b') && order.find('x') < order.find('y'), "{order}");
        orders.insert(order);
    }
    assert!(orders.len() >= 5, "{orders:?}");
}

#[test]
fn a_receiver_that_does_not_read_fills_the_senders_queue() {
    let mut config = config();
    config.network.socket_buffer_bytes = 1000;
    let pair = Pair::new(1, config);
    let sent = numbered(2500);
    pair.near.send(&sent, &[]);
    pair.run(Duration::from_millis(10));
    assert_eq!(pair.near.queued_bytes(), 1500);
    let roomy = Rc::new(Cell::new(false));
    let (near, told) = (pair.near.clone(), Rc::clone(&roomy));
    pair.client.spawn(async move {
        near.send_room(600).await.expect("the connection is open");
        told.set(true);
    });
    pair.run(Duration::from_millis(10));
    assert!(!roomy.get());
    let mut received = receive(&pair.server, &pair.far).expect("bytes");
    assert_eq!(received.len(), 1000);
    pair.run(Duration::from_millis(10));
    assert!(roomy.get(), "500 bytes are left");
    while received.len() < 2500 {
        received.extend(receive(&pair.server, &pair.far).expect("bytes"));
    }
    assert!(received == sent);
    assert_eq!(pair.near.queued_bytes(), 0);
}

#[test]
fn bandwidth_delays_what_follows() {
    let mut config = config();
    config.network.bandwidth_bytes_per_second = Some(1_000_000);
    let pair = Pair::new(1, config);
    let before = pair.world.now();
    pair.near.send(&[1; 1000], &[]);
    pair.run(Duration::ZERO);
    pair.near.send(&[2; 1000], &[]);
    assert_eq!(receive(&pair.server, &pair.far).map(|bytes| bytes.len()), Ok(1000));
    assert_eq!(pair.world.now() - before, Duration::from_micros(1100));
    assert_eq!(receive(&pair.server, &pair.far).map(|bytes| bytes.len()), Ok(1000));
    assert_eq!(pair.world.now() - before, Duration::from_micros(2100));
}

#[test]
fn closing_delivers_what_was_sent_and_then_the_end() {
    let pair = Pair::new(1, config());
    pair.near.send(b"last words", &[]);
    pair.near.close();
    assert!(is_closed(receive(&pair.client, &pair.near)), "closed on this side");
    pair.near.send(b"too late", &[]);
    assert_eq!(receive(&pair.server, &pair.far), Ok(b"last words".to_vec()));
    assert_eq!(receive(&pair.server, &pair.far), Ok(Vec::new()));
    assert_eq!(receive(&pair.server, &pair.far), Ok(Vec::new()), "the end stays the end");
    pair.far.send(b"anybody there?", &[]);
    pair.run(Duration::from_millis(10));
    assert!(is_closed(receive(&pair.server, &pair.far)), "the answer to that was a reset");
}

#[test]
fn dropping_the_last_handle_closes() {
    let pair = Pair::new(1, config());
    let clone = pair.near.clone();
    drop(pair.near);
    clone.send(b"x", &[]);
    assert_eq!(receive(&pair.server, &pair.far), Ok(b"x".to_vec()));
    drop(clone);
    assert_eq!(receive(&pair.server, &pair.far), Ok(Vec::new()));
}

#[test]
fn closing_with_bytes_unread_breaks_the_connection() {
    let pair = Pair::new(1, config());
    pair.far.send(b"unread", &[]);
    pair.run(Duration::from_millis(1));
    pair.near.close();
    assert!(is_closed(receive(&pair.server, &pair.far)));
}

#[test]
fn closing_sends_no_more_than_there_is_room_for() {
    let mut config = config();
    config.network.socket_buffer_bytes = 1000;
    let pair = Pair::new(1, config);
    pair.near.send(&[1; 5000], &[]);
    pair.near.close();
    let (received, error) = receive_all(&pair.server, &pair.far);
    assert_eq!((received.len(), error), (1000, None));
}

#[test]
fn nobody_listening_is_a_refusal_and_a_taken_port_an_error() {
    let pair = Pair::new(1, config());
    let elsewhere = Address::Tcp(SocketAddr::new(pair.server.host().address(0), PORT + 1));
    assert!(matches!(connect(&pair.client, &elsewhere), Err(LinkError::Refused(_))));
    let stranger = Address::Tcp(SocketAddr::from(([192, 168, 1, 1], PORT)));
    assert!(matches!(connect(&pair.client, &stranger), Err(LinkError::Other(_))));
    let platform = pair.server.platform();
    let any = Address::Tcp(SocketAddr::from(([0, 0, 0, 0], PORT)));
    let loopback = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], PORT)));
    assert!(matches!(platform.listen(&any), Err(LinkError::AddressInUse(_))));
    let _local = platform.listen(&loopback).expect("another address of the host");
    assert!(matches!(pair.client.platform().listen(&elsewhere), Err(LinkError::Other(_))));
    drop(pair.listener);
    assert!(matches!(connect(&pair.client, &address_of(&pair.server.host())), Err(LinkError::Refused(_))));
}

#[test]
fn port_zero_is_any_free_port() {
    let world = World::with_config(1, config());
    let process = world.process("process");
    let zero = Address::Tcp(SocketAddr::from(([0, 0, 0, 0], 0)));
    let listeners: Vec<SimulatedListener> =
        (0..3).map(|_| process.platform().listen(&zero).expect("a port is free")).collect();
    let addresses: BTreeSet<Address> = listeners.iter().map(Listener::address).collect();
    assert_eq!(addresses.len(), 3);
    let Address::Tcp(socket) = listeners[1].address() else { panic!("it is a TCP address") };
    let loopback = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], socket.port())));
    assert!(connect(&process, &loopback).is_ok());
}

#[test]
fn a_unix_socket_is_known_only_on_its_host() {
    let world = World::with_config(1, config());
    let host = world.add_host("host");
    let (server, near) = (world.start_process_on(&host, "server"), world.start_process_on(&host, "near"));
    let far = world.process("far");
    let address = Address::Unix("/run/socket".to_owned());
    let listener = Rc::new(server.platform().listen(&address).expect("the path is free"));
    assert!(matches!(near.platform().listen(&address), Err(LinkError::AddressInUse(_))));
    assert!(matches!(connect(&far, &address), Err(LinkError::Refused(_))));
    let connection = connect(&near, &address).expect("somebody listens");
    let accepted = accept(&server, &listener);
    connection.send(b"hello", &[]);
    assert_eq!(receive(&server, &accepted), Ok(b"hello".to_vec()));
}

#[test]
fn a_listener_that_is_dropped_closes_whom_it_did_not_accept() {
    let pair = Pair::new(1, config());
    let waiting = connect(&pair.client, &address_of(&pair.server.host())).expect("somebody listens");
    drop(pair.listener);
    assert_eq!(receive(&pair.client, &waiting), Ok(Vec::new()));
}

#[test]
fn a_crash_ends_the_connection_after_the_delay_in_either_way() {
    let mut ends = BTreeSet::new();
    for seed in 0..40 {
        let pair = Pair::new(seed, config());
        let before = pair.world.now();
        pair.server.crash();
        let end = receive(&pair.client, &pair.near);
        assert_eq!(pair.world.now() - before, Duration::from_micros(100));
        assert!(end == Ok(Vec::new()) || is_closed(end.clone()), "{end:?}");
        ends.insert(is_closed(end));
        let address = address_of(&pair.server.host());
        assert!(matches!(connect(&pair.client, &address), Err(LinkError::Refused(_))));
        let next = pair.world.start_process("server");
        assert!(next.platform().listen(&address).is_ok(), "the address is free again");
    }
    assert_eq!(ends.len(), 2);
}

#[test]
fn a_crash_loses_the_queue_and_may_cut_what_is_on_its_way() {
    let mut lengths = BTreeSet::new();
    for seed in 0..100 {
        let pair = Pair::new(seed, config());
        let sent = numbered(500);
        pair.far.send(&sent, &[]);
        pair.run(Duration::from_micros(10));
        pair.far.send(b"never leaves", &[]);
        pair.server.crash();
        let (received, error) = receive_all(&pair.client, &pair.near);
        assert!(sent.starts_with(&received), "some first part");
        assert!(error.is_some() || received.len() == 500, "an end in order comes after everything");
        lengths.insert(received.len());
    }
    assert!(lengths.contains(&500) && lengths.len() > 10, "{lengths:?}");
}

#[test]
fn what_a_turn_queued_before_its_process_crashed_never_leaves() {
    for seed in 0..20 {
        let pair = Pair::new(seed, config());
        let (own, far) = (pair.server.clone(), pair.far.clone());
        pair.server.spawn(async move {
            far.send(b"before", &[]);
            own.crash();
            far.send(b"after", &[]);
        });
        assert_eq!(receive_all(&pair.client, &pair.near).0, b"");
    }
}

#[test]
fn a_process_that_is_about_to_end_closes_nothing_in_order() {
    let mut ends = BTreeSet::new();
    for seed in 0..40 {
        let pair = Pair::new(seed, config());
        let (own, far) = (pair.server.clone(), pair.far.clone());
        pair.server.spawn(async move {
            own.crash();
            far.close();
        });
        ends.insert(receive_all(&pair.client, &pair.near).1.is_some());
    }
    assert_eq!(ends.len(), 2, "it ends as by any crash");
}

#[test]
fn a_crash_takes_nothing_back_from_a_connection_that_was_closed() {
    for seed in 0..40 {
        let pair = Pair::new(seed, config());
        pair.far.send(b"all of it", &[]);
        pair.far.close();
        pair.server.crash();
        assert_eq!(receive_all(&pair.client, &pair.near), (b"all of it".to_vec(), None));
        assert_eq!(receive(&pair.client, &pair.near), Ok(Vec::new()));
    }
}

#[test]
fn the_listener_of_a_former_incarnation_does_not_stop_the_next() {
    let pair = Pair::new(1, config());
    pair.server.crash();
    let next = pair.world.start_process("server");
    let address = address_of(&next.host());
    let _listener = next.platform().listen(&address).expect("the address is free");
    drop(pair.listener);
    assert!(connect(&pair.client, &address).is_ok());
}

#[test]
fn a_crash_with_bytes_unread_breaks_the_connection() {
    for seed in 0..20 {
        let pair = Pair::new(seed, config());
        pair.near.send(b"unread", &[]);
        pair.run(Duration::from_millis(1));
        pair.server.crash();
        assert!(is_closed(receive(&pair.client, &pair.near)));
    }
}

#[test]
fn a_host_without_power_is_silent_and_answers_with_a_reset_when_it_is_back() {
    let pair = Pair::new(1, config());
    let host = pair.server.host();
    pair.world.power_cut(&host);
    pair.near.send(b"hello?", &[]);
    assert_eq!(receive(&pair.client, &pair.near), Err(None), "nothing will ever be heard");
    let started = pair.client.platform().now();
    let attempt = connect(&pair.client, &address_of(&host));
    assert!(matches!(&attempt, Err(LinkError::Other(detail)) if detail.contains("timed out")), "{attempt:?}");
    assert_eq!(pair.client.platform().now().since(started), Duration::from_secs(3));
    pair.world.power_on(&host);
    assert!(is_closed(receive(&pair.client, &pair.near)));
    assert!(matches!(connect(&pair.client, &address_of(&host)), Err(LinkError::Refused(_))));
}

#[test]
fn an_idle_connection_to_a_host_that_was_gone_notices_only_when_it_sends() {
    let pair = Pair::new(1, config());
    let host = pair.server.host();
    pair.world.power_cut(&host);
    pair.world.power_on(&host);
    assert_eq!(receive(&pair.client, &pair.near), Err(None));
    pair.near.send(b"hello?", &[]);
    assert!(is_closed(receive(&pair.client, &pair.near)));
}

#[test]
fn a_sender_without_room_hears_of_the_reset_too() {
    let mut config = config();
    config.network.socket_buffer_bytes = 1000;
    let pair = Pair::new(1, config);
    pair.near.send(&[1; 3000], &[]);
    pair.run(Duration::from_millis(1));
    pair.server.host().power_cut();
    let near = pair.near.clone();
    let room = pair.client.block_on(async move { near.send_room(1).await });
    assert_eq!(room, Err(RunEnd::NothingToDo), "it waits for room that nobody gives");
    assert_eq!(pair.near.queued_bytes(), 2000);
    pair.server.host().power_on();
    let near = pair.near.clone();
    let room = pair.client.block_on(async move { near.send_room(1).await });
    assert!(matches!(room, Ok(Err(LinkError::Closed(_)))), "{room:?}");
    assert_eq!(pair.near.queued_bytes(), 0);
}

#[test]
fn a_cut_is_silence_and_a_healing_continues_where_it_was() {
    let pair = Pair::new(1, config());
    let (server, client) = (pair.server.host(), pair.client.host());
    pair.near.send(b"on its way, ", &[]);
    pair.run(Duration::from_micros(50));
    pair.world.cut(&client, &server);
    pair.near.send(b"sent while cut, ", &[]);
    pair.far.send(b"and back", &[]);
    assert_eq!(receive(&pair.server, &pair.far), Err(None));
    assert_eq!(receive(&pair.client, &pair.near), Err(None));
    let attempt = connect(&pair.client, &address_of(&server));
    assert!(matches!(attempt, Err(LinkError::Other(_))), "a connect finds silence: {attempt:?}");
    pair.world.heal(&client, &server);
    assert_eq!(receive(&pair.server, &pair.far), Ok(b"on its way, ".to_vec()));
    assert_eq!(receive(&pair.server, &pair.far), Ok(b"sent while cut, ".to_vec()));
    assert_eq!(receive(&pair.client, &pair.near), Ok(b"and back".to_vec()));
    pair.near.send(b"after", &[]);
    assert_eq!(receive(&pair.server, &pair.far), Ok(b"after".to_vec()));
}

#[test]
fn a_connect_goes_on_when_the_cut_heals_in_time() {
    let pair = Pair::new(1, config());
    let (server, client) = (pair.server.host(), pair.client.host());
    pair.world.cut_one_way(&server, &client);
    let (from, to) = (server.clone(), client.clone());
    pair.world.after(Duration::from_secs(2), move |world| world.heal_one_way(&from, &to));
    let started = pair.world.now();
    assert!(connect(&pair.client, &address_of(&server)).is_ok());
    assert!(pair.world.now() - started >= Duration::from_secs(2));
}

#[test]
fn an_attempt_that_was_given_up_reaches_the_listener_as_broken() {
    let pair = Pair::new(1, config());
    let (server, client) = (pair.server.host(), pair.client.host());
    pair.world.cut(&client, &server);
    assert!(connect(&pair.client, &address_of(&server)).is_err());
    pair.world.heal_all();
    let accepted = accept(&pair.server, &pair.listener);
    assert!(is_closed(receive(&pair.server, &accepted)));
}

#[test]
fn a_cut_one_way_lets_the_other_way_pass_until_the_buffers_are_full() {
    let mut config = config();
    config.network.socket_buffer_bytes = 1000;
    let pair = Pair::new(1, config);
    let (server, client) = (pair.server.host(), pair.client.host());
    pair.world.cut_one_way(&server, &client);
    let sent = numbered(2500);
    pair.near.send(&sent, &[]);
    pair.far.send(b"unheard", &[]);
    let mut received = receive(&pair.server, &pair.far).expect("this way works");
    assert_eq!(received.len(), 1000);
    assert_eq!(receive(&pair.server, &pair.far), Err(None), "no acknowledgement, no room");
    assert_eq!(receive(&pair.client, &pair.near), Err(None));
    pair.world.heal_one_way(&server, &client);
    while received.len() < 2500 {
        received.extend(receive(&pair.server, &pair.far).expect("it continues"));
    }
    assert!(received == sent);
    assert_eq!(receive(&pair.client, &pair.near), Ok(b"unheard".to_vec()));
}

#[test]
fn a_crash_behind_a_cut_is_heard_after_the_healing() {
    let pair = Pair::new(1, config());
    pair.world.cut(&pair.client.host(), &pair.server.host());
    pair.server.crash();
    assert_eq!(receive(&pair.client, &pair.near), Err(None));
    pair.world.heal_all();
    let end = receive(&pair.client, &pair.near);
    assert!(end == Ok(Vec::new()) || is_closed(end.clone()), "{end:?}");
}

#[test]
fn what_a_cut_held_back_is_lost_with_the_senders_power() {
    let pair = Pair::new(1, config());
    let (server, client) = (pair.server.host(), pair.client.host());
    pair.near.send(b"before", &[]);
    pair.run(Duration::from_micros(50));
    pair.world.cut(&client, &server);
    pair.run(Duration::from_millis(1));
    pair.near.send(b"while cut", &[]);
    pair.run(Duration::from_millis(1));
    client.power_cut();
    pair.world.heal_all();
    assert_eq!(receive(&pair.server, &pair.far), Err(None));
}

/// The kernel repeats what a dead process has sent, for as long as it has power.
#[test]
fn what_a_dead_process_sent_into_a_cut_is_lost_with_its_hosts_power() {
    for has_power in [true, false] {
        let pair = Pair::new(1, config());
        let (server, client) = (pair.server.host(), pair.client.host());
        pair.world.cut(&client, &server);
        pair.near.send(b"while cut", &[]);
        pair.run(Duration::from_millis(1));
        pair.client.crash();
        pair.run(Duration::from_millis(1));
        if !has_power {
            client.power_cut();
        }
        pair.world.heal_all();
        let is_heard = receive(&pair.server, &pair.far) != Err(None);
        assert_eq!(is_heard, has_power);
    }
}

/// A call that a cut holds back meets the process that runs when it arrives, and what that sends is no affair of the
/// power cut before.
#[test]
fn a_call_outlives_a_power_cut_of_the_host_that_it_is_on_its_way_to() {
    let world = World::with_config(1, config());
    let (server, client) = (world.process("server"), world.process("client"));
    let host = server.host();
    world.cut(&client.host(), &host);
    let (platform, address) = (client.platform(), address_of(&host));
    let called: Rc<RefCell<Option<_>>> = Rc::default();
    let slot = Rc::clone(&called);
    client.spawn(async move { *slot.borrow_mut() = platform.connect(&address).await.ok() });
    assert_eq!(world.run_for(Duration::from_millis(1)), RunEnd::TimeOver);
    host.power_cut();
    host.power_on();
    let server = world.start_process_on(&host, "server");
    let listener = server.platform().listen(&address_of(&host)).expect("it is free");
    world.heal_all();
    let far = accept(&server, &Rc::new(listener));
    assert_eq!(world.run_until(|| called.borrow().is_some()), RunEnd::ConditionMet);
    world.cut(&client.host(), &host);
    far.send(b"held back", &[]);
    assert_eq!(world.run_for(Duration::from_millis(1)), RunEnd::TimeOver);
    world.heal_all();
    let near = called.take().expect("it is connected");
    assert_eq!(receive(&client, &near), Ok(b"held back".to_vec()));
}

#[test]
fn what_is_on_a_cut_link_when_the_senders_power_goes_is_lost_too() {
    let pair = Pair::new(1, config());
    let (server, client) = (pair.server.host(), pair.client.host());
    pair.near.send(b"on its way", &[]);
    pair.run(Duration::from_micros(50));
    pair.world.cut(&client, &server);
    client.power_cut();
    pair.run(Duration::from_millis(1));
    pair.world.heal_all();
    assert_eq!(receive(&pair.server, &pair.far), Err(None));
}

#[test]
fn what_is_on_a_link_that_works_arrives_though_the_senders_power_is_gone() {
    let pair = Pair::new(1, config());
    pair.near.send(b"on its way", &[]);
    pair.run(Duration::from_micros(50));
    pair.client.host().power_cut();
    assert_eq!(receive(&pair.server, &pair.far), Ok(b"on its way".to_vec()));
    assert_eq!(receive(&pair.server, &pair.far), Err(None));
}

#[test]
fn isolation_cuts_one_host_from_all_others_and_healing_ends_it() {
    let world = World::with_config(1, config());
    let processes: Vec<Process> = ["a", "b", "c"].map(|name| world.process(name)).to_vec();
    let listeners: Vec<SimulatedListener> = processes
        .iter()
        .map(|process| process.platform().listen(&address_of(&process.host())).expect("it is free"))
        .collect();
    let reaches =
        |from: usize, to: usize| connect(&processes[from], &address_of(&processes[to].host())).is_ok();
    world.isolate(&processes[0].host());
    assert!(!reaches(0, 1) && !reaches(2, 0) && reaches(1, 2) && reaches(0, 0));
    world.heal_all();
    assert!(reaches(0, 1) && reaches(2, 0));
    drop(listeners);
}

#[test]
fn one_network_fails_and_the_other_carries_on() {
    let mut config = config();
    config.network.networks = 2;
    let world = World::with_config(1, config);
    let (server, client) = (world.process("server"), world.process("client"));
    let any = Address::Tcp(SocketAddr::from(([0, 0, 0, 0], PORT)));
    let _listener = server.platform().listen(&any).expect("the port is free");
    let address = |network| Address::Tcp(SocketAddr::new(server.host().address(network), PORT));
    world.cut_network(0, &client.host(), &server.host());
    assert!(connect(&client, &address(0)).is_err());
    assert!(connect(&client, &address(1)).is_ok());
    world.heal_network(0, &client.host(), &server.host());
    assert!(connect(&client, &address(0)).is_ok());
}

#[test]
fn a_break_is_seen_by_both_ends_at_once_and_may_cut_what_is_on_its_way() {
    let mut lengths = BTreeSet::new();
    for seed in 0..60 {
        let pair = Pair::new(seed, config());
        let sent = numbered(300);
        pair.near.send(&sent, &[]);
        pair.run(Duration::from_micros(10));
        let before = pair.world.now();
        assert_eq!(pair.world.break_connections(&pair.server.host(), &pair.client.host()), 1);
        assert!(is_closed(receive(&pair.client, &pair.near)));
        let (received, error) = receive_all(&pair.server, &pair.far);
        assert!(sent.starts_with(&received) && matches!(error, Some(LinkError::Closed(_))));
        assert_eq!(pair.world.now(), before);
        lengths.insert(received.len());
        pair.near.send(b"lost", &[]);
        assert_eq!(pair.near.queued_bytes(), 0, "nothing is queued for a broken connection");
        let again = connect(&pair.client, &address_of(&pair.server.host()));
        assert!(again.is_ok(), "only the connection is broken");
    }
    assert!(lengths.len() > 15, "{lengths:?}");
}

#[test]
fn a_break_behind_a_cut_delivers_nothing() {
    for seed in 0..20 {
        let pair = Pair::new(seed, config());
        pair.world.cut(&pair.client.host(), &pair.server.host());
        pair.near.send(&[1; 300], &[]);
        pair.run(Duration::from_millis(1));
        assert!(pair.world.break_random_connection());
        assert!(is_closed(receive(&pair.server, &pair.far)));
        pair.world.heal_all();
        pair.run(Duration::from_millis(1));
        assert!(is_closed(receive(&pair.server, &pair.far)));
    }
}

#[test]
fn there_is_nothing_to_break_within_a_host() {
    let world = World::with_config(1, config());
    let process = world.process("process");
    let address = Address::Unix("socket".to_owned());
    let _listener = process.platform().listen(&address).expect("the path is free");
    let _connection = connect(&process, &address).expect("it listens");
    assert!(!world.break_random_connection());
}

#[test]
fn a_link_may_be_slow() {
    let pair = Pair::new(1, config());
    let slow = DelayRange::microseconds(50_000, 50_000);
    pair.world.set_link_delay(&pair.client.host(), &pair.server.host(), slow);
    let before = pair.world.now();
    pair.near.send(b"x", &[]);
    assert!(receive(&pair.server, &pair.far).is_ok());
    assert_eq!(pair.world.now() - before, Duration::from_millis(50));
}

#[test]
fn a_paused_receiver_finds_what_arrived_meanwhile() {
    let pair = Pair::new(1, config());
    pair.server.pause_until_resumed();
    pair.near.send(b"one", &[]);
    pair.run(Duration::from_millis(1));
    pair.near.send(b"two", &[]);
    pair.run(Duration::from_millis(1));
    pair.server.resume();
    assert_eq!(receive(&pair.server, &pair.far), Ok(b"onetwo".to_vec()));
}

#[test]
fn what_a_paused_process_has_queued_leaves_when_it_resumes() {
    let pair = Pair::new(1, config());
    pair.server.pause_until_resumed();
    pair.far.send(b"queued", &[]);
    assert_eq!(receive(&pair.client, &pair.near), Err(None));
    pair.server.resume();
    assert_eq!(receive(&pair.client, &pair.near), Ok(b"queued".to_vec()));
}

#[test]
fn what_leaves_for_other_hosts_is_counted() {
    let pair = Pair::new(1, config());
    pair.near.send(b"abc", &[]);
    pair.near.send(b"de", &[]);
    pair.run(Duration::from_millis(1));
    pair.far.send(b"f", &[]);
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.world.network_counters(), NetworkCounters { sends: 2, bytes: 6 });
    let neighbour = pair.world.start_process_on(&pair.server.host(), "neighbour");
    let connection = connect(&neighbour, &address_of(&pair.server.host())).expect("somebody listens");
    connection.send(b"within", &[]);
    pair.run(Duration::from_millis(1));
    assert_eq!(pair.world.network_counters().bytes, 6, "what stays on a host is not counted");
}
