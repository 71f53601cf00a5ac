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
    texts(events(&told_by(before), now))
}

fn texts(events: Vec<Event>) -> Vec<String> {
    let name = |event| match event {
        Event::Is(fault) => format!("{} is {}", fault.object, fault.severity),
        Event::IsOver { object, .. } => format!("{object} is over"),
    };
    events.into_iter().map(name).collect()
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

/// n1, which tells, dies; n2 tells that. When n1 is back, it tells again, and n2 no more.
#[test]
fn what_one_has_told_the_next_one_tells_when_it_is_over() {
    use spandrel_cluster::store::Revision;
    let (down, slow) = (
        fault("server.down", "node n1", Severity::Critical),
        fault("drive.slow", "drive n2/d1", Severity::Warning),
    );
    let kept = fault("server.maintenance", "node n3", Severity::Informational);
    let written = |turn: &Turn| turn.to_write().map(|record| Stored { record, revision: Revision(1) });
    let mut second = Turn::begin(None);
    assert_eq!(
        texts(second.take_in(&[down.clone(), slow.clone(), kept])),
        ["node n1 is Critical", "drive n2/d1 is Warning"]
    );
    second.written = written(&second);
    assert_eq!(second.written.as_ref().map(|stored| stored.record.faults.len()), Some(2));
    assert_eq!(second.to_write(), None, "it stands there");

    let mut first = Turn::begin(second.written.clone());
    assert_eq!(
        texts(first.take_in(from_ref(&slow))),
        ["drive n2/d1 is Warning", "node n1 is over"],
        "what is the matter is told once more"
    );
    first.written = written(&first);
    assert_eq!(texts(first.take_in(&[])), ["drive n2/d1 is over"]);
    assert_eq!(first.to_write().map(|record| record.faults.len()), Some(0), "nothing is left to be over");
    assert_eq!(texts(first.take_in(&[])), Vec::<String>::new());
}

#[test]
fn a_state_that_does_not_answer_is_told_once_and_not_at_once() {
    let mut silence = Silence::default();
    let begun = Instant::now();
    let mut note = |is_silent: bool, after: Duration| {
        let error = is_silent.then(no_answer);
        silence.note(error, begun + after).map(|event| texts(vec![event]).remove(0))
    };
    let told = |what: &str| Some(format!("cluster state is {what}"));
    assert_eq!(note(false, Duration::ZERO), None);
    assert_eq!(note(true, Duration::ZERO), None, "it may be finding itself a leader");
    assert_eq!(note(false, SILENCE_MAX), None);
    assert_eq!(note(true, SILENCE_MAX), None, "that is another time");
    assert_eq!(note(true, 2 * SILENCE_MAX), told("Critical"));
    assert_eq!(note(true, 3 * SILENCE_MAX), None);
    assert_eq!(note(false, 4 * SILENCE_MAX), told("over"));
    assert_eq!(note(false, 5 * SILENCE_MAX), None);
}

#[test]
fn where_a_look_takes_long_there_are_fewer_of_them() {
    let [short, long] = [Duration::from_millis(5), Duration::from_secs(3)];
    let interval = Duration::from_secs(10);
    assert_eq!(pause(interval, short), interval);
    assert_eq!(pause(interval, long), long * (LOOK_PART - 1));
}
