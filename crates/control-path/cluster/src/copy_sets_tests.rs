use proptest::prelude::*;

use super::*;
use crate::records::{Record, decode, encode};
use crate::store::{Entry, Key, Revision};

fn drive(number: u64) -> DriveId {
    DriveId::from_random(number, !number)
}

fn round_trip(chunk: &SlabChunk) -> SlabChunk {
    let entry = Entry {
        key: Key::new("slabs/x/00000000"),
        value: encode(chunk),
        created: Revision(1),
        modified: Revision(1),
        lease: None,
    };
    decode(&entry).expect("what was encoded can be decoded").record
}

fn regular(chunk: u32, slabs: usize, drives: u64) -> SlabChunk {
    let batch = CopyBatch::from_random(1, 2);
    let mut chunk = SlabChunk { chunk, sets: Vec::new() };
    for offset in 0..slabs {
        let slab = chunk.slab(offset);
        let member = |part: u8| Member {
            drive: drive((offset as u64 * 7 + u64::from(part) * 5) % drives),
            copy: batch.copy(slab, part),
            part,
            building: false,
        };
        chunk
            .sets
            .push(CopySet { layout: Layout::Copies { copies: 3 }, members: (0..3).map(member).collect() });
    }
    chunk
}

#[test]
fn a_chunk_is_small() {
    let chunk = regular(1023, 256, 24);
    assert_eq!(round_trip(&chunk), chunk);
    let bytes = encode(&chunk).len();
    assert!(bytes < 9 << 10, "{bytes} bytes for 256 slabs on 24 drives");
    let large = regular(1023, 256, 416);
    let bytes = encode(&large).len();
    assert!(bytes < 28 << 10, "{bytes} bytes for 256 slabs on 416 drives");
}

fn member() -> impl Strategy<Value = Member> {
    (0..6_u64, any::<(u64, u64)>(), any::<bool>(), 0..20_u8, any::<bool>()).prop_map(
        |(number, (high, low), shares_batch, part, building)| {
            // Some identities share their first twelve bytes, some none.
            let copy = if shares_batch {
                join(CopyBatch::from_random(1, 2).0, low as u32)
            } else {
                CopyId::from_random(high, low)
            };
            Member { drive: drive(number), copy, part, building }
        },
    )
}

fn copy_set() -> impl Strategy<Value = CopySet> {
    let layout = prop_oneof![
        (1..9_u8).prop_map(|copies| Layout::Copies { copies }),
        (1..9_u8, 1..4_u8).prop_map(|(data, parity)| Layout::Erasure { data, parity }),
    ];
    (layout, prop::collection::vec(member(), 0..5)).prop_map(|(layout, members)| CopySet { layout, members })
}

proptest! {
    #[test]
    fn every_chunk_comes_back_as_it_was(chunk in 0..9000_u32, sets in prop::collection::vec(copy_set(), 0..20)) {
        let chunk = SlabChunk { chunk, sets };
        prop_assert_eq!(round_trip(&chunk), chunk);
    }

    #[test]
    fn a_damaged_chunk_is_no_panic(at in 0..2000_usize, byte in any::<u8>()) {
        let mut value = encode(&regular(3, 20, 5)).to_vec();
        let at = at % value.len();
        value[at] = byte;
        let body: Result<ChunkBody, _> = serde_json::from_slice(&value);
        if let Ok(body) = body {
            drop(SlabChunk::from_body(body));
        }
    }
}

#[test]
fn wrong_numbers_are_refused() {
    let body = |slabs: &str| {
        let text = format!(
            "{{\"chunk\":0,\"drives\":[\"{}\"],\"layouts\":[{{\"copies\":1}}],\"batches\":[\"{}\"],\"slabs\":[{slabs}]}}",
            drive(1),
            "0a".repeat(12)
        );
        SlabChunk::from_body(serde_json::from_str(&text).expect("it is a chunk's form"))
    };
    assert_eq!(body("[0,[0,0,0]]").expect("this one is right").sets.len(), 1);
    for wrong in [
        "[]",
        "[1,[0,0,0]]",
        "[[0,0,0]]",
        "[0,0]",
        "[0,[1,0,0]]",
        "[0,[0,1,0]]",
        "[0,[0,0]]",
        "[0,[0,0,256]]",
        "[0,[0,0,0,2]]",
        "[0,[0,0,0,0,0,0]]",
    ] {
        assert!(body(wrong).is_err(), "{wrong}");
    }
}

/// Copy sets stand in the cluster's state for years. If this fails, old ones can no longer be read.
#[test]
fn chunks_and_slabs_beyond_a_volume_s_are_refused() {
    let read = |chunk: u32, slabs: usize| {
        let slabs = vec!["[0]"; slabs].join(",");
        let text = format!(
            r#"{{"format":1,"chunk":{chunk},"drives":[],"layouts":[{{"copies":3}}],"batches":[],"slabs":[{slabs}]}}"#
        );
        let body = serde_json::from_str(&text).expect("it is JSON");
        SlabChunk::from_body(body)
    };
    let last = read((1 << 20) - 1, 256).expect("the last slabs that a volume can have");
    assert_eq!(last.slab(255), SlabIndex((1 << 28) - 1));
    assert!(read(1 << 20, 1).is_err() && read(u32::MAX, 1).is_err());
    assert!(read(0, 257).is_err());
}

#[test]
fn the_stored_form_never_changes() {
    let batch = CopyBatch([0xab; 12]);
    let members = vec![
        Member {
            drive: DriveId::from_bytes([1; 16]),
            copy: batch.copy(SlabIndex(512), 0),
            part: 0,
            building: false,
        },
        Member {
            drive: DriveId::from_bytes([2; 16]),
            copy: batch.copy(SlabIndex(512), 1),
            part: 1,
            building: true,
        },
        Member {
            drive: DriveId::from_bytes([1; 16]),
            copy: CopyId::from_bytes([3; 16]),
            part: 2,
            building: false,
        },
    ];
    let chunk = SlabChunk { chunk: 2, sets: vec![CopySet { layout: Layout::Copies { copies: 3 }, members }] };
    let text = String::from_utf8(encode(&chunk).to_vec()).expect("it is JSON");
    assert_eq!(text, PINNED);
    assert_eq!(SlabChunk::FORMAT, 1);
    let erasure = Layout::Erasure { data: 4, parity: 2 };
    assert_eq!(serde_json::to_string(&erasure).expect("it is plain data"), r#"{"data":4,"parity":2}"#);
}

const PINNED: &str = concat!(
    r#"{"format":1,"chunk":2,"drives":["01010101-0101-0101-0101-010101010101","#,
    r#""02020202-0202-0202-0202-020202020202"],"layouts":[{"copies":3}],"#,
    r#""batches":["abababababababababababab","030303030303030303030303"],"#,
    r#""slabs":[[0,[0,0,0],[1,0,1,1],[0,1,2,0,50529027]]]}"#,
);

#[test]
fn a_batch_gives_each_copy_its_own_identity() {
    let batch = CopyBatch::from_random(7, 8);
    let mut copies: Vec<_> =
        (0..600).flat_map(|slab| (0..4).map(move |part| batch.copy(SlabIndex(slab), part))).collect();
    copies.sort();
    copies.dedup();
    assert_eq!(copies.len(), 2400);
    assert!(!copies.contains(&CopyBatch::from_random(9, 8).copy(SlabIndex(0), 0)));
    assert_eq!(copies[0].to_bytes()[..12], CopyId::from_random(7, 8).to_bytes()[..12]);
}
