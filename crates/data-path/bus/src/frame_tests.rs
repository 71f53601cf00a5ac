use proptest::prelude::*;
use spandrel_platform::BufferPool;

use super::*;
use crate::payload::subject_of;
use crate::test_support::{copy_write, done};
use crate::{BusRequest, BusResponse};

fn sealed(header: Header, body: &[u8]) -> Vec<u8> {
    let mut scratch = FrameScratch::default();
    scratch.write_raw_body(body);
    scratch.seal(header).to_vec()
}

fn decode(frame: &[u8]) -> Result<Header, Malformed> {
    Header::decode(frame.first_chunk().expect("a whole header"))
}

fn sample_header() -> Header {
    let mut header = Header::new(FrameKind::Request, 1, 0x0302_0100, 0x1716_1514_1312_1110);
    header.payload_bytes = 8192;
    header.payload_checksum = 0xA3A2_A1A0;
    header.subject = Subject {
        volume: VolumeId::from_bytes(std::array::from_fn(|index| 0x20 + index as u8)),
        copy: CopyId::from_bytes(std::array::from_fn(|index| 0x30 + index as u8)),
        epoch: Epoch(0x4342_4140),
        configuration: ConfigurationVersion(0x5756_5554_5352_5150),
        mark: Version::new(Epoch(0x6362_6160), 0x7776_7574_7372_7170),
    };
    header
}

fn hex(bytes: &[u8]) -> String {
    let lines = bytes.chunks(16).map(|line| line.iter().map(|byte| format!("{byte:02x}")).collect());
    lines.collect::<Vec<String>>().join("\n")
}

/// The wire format lasts: programs of different versions must agree on it.
#[test]
fn the_header_stands_on_the_wire_as_documented() {
    let frame = sealed(sample_header(), b"abc");
    let expected = "\
        53704273010004000300000000200000\n\
        00010203404142431011121314151617\n\
        202122232425262728292a2b2c2d2e2f\n\
        303132333435363738393a3b3c3d3e3f\n\
        50515253545556577071727374757677\n\
        60616263a0a1a2a3";
    assert_eq!(hex(&frame[..88]), expected);
    assert_eq!(frame[88..92], crc32c(b"abc").to_le_bytes());
    assert_eq!(frame[92..96], crc32c(&frame[..92]).to_le_bytes());
    assert_eq!(&frame[96..], b"abc");
    let header = decode(&frame).expect("it was just made");
    let expected = Header { body_bytes: 3, body_checksum: crc32c(b"abc"), ..sample_header() };
    assert_eq!(header, expected);
}

/// As above, for what stands in bodies.
#[test]
fn bodies_stand_on_the_wire_as_documented() {
    let (request, _) = copy_write(5, 2);
    let body = postcard::to_allocvec(&request).expect("it is short");
    let expected = "\
        00001007070707070707070707070707\n\
        07070703100909090909090909090909\n\
        09090909090511052801040305052902";
    assert_eq!(hex(&body[..48]), expected);
    assert_eq!(hex(&postcard::to_allocvec(&done()).expect("it is short")), "010001");
    assert_eq!(postcard::from_bytes::<BusRequest>(&body), Ok(request));
}

#[test]
fn any_flipped_bit_of_a_header_is_noticed() {
    let frame = sealed(sample_header(), b"abc");
    for bit in 0..HEADER_BYTES * 8 {
        let mut damaged = frame.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&damaged).is_err(), "bit {bit}");
    }
}

#[test]
fn any_flipped_bit_of_a_body_is_noticed() {
    let frame = sealed(sample_header(), b"a body of some length");
    let header = decode(&frame).expect("it was just made");
    assert!(header.matches(&frame[HEADER_BYTES..]));
    for bit in 0..(frame.len() - HEADER_BYTES) * 8 {
        let mut damaged = frame.clone();
        damaged[HEADER_BYTES + bit / 8] ^= 1 << (bit % 8);
        assert!(!header.matches(&damaged[HEADER_BYTES..]), "bit {bit}");
    }
}

#[test]
fn lengths_beyond_the_bounds_of_a_kind_are_refused() {
    for (kind, body_bytes_max, payload_bytes_max) in [
        (FrameKind::Hello, HELLO_BODY_BYTES_MAX, 0),
        (FrameKind::Welcome, HELLO_BODY_BYTES_MAX, 0),
        (FrameKind::Refusal, HELLO_BODY_BYTES_MAX, 0),
        (FrameKind::Request, 1 << 20, 33 << 20),
        (FrameKind::Answer, 32 << 20, 33 << 20),
        (FrameKind::Done, 32 << 10, 0),
    ] {
        let with_lengths = |body_bytes, payload_bytes| {
            let mut bytes = [0; HEADER_BYTES];
            Header { body_bytes, payload_bytes, ..Header::new(kind, 1, 1, 1) }.encode(&mut bytes);
            Header::decode(&bytes)
        };
        assert!(with_lengths(body_bytes_max, payload_bytes_max).is_ok());
        assert!(with_lengths(body_bytes_max + 1, 0).is_err());
        assert!(with_lengths(0, payload_bytes_max + 1).is_err());
        assert!(with_lengths(u32::MAX as usize, u32::MAX as usize).is_err());
    }
}

