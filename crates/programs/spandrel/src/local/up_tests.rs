use super::*;

#[test]
fn more_shards_than_there_are_drives_or_cores_are_remarked_on() {
    for (shards, drives, cores) in [(1, 1, 1), (2, 2, 2), (2, 8, 64), (8, 8, 8)] {
        assert_eq!(note_on_shards(shards, drives, cores), None);
    }
    let remarked = |shards, drives, cores| note_on_shards(shards, drives, cores).expect("they are too many");
    assert!(remarked(3, 8, 2).contains("3 shards of a node share 2 cores"));
    assert!(remarked(3, 2, 64).contains("3 shards of a node share 2 drives"));
}
