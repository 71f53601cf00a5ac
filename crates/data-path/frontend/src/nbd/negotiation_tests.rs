use std::time::Duration;

use super::*;
use crate::testing::negotiate::{self, ACKNOWLEDGED, INVALID, UNKNOWN, UNSUPPORTED, ask};
use crate::testing::{EXPORT, Fixture, Request, TestConnection};

const SIZE: usize = 1 << 20;

/// A connection that has said which client flags it has.
async fn greeted(fixture: &Fixture, flags: [u8; 4]) -> TestConnection {
    let connection = fixture.connect().await;
    negotiate::greeting(&connection).await.unwrap();
    connection.send(&flags, &[]);
    connection
}

async fn fixed(fixture: &Fixture) -> TestConnection {
    greeted(fixture, negotiate::CLIENT_FLAGS).await
}

/// The types of the replies to one option.
async fn reply_types(connection: &TestConnection, option: u32, data: &[u8]) -> Vec<u32> {
    ask(connection, option, data).await.unwrap().iter().map(|(kind, _)| *kind).collect()
}

/// Asserts that the server ends a negotiation in which `said` is said, and does so at once.
fn assert_refused(said: &[u8]) {
    let said = said.to_vec();
    Fixture::new(SIZE).run(async move |fixture| {
        let connection = fixture.connect().await;
        negotiate::greeting(&connection).await.unwrap();
        let began = fixture.platform.now();
        connection.send(&said, &[]);
        connection.receive_to_end().await;
        assert_eq!(fixture.platform.now(), began, "silence ends a negotiation too, but later");
        fixture.until_alone().await;
        assert_eq!(fixture.server.statistics().negotiations_refused, 1, "{said:x?}");
    });
}

#[test]
fn information_tells_size_flags_name_and_limits() {
    Fixture::new(SIZE).run(async |fixture| {
        let connection = fixed(&fixture).await;
        let data = negotiate::information(EXPORT, &[0, 1, 2, 3, 99]);
        let replies = ask(&connection, 6, &data).await.unwrap();
        let expected: [(u32, &[u8]); 5] = [
            (3, b"\0\0\0\0\0\0\0\x10\0\0\x09\x6d"),
            (3, b"\0\x01vm-01"),
            (3, b"\0\x02Spandrel volume vm-01, 1 MiB"),
            (3, b"\0\x03\0\0\x02\0\0\0\x10\0\x02\0\0\0"),
            (ACKNOWLEDGED, b""),
        ];
        assert_eq!(replies.len(), 5);
        for ((kind, data), (expected_kind, expected)) in replies.iter().zip(expected) {
            assert_eq!((*kind, &data[..]), (expected_kind, expected));
        }
        let plain = ask(&connection, 6, &negotiate::information(EXPORT, &[])).await.unwrap();
        assert_eq!(plain, [replies[0].clone(), replies[3].clone(), replies[4].clone()]);
        assert_eq!(reply_types(&connection, 8, &[]).await, [ACKNOWLEDGED]);
        let structured = ask(&connection, 6, &negotiate::information(EXPORT, &[])).await.unwrap();
        assert_eq!(structured[0].1[10..], [0x09, 0xed], "don't-fragment comes with structured replies");
        fixture.disk.change_limits(|limits| {
            limits.read_only = true;
            limits.request_bytes_max = 1 << 16;
        });
        let read_only = ask(&connection, 6, &negotiate::information(EXPORT, &[])).await.unwrap();
        assert_eq!(read_only[0].1[10..], [0x01, 0x8f]);
        assert_eq!(read_only[1].1[10..], [0, 1, 0, 0], "a volume's own limit is told");
        assert_eq!(fixture.exports.opens(), 1, "one volume is opened once");
    });
}

#[test]
fn an_unknown_export_is_an_error_and_the_client_may_go_on() {
    Fixture::new(SIZE).run(async |fixture| {
        let connection = fixed(&fixture).await;
        for option in [6, 7] {
            let replies = ask(&connection, option, &negotiate::information("nothing", &[])).await.unwrap();
            assert_eq!(replies, [(UNKNOWN, b"no volume \"nothing\"".to_vec())]);
        }
        assert_eq!(reply_types(&connection, 9, &negotiate::contexts("nothing", &[])).await, [UNKNOWN]);
        assert_eq!(
            reply_types(&connection, 7, &negotiate::information(EXPORT, &[])).await,
            [3, 3, ACKNOWLEDGED]
        );
        assert_eq!(fixture.server.statistics().exports_refused, 3);
    });
}

