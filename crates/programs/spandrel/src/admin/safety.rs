//! Whether a node may be switched off, and who would miss it: asked before a node is drained, before it is removed, and by
//! whoever is about to pull a plug.
//!
//! Three things count. *Copies:* each slab of which the node has a copy must have another one in sync on a node that runs.
//! *Votes:* most of those that vote on the cluster's state must stay. *Room:* if the node never comes back, the others
//! should have room for what it holds; that one is advice.

use std::collections::BTreeSet;

use spandrel_cluster::{Member, VolumeMembership};
use spandrel_pool::{Demand, check_room_without};
use spandrel_shared::{DriveId, Error, NodeId};

use super::api::{NodeSafety, StateMember, VolumeLeft, VotesLeft};
use super::picture::{Facts, KnownNode, leg_id, natural_order};
use crate::text::counted;

/// Something that stands against switching a node off.
struct Obstacle {
    code: &'static str,
    why: String,
    /// What mends it.
    next: &'static str,
    /// What becomes of it if it is done all the same.
    forced: &'static str,
}

impl Obstacle {
    /// As the refusal to drain a node, which can be forced.
    fn of_drain(self, node: &KnownNode) -> Error {
        let what = match node.maintenance_since_unix_ms() {
            None => format!("node {} is not drained", node.name),
            Some(_) => format!("node {} is in maintenance, and must not be switched off", node.name),
        };
        let next = format!("{}; with --force it is done all the same{}", self.next, self.forced);
        Error::new(self.code, what, self.why, next)
    }

    /// As the refusal to take a server out of the cluster.
    fn of_removal(self, server: &str) -> Error {
        Error::new(self.code, format!("{server} is not taken out of the cluster"), self.why, self.next)
    }

    /// As the answer that a server is needed.
    fn of_stop(self, server: &str) -> Error {
        Error::new(self.code, format!("{server} must not be switched off"), self.why, self.next)
    }
}

impl Facts {
    /// Whether a node may be switched off now, with the arithmetic.
    pub fn safety(&self, node: &KnownNode, members: &[StateMember]) -> NodeSafety {
        let obstacles = [self.missed_copies(node), missed_votes(self, node.id, members)];
        let (copies_held, shortage) = self.room_without(node);
        let name = format!("node {}", node.name);
        NodeSafety {
            node: node.name.clone(),
            against: obstacles.into_iter().flatten().map(|obstacle| obstacle.of_stop(&name)).collect(),
            volumes: self.volumes_left(node),
            votes: votes_without(self, node.id, members).map(|(votes, _)| votes),
            copies_held,
            shortage,
        }
    }

    /// What stands against switching a witness off.
    pub fn against_stop_of_witness(
        &self,
        name: &str,
        witness: NodeId,
        members: &[StateMember],
    ) -> Vec<Error> {
        let missed =
            missed_votes(self, witness, members).map(|missed| missed.of_stop(&format!("witness {name}")));
        missed.into_iter().collect()
    }

    /// What stands against draining a node: volumes that need it. Whoever drains a node is about to switch it off.
    ///
    /// # Errors
    ///
    /// `NODE_NEEDED`.
    pub fn check_drain(&self, node: &KnownNode) -> Result<(), Error> {
        self.missed_copies(node).map_or(Ok(()), |obstacle| Err(obstacle.of_drain(node)))
    }

    /// What stands against draining a node, if it is one of those who vote on the cluster's state: too few would be
    /// left that run and are not in maintenance.
    ///
    /// # Errors
    ///
    /// `STATE_MAJORITY_NEEDED`.
    pub fn check_votes(&self, node: &KnownNode, members: &[StateMember]) -> Result<(), Error> {
        missed_votes(self, node.id, members).map_or(Ok(()), |obstacle| Err(obstacle.of_drain(node)))
    }

