//! Tests of which servers are restarted, and of what is said.

use super::{choose, not_back, render, with_rest};
use crate::admin::api::{ServerRun, ServerStatus};
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
