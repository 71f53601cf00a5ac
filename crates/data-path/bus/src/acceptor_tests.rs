use spandrel_platform_simulated::{Random, RunEnd, World};
use spandrel_shared::{ClusterId, Epoch};

use super::*;
use crate::accepted_session::REQUESTS_EXTRA;
use crate::calls::sequence_of;
use crate::frame::{PAYLOAD_BYTES_MAX, Status};
use crate::test_support::raw::*;
use crate::test_support::warnings::warnings_of;
use crate::test_support::{Event, *};
use crate::{BusConfig, BusRequest, BusResponse, ClientRequest};

/// A node that serves, and a peer that speaks by hand and has a session with it.
fn raw_session(world: &World) -> (Node, RawPeer) {
    let node = Node::start(world, "a");
    let peer = RawPeer::connect(world, "r", "a");
    assert_eq!(peer.greet(&hello_of("r", 1, "a"), 1).kind, FrameKind::Welcome);
    (node, peer)
}

/// Asserts that the node is as good as new for everybody else.
fn assert_unharmed(world: &World, node: &Node) {
    let other = Node::start(world, "z");
    other.dial(world, "a");
    other.await_session("a");
    assert_eq!(other.ask("a", attach(4_000_000), &[]).expect("an answer").0, attached(4_000_000));
    other.process.crash();
    check_log(&node.service.log.borrow());
}

#[test]
fn hellos_that_cannot_become_a_session_are_refused_in_words() {
    let world = World::new(1);
    let node = Node::start(&world, "a");
    let mut other_cluster = hello_of("r", 1, "a");
    other_cluster.cluster = ClusterId::from_bytes([2; 16]);
    let mut newer = hello_of("r", 1, "a");
    (newer.version_min, newer.version_max) = (2, 7);
    let mut needs_more = hello_of("r", 1, "a");
    needs_more.incompatible_features = 1 << 40;
    let cases = [
        (other_cluster, RefusalStatus::Cluster, "belongs to cluster 02020202-"),
        (hello_of("r", 1, "b"), RefusalStatus::Node, "meant to reach node 62404040-"),
        (hello_of("a", 1, "a"), RefusalStatus::Node, "both sides are node 61404040-"),
        (newer, RefusalStatus::Version, "speaks versions 2 to 7 of the bus protocol"),
        (needs_more, RefusalStatus::Features, "lacks (bits 0x10000000000)"),
    ];
    for (hello, status, words) in cases {
        let peer = RawPeer::connect(&world, "r", "a");
        peer.send(&hello_frame(&hello, 1));
        let (header, body, _) = peer.receive().expect("an answer");
        assert_eq!((header.kind, header.status), (FrameKind::Refusal, status as u8));
        let reason = String::from_utf8(body).expect("words");
        assert!(reason.contains(words), "{reason}");
        assert_eq!(peer.receive().err(), Some(Ending::Closed));
    }
    assert_eq!(node.bus.statistics().hellos_refused, 5);
    assert_unharmed(&world, &node);
}

#[test]
fn who_has_proven_who_he_is_must_be_that_and_be_known() {
    let world = World::new(1);
    let node = Node::start(&world, "a");
    world.host("r").prove_name(&shard_id("b").to_string());
    let greet = || {
        let peer = RawPeer::connect(&world, "r", "a");
        peer.send(&hello_frame(&hello_of("r", 1, "a"), 1));
        let (header, body, _) = peer.receive().expect("an answer");
        (header.kind, String::from_utf8_lossy(&body).into_owned())
    };
    let (kind, reason) = greet();
    assert_eq!(kind, FrameKind::Refusal);
    assert!(reason.contains("has the certificate of 62404040-"), "{reason}");
    world.host("r").prove_name(&shard_id("r").to_string());
    // Its certificate is right, and it was never admitted, or has been removed.
    let (kind, reason) = greet();
    assert_eq!(kind, FrameKind::Refusal);
    assert!(reason.contains("does not know node") && reason.contains("let in when"), "{reason}");
    node.dial(&world, "r");
    assert_eq!(greet().0, FrameKind::Welcome);
}

