use std::time::{Duration, Instant};

use spandrel_cluster::store::{Key, Selection, StateStore};
use spandrel_shared::ClusterId;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::member::{Beginning, Member, MemberSettings};
use crate::testing::{self, await_answer, block_on, commit, free_address, put};
use crate::url;

/// How long a learner may take to catch up.
const PATIENCE: Duration = Duration::from_secs(60);

/// A node's member, and what it was started with.
fn settings(folder: &TempDir, name: &str, beginning: Beginning) -> MemberSettings {
    MemberSettings {
        program: "etcd".into(),
        folder: folder.path().join(name),
        name: name.to_owned(),
        client_addresses: vec![free_address()],
        peer_addresses: vec![free_address()],
        beginning,
    }
}

fn connect(members: &[&MemberSettings]) -> EtcdState {
    testing::connect(members.iter().map(|settings| url(&settings.client_addresses[0])).collect(), "")
}

fn id_of(state: &EtcdState, name: &str) -> u64 {
    let members = block_on(state.list_members()).unwrap();
    members.iter().find(|member| member.name == name).expect("it has run").id
}

/// etcd changes its members only when all have been connected for some seconds.
fn when_settled<T>(change: impl Fn() -> Result<T, StoreError>) -> T {
    let started = Instant::now();
    loop {
        match change() {
            Ok(changed) => return changed,
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
                assert!(started.elapsed() < PATIENCE, "{error}");
            }
        }
    }
}

/// Promotes a learner as soon as it has caught up.
fn promote(state: &EtcdState, id: u64) {
    let started = Instant::now();
    let promote = || match block_on(state.promote_member(id)) {
        Err(error) if error.kind == StoreErrorKind::Invalid && started.elapsed() < PATIENCE => Ok(false),
        result => result.map(|()| true),
    };
    while !when_settled(promote) {}
}

/// Adds a member and starts it; how it was started.
fn add(state: &EtcdState, runtime: &Runtime, folder: &TempDir, name: &str) -> (MemberSettings, Member) {
    let mut settings = settings(folder, name, Beginning::Added(Vec::new()));
    let urls: Vec<_> = settings.peer_addresses.iter().map(url).collect();
    let members = when_settled(|| block_on(state.add_learner(&urls)));
    assert!(members.iter().any(|member| member.peer_urls == urls && member.is_learner));
    settings.beginning = Beginning::added(&members, name).unwrap();
    let member = runtime.block_on(Member::start(settings.clone())).unwrap();
    (settings, member)
}

#[test]
fn members_are_added_and_replaced_and_the_state_stays() {
    let folder = tempfile::tempdir().unwrap();
    let first = settings(&folder, "m0", Beginning::First(ClusterId::from_random(1, 2)));
    let state = connect(&[&first]);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let first_member = runtime.block_on(Member::start(first.clone())).unwrap();
    await_answer(&state);
    commit(&state, put("key", b"kept"));
    let (second, second_member) = add(&state, &runtime, &folder, "m1");
    // One learner at a time.
    let second_learner = || match block_on(state.add_learner(&[url(&free_address())])) {
        Err(error) if error.kind == StoreErrorKind::Invalid => Ok(()),
        Err(error) => Err(error),
        Ok(members) => panic!("two learners: {members:?}"),
    };
    when_settled(second_learner);
    promote(&state, wait_for(&state, "m1"));
    let (third, third_member) = add(&state, &runtime, &folder, "m2");
    promote(&state, wait_for(&state, "m2"));
    assert!(block_on(state.list_members()).unwrap().iter().all(|member| !member.is_learner));

    // The first one is lost, with all it held.
    runtime.block_on(first_member.stop());
    let state = connect(&[&second, &third]);
    await_answer(&state);
    when_settled(|| block_on(state.remove_member(id_of(&state, "m0"))));
    let (fourth, fourth_member) = add(&state, &runtime, &folder, "m3");
    promote(&state, wait_for(&state, "m3"));
    let mut names: Vec<_> =
        block_on(state.list_members()).unwrap().into_iter().map(|member| member.name).collect();
    names.sort();
    assert_eq!(names, ["m1", "m2", "m3"]);
    let snapshot = block_on(connect(&[&fourth]).read(&[Selection::key(&Key::new("key"))])).unwrap();
    assert_eq!(snapshot.entry(0).map(|entry| &*entry.value), Some(&b"kept"[..]));
    let error = block_on(state.remove_member(1)).unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::Invalid, "{error}");
    for member in [second_member, third_member, fourth_member] {
        runtime.block_on(member.stop());
    }
}

/// Waits until a member that was added has run: its number.
fn wait_for(state: &EtcdState, name: &str) -> u64 {
    let started = Instant::now();
    loop {
        let members = block_on(state.list_members()).unwrap();
        if let Some(member) = members.iter().find(|member| member.name == name) {
            return member.id;
        }
        assert!(started.elapsed() < PATIENCE, "{name} does not run: {members:?}");
    }
}
