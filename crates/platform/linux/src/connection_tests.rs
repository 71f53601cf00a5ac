use std::future::Future;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join;
use spandrel_platform::{Address, Listener, Platform};
use tempfile::tempdir;

use super::*;
use crate::test_support::{Numbers, any_port, in_process, pair, receive_exactly, run, run_with, socket_in};
use crate::{LinuxPlatform, RuntimeConfig};

/// Runs `test` over TCP, over a unix socket and through memory, with both ends of a connection.
fn over_all_kinds<F>(test: impl Fn(LinuxPlatform, LinuxConnection, LinuxConnection) -> F + 'static)
where
    F: Future<Output = ()> + 'static,
{
    let directory = tempdir().unwrap();
    let test = Rc::new(test);
    for (config, address) in all_kinds(directory.path()) {
        let test = Rc::clone(&test);
        run_with(config, move |platform| async move {
            let (client, server) = pair(&platform, &address).await;
            test(platform, client, server).await;
        });
    }
}

fn all_kinds(directory: &Path) -> [(RuntimeConfig, Address); 4] {
    [
        (RuntimeConfig::default(), any_port()),
        (RuntimeConfig::default(), socket_in(directory)),
        (in_process(), any_port()),
        (in_process(), socket_in(directory)),
    ]
}

/// Sends back all that comes, as it comes.
async fn echo(connection: LinuxConnection, platform: LinuxPlatform) {
    let mut bytes = vec![0; 64 << 10];
    loop {
        let count = connection.receive(&mut bytes).await.unwrap();
        if count == 0 {
            return;
        }
        let body = platform.buffers().copy_of(&bytes[..count]).freeze();
        connection.send(&[], &[body]);
        connection.send_room(1 << 20).await.unwrap();
    }
}

#[test]
fn many_messages_and_large_bodies_come_back_as_they_went() {
    over_all_kinds(|platform, client, server| async move {
        platform.spawn(echo(server, platform.clone()));
        let mut numbers = Numbers::new(7);
        let (bodies, mut expected) = (numbers.bytes(3 << 20), Vec::new());
        let mut messages = Vec::new();
        for _ in 0..600 {
            let head_length = 1 + numbers.below(120);
            let head = numbers.bytes(head_length);
            let length = if numbers.below(20) == 0 { 1 << 20 } else { numbers.below(9000) };
            let start = numbers.below(bodies.len() - length);
            let body = platform.buffers().copy_of(&bodies[start..start + length]).freeze();
            let middle = length / 3;
            expected.extend_from_slice(&head);
            expected.extend_from_slice(&body);
            messages.push((head, [body.slice(0..middle), body.slice(middle..length)]));
        }
        let sender = async {
            for (head, body) in &messages {
                client.send(head, body);
                client.send_room(2 << 20).await.unwrap();
            }
        };
        let ((), received) = join(sender, receive_exactly(&client, expected.len())).await;
        assert!(received == expected);
        assert_eq!(client.queued_bytes(), 0);
    });
}

#[test]
fn what_a_turn_queues_leaves_in_one_call() {
    over_all_kinds(|platform, client, server| async move {
        let before = platform.statistics().sends;
        let body = platform.buffers().copy_of(&[5; 512]).freeze();
        for number in 0..16_u8 {
            client.send(&[number; 40], std::slice::from_ref(&body));
        }
        let received = receive_exactly(&server, 16 * 552).await;
        assert!(received.chunks(552).enumerate().all(|(number, message)| message[0] == number as u8));
        assert_eq!(platform.statistics().sends - before, 1);
    });
}

#[test]
fn waiting_for_messages_costs_no_calls() {
    over_all_kinds(|platform, client, server| async move {
        let mut into = [0; 100];
        let before = platform.statistics();
        for _ in 0..50 {
            server.send(&[1; 10], &[]);
            assert_eq!(client.receive(&mut into).await, Ok(10));
        }
        let after = platform.statistics();
        assert_eq!(after.receives - before.receives, 50, "one call for each message");
        assert!(after.turns - before.turns <= 150);
    });
}

#[test]
fn a_slow_receiver_holds_its_sender_back() {
    over_all_kinds(|platform, client, server| async move {
        const LENGTH: usize = 32 << 20;
        const LIMIT: usize = 1 << 20;
        let body = platform.buffers().copy_of(&vec![9; LIMIT]).freeze();
        let (sent, received) = (Rc::new(Cell::new(0)), Cell::new(0));
        let progress = Rc::clone(&sent);
        let sending = client.clone();
        let sender = platform.spawn(async move {
            while progress.get() < LENGTH {
                sending.send(&[], std::slice::from_ref(&body));
                progress.set(progress.get() + LIMIT);
                assert!(sending.queued_bytes() <= 2 * LIMIT);
                sending.send_room(LIMIT).await.unwrap();
            }
        });
        // The sender comes to a halt although nobody reads, and nothing is lost.
        while client.queued_bytes() < LIMIT {
            platform.sleep(Duration::from_millis(1)).await;
        }
        assert!(!sender.is_finished());
        let turns = platform.statistics().turns;
        platform.sleep(Duration::from_millis(30)).await;
        assert!(platform.statistics().turns - turns <= 4, "a full connection is not polled");
        let mut into = vec![0; 256 << 10];
        while received.get() < LENGTH {
            let count = server.receive(&mut into).await.unwrap();
            assert!(into[..count].iter().all(|byte| *byte == 9));
            received.set(received.get() + count);
        }
        while !sender.is_finished() {
            platform.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!((received.get(), client.queued_bytes()), (LENGTH, 0));
    });
}

#[test]
fn closing_sends_what_is_queued_and_ends_both_directions() {
    over_all_kinds(|platform, client, server| async move {
        server.send(b"unheard", &[]);
        platform.sleep(Duration::from_millis(1)).await;
        client.send(b"last words", &[]);
        client.close();
        assert_eq!(receive_exactly(&server, 10).await, b"last words");
        let mut into = [0; 10];
        assert_eq!(server.receive(&mut into).await, Ok(0));
        assert_eq!(server.receive(&mut into).await, Ok(0), "the end stays the end");
        assert!(matches!(client.receive(&mut into).await, Err(LinkError::Closed(_))));
        assert!(matches!(client.send_room(1).await, Err(LinkError::Closed(_))));
        client.send(b"too late", &[]);
        client.close();
        assert_eq!(client.queued_bytes(), 0);
    });
}

#[test]
fn closing_wakes_the_own_receiver() {
    over_all_kinds(|platform, client, server| async move {
        let own = client.clone();
        let receiver = platform.spawn(async move {
            assert!(matches!(own.receive(&mut [0; 4]).await, Err(LinkError::Closed(_))));
        });
        platform.sleep(Duration::from_millis(1)).await;
        client.close();
        while !receiver.is_finished() {
            platform.sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(server.receive(&mut [0; 4]).await, Ok(0));
    });
}

#[test]
fn a_connection_closes_with_its_last_clone() {
    over_all_kinds(|platform, client, server| async move {
        let clone = client.clone();
        drop(client);
        clone.send(b"still here", &[]);
        assert_eq!(receive_exactly(&server, 10).await, b"still here");
        clone.send(b"going", &[]);
        drop(clone);
        assert_eq!(receive_exactly(&server, 5).await, b"going");
        assert_eq!(server.receive(&mut [0; 8]).await, Ok(0));
        drop(server);
        // What only the kernel and the list of the turn still knew is gone as well.
        platform.sleep(Duration::from_millis(1)).await;
    });
}

#[test]
fn a_broken_connection_takes_sends_and_shows_the_error_at_the_receive() {
    over_all_kinds(|platform, client, server| async move {
        drop(server);
        let error = loop {
            client.send(&[1; 1000], &[]);
            platform.sleep(Duration::from_millis(1)).await;
            match client.receive(&mut [0; 16]).await {
                Ok(count) => assert_eq!(count, 0, "the other side said nothing"),
                Err(error) => break error,
            }
        };
        assert!(matches!(error, LinkError::Closed(_)), "{error}");
        client.send(b"into the void", &[]);
        assert_eq!(client.queued_bytes(), 0);
        assert!(client.send_room(1).await.is_err());
        assert!(client.receive(&mut [0; 16]).await.is_err());
    });
}

#[test]
fn what_arrived_before_a_failure_is_received_first() {
    over_all_kinds(|platform, client, server| async move {
        server.send(b"farewell", &[]);
        platform.sleep(Duration::from_millis(1)).await;
        drop(server);
        // The end arrives while the message is unread.
        platform.sleep(Duration::from_millis(1)).await;
        let mut into = [0; 64];
        assert_eq!(client.receive(&mut into).await, Ok(8));
        assert_eq!(client.receive(&mut into).await, Ok(0));
    });
}

#[test]
fn a_waiting_sender_learns_of_the_break() {
    over_all_kinds(|platform, client, server| async move {
        client.send(&[], &[platform.buffers().take_zeroed(64 << 20).freeze()]);
        let mut room = pin!(client.send_room(1));
        assert!(room.as_mut().now_or_never().is_none());
        platform.sleep(Duration::from_millis(5)).await;
        drop(server);
        assert!(matches!(room.await, Err(LinkError::Closed(_))));
    });
}

#[test]
fn one_receiver_leaves_turns_to_the_others() {
    over_all_kinds(|platform, client, server| async move {
        const LENGTH: usize = 10_000;
        server.send(&[3; LENGTH], &[]);
        let (mut turn, mut calls) = (0, 0);
        for _ in 0..LENGTH {
            assert_eq!(client.receive(&mut [0; 1]).await, Ok(1));
            if std::mem::replace(&mut turn, platform.statistics().turns) != turn {
                calls = 0;
            }
            calls += 1;
            assert!(calls <= RECEIVE_BYTES_PER_TURN / RECEIVE_CALL_BYTES);
        }
    });
}

#[test]
fn a_busy_connection_does_not_starve_another() {
    over_all_kinds(|platform, client, server| async move {
        // Floods itself without ever waiting for anything else.
        let (flooder, flooded) = (client.clone(), server.clone());
        let block = platform.buffers().take_zeroed(256 << 10).freeze();
        let flood = platform.spawn(async move {
            loop {
                flooder.send(&[], std::slice::from_ref(&block));
                flooder.send_room(4 << 20).await.unwrap();
            }
        });
        let sink = platform.spawn(async move {
            let mut into = vec![0; 64 << 10];
            while flooded.receive(&mut into).await.unwrap() > 0 {}
        });
        let (near, far) = pair(&platform, &any_port()).await;
        platform.spawn(echo(far, platform.clone()));
        for _ in 0..50 {
            near.send(b"ping", &[]);
            assert_eq!(receive_exactly(&near, 4).await, b"ping");
        }
        flood.abort();
        sink.abort();
    });
}

#[test]
fn talks_to_plain_sockets() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut bytes = [0; 5];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(b"world").unwrap();
        bytes
    });
    run(move |platform| async move {
        let connection = platform.connect(&address).await.unwrap();
        assert_eq!(connection.peer(), address.to_string());
        assert!(
            rustix::net::sockopt::tcp_nodelay(connection.handle.stream.transport.socket().unwrap()).unwrap()
        );
        connection.send(b"hello", &[]);
        assert_eq!(receive_exactly(&connection, 5).await, b"world");
    });
    assert_eq!(&peer.join().unwrap(), b"hello");
}

