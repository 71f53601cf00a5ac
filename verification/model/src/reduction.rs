//! Which states are one and the same: what differs in them makes no difference for anything that can
//! still happen.
//!
//! Each reduction leans on rules, so none is made when a rule is taken away.

use crate::OwnershipModel;
use crate::configuration::Symmetry;
use crate::requests::is_promised;
use crate::sets::{BLOCKS_MAX, NODES, NodeId, Set};
use crate::state::{Change, Epoch, LegState, Owner, Phase, State, Version, Write};

impl OwnershipModel {
    /// The one state that stands for all that are the same as `state`.
    pub(crate) fn representative(&self, mut state: State) -> State {
        forget_overtaken(&mut state);
        // Whoever gave the volume up counts on no promise any more.
        state.nodes.iter_mut().for_each(|node| node.given_up = None);
        forget_old_epochs(&mut state);
        lower_marks(&mut state);
        let images = self.configuration.symmetries.iter().map(|symmetry| image(&state, symmetry));
        images.fold(state, |least, image| if image.identity() < least.identity() { image } else { least })
    }
}

/// Forgets owners that were overtaken and can neither answer nor change anything any more, and
/// what the others among them have no use for.
fn forget_overtaken(state: &mut State) {
    let epochs = state.nodes.map(|node| node.epoch);
    let newest = state.cluster.epoch;
    for node in &mut state.nodes {
        let Some(owner) = node.owner.as_mut().filter(|owner| owner.epoch < newest) else { continue };
        let arrives = |node: NodeId| epochs[node] == owner.epoch;
        let is_idle = |write: &Write| !write.in_flight.iter().any(arrives);
        let can_answer = owner.phase == Phase::Serving && is_promised(owner);
        let can_change = owner.phase == Phase::Serving && !owner.writes.iter().flatten().all(is_idle);
        if !can_answer && !can_change {
            node.owner = None;
            continue;
        }
        owner.unknown = None;
        for leg in owner.legs.iter_mut().filter(|leg| !leg.is_needed()) {
            *leg = LegState::Stale;
        }
        owner.promises = owner.promises.and(owner.needed());
    }
}

/// An epoch that a node has accepted, or under which something was answered, is compared with those of the
/// owners that there are; and a process that has forgotten promises is like any other when nobody
/// counts on them.
fn forget_old_epochs(state: &mut State) {
    let owners = state.nodes.map(|node| node.owner);
    let lowest_alike = |epoch: Epoch| {
        let epochs = owners.iter().flatten().map(|owner| owner.epoch);
        let below = epochs.clone().filter(|known| *known < epoch).max();
        if epochs.clone().any(|known| known == epoch) { epoch } else { below.map_or(0, |below| below + 1) }
    };
    for (number, node) in state.nodes.iter_mut().enumerate() {
        node.epoch = lowest_alike(node.epoch);
        let counts_on_it = |owner: &Owner| owner.promises.contains(number);
        let others = owners.iter().enumerate().filter(|(other, _)| *other != number);
        node.is_fresh &= others.filter_map(|(_, owner)| owner.as_ref()).any(counts_on_it);
    }
    let answered_under = state.history.answered_under;
    if !owners.iter().flatten().any(|owner| owner.epoch < answered_under) {
        state.history.answered_under = 0;
    }
}

/// A mark, and the version since which a copy is stale, are compared with the writes that copies hold: it
/// is named by the newest of those that it covers.
fn lower_marks(state: &mut State) {
    let mut held = [Version::ZERO; NODES * BLOCKS_MAX];
    let copies = state.nodes.iter().flat_map(|node| node.blocks);
    held.iter_mut().zip(copies).for_each(|(held, copy)| *held = copy.version);
    let lower = |mark: &mut Version| {
        *mark = held.iter().copied().filter(|version| version <= mark).max().unwrap_or_default();
    };
    let lower_change = |change: &mut Option<Change>| {
        if let Some(Change::MarkStale(_, since)) = change {
            lower(since);
        }
    };
    for node in &mut state.nodes {
        lower(&mut node.mark);
        if let Some(owner) = &mut node.owner {
            lower(&mut owner.inherited);
            lower_change(&mut owner.unknown);
        }
    }
    state.cluster.stale.iter_mut().flatten().for_each(lower);
    lower_change(&mut state.on_its_way);
}

/// The state with nodes and blocks in each other's places.
fn image(state: &State, symmetry: &Symmetry) -> State {
    let mut image = *state;
    for (node, place) in symmetry.nodes.into_iter().enumerate() {
        image.cluster.stale[place] = state.cluster.stale[node];
        image.nodes[place] = state.nodes[node];
        for (block, to) in symmetry.blocks.into_iter().enumerate() {
            image.nodes[place].blocks[to] = state.nodes[node].blocks[block];
        }
        image.nodes[place].owner = state.nodes[node].owner.map(|owner| image_of_owner(&owner, symmetry));
    }
    for (block, to) in symmetry.blocks.into_iter().enumerate() {
        image.history.seen[to] = state.history.seen[block];
    }
    image.on_its_way = state.on_its_way.map(|change| image_of_change(change, symmetry));
    image
}

fn image_of_owner(owner: &Owner, symmetry: &Symmetry) -> Owner {
    let of_nodes = |nodes: Set| image_of_set(nodes, &symmetry.nodes);
    let mut image = Owner {
        promises: of_nodes(owner.promises),
        unknown: owner.unknown.map(|change| image_of_change(change, symmetry)),
        ..*owner
    };
    for (node, place) in symmetry.nodes.into_iter().enumerate() {
        image.legs[place] = match owner.legs[node] {
            LegState::Joining { to_copy: Some(slabs) } => {
                LegState::Joining { to_copy: Some(image_of_set(slabs, &symmetry.slabs)) }
            }
            leg => leg,
        };
    }
    for (block, to) in symmetry.blocks.into_iter().enumerate() {
        image.writes[to] = owner.writes[block].map(|write| Write {
            sent: of_nodes(write.sent),
            awaited: of_nodes(write.awaited),
            in_flight: of_nodes(write.in_flight),
            ..write
        });
    }
    image
}

fn image_of_set(set: Set, places: &[usize]) -> Set {
    set.iter().fold(Set::EMPTY, |image, item| image.with(places[item]))
}

fn image_of_change(change: Change, symmetry: &Symmetry) -> Change {
    match change {
        Change::MarkStale(node, since) => Change::MarkStale(symmetry.nodes[node], since),
        Change::Promote(node) => Change::Promote(symmetry.nodes[node]),
    }
}
