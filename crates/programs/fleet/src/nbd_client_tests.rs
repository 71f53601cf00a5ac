use std::time::Duration;

use futures_util::future::join_all;

use super::*;
use crate::random::Random;
use crate::testing::{Answer, Asked, Behaviour, World};

type Client = NbdClient<spandrel_platform_simulated::SimulatedPlatform>;

/// Runs `test` with a client of a server in a simulated world.
fn with_client<T: 'static>(world: &World, test: impl AsyncFnOnce(Client) -> T + 'static) -> T {
    let (platform, address) = (world.process.platform(), world.address());
    let future = async move {
        let client = NbdClient::open(&platform, &address, "disk").await.unwrap();
        test(client).await
    };
    world.process.block_on(future).unwrap()
}

fn open_error(behaviour: Behaviour) -> NbdError {
    let world = World::new(behaviour);
    let (platform, address) = (world.process.platform(), world.address());
    let opened = async move { NbdClient::open(&platform, &address, "disk").await.err() };
    world.process.block_on(opened).unwrap().expect("it cannot be opened")
}

#[test]
fn what_was_written_is_read_however_it_travels() {
    for seed in 0..4 {
        for is_structured in [true, false] {
            let behaviour = Behaviour { is_structured, size_bytes: 1 << 20, ..Behaviour::default() };
            let world = World::fragmenting(seed, behaviour);
            let content = with_client(&world, async move |client: Client| {
                assert_eq!(client.export().structured_replies, is_structured);
                assert_eq!(client.export().size_bytes, 1 << 20);
                let pool = client.handle.pool.clone();
                let mut oracle = vec![0_u8; 1 << 20];
                let mut random = Random::stream(seed, 9, 9);
                for round in 0..60_u8 {
                    let offset = random.below(2040) * 512;
                    let length = (random.below(200) + 1).min(2048 - offset / 512) * 512;
                    let range = offset as usize..(offset + length) as usize;
                    match round % 4 {
                        0 | 1 => {
                            let bytes = vec![round + 1; length as usize];
                            client.write(offset, pool.copy_of(&bytes).freeze()).await.unwrap();
                            oracle[range].copy_from_slice(&bytes);
                        }
                        2 => {
                            client.write_zeroes(offset, length as u32).await.unwrap();
                            oracle[range].fill(0);
                        }
                        _ => {
                            let read = client.read(offset, length as u32).await.unwrap();
                            assert!(read[..] == oracle[range], "round {round}");
                        }
                    }
                }
                client.flush().await.unwrap();
                client.trim(0, 4096).await.unwrap();
                oracle[..4096].fill(0);
                let all = client.read(0, 1 << 20).await.unwrap();
                assert!(all[..] == oracle[..]);
                oracle
            });
            assert!(world.server.content() == content);
        }
    }
}

#[test]
fn requests_overtake_each_other() {
    // The later a request comes, the sooner it is answered.
    let world = World::new(Behaviour::deciding(|asked| {
        Answer::Done(Duration::from_millis(100 - asked.index as u64))
    }));
    let order = with_client(&world, async |client: Client| {
        let order = Rc::new(RefCell::new(Vec::new()));
        let reads = (0..50_u64).map(|number| {
            let (client, order) = (client.clone(), Rc::clone(&order));
            async move {
                client.read(number * 512, 512).await.unwrap();
                order.borrow_mut().push(number);
            }
        });
        join_all(reads).await;
        assert_eq!(client.in_flight_peak(), 50);
        order.take()
    });
    assert!(order.is_sorted_by(|one, other| one > other), "{order:?}");
    assert_eq!(world.server.asked().iter().map(|asked| asked.in_flight).max(), Some(50));
}

#[test]
fn an_error_fails_its_request_alone() {
    for is_structured in [true, false] {
        let decide = |asked: &Asked| match asked.index {
            1 => Answer::Error(Duration::ZERO, 28),
            _ => Answer::Done(Duration::ZERO),
        };
        let world = World::new(Behaviour { is_structured, ..Behaviour::deciding(decide) });
        with_client(&world, async |client: Client| {
            client.read(0, 512).await.unwrap();
            let error = client.read(1024, 512).await.unwrap_err();
            assert_eq!(error.to_string(), "read of 512 bytes at byte 1024: no room");
            client.read(0, 512).await.unwrap();
        });
    }
}

