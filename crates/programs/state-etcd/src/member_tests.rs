use std::net::TcpListener;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use spandrel_cluster::store::{Key, Selection, StateStore, Transaction};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::*;
use crate::testing::{await_answer, connect, free_address};
use crate::{EtcdState, url};

/// How long a member may take for anything that has to happen.
const PATIENCE: Duration = Duration::from_secs(60);

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

/// Settings of a first member, and its folder.
fn first() -> (TempDir, MemberSettings) {
    let folder = tempfile::tempdir().unwrap();
    let settings = MemberSettings {
        program: "etcd".into(),
        folder: folder.path().join("m0"),
        name: "m0".to_owned(),
        client_addresses: vec![free_address()],
        peer_addresses: vec![free_address()],
        beginning: Beginning::First(ClusterId::from_random(1, 2)),
    };
    (folder, settings)
}

fn state(settings: &MemberSettings) -> EtcdState {
    connect(settings.client_addresses.iter().map(url).collect(), "test/")
}

fn process_of(status: &MemberStatus) -> u32 {
    match status {
        MemberStatus::Running { process } => *process,
        ended @ MemberStatus::Ended { .. } => panic!("{ended:?}"),
    }
}

fn pid(process: u32) -> Pid {
    Pid::from_raw(process.try_into().unwrap()).unwrap()
}

async fn changed(member: &mut Member) -> MemberStatus {
    tokio::time::timeout(PATIENCE, member.changed()).await.expect("it changes soon")
}

#[test]
fn a_member_that_dies_is_started_again_with_all_it_held() {
    let (_folder, settings) = first();
    let runtime = runtime();
    let mut member = runtime.block_on(Member::start(settings.clone())).unwrap();
    let state = state(&settings);
    await_answer(&state);
    let key = Key::new("key");
    runtime.block_on(state.transact(Transaction::new().put(&key, *b"kept"))).unwrap();
    let process = process_of(&member.status());
    kill_process(pid(process), Signal::KILL).unwrap();
    let ended = runtime.block_on(changed(&mut member));
    assert!(matches!(&ended, MemberStatus::Ended { reason } if reason.contains("signal: 9")), "{ended:?}");
    let again = process_of(&runtime.block_on(changed(&mut member)));
    assert_ne!(process, again);
    await_answer(&state);
    let snapshot = runtime.block_on(state.read(&[Selection::key(&key)])).unwrap();
    assert_eq!(snapshot.entry(0).map(|entry| &*entry.value), Some(&b"kept"[..]));
    runtime.block_on(member.stop());
    assert!(test_kill_process(pid(again)).is_err(), "it has ended");
}

#[test]
fn a_member_outlives_its_node_and_is_taken_over() {
    let (_folder, settings) = first();
    let (first_run, second_run) = (runtime(), runtime());
    let member = first_run.block_on(Member::start(settings.clone())).unwrap();
    await_answer(&state(&settings));
    let process = process_of(&member.status());
    drop((member, first_run));
    let member = second_run.block_on(Member::start(settings.clone())).unwrap();
    assert_eq!(process_of(&member.status()), process);
    await_answer(&state(&settings));
    // With other settings it is another process, with the same data.
    drop(member);
    let other = MemberSettings { client_addresses: vec![free_address()], ..settings.clone() };
    let member = second_run.block_on(Member::start(other.clone())).unwrap();
    assert_ne!(process_of(&member.status()), process);
    await_answer(&state(&other));
    second_run.block_on(member.stop());
}

/// The number of its process may be somebody else's by now.
#[test]
fn a_process_that_is_none_of_ours_is_left_alone() {
    let (_folder, settings) = first();
    let mut stranger = std::process::Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
    std::fs::create_dir_all(&settings.folder).unwrap();
    for noted in [stranger.id().to_string(), "4194304".to_owned(), "0".to_owned(), "nonsense".to_owned()] {
        std::fs::write(Paths(&settings.folder).process(), noted).unwrap();
        let runtime = runtime();
        let member = runtime.block_on(Member::start(settings.clone())).unwrap();
        await_answer(&state(&settings));
        runtime.block_on(member.stop());
        assert!(stranger.try_wait().unwrap().is_none(), "it goes on");
    }
    stranger.kill().unwrap();
    stranger.wait().unwrap();
}

#[test]
fn what_keeps_a_member_from_running_is_told() {
    let (_folder, settings) = first();
    let _busy = TcpListener::bind(settings.client_addresses[0]).unwrap();
    let runtime = runtime();
    let mut member = runtime.block_on(Member::start(settings)).unwrap();
    let ended = runtime.block_on(changed(&mut member));
    let MemberStatus::Ended { reason } = ended else { panic!("{ended:?}") };
    assert!(reason.contains("address already in use"), "{reason}");
    runtime.block_on(member.stop());
}
