use std::collections::BTreeSet;
use std::net::TcpListener;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, test_kill_process};
use spandrel_cluster::store::{Key, Selection, StateStore, Transaction};
use spandrel_shared::{ClusterId, NodeId};
use spandrel_trust::{Authority, Holder, HolderKey, common_name, revocation_list};
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::*;
use crate::testing::{KilledAtLast, PATIENCE, commit, connect, free_address};
use crate::{EtcdIdentity, EtcdOptions, EtcdState, url};

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
        identity: None,
        beginning: Beginning::First("this one".to_owned()),
    };
    (folder, settings)
}

fn state(settings: &MemberSettings) -> EtcdState {
    connect(settings.client_addresses.iter().map(url).collect(), "test/")
}

fn pid(process: u32) -> Pid {
    Pid::from_raw(process.try_into().unwrap()).unwrap()
}

fn start(runtime: &Runtime, settings: &MemberSettings) -> (KilledAtLast, u32) {
    let member = runtime.block_on(Member::start(settings.clone())).unwrap();
    let process = member.status().process().expect("it has just been started");
    (KilledAtLast::new(member), process)
}

fn changed(runtime: &Runtime, member: &mut KilledAtLast) -> MemberStatus {
    let changed = async { tokio::time::timeout(PATIENCE, member.member().changed()).await };
    runtime.block_on(changed).expect("it changes soon").expect("it is kept")
}

/// Waits until the member has data.
fn await_data(runtime: &Runtime, member: &mut KilledAtLast) {
    let status = changed(runtime, member);
    assert!(matches!(status, MemberStatus::Running { is_member: true, .. }), "{status:?}");
}

/// Waits until the member answers; `runtime` keeps it meanwhile.
fn answers(runtime: &Runtime, settings: &MemberSettings) {
    let state = state(settings);
    let answers = async || state.read(&[Selection::prefix("")]).await.is_ok();
    let started = std::time::Instant::now();
    while !runtime.block_on(answers()) {
        assert!(started.elapsed() < PATIENCE, "it does not answer");
    }
}

#[test]
fn a_member_that_dies_is_started_again_with_all_it_held() {
    let (_folder, settings) = first();
    let runtime = runtime();
    let (mut member, process) = start(&runtime, &settings);
    await_data(&runtime, &mut member);
    answers(&runtime, &settings);
    let state = state(&settings);
    let key = Key::new("key");
    commit(&state, Transaction::new().put(&key, *b"kept"));
    kill_process(pid(process), Signal::KILL).unwrap();
    let ended = changed(&runtime, &mut member);
    assert!(matches!(&ended, MemberStatus::Ended { reason } if reason.contains("signal 9")), "{ended:?}");
    let again = changed(&runtime, &mut member).process().expect("it has been started");
    assert_ne!(process, again);
    answers(&runtime, &settings);
    let snapshot = runtime.block_on(state.read(&[Selection::key(&key)])).unwrap();
    assert_eq!(snapshot.entry(0).map(|entry| &*entry.value), Some(&b"kept"[..]));
    runtime.block_on(member.stop());
    assert!(test_kill_process(pid(again)).is_err(), "it has ended");
}

#[test]
fn a_member_outlives_its_node_and_is_taken_over() {
    let (_folder, settings) = first();
    let (first_run, second_run) = (runtime(), runtime());
    let (member, process) = start(&first_run, &settings);
    answers(&first_run, &settings);
    assert_eq!(member.leave(), process);
    drop(first_run);
    // How it once became a member does not matter any more.
    let settings = MemberSettings { beginning: Beginning::Member, ..settings };
    let (member, same) = start(&second_run, &settings);
    assert_eq!(same, process);
    answers(&second_run, &settings);
    // With other settings it is another process, with the same data.
    member.leave();
    let other = MemberSettings { client_addresses: vec![free_address()], ..settings };
    let (member, another) = start(&second_run, &other);
    assert_ne!(another, process);
    assert!(test_kill_process(pid(process)).is_err(), "two would be on the same data");
    answers(&second_run, &other);
    second_run.block_on(member.stop());
}

/// A server that is told twice to end does not wait for its member, which must not go on for all that.
#[test]
fn a_member_is_told_to_end_before_anybody_waits_for_that() {
    let (_folder, settings) = first();
    let runtime = runtime();
    let member = runtime.block_on(Member::start(settings.clone())).unwrap();
    let process = pid(member.status().process().expect("it has just been started"));
    answers(&runtime, &settings);
    let handle = pidfd_open(process, PidfdFlags::empty()).unwrap();
    // From here on nothing runs that keeps it.
    drop(member.stop());
    let time_max = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&handle, PollFlags::IN)], Some(&time_max));
    let _ = kill_process(process, Signal::KILL);
    assert_eq!(ended, Ok(1), "it was not told");
}

