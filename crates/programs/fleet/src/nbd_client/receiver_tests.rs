use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use futures_util::FutureExt;
use spandrel_platform::{Buffer, LinkError};

use super::*;
use crate::nbd_client::protocol::Request;

/// A connection that delivers pieces as they were cut.
#[derive(Clone)]
struct Pieces(Rc<RefCell<VecDeque<Vec<u8>>>>);

impl Pieces {
    fn of(bytes: &[u8], piece_bytes: usize) -> Self {
        Self(Rc::new(RefCell::new(bytes.chunks(piece_bytes).map(<[u8]>::to_vec).collect())))
    }
}

impl Connection for Pieces {
    async fn receive(&self, into: &mut [u8]) -> Result<usize, LinkError> {
        let Some(mut piece) = self.0.borrow_mut().pop_front() else { return Ok(0) };
        let count = piece.len().min(into.len());
        into[..count].copy_from_slice(&piece[..count]);
        if count < piece.len() {
            self.0.borrow_mut().push_front(piece.split_off(count));
        }
        Ok(count)
    }

    fn send(&self, _head: &[u8], _body: &[Buffer]) {}

    fn queued_bytes(&self) -> usize {
        0
    }

    async fn send_room(&self, _limit: usize) -> Result<(), LinkError> {
        Ok(())
    }

    fn close(&self) {}

    fn peer(&self) -> String {
        "test".to_owned()
    }
}

/// What became of a read: its bytes, `?` where nothing came, and its error.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Outcome {
    name: char,
    data: Vec<u8>,
    error: Option<u32>,
}

const UNTOUCHED: u8 = b'?';

/// Takes `bytes` in, cut into pieces: the outcomes in order, and how it ended.
fn take_in(
    requests: &[(char, Request)],
    bytes: impl Fn(&[u64]) -> Vec<u8>,
    piece_bytes: usize,
) -> (Vec<Outcome>, NbdError) {
    let mut in_flight = InFlight::new();
    let mut cookies = Vec::new();
    for (name, request) in requests {
        let data =
            vec![UNTOUCHED; if request.command == Command::Read { request.length as usize } else { 0 }];
        cookies.push(in_flight.insert(*request, (*name, data)));
    }
    let mut receiver = Receiver::new(Pieces::of(&bytes(&cookies), piece_bytes));
    let mut outcomes = Vec::new();
    loop {
        if let Err(error) = receiver.fill().now_or_never().expect("pieces are there at once") {
            return (outcomes, error);
        }
        loop {
            match receiver.next(&mut in_flight) {
                Err(error) => return (outcomes, error),
                Ok(None) => break,
                Ok(Some(Event::Data { cookie, position, bytes })) => {
                    let (_, data) = &mut in_flight.get_mut(cookie).unwrap().token;
                    data[position as usize..][..bytes.len()].copy_from_slice(bytes);
                }
                Ok(Some(Event::Zeros { cookie, position, length })) => {
                    let (_, data) = &mut in_flight.get_mut(cookie).unwrap().token;
                    data[position as usize..][..length as usize].fill(0);
                }
                Ok(Some(Event::Done { pending, error })) => {
                    let (name, data) = pending.token;
                    outcomes.push(Outcome { name, data, error });
                }
            }
        }
    }
}

fn read(name: char, offset: u64, length: u32) -> (char, Request) {
    (name, Request { command: Command::Read, offset, length })
}

fn write(name: char) -> (char, Request) {
    (name, Request { command: Command::Write, offset: 0, length: 512 })
}

fn simple(cookie: u64, error: u32, data: &[u8]) -> Vec<u8> {
    [&0x6744_6698_u32.to_be_bytes()[..], &error.to_be_bytes(), &cookie.to_be_bytes(), data].concat()
}

fn chunk(cookie: u64, kind: u16, is_last: bool, payload: &[u8]) -> Vec<u8> {
    let mut bytes = 0x668e_33ef_u32.to_be_bytes().to_vec();
    bytes.extend(u16::from(is_last).to_be_bytes());
    bytes.extend(kind.to_be_bytes());
    bytes.extend(cookie.to_be_bytes());
    bytes.extend((payload.len() as u32).to_be_bytes());
    bytes.extend(payload);
    bytes
}

fn data(offset: u64, bytes: &[u8]) -> Vec<u8> {
    [&offset.to_be_bytes(), bytes].concat()
}

