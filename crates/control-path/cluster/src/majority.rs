//! Who may mark copies stale: a node that is not itself the one that is cut off.
//!
//! To mark a copy stale is to go on without it, so of two sides that cannot reach each other at
//! most one may do it. The transaction on the volume's configuration already lets only one mark
//! stand; this rule keeps the side that is cut off from being the one that comes first, and from
//! giving up good copies that the larger side goes on with.
//!
//! - A node may mark if it reaches most of the nodes that the cluster's state shows alive, itself
//!   counted. A node is *shown alive* while its entry, which it renews, has not expired.
//! - One that reaches fewer waits: the entries of nodes that are really gone expire, and then it
//!   counts again. If they do not expire, those nodes are alive and this one is cut off.
//! - Of two nodes neither reaches most without the other: the transaction alone decides.
//! - A node whose own entry has expired counts as dead to all others and marks nobody.
//! - Nobody is marked for being absent who has not been seen since the cluster started, until a
//!   grace has passed: servers that lost power together do not come back at the same moment.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use spandrel_shared::NodeId;

/// How long after the cluster's start a node that has not been seen yet is waited for.
pub const START_GRACE: Duration = Duration::from_secs(60);

/// What a node knows of the others when it wants to mark copies.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'a> {
    /// The node that wants to mark.
    pub own: NodeId,
    /// The nodes whose entries in the cluster's state have not expired.
    pub alive: &'a BTreeSet<NodeId>,
    /// The nodes that answer `own` on the bus. Whether it is among them makes no difference.
    pub reachable: &'a BTreeSet<NodeId>,
    /// The nodes that were alive at any time since the cluster started, as far as `own` knows.
    pub seen: &'a BTreeSet<NodeId>,
    /// How long ago the cluster started, as far as `own` knows: at least as long as its process runs.
    pub running_for: Duration,
}

/// Whether a node may mark copies stale, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It may.
    Allowed(Reason),
    /// Not now. Look again when an entry expires or appears, a node becomes reachable, or the
    /// grace ends.
    Wait(Reason),
}

impl Verdict {
    /// Whether marking is allowed.
    pub fn is_allowed(&self) -> bool {
        matches!(self, Verdict::Allowed(_))
    }

    /// Why.
    pub fn reason(&self) -> &Reason {
        match self {
            Verdict::Allowed(reason) | Verdict::Wait(reason) => reason,
        }
    }
}

/// Why a [`Verdict`] is as it is. Shown to people as a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Most of the living nodes are reached.
    ReachesMost {
        /// How many, this node counted.
        reached: usize,
        /// Of how many that are alive.
        alive: usize,
    },
    /// Two nodes are alive, and they do not reach each other.
    TransactionDecides {
        /// The other one.
        other: NodeId,
    },
    /// Too few of the living nodes are reached.
    ReachesTooFew {
        /// How many, this node counted.
        reached: usize,
        /// Of how many that are alive.
        alive: usize,
        /// Those that are alive and not reached.
        silent: Vec<NodeId>,
    },
    /// This node's own entry in the cluster's state has expired.
    OwnEntryExpired,
    /// The node whose copies are to be marked has not been seen since the cluster started.
    NotYetSeen {
        /// That node.
        node: NodeId,
        /// How much longer it is waited for.
        remaining: Duration,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::ReachesMost { reached, alive } => {
                write!(formatter, "this node reaches {reached} of {alive} living nodes, itself counted")
            }
            Reason::TransactionDecides { other } => write!(
                formatter,
                "only this node and {other} are alive and do not reach each other: \
                 whoever changes the cluster's state first goes on"
            ),
            Reason::ReachesTooFew { reached, alive, silent } => {
                write!(
                    formatter,
                    "this node reaches {reached} of {alive} living nodes, itself counted, and needs {}; \
                     it may be the one that is cut off. It waits for an answer or for the entry to expire of:",
                    alive / 2 + 1
                )?;
                silent.iter().try_for_each(|node| write!(formatter, " {node}"))
            }
            Reason::OwnEntryExpired => formatter.write_str(
                "this node's own entry in the cluster's state has expired: to the others it is dead",
            ),
            Reason::NotYetSeen { node, remaining } => write!(
                formatter,
                "node {node} has not been seen since the cluster started; it is waited for {} s longer",
                remaining.as_millis().div_ceil(1000)
            ),
        }
    }
}

/// Whether a node may mark copies stale that are on node `holder`.
///
/// Says nothing about whether the copies should be marked, nor whether others are left in sync:
/// that is for the volume's owner to know.
pub fn may_mark(surroundings: &Surroundings<'_>, holder: NodeId) -> Verdict {
    let Surroundings { own, alive, reachable, seen, running_for } = *surroundings;
    if !alive.contains(&own) {
        return Verdict::Wait(Reason::OwnEntryExpired);
    }
    let is_reached = |node: &NodeId| *node == own || reachable.contains(node);
    let silent: Vec<NodeId> = alive.iter().copied().filter(|node| !is_reached(node)).collect();
    let (reached, alive_count) = (alive.len() - silent.len(), alive.len());
    let reaches_most = reached * 2 > alive_count;
    let reason = match silent[..] {
        [other] if alive_count == 2 => Reason::TransactionDecides { other },
        _ if reaches_most => Reason::ReachesMost { reached, alive: alive_count },
        _ => return Verdict::Wait(Reason::ReachesTooFew { reached, alive: alive_count, silent }),
    };
    let is_known = is_reached(&holder) || seen.contains(&holder) || alive.contains(&holder);
    if !is_known && running_for < START_GRACE {
        return Verdict::Wait(Reason::NotYetSeen { node: holder, remaining: START_GRACE - running_for });
    }
    Verdict::Allowed(reason)
}

#[cfg(test)]
#[path = "majority_tests.rs"]
mod tests;
