//! Tests of what is told of faults that come, change and go.

use std::slice::from_ref;

use super::*;

fn fault(kind: &str, object: &str, severity: Severity) -> Fault {
    Fault {
        severity,
        kind: kind.to_owned(),
        object: object.to_owned(),
        place: None,
        reason: "it does not answer".to_owned(),
        actions: Vec::new(),
        must_not: Vec::new(),
        since_ms: Some(5),
    }
}

/// What is told when this is the matter, and then that.
fn told(before: &[Fault], now: &[Fault]) -> Vec<String> {
    let name = |event| match event {
        Event::Is(fault) => format!("{} is {}", fault.object, fault.severity),
        Event::IsOver { object, .. } => format!("{object} is over"),
    };
    events(&told_by(before), now).into_iter().map(name).collect()
}

#[test]
fn each_fault_is_told_once_and_when_it_is_over() {
    let down = fault("server.down", "node n3", Severity::Critical);
    let stale = fault("volume.degraded", "volume v1", Severity::Major);
    assert_eq!(told(&[], from_ref(&down)), ["node n3 is Critical"]);
    let later = Fault { since_ms: Some(10_000), reason: "longer".to_owned(), ..down.clone() };
    assert_eq!(told(from_ref(&down), &[later]), Vec::<String>::new(), "it is the same one");
    assert_eq!(told(from_ref(&down), &[down.clone(), stale.clone()]), ["volume v1 is Major"]);
    assert_eq!(told(&[down, stale.clone()], &[stale]), ["node n3 is over"]);
}

#[test]
fn what_matters_more_is_told_again_and_what_mends_itself_is_not() {
    let volume = |severity| fault("volume", "volume v1", severity);
    let (info, warning, major) =
        (volume(Severity::Informational), volume(Severity::Warning), volume(Severity::Major));
    assert_eq!(told(&[], from_ref(&info)), Vec::<String>::new());
    assert_eq!(told(from_ref(&warning), from_ref(&major)), ["volume v1 is Major"]);
    assert_eq!(told(&[major], from_ref(&warning)), ["volume v1 is Warning"]);
    assert_eq!(told(&[warning], from_ref(&info)), ["volume v1 is over"]);
    assert_eq!(told(&[info], &[]), Vec::<String>::new());
}