/// What it would do otherwise is to begin a second, empty state, or to vote as if it had never voted.
#[test]
fn a_member_without_its_data_is_not_started() {
    let (_folder, settings) = first();
    let settings = MemberSettings { beginning: Beginning::Member, ..settings };
    let runtime = runtime();
    let error = runtime.block_on(Member::start(settings.clone())).err().expect("it is refused");
    assert_eq!(error.code, "STATE_MEMBER_DATA_LOST");
    // Nor is it when they are lost while it runs.
    let (mut member, process) =
        start(&runtime, &MemberSettings { beginning: first().1.beginning, ..settings.clone() });
    await_data(&runtime, &mut member);
    answers(&runtime, &settings);
    std::fs::rename(Paths(&settings.folder).data(), settings.folder.join("lost")).unwrap();
    kill_process(pid(process), Signal::KILL).unwrap();
    let reasons: Vec<_> = (0..2).map(|_| changed(&runtime, &mut member)).collect();
    let MemberStatus::Ended { reason } = &reasons[1] else { panic!("{reasons:?}") };
    assert!(reason.contains("STATE_MEMBER_DATA_LOST"), "{reason}");
}

/// Of another folder, on the same machine.
#[test]
fn another_members_process_is_left_alone() {
    let ((_one_folder, one), (_other_folder, other)) = (first(), first());
    let runtime = runtime();
    let (_one_member, one_process) = start(&runtime, &one);
    let (_other_member, other_process) = start(&runtime, &other);
    assert_ne!(one_process, other_process);
    answers(&runtime, &one);
    answers(&runtime, &other);
}

#[test]
fn what_keeps_a_member_from_running_is_told() {
    let (_folder, settings) = first();
    let _busy = TcpListener::bind(settings.client_addresses[0]).unwrap();
    let runtime = runtime();
    let (mut member, _) = start(&runtime, &settings);
    let ended = changed(&runtime, &mut member);
    let MemberStatus::Ended { reason } = ended else { panic!("{ended:?}") };
    assert!(reason.contains("address already in use"), "{reason}");
}

#[test]
fn a_member_with_certificates_lets_nobody_in_without() {
    let runtime = runtime();
    let (folder, mut settings) = first();
    let cluster = ClusterId::from_random(1, 2);
    let authority = Authority::create(cluster).unwrap();
    let key = HolderKey::generate().unwrap();
    let addresses: Vec<_> = [&settings.client_addresses, &settings.peer_addresses]
        .into_iter()
        .flat_map(|addresses| addresses.iter().map(SocketAddr::ip))
        .collect();
    let holder = Holder { node: NodeId::from_random(3, 4), key: &key.public(), addresses: &addresses };
    let identity = EtcdIdentity {
        authority_pem: authority.certificate_pem().to_owned(),
        certificate_pem: authority.issue(&holder).unwrap(),
        key_pem: key.pem(),
        member_name: Some(common_name(cluster)),
    };
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    };
    settings.identity = Some(MemberIdentity {
        authority: file("authority", identity.authority_pem.as_bytes()),
        certificate: file("certificate", identity.certificate_pem.as_bytes()),
        key: file("key", identity.key_pem.as_bytes()),
        revoked: file("revoked", &revocation_list(cluster, &key, &BTreeSet::new()).unwrap()),
    });
    let (mut member, _) = start(&runtime, &settings);
    await_data(&runtime, &mut member);
    let connect = |identity: Option<EtcdIdentity>| {
        let endpoints = settings.client_addresses.iter().map(|address| settings.url(address)).collect();
        EtcdState::connect(&EtcdOptions { endpoints, namespace: "test/".to_owned(), identity }).unwrap()
    };
    let known = connect(Some(identity.clone()));
    let started = std::time::Instant::now();
    while runtime.block_on(known.read(&[Selection::prefix("")])).is_err() {
        assert!(started.elapsed() < PATIENCE, "it does not answer");
    }
    // One that belongs to it until it is taken out, while etcd runs.
    let leaving_key = HolderKey::generate().unwrap();
    let leaving =
        Holder { node: NodeId::from_random(5, 6), key: &leaving_key.public(), addresses: &addresses };
    let leaving_identity = EtcdIdentity {
        certificate_pem: authority.issue(&leaving).unwrap(),
        key_pem: leaving_key.pem(),
        ..identity.clone()
    };
    let belongs = connect(Some(leaving_identity.clone()));
    assert!(runtime.block_on(belongs.read(&[Selection::prefix("")])).is_ok());
    file("revoked", &revocation_list(cluster, &key, &BTreeSet::from([leaving.node])).unwrap());
    let has_left = connect(Some(leaving_identity));
    assert!(runtime.block_on(has_left.read(&[Selection::prefix("")])).is_err());
    let stays = connect(Some(identity.clone()));
    assert!(runtime.block_on(stays.read(&[Selection::prefix("")])).is_ok());
    // The same authority, but no certificate of it; and a certificate of another authority.
    let other = Authority::create(cluster).unwrap();
    let stranger = EtcdIdentity { certificate_pem: other.issue(&holder).unwrap(), ..identity.clone() };
    let elsewhere = EtcdIdentity { authority_pem: other.certificate_pem().to_owned(), ..identity };
    for identity in [Some(stranger), Some(elsewhere), None] {
        let stranger = EtcdState::connect(&EtcdOptions {
            endpoints: settings.client_addresses.iter().map(|address| settings.url(address)).collect(),
            namespace: "test/".to_owned(),
            identity,
        });
        let stranger = stranger.unwrap();
        assert!(runtime.block_on(stranger.read(&[Selection::prefix("")])).is_err());
    }
    runtime.block_on(member.stop());
}
