use std::collections::HashSet;
use std::path::Path;

use stateright::{Checker, HasDiscoveries};

use super::*;
use crate::rules::Rule;
use crate::story;

/// Explores a world to its end: no counterexample, and everything met that is worth exploring.
fn holds_in(configuration: Configuration) {
    let checker = OwnershipModel::new(configuration, Rules::ALL).checker().threads(2);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let discoveries = checker.discoveries();
    for property in checker.model().properties() {
        let found = discoveries.get(property.name);
        if property.expectation.discovery_is_failure() {
            let story = found.map(|path| story::tell(checker.model(), &path.clone().into_vec()));
            assert_eq!(story, None, "{}: broken: {}", configuration.name, property.name);
        } else {
            assert!(found.is_some(), "{}: never met: {}", configuration.name, property.name);
        }
    }
}

#[test]
fn all_rules_together_keep_one_slab() {
    holds_in(Configuration::ONE_SLAB);
}

#[test]
fn all_rules_together_keep_one_slab_that_is_marked_twice() {
    holds_in(Configuration::ONE_SLAB_TWO_MARKS);
}

#[test]
fn all_rules_together_keep_blocks_that_share_a_page() {
    holds_in(Configuration::ONE_PAGE);
}

#[test]
fn all_rules_together_keep_two_slabs() {
    holds_in(Configuration::TWO_SLABS);
}

#[test]
fn all_rules_together_keep_two_slabs_through_two_take_overs() {
    holds_in(Configuration::TWO_SLABS_THREE_EPOCHS);
}

/// Whether a counterexample is found in a world in which `rules` hold. With one thread, so that it is
/// the same in every run.
fn is_broken(configuration: Configuration, rules: Rules) -> bool {
    let checker = OwnershipModel::new(configuration, rules).checker();
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let is_failure = |property: &Property<OwnershipModel>| property.expectation.discovery_is_failure();
    let discoveries = checker.discoveries();
    checker
        .model()
        .properties()
        .iter()
        .any(|property| is_failure(property) && discoveries.contains_key(property.name))
}

/// A test for each rule, that nothing holds without it and everything does with it, in the same world.
macro_rules! needed {
    ($($test:ident: $rule:ident,)*) => {
        $(
            #[test]
            fn $test() {
                let configuration = Configuration::showing(Rule::$rule);
                assert!(is_broken(configuration, Rules::without([Rule::$rule])));
                assert!(!is_broken(configuration, Rules::ALL));
            }
        )*

        #[test]
        fn every_rule_has_its_test() {
            assert_eq!(Rule::all(), [$(Rule::$rule),*]);
        }
    };
}

needed! {
    fences_must_wait_for_promises: WaitForPromisesBeforeAnsweringFence,
    fresh_processes_must_not_answer_fences: FreshProcessAnswersNoFence,
    fenced_volumes_must_be_excluded: ExcludeFencedVolumes,
    owners_must_stop_when_fenced_on_their_own_node: StopOwnBeforeAnsweringFence,
    owners_must_stop_before_they_hand_over: StopBeforeHandingOver,
    hand_overs_must_name_their_epoch: HandOverIsOfItsEpoch,
    promises_must_be_checked_before_a_write_is_answered: CheckPromisesBeforeWriteAnswer,
    promises_must_be_checked_before_a_read_is_answered: CheckPromisesBeforeReadAnswer,
    lower_epochs_must_be_refused: RefuseLowerEpochs,
    fences_must_be_durable: FenceIsDurable,
    membership_must_be_read_after_taking: ReadMembershipAgainAfterTaking,
    every_copy_must_be_fenced_before_serving: FenceEveryCopyBeforeServing,
    blocks_must_be_rolled_forward_before_serving: RollForwardBeforeServing,
    the_mark_must_not_move_before_roll_forward: MarkMustNotMoveUntilRolledForward,
    copies_must_be_marked_before_answers: MarkBeforeAnswer,
    unknown_marks_must_not_count: UnknownMarkIsNotMade,
    the_last_copy_must_not_be_marked: NeverMarkTheLastCopy,
    copies_must_be_stale_since_the_mark: StaleSinceIsTheMark,
    changes_must_compare_the_configuration: ChangesCompareConfiguration,
    lost_changes_must_be_settled_by_transactions: SettleByTransaction,
    reads_must_wait_for_writes: ReadsWaitForWrites,
    writes_must_go_to_joining_copies: WritesGoToJoiningCopies,
    joining_copies_must_fall_back: JoiningCopyFallsBack,
    writes_must_drain_before_pages_are_compared: DrainBeforeComparingPages,
    resync_must_look_at_both_sides: ResyncLooksAtBothSides,
    writes_must_drain_before_promotion: DrainBeforePromotion,
    promotions_must_count_as_in_sync: PromotionCountsAsInSync,
}

/// All states that can be reached.
fn reachable(model: &OwnershipModel) -> HashSet<State> {
    let mut states: HashSet<State> = model.init_states().into_iter().collect();
    let mut pending: Vec<State> = states.iter().copied().collect();
    while let Some(state) = pending.pop() {
        for next in model.next_states(&state) {
            if states.insert(next) {
                pending.push(next);
            }
        }
    }
    states
}

/// What is taken for one and the same must be: representatives lead to representatives of all that
/// can be reached, and to nothing else.
#[test]
fn reduction_neither_loses_nor_invents_states() {
    let worlds = [
        Configuration { epochs: 2, writes: 1, ..Configuration::ONE_SLAB },
        Configuration { writes: 1, lost_answers: 0, marks: 0, ..Configuration::ONE_SLAB },
        Configuration { crashes: 0, lost_answers: 0, marks: 1, ..Configuration::ONE_PAGE },
        Configuration { crashes: 0, lost_answers: 0, marks: 0, ..Configuration::TWO_SLABS },
    ];
    for configuration in worlds {
        let reduced = OwnershipModel::new(configuration, Rules::ALL);
        let whole = OwnershipModel { is_reduced: false, ..reduced };
        let representatives: HashSet<State> =
            reachable(&whole).into_iter().map(|state| reduced.representative(state)).collect();
        assert!(representatives == reachable(&reduced), "{configuration:?}");
    }
}

/// The documentation of this crate says where the program follows each rule. That must be there.
#[test]
fn the_program_has_the_functions_that_follow_the_rules() {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let rows: Vec<&str> = include_str!("lib.rs").lines().filter(|line| line.starts_with("//! | `")).collect();
    let rules: Vec<&str> = rows.iter().filter_map(|row| row.split('`').nth(1)).collect();
    let declared: Vec<String> = Rule::all().iter().map(|rule| format!("{rule:?}")).collect();
    assert_eq!(rules, declared);
    for row in rows {
        let mut functions = Vec::new();
        for span in row.split('`').skip(2).filter(|span| !span.contains(' ') && !span.is_empty()) {
            if !span.ends_with(".rs") {
                functions.push(span.rsplit("::").next().unwrap());
                continue;
            }
            let source = std::fs::read_to_string(repository.join(span)).unwrap();
            for function in functions.drain(..) {
                assert!(source.contains(&format!("fn {function}")), "{span} has no function {function}");
            }
        }
        assert!(functions.is_empty(), "no file is named for {functions:?}");
    }
}
