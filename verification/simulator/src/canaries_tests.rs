use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::*;

/// Bugs that few seeds catch. The others are for `cargo xtask simulate --canary`.
const QUICK: [Bug; 12] = [
    Bug::AnswerBeforeDurable,
    Bug::SkipFlush,
    Bug::AnswerBeforeMark,
    Bug::DropLastCopy,
    Bug::TrustBadChecksum,
    Bug::TrustTornTail,
    Bug::RollLastGroupBack,
    Bug::ReuseBeforeDurable,
    Bug::SkipRollForward,
    Bug::RollForwardTheOlder,
    Bug::ForgetTrims,
    Bug::PromoteBeforeLastPage,
];

/// How many are planted in one turn.
const BUGS_PER_TURN: usize = 3;

/// Which turn it is: `SPANDREL_CANARY_TURN`, or the number of the day.
fn turn() -> u64 {
    let asked = std::env::var("SPANDREL_CANARY_TURN").ok().and_then(|turn| turn.parse().ok());
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    asked.unwrap_or(since.as_secs() / Duration::from_hours(24).as_secs())
}

#[test]
fn the_bugs_whose_turn_it_is_are_caught() {
    let campaign = Campaign {
        seed_first: 0,
        cached: false,
        seeds: 500,
        threads: 2,
        deadline: None,
        failures_max: 1,
        bug: None,
    };
    for bug in by_turns(&QUICK, turn(), BUGS_PER_TURN) {
        let canary = catch(&campaign, bug);
        assert!(canary.caught.is_some(), "{canary}");
    }
}

#[test]
fn all_bugs_have_their_turn() {
    let turns = QUICK.len().div_ceil(BUGS_PER_TURN) as u64;
    let had: BTreeSet<Bug> = (7..7 + turns).flat_map(|turn| by_turns(&QUICK, turn, BUGS_PER_TURN)).collect();
    assert_eq!(had, QUICK.into_iter().collect());
}

#[test]
fn a_bug_is_found_by_its_name() {
    assert_eq!(named("SkipFence"), Ok(Bug::SkipFence));
    assert_eq!(named("skip-fence"), Ok(Bug::SkipFence));
    assert!(named("Fence").is_err_and(|text| text.contains("SkipFence")));
}