#[test]
fn a_peer_may_speak_more_versions_and_say_more_than_is_known() {
    let world = World::new(1);
    let _node = Node::start(&world, "a");
    let mut hello = hello_of("r", 1, "a");
    hello.version_max = 9;
    hello.compatible_features = u64::MAX;
    let mut body = hello.encode();
    body.extend([0x77; 100]);
    let peer = RawPeer::connect(&world, "r", "a");
    peer.send(&frame_of(Header::new(FrameKind::Hello, 1, 1, 0), &body));
    let (header, _, _) = peer.receive().expect("an answer");
    assert_eq!((header.kind, header.version, header.session), (FrameKind::Welcome, 1, 1));
    peer.send(&request_frame(1, 1, &attach(5), &[]));
    let (header, body, _) = peer.receive().expect("an answer");
    assert_eq!((header.kind, header.status, header.sequence), (FrameKind::Answer, 0, sequence_of(1, 1)));
    assert_eq!(postcard::from_bytes::<BusResponse>(&body), Ok(attached(5)));
}

#[test]
fn what_was_not_begun_when_a_session_ended_is_dropped() {
    let world = World::new(2);
    let config = BusConfig { requests_max: 4, ..BusConfig::default() };
    let node = Node::start_with(&world, "a", cluster(), config);
    node.service.held.set(true);
    let first = RawPeer::connect(&world, "r", "a");
    first.greet(&hello_of("r", 1, "a"), 1);
    for number in 1..=300 {
        first.send(&request_frame(1, number, &attach(number), &[]));
    }
    let admitted = 4 + REQUESTS_EXTRA;
    run_until(&world, || node.service.began() == admitted);
    let second = RawPeer::connect(&world, "r", "a");
    second.send(&hello_frame(&hello_of("r", 1, "a"), 2));
    second.send(&request_frame(2, 1, &attach(1000), &[]));
    run(&world, Duration::from_secs(1));
    assert_eq!(node.service.began(), admitted);
    node.service.release();
    assert_eq!(second.receive().expect("an answer").0.kind, FrameKind::Welcome);
    let (header, body, _) = second.receive().expect("an answer");
    assert_eq!((header.session, header.sequence), (2, sequence_of(1, 1)));
    assert_eq!(postcard::from_bytes::<BusResponse>(&body), Ok(attached(1000)));
    run(&world, Duration::from_secs(1));
    assert_eq!(node.service.began(), admitted + 1);
    check_log(&node.service.log.borrow());
    assert!(first.receive().is_err(), "no answer of the old session is sent");
}

#[test]
fn a_request_that_came_with_the_end_of_its_session_is_not_begun() {
    for seed in 0..20 {
        let world = World::new(seed);
        let (node, first) = raw_session(&world);
        let second = RawPeer::connect(&world, "r", "a");
        run(&world, Duration::from_millis(1));
        // Both arrive while the node stands still, so that it finds them in one turn.
        node.process.pause_until_resumed();
        first.send(&request_frame(1, 1, &attach(1), &[]));
        second.send(&hello_frame(&hello_of("r", 1, "a"), 2));
        run(&world, Duration::from_millis(10));
        node.process.resume();
        assert_eq!(second.receive().expect("an answer").0.kind, FrameKind::Welcome);
        run(&world, Duration::from_millis(10));
        assert_eq!(node.service.began(), 0, "seed {seed}");
    }
}

#[test]
fn of_several_new_sessions_that_wait_only_the_newest_is_welcomed() {
    let world = World::new(3);
    let node = Node::start(&world, "a");
    node.service.held.set(true);
    let first = RawPeer::connect(&world, "r", "a");
    first.greet(&hello_of("r", 1, "a"), 5);
    first.send(&request_frame(5, 1, &attach(1), &[]));
    run_until(&world, || node.service.began() == 1);
    let waiting = RawPeer::connect(&world, "r", "a");
    waiting.send(&hello_frame(&hello_of("r", 1, "a"), 6));
    run(&world, Duration::from_millis(10));
    let newest = RawPeer::connect(&world, "r", "a");
    newest.send(&hello_frame(&hello_of("r", 1, "a"), 8));
    let refused = |peer: &RawPeer| {
        let (header, ..) = peer.receive().expect("an answer");
        (header.kind, header.status) == (FrameKind::Refusal, RefusalStatus::Superseded as u8)
    };
    assert!(refused(&waiting));
    for late in [5, 7, 8] {
        let peer = RawPeer::connect(&world, "r", "a");
        peer.send(&hello_frame(&hello_of("r", 1, "a"), late));
        assert!(refused(&peer), "session {late} is no newer one");
    }
    node.service.release();
    assert_eq!(newest.receive().expect("an answer").0.kind, FrameKind::Welcome);
    // Another run of the process begins to count anew.
    let successor = RawPeer::connect(&world, "r", "a");
    assert_eq!(successor.greet(&hello_of("r", 2, "a"), 1).kind, FrameKind::Welcome);
}