#[test]
fn what_the_export_does_not_take_is_not_sent() {
    let behaviour = Behaviour {
        size_bytes: 8192,
        request_bytes: Some((512, 4096)),
        is_read_only: true,
        ..Behaviour::default()
    };
    let world = World::new(behaviour);
    with_client(&world, async |client: Client| {
        for (offset, length, why) in [
            (0, 0, "whole units"),
            (100, 512, "whole units of 512"),
            (0, 100, "whole units of 512"),
            (8192, 512, "end behind the export"),
            (u64::MAX - 511, 512, "end behind the export"),
            (0, 8192, "at most 4096"),
        ] {
            let error = client.read(offset, length).await.unwrap_err();
            assert!(matches!(error, NbdError::Invalid(_)) && error.to_string().contains(why), "{error}");
        }
        let error = client.trim(0, 512).await.unwrap_err();
        assert!(error.to_string().contains("read-only"), "{error}");
    });
    let commands: Vec<u16> = world.server.asked().iter().map(|asked| asked.command).collect();
    assert!(commands.iter().all(|command| *command == Asked::DISCONNECT), "{commands:?}");
}

#[test]
fn a_broken_connection_fails_everything_in_flight_and_later() {
    let decide = |asked: &Asked| if asked.index == 9 { Answer::Close } else { Answer::Never };
    let world = World::new(Behaviour::deciding(decide));
    with_client(&world, async |client: Client| {
        let answers = join_all((0..10).map(|number| client.read(number * 512, 512))).await;
        assert_eq!(answers.len(), 10);
        assert!(
            answers.iter().all(|answer| *answer.as_ref().unwrap_err() == NbdError::Closed),
            "{answers:?}"
        );
        assert_eq!(client.read(0, 512).await.unwrap_err(), NbdError::Closed);
    });
}

#[test]
fn the_last_handle_says_goodbye() {
    let world = World::new(Behaviour::default());
    with_client(&world, async |client: Client| {
        let other = client.clone();
        drop(client);
        other.read(0, 512).await.unwrap();
    });
    world.settle();
    let commands: Vec<u16> = world.server.asked().iter().map(|asked| asked.command).collect();
    assert_eq!(commands, [Asked::READ, Asked::DISCONNECT]);
}

#[test]
fn a_server_that_does_not_open_the_export_says_why() {
    let refusing = |error: u32, text| {
        open_error(Behaviour { refusal: Some(((1 << 31) + error, text)), ..Behaviour::default() }).to_string()
    };
    assert_eq!(refusing(6, ""), "the server refuses: there is no export \"disk\"");
    assert_eq!(refusing(2, "busy"), "the server refuses: the use of \"disk\" is not allowed: busy");
    assert_eq!(refusing(5, ""), "the server refuses: it wants TLS");
    assert_eq!(refusing(7, ""), "the server refuses: it is shutting down");
    assert_eq!(refusing(1, ""), "the server refuses: it does not know how to open an export by GO");
    assert_eq!(refusing(99, ""), "the server refuses: error 99 for \"disk\"");
}

#[test]
fn what_is_no_nbd_server_is_noticed() {
    let greeting =
        |bytes: &[u8]| open_error(Behaviour { greeting: Some(bytes.to_vec()), ..Behaviour::default() });
    let error = greeting(b"HTTP/1.1 400 Bad Request\r\n");
    assert!(matches!(&error, NbdError::Protocol(text) if text.contains("no NBD server")), "{error}");
    let old = [b"NBDMAGIC".as_slice(), &0x0000_4202_8186_1253_u64.to_be_bytes(), &[0; 140]].concat();
    assert!(greeting(&old).to_string().contains("old form"));
    let not_fixed = [b"NBDMAGICIHAVEOPT".as_slice(), &[0, 2]].concat();
    assert!(greeting(&not_fixed).to_string().contains("old form"));
    assert_eq!(greeting(b"").to_string(), "the server did not answer within 10 seconds");
}

#[test]
fn a_name_longer_than_the_protocol_allows_is_refused() {
    let world = World::new(Behaviour::default());
    let (platform, address) = (world.process.platform(), world.address());
    let opened = async move { NbdClient::open(&platform, &address, &"x".repeat(4097)).await.err() };
    let error = world.process.block_on(opened).unwrap().expect("it is too long");
    assert!(matches!(error, NbdError::Invalid(_)), "{error}");
}