#[test]
fn why_a_volume_does_not_open_is_told() {
    Fixture::new(SIZE).run(async |fixture| {
        let connection = fixed(&fixture).await;
        let kinds = [
            (DeviceErrorKind::Busy, negotiate::POLICY),
            (DeviceErrorKind::Stopping, negotiate::SHUTDOWN),
            (DeviceErrorKind::Failed, UNKNOWN),
        ];
        for (kind, reply) in kinds {
            fixture.exports.fail_open(Some(kind));
            let replies = ask(&connection, 7, &negotiate::information(EXPORT, &[])).await.unwrap();
            assert_eq!(replies, [(reply, b"planted failure".to_vec())]);
        }
    });
}

#[test]
fn the_list_names_all_exports() {
    Fixture::new(SIZE).run(async |fixture| {
        let connection = fixed(&fixture).await;
        let replies = ask(&connection, 3, &[]).await.unwrap();
        let expected =
            [(2, b"\0\0\0\x05other".to_vec()), (2, b"\0\0\0\x05vm-01".to_vec()), (ACKNOWLEDGED, Vec::new())];
        assert_eq!(replies, expected);
    });
}

#[test]
fn options_that_are_unknown_or_malformed_are_errors_and_the_client_may_go_on() {
    Fixture::new(SIZE).run(async |fixture| {
        let connection = fixed(&fixture).await;
        for option in [0, 4, 11, 77, u32::MAX] {
            assert_eq!(reply_types(&connection, option, &[1; 1000]).await, [UNSUPPORTED]);
        }
        assert_eq!(reply_types(&connection, 5, &[]).await, [UNSUPPORTED], "no TLS here");
        for option in [3, 5, 8] {
            assert_eq!(reply_types(&connection, option, b"x").await, [INVALID]);
        }
        for option in [6, 7, 9] {
            assert_eq!(reply_types(&connection, option, b"\0\0\0\x09abc").await, [INVALID]);
        }
        assert_eq!(reply_types(&connection, 7, &negotiate::information(EXPORT, &[3])).await.len(), 3);
    });
}

#[test]
fn contexts_are_listed_and_selected() {
    Fixture::new(SIZE).run(async |fixture| {
        let connection = fixed(&fixture).await;
        let queries = |queries: &[&str]| negotiate::contexts(EXPORT, queries);
        assert_eq!(
            reply_types(&connection, 10, &queries(&["base:allocation"])).await,
            [INVALID],
            "too early"
        );
        assert_eq!(reply_types(&connection, 8, &[]).await, [ACKNOWLEDGED]);
        let listed: [&[&str]; 4] =
            [&[], &["base:"], &["base:allocation"], &["x:y", "base:", "base:allocation"]];
        for list in listed {
            let replies = ask(&connection, 9, &queries(list)).await.unwrap();
            assert_eq!(replies[0], (4, b"\0\0\0\0base:allocation".to_vec()), "{list:?}");
            assert_eq!(replies.len(), 2);
        }
        let nothing: [&[&str]; 3] = [&["base:other"], &["qemu:dirty-bitmap:x", "nocolon"], &[""]];
        for list in nothing {
            assert_eq!(reply_types(&connection, 9, &queries(list)).await, [ACKNOWLEDGED], "{list:?}");
        }
        let unselected: [&[&str]; 3] = [&[], &["base:"], &["base:other"]];
        for list in unselected {
            assert_eq!(reply_types(&connection, 10, &queries(list)).await, [ACKNOWLEDGED], "{list:?}");
        }
        let replies = ask(&connection, 10, &queries(&["qemu:", "base:allocation"])).await.unwrap();
        assert_eq!(replies[0], (4, b"\0\0\0\x01base:allocation".to_vec()));
    });
}

/// Whether block status works after negotiating `contexts` for an export and choosing `chosen`.
fn may_ask_for_status(contexts: &'static [(&'static str, &'static [&'static str])]) -> bool {
    Fixture::new(SIZE).run(async move |fixture| {
        let connection = fixed(&fixture).await;
        ask(&connection, 8, &[]).await.unwrap();
        for (export, queries) in contexts {
            ask(&connection, 10, &negotiate::contexts(export, queries)).await.unwrap();
        }
        ask(&connection, 7, &negotiate::information(EXPORT, &[])).await.unwrap();
        let client = crate::testing::Client::attached(connection, true, SIZE as u64, 0);
        client.ask(&Request::new(Request::BLOCK_STATUS, 1, 0, 4096)).await.error == 0
    })
}

#[test]
fn only_the_last_selection_for_the_chosen_export_counts() {
    const ALLOCATION: &[&str] = &["base:allocation"];
    assert!(may_ask_for_status(&[(EXPORT, ALLOCATION)]));
    assert!(may_ask_for_status(&[("other", ALLOCATION), (EXPORT, ALLOCATION)]));
    assert!(!may_ask_for_status(&[]));
    assert!(!may_ask_for_status(&[("other", ALLOCATION)]));
    assert!(!may_ask_for_status(&[(EXPORT, ALLOCATION), ("other", ALLOCATION)]));
    assert!(!may_ask_for_status(&[(EXPORT, ALLOCATION), (EXPORT, &[])]));
    assert!(!may_ask_for_status(&[(EXPORT, ALLOCATION), ("nothing", ALLOCATION)]));
}

