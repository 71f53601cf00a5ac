use proptest::prelude::*;
use spandrel_platform::Platform;
use spandrel_volume::DeviceErrorKind;

use super::*;
use crate::testing::{Client, EXPORT, Fixture, Request, TestPlatform, negotiate};

const SIZE: usize = 1 << 20;

/// A whole session as a client says it, without waiting for answers, with its last request.
fn script(structured: bool) -> Vec<u8> {
    let mut bytes = negotiate::CLIENT_FLAGS.to_vec();
    bytes.extend(negotiate::option(3, &[]));
    bytes.extend(negotiate::option(5, &[]));
    bytes.extend(negotiate::option(9, &negotiate::contexts(EXPORT, &["base:"])));
    bytes.extend(negotiate::option(6, &negotiate::information(EXPORT, &[1, 2, 3])));
    bytes.extend(&negotiate::script(EXPORT, structured)[4..]);
    let requests = [
        Request::write(1, 4096, vec![7; 2048]),
        Request::new(Request::READ, 2, 4096, 1024),
        Request::new(Request::READ, 3, 0, 65536).with_flags(4),
        Request::new(Request::FLUSH, 4, 0, 0),
        Request::new(Request::TRIM, 5, 4096, 4096).with_flags(1),
        Request::new(Request::WRITE_ZEROES, 6, 0, 8192).with_flags(0x12),
        Request::new(Request::BLOCK_STATUS, 7, 0, 65536).with_flags(8),
        Request::write(8, SIZE as u64, vec![7; 512]),
        Request::new(Request::DISCONNECT, 9, 0, 0),
    ];
    requests.iter().for_each(|request| bytes.extend(request.bytes()));
    bytes
}

/// Says `bytes`, hangs up, and asserts that the server has forgotten this client and serves
/// another one.
async fn survive(fixture: &Fixture, bytes: &[u8]) {
    let connection = fixture.connect().await;
    connection.send(bytes, &[]);
    fixture.quiet().await;
    connection.close();
    fixture.until_alone().await;
    let client = fixture.attach(true).await;
    let reply = client.ask(&Request::new(Request::READ, 1, 512, 1024)).await;
    assert_eq!(reply.error, 0);
    client.send(&Request::new(Request::DISCONNECT, 2, 0, 0));
    assert!(client.reply().await.is_none());
    fixture.until_alone().await;
    let statistics = fixture.server.statistics();
    assert_eq!(statistics.requests_in_flight, 0);
    fixture.until(|fixture| fixture.disk.attachments() == 0).await;
}

#[test]
fn a_session_that_is_cut_anywhere_harms_nobody() {
    let fixture = Fixture::new(SIZE);
    fixture.run(async |fixture| {
        for structured in [false, true] {
            let whole = script(structured);
            for end in 0..=whole.len() {
                survive(&fixture, &whole[..end]).await;
            }
        }
    });
    fixture.platform.settle();
    assert_eq!(fixture.platform.live_tasks(), 1, "only the accepting task is left");
}

