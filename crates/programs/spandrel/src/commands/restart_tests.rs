//! Tests of which servers are restarted, and of what is said.

use super::{Next, Turn, choose, lacking_volumes, not_back, render, whole_copies, with_rest};
use crate::admin::api::{LegStatus, ServerRestarting, ServerRun, ServerStatus};
use crate::arguments::ClusterRestartArguments;

fn server(name: &str, is_witness: bool, is_replaced: Option<bool>) -> ServerStatus {
    let run = is_replaced.map(|is_replaced| ServerRun {
        version: "1.2.3".to_owned(),
        is_replaced,
        started_unix_ms: 5,
    });
    ServerStatus { name: name.to_owned(), is_witness, leads: false, run }
}

fn cluster() -> Vec<ServerStatus> {
    vec![
        server("w1", true, Some(false)),
        server("n1", false, Some(true)),
        server("n2", false, Some(false)),
        server("n3", false, None),
    ]
}

fn chosen(names: &[&str], outdated: bool) -> Result<Vec<String>, String> {
    let names = names.iter().map(ToString::to_string).collect();
    let arguments = ClusterRestartArguments { names, outdated, ..ClusterRestartArguments::default() };
    let chosen = choose(&cluster(), &arguments).map_err(|error| error.to_string())?;
    Ok(chosen.into_iter().map(|server| server.name).collect())
}

#[test]
fn all_are_meant_or_those_that_are_named_or_those_whose_program_was_replaced() {
    assert_eq!(chosen(&[], false).unwrap(), ["w1", "n1", "n2", "n3"]);
    assert_eq!(chosen(&["n2", "w1"], false).unwrap(), ["w1", "n2"]);
    // What nobody knows of is tried, and said to be away.
    assert_eq!(chosen(&[], true).unwrap(), ["n1", "n3"]);
    assert_eq!(chosen(&["n1", "n2"], true).unwrap(), ["n1"]);
    assert!(chosen(&["n9"], false).unwrap_err().contains("there is no server \"n9\""));
}

#[test]
fn the_table_says_what_each_server_runs() {
    let text = render(&cluster());
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(line("w1").contains("witness") && line("w1").contains("as installed"), "{text}");
    assert!(line("n1").contains("1.2.3") && line("n1").contains("replaced since"), "{text}");
    assert!(line("n3").contains("does not answer"), "{text}");
}

#[test]
fn whoever_has_to_go_on_is_told_where() {
    let servers = cluster();
    let error = with_rest(not_back(&servers[2]), &servers[2..], 2);
    assert!(error.next.contains("2 servers done, left: `spandrel cluster restart n2 n3`"), "{error}");
    assert!(error.next.contains("spandrel node resume n2"), "{error}");
    assert!(!not_back(&servers[0]).next.contains("resume"));
}

fn restarting(started_unix_ms: Option<u64>) -> ServerRestarting {
    let version = || "1.2.3".to_owned();
    ServerRestarting { version: version(), version_next: version(), started_unix_ms, warnings: Vec::new() }
}

/// The run that is to end may still answer after it was asked, and is not the one that was there when the command began.
#[test]
fn a_restart_is_done_when_another_run_answers_than_the_one_that_was_asked() {
    let mut turn = Turn { former: Some(5), is_asked: false };
    turn.note_asked(&restarting(Some(7)));
    assert_eq!([None, Some(7), Some(9)].map(|run| turn.next(run)), [Next::Wait, Next::Wait, Next::Done]);
    // One of a version that does not say when its run began.
    let mut older = Turn { former: Some(5), is_asked: false };
    older.note_asked(&restarting(None));
    assert_eq!([Some(5), Some(6)].map(|run| older.next(run)), [Next::Wait, Next::Done]);
}

#[test]
fn a_server_that_was_not_reached_is_asked_again_as_long_as_it_runs_as_before() {
    let turn = Turn { former: Some(5), is_asked: false };
    assert_eq!([None, Some(5), Some(6)].map(|run| turn.next(run)), [Next::Wait, Next::Ask, Next::Done]);
}

fn leg(node: &str, state: &str) -> LegStatus {
    LegStatus {
        drive: format!("{node}/sda"),
        node: node.to_owned(),
        state: state.to_owned(),
        slabs: 1,
        resync: None,
    }
}

/// A copy that rests when the first server is restarted is no reason not to wait for the others.
#[test]
fn all_copies_are_waited_for_that_were_in_sync_before() {
    let whole = |legs: &[LegStatus]| whole_copies([("v1", legs)]);
    let lacks =
        |before: &[LegStatus], now: &[LegStatus]| !lacking_volumes(&whole(before), [("v1", now)]).is_empty();
    let rests = [leg("n1", "in-sync"), leg("n2", "in-sync"), leg("n3", "stale")];
    let began = [leg("n1", "joining"), leg("n2", "in-sync"), leg("n3", "stale")];
    assert!(lacks(&rests, &began), "n1 began anew");
    assert!(lacks(&rests, &[leg("n1", "in-sync (away)"), rests[1].clone(), rests[2].clone()]));
    assert!(!lacks(&rests, &rests));
    assert!(!lacks(&rests, &[rests[0].clone(), leg("n4", "in-sync")]), "what was on n2 has moved");
    // What is being built is whole only when it has taken another copy's place.
    let built = [rests[0].clone(), leg("n1", "being built: joining"), rests[1].clone()];
    assert!(!lacks(&rests, &built) && lacks(&built, &began));
    assert!(lacking_volumes(&whole(&rests), []).is_empty(), "it was deleted");
}
