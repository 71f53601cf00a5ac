use super::*;
use crate::admin::api::Severity;

#[test]
fn faults_are_told_with_place_reason_and_what_to_do() {
    let fault = Fault {
        severity: Severity::Critical,
        kind: "server.down".to_owned(),
        object: "node n3".to_owned(),
        place: Some("10.0.0.3:7440".to_owned()),
        reason: "it does not run".to_owned(),
        actions: vec!["start it".to_owned(), "look at its log".to_owned()],
        must_not: vec!["wipe its drives".to_owned()],
        since_ms: Some(60_000),
    };
    assert_eq!(
        render(&[fault]),
        "Critical: node n3 (server.down), for 1 min\n  at    10.0.0.3:7440\n  why   it does not run\n  next  start it\n        \
         look at its log\n  not   wipe its drives\n"
    );
    assert_eq!(render(&[]), "nothing is the matter\n");
}
