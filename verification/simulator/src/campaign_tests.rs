use super::*;
use crate::faults::Fault;
use crate::faults::plan::PlannedFault;

fn campaign(seeds: u64, threads: usize) -> Campaign {
    Campaign { seed_first: 0, cached: false, seeds, deadline: None, threads, failures_max: 1, bug: None }
}

/// Runs a plan on a thread that is named as those of a campaign.
fn run_apart(plan: Plan) -> Result<Outcome, Box<Failure>> {
    let work = move || run_caught(&plan, RunOptions::default(), None);
    let thread = std::thread::Builder::new().name("simulation test".to_owned()).spawn(work);
    thread.expect("there is room for a thread").join().expect("panics are caught")
}

#[test]
fn a_panic_is_a_failure_with_its_text() {
    let nobody = PlannedFault { after_ms: 1, fault: Fault::Pause { node: 99, for_ms: 1 } };
    let plan = Plan { faults: vec![nobody], ..Plan::of_seed(1) };
    let failure = run_apart(plan).expect_err("there is no such server");
    assert_eq!(failure.checker, "panic");
    assert!(failure.what.contains("nodes.rs") && failure.what.contains("index is 99"), "{}", failure.what);
}

#[test]
fn a_run_after_a_panic_is_as_it_always_is() {
    let usual = run_apart(Plan::of_seed(2)).expect("the seed passes");
    let nobody = PlannedFault { after_ms: 1, fault: Fault::Pause { node: 99, for_ms: 1 } };
    let plan = Plan { faults: vec![nobody], ..Plan::of_seed(1) };
    let work = move || {
        run_caught(&plan, RunOptions::default(), None).expect_err("there is no such server");
        run_caught(&Plan::of_seed(2), RunOptions::default(), None).expect("the seed passes")
    };
    let thread = std::thread::Builder::new().name("simulation test".to_owned()).spawn(work);
    assert_eq!(thread.expect("there is room for a thread").join().expect("panics are caught"), usual);
}

#[test]
fn runs_add_up_however_many_threads_there_are() {
    let mut told = Vec::new();
    let one = campaign(5, 1).run(|results| told.push(results.totals.runs)).totals;
    assert_eq!(told, [1, 2, 3, 4, 5]);
    assert_eq!(campaign(5, 3).run(|_| {}).totals, one);
    let mut sum = Totals::default();
    for seed in 0..5 {
        sum.add(&run_caught(&Plan::of_seed(seed), RunOptions::default(), None).expect("they pass"));
    }
    assert_eq!(sum, one);
}

#[test]
fn seeds_without_cache_drives_are_left_out_and_do_not_count() {
    let all = Campaign { seed_first: u64::MAX - 1, ..campaign(9, 1) };
    assert_eq!(all.seeds().collect::<Vec<_>>(), [u64::MAX - 1, u64::MAX, 0, 1, 2, 3, 4, 5, 6]);
    let cached: Vec<u64> = Campaign { cached: true, ..campaign(20, 1) }.seeds().collect();
    assert_eq!(cached.len(), 20);
    let last = cached[19];
    let expected = (0..=last).filter(|seed| Shape::of_seed(*seed).cache.is_some());
    assert_eq!(cached, expected.collect::<Vec<_>>());
    assert!(last > 20, "some worlds have no cache drives");
}

#[test]
fn of_several_failed_runs_the_one_with_the_lowest_seed_is_told_first() {
    let failed = |threads| {
        let campaign = Campaign { bug: Some(Bug::AnswerBeforeDurable), ..campaign(300, threads) };
        campaign.run(|_| {}).failed.swap_remove(0)
    };
    let (one, many) = (failed(1), failed(4));
    assert_eq!(one.plan, many.plan);
    assert_eq!(one.failure, many.failure);
    let alone = run_caught(&one.plan, RunOptions::default(), None);
    assert!(alone.is_ok(), "nothing is planted any more");
}

#[test]
fn as_many_runs_fail_as_may() {
    let campaign = Campaign { bug: Some(Bug::SkipFlush), failures_max: 3, ..campaign(300, 1) };
    let results = campaign.run(|_| {});
    let seeds: Vec<u64> = results.failed.iter().map(|failed| failed.plan.seed).collect();
    // One more may have begun when the third failed.
    assert!((3..=4).contains(&seeds.len()) && seeds.is_sorted(), "{seeds:?}");
    let begun = results.totals.runs + seeds.len() as u64;
    assert!((seeds[2] + 1..=seeds[2] + 2).contains(&begun), "{begun} runs, of which {seeds:?} failed");
}

#[test]
fn no_run_begins_when_the_time_is_over() {
    let campaign = Campaign { deadline: Some(Instant::now()), ..campaign(5, 2) };
    assert_eq!(campaign.run(|_| {}).totals, Totals::default());
}
