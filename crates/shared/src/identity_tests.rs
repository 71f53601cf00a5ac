use super::*;

#[test]
fn a_shard_is_named_by_its_node_and_a_further_one_by_its_number_too() {
    let node = NodeId::from_bytes([7; 16]);
    for (number, text) in [(0, node.to_string()), (1, format!("{node}.1")), (255, format!("{node}.255"))] {
        let shard = ShardId { node, number };
        assert_eq!(shard.to_string(), text);
        assert_eq!(text.parse(), Ok(shard));
    }
    assert_eq!(ShardId::first(node).to_string().parse(), Ok(ShardId { node, number: 0 }));
}

#[test]
fn what_names_no_shard_is_refused_in_words() {
    let node = NodeId::from_bytes([7; 16]);
    for (text, word) in
        [("x".to_owned(), "node"), (format!("{node}.x"), "shard"), (format!("{node}.256"), "shard")]
    {
        let why = ShardId::from_str(&text).expect_err("it is refused");
        assert!(why.contains(word) && why.contains(&text), "{why}");
    }
}

#[test]
fn records_of_before_there_were_shards_name_the_first_one() {
    let node = NodeId::from_bytes([7; 16]);
    let of_before = format!("{{\"node\":\"{node}\"}}");
    let read: ShardId = serde_json::from_str(&of_before).expect("it can be read");
    assert_eq!(read, ShardId::first(node));
    let further = ShardId { node, number: 3 };
    let written = serde_json::to_string(&further).expect("it can be written");
    assert_eq!(serde_json::from_str::<ShardId>(&written).expect("it can be read"), further);
}
