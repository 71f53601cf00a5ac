//! What must always hold, and what must be seen to happen.

use stateright::Property;

use crate::OwnershipModel;
use crate::requests::is_promised;
use crate::rules::Rules;
use crate::sets::NODES;
use crate::state::{Broken, Change, Milestone, Owner, Phase, State};

/// The properties that every exploration judges by.
pub(crate) fn all(model: &OwnershipModel) -> Vec<Property<OwnershipModel>> {
    let mut properties = vec![
        Property::always("a read returns no older content than a client had seen", |_, state: &State| {
            state.history.broken != Some(Broken::OldContent)
        }),
        Property::always("two owners never both answer", |_, state: &State| {
            let could_answer = |owner: &Owner| {
                owner.phase == Phase::Serving
                    && owner.epoch < state.history.answered_under
                    && is_promised(owner)
            };
            state.history.broken != Some(Broken::TwoOwners)
                && !state.nodes.iter().filter_map(|node| node.owner.as_ref()).any(could_answer)
        }),
        Property::always("a promoted copy holds what clients have seen", |_, state: &State| {
            state.history.broken != Some(Broken::IncompletePromotion)
        }),
        Property::always(
            "an in-sync copy holds what clients have seen",
            |model: &OwnershipModel, state: &State| {
                let in_sync = (0..NODES).filter(|node| state.cluster.stale[*node].is_none());
                in_sync.into_iter().all(|node| model.holds_what_was_seen(state, node))
            },
        ),
        Property::always("every slab has an in-sync copy", |model: &OwnershipModel, state: &State| {
            let is_in_sync = |node: usize| state.cluster.stale[node].is_none();
            model.configuration.slabs.iter().all(|slab| slab.copies.iter().any(is_in_sync))
        }),
    ];
    if model.rules == Rules::ALL {
        properties.extend(milestones());
    }
    properties
}

/// What is worth exploring: an exploration that does not meet all of it proves little.
fn milestones() -> [Property<OwnershipModel>; 14] {
    macro_rules! met {
        ($milestone:ident, $name:literal) => {
            Property::sometimes($name, |_: &OwnershipModel, state: &State| {
                state.just == Some(Milestone::$milestone)
            })
        };
    }
    [
        met!(RolledForward, "a take-over rolls a block forward"),
        met!(InheritedUnanswered, "an unanswered write outlives its owner"),
        met!(PromiseEnded, "a fence waits for a promise to a former owner"),
        met!(GivenUp, "an owner gives the volume up"),
        met!(FreshProcessFenced, "a process that has just started is fenced"),
        met!(Marked, "a copy is marked"),
        met!(Copied, "a page is copied"),
        met!(Promoted, "a copy is promoted"),
        met!(MadeLate, "a change is made after its answer was lost"),
        met!(SettledMade, "a lost change turns out to be made"),
        met!(SettledNever, "a lost change turns out never to be made"),
        met!(ReadAfterTakeOver, "a read is answered after a take-over"),
        Property::sometimes("a write waits for a copy whose promotion is unknown", |_, state: &State| {
            let waits = |owner: &Owner| {
                let Some(Change::Promote(promoted)) = owner.unknown else { return false };
                owner.writes.iter().flatten().any(|write| write.awaited.contains(promoted))
            };
            state.nodes.iter().filter_map(|node| node.owner.as_ref()).any(waits)
        }),
        Property::sometimes("a copy refuses a write of a former owner", |_, state: &State| {
            let late = |owner: &Owner| {
                owner
                    .writes
                    .iter()
                    .flatten()
                    .any(|write| write.in_flight.iter().any(|node| state.nodes[node].epoch > owner.epoch))
            };
            state.nodes.iter().filter_map(|node| node.owner.as_ref()).any(late)
        }),
    ]
}