    /// The same for a node that is to be taken out of the cluster for good.
    ///
    /// # Errors
    ///
    /// `STATE_MAJORITY_NEEDED`.
    pub fn check_votes_for_ever(&self, node: &KnownNode, members: &[StateMember]) -> Result<(), Error> {
        missed_votes(self, node.id, members)
            .map_or(Ok(()), |obstacle| Err(obstacle.of_removal(&format!("node {}", node.name))))
    }

    /// The same for a witness.
    ///
    /// # Errors
    ///
    /// `STATE_MAJORITY_NEEDED`.
    pub fn check_removal_of_witness(
        &self,
        name: &str,
        witness: NodeId,
        members: &[StateMember],
    ) -> Result<(), Error> {
        let missed = missed_votes(self, witness, members);
        missed.map_or(Ok(()), |obstacle| Err(obstacle.of_removal(&format!("witness {name}"))))
    }

    /// The names of the volumes that cannot do without a node: it has a copy that counts of some part, and no other node
    /// that runs and is not in maintenance itself has one in sync.
    pub fn volumes_needing(&self, node: &KnownNode) -> Vec<String> {
        let needing = self.volumes_left(node).into_iter().filter(|left| left.copies_left == 0);
        needing.map(|left| left.volume).collect()
    }

    /// Whether a volume cannot do without a node: see [`Self::volumes_needing`].
    pub fn needs(&self, volume: &VolumeMembership, node: &KnownNode) -> bool {
        self.copies_left(volume, node.id, &self.others_that_serve(node)) == Some(0)
    }

    /// The other nodes that run and are not in maintenance.
    fn others_that_serve(&self, node: &KnownNode) -> BTreeSet<NodeId> {
        let can_serve = |known: &&KnownNode| {
            known.id != node.id && known.report.is_some() && known.maintenance_since_unix_ms().is_none()
        };
        self.nodes.iter().filter(can_serve).map(|known| known.id).collect()
    }

    /// The volumes of which a node has copies that count, and how many others are in sync of the part that has fewest.
    fn volumes_left(&self, node: &KnownNode) -> Vec<VolumeLeft> {
        let others = self.others_that_serve(node);
        let mut volumes: Vec<VolumeLeft> = self
            .volumes
            .iter()
            .filter_map(|volume| {
                let copies_left = self.copies_left(volume, node.id, &others)?;
                Some(VolumeLeft { volume: volume.record.name.clone(), copies_left })
            })
            .collect();
        volumes.sort_by_key(|left| natural_order(&left.volume));
        volumes
    }

    /// Of the parts of which a node has a copy that counts, the one with fewest copies in sync on others: how many there
    /// are. None if it has no such copy.
    fn copies_left(&self, volume: &VolumeMembership, node: NodeId, others: &BTreeSet<NodeId>) -> Option<u32> {
        // Until it is settled which copies hold what was written, each may be the one that does.
        let (is_settled, answering) = (self.is_settled(volume), self.answering(volume));
        let holder = |member: &Member| volume.nodes.get(&member.drive);
        let is_own =
            |member: &Member| holder(member) == Some(&node) && (!is_settled || volume.is_in_sync(member));
        let is_other = |member: &&Member| {
            is_settled
                && volume.is_in_sync(member)
                && !volume.lost.contains(&member.drive)
                && holder(member).is_some_and(|holder| others.contains(holder))
                && answering.contains(&leg_id(member))
        };
        let concerned = volume.sets.iter().filter(|set| set.members.iter().any(is_own));
        concerned.map(|set| set.members.iter().filter(is_other).count() as u32).min()
    }

    fn missed_copies(&self, node: &KnownNode) -> Option<Obstacle> {
        let volumes = self.volumes_needing(node);
        if volumes.is_empty() {
            return None;
        }
        let mut why = format!(
            "no other node that runs and is not in maintenance has a copy in sync, to be used now, of all parts of {}",
            volumes.join(", ")
        );
        for known in self.nodes.iter().filter(|known| known.id != node.id) {
            if known.report.is_none() {
                why += &format!("; {} is down", known.name);
            } else if known.maintenance_since_unix_ms().is_some() {
                why += &format!("; {} is in maintenance", known.name);
            } else if self.is_silent(known.id) {
                why += &format!("; {} does not stand by its copies at the moment", known.name);
            }
        }
        Some(Obstacle {
            code: "NODE_NEEDED",
            why,
            next: "bring the other nodes and their drives back, or out of maintenance (`spandrel node resume`); one that has \
                   just started needs some seconds; and wait until `spandrel volume list` shows these volumes healthy; a volume that keeps one copy cannot do \
                   without its node",
            forced: ", and these volumes stand while the node is away",
        })
    }

