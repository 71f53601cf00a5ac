use spandrel_platform::BufferPool;
use spandrel_replica::{Heeded, NewCopy};
use spandrel_shared::{CopyId, DriveId, Epoch, VolumeId};

use super::*;
use crate::test_support::{
    VOLUME, attach, authority, block_content, client_read, client_write, copy, copy_parts, copy_read,
    copy_write,
};
use crate::{Heartbeat, HeartbeatAnswer};

fn buffer(bytes: &[u8]) -> Buffer {
    BufferPool::default().copy_of(bytes).freeze()
}

/// The payload of the answer to a read of `count` blocks from `first` on.
fn read_payload(first: u32, count: u32) -> Vec<u8> {
    let data = (first..first + count).filter(|block| !matches!(block % 8, 3 | 6));
    data.flat_map(block_content).collect()
}

fn judge_read(
    parts: Vec<PartDescription>,
    payload: Option<&[u8]>,
    first: u32,
    count: u32,
) -> Result<Vec<Buffer>, BusError> {
    let response = BusResponse::Replica(Ok(ReplicaResponse::Parts(parts)));
    Expected::of(&copy_read(first, count)).judge(&response, payload.map(buffer))
}

#[test]
fn a_write_is_whole_only_with_exactly_its_blocks() {
    let (request, payload) = copy_write(4, 3);
    let whole = |payload: &[u8]| request_is_whole(&request, 0, Some(&buffer(payload)));
    assert!(whole(&payload));
    assert!(!whole(&payload[..2 * BLOCK_BYTES]) && !whole(&payload[..payload.len() - 1]));
    assert!(!whole(&[&payload[..], &[0; BLOCK_BYTES]].concat()) && !request_is_whole(&request, 0, None));
    for position in [0, BLOCK_BYTES, payload.len() - 1] {
        let mut damaged = payload.clone();
        damaged[position] ^= 1;
        assert!(!whole(&damaged));
    }
    let mut swapped = payload.clone();
    swapped.rotate_left(BLOCK_BYTES);
    assert!(!whole(&swapped), "a block in the wrong place");
}

#[test]
fn the_blocks_of_a_write_belong_to_its_address() {
    let (request, payload) = copy_write(4, 1);
    let BusRequest::Replica(ReplicaRequest::Write { copy, authority, mark, version, checksums, .. }) =
        request
    else {
        panic!("it is a write");
    };
    let other_volume = CopyAddress { volume: VolumeId::from_bytes([8; 16]), ..copy };
    for (copy, first, whole) in
        [(copy, 4, true), (copy, 5, false), (other_volume, 4, false), (copy, u32::MAX, false)]
    {
        let (mark, checksums) = (mark.clone(), checksums.clone());
        let write = ReplicaRequest::Write { copy, authority, mark, first, version, checksums };
        let payload = buffer(&payload);
        assert_eq!(request_is_whole(&BusRequest::Replica(write), 0, Some(&payload)), whole);
    }
}

#[test]
fn a_heal_brings_one_block_or_none() {
    let heal = |checksum| {
        let heal =
            ReplicaRequest::Heal { copy: copy(), authority: authority(), block: 7, token: 1, checksum };
        BusRequest::Replica(heal)
    };
    let data = block_content(7);
    let checksum = BlockChecksum::new(VOLUME, copy().slab).of(7, &data);
    assert!(request_is_whole(&heal(Some(checksum)), 0, Some(&buffer(&data))));
    assert!(request_is_whole(&heal(None), 0, None));
    assert!(!request_is_whole(&heal(Some(checksum ^ 1)), 0, Some(&buffer(&data))));
    assert!(!request_is_whole(&heal(Some(checksum)), 0, None));
    assert!(!request_is_whole(&heal(None), 0, Some(&buffer(&data))));
}

#[test]
fn every_other_payload_has_a_checksum_over_all_its_parts() {
    let bytes = block_content(1);
    let request = client_write(1);
    let cut = [buffer(&bytes[..100]), buffer(&bytes[100..101]), buffer(&bytes[101..])];
    let checksum = request_checksum(&request, &[buffer(&bytes)]);
    assert_eq!(checksum, crc32c(&bytes));
    assert_eq!(request_checksum(&request, &cut), checksum);
    assert!(request_is_whole(&request, checksum, Some(&buffer(&bytes))));
    assert!(!request_is_whole(&request, checksum, Some(&buffer(&bytes[1..]))));
    assert!(request_is_whole(&attach(1), 0, None));
    let response = BusResponse::Client(Ok(ClientResponse::Data));
    assert_eq!(response_checksum(&response, &cut), checksum);
    assert!(response_is_whole(&response, checksum, Some(&buffer(&bytes))));
    assert!(!response_is_whole(&response, checksum ^ 1, Some(&buffer(&bytes))));
    let parts = BusResponse::Replica(Ok(ReplicaResponse::Parts(Vec::new())));
    assert_eq!(response_checksum(&parts, &cut), 0);
    assert_eq!(request_checksum(&copy_write(0, 1).0, &cut), 0);
}