#[test]
fn a_connection_that_says_nothing_is_closed_and_cannot_keep_others_out() {
    let world = World::new(4);
    let config = BusConfig { hellos_max: 3, ..BusConfig::default() };
    let node = Node::start_with(&world, "a", cluster(), config);
    let silent: Vec<_> = (0..3).map(|_| RawPeer::connect(&world, "r", "a")).collect();
    run(&world, Duration::from_millis(1));
    let before = world.now();
    let fourth = RawPeer::connect(&world, "r", "a");
    assert_eq!(fourth.greet(&hello_of("r", 1, "a"), 1).kind, FrameKind::Welcome, "it gets through");
    assert_eq!(silent[0].receive().err(), Some(Ending::Closed), "the oldest had to go");
    assert!(world.now() - before < Duration::from_secs(1));
    for peer in &silent[1..] {
        assert_eq!(peer.receive().err(), Some(Ending::Closed));
    }
    assert!(world.now() - before > Duration::from_secs(4));
    drop(fourth);
    assert_unharmed(&world, &node);
}

#[test]
fn requests_that_are_not_served_are_answered_and_leave_the_session_whole() {
    let world = World::new(5);
    let (node, peer) = raw_session(&world);
    let status_of = |bytes: &[u8]| {
        peer.send(bytes);
        let (header, body, payload) = peer.receive().expect("an answer");
        assert!(header.kind == FrameKind::Answer && body.is_empty() && payload.is_empty());
        header.status
    };
    let unknown = frame_of(Header::new(FrameKind::Request, 1, 1, sequence_of(1, 1)), &[250, 1, 2, 3]);
    assert_eq!(status_of(&unknown), Status::NotUnderstood as u8);
    // A later program may have added a field at the end.
    let mut longer = postcard::to_allocvec(&attach(1)).expect("it is short");
    longer.push(0);
    let longer = frame_of(request_header(1, 2, &attach(1)), &longer);
    assert_eq!(status_of(&longer), Status::NotUnderstood as u8);
    assert_eq!(status_of(&request_frame(1, 3, &copy_read(0, u32::MAX), &[])), Status::TooLarge as u8);
    let mut damaged = request_frame(1, 4, &client_write(1), &pattern(1, 5000));
    *damaged.last_mut().expect("it has a payload") ^= 1;
    assert_eq!(status_of(&damaged), Status::PayloadDamaged as u8);
    let (write, blocks) = copy_write(0, 2);
    let short = request_frame(1, 5, &write, &blocks[..4096]);
    assert_eq!(status_of(&short), Status::PayloadDamaged as u8);
    assert_eq!(node.service.began(), 0);
    peer.send(&request_frame(1, 6, &write, &blocks));
    assert_eq!(peer.receive().expect("an answer").0.status, Status::Answered as u8);
    assert_eq!(node.service.began(), 1);
}

