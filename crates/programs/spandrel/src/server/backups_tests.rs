use std::os::unix::fs::PermissionsExt as _;

use spandrel_cluster::ClusterRecord;
use spandrel_shared::{ClusterId, SlabGeometry};
use spandrel_state_redb::RedbState;

use super::*;

/// A state in a file that holds a cluster and nothing else.
fn state(folder: &std::path::Path) -> (tokio::runtime::Runtime, ClusterState<NodeState>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let store = RedbState::open(&folder.join("state.redb")).expect("a new file");
    let state = ClusterState::new(NodeState::File(store));
    let record = ClusterRecord {
        id: ClusterId::from_random(1, 2),
        name: "test".to_owned(),
        feature_level: 1,
        slab_bytes: SlabGeometry::new(4 << 20).expect("a slab size"),
        created_unix_ms: 0,
        generation: 0,
    };
    runtime.block_on(state.create_cluster(record)).expect("it is empty");
    (runtime, state)
}

#[test]
fn one_is_made_at_once_and_then_when_it_is_time() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let directory = Directory::choose(Some(parent.path())).expect("a good path");
    let (runtime, state) = state(parent.path());
    let count = || std::fs::read_dir(directory.join(FOLDER)).map_or(0, Iterator::count);
    let first = runtime.block_on(look(&directory, &state, None)).expect("it can be written");
    assert_eq!((first.map(|(_, changes)| changes), count()), (Some(0), 1));
    let second = runtime.block_on(look(&directory, &state, first)).expect("nothing is to be done");
    assert_eq!((second, count()), (first, 1));
    let servers = ServersRecord { changes: 1 };
    let put = state.put(&StateKey::Servers, spandrel_cluster::store::Expected::Absent, servers);
    runtime.block_on(put).expect("it is not there yet");
    let third = runtime.block_on(look(&directory, &state, second)).expect("it can be written");
    assert_eq!(third.map(|(_, changes)| changes), Some(1), "a server has come");
}

#[test]
fn the_last_ones_are_kept_and_are_their_owners_alone() {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let directory = Directory::choose(Some(parent.path())).expect("a good path");
    let (runtime, state) = state(parent.path());
    for taken in 1..=KEPT as u64 + 3 {
        let backup = runtime.block_on(state.backup(taken)).expect("it answers").expect("it holds a cluster");
        let path = keep(&directory, &backup).expect("it can be written");
        let mode = std::fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!(mode & 0o077, 0);
        let read = StateBackup::from_bytes(&std::fs::read(&path).expect("it can be read"));
        assert_eq!(read.expect("it is whole").taken_unix_ms, taken);
    }
    std::fs::write(directory.join(FOLDER).join("notes.txt"), "mine").expect("it can be written");
    let mut names: Vec<_> = std::fs::read_dir(directory.join(FOLDER))
        .expect("it is there")
        .map(|entry| entry.expect("it can be read").file_name().into_string().expect("plain names"))
        .collect();
    names.sort();
    assert_eq!(names.len(), KEPT + 1, "what is somebody else's stays");
    assert_eq!(names[1], "state-000000000000004.json");
}