#[test]
fn what_was_read_is_split_as_it_is_described() {
    let data =
        judge_read(copy_parts(&copy(), 0, 16), Some(&read_payload(0, 16)), 0, 16).expect("it is whole");
    let lengths: Vec<_> = data.iter().map(|part| part.len() / BLOCK_BYTES).collect();
    assert_eq!(lengths, [3, 2, 4, 2, 1]);
    assert_eq!(*data[1], *[block_content(4), block_content(5)].concat());
    let holes = judge_read(vec![PartDescription::Hole(7)], None, 0, 7).expect("it is whole");
    assert!(holes.is_empty());
}

#[test]
fn what_was_read_is_refused_if_it_is_damaged_or_misdescribed() {
    let parts = copy_parts(&copy(), 0, 16);
    let payload = read_payload(0, 16);
    let mut damaged = payload.clone();
    damaged[5 * BLOCK_BYTES] ^= 0x80;
    assert_eq!(judge_read(parts.clone(), Some(&damaged), 0, 16).err(), Some(BusError::AnswerDamaged));
    let unfit = |parts: &[PartDescription], payload: Option<&[u8]>, first, count| {
        matches!(judge_read(parts.to_vec(), payload, first, count), Err(BusError::AnswerUnfit(_)))
    };
    assert!(unfit(&parts, Some(&payload), 0, 15) && unfit(&parts, Some(&payload), 0, 17));
    assert!(unfit(&parts, None, 0, 16));
    assert!(unfit(&parts, Some(&payload[..payload.len() - BLOCK_BYTES]), 0, 16));
    assert!(unfit(&parts, Some(&[&payload[..], &[0]].concat()), 0, 16));
    assert!(unfit(&[PartDescription::Hole(u32::MAX), PartDescription::Hole(u32::MAX)], None, 9, 4));
    assert!(unfit(&[PartDescription::Hole(4)], Some(&[1]), 0, 4));
    assert!(unfit(&[], None, 0, 1));
}

#[test]
fn answers_must_be_of_the_kind_that_was_asked_for() {
    let answers = [
        BusResponse::Replica(Ok(ReplicaResponse::Done)),
        BusResponse::Client(Ok(ClientResponse::Done)),
        BusResponse::Heartbeat(HeartbeatAnswer::default()),
    ];
    let fence = BusRequest::Replica(ReplicaRequest::Fence {
        volume: VOLUME,
        epoch: Epoch(1),
        settles: true,
        heeds: Heeded::All,
    });
    let questions = [fence, attach(1), BusRequest::Heartbeat(Heartbeat::default())];
    for (question, request) in questions.iter().enumerate() {
        for (answer, response) in answers.iter().enumerate() {
            let judged = Expected::of(request).judge(response, None);
            assert_eq!(judged.is_ok(), question == answer);
            assert!(Expected::of(request).judge(response, Some(buffer(b"x"))).is_err());
        }
    }
    let read = Expected::of(&client_read(0, 3));
    let data = BusResponse::Client(Ok(ClientResponse::Data));
    assert!(read.judge(&data, Some(buffer(b"abc"))).is_ok_and(|parts| *parts[0] == *b"abc"));
    assert!(read.judge(&data, Some(buffer(b"ab"))).is_err() && read.judge(&data, None).is_err());
    let nothing = Expected::of(&client_read(0, 0));
    assert!(nothing.judge(&data, None).is_ok_and(|parts| parts.is_empty()));
}

#[test]
fn requests_say_how_much_they_ask_for() {
    assert_eq!(answer_bytes(&copy_read(0, 3)), 3 * BLOCK_BYTES as u64);
    assert_eq!(answer_bytes(&copy_read(0, u32::MAX)), u64::from(u32::MAX) * BLOCK_BYTES as u64);
    assert_eq!(answer_bytes(&client_read(0, 77)), 77);
    assert_eq!(answer_bytes(&copy_write(0, 3).0), 0);
}

#[test]
fn a_subject_holds_what_the_request_says_and_nothing_else() {
    let new =
        NewCopy { copy: copy(), drive: DriveId::from_bytes([4; 16]), copies: 2, part: 1, epoch: Epoch(8) };
    let volume = Subject { volume: VOLUME, ..Subject::NONE };
    let of_copy = Subject { copy: CopyId::from_bytes([9; 16]), ..volume };
    let owned = Subject { epoch: Epoch(5), configuration: authority().configuration, ..of_copy };
    let mark = spandrel_replica::Mark { version: Version::new(Epoch(5), 6), exceptions: Vec::new() };
    let (copy, authority) = (copy(), authority());
    for (request, subject) in [
        (ReplicaRequest::AddCopy(new), Subject { epoch: Epoch(8), ..of_copy }),
        (ReplicaRequest::RemoveCopy { copy }, of_copy),
        (ReplicaRequest::Pages { copy, authority }, owned),
        (
            ReplicaRequest::Fence { volume: VOLUME, epoch: Epoch(9), settles: false, heeds: Heeded::NONE },
            Subject { epoch: Epoch(9), ..volume },
        ),
        (
            ReplicaRequest::NoteMark { volume: VOLUME, authority, mark: mark.clone() },
            Subject { mark: mark.version, copy: Subject::NONE.copy, ..owned },
        ),
    ] {
        assert_eq!(subject_of(&BusRequest::Replica(request)), subject);
    }
    assert_eq!(subject_of(&attach(1)), Subject { epoch: Epoch(5), ..volume });
    assert_eq!(subject_of(&BusRequest::Heartbeat(Heartbeat::default())), Subject::NONE);
}
