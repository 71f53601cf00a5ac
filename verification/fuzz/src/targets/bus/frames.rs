//! Frames as bytes, and a session of two real nodes that was recorded.
//!
//! | offset | bytes | field |
//! |---:|---:|---|
//! | 8 | 4 | length of the body |
//! | 12 | 4 | length of the payload |
//! | 16 | 4 | session |
//! | 24 | 8 | sequence |
//! | 84 | 4 | checksum of the payload; 0 if the body holds checksums of it |
//! | 88 | 4 | checksum of the body |
//! | 92 | 4 | checksum of the 92 bytes before |

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::OnceLock;

use spandrel_platform::{Connection, Listener, Platform};
use spandrel_platform_simulated::SimulatedConnection;
use spandrel_shared::checksum::crc32c;

use super::messages::requests;
use super::{HOLDER, OWNER, Service, bus, tap_address};
use crate::targets::wire::{Wire, buffer};

pub const HEADER_BYTES: usize = 96;

/// A frame, taken apart.
#[derive(Clone)]
pub struct Frame {
    /// [`HEADER_BYTES`] bytes.
    pub header: Vec<u8>,
    pub body: Vec<u8>,
    pub payload: Vec<u8>,
}

impl Frame {
    pub fn session(&self) -> u32 {
        number_at(&self.header, 16)
    }

    pub fn sequence(&self) -> u64 {
        u64::from(number_at(&self.header, 24)) | u64::from(number_at(&self.header, 28)) << 32
    }

    /// The same as part of another session.
    pub fn numbered(mut self, session: u32, sequence: u64) -> Self {
        self.header[16..20].copy_from_slice(&session.to_le_bytes());
        self.header[24..32].copy_from_slice(&sequence.to_le_bytes());
        self
    }

    /// With the right lengths and checksums.
    pub fn sealed(mut self) -> Vec<u8> {
        self.header[8..12].copy_from_slice(&(self.body.len() as u32).to_le_bytes());
        self.header[12..16].copy_from_slice(&(self.payload.len() as u32).to_le_bytes());
        self.sealed_with_its_lengths()
    }

    /// With the right checksums, whatever the lengths say.
    pub fn sealed_with_its_lengths(mut self) -> Vec<u8> {
        if number_at(&self.header, 84) != 0 {
            self.header[84..88].copy_from_slice(&crc32c(&self.payload).to_le_bytes());
        }
        self.header[88..92].copy_from_slice(&crc32c(&self.body).to_le_bytes());
        let checksum = crc32c(&self.header[..92]);
        self.header[92..].copy_from_slice(&checksum.to_le_bytes());
        self.unsealed()
    }

    /// The bytes.
    pub fn unsealed(self) -> Vec<u8> {
        [self.header, self.body, self.payload].concat()
    }
}

/// The lengths of body and payload that a header tells.
pub fn lengths(header: &[u8]) -> (usize, usize) {
    (number_at(header, 8) as usize, number_at(header, 12) as usize)
}

fn number_at(bytes: &[u8], at: usize) -> u32 {
    let bytes = bytes[at..at + 4].try_into().expect("four bytes");
    u32::from_le_bytes(bytes)
}

/// A session with all [`requests`], and their answers in the same order.
pub struct Recorded {
    pub hello: Frame,
    pub welcome: Frame,
    pub requests: Vec<Frame>,
    pub answers: Vec<Frame>,
}

/// The recorded session; recorded when it is asked for first.
pub fn recorded() -> &'static Recorded {
    static RECORDED: OnceLock<Recorded> = OnceLock::new();
    RECORDED.get_or_init(record)
}

type Tape = Rc<RefCell<Vec<u8>>>;

/// Lets two real nodes speak through a tap.
fn record() -> Recorded {
    let wire = Wire::new(false);
    let platform = wire.stranger.platform();
    let holder = bus(&platform, HOLDER);
    let listener = platform.listen(&Wire::address()).expect("nobody else listens");
    wire.stranger.spawn(holder.serve(listener, Service::new(&platform)));

    let tap = wire.world.start_process_on(&wire.stranger.host(), "tap");
    let platform = tap.platform();
    let (asked, answered) = (Tape::default(), Tape::default());
    let tapes = (Rc::clone(&asked), Rc::clone(&answered));
    let listener = platform.listen(&tap_address()).expect("nobody else listens");
    tap.spawn(async move {
        let from = listener.accept().await.expect("the owner dials");
        let to = platform.connect(&Wire::address()).await.expect("the holder listens");
        platform.spawn(copy(to.clone(), from.clone(), tapes.1));
        copy(from, to, tapes.0).await;
    });

    let platform = wire.tested.platform();
    let end = wire.tested.block_on(async move {
        let owner = bus(&platform, OWNER);
        owner.set_peer(HOLDER, vec![tap_address()]);
        owner.changes().wait_until(|| owner.session(HOLDER).is_some()).await;
        for (request, payload) in requests() {
            let payload = (!payload.is_empty()).then(|| buffer(&platform, &payload).freeze());
            let answered = owner.call(HOLDER, request, payload.into_iter().collect()).await;
            answered.expect("the holder answers");
        }
    });
    end.expect("the recording comes to its end");
    let (mut asked, mut answered) = (frames_of(&asked.borrow()), frames_of(&answered.borrow()));
    let (hello, welcome) = (asked.remove(0), answered.remove(0));
    Recorded { hello, welcome, requests: asked, answers: answered }
}

async fn copy(from: SimulatedConnection, to: SimulatedConnection, tape: Tape) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.receive(&mut bytes).await {
        tape.borrow_mut().extend_from_slice(&bytes[..count]);
        to.send(&bytes[..count], &[]);
    }
    to.close();
}

fn frames_of(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while bytes.len() >= HEADER_BYTES {
        let (body_bytes, payload_bytes) = lengths(bytes);
        let (header, rest) = bytes.split_at(HEADER_BYTES);
        let (body, rest) = rest.split_at(body_bytes);
        let (payload, rest) = rest.split_at(payload_bytes);
        frames.push(Frame { header: header.to_vec(), body: body.to_vec(), payload: payload.to_vec() });
        bytes = rest;
    }
    frames
}