#[test]
fn the_script_is_a_valid_session() {
    Fixture::new(SIZE).run(async |fixture| {
        let connection = fixture.connect().await;
        connection.send(&script(true), &[]);
        connection.receive_to_end().await;
        let statistics = fixture.server.statistics();
        assert_eq!((statistics.writes, statistics.reads, statistics.flushes), (1, 2, 1));
        assert_eq!((statistics.trims, statistics.write_zeroes, statistics.block_statuses), (1, 1, 1));
        assert_eq!((statistics.requests_refused, statistics.negotiations_refused), (1, 0));
        assert_eq!((statistics.read_bytes, statistics.written_bytes), (66560, 2048));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn random_bytes_harm_nobody(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        Fixture::new(SIZE).run(async move |fixture| survive(&fixture, &bytes).await);
    }

    #[test]
    fn random_bytes_after_a_negotiation_harm_nobody(
        structured in any::<bool>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
    ) {
        Fixture::new(SIZE).run(async move |fixture| {
            survive(&fixture, &[negotiate::script(EXPORT, structured), bytes].concat()).await;
        });
    }

    #[test]
    fn mutations_of_a_session_harm_nobody(
        structured in any::<bool>(),
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        fragment in prop_oneof![Just(usize::MAX), 1_usize..50],
    ) {
        let fixture = Fixture::new(SIZE);
        fixture.platform.fragment(fragment);
        fixture.run(async move |fixture| {
            let mut bytes = script(structured);
            for (index, value) in changes {
                let index = index.index(bytes.len());
                bytes[index] = value;
            }
            survive(&fixture, &bytes).await;
        });
    }

    #[test]
    fn spliced_sessions_harm_nobody(
        cuts in proptest::collection::vec(any::<[prop::sample::Index; 2]>(), 1..5),
    ) {
        Fixture::new(SIZE).run(async move |fixture| {
            let whole = script(true);
            let mut bytes = Vec::new();
            for cut in cuts {
                let mut cut = cut.map(|index| index.index(whole.len()));
                cut.sort_unstable();
                bytes.extend(&whole[cut[0]..cut[1]]);
            }
            survive(&fixture, &bytes).await;
        });
    }
}

#[test]
fn several_connections_see_one_disk() {
    Fixture::new(SIZE).run(async |fixture| {
        let clients = [
            fixture.attach(true).await,
            fixture.attach(false).await,
            fixture.attach(true).await,
            fixture.attach(false).await,
        ];
        assert_eq!(fixture.server.statistics().connections, 4);
        assert!(clients.iter().all(|client| client.flags & 1 << 8 != 0), "can multi conn");
        for (index, client) in clients.iter().enumerate() {
            let request = Request::write(1, index as u64 * 4096, vec![index as u8 + 1; 4096]);
            assert_eq!(client.ask(&request).await.error, 0);
        }
        for client in &clients {
            let reply = client.ask(&Request::new(Request::READ, 2, 0, 4 * 4096)).await;
            for (index, block) in reply.data.chunks(4096).enumerate() {
                assert!(block.iter().all(|byte| *byte == index as u8 + 1));
            }
        }
        let [gone, others @ ..] = clients;
        drop(gone);
        fixture.until(|fixture| fixture.server.statistics().connections == 3).await;
        for client in others {
            assert_eq!(client.ask(&Request::new(Request::FLUSH, 3, 0, 0)).await.error, 0);
        }
    });
}

#[test]
fn connections_beyond_the_limit_are_closed_at_once() {
    let config = NbdConfig { connections_max: 2, ..NbdConfig::default() };
    Fixture::with_config(SIZE, config).run(async |fixture| {
        let (one, other) = (fixture.attach(true).await, fixture.connect().await);
        negotiate::greeting(&other).await.unwrap();
        let third = fixture.connect().await;
        assert!(third.receive_to_end().await.is_empty());
        assert_eq!(fixture.server.statistics().connections_rejected, 1);
        drop(other);
        fixture.until(|fixture| fixture.server.statistics().connections == 1).await;
        let third = fixture.attach(true).await;
        for client in [one, third] {
            assert_eq!(client.ask(&Request::new(Request::FLUSH, 1, 0, 0)).await.error, 0);
        }
        assert_eq!(fixture.server.statistics().connections_accepted, 3);
    });
}

#[test]
fn a_stop_lets_requests_end_and_leaves_later_ones_unanswered() {
    let fixture = Fixture::new(SIZE);
    fixture.run(async |fixture| {
        let client = fixture.attach(true).await;
        let negotiating = fixture.connect().await;
        negotiate::greeting(&negotiating).await.unwrap();
        fixture.disk.hold();
        client.send(&Request::write(1, 0, vec![9; 4096]));
        client.send(&Request::new(Request::READ, 2, 4096, 4096));
        fixture.until(|fixture| fixture.disk.waiting() == 2).await;
        let server = fixture.server.clone();
        let stopping = fixture.platform.spawn(async move { server.stop().await });
        assert!(negotiating.receive_to_end().await.is_empty());
        assert!(fixture.platform.connect(&Fixture::address()).await.is_err(), "nobody listens");
        let late = [
            Request::write(3, 8192, vec![9; 4096]),
            Request::new(Request::READ, 4, 8192, 4096),
            Request::new(Request::FLUSH, 5, 0, 0),
        ];
        for request in late {
            client.send(&request);
        }
        fixture.quiet().await;
        assert!(!stopping.is_finished());
        fixture.disk.release();
        for cookie in [1, 2] {
            let reply = client.reply().await.unwrap();
            assert_eq!((reply.request.cookie, reply.error), (cookie, 0));
        }
        assert!(client.reply().await.is_none());
        fixture.until(|_| stopping.is_finished()).await;
        assert_eq!(fixture.disk.requests(), 2);
        assert_eq!(fixture.server.statistics().connections, 0);
    });
    fixture.platform.settle();
    assert_eq!(fixture.platform.live_tasks(), 0);
}

#[test]
fn a_request_that_a_stopping_node_cannot_do_is_left_unanswered() {
    let fixture = Fixture::new(SIZE);
    fixture.run(async |fixture| {
        let client = fixture.attach(true).await;
        fixture.disk.hold();
        client.send(&Request::write(1, 0, vec![9; 4096]));
        fixture.until(|fixture| fixture.disk.waiting() == 1).await;
        let server = fixture.server.clone();
        let stopping = fixture.platform.spawn(async move { server.stop().await });
        fixture.quiet().await;
        fixture.disk.fail(Some(DeviceErrorKind::Stopping));
        fixture.disk.release();
        assert!(client.reply().await.is_none());
        fixture.until(|_| stopping.is_finished()).await;
    });
}

#[test]
fn a_stop_waits_for_a_stuck_device_for_a_while_only() {
    let fixture = Fixture::new(SIZE);
    fixture.run(async |fixture| {
        let client = fixture.attach(false).await;
        fixture.disk.hold();
        client.send(&Request::new(Request::FLUSH, 1, 0, 0));
        fixture.until(|fixture| fixture.disk.waiting() == 1).await;
        let began = fixture.platform.now();
        fixture.server.stop().await;
        let took = fixture.platform.now().since(began);
        assert_eq!(took, NbdConfig::default().stop_grace);
        assert!(client.reply().await.is_none());
        fixture.disk.release();
    });
    fixture.platform.settle();
    assert_eq!(fixture.platform.live_tasks(), 0, "the worker ended when its device had answered");
}

#[test]
fn a_stop_does_not_wait_for_idle_clients() {
    let fixture = Fixture::new(SIZE);
    fixture.run(async |fixture| {
        let (one, other) = (fixture.attach(false).await, fixture.attach(true).await);
        let began = fixture.platform.now();
        fixture.server.stop().await;
        assert_eq!(fixture.platform.now(), began);
        assert!(one.reply().await.is_none());
        assert!(other.reply().await.is_none());
    });
}

#[test]
fn a_server_that_stopped_accepts_nobody() {
    Fixture::new(SIZE).run(async |fixture| {
        fixture.server.stop().await;
        fixture.quiet().await;
        let listener = fixture.platform.listen(&Fixture::address()).unwrap();
        assert_eq!(fixture.server.serve(listener).await, Ok(()));
    });
}

#[test]
fn a_client_that_hangs_up_has_its_requests_finished() {
    let fixture = Fixture::new(SIZE);
    fixture.run(async |fixture| {
        let client = fixture.attach(true).await;
        fixture.disk.hold();
        client.send(&Request::write(1, 0, vec![9; 4096]));
        client.send(&Request::new(Request::READ, 2, 4096, 4096));
        fixture.until(|fixture| fixture.disk.waiting() == 2).await;
        drop(client);
        fixture.quiet().await;
        assert_ne!(fixture.disk.attachments(), 0, "the session holds the disk");
        fixture.disk.release();
        fixture.until_alone().await;
        assert_eq!(fixture.server.statistics().writes, 1);
        fixture.until(|fixture| fixture.disk.attachments() == 0).await;
    });
}

#[test]
fn a_disconnect_is_obeyed_when_all_is_answered() {
    Fixture::new(SIZE).run(async |fixture| {
        let client = fixture.attach(false).await;
        fixture.disk.hold();
        client.send(&Request::new(Request::READ, 1, 0, 65536));
        client.send(&Request::new(Request::DISCONNECT, 2, 0, 0));
        fixture.until(|fixture| fixture.disk.waiting() == 1).await;
        assert!(!client.connection.is_closed());
        fixture.disk.release();
        assert_eq!(client.reply().await.unwrap().request.cookie, 1);
        assert!(client.reply().await.is_none());
    });
}

#[test]
fn a_client_that_takes_no_last_answers_is_closed_after_a_while() {
    let fixture = Fixture::new(SIZE);
    fixture.platform.limit_pipes(1000);
    fixture.run(async |fixture| {
        let client = fixture.attach(false).await;
        client.send(&Request::new(Request::READ, 1, 0, 65536));
        client.send(&Request::new(Request::DISCONNECT, 2, 0, 0));
        let began = fixture.platform.now();
        fixture.until_alone().await;
        assert!(fixture.platform.now().since(began) >= NbdConfig::default().linger);
        assert!(client.reply().await.is_none());
    });
}

#[test]
fn device_errors_reach_the_client() {
    for structured in [false, true] {
        Fixture::new(SIZE).run(async move |fixture| {
            let client = fixture.attach(structured).await;
            fixture.disk.fail(Some(DeviceErrorKind::NoRoom));
            assert_eq!(client.ask(&Request::write(1, 0, vec![1; 512])).await.error, 28);
            fixture.disk.fail(Some(DeviceErrorKind::Failed));
            let kinds = [Request::READ, Request::TRIM, Request::WRITE_ZEROES, Request::FLUSH];
            for kind in kinds {
                assert_eq!(client.ask(&Request::new(kind, 2, 0, 4096)).await.error, 5);
            }
            fixture.disk.fail(None);
            assert_eq!(client.ask(&Request::new(Request::READ, 3, 0, 4096)).await.error, 0);
            assert_eq!(fixture.server.statistics().requests_failed, 5);
        });
    }
}

#[test]
fn two_listeners_share_the_limits_and_the_stop() {
    let fixture = Fixture::new(SIZE);
    fixture.run(async |fixture| {
        let address = spandrel_platform::Address::Unix("second".to_owned());
        let listener = fixture.platform.listen(&address).unwrap();
        let server = fixture.server.clone();
        let second = fixture.platform.spawn(async move { server.serve(listener).await.unwrap() });
        let connection = TestPlatform::connect(&fixture.platform, &address).await.unwrap();
        let client = Client::attach(connection, EXPORT, true).await;
        let other = fixture.attach(true).await;
        assert_eq!(fixture.server.statistics().connections, 2);
        fixture.server.stop().await;
        assert!(client.reply().await.is_none() && other.reply().await.is_none());
        fixture.until(|_| second.is_finished()).await;
    });
}
