use std::cell::Cell;

use spandrel_health::{HealthStatus, Status};

use super::*;
use spandrel_cluster::DriveState;

use crate::admin::picture::Facts;
use crate::admin::testing::{cache_id, cached_facts, facts};

/// It would be waited for in vain.
#[tokio::test]
async fn nobody_waits_for_a_drive_that_is_used_again() {
    use OperationalStatus as State;
    let known = facts().await.drives().remove(0);
    let drive = |operational: &[State]| {
        let status = Status { health: HealthStatus::Warning, operational: operational.to_vec() };
        DriveStatus { status, ..known.clone() }
    };
    let leaves = [
        drive(&[State::RemovingFromPool]),
        drive(&[State::LostCommunication, State::RemovingFromPool]),
        drive(&[State::FailedMedia]),
    ];
    assert_eq!(check_leave(&leaves.iter().collect::<Vec<_>>()), Ok(()));
    for used in [drive(&[State::Ok]), drive(&[State::LostCommunication])] {
        let error = check_leave(&[&leaves[0], &used]).expect_err("it does not become empty");
        assert_eq!(error.code, "DRIVE_USED_AGAIN");
    }
}

#[tokio::test]
async fn drives_that_leave_a_cache_drive_are_waited_for_as_long_as_they_do_and_can() {
    let mut facts = cached_facts().await;
    let code = |facts: &Facts| check_leaves(&facts.cache_drives()[0]).err().map(|error| error.code);
    assert_eq!(code(&facts).as_deref(), Some("DRIVE_USED_AGAIN"));
    facts.caches.get_mut(&cache_id()).expect("it is there").state = DriveState::Retired;
    assert_eq!(code(&facts), None);
    let obstacle = |facts: &mut Facts, code: &str| {
        let report = facts.nodes[0].report.as_mut().expect("it runs");
        report.caches[0].obstacle = Some(Error::new(code, "drive x keeps it", "no room", "make room"));
    };
    obstacle(&mut facts, "CACHE_NOT_CHANGED");
    assert_eq!(code(&facts), None, "that may pass");
    obstacle(&mut facts, "CACHE_NOT_DRAINED");
    let error = check_leaves(&facts.cache_drives()[0]).expect_err("somebody has to help");
    assert_eq!((error.code.as_str(), error.why.as_str()), ("CACHE_NOT_DRAINED", "no room"));
    assert!(error.next.contains("make room; then `spandrel drive remove n1/c1` goes on"), "{error}");
}

/// What is seen and what comes of a removal, step by step: what came of the first one that was not waited for, and how many
/// steps that took.
fn remove_in_steps(
    steps: &[(CacheDriveStatus, Option<&str>)],
    retired: &DriveRetired,
) -> (Result<(), String>, usize) {
    let step = Cell::new(0);
    let look = || Ok(vec![steps[step.get()].0.clone()]);
    let remove = || match steps[step.get()].1.expect("it may not be removed now") {
        "" => Ok(DriveRemoved {
            name: "n1/c1".to_owned(),
            role: DriveRole::Cache,
            gives_up: None,
            location: None,
            warning: None,
        }),
        code => Err(Error::new(code, "it stays", "as told", "nothing")),
    };
    let removed = remove_once_left(retired, look, remove, || step.set(step.get() + 1));
    (removed.map(|_| ()).map_err(|error| error.code), step.get() + 1)
}

#[tokio::test]
async fn a_node_that_does_not_answer_is_waited_for_before_its_cache_drive_is_removed() {
    let mut facts = cached_facts().await;
    let retired = DriveRetired {
        id: cache_id(),
        name: "n1/c1".to_owned(),
        role: DriveRole::Cache,
        copies_to_move: 0,
        slab_bytes: 0,
        warning: None,
        leaving: vec!["n1/d1".to_owned()],
        dirty_bytes: Some(40960),
        at_stake: Vec::new(),
        was_retired: false,
        works: true,
    };
    let shown = |facts: &Facts| facts.cache_drives().remove(0);
    let used = shown(&facts);
    facts.caches.get_mut(&cache_id()).expect("it is there").state = DriveState::Retired;
    let leaving = shown(&facts);
    let mut silent = cached_facts().await;
    silent.nodes[0].report = None;
    let used_perhaps = shown(&silent);
    silent.caches.get_mut(&cache_id()).expect("it is there").state = DriveState::Retired;
    let silent = shown(&silent);
    let drive = &mut facts.nodes[0].report.as_mut().expect("it runs").drives[0];
    (drive.cache, drive.bound_to) = (None, None);
    let left = shown(&facts);
    assert!(silent.in_use_by.is_empty() && left.in_use_by.is_empty() && !leaving.in_use_by.is_empty());
    let steps = [
        (leaving.clone(), None),
        (silent.clone(), Some("CACHE_UNSURE")),
        (silent.clone(), Some("CACHE_IN_USE")),
        (leaving, None),
        (left.clone(), Some("")),
    ];
    assert_eq!(remove_in_steps(&steps, &retired), (Ok(()), 5));
    let fails = |steps: &[_]| remove_in_steps(steps, &retired);
    assert_eq!(fails(&[(used, None)]), (Err("DRIVE_USED_AGAIN".to_owned()), 1));
    assert_eq!(fails(&[(used_perhaps, None)]), (Err("DRIVE_USED_AGAIN".to_owned()), 1));
    assert_eq!(fails(&[(left, Some("CACHE_NOT_EMPTY"))]), (Err("CACHE_NOT_EMPTY".to_owned()), 1));
}

#[test]
fn it_is_said_what_is_given_up_with_a_cache_drive() {
    let mut given_up =
        CacheGivenUp { drives: vec!["n1/d1".to_owned(), "n1/d2".to_owned()], is_known: true, copies: 5 };
    let text = given_up_text(&given_up);
    assert!(text.contains("lost for n1/d1, n1/d2; 5 copies of slabs on them lack it"), "{text}");
    let mut removed = DriveRemoved {
        name: "n1/c1".to_owned(),
        role: DriveRole::Cache,
        gives_up: Some(given_up.clone()),
        location: None,
        warning: None,
    };
    assert!(removed_text(&removed).contains("given up, and is no part of the pool any more: what stands"));
    removed.gives_up = None;
    assert_eq!(removed_text(&removed), "taken out of the pool");
    given_up.is_known = false;
    assert!(given_up_text(&given_up).contains("is not known"));
}

#[test]
fn who_interrupts_a_removal_is_told_that_it_goes_on() {
    let text = interrupted_text("cache drive n1/c1", "drive remove n1/c1", "n1/c1");
    for words in
        ["cache drive n1/c1 goes on being emptied", "`spandrel drive remove n1/c1`", "retire --undo n1/c1`"]
    {
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn nobody_is_told_to_wipe_what_a_node_still_has() {
    let mut removed = DriveRemoved {
        name: "n1/c1".to_owned(),
        role: DriveRole::Cache,
        gives_up: None,
        location: Some("/dev/fast".to_owned()),
        warning: None,
    };
    assert!(wipe_text(&removed).contains("`spandrel drive clean /dev/fast`"));
    removed.warning = Some("it is being emptied".to_owned());
    assert_eq!(wipe_text(&removed), "");
    (removed.warning, removed.location) = (None, None);
    assert_eq!(wipe_text(&removed), "");
}
