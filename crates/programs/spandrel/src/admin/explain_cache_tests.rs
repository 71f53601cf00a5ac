use spandrel_shared::Version;

use super::*;
use crate::admin::testing::*;

fn told(facts: &Facts, name: &str) -> Explanation {
    facts.explain_drive(name).expect("it is there")
}

fn all(lines: &[String]) -> String {
    lines.join("\n")
}

#[tokio::test]
async fn it_says_whom_it_caches_for_and_what_its_loss_means() {
    let facts = cached_facts().await;
    let cache = told(&facts, "n1/c1");
    assert!(
        all(&cache.why).contains("it caches for n1/d1: write-only, 40 KiB of 400 KiB stand there alone"),
        "{cache:?}"
    );
    assert!(
        all(&cache.why).contains("if it dies, 40 KiB that stand there alone are lost for n1"),
        "{cache:?}"
    );
    assert!(
        all(&cache.must_not).contains("pull or wipe it before `spandrel drive remove n1/c1`"),
        "{cache:?}"
    );
    assert!(all(&told(&facts, "n1/d1").why).contains("n1/c1 caches for it: write-only"));
    assert!(!all(&told(&facts, "n2/d1").why).contains("cache"));
}

#[tokio::test]
async fn a_missing_one_is_waited_for_and_not_to_be_thrown_away_while_its_drives_are_needed() {
    let mut facts = cached_facts().await;
    lose_cache(&mut facts, None);
    let cache = told(&facts, "n1/c1");
    assert!(all(&cache.why).contains("not used without it: n1/d1"), "{cache:?}");
    assert!(all(&cache.doing).contains("it is given up in 14 min"), "{cache:?}");
    assert!(all(&cache.may).contains("`spandrel drive remove n1/c1` to give it up at once"), "{cache:?}");
    assert!(
        all(&cache.may).contains("`spandrel drive add PATH` on its server takes it up again"),
        "{cache:?}"
    );
    assert!(cache.must_not.is_empty(), "{cache:?}");
    let drive = told(&facts, "n1/d1");
    assert!(all(&drive.may).contains("`spandrel explain drive n1/c1`"), "{drive:?}");
    assert!(!all(&drive.may).contains("replace it"), "it is the cache drive that is missing: {drive:?}");
    facts.volumes[0].marks.extend([2, 3].map(|marked| (drive_id(marked), Version::ZERO)));
    let cache = told(&facts, "n1/c1");
    assert!(all(&cache.doing).contains("it is not given up as long as"), "{cache:?}");
    assert!(!all(&cache.may).contains("drive remove"), "{cache:?}");
    assert!(all(&cache.must_not).contains("pull, wipe or replace it"), "{cache:?}");
}

#[tokio::test]
async fn a_retired_one_says_what_leaves_it_and_what_is_in_the_way() {
    let mut facts = cached_facts().await;
    facts.caches.get_mut(&cache_id()).unwrap().state = DriveState::Retired;
    let cache = told(&facts, "n1/c1");
    assert!(all(&cache.doing).contains("it is left by n1/d1, one after the other: 40 KiB"), "{cache:?}");
    assert!(all(&cache.may).contains("`spandrel drive retire --undo n1/c1`"), "{cache:?}");
    let report = facts.nodes[0].report.as_mut().unwrap();
    let obstacle =
        spandrel_shared::Error::new("CACHE_NOT_DRAINED", "drive x keeps it", "there is no room", "make room");
    report.caches[0].obstacle = Some(obstacle);
    let cache = told(&facts, "n1/c1");
    assert!(
        all(&cache.why).contains("there is no room") && all(&cache.may).contains("make room"),
        "{cache:?}"
    );
}

#[tokio::test]
async fn a_retired_one_without_drives_is_said_to_be_empty() {
    let mut facts = cached_facts().await;
    facts.caches.get_mut(&cache_id()).unwrap().state = DriveState::Retired;
    let drive = &mut facts.nodes[0].report.as_mut().unwrap().drives[0];
    (drive.cache, drive.bound_to) = (None, None);
    assert_eq!(told(&facts, "n1/c1").doing, ["nothing: it is empty"]);
}

#[tokio::test]
async fn a_retired_one_of_a_node_that_is_down_is_not_said_to_be_emptied() {
    let mut facts = cached_facts().await;
    facts.caches.get_mut(&cache_id()).unwrap().state = DriveState::Retired;
    facts.nodes[0].report = None;
    facts.volumes[0].marks.extend([2, 3].map(|marked| (drive_id(marked), Version::ZERO)));
    let cache = told(&facts, "n1/c1");
    assert!(all(&cache.doing).contains("does not say how it is"), "{cache:?}");
    assert!(!all(&cache.may).contains("drive remove"), "{cache:?}");
}

#[tokio::test]
async fn one_of_a_node_that_is_down_is_not_to_be_pulled() {
    let mut facts = cached_facts().await;
    facts.nodes[0].report = None;
    let cache = told(&facts, "n1/c1");
    let line = "pull or wipe it before n1 answers and `spandrel drive remove n1/c1` has emptied it";
    assert!(all(&cache.must_not).contains(line), "{cache:?}");
}

#[tokio::test]
async fn nodes_and_the_pool_name_cache_drives_that_are_not_well() {
    let mut facts = cached_facts().await;
    lose_cache(&mut facts, Some("it does not answer"));
    let settings = facts.settings.clone();
    let node = facts.explain_node(facts.known_node("n1").unwrap(), &[], 0);
    for told in [node, facts.explain_pool(&settings)] {
        assert!(all(&told.why).contains("cache drive n1/c1 is Unhealthy (Not Usable)"), "{told:?}");
    }
}