#[test]
fn unknown_kinds_are_refused() {
    let mut bytes = [0; HEADER_BYTES];
    for kind in 0..=u8::MAX {
        Header::new(FrameKind::Request, 1, 1, 1).encode(&mut bytes);
        bytes[6] = kind;
        let checksum = crc32c(&bytes[..92]);
        bytes[92..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(Header::decode(&bytes).is_ok(), (1..=9).contains(&kind), "kind {kind}");
    }
}

#[test]
fn what_is_done_is_said_by_its_numbers_alone() {
    let read = |body: &[u8]| read_done(body).map(Iterator::collect::<Vec<u64>>).ok();
    let body = done_body(&[1 << 20 | 1, u64::MAX]);
    assert_eq!(body, [1, 0, 0x10, 0, 0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255]);
    assert_eq!(read(&body), Some(vec![1 << 20 | 1, u64::MAX]));
    assert_eq!((read(&body[1..]), read(&[])), (None, None));
    assert!(done_body(&vec![0; DONE_MAX]).len() <= FrameKind::Done.body_bytes_max());
}

#[test]
fn a_body_that_is_too_long_is_not_written() {
    let mut scratch = FrameScratch::default();
    let bytes = |count: usize| vec![0u8; count];
    // A length of this size takes three bytes.
    assert!(scratch.write_body(FrameKind::Request, &bytes(REQUEST_BODY_BYTES_MAX - 3)).is_ok());
    assert_eq!(scratch.write_body(FrameKind::Request, &bytes(REQUEST_BODY_BYTES_MAX - 2)), Err(TooLarge));
    assert!(scratch.write_body(FrameKind::Answer, &bytes(REQUEST_BODY_BYTES_MAX)).is_ok());
    // Nothing of the former ones is left.
    scratch
        .write_body(FrameKind::Answer, &BusResponse::Client(Ok(crate::ClientResponse::Done)))
        .expect("short");
    let frame = scratch.seal(Header::new(FrameKind::Answer, 1, 1, 1));
    assert_eq!(hex(&frame[HEADER_BYTES..]), "010001");
}

#[test]
fn payloads_are_as_long_as_their_parts_together() {
    let pool = BufferPool::default();
    let part = pool.take(PAYLOAD_BYTES_MAX / 2).freeze();
    assert_eq!(payload_bytes(&[]), Ok(0));
    assert_eq!(payload_bytes(&[part.clone(), part.clone()]), Ok(PAYLOAD_BYTES_MAX));
    assert_eq!(payload_bytes(&[part.clone(), part, pool.take(1).freeze()]), Err(TooLarge));
}

#[test]
fn a_header_repeats_what_its_request_is_about() {
    let (request, _) = copy_write(1, 1);
    let subject = subject_of(&request);
    assert_eq!((subject.epoch, subject.configuration), (Epoch(5), ConfigurationVersion(17)));
    assert_eq!(subject.mark, Version::new(Epoch(5), 40));
    assert_eq!(subject.volume, crate::test_support::VOLUME);
    assert_eq!(subject.copy, CopyId::from_bytes([9; 16]));
}

proptest! {
    #[test]
    fn random_bytes_are_no_header(bytes in proptest::array::uniform32(any::<u8>())) {
        let mut header = [0; HEADER_BYTES];
        for part in header.chunks_mut(32) {
            part.copy_from_slice(&bytes);
        }
        prop_assert!(Header::decode(&header).is_err());
        header[..4].copy_from_slice(&MAGIC);
        prop_assert!(Header::decode(&header).is_err());
    }

    #[test]
    fn headers_come_back_as_they_were(
        kind in prop_oneof![Just(FrameKind::Request), Just(FrameKind::Answer)],
        version: u16, status: u8, session: u32, sequence: u64,
        body_bytes in 0..REQUEST_BODY_BYTES_MAX, payload_bytes in 0..PAYLOAD_BYTES_MAX,
        volume: [u8; 16], copy: [u8; 16], epoch: u32, configuration: u64, mark: (u32, u64),
        payload_checksum: u32, body_checksum: u32,
    ) {
        let header = Header {
            version, kind, status, body_bytes, payload_bytes, session, sequence,
            subject: Subject {
                volume: VolumeId::from_bytes(volume),
                copy: CopyId::from_bytes(copy),
                epoch: Epoch(epoch),
                configuration: ConfigurationVersion(configuration),
                mark: Version::new(Epoch(mark.0), mark.1),
            },
            payload_checksum, body_checksum,
        };
        let mut bytes = [0; HEADER_BYTES];
        header.encode(&mut bytes);
        prop_assert_eq!(Header::decode(&bytes), Ok(header));
    }
}