#[test]
fn frames_that_break_the_protocol_end_the_session_with_one_warning() {
    let good = request_frame(1, 1, &attach(1), &[]);
    let mut other_magic = good.clone();
    other_magic[0] ^= 0x20;
    let mut other_header = good.clone();
    other_header[20] ^= 1;
    let mut other_body = good.clone();
    *other_body.last_mut().expect("it has a body") ^= 1;
    let mut header = request_header(1, 1, &attach(1));
    header.subject.volume = spandrel_shared::VolumeId::from_bytes([8; 16]);
    let other_subject = frame_of(header, &postcard::to_allocvec(&attach(1)).expect("it is short"));
    let mut other_version = request_header(1, 1, &attach(1));
    other_version.version = 2;
    let other_version = frame_of(other_version, &postcard::to_allocvec(&attach(1)).expect("it is short"));
    let mut long_payload = request_header(1, 1, &attach(1));
    long_payload.payload_bytes = PAYLOAD_BYTES_MAX + 1;
    let cases = [
        other_magic,
        other_header,
        other_body,
        other_subject,
        other_version,
        frame_of(long_payload, &[]),
        request_frame(2, 1, &attach(1), &[]),
        request_frame(1, 0, &attach(1), &[]),
        request_frame(1, 2, &attach(1), &[]),
        frame_of(Header::new(FrameKind::Pong, 1, 1, 0), &[]),
        [good.clone(), good.clone()].concat(),
        hello_frame(&hello_of("r", 1, "a"), 2),
        frame_of(Header::new(FrameKind::Answer, 1, 1, 1), &[]),
        frame_of(Header::new(FrameKind::Welcome, 1, 1, 1), &hello_of("r", 1, "a").encode()),
        b"GET / HTTP/1.1\r\nHost: somewhere\r\nAccept: */*\r\n\r\n".repeat(3),
    ];
    for (number, bytes) in cases.iter().enumerate() {
        let world = World::new(number as u64);
        let warnings = warnings_of(|| {
            let (node, peer) = raw_session(&world);
            peer.send(bytes);
            while let Ok((header, ..)) = peer.receive() {
                assert!(bytes.len() > good.len() && header.sequence == sequence_of(1, 1), "case {number}");
            }
            assert_eq!(node.bus.statistics().connections_malformed, 1, "case {number}");
            let over = node.service.log.borrow().iter().any(|event| matches!(event, Event::SessionEnded(_)));
            assert!(over, "case {number}");
            assert_unharmed(&world, &node);
        });
        assert_eq!(warnings, 1, "case {number}");
    }
}

/// A valid stream: a hello and requests of all sorts.
fn valid_stream(random: &Random) -> Vec<u8> {
    let mut stream = hello_frame(&hello_of("r", 1, "a"), 1);
    for sequence in 1..=12 {
        let (request, payload) = match random.index(5) {
            0 => (client_write(sequence), pattern(sequence, random.index(6000))),
            1 => copy_write(random.index(50) as u32, 1 + random.index(3) as u32),
            2 => (copy_read(random.index(50) as u32, 1 + random.index(9) as u32), Vec::new()),
            3 => (attach(sequence), Vec::new()),
            _ => (client_read(sequence, random.index(9000) as u32), Vec::new()),
        };
        stream.extend(request_frame(1, sequence, &request, &payload));
    }
    stream
}

/// Changes a stream as a broken or evil peer might.
fn mutate(stream: &mut Vec<u8>, random: &Random) {
    for _ in 0..=random.index(3) {
        if stream.is_empty() {
            return;
        }
        let position = random.index(stream.len());
        let length = random.index(200).min(stream.len() - position);
        match random.index(6) {
            0 => stream[position] ^= 1 << random.index(8),
            1 => stream.truncate(position),
            2 => drop(stream.drain(position..position + length)),
            3 => {
                let part = stream[position..position + length].to_vec();
                let at = random.index(stream.len());
                stream.splice(at..at, part);
            }
            4 => stream[position..position + length].fill_with(|| random.next_u64() as u8),
            _ => {
                // Lengths and numbers at their ends.
                let word = [0, 1, u32::MAX, u32::MAX / 2, 1 << 20, 33 << 20][random.index(6)];
                let end = (position + 4).min(stream.len());
                stream[position..end].copy_from_slice(&u32::to_le_bytes(word)[..end - position]);
            }
        }
    }
}