    /// Whether the owner of any volume waits for a node.
    fn is_silent(&self, node: NodeId) -> bool {
        let mut legs =
            self.volumes.iter().filter_map(|volume| self.owner(volume)).flat_map(|owned| &owned.legs);
        legs.any(|leg| leg.node == node && leg.is_silent)
    }

    /// How many copies of slabs are promised on a node's drives, and what lacks room if these were gone for ever.
    fn room_without(&self, node: &KnownNode) -> (u64, Option<String>) {
        let own = self.room.drives.iter().filter(|(_, record)| record.node == node.id);
        let own: BTreeSet<DriveId> = own.map(|(drive, _)| *drive).collect();
        let copies_held = own.iter().map(|drive| self.room.promised().slabs(*drive)).sum();
        let demand = |volume: &VolumeMembership| Demand {
            slabs: volume.record.slab_count_grown().into(),
            copies: volume.record.copies,
        };
        let demands: Vec<Demand> = self.volumes.iter().map(demand).collect();
        let leaving = own.union(&self.drives_left()).copied().collect();
        let shortage = check_room_without(&self.pool_view(), &leaving, &demands).err();
        let text = shortage.map(|lack| {
            format!(
                "{} copies of slabs have to be on different nodes, and there is room for {}",
                lack.needed, lack.room
            )
        });
        (copies_held, text.filter(|_| copies_held > 0))
    }
}

/// How many votes on the cluster's state there are and stay without a server, and the names of those that are away. None if it has
/// none.
fn votes_without<'a>(
    facts: &Facts,
    server: NodeId,
    members: &'a [StateMember],
) -> Option<(VotesLeft, Vec<&'a str>)> {
    let voters: Vec<&StateMember> = members.iter().filter(|member| member.votes).collect();
    let is_away = |member: &StateMember| {
        let known = facts.nodes.iter().find(|known| Some(known.id) == member.server);
        let is_idle =
            |known: &KnownNode| known.report.is_none() || known.maintenance_since_unix_ms().is_some();
        !member.runs || known.is_some_and(is_idle)
    };
    let others = voters.iter().copied().filter(|member| member.server != Some(server));
    let (away, left): (Vec<&StateMember>, Vec<&StateMember>) = others.partition(|member| is_away(member));
    let has_vote = away.len() + left.len() < voters.len();
    let votes = VotesLeft { all: voters.len() as u32, left: left.len() as u32 };
    has_vote.then(|| (votes, away.iter().map(|member| member.name.as_str()).collect()))
}

fn missed_votes(facts: &Facts, server: NodeId, members: &[StateMember]) -> Option<Obstacle> {
    let (votes, away) = votes_without(facts, server, members)?;
    if votes.is_majority() {
        return None;
    }
    let mut why = format!(
        "it is one of {} that vote on the cluster's state, and without it {} would be left: fewer than a majority, \
         without which no volume finds another owner and none goes on that has a copy on it",
        counted(votes.all.into(), "server"),
        if votes.left == 0 { "none".to_owned() } else { votes.left.to_string() },
    );
    if !away.is_empty() {
        why += &format!("; away or in maintenance: {}", away.join(", "));
    }
    Some(Obstacle {
        code: "STATE_MAJORITY_NEEDED",
        why,
        next: "start the servers that vote and are away, or end their maintenance (`spandrel cluster state`); of two nodes \
               only one votes, until a witness or a third node is there",
        forced: "",
    })
}

#[cfg(test)]
#[path = "safety_tests.rs"]
mod tests;