#[test]
fn connecting_where_nobody_listens_is_refused() {
    let directory = tempdir().unwrap();
    let missing = socket_in(directory.path());
    let stale = directory.path().join("stale");
    drop(UnixListener::bind(&stale).unwrap());
    let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    run(move |platform| async move {
        for address in [missing, Address::Unix(stale.to_str().unwrap().to_string()), Address::Tcp(port)] {
            match platform.connect(&address).await {
                Err(LinkError::Refused(detail)) => assert!(detail.contains(&address.to_string()), "{detail}"),
                Err(error) => panic!("{error}"),
                Ok(_) => panic!("connected to {address}"),
            }
        }
    });
}

#[test]
fn connecting_does_not_wait_for_ever() {
    let directory = tempdir().unwrap();
    let path = directory.path().join("full");
    let full = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None);
    let full = full.unwrap();
    rustix::net::bind(&full, &rustix::net::SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&full, 0).unwrap();
    let _first = std::os::unix::net::UnixStream::connect(&path).unwrap();
    let address = Address::Unix(path.to_str().unwrap().to_string());
    let config = RuntimeConfig { connect_timeout: Duration::from_millis(20), ..RuntimeConfig::default() };
    let again = address.clone();
    run_with(config, |platform| async move {
        let started = platform.now();
        let Err(LinkError::Other(detail)) = platform.connect(&again).await else { panic!("no time limit") };
        assert!(detail.contains("no answer within 0.02 seconds"), "{detail}");
        assert!(platform.now().since(started) >= Duration::from_millis(20));
    });
    // Once there is room, the connect succeeds.
    run(|platform| async move {
        let accepting = platform.clone();
        platform.spawn(async move {
            accepting.sleep(Duration::from_millis(5)).await;
            rustix::net::accept(&full).unwrap();
            std::future::pending::<()>().await;
            drop(full);
        });
        platform.connect(&address).await.unwrap();
    });
}

