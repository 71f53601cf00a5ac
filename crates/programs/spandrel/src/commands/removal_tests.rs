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

#[test]
fn it_is_said_what_is_given_up_with_a_cache_drive() {
    let mut given_up =
        CacheGivenUp { drives: vec!["n1/d1".to_owned(), "n1/d2".to_owned()], is_known: true, copies: 5 };
    let text = given_up_text(&given_up);
    assert!(text.contains("lost for n1/d1, n1/d2; 5 copies of slabs on them lack it"), "{text}");
    given_up.is_known = false;
    assert!(given_up_text(&given_up).contains("is not known"));
}
