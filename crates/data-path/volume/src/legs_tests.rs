use spandrel_shared::{DriveId, NodeId};

use super::*;

fn shard(number: u64) -> ShardId {
    ShardId::first(NodeId::from_random(0, number))
}

fn leg(number: u64) -> LegId {
    LegId::standing(DriveId::from_random(0, number))
}

/// Two legs on one node and one on another.
fn legs() -> Legs {
    let of = |number: u64, on: u64| (leg(number), Leg { shard: shard(on), state: LegState::InSync });
    Legs::new([of(1, 1), of(2, 1), of(3, 2)].into_iter().collect())
}

#[test]
fn a_node_is_needed_as_long_as_one_of_its_legs_is() {
    let mut legs = legs();
    let both: Vec<ShardId> = BTreeSet::from([shard(1), shard(2)]).into_iter().collect();
    assert_eq!(legs.needed_shards(), both);
    legs.set_state(leg(1), LegState::Stale);
    assert_eq!(legs.needed_shards(), both);
    legs.set_state(leg(2), LegState::Joining);
    assert_eq!(legs.needed_shards(), [shard(2)], "nobody waits for one that joins");
    legs.set_state(leg(2), LegState::Promoting);
    assert_eq!(legs.needed_shards(), both, "its promotion may have been made");
}

#[test]
fn changes_are_counted() {
    let mut legs = legs();
    let before = legs.changes();
    let map = legs.to_map();
    assert_eq!(legs.changes(), before);
    legs.set_state(leg(1), LegState::Stale);
    legs.replace(map);
    assert_eq!(legs.changes(), before + 2);
}

#[test]
fn what_is_not_there_gets_no_state() {
    let mut legs = legs();
    legs.set_state(leg(4), LegState::InSync);
    assert_eq!(legs.len(), 3);
}
