use spandrel_cluster::{ClusterRecord, ClusterState};
use spandrel_health::OperationalStatus;
use spandrel_shared::{ClusterId, SlabGeometry, Version};
use spandrel_state_redb::RedbState;

use super::*;
use crate::admin::administration::ProcessFacts;
use crate::admin::testing::*;
use crate::node_state::NodeState;

fn record(facts: &Facts) -> DriveRecord {
    facts.caches[&cache_id()].clone()
}

fn behind(facts: &Facts) -> Behind {
    facts.behind(cache_id(), &record(facts))
}

fn one(drive: u64) -> BTreeSet<DriveId> {
    [drive_id(drive)].into()
}

/// Whether it may be taken out as it is.
fn refusal(facts: &Facts) -> Option<String> {
    let status = facts.cache_drive(cache_id(), &record(facts));
    let request = DriveRemove { dry_run: true, ..DriveRemove::default() };
    let checked = facts.check_cache_removal(&record(facts), &behind(facts), &status, &request);
    checked.err().map(|error| error.code)
}

#[tokio::test]
async fn what_works_has_to_leave_first_and_what_does_not_is_given_up() {
    let mut facts = cached_facts().await;
    assert_eq!(behind(&facts), Behind { working: one(1), ..Behind::default() });
    assert_eq!(refusal(&facts).as_deref(), Some("CACHE_IN_USE"));
    lose_cache(&mut facts, Some("it does not answer"));
    assert_eq!(behind(&facts), Behind { broken: one(1), ..Behind::default() });
    assert_eq!(refusal(&facts), None);
    // Nobody else has all of it: one copy is stale, the other one away.
    facts.volumes[0].marks.insert(drive_id(2), Version::ZERO);
    assert_eq!(refusal(&facts), None);
    facts.nodes[2].report = None;
    assert_eq!(refusal(&facts).as_deref(), Some("LAST_COPY"));
}

#[tokio::test]
async fn where_nobody_says_who_is_bound_to_it_all_count_that_may_be() {
    let mut facts = cached_facts().await;
    facts.nodes[0].report = None;
    assert_eq!(behind(&facts), Behind { unsure: one(1), ..Behind::default() });
    assert_eq!(refusal(&facts).as_deref(), Some("CACHE_UNSURE"), "n1 may run, and have it in use");
    facts.nodes[0].is_alive = false;
    assert_eq!(refusal(&facts).as_deref(), Some("CACHE_UNSURE"), "others reach it");
    shut_down(&mut facts);
    assert_eq!(refusal(&facts), None, "it is down");
    let mut facts = cached_facts().await;
    facts.nodes[0].report.as_mut().unwrap().drives.clear();
    assert_eq!(behind(&facts), Behind { broken: one(1), ..Behind::default() }, "the cache drive says it");
    lose_cache_alone(&mut facts);
    assert_eq!(behind(&facts), Behind { unsure: one(1), ..Behind::default() });
    // It is there, and bound to another one.
    let report = facts.nodes[0].report.as_mut().unwrap();
    report.drives = vec![DriveReport { bound_to: Some(drive_id(12)), ..drive_report(1) }];
    assert_eq!(behind(&facts), Behind::default());
}

/// Everybody knows that n1 is down.
fn shut_down(facts: &mut Facts) {
    (facts.nodes[0].report, facts.nodes[0].is_alive) = (None, false);
    let others = facts.nodes.iter_mut().filter_map(|node| node.report.as_mut());
    others.for_each(|report| report.reachable.retain(|other| *other != node_id(1)));
}

fn lose_cache_alone(facts: &mut Facts) {
    facts.nodes[0].report.as_mut().unwrap().caches.clear();
}

