//! A path through the states, told as a numbered story.

use std::fmt::Write as _;

use stateright::Model as _;

use crate::actions::Action;
use crate::model::OwnershipModel;
use crate::sets::NODES;
use crate::state::{LegState, Owner, Phase, State};

/// A path up to the first state in which something does not hold that always must.
pub fn until_broken(
    model: &OwnershipModel,
    path: Vec<(State, Option<Action>)>,
) -> Vec<(State, Option<Action>)> {
    let properties = model.properties();
    let is_broken = |state: &State| {
        let mut always = properties.iter().filter(|property| property.expectation.discovery_is_failure());
        always.any(|property| !(property.condition)(model, state))
    };
    let steps = path.iter().position(|(state, _)| is_broken(state)).unwrap_or(path.len());
    path.into_iter().take(steps + 1).collect()
}

/// The story of a path: what happened, step by step, and how the world looks at its end.
pub fn tell(model: &OwnershipModel, path: &[(State, Option<Action>)]) -> String {
    let mut story = String::new();
    for (number, pair) in path.windows(2).enumerate() {
        let [(before, Some(action)), (after, _)] = pair else { continue };
        let detail = detail(*action, before, after);
        // Writing to a string cannot fail.
        _ = writeln!(story, "{:>3}. {action}{detail}", number + 1);
    }
    if let Some((last, _)) = path.last() {
        story.push_str(&describe(model, last));
    }
    story
}

/// What a step's own words do not say: which epoch, which write.
fn detail(action: Action, before: &State, after: &State) -> String {
    match action {
        Action::Take { .. } => format!(" under epoch {}", after.cluster.epoch),
        Action::BeginWrite { owner, block } => after
            .owner(owner)
            .and_then(|owner| owner.writes[block])
            .map_or(String::new(), |write| format!(": {}, sent to nodes {}", write.version, write.sent)),
        Action::CompleteWrite { owner, block } => before
            .owner(owner)
            .and_then(|owner| owner.writes[block])
            .map_or(String::new(), |write| format!(" ({})", write.version)),
        Action::RollForward { block, node, .. } | Action::DeliverWrite { block, node, .. } => {
            format!(" ({})", after.nodes[node].blocks[block].version)
        }
        Action::Read { block, node, .. } => {
            let (held, seen) = (before.nodes[node].blocks[block].version, before.history.seen[block]);
            format!(": {held}; clients have seen {seen} before")
        }
        Action::MarkStale { node, is_lost: false, .. } => {
            after.cluster.stale[node].map_or(String::new(), |since| format!(", since {since}"))
        }
        _ => String::new(),
    }
}

fn describe(model: &OwnershipModel, state: &State) -> String {
    let mut text = format!("     In the end the cluster's state names epoch {}.\n", state.cluster.epoch);
    for node in (0..NODES).filter(|node| model.configuration.holders().contains(*node)) {
        let mark = match state.cluster.stale[node] {
            Some(since) => format!("stale since {since}"),
            None => "in sync".to_owned(),
        };
        let blocks = (0..model.configuration.blocks)
            .filter(|block| model.configuration.slab_of(*block).copies.contains(node))
            .map(|block| format!("block {block} {}", state.nodes[node].blocks[block].version));
        let blocks: Vec<String> = blocks.collect();
        _ = writeln!(
            text,
            "     Node {node}: {mark}, has accepted epoch {}, holds {}.",
            state.nodes[node].epoch,
            blocks.join(", ")
        );
    }
    for (node, owner) in state.nodes.iter().enumerate().filter_map(|(node, found)| Some((node, found.owner?)))
    {
        _ = writeln!(text, "     Owner {node}: {}.", describe_owner(&owner));
    }
    for block in 0..model.configuration.blocks {
        _ = writeln!(text, "     Clients have seen {} of block {block}.", state.history.seen[block]);
    }
    text
}

fn describe_owner(owner: &Owner) -> String {
    let phase = match owner.phase {
        Phase::TakingOver => "takes over",
        Phase::Serving => "serves",
    };
    let in_state = |name: &str, is_in: fn(LegState) -> bool| {
        let nodes: Vec<String> =
            (0..NODES).filter(|node| is_in(owner.legs[*node])).map(|node| node.to_string()).collect();
        if nodes.is_empty() { String::new() } else { format!(", {name} {}", nodes.join(" ")) }
    };
    format!(
        "{phase} under epoch {}, counts on the promises of nodes {}{}{}{}",
        owner.epoch,
        owner.promises,
        in_state("in sync", |leg| leg == LegState::InSync),
        in_state("joining", |leg| matches!(leg, LegState::Joining { .. })),
        in_state("promoting", |leg| leg == LegState::Promoting),
    )
}
