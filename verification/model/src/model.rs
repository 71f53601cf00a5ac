//! The model as the checker sees it: where it begins, which step leads where.

use stateright::{Model, Property};

use crate::actions::{self, Action};
use crate::configuration::Configuration;
use crate::properties;
use crate::rules::Rules;
use crate::state::State;

/// A world and the rules that hold in it.
#[derive(Clone, Copy, Debug)]
pub struct OwnershipModel {
    /// How large it is.
    pub configuration: Configuration,
    /// Which rules hold.
    pub rules: Rules,
    /// Whether states that are the same but for what makes no difference count as one. Steps then seem to
    /// let nodes change places, so stories are told without.
    pub is_reduced: bool,
}

impl OwnershipModel {
    /// The world of a configuration. It is reduced if all rules hold: see `reduction`.
    pub fn new(configuration: Configuration, rules: Rules) -> Self {
        Self { configuration, rules, is_reduced: rules == Rules::ALL }
    }

    fn step(&self, state: &State, action: Action) -> Option<State> {
        use Action::*;
        match action {
            Crash { node } => self.crash(state, node),
            ReadEarly { node } => self.read_early(state, node),
            Take { node } => self.take(state, node),
            GiveUp { owner } => self.give_up(state, owner),
            Fence { owner, node } => self.fence(state, owner, node),
            AnswerFence { owner, node } => self.answer_fence(state, owner, node),
            Heartbeat { owner, node } => self.heartbeat(state, owner, node),
            RollForward { owner, block, node } => self.roll_forward(state, owner, block, node),
            Serve { owner } => self.serve(state, owner),
            BeginWrite { owner, block } => self.begin_write(state, owner, block),
            DeliverWrite { owner, block, node } => self.deliver_write(state, owner, block, node),
            CompleteWrite { owner, block } => self.complete_write(state, owner, block),
            Read { owner, block, node } => self.read(state, owner, block, node),
            NoteMark { owner } => self.note_mark(state, owner),
            MarkStale { owner, node, is_lost } => self.mark_stale(state, owner, node, is_lost),
            MakeLate => self.make_late(state),
            Settle { owner } => self.settle(state, owner),
            Join { owner, node } => self.join(state, owner, node),
            ComparePages { owner, node, source } => self.compare_pages(state, owner, node, source),
            CopyPage { owner, node, slab } => self.copy_page(state, owner, node, slab),
            FallBack { owner, node } => self.fall_back(state, owner, node),
            BeginPromotion { owner, node } => self.begin_promotion(state, owner, node),
            Promote { owner, node, is_lost } => self.promote(state, owner, node, is_lost),
        }
    }
}

impl Model for OwnershipModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let beginning = State::beginning(&self.configuration);
        vec![if self.is_reduced { self.representative(beginning) } else { beginning }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions::candidates(&self.configuration, state, actions);
    }

    fn next_state(&self, state: &State, action: Action) -> Option<State> {
        let next = self.step(&State { just: None, ..*state }, action)?;
        Some(if self.is_reduced { self.representative(next) } else { next })
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all(self)
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;