#[tokio::test]
async fn a_cache_drive_is_shown_as_drives_are() {
    let mut facts = cached_facts().await;
    let shown = |facts: &Facts| facts.cache_drives().remove(0);
    let well = shown(&facts);
    assert!(well.is_used && well.status.is_healthy(), "{well:?}");
    assert_eq!((&well.bound, &well.in_use_by), (&vec!["n1/d1".to_owned()], &vec!["n1/d1".to_owned()]));
    assert_eq!((well.dirty_bytes, well.perhaps_bound), (Some(10 * 4096), Vec::new()));
    facts.caches.get_mut(&cache_id()).unwrap().state = DriveState::Retired;
    assert_eq!(shown(&facts).status.operational, [OperationalStatus::RemovingFromPool]);
    facts.caches.get_mut(&cache_id()).unwrap().state = DriveState::Active;
    lose_cache(&mut facts, Some("old image"));
    let old = shown(&facts);
    assert_eq!(old.status.operational, [OperationalStatus::StaleMetadata]);
    assert_eq!((old.bound, old.in_use_by), (vec!["n1/d1".to_owned()], Vec::new()));
    assert_eq!((old.away_ms, old.left_ms), (Some(60_000), Some(840_000)));
    assert_eq!(old.dirty_bytes, None, "nobody can read what is there alone");
    lose_cache(&mut facts, None);
    let missing = shown(&facts);
    assert_eq!(missing.status.operational, [OperationalStatus::LostCommunication]);
    assert_eq!(missing.dirty_bytes, None);
    shut_down(&mut facts);
    let silent = shown(&facts);
    assert_eq!((silent.dirty_bytes, silent.bound), (None, Vec::new()));
    assert_eq!(silent.perhaps_bound, ["n1/d1"]);
}

#[tokio::test]
async fn what_is_retired_while_nobody_says_who_is_bound_to_it_is_not_called_empty() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let cluster = administration(&folder).await;
    let mut facts = cached_facts().await;
    let known = record(&facts);
    shut_down(&mut facts);
    let retire = async |undo| {
        let request = DriveRetire { undo, dry_run: false };
        cluster.retire_cache(&facts, (cache_id(), &known), request).await.expect("it can be")
    };
    let retired = retire(false).await;
    assert_eq!((retired.leaving, retired.at_stake), (Vec::new(), vec!["n1/d1".to_owned()]));
    assert!(!retired.works && !retired.was_retired);
}

/// An administration with the cache drive in its state, and no nodes.
async fn administration(folder: &tempfile::TempDir) -> std::sync::Arc<Administration> {
    let store = RedbState::open(&folder.path().join("state.redb")).expect("a new file");
    let state = ClusterState::new(NodeState::File(store));
    let cluster = ClusterRecord {
        id: ClusterId::from_random(1, 2),
        name: "test".to_owned(),
        feature_level: 1,
        slab_bytes: SlabGeometry::new(4 << 20).expect("a slab size"),
        created_unix_ms: 0,
        generation: 0,
    };
    state.create_cluster(cluster.clone()).await.expect("it is empty");
    state.add_drive(cache_id(), record(&cached_facts().await)).await.expect("it is not there yet");
    let process = ProcessFacts { directory: String::new(), memory: true, flush_us: None };
    Administration::new(process, cluster, state, std::sync::Arc::new(NoNodes), None)
}

struct NoNodes;

impl crate::admin::nodes::Nodes for NoNodes {
    fn list(
        &self,
    ) -> futures_util::future::BoxFuture<'_, Result<Vec<crate::admin::nodes::NodeEntry>, Error>> {
        Box::pin(std::future::ready(Ok(Vec::new())))
    }

    fn drive_name(&self, _: &str, _: &str) -> Option<String> {
        None
    }

    fn start<'a>(&'a self, _: &'a str) -> futures_util::future::BoxFuture<'a, Result<(), Error>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn stop<'a>(
        &'a self,
        _: &'a str,
        _: bool,
    ) -> futures_util::future::BoxFuture<'a, Result<Option<NodeReport>, Error>> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// It is agreed that the cache drive is emptied first; then its node begins anew, and says nothing for a moment.
