use spandrel_cluster::{StateKey, StateStamp};

use super::*;
use crate::faults::plan::{Plan, PlannedFault};
use crate::run::{RunOptions, run};

/// A world in which nothing breaks but what a test names.
fn plan(seed: u64, faults: &[Fault]) -> Plan {
    let faults = faults.iter().map(|fault| PlannedFault { after_ms: 2000, fault: fault.clone() });
    Plan { faults: faults.collect(), ..Plan::of_seed(seed) }
}

/// What must not change, in a world with volumes whose nodes are all down.
fn at_rest(plan: &Plan) -> (Run<'_>, OlderState) {
    let mut run = Run::new(plan, RunOptions::default());
    assert!(run.make_volumes().is_ok() && run.advance(2000).is_ok());
    (0..run.nodes.count()).for_each(|node| run.nodes.stop(node, true));
    witness::take_completions();
    let older = OlderState { entries: run.entries(), answered: run.answered() };
    (run, older)
}

fn wrong(run: &Run<'_>, older: &OlderState) -> Option<String> {
    run.judge_older_state(older).err().map(|finding| finding.what)
}

#[test]
fn a_state_that_is_older_than_the_drives_know_is_refused_until_the_true_one_is_back() {
    let scrub = Fault::Scrub { volume: 0 };
    let older = Fault::OlderState { in_order: true, away_ms: 100, for_ms: 3000 };
    let (mut runs, mut refused) = (0, 0);
    for seed in 0..20 {
        // The state is remembered after some of the faults, and must then grow older.
        let faults = [vec![scrub.clone(); 20], vec![older.clone()]].concat();
        let plan = plan(seed, &faults);
        let outcome = run(&plan, RunOptions::default()).unwrap_or_else(|failure| panic!("{failure:?}"));
        if outcome.faults.contains_key(older.kind()) {
            runs += 1;
            refused += outcome.starts_refused;
            assert_eq!(outcome.starts_refused, plan.shape.nodes() as u64, "seed {seed}");
        }
    }
    assert!(runs > 0 && refused > runs, "{refused} starts were refused in {runs} runs");
}

/// What stood there when they began to stop: their own last changes may come after it. The volumes were made so shortly
/// before that no drive was told of it in between.
#[test]
fn who_stops_in_order_leaves_drives_that_know_the_newest_state() {
    for seed in 0..10 {
        let plan = plan(seed, &[]);
        let mut run = Run::new(&plan, RunOptions::default());
        // Long enough for all to have seen it.
        assert!(run.make_volumes().is_ok() && run.advance(100).is_ok());
        let changed = run.entries().into_iter().find(|entry| entry.key == StateKey::Changed.key());
        let newest = StateStamp::new(0, changed.expect("volumes were made").modified);
        run.stop_in_order();
        for node in 0..run.nodes.count() {
            let known = run.injector.state_known(&run.nodes, node);
            assert!(known >= Some(newest), "seed {seed}, n{}: {known:?}, not {newest:?}", node + 1);
        }
    }
}

#[test]
fn nothing_is_wrong_as_long_as_nothing_happens() {
    let plan = plan(1, &[]);
    let (run, older) = at_rest(&plan);
    assert_eq!(wrong(&run, &older), None);
}

#[test]
fn a_node_that_comes_up_is_found() {
    let plan = plan(1, &[]);
    let (run, older) = at_rest(&plan);
    run.nodes.start(0);
    assert_eq!(run.nodes.run_until(|| run.nodes.is_up(0)), RunEnd::ConditionMet);
    assert!(wrong(&run, &older).is_some_and(|what| what.contains("n1 is up")));
}

#[test]
fn an_answer_to_a_client_is_found() {
    let plan = plan(1, &[]);
    let (run, mut older) = at_rest(&plan);
    older.answered[0] += 1;
    assert!(wrong(&run, &older).is_some_and(|what| what.contains("answered")));
    older.answered[0] -= 1;
    witness::completed(run.volumes[0].id, spandrel_shared::Epoch(1));
    assert!(wrong(&run, &older).is_some_and(|what| what.contains("answered")));
    assert_eq!(wrong(&run, &older), None, "it was told once");
}

#[test]
fn a_change_of_the_state_is_found() {
    let plan = plan(1, &[]);
    let (run, mut older) = at_rest(&plan);
    older.entries[0].modified = older.entries[0].modified.next();
    assert!(wrong(&run, &older).is_some_and(|what| what.contains("changed")));
}

#[test]
fn a_drive_that_was_attached_again_shows() {
    let plan = plan(1, &[]);
    let (run, _) = at_rest(&plan);
    let before = run.images();
    assert_eq!(run.changed_drive(&before), None);
    run.nodes.start(0);
    assert_eq!(run.nodes.run_until(|| run.nodes.is_up(0)), RunEnd::ConditionMet);
    assert_eq!(run.changed_drive(&before), Some("n1 drive 1"));
}