#[test]
fn an_export_name_is_answered_with_or_without_padding() {
    for (flags, length) in [([0, 0, 0, 0], 134), ([0, 0, 0, 1], 134), ([0, 0, 0, 2], 10), ([0, 0, 0, 3], 10)]
    {
        Fixture::new(SIZE).run(async move |fixture| {
            let connection = greeted(&fixture, flags).await;
            connection.send(&negotiate::option(1, EXPORT.as_bytes()), &[]);
            connection.send(&Request::new(Request::READ, 1, 0, 512).bytes(), &[]);
            let answer = connection.receive_exact(length).await.unwrap();
            assert_eq!(answer[..10], *b"\0\0\0\0\0\x10\0\0\x09\x6d");
            assert!(answer[10..].iter().all(|byte| *byte == 0));
            let reply = connection.receive_exact(16 + 512).await.unwrap();
            assert_eq!(reply[..16], *b"\x67\x44\x66\x98\0\0\0\0\0\0\0\0\0\0\0\x01");
        });
    }
}

#[test]
fn an_abort_is_acknowledged_and_the_connection_closed() {
    Fixture::new(SIZE).run(async |fixture| {
        let connection = fixed(&fixture).await;
        assert_eq!(reply_types(&connection, 2, b"ignored").await, [ACKNOWLEDGED]);
        assert!(connection.receive_to_end().await.is_empty());
        fixture.until_alone().await;
        assert_eq!(fixture.server.statistics().negotiations_refused, 0);
    });
}

#[test]
fn violations_close_the_connection() {
    assert_refused(&[0, 0, 0, 7]);
    assert_refused(&[0x80, 0, 0, 3]);
    assert_refused(b"\0\0\0\x03IHAVEOPTIHAVEOPT");
    assert_refused(&[&[0, 0, 0, 3], &negotiate::option(1, b"nothing")[..]].concat());
    assert_refused(&[&[0, 0, 0, 3], &negotiate::option(1, b"\xff\xff")[..]].concat());
    assert_refused(&[&[0, 0, 0, 3], &negotiate::option(77, &vec![0; 65537])[..]].concat());
    assert_refused(&[&[0, 0, 0, 2], &negotiate::option(3, b"")[..]].concat());
    let many = negotiate::option(8, &[]).repeat(NbdConfig::default().negotiation_options_max as usize);
    assert_refused(&[&[0, 0, 0, 3], &many[..]].concat());
}

#[test]
fn silence_ends_after_a_while() {
    let timeout = NbdConfig::default().negotiation_timeout;
    let silent = [Vec::new(), b"\0\0\0\x03IHAVE".to_vec(), negotiate::script(EXPORT, true)[..80].to_vec()];
    for said in silent {
        let fixture = Fixture::new(SIZE);
        let began = fixture.platform.now();
        let count = said.len();
        fixture.run(async move |fixture| {
            let connection = fixture.connect().await;
            connection.send(&said, &[]);
            connection.receive_to_end().await;
            assert_eq!(fixture.server.statistics().negotiations_refused, 1, "after {count} bytes");
        });
        assert!(fixture.platform.now().since(began) >= timeout);
    }
}

#[test]
fn a_slow_volume_takes_none_of_the_clients_time() {
    Fixture::new(SIZE).run(async |fixture| {
        fixture.exports.delay_open(NbdConfig::default().negotiation_timeout * 2);
        let connection = fixed(&fixture).await;
        assert_eq!(
            reply_types(&connection, 6, &negotiate::information(EXPORT, &[])).await,
            [3, 3, ACKNOWLEDGED]
        );
        assert_eq!(
            reply_types(&connection, 7, &negotiate::information(EXPORT, &[])).await,
            [3, 3, ACKNOWLEDGED]
        );
    });
}

#[test]
fn replies_that_are_not_taken_do_not_pile_up() {
    let limit = 4096;
    let config = NbdConfig { send_queue_bytes_max: limit, ..NbdConfig::default() };
    Fixture::with_config(SIZE, config).run(async move |fixture| {
        fixture.platform.limit_pipes(1024);
        let connection = fixed(&fixture).await;
        // Each list is answered with some 80 bytes.
        connection.send(&negotiate::option(3, &[]).repeat(3000), &[]);
        fixture.platform.sleep(Duration::from_secs(1)).await;
        assert!(connection.incoming_queued_bytes_peak() >= limit);
        assert!(connection.incoming_queued_bytes_peak() < limit + 200);
        let answers = connection.receive_exact(3000 * 78).await.unwrap();
        assert_eq!(answers.len(), 3000 * 78);
    });
}
