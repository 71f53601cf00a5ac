use std::time::{Duration, Instant};

use spandrel_cluster::store::{Key, Selection, StateStore};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::member::{Beginning, Member, MemberSettings};
use crate::testing::{
    self, KilledAtLast, PATIENCE, await_answer, block_on, commit, free_address, passes, put,
};
use crate::url;

/// How long it takes until etcd is asked once more.
const PAUSE: Duration = Duration::from_millis(50);

/// A node's member, and what it was started with.
fn settings(folder: &TempDir, name: &str, beginning: Beginning) -> MemberSettings {
    MemberSettings {
        program: "etcd".into(),
        folder: folder.path().join(name),
        name: name.to_owned(),
        client_addresses: vec![free_address()],
        peer_addresses: vec![free_address()],
        identity: None,
        beginning,
    }
}

fn connect(members: &[&MemberSettings]) -> EtcdState {
    testing::connect(members.iter().map(|settings| url(&settings.client_addresses[0])).collect(), "")
}

/// Members, and what keeps them running while something is waited for.
struct Nodes {
    folder: TempDir,
    runtime: Runtime,
}

impl Nodes {
    fn start(&self, settings: MemberSettings) -> (MemberSettings, KilledAtLast) {
        let member = self.runtime.block_on(Member::start(settings.clone())).unwrap();
        (settings, KilledAtLast::new(member))
    }

    /// What `attempt` gives as soon as it gives something.
    fn wait<T>(&self, attempt: impl AsyncFn() -> Result<Option<T>, StoreError>) -> T {
        self.runtime.block_on(async {
            let started = Instant::now();
            loop {
                match attempt().await {
                    Ok(Some(answer)) => return answer,
                    Ok(None) => assert!(started.elapsed() < PATIENCE, "it does not happen"),
                    Err(error) => assert!(passes(&error) && started.elapsed() < PATIENCE, "{error}"),
                }
                // etcd tells nobody of its members' changes.
                tokio::time::sleep(PAUSE).await;
            }
        })
    }

    /// Adds a member, starts it, and gives it a vote.
    fn add(&self, state: &EtcdState, name: &str) -> (MemberSettings, KilledAtLast) {
        let mut settings = settings(&self.folder, name, Beginning::Member);
        let urls: Vec<_> = settings.peer_addresses.iter().map(url).collect();
        let members = self.wait(async || {
            let known = state.list_members().await?;
            match known.iter().any(|member| member.peer_urls == urls) {
                true => Ok(Some(known)),
                false => state.add_learner(&urls).await.map(Some),
            }
        });
        assert!(members.iter().any(|member| member.peer_urls == urls && member.is_learner), "{members:?}");
        settings.beginning = Beginning::added(&members, name).unwrap();
        let started = self.start(settings);
        let id = self.wait(async || Ok(find(&state.list_members().await?, name).map(|member| member.id)));
        self.wait(async || match state.promote_member(id).await {
            Err(error) if error.kind == StoreErrorKind::Invalid => Ok(None),
            result => result.map(Some),
        });
        self.wait(async || Ok(find(&state.list_members().await?, name).filter(|member| !member.is_learner)));
        started
    }
}

fn find(members: &[MemberDescription], name: &str) -> Option<MemberDescription> {
    members.iter().find(|member| member.name == name).cloned()
}

#[test]
fn members_are_added_and_replaced_and_the_state_stays() {
    let nodes = Nodes {
        folder: tempfile::tempdir().unwrap(),
        runtime: Builder::new_current_thread().enable_all().build().unwrap(),
    };
    let first = settings(&nodes.folder, "m0", Beginning::First("this one".to_owned()));
    let (first, first_member) = nodes.start(first);
    let state = connect(&[&first]);
    await_answer(&state);
    commit(&state, put("key", b"kept"));
    let (second, _second_member) = nodes.add(&state, "m1");
    let (third, _third_member) = nodes.add(&state, "m2");
    // One learner at a time.
    let urls = [url(&free_address())];
    nodes.wait(async || state.add_learner(&urls).await.map(Some));
    let other_urls = [url(&free_address())];
    nodes.wait(async || match state.add_learner(&other_urls).await {
        Err(error) if error.kind == StoreErrorKind::Invalid => Ok(Some(())),
        Err(error) => Err(error),
        Ok(members) => panic!("two learners: {members:?}"),
    });
    let learner =
        nodes.wait(async || Ok(state.list_members().await?.into_iter().find(|member| member.is_learner)));
    nodes.wait(async || state.remove_member(learner.id).await.map(Some));

    // The first one is lost, with all it held; whoever led before, one of the others does then.
    let lost = nodes.wait(async || Ok(find(&state.list_members().await?, "m0"))).id;
    nodes.runtime.block_on(first_member.stop());
    let state = connect(&[&second, &third]);
    await_answer(&state);
    let leader = nodes.wait(async || Ok(state.leader().await?.filter(|leader| *leader != lost)));
    let of_all = connect(&[&first, &second, &third]);
    let members = nodes.wait(async || state.list_members().await.map(Some));
    let others: BTreeSet<u64> = members.iter().map(|member| member.id).filter(|id| *id != lost).collect();
    assert_eq!(others.len(), 2, "{members:?}");
    nodes.wait(async || Ok(Some(of_all.answering_members().await?).filter(|answering| *answering == others)));
    let members = nodes.wait(async || state.list_members().await.map(Some));
    assert!(members.iter().any(|member| member.id == leader && !member.is_learner), "{leader}: {members:?}");
    nodes.wait(async || state.remove_member(lost).await.map(Some));
    nodes.wait(async || state.remove_member(lost).await.map(Some));
    let (fourth, _fourth_member) = nodes.add(&state, "m3");
    let mut names: Vec<_> = nodes
        .wait(async || state.list_members().await.map(Some))
        .into_iter()
        .map(|member| member.name)
        .collect();
    names.sort();
    assert_eq!(names, ["m1", "m2", "m3"]);
    let state = connect(&[&fourth]);
    await_answer(&state);
    let snapshot = block_on(state.read(&[Selection::key(&Key::new("key"))])).unwrap();
    assert_eq!(snapshot.entry(0).map(|entry| &*entry.value), Some(&b"kept"[..]));
}

#[test]
fn after_each_address_comes_one_of_another_member() {
    let member = |id: u64, urls: &[&str]| MemberDescription {
        id,
        name: format!("m{id}"),
        peer_urls: Vec::new(),
        client_urls: urls.iter().map(|url| (*url).to_owned()).collect(),
        is_learner: id > 9,
    };
    let members = [
        member(3, &["c2", "c1"]),
        member(1, &["a1", "a2"]),
        member(10, &["x1", "x2"]),
        member(2, &["b1", "b2"]),
    ];
    assert_eq!(client_endpoints(&members), ["a1", "b2", "c1", "a2", "b1", "c2"]);
    let uneven = [member(1, &["a1"]), member(2, &["b1", "b2", "b3"])];
    assert_eq!(client_endpoints(&uneven), ["a1", "b2", "b3", "b1"]);
    assert!(client_endpoints(&[]).is_empty());
}
