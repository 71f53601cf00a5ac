use spandrel_shared::{NodeId, ProcessIncarnation, ShardId};

use super::*;

fn at(milliseconds: u64) -> Instant {
    Instant::from_nanoseconds(0) + Duration::from_millis(milliseconds)
}

fn peer(node: u8, incarnation: u8) -> Peer {
    Peer {
        shard: ShardId::first(NodeId::from_bytes([node; 16])),
        incarnation: ProcessIncarnation::from_bytes([incarnation; 16]),
    }
}

#[test]
fn one_stuck_shard_is_a_dead_node() {
    let mut shards = ShardWatch::new(at(0), 3);
    for shard in [0, 2] {
        shards.answered(at(500), shard);
    }
    assert!(shards.all_alive(at(750)));
    assert_eq!(shards.silent_since(at(751)), Some((1, at(0))));
    shards.answered(at(600), 1);
    assert!(shards.all_alive(at(1250)));
    shards.answered(at(400), 1);
    assert!(shards.all_alive(at(1250)), "an old answer that comes late takes nothing back");
    assert!(!shards.all_alive(at(1251)));
}

#[test]
fn an_owner_is_silent_when_its_ownership_is_not_named() {
    let (volume, other) = (VolumeId::from_bytes([1; 16]), VolumeId::from_bytes([2; 16]));
    let (owner, epoch) = (peer(1, 1), Epoch(3));
    let mut watch = OwnerWatch::new();
    let silent = |watch: &OwnerWatch, now| at(now) >= watch.silent_at(volume, owner, epoch, at(1000));
    assert!(!silent(&watch, 2499));
    assert!(silent(&watch, 2500), "never heard, and shown for long enough");
    watch.heartbeat(at(2600), owner, &[(volume, epoch)]);
    assert!(!silent(&watch, 4099));
    // It lives, but names another volume, a lower epoch, or comes from another process.
    watch.heartbeat(at(3000), owner, &[(other, epoch)]);
    watch.heartbeat(at(3000), owner, &[(volume, Epoch(2))]);
    assert!(silent(&watch, 4100));
    watch.heartbeat(at(4000), peer(1, 2), &[(volume, epoch)]);
    assert!(silent(&watch, 4100));
    watch.heartbeat(at(4200), owner, &[(volume, epoch)]);
    assert!(!silent(&watch, 4300));
    watch.volume_deleted(volume);
    assert!(silent(&watch, 4300));
}
