use super::*;
use crate::test_support::raw::hello_of;
use crate::test_support::{cluster, shard_id};

fn own() -> BusIdentity {
    let incarnation = ProcessIncarnation::from_random(1, 1);
    BusIdentity { cluster: cluster(), generation: 0, shard: shard_id("b"), shards: 1, incarnation }
}

#[test]
fn a_hello_stands_on_the_wire_as_documented() {
    let identity = |first: u8| std::array::from_fn(|index| first + index as u8);
    let hello = Hello {
        version_min: 0x0101,
        version_max: 0x0202,
        compatible_features: 4,
        incompatible_features: 5,
        cluster: ClusterId::from_bytes(identity(0x10)),
        shard: ShardId { node: NodeId::from_bytes(identity(0x20)), number: 2 },
        shards: 3,
        incarnation: ProcessIncarnation::from_bytes(identity(0x30)),
        addressee: ShardId { node: NodeId::from_bytes(identity(0x40)), number: 10 },
        request_bytes_max: 6,
        requests_max: 7,
        path: 8,
        repeats: true,
        generation: 9,
    };
    let mut expected = vec![1, 1, 2, 2, 3, 0, 2, 10, 4, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
    expected.extend(0x10..0x50);
    expected.extend([6, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 9, 0, 0, 0]);
    assert_eq!(hello.encode(), expected);
    assert_eq!(Hello::decode(&expected), Ok(hello));
}

#[test]
fn a_hello_may_be_longer_but_not_shorter() {
    let hello = hello_of("a", 1, "b");
    let mut bytes = hello.encode();
    assert!(Hello::decode(&bytes[..bytes.len() - 1]).is_err());
    assert!(Hello::decode(&[]).is_err());
    bytes.extend([0xFF; 40]);
    assert_eq!(Hello::decode(&bytes), Ok(hello));
}

#[test]
fn the_highest_version_that_both_speak_is_taken() {
    let judge = |min, max| {
        let hello = Hello { version_min: min, version_max: max, ..hello_of("a", 1, "b") };
        hello.judge(&own(), None).map_err(|refusal| refusal.status)
    };
    assert_eq!(judge(1, 1), Ok(1));
    assert_eq!(judge(0, 5), Ok(VERSION_MAX));
    assert_eq!(judge(VERSION_MAX + 1, 9), Err(RefusalStatus::Version));
    assert_eq!(judge(0, 0), Err(RefusalStatus::Version));
    // The wrong way round.
    assert_eq!(judge(5, 0), Err(RefusalStatus::Version));
}

#[test]
fn features_that_must_be_known_and_are_not_are_refused_and_others_ignored() {
    let hello = Hello { compatible_features: u64::MAX, ..hello_of("a", 1, "b") };
    assert!(hello.judge(&own(), None).is_ok());
    for bit in 0..64 {
        let hello = Hello { incompatible_features: 1 << bit, ..hello };
        assert_eq!(hello.judge(&own(), None).map_err(|refusal| refusal.status), Err(RefusalStatus::Features));
    }
}

/// Whoever goes by a state that was lost believes things of copies that are not so any more, and so does whoever does
/// not know yet of the one that took its place.
#[test]
fn who_goes_by_another_generation_of_the_state_is_refused() {
    for (theirs, ours) in [(0, 1), (1, 0), (4096, 4097)] {
        let hello = Hello { generation: theirs, ..hello_of("a", 1, "b") };
        let own = BusIdentity { generation: ours, ..own() };
        let refusal = hello.judge(&own, None).expect_err("it is refused");
        assert_eq!(refusal.status, RefusalStatus::Generation);
        assert!(refusal.reason.contains(&format!("generation {theirs} ")), "{}", refusal.reason);
        assert!(hello.judge(&BusIdentity { generation: theirs, ..own }, None).is_ok());
    }
}

#[test]
fn who_has_proven_to_be_another_node_is_refused() {
    let hello = hello_of("a", 1, "b");
    let own_name = shard_id("a").to_string();
    assert!(hello.judge(&own(), Some(&own_name)).is_ok());
    for proven in ["", &shard_id("c").to_string(), &own_name.to_uppercase()[..35]] {
        let refused = hello.judge(&own(), Some(proven)).map_err(|refusal| refusal.status);
        assert_eq!(refused, Err(RefusalStatus::Node), "{proven:?}");
    }
}

#[test]
fn a_shard_is_one_of_those_of_its_node() {
    let shard = |number| ShardId { number, ..shard_id("a") };
    for (number, shards, is_one) in [(0, 1, true), (2, 3, true), (1, 1, false), (3, 3, false), (0, 0, false)]
    {
        let hello = Hello { shard: shard(number), shards, ..hello_of("a", 1, "b") };
        let judged = hello.judge(&own(), None).map_err(|refusal| refusal.status);
        assert_eq!(judged.is_ok(), is_one, "{number} of {shards}");
        assert!(is_one || judged == Err(RefusalStatus::Node));
    }
}

#[test]
fn the_words_of_a_refusal_cannot_spoil_a_log() {
    assert_eq!(refusal_text("no: größer".as_bytes()), "no: größer");
    assert_eq!(refusal_text(b"a\nb\x1b[31mc\xff"), "a b [31mc\u{FFFD}");
    assert_eq!(refusal_text(&[b'x'; 5000]).len(), REASON_BYTES_MAX);
}
