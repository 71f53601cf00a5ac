//! Who keeps the cluster's state, and what a server has to do next for that.
//!
//! An odd number of servers has a vote, so that none is there in vain: one, three or five. Five from five servers on,
//! a witness counted; then the state, and with it the cluster, goes on through the loss of any two. Who has a vote
//! keeps it as long as that fits: every change is a risk.
//!
//! Each server decides for itself, from what all of them can see; so what it decides here is a pure function.
//!
//! Invariants:
//! - A server takes a step that makes the number of votes even only when the one that makes it odd again is there.
//! - Nobody but its own server removes a member with a vote, unless that server has left the cluster.

use std::collections::BTreeSet;

use spandrel_shared::NodeId;

/// A server of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedServer {
    /// The server.
    pub id: NodeId,
    /// Whether it has no drives and votes only where nodes are too few.
    pub witness: bool,
    /// Whether it has shown lately that it runs.
    pub is_awake: bool,
}

/// A member of etcd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedMember {
    /// Its number in etcd.
    pub id: u64,
    /// Its server, if it is known: it is not before the member has run for the first time.
    pub server: Option<NodeId>,
    /// Whether it has a vote.
    pub votes: bool,
    /// It was in nobody's way for long that it does not run: it may be removed if others want its place.
    pub is_given_up: bool,
}

/// What a server knows of its own member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnMember {
    /// The server.
    pub server: NodeId,
    /// Its number in etcd, if it is one of the members.
    pub id: Option<u64>,
    /// Whether its process is kept running.
    pub runs: bool,
    /// Whether it was a member, and its data are gone.
    pub has_lost_data: bool,
}

/// What a server has to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing, or wait.
    Wait,
    /// Become a member without a vote.
    Add,
    /// Start the process of a member that was added.
    Begin,
    /// Take a vote.
    Promote(u64),
    /// Leave: its place is needed no more, or it begins anew.
    Leave(u64),
    /// Remove somebody else's member.
    Remove(u64),
}

/// Who votes, of these servers in the order in which they joined: those who do already, as many as fit, then others.
pub fn voters(servers: &[PlannedServer], members: &[PlannedMember]) -> BTreeSet<NodeId> {
    let votes = match servers.len() {
        0..=2 => 1,
        3..=4 => 3,
        _ => 5,
    };
    let has_vote = |server: &&PlannedServer| {
        members.iter().any(|member| member.votes && member.server == Some(server.id))
    };
    // Those who have a vote before others, those who run before others, nodes before witnesses.
    let mut candidates: Vec<&PlannedServer> = servers.iter().collect();
    candidates
        .sort_by_key(|server| (!has_vote(server), !server.is_awake && !has_vote(server), server.witness));
    candidates.into_iter().take(votes).map(|server| server.id).collect()
}

/// Who keeps a copy without a vote: the second of two nodes, so that a third server has a vote at once when it joins.
fn learner(servers: &[PlannedServer], voters: &BTreeSet<NodeId>) -> Option<NodeId> {
    let two_nodes = servers.len() == 2 && servers.iter().all(|server| !server.witness);
    let other = servers.iter().find(|server| !voters.contains(&server.id));
    other.filter(|_| two_nodes).map(|server| server.id)
}

/// What a server has to do next.
pub fn next_step(
    own: OwnMember,
    servers: &[PlannedServer],
    members: &[PlannedMember],
    removed: &BTreeSet<NodeId>,
) -> Step {
    let voters = voters(servers, members);
    let is_member = |server: NodeId| members.iter().any(|member| member.server == Some(server));
    let has_vote = own.id.is_some_and(|id| members.iter().any(|member| member.id == id && member.votes));
    // Whoever has a vote clears away what nobody else can.
    if has_vote && own.runs {
        let has_left =
            |member: &&PlannedMember| member.server.is_some_and(|server| removed.contains(&server));
        let waits =
            |server: &PlannedServer| server.is_awake && voters.contains(&server.id) && !is_member(server.id);
        let is_in_the_way = |member: &&PlannedMember| !member.votes && member.is_given_up;
        let in_the_way = members.iter().find(is_in_the_way).filter(|_| servers.iter().any(waits));
        if let Some(member) = members.iter().find(has_left).or(in_the_way) {
            return Step::Remove(member.id);
        }
    }
    let wanted = voters.contains(&own.server) || learner(servers, &voters) == Some(own.server);
    let votes = members.iter().filter(|member| member.votes).count();
    match own.id {
        Some(id) if own.has_lost_data => Step::Leave(id),
        Some(_) if !own.runs => Step::Begin,
        // Only one that is too many goes; who is to keep a copy without a vote comes back as such.
        Some(id) if has_vote && !voters.contains(&own.server) && votes > voters.len() => Step::Leave(id),
        Some(id) if !has_vote && voters.contains(&own.server) => {
            let comes_next = |server: &PlannedServer| {
                server.is_awake
                    && server.id != own.server
                    && voters.contains(&server.id)
                    && !is_member(server.id)
            };
            let stays_odd = votes % 2 == 0 || servers.iter().any(comes_next);
            if stays_odd { Step::Promote(id) } else { Step::Wait }
        }
        Some(_) => Step::Wait,
        // etcd takes one member without a vote at a time.
        None if wanted && members.iter().all(|member| member.votes) => Step::Add,
        None => Step::Wait,
    }
}

#[cfg(test)]
#[path = "state_plan_tests.rs"]
mod tests;
