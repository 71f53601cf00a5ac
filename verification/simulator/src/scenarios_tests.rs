use std::time::Duration;

use super::*;
use crate::campaign::{Failed, run_caught};
use crate::report::explain;
use crate::run::RunOptions;

#[test]
fn what_was_found_once_is_not_there_again() {
    let scenarios = all().expect("all files are scenarios");
    assert!(!scenarios.is_empty());
    for scenario in scenarios {
        if let Err(failure) = run_caught(&scenario.plan, RunOptions::default(), None) {
            let failed = Failed { plan: scenario.plan, failure: *failure };
            panic!("{} ({})\n{}", scenario.name, scenario.what, explain(failed, None, Duration::ZERO));
        }
    }
}

/// An older state takes the place of the newest one only if all servers' drives know better by then.
#[test]
fn every_server_refuses_the_older_state_that_outlives_its_leases() {
    let plan = named("older-state-outlives-its-leases").expect("there is one of that name").plan;
    let outcome = run_caught(&plan, RunOptions::default(), None).expect("it passes");
    assert_eq!(outcome.starts_refused, plan.shape.nodes() as u64, "{:?}", outcome.faults);
}

#[test]
fn a_scenario_is_found_by_its_name() {
    let known = &all().expect("all files are scenarios")[0];
    assert_eq!(named(&known.name).as_ref(), Ok(known));
    let unknown = named("nothing").expect_err("there is none of that name");
    assert!(unknown.contains(&known.name), "{unknown}");
}

#[test]
fn a_file_must_be_called_as_its_scenario() {
    let known = &all().expect("all files are scenarios")[0];
    let path = std::env::temp_dir().join(format!("spandrel-other-name-{}.json", std::process::id()));
    fs::write(&path, serde_json::to_string(known).unwrap()).unwrap();
    let refused = load(&path);
    fs::remove_file(&path).unwrap();
    assert_eq!(refused, Err(format!("it calls itself {}", known.name)));
}
