use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use proptest::prelude::*;
use spandrel_volume::DeviceErrorKind;

use super::*;
use crate::testing::{Chunk, Client, Fixture, Reply, Request};

const SIZE: usize = 1 << 20;
/// The longest read or write in these tests' model.
const LENGTH_MAX: u32 = 128 << 10;

/// What the disk holds, and what each request should be answered, said as simply as possible.
struct Oracle {
    content: Vec<u8>,
    structured: bool,
    read_only: bool,
}

impl Oracle {
    fn expected_error(&self, request: &Request) -> u32 {
        let (flags, command, length) = (request.flags, request.command, u64::from(request.length));
        let allowed = match command {
            Request::READ if self.structured => 0x05,
            Request::WRITE_ZEROES => 0x13,
            Request::BLOCK_STATUS => 0x09,
            _ => 0x01,
        };
        if flags & !allowed != 0 || !matches!(command, 0 | 1 | 3 | 4 | 6 | 7) {
            return 22;
        }
        if command == Request::FLUSH {
            return 0;
        }
        if command == Request::BLOCK_STATUS && (!self.structured || length == 0) {
            return 22;
        }
        if self.read_only && matches!(command, 1 | 4 | 6) {
            return 1;
        }
        if u128::from(request.offset) + u128::from(length) > SIZE as u128 {
            return if matches!(command, 1 | 6) { 28 } else { 22 };
        }
        if !request.offset.is_multiple_of(512) || !length.is_multiple_of(512) {
            return 22;
        }
        if matches!(command, 0 | 1) && request.length > LENGTH_MAX {
            return if flags & 4 != 0 { 75 } else { 22 };
        }
        let (start, end) = (request.offset, request.offset + length);
        let whole_block =
            (0..SIZE as u64 / 4096).any(|block| start <= block * 4096 && (block + 1) * 4096 <= end);
        if flags & 16 != 0 && length != 0 && !whole_block { 95 } else { 0 }
    }

    /// Does what a request that is not refused does.
    fn apply(&mut self, request: &Request) {
        let range = range(request);
        match request.command {
            Request::WRITE => self.content[range].copy_from_slice(&request.data),
            Request::WRITE_ZEROES => self.content[range].fill(0),
            Request::TRIM => {
                let (start, end) = (range.start.next_multiple_of(4096), range.end / 4096 * 4096);
                if start < end {
                    self.content[start..end].fill(0);
                }
            }
            _ => {}
        }
    }

    fn check(&self, reply: &Reply) {
        let request = &reply.request;
        assert_eq!(reply.error, self.expected_error(request), "{request:?}: {:?}", reply.chunks);
        if reply.error != 0 {
            return;
        }
        match request.command {
            Request::READ => assert!(reply.data == self.content[range(request)], "{request:?}"),
            Request::BLOCK_STATUS => self.check_status(reply),
            _ => assert!(reply.chunks.is_empty(), "success needs no chunks"),
        }
    }

    fn check_status(&self, reply: &Reply) {
        let [Chunk::Status(descriptors)] = &reply.chunks[..] else { panic!("{:?}", reply.chunks) };
        assert!(!descriptors.is_empty());
        assert!(reply.request.flags & 8 == 0 || descriptors.len() == 1);
        let mut position = reply.request.offset as usize;
        for (length, state) in descriptors {
            assert!(*length != 0 && length.is_multiple_of(512));
            let stretch = position..position + *length as usize;
            assert!(matches!(state, 0 | 3));
            assert!(*state == 0 || self.content[stretch.clone()].iter().all(|byte| *byte == 0));
            position = stretch.end;
        }
        let end = range(&reply.request).end;
        assert!(if reply.request.flags & 8 == 0 { position == end } else { position <= end });
        assert!(descriptors.windows(2).all(|pair| pair[0].1 != pair[1].1), "neighbours are alike");
    }
}

fn range(request: &Request) -> Range<usize> {
    request.offset as usize..request.offset as usize + request.length as usize
}

fn is_change(request: &Request) -> bool {
    matches!(request.command, Request::WRITE | Request::TRIM | Request::WRITE_ZEROES)
}