#[test]
fn replies_are_understood_however_they_are_cut() {
    let requests =
        [read('a', 100, 6), write('b'), read('c', 0, 4), read('d', 8, 4), write('e'), read('f', 0, 2)];
    let stream = |cookies: &[u64]| {
        let [a, b, c, d, e, f] = cookies[..] else { panic!("six cookies") };
        let error = [&28_u32.to_be_bytes()[..], &4_u16.to_be_bytes(), b"full"].concat();
        let late_error = [&5_u32.to_be_bytes()[..], &0_u16.to_be_bytes(), &12_u64.to_be_bytes()].concat();
        [
            // Chunks of two reads, interleaved and out of order.
            chunk(a, 1, false, &data(104, b"EF")),
            chunk(d, 1, false, &data(8, b"12")),
            chunk(a, 2, false, &[&100_u64.to_be_bytes()[..], &3_u32.to_be_bytes()].concat()),
            simple(b, 0, b""),
            chunk(a, 1, true, &data(103, b"D")),
            simple(c, 0, b"wxyz"),
            // A read that fails half-way, and says only later that it is over.
            chunk(d, (1 << 15) + 2, false, &late_error),
            chunk(d, 0, true, b""),
            chunk(e, (1 << 15) + 1, true, &error),
            simple(f, 5, b""),
        ]
        .concat()
    };
    let outcome = |name, data: &[u8], error| Outcome { name, data: data.to_vec(), error };
    let expected = [
        outcome('b', b"", None),
        outcome('a', b"\0\0\0DEF", None),
        outcome('c', b"wxyz", None),
        outcome('d', b"12??", Some(5)),
        outcome('e', b"", Some(28)),
        outcome('f', b"??", Some(5)),
    ];
    for piece_bytes in (1..60).chain([1 << 20]) {
        let (outcomes, end) = take_in(&requests, stream, piece_bytes);
        assert_eq!(outcomes, expected, "in pieces of {piece_bytes}");
        assert_eq!(end, NbdError::Closed);
    }
}

#[test]
fn a_read_longer_than_the_buffer_passes_through_it() {
    let length = BUFFER_BYTES * 3 + 17;
    let content: Vec<u8> = (0..length).map(|index| (index % 251) as u8).collect();
    for piece_bytes in [1000, BUFFER_BYTES, 10 * BUFFER_BYTES] {
        let stream = |cookies: &[u64]| [simple(cookies[0], 0, &content), simple(cookies[1], 0, b"")].concat();
        let (outcomes, _) = take_in(&[read('a', 0, length as u32), write('b')], stream, piece_bytes);
        assert_eq!(outcomes.len(), 2);
        assert!(outcomes[0].data == content, "in pieces of {piece_bytes}");
    }
}

#[test]
fn what_the_protocol_forbids_ends_the_session() {
    let request = [read('a', 4096, 8), write('b')];
    type Stream = fn(u64, u64) -> Vec<u8>;
    let cases: [(&str, Stream, &str); 12] = [
        ("no magic", |_, _| vec![7; 64], "begins with 0x07070707"),
        ("an unknown cookie", |a, _| simple(a + 99, 0, b""), "not in flight"),
        ("an answer twice", |_, b| [simple(b, 0, b""), simple(b, 0, b"")].concat(), "not in flight"),
        ("data before the range", |a, _| chunk(a, 1, true, &data(4095, b"x")), "1 bytes at byte 4095"),
        (
            "data behind the range",
            |a, _| chunk(a, 1, true, &data(4096, b"123456789")),
            "9 bytes at byte 4096",
        ),
        ("data far behind", |a, _| chunk(a, 1, true, &data(u64::MAX, b"1")), "answered with 1 bytes"),
        (
            "the same data twice",
            |a, _| chunk(a, 1, false, &data(4096, b"12345")).repeat(2),
            "answered with 5 bytes",
        ),
        ("too few data", |a, _| chunk(a, 1, true, &data(4096, b"1234567")), "answered with 7 bytes"),
        ("no data", |a, _| chunk(a, 0, true, b""), "answered with 0 bytes"),
        ("data for a write", |_, b| chunk(b, 1, true, &data(0, b"1")), "a write of 512 bytes"),
        ("an unknown chunk", |a, _| chunk(a, 77, true, b"1234"), "type 77 has 4 bytes"),
        ("an endless error", |a, _| chunk(a, 1 << 15, true, &[0; 10_000]), "has 10000 bytes"),
    ];
    for (name, stream, expected) in cases {
        for piece_bytes in [1, 7, 100_000] {
            let (_, error) = take_in(&request, |cookies| stream(cookies[0], cookies[1]), piece_bytes);
            let NbdError::Protocol(text) = &error else { panic!("{name}: {error}") };
            assert!(text.contains(expected), "{name}: {text}");
        }
    }
}