#[tokio::test]
async fn one_whose_node_is_away_is_not_given_up_unless_that_was_agreed() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let cluster = administration(&folder).await;
    let mut facts = cached_facts().await;
    let known = record(&facts);
    facts.nodes[0].report = None;
    let remove = async |facts: &Facts, give_up: &[&str]| {
        let give_up = give_up.iter().map(|name| (*name).to_owned()).collect();
        let request = DriveRemove { dry_run: false, give_up };
        cluster.remove_cache(facts, (cache_id(), &known), &request).await.map_err(|error| error.code)
    };
    assert_eq!(remove(&facts, &[]).await, Err("CACHE_UNSURE".to_owned()));
    assert_eq!(remove(&facts, &["n1/d1"]).await, Err("CACHE_UNSURE".to_owned()), "it only does not answer");
    shut_down(&mut facts);
    assert_eq!(remove(&facts, &[]).await, Err("CACHE_UNSURE".to_owned()));
    assert_eq!(state_of(&cluster).await, Some(DriveState::Active));
    let removed = remove(&facts, &["n1/d1"]).await.expect("it was agreed");
    assert_eq!(removed.gives_up.map(|given_up| given_up.is_known), Some(false));
    assert_eq!(state_of(&cluster).await, None);
}

async fn state_of(cluster: &Administration) -> Option<DriveState> {
    let caches = cluster.state().cache_drives().await.expect("it can be read");
    caches.get(&cache_id()).map(|stored| stored.record.state)
}

#[tokio::test]
async fn it_is_retired_used_again_and_removed_in_the_state_and_a_dry_run_changes_nothing() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let cluster = administration(&folder).await;
    let facts = cached_facts().await;
    let known = record(&facts);
    let retire = async |undo, dry_run| {
        let request = DriveRetire { undo, dry_run };
        cluster.retire_cache(&facts, (cache_id(), &known), request).await
    };
    let would = retire(false, true).await.expect("it can be");
    assert_eq!(state_of(&cluster).await, Some(DriveState::Active));
    assert_eq!((would.leaving, would.dirty_bytes), (vec!["n1/d1".to_owned()], Some(10 * 4096)));
    assert!(would.warning.expect("it is the only one").contains("no other cache drive"));
    retire(false, false).await.expect("it can be");
    assert_eq!(state_of(&cluster).await, Some(DriveState::Retired));
    retire(true, false).await.expect("it can be");
    assert_eq!(state_of(&cluster).await, Some(DriveState::Active));
    let remove = async |facts: &Facts, dry_run, give_up: &[&str]| {
        let give_up = give_up.iter().map(|name| (*name).to_owned()).collect();
        let removed =
            cluster.remove_cache(facts, (cache_id(), &known), &DriveRemove { dry_run, give_up }).await;
        removed.map_err(|error| error.code)
    };
    let refused_as = |code: &str| Err(code.to_owned());
    assert_eq!(remove(&facts, false, &["n1/d1"]).await, refused_as("CACHE_IN_USE"));
    let mut dead = cached_facts().await;
    lose_cache(&mut dead, Some("it does not answer"));
    let refused = cluster.retire_cache(&dead, (cache_id(), &known), DriveRetire::default()).await;
    assert_eq!(refused.map_err(|error| error.code), Err("CACHE_FAILED".to_owned()));
    let would = remove(&dead, true, &[]).await.expect("others have it");
    let given_up = CacheGivenUp { drives: vec!["n1/d1".to_owned()], is_known: true, copies: 2 };
    assert_eq!(would.gives_up, Some(given_up));
    assert_eq!(remove(&dead, false, &[]).await, refused_as("CACHE_NOT_EMPTY"));
    assert_eq!(remove(&dead, false, &["n1/d2"]).await, refused_as("CACHE_NOT_EMPTY"), "that is another one");
    assert_eq!(state_of(&cluster).await, Some(DriveState::Active));
    remove(&dead, false, &["n1/d1"]).await.expect("others have it");
    assert_eq!(state_of(&cluster).await, None);
    assert!(cluster.state().is_drive_removed(cache_id()).await.expect("it can be read"));
}