/// Requests, some of them not valid.
fn request() -> impl Strategy<Value = Request> {
    let unit = prop_oneof![8 => Just(512_u64), 4 => Just(4096), 1 => Just(1)];
    let command = prop_oneof![12 => 0..2_u16, 6 => 3..8_u16, 1 => any::<u16>()];
    let flags = prop_oneof![6 => Just(0_u16), 3 => 0..32_u16, 1 => any::<u16>()];
    let count = prop_oneof![1 => Just(0_u32), 10 => 1..20_u32, 2 => 1..300_u32];
    let fill = prop_oneof![Just(0_u8), any::<u8>()];
    (unit, command, flags, 0..2100_u64, count, fill).prop_map(|(unit, command, flags, place, count, fill)| {
        let (offset, length) = (place * unit, count * unit as u32);
        match command {
            Request::DISCONNECT => Request::new(Request::FLUSH, 0, 0, 0),
            Request::WRITE => Request::write(0, offset, vec![fill; length as usize]).with_flags(flags),
            _ => Request::new(command, 0, offset, length).with_flags(flags),
        }
    })
}

/// Issues `requests`, several at a time unless they overlap, and checks all replies.
async fn converse(client: &Client, oracle: &mut Oracle, requests: Vec<Request>) {
    let mut in_flight: BTreeMap<u64, Request> = BTreeMap::new();
    for (cookie, request) in (1..).zip(requests) {
        let request = Request { cookie, ..request };
        let refused = oracle.expected_error(&request) != 0;
        let collides = |other: &Request| {
            let (one, two) = (range(&request), range(other));
            (is_change(&request) || is_change(other)) && one.start < two.end && two.start < one.end
        };
        while !refused && in_flight.values().any(collides) {
            let reply = client.reply().await.unwrap();
            oracle.check(&reply);
            in_flight.remove(&reply.request.cookie);
        }
        client.send(&request);
        if !refused {
            oracle.apply(&request);
            in_flight.insert(cookie, request);
            continue;
        }
        // Its answer may come behind others'.
        loop {
            let reply = client.reply().await.unwrap();
            oracle.check(&reply);
            if in_flight.remove(&reply.request.cookie).is_none() {
                break;
            }
        }
    }
    for _ in 0..in_flight.len() {
        oracle.check(&client.reply().await.unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_random_session_is_answered_as_the_model_says(
        structured in any::<bool>(),
        read_only in prop::bool::weighted(0.1),
        fragment in prop_oneof![Just(usize::MAX), 1_usize..5000],
        delays in proptest::collection::vec(0..1000_u64, 1..20),
        requests in proptest::collection::vec(request(), 1..60),
    ) {
        let config = NbdConfig { request_bytes_max: LENGTH_MAX, ..NbdConfig::default() };
        let fixture = Fixture::with_config(SIZE, config);
        fixture.platform.fragment(fragment);
        fixture.disk.delay(delays.into_iter().map(Duration::from_nanos).collect());
        fixture.disk.change_limits(|limits| limits.read_only = read_only);
        fixture.run(async move |fixture| {
            let client = fixture.attach(structured).await;
            assert_eq!(client.size_bytes, SIZE as u64);
            let mut oracle = Oracle { content: vec![0; SIZE], structured, read_only };
            converse(&client, &mut oracle, requests).await;
            assert_eq!(fixture.server.statistics().requests_in_flight, 0);
        });
    }
}

#[test]
fn a_read_of_zeros_is_answered_with_a_hole() {
    Fixture::new(SIZE).run(async |fixture| {
        fixture
            .disk
            .fill(&[vec![1; 65536], vec![0; 65536], vec![2; 4096], vec![0; 4096], vec![3; 4096]].concat());
        fixture.disk.divide_reads(5 * 4096);
        let client = fixture.attach(true).await;
        let chunks = async |offset, length, flags| {
            client.ask(&Request::new(Request::READ, 1, offset, length).with_flags(flags)).await.chunks
        };
        assert_eq!(chunks(65536, 4096, 0).await, [Chunk::Hole { offset: 65536, length: 4096 }]);
        assert_eq!(chunks(65536, 65536, 4).await, [Chunk::Hole { offset: 65536, length: 65536 }]);
        assert_eq!(chunks(0, 143_360, 4).await, [Chunk::Data { offset: 0, length: 143_360 }]);
        let expected = [
            Chunk::Data { offset: 0, length: 65536 },
            Chunk::Hole { offset: 65536, length: 65536 },
            Chunk::Data { offset: 131_072, length: 12288 },
        ];
        assert_eq!(chunks(0, 143_360, 0).await, expected);
        assert_eq!(chunks(4096, 0, 0).await, [Chunk::None]);
    });
}

#[test]
fn replies_come_in_the_order_in_which_the_device_is_done() {
    Fixture::new(SIZE).run(async |fixture| {
        let client = fixture.attach(true).await;
        fixture.disk.delay([30, 10, 20].map(Duration::from_millis).to_vec());
        for cookie in [1, 2, 3] {
            client.send(&Request::new(Request::READ, cookie, 0, 4096));
        }
        let mut cookies = Vec::new();
        for _ in 0..3 {
            cookies.push(client.reply().await.unwrap().request.cookie);
        }
        assert_eq!(cookies, [2, 3, 1]);
    });
}

#[test]
fn an_error_has_a_text_for_those_who_understand_it() {
    Fixture::new(SIZE).run(async |fixture| {
        let client = fixture.attach(true).await;
        let reply = client.ask(&Request::new(Request::READ, 1, SIZE as u64, 512)).await;
        let message = "beyond the end of the volume".to_owned();
        assert_eq!(reply.chunks, [Chunk::Error { error: 22, message }]);
        fixture.disk.fail(Some(DeviceErrorKind::Failed));
        let reply = client.ask(&Request::write(1, 0, vec![1; 512])).await;
        assert_eq!(reply.chunks, [Chunk::Error { error: 5, message: "planted failure".to_owned() }]);
    });
}

#[test]
fn a_volume_that_grows_can_be_used_at_once() {
    Fixture::new(SIZE).run(async |fixture| {
        let client = fixture.attach(true).await;
        fixture.disk.change_limits(|limits| limits.size_bytes = SIZE as u64 / 2);
        let beyond = Request::new(Request::READ, 1, SIZE as u64 / 2, 512);
        assert_eq!(client.ask(&beyond).await.error, 22);
        fixture.disk.change_limits(|limits| limits.size_bytes = SIZE as u64);
        assert_eq!(client.ask(&beyond).await.error, 0);
    });
}

#[test]
fn requests_in_flight_are_bounded_and_none_is_lost() {
    let count = 1000;
    Fixture::new(SIZE).run(async move |fixture| {
        let client = fixture.attach(true).await;
        fixture.disk.hold();
        for cookie in 0..count {
            client.send(&Request::new(Request::READ, cookie, 512 * (cookie % 2000), 512));
        }
        fixture.quiet().await;
        let max = NbdConfig::default().requests_in_flight_max;
        assert_eq!(fixture.disk.waiting(), max);
        assert_eq!(fixture.server.statistics().requests_in_flight, max as u64);
        fixture.disk.release();
        for _ in 0..count {
            assert_eq!(client.reply().await.unwrap().error, 0);
        }
        assert_eq!(fixture.disk.waiting_peak(), max);
        assert_ne!(fixture.server.statistics().pauses_for_requests, 0);
    });
}

#[test]
fn bytes_in_flight_are_bounded_before_memory_is_taken() {
    let config = NbdConfig { bytes_in_flight_max: 256 << 10, ..NbdConfig::default() };
    Fixture::with_config(SIZE, config).run(async |fixture| {
        let client = fixture.attach(true).await;
        fixture.disk.hold();
        client.send(&Request::write(1, 0, vec![1; 128 << 10]));
        client.send(&Request::new(Request::READ, 2, 512 << 10, 128 << 10));
        client.send(&Request::new(Request::FLUSH, 3, 0, 0));
        client.send(&Request::write(4, 256 << 10, vec![1; 512]));
        fixture.quiet().await;
        assert_eq!(fixture.disk.waiting(), 3, "the second write waits");
        fixture.disk.release();
        for _ in 0..4 {
            assert_eq!(client.reply().await.unwrap().error, 0);
        }
        let giant = Request::write(5, 0, vec![1; 512 << 10]);
        assert_eq!(client.ask(&giant).await.error, 0, "a giant goes alone");
    });
}

#[test]
fn a_client_that_takes_no_answers_is_not_read_from() {
    let (count, length, limit) = (200, 64 << 10, 256 << 10);
    let config =
        NbdConfig { send_queue_bytes_max: limit, bytes_in_flight_max: 512 << 10, ..NbdConfig::default() };
    let fixture = Fixture::with_config(SIZE, config);
    fixture.disk.fill(&vec![1; SIZE]);
    fixture.run(async move |fixture| {
        let client = fixture.attach(false).await;
        for cookie in 0..count {
            client.send(&Request::new(Request::READ, cookie, 0, length));
        }
        fixture.platform.sleep(Duration::from_secs(60)).await;
        let bound = limit + (512 << 10) + 100 * 16;
        assert!(client.connection.incoming_queued_bytes_peak() <= bound);
        assert!(client.connection.incoming_queued_bytes_peak() >= limit);
        assert!(fixture.disk.requests() < 20, "{} requests", fixture.disk.requests());
        assert_ne!(fixture.server.statistics().pauses_for_replies, 0);
        let other = fixture.attach(true).await;
        assert_eq!(other.ask(&Request::new(Request::FLUSH, 1, 0, 0)).await.error, 0, "others are served");
        for _ in 0..count {
            assert!(client.reply().await.unwrap().data.iter().all(|byte| *byte == 1));
        }
        assert!(client.connection.incoming_queued_bytes_peak() <= bound);
    });
}

#[test]
fn the_data_of_a_refused_write_are_skipped() {
    let config = NbdConfig { request_bytes_max: 64 << 10, ..NbdConfig::default() };
    Fixture::with_config(SIZE, config).run(async |fixture| {
        let client = fixture.attach(true).await;
        let refused = [
            (Request::write(1, 0, vec![0x25; 128 << 10]), 22),
            (Request::write(1, 1, vec![0x25; 512]), 22),
            (Request::write(1, SIZE as u64, vec![0x25; 32 << 10]), 28),
            (Request::write(1, 0, vec![0x25; 512]).with_flags(2), 22),
            (Request::write(1, u64::MAX - 511, vec![0x25; 512]), 28),
        ];
        for (request, error) in refused {
            assert_eq!(client.ask(&request).await.error, error);
        }
        assert_eq!(fixture.disk.requests(), 0);
        assert_eq!(client.ask(&Request::new(Request::FLUSH, 1, 0, 0)).await.error, 0);
        assert_eq!(fixture.server.statistics().requests_refused, 5);
    });
}

#[test]
fn a_refused_write_that_is_too_long_to_skip_ends_the_connection() {
    let config = NbdConfig { request_bytes_max: 4096, discard_bytes_max: 8192, ..NbdConfig::default() };
    Fixture::with_config(SIZE, config).run(async |fixture| {
        let client = fixture.attach(true).await;
        assert_eq!(client.ask(&Request::write(1, 0, vec![1; 8192])).await.error, 22);
        client.send(&Request { length: u32::MAX, ..Request::write(2, 0, Vec::new()) });
        assert!(client.reply().await.is_none());
    });
}

#[test]
fn a_request_without_the_magic_number_ends_the_connection() {
    Fixture::new(SIZE).run(async |fixture| {
        let client = fixture.attach(true).await;
        let mut bytes = Request::new(Request::FLUSH, 1, 0, 0).bytes();
        bytes[0] ^= 1;
        client.connection.send(&bytes, &[]);
        assert!(client.reply().await.is_none());
    });
}

#[test]
fn an_empty_request_is_done_without_the_device() {
    for structured in [false, true] {
        Fixture::new(SIZE).run(async move |fixture| {
            let client = fixture.attach(structured).await;
            for command in [Request::READ, Request::WRITE, Request::TRIM, Request::WRITE_ZEROES] {
                assert_eq!(client.ask(&Request::new(command, 1, SIZE as u64, 0)).await.error, 0);
            }
            assert_eq!(client.ask(&Request::new(Request::BLOCK_STATUS, 1, 0, 0)).await.error, 22);
            assert_eq!(fixture.disk.requests(), 0);
        });
    }
}
