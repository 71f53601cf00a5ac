use spandrel_cluster::store::Revision;

use super::*;

fn config(shard: u8, shards: u8) -> NodeConfig {
    NodeConfig {
        cluster: ClusterId::from_bytes([1; 16]),
        node: NodeId::from_bytes([2; 16]),
        shard,
        shards,
        name: "n1".to_owned(),
        bus_addresses: Vec::new(),
        nbd_addresses: Vec::new(),
        drives: Vec::new(),
        leaves_unfit_drives_out: false,
    }
}

fn at(addresses: &[&str]) -> Vec<String> {
    addresses.iter().map(|address| (*address).to_owned()).collect()
}

/// What a node's record says after the given shards have begun to listen, one after the other.
fn known_after(begun: &[(NodeConfig, &str)]) -> (Vec<String>, Vec<Vec<String>>) {
    let mut known: Option<Stored<NodeRecord>> = None;
    for (config, address) in begun {
        let (addresses, further_shards) = addresses_with(known.as_ref(), config, at(&[address]));
        let record = NodeRecord {
            name: "n1".to_owned(),
            addresses,
            further_shards,
            joined_unix_ms: 1,
            key_digest: None,
            maintenance_since_unix_ms: None,
            place: Default::default(),
            unknown: Default::default(),
        };
        known = Some(Stored { record, revision: Revision(1) });
    }
    let record = known.expect("one has begun").record;
    (record.addresses, record.further_shards)
}

#[test]
fn a_node_says_where_each_of_its_shards_listens() {
    let one = [(config(0, 1), "a:1")];
    assert_eq!(known_after(&one), (at(&["a:1"]), Vec::new()));
    let begun = [(config(0, 3), "a:1"), (config(2, 3), "a:3")];
    assert_eq!(known_after(&begun), (at(&["a:1"]), vec![at(&[]), at(&["a:3"])]), "one has not begun yet");
    let in_another_order = [(config(1, 2), "a:2"), (config(0, 2), "a:1")];
    assert_eq!(known_after(&in_another_order), (at(&["a:1"]), vec![at(&["a:2"])]));
}

#[test]
fn shards_that_a_node_has_no_more_are_forgotten_when_it_begins_anew() {
    let three = [(config(0, 3), "a:1"), (config(1, 3), "a:2"), (config(2, 3), "a:3")];
    let anew = |shards: u8| [&three[..], &[(config(0, shards), "a:9")]].concat();
    assert_eq!(known_after(&anew(1)), (at(&["a:9"]), Vec::new()));
    assert_eq!(known_after(&anew(2)), (at(&["a:9"]), vec![at(&["a:2"])]));
    assert_eq!(known_after(&anew(4)), (at(&["a:9"]), vec![at(&["a:2"]), at(&["a:3"]), at(&[])]));
}