#[test]
fn a_tcp_peer_that_never_answers_is_given_up() {
    let listener =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None);
    let listener = listener.unwrap();
    rustix::net::bind(&listener, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = SocketAddr::try_from(rustix::net::getsockname(&listener).unwrap()).unwrap();
    // With its queue full the kernel drops further connects without a word.
    let mut held = Vec::new();
    while let Ok(stream) = TcpStream::connect_timeout(&address, Duration::from_millis(300)) {
        held.push(stream);
        assert!(held.len() < 100, "the queue never fills");
    }
    let config = RuntimeConfig { connect_timeout: Duration::from_millis(20), ..RuntimeConfig::default() };
    run_with(config, move |platform| async move {
        let Err(LinkError::Other(detail)) = platform.connect(&Address::Tcp(address)).await else {
            panic!("no time limit")
        };
        assert!(detail.contains("no answer"), "{detail}");
    });
}

#[test]
fn queued_messages_go_out_before_the_runtime_lets_go() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let peer = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        listener.accept().unwrap().0.read_to_end(&mut bytes).unwrap();
        bytes
    });
    let connection = run(move |platform| async move {
        let connection = platform.connect(&address).await.unwrap();
        connection.send(b"in the last turn", &[]);
        connection
    });
    assert_eq!(connection.queued_bytes(), 0);
    drop(connection);
    assert_eq!(peer.join().unwrap(), b"in the last turn");
}

