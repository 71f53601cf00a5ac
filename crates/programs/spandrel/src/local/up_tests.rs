use super::*;
use crate::local::settings::tests::settings;

#[test]
fn drives_in_memory_are_remarked_on_that_may_come_to_need_most_of_it() {
    let remarked =
        |options, memory_bytes| note_on_memory(&settings(options).expect("it is good"), memory_bytes);
    assert_eq!(remarked("--memory --drive-size 1G", 16 << 30), None);
    assert_eq!(remarked("--drive-size 1T", 16 << 30), None, "they are on disk");
    let note = remarked("--memory --drive-size 1G", 15 << 30).expect("it is much");
    assert!(note.contains("8 GiB of this machine's 15 GiB"), "{note}");
}

#[test]
fn more_shards_than_there_are_drives_or_cores_are_remarked_on() {
    for (shards, drives, cores) in [(1, 1, 1), (2, 2, 2), (2, 8, 64), (8, 8, 8)] {
        assert_eq!(note_on_shards(shards, drives, cores), None);
    }
    let remarked = |shards, drives, cores| note_on_shards(shards, drives, cores).expect("they are too many");
    assert!(remarked(3, 8, 2).contains("3 shards of a node share 2 cores"));
    assert!(remarked(3, 2, 64).contains("3 shards of a node share 2 drives"));
}