#[test]
fn mutations_of_a_valid_stream_and_random_bytes_harm_nobody() {
    let mut served = 0;
    let mut ended = 0;
    for seed in 0..400 {
        let world = World::new(seed);
        let random = Random::stream(seed, "mutations", 0);
        let node = Node::start(&world, "a");
        let peer = RawPeer::connect(&world, "r", "a");
        let mut stream = valid_stream(&random);
        if random.chance(100) {
            stream.fill_with(|| random.next_u64() as u8);
        } else if random.chance(950) {
            mutate(&mut stream, &random);
        }
        while !stream.is_empty() {
            let rest = stream.split_off(stream.len().min(1 + random.index(3000)));
            peer.send(&stream);
            stream = rest;
            run(&world, Duration::from_micros(random.below(300)));
        }
        run(&world, Duration::from_millis(20));
        let began = node.service.began();
        assert!(began <= 12);
        served += began;
        ended += node.bus.statistics().connections_malformed;
        check_log(&node.service.log.borrow());
        // What arrived damaged was not carried out, so no answer says that other data arrived.
        assert_eq!(wrong_answers(&peer), 0, "seed {seed}");
        assert_unharmed(&world, &node);
    }
    assert!(served > 1500 && ended > 150, "{served} served, {ended} ended");
}

/// Answers that say that something else arrived than was sent.
fn wrong_answers(peer: &RawPeer) -> usize {
    let is_wrong = |body: &[u8]| {
        let response = postcard::from_bytes(body).expect("an answer");
        matches!(response, BusResponse::Client(Err(_)) | BusResponse::Replica(Err(_)))
    };
    let mut wrong = 0;
    while let Some(Ok((header, body, _))) = peer.receive_soon() {
        wrong += usize::from(header.kind == FrameKind::Answer && header.status == 0 && is_wrong(&body));
    }
    wrong
}

/// As the mutations above, but sealed anew, so that what lies behind the checksums is reached.
#[test]
fn frames_with_valid_checksums_and_random_content_harm_nobody() {
    let mut understood = 0;
    for seed in 0..300 {
        let world = World::new(seed);
        let random = Random::stream(seed, "content", 0);
        let (node, peer) = raw_session(&world);
        for sequence in 1..=20 {
            let request = match random.index(3) {
                0 => copy_write(random.next_u64() as u32 % 100, 2).0,
                1 => copy_read(random.next_u64() as u32, random.index(20) as u32),
                _ => BusRequest::Client(
                    Epoch(random.next_u64() as u32),
                    ClientRequest::Trim {
                        volume: VOLUME,
                        attachment: random.next_u64(),
                        offset: random.next_u64(),
                        length: random.next_u64(),
                    },
                ),
            };
            let mut body = postcard::to_allocvec(&request).expect("it is short");
            if random.chance(700) {
                let position = random.index(body.len());
                body[position] = random.next_u64() as u8;
            }
            let Ok((decoded, [])) = postcard::take_from_bytes::<BusRequest>(&body) else {
                peer.send(&frame_of(request_header(1, sequence, &attach(1)), &body));
                continue;
            };
            understood += 1;
            peer.send(&frame_of(request_header(1, sequence, &decoded), &body));
        }
        let end = world.run_for(Duration::from_millis(50));
        assert!(matches!(end, RunEnd::TimeOver | RunEnd::NothingToDo));
        assert_eq!(node.bus.statistics().connections_malformed, 0, "seed {seed}");
        peer.connection.close();
        assert_unharmed(&world, &node);
    }
    assert!(understood > 1000, "{understood}");
}

#[test]
fn a_node_that_is_expelled_while_its_hello_waits_gets_no_session() {
    let world = World::new(6);
    let node = Node::start(&world, "a");
    node.service.held.set(true);
    let first = RawPeer::connect(&world, "r", "a");
    first.greet(&hello_of("r", 1, "a"), 1);
    first.send(&request_frame(1, 1, &attach(1), &[]));
    run_until(&world, || node.service.began() == 1);
    let waiting = RawPeer::connect(&world, "r", "a");
    waiting.send(&hello_frame(&hello_of("r", 1, "a"), 2));
    run(&world, Duration::from_millis(10));
    node.bus.expel(shard_id("r"));
    let (header, ..) = waiting.receive().expect("an answer, though the former session is not over");
    assert_eq!((header.kind, header.status), (FrameKind::Refusal, RefusalStatus::Unknown as u8));
    node.service.release();
    run(&world, Duration::from_millis(10));
    assert_eq!(node.bus.statistics().sessions_accepted, 1);
}