#[test]
fn the_reactor_forgets_connections_that_are_gone() {
    run(|platform| async move {
        let listener = platform.listen(&any_port()).unwrap();
        for _ in 0..20 {
            let client = platform.connect(&listener.address()).await.unwrap();
            let server = listener.accept().await.unwrap();
            let token = client.handle.stream.token.get().unwrap();
            // The lower half of a token is its place: the listener's, the two ends', no more.
            assert!(token & u64::from(u32::MAX) < 3);
            drop((client, server));
            platform.sleep(Duration::from_micros(1)).await;
        }
    });
}

#[test]
fn another_thread_goes_on_with_a_connection() {
    let directory = tempdir().unwrap();
    for (config, address) in all_kinds(directory.path()) {
        let (sender, receiver) = std::sync::mpsc::channel();
        let other = std::thread::spawn(move || {
            run(|platform| async move {
                let detached: DetachedConnection = receiver.recv().unwrap();
                let connection = platform.attach(detached).unwrap();
                let peer = connection.peer();
                echo(connection, platform).await;
                peer
            })
        });
        let expected = run_with(config, move |platform| async move {
            let (client, server) = pair(&platform, &address).await;
            client.send(b"to the first", &[]);
            assert_eq!(receive_exactly(&server, 12).await, b"to the first");
            server.send(b"by the first", &[]);
            assert!(server.detach().is_none(), "something has not left yet");
            server.send_room(1).await.unwrap();
            let peer = server.peer();
            client.send(b"to the second, before it is there", &[]);
            client.send_room(1).await.unwrap();
            sender.send(platform.detach(&server).unwrap()).unwrap();
            // What is left of it here is of no use, and harms nothing.
            assert!(server.detach().is_none());
            server.send(b"nobody hears this", &[]);
            assert!(matches!(server.receive(&mut [0; 1]).await, Err(LinkError::Closed(_))));
            server.close();
            drop(server);
            assert_eq!(receive_exactly(&client, 12).await, b"by the first");
            let large = Numbers::new(3).bytes(3 << 20);
            client.send(&[], &[platform.buffers().copy_of(&large).freeze()]);
            assert_eq!(receive_exactly(&client, 33).await, b"to the second, before it is there");
            assert!(receive_exactly(&client, large.len()).await == large);
            client.close();
            peer
        });
        assert_eq!(other.join().unwrap(), expected);
    }
}

#[test]
fn a_connection_that_nobody_goes_on_with_is_closed() {
    over_all_kinds(|platform, client, server| async move {
        drop(platform.detach(&server).unwrap());
        assert_eq!(client.receive(&mut [0; 1]).await, Ok(0));
    });
}

#[test]
fn two_threads_reach_each_other_through_memory_only_where_both_want_it() {
    for (listening, connecting) in [(true, true), (true, false), (false, true)] {
        let config = |stays_in_process| RuntimeConfig { stays_in_process, ..RuntimeConfig::default() };
        let (sender, receiver) = std::sync::mpsc::channel();
        let server = std::thread::spawn(move || {
            run_with(config(listening), move |platform| async move {
                let listener = platform.listen(&any_port()).unwrap();
                sender.send(listener.address()).unwrap();
                let connection = listener.accept().await.unwrap();
                let is_within = connection.is_within_process();
                echo(connection, platform).await;
                is_within
            })
        });
        let address = receiver.recv().unwrap();
        run_with(config(connecting), move |platform| async move {
            let connection = platform.connect(&address).await.unwrap();
            assert_eq!(connection.is_within_process(), listening && connecting);
            let sent = Numbers::new(1).bytes(2 << 20);
            connection.send(&[], &[platform.buffers().copy_of(&sent).freeze()]);
            assert!(receive_exactly(&connection, sent.len()).await == sent);
        });
        assert_eq!(server.join().unwrap(), listening && connecting);
    }
}
