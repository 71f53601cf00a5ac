//! Finding out which copies hold what was answered, when the cluster's state cannot say: it was put in place of a newer
//! one that was lost, and its marks are of yesterday.
//!
//! What the state calls in sync may have been marked stale since, and the other way around. So no mark counts. All
//! copies that are not given up for lost are fenced, so that no former owner changes any of them any more, and
//! compared:
//!
//! 1. A copy that is missing, or that its drive cannot prove whole, is out. Whatever is being brought up to date is
//!    among these: its drive has noted that durably (see `resync`).
//! 2. Writes that the newest mark does not cover may stand on one copy and not on another; they were never answered,
//!    or they stand on all copies that were in sync. The take-over makes them the same, so they are left out here.
//! 3. All other blocks are the same on copies that were in sync at the end. If two copies differ, one of them was not:
//!    the one that no later ownership has written to; within one ownership the one whose differing pages are the
//!    older ones.
//! 4. A copy that the state does not know may have been built since, in the place of one that it knows. If it holds
//!    something newer than all of these, they do not count, and nothing is decided. So it is if the volume has grown since
//!    and something was written there, unless an operator gives that up.
//! 5. What is out is stale since zero, and is brought up to date from the others.
//!
//! Where this gives no answer, nothing is decided: the volume waits, and says for what.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;
use spandrel_replica::{
    BlockState, CopyAddress, GatheredCopy, Heeded, Mark, PageState, ReplicaRequest, ReplicaResponse,
};
use spandrel_shared::geometry::SlabRange;
use spandrel_shared::{DriveId, Epoch, NodeId, PAGE_BLOCKS, ShardId, SlabIndex, Version};

use crate::context::{AskError, OwnerContext};
use crate::membership::{LegId, Member, MembershipChange, Unsettled};
use crate::owner::OwnerInner;
use crate::takeover::Interrupted;

/// Pages that are compared at the same time.
const PAGES_AT_ONCE: usize = 16;

/// What ends that copies of drives that are not there, or that contradict each other, are waited for.
const WITHOUT_DRIVES: &str = "bring these drives back, or if they are gone for good, go on without them \
                              (`spandrel cluster settle --without NODE`)";

/// What ends that a volume waits whose growth the state does not know.
const WITHOUT_GROWTH: &str = "put the state back to a later backup, which knows that slab (`spandrel cluster recover`), or \
                              give up what was written behind the former end (`spandrel cluster settle --without-growth \
                              VOLUME`)";

/// How two legs differ, beyond writes that may be incomplete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Difference {
    /// A page that differs has a newer version on the first.
    first_is_newer: bool,
    /// A page that differs has a newer version on the second.
    second_is_newer: bool,
    /// A page that differs has the same version on both.
    same_version: bool,
    /// Of a page one has lost a block, and a write that may be incomplete is the reason why its versions differ, or not.
    may_differ: bool,
}

impl Difference {
    /// Whether they certainly differ.
    fn is_certain(self) -> bool {
        self.first_is_newer || self.second_is_newer || self.same_version
    }
}

/// What is on the nodes of the pool.
#[derive(Default)]
struct Found {
    /// The copies of the volume.
    copies: BTreeMap<(DriveId, SlabIndex), GatheredCopy>,
    /// The shards of all drives that work.
    shards: BTreeMap<DriveId, ShardId>,
}

/// What was found out about the legs.
#[derive(Default)]
struct Comparison {
    /// The newest ownership that has written to each leg.
    newest: BTreeMap<DriveId, Epoch>,
    differences: BTreeMap<(DriveId, DriveId), Difference>,
}

impl Comparison {
    /// The legs that were not in sync at the end; or two of which that cannot be said.
    fn losers(&self) -> Result<BTreeSet<DriveId>, (DriveId, DriveId)> {
        let mut losers = BTreeSet::new();
        let mut unclear = Vec::new();
        for ((first, second), difference) in &self.differences {
            let epochs = (self.newest.get(first), self.newest.get(second));
            let loser = match epochs.0.cmp(&epochs.1) {
                _ if !difference.is_certain() => None,
                std::cmp::Ordering::Less => Some(*first),
                std::cmp::Ordering::Greater => Some(*second),
                std::cmp::Ordering::Equal => {
                    match (difference.first_is_newer, difference.second_is_newer, difference.same_version) {
                        (true, false, false) => Some(*second),
                        (false, true, false) => Some(*first),
                        _ => None,
                    }
                }
            };
            match loser {
                Some(loser) => _ = losers.insert(loser),
                None => unclear.push((*first, *second)),
            }
        }
        // Of two that are out anyway nothing need be said.
        let open = |pair: &&(DriveId, DriveId)| !losers.contains(&pair.0) && !losers.contains(&pair.1);
        match unclear.iter().find(open) {
            Some(pair) => Err(*pair),
            None => Ok(losers),
        }
    }
}

impl<C: OwnerContext> OwnerInner<C> {
    /// Finds out which legs are in sync, and has the cluster's state say so.
    pub(crate) async fn settle(&self) -> Result<(), Interrupted> {
        let Some(Unsettled { lost, pool, .. }) = self.membership.borrow().unsettled.clone() else {
            return Ok(());
        };
        let Found { copies: gathered, shards } = self.fence_all(&lost, &pool).await?;
        // Others' drives are nothing to this volume.
        let drives = self.membership.borrow().drives();
        let mut out: BTreeSet<DriveId> =
            lost.into_iter().filter(|drive| drives.contains_key(drive)).collect();
        let mut damaged = self.drives_without_all_copies(&gathered);
        let unproven = gathered.values().filter(|copy| copy.proven.is_some() && self.is_member(copy));
        damaged.extend(unproven.map(|copy| copy.drive));
        for drive in damaged {
            if !out.contains(&drive) {
                tracing::warn!(volume = %self.volume, %drive, "a drive does not hold all of its copies whole");
                out.insert(drive);
            }
        }
        let comparison = self.compare(&gathered, &out).await?;
        let losers = match comparison.losers() {
            Ok(losers) => losers,
            Err((first, second)) => {
                return Err(self.cannot_settle(
                    &format!(
                        "the copies on the drives {first} and {second} differ, and nothing says which of them is the newer"
                    ),
                    WITHOUT_DRIVES,
                ));
            }
        };
        out.extend(losers);
        self.compare_unknown(&gathered, &shards, &out).await?;
        if !self.membership.borrow().may_mark(&out) {
            let why = "of some slab every copy is missing, or older than another one of its drive's volume";
            return Err(self.cannot_settle(why, WITHOUT_DRIVES));
        }
        tracing::warn!(volume = %self.volume, "its copies were compared; out of date are {}", names(&out));
        match self.change(MembershipChange::Settle(out)).await {
            true => Ok(()),
            false if self.is_deposed() => Err(Interrupted::Deposed),
            false => Err(Interrupted::Retry),
        }
    }

    /// Fences every node of the pool with all its shards, whether it has copies that count or not. All must answer: nobody knows
    /// what the others hold. A shard may have drives that the state does not know yet.
    async fn fence_all(
        &self,
        lost: &BTreeSet<DriveId>,
        pool: &BTreeMap<DriveId, NodeId>,
    ) -> Result<Found, Interrupted> {
        let is_kept = |drive: &DriveId| !lost.contains(drive);
        let drives = self.membership.borrow().drives();
        let drives: BTreeMap<DriveId, ShardId> =
            drives.into_iter().filter(|(drive, _)| is_kept(drive)).collect();
        let of_pool = pool.iter().filter(|(drive, _)| is_kept(drive)).map(|(_, node)| *node);
        let nodes: BTreeSet<NodeId> = of_pool.chain(drives.values().map(|shard| shard.node)).collect();
        let shards: Vec<ShardId> = nodes.into_iter().flat_map(|node| self.shards_of(node)).collect();
        let processes: Vec<_> = shards.iter().map(|shard| self.context.process(*shard)).collect();
        let fences = shards.iter().map(|shard| {
            let (volume, epoch, heeds) = (self.volume, self.epoch, Heeded::All);
            let request = ReplicaRequest::Fence { volume, epoch, settles: true, heeds };
            self.in_time(self.context.ask(*shard, request, None))
        });
        let mut found = Found::default();
        let mut absent = BTreeSet::new();
        for ((shard, process), answer) in shards.iter().zip(processes).zip(join_all(fences).await) {
            match answer {
                Ok((ReplicaResponse::Gathered(copies, working), _)) => {
                    let there = working.iter().filter(|drive| drives.get(drive) == Some(shard));
                    let accepted = there.filter_map(|drive| Some((LegId::standing(*drive), process?)));
                    self.accepted_by.borrow_mut().extend(accepted);
                    // Another process may have answered than the one whose shards these are.
                    if process != self.context.process(*shard) {
                        absent.insert(shard.node);
                    }
                    found.copies.extend(copies.into_iter().map(|copy| ((copy.drive, copy.slab), copy)));
                    found.shards.extend(working.into_iter().map(|drive| (drive, *shard)));
                }
                Ok(_) => _ = absent.insert(shard.node),
                Err(error) => {
                    self.stop_if_deposed(&error)?;
                    absent.insert(shard.node);
                }
            }
        }
        // A node may be there without a drive that it had; or with it, and nothing of the volume on it any more.
        let mut missing: BTreeSet<DriveId> =
            drives.keys().filter(|drive| !found.shards.contains_key(drive)).copied().collect();
        if missing.is_empty() && absent.is_empty() {
            return Ok(found);
        }
        let kept = pool.iter().filter(|(drive, node)| is_kept(drive) && absent.contains(node));
        missing.extend(kept.map(|(drive, _)| *drive));
        Err(self.cannot_settle(&format!("what is on {} is not known", names(&missing)), WITHOUT_DRIVES))
    }

    /// All shards of a node; its first one if there is no session with that, and so nobody to be asked.
    fn shards_of(&self, node: NodeId) -> impl Iterator<Item = ShardId> + use<C> {
        ShardId::all(node, self.context.shards_of(node).unwrap_or(1))
    }

    /// A copy that the state does not know may have been built since, and count: then those that it knows do not all
    /// hold what was answered.
    async fn compare_unknown(
        &self,
        gathered: &BTreeMap<(DriveId, SlabIndex), GatheredCopy>,
        shards: &BTreeMap<DriveId, ShardId>,
        out: &BTreeSet<DriveId>,
    ) -> Result<(), Interrupted> {
        let unsettled = self.membership.borrow().unsettled.clone().unwrap_or_default();
        let is_lost = |drive: DriveId| unsettled.lost.contains(&drive);
        let unknown = gathered.values().filter(|copy| !self.is_member(copy) && !is_lost(copy.drive));
        for unknown in unknown {
            let slab = unknown.slab;
            let members = self.membership.borrow().slabs.get(slab.0 as usize).cloned();
            if members.is_none() && unsettled.is_growth_given_up {
                continue;
            }
            let is_behind_the_end = members.is_none();
            let counting = members.into_iter().flatten().filter(|member| !out.contains(&member.drive));
            let known = self.pages_of(slab, &counting.collect::<Vec<_>>()).await?;
            let Some(shard) = shards.get(&unknown.drive) else { continue };
            let own = self.pages_of_unknown(unknown, *shard).await?;
            if is_newer(&own, &known) {
                let drive = unknown.drive;
                return Err(match is_behind_the_end {
                    true => self.cannot_settle(
                        &format!(
                            "drive {drive} holds what was written to slab {slab}, by which the volume has grown since this \
                             state was current"
                        ),
                        WITHOUT_GROWTH,
                    ),
                    false => self.cannot_settle(
                        &format!(
                            "drive {drive} holds a copy of slab {slab} that the state does not know and that is newer than \
                             all that it knows"
                        ),
                        WITHOUT_DRIVES,
                    ),
                });
            }
        }
        Ok(())
    }

    async fn pages_of_unknown(
        &self,
        copy: &GatheredCopy,
        shard: ShardId,
    ) -> Result<Vec<PageState>, Interrupted> {
        let address = CopyAddress { volume: self.volume, slab: copy.slab, copy: copy.copy };
        let request = ReplicaRequest::Pages { copy: address, authority: self.authority() };
        match self.answered(self.in_time(self.context.ask(shard, request, None)).await)? {
            (ReplicaResponse::Pages(pages), _) => Ok(pages),
            _ => Err(Interrupted::Retry),
        }
    }

    /// Says once what the volume waits for, and what ends that.
    fn cannot_settle(&self, why: &str, next: &str) -> Interrupted {
        let obstacle = format!("the cluster's state was put back, and {why}: {next}");
        if self.obstacle.is_to_be_told(&obstacle) {
            tracing::error!(volume = %self.volume, "the volume waits: {obstacle}");
        }
        Interrupted::Unsettled
    }

    /// Whether the volume counts on a copy.
    fn is_member(&self, copy: &GatheredCopy) -> bool {
        let membership = self.membership.borrow();
        let members = membership.slabs.get(copy.slab.0 as usize);
        members.into_iter().flatten().any(|member| member.drive == copy.drive && member.copy == copy.copy)
    }

    async fn compare(
        &self,
        gathered: &BTreeMap<(DriveId, SlabIndex), GatheredCopy>,
        out: &BTreeSet<DriveId>,
    ) -> Result<Comparison, Interrupted> {
        let counts = |copy: &&GatheredCopy| !out.contains(&copy.drive) && self.is_member(copy);
        let counting = || gathered.values().filter(counts);
        let mark = counting().fold(Mark::default(), |mark, copy| mark.newest(copy.mark.clone()));
        let slabs = self.membership.borrow().slabs.clone();
        let mut comparison = Comparison::default();
        for (slab, members) in (0..).map(SlabIndex).zip(slabs) {
            let members: Vec<Member> =
                members.into_iter().filter(|member| !out.contains(&member.drive)).collect();
            let in_question = blocks_in_question(counting().filter(|copy| copy.slab == slab), &mark);
            self.compare_slab(slab, &members, &in_question, &mut comparison).await?;
        }
        Ok(comparison)
    }

    async fn compare_slab(
        &self,
        slab: SlabIndex,
        members: &[Member],
        in_question: &BTreeSet<u32>,
        comparison: &mut Comparison,
    ) -> Result<(), Interrupted> {
        let pages = self.pages_of(slab, members).await?;
        for (member, pages) in members.iter().zip(&pages) {
            let newest = pages.iter().map(|page| page.version.epoch).max().unwrap_or_default();
            let known = comparison.newest.entry(member.drive).or_default();
            *known = (*known).max(newest);
        }
        let count = pages.first().map_or(0, Vec::len);
        let is_used = |page: &usize| {
            pages.iter().any(|pages| pages[*page].mapped_blocks > 0 || pages[*page].version > Version::ZERO)
        };
        let used: Vec<usize> = (0..count).filter(is_used).collect();
        for some in used.chunks(PAGES_AT_ONCE) {
            let states = some.iter().map(|page| self.ask_states(slab, members, *page as u32));
            for (page, states) in some.iter().zip(join_all(states).await) {
                let versions: Vec<Version> = pages.iter().map(|pages| pages[*page].version).collect();
                let first_block = *page as u32 * PAGE_BLOCKS;
                let counts = |block: usize| !in_question.contains(&(first_block + block as u32));
                note_differences(members, &versions, &states?, counts, comparison);
            }
        }
        Ok(())
    }

    async fn ask_states(
        &self,
        slab: SlabIndex,
        members: &[Member],
        page: u32,
    ) -> Result<Vec<Vec<BlockState>>, Interrupted> {
        let piece = SlabRange { slab, first: page * PAGE_BLOCKS, count: PAGE_BLOCKS };
        let asked = members.iter().map(|member| async move {
            let copy = self.membership.borrow().address(slab, member);
            let (first, count) = (piece.first, piece.count);
            let request = ReplicaRequest::BlockStates { copy, authority: self.authority(), first, count };
            match self.in_time(self.ask_copy(member, request, None)).await? {
                (ReplicaResponse::BlockStates(states), _) if states.len() == count as usize => Ok(states),
                _ => Err(AskError::Unreachable("a question was answered with something else".to_owned())),
            }
        });
        let asked = join_all(asked).await;
        asked.into_iter().map(|answer| self.answered(answer)).collect()
    }
}

/// Whether a page is newer on a copy than on all that are known, or was ever written if none is. A volume may have grown
/// since the state that is gone by: what was never written there is no loss.
fn is_newer(own: &[PageState], known: &[Vec<PageState>]) -> bool {
    let newest =
        |page: usize| known.iter().filter_map(|known| known.get(page)).map(|page| page.version).max();
    (0..).zip(own).any(|(page, own)| own.version > newest(page).unwrap_or(Version::ZERO))
}

/// The blocks of a slab that writes may have changed which the mark does not cover.
fn blocks_in_question<'c>(copies: impl Iterator<Item = &'c GatheredCopy>, mark: &Mark) -> BTreeSet<u32> {
    let listed = copies.flat_map(|copy| &copy.listed);
    let open = listed.filter(|write| write.in_doubt || !mark.covers(write.version));
    open.flat_map(|write| write.first..write.first + write.count).collect()
}

/// Takes note of each pair of members whose copies of a page differ in a block that counts.
fn note_differences(
    members: &[Member],
    versions: &[Version],
    states: &[Vec<BlockState>],
    counts: impl Fn(usize) -> bool,
    comparison: &mut Comparison,
) {
    for (first, one) in members.iter().enumerate() {
        for (second, other) in members.iter().enumerate().skip(first + 1) {
            let blocks = || states[first].iter().zip(&states[second]).enumerate();
            let is_lost = |state: &BlockState| matches!(state, BlockState::Lost);
            let differs = blocks().any(|(block, (own, theirs))| {
                own != theirs && !is_lost(own) && !is_lost(theirs) && counts(block)
            });
            // What one has lost of a page that is the same on both is healed from the other. Of one that is not the same
            // the other may have what stood there before.
            let may_differ = versions[first] != versions[second]
                && blocks().any(|(_, (own, theirs))| is_lost(own) != is_lost(theirs));
            if !differs && !may_differ {
                continue;
            }
            if !differs && !(0..states[first].len()).all(&counts) {
                // A write that may be incomplete makes versions differ as well.
                comparison.differences.entry(pair_of(one, other)).or_default().may_differ = true;
                continue;
            }
            let (own, theirs) = match one.drive < other.drive {
                true => (versions[first], versions[second]),
                false => (versions[second], versions[first]),
            };
            let difference = comparison.differences.entry(pair_of(one, other)).or_default();
            difference.first_is_newer |= own > theirs;
            difference.second_is_newer |= own < theirs;
            difference.same_version |= own == theirs;
        }
    }
}

/// Two legs, in the order of their drives.
fn pair_of(one: &Member, other: &Member) -> (DriveId, DriveId) {
    (one.drive.min(other.drive), one.drive.max(other.drive))
}

fn names(drives: &BTreeSet<DriveId>) -> String {
    match drives.is_empty() {
        true => "none".to_owned(),
        false => drives.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "),
    }
}

#[cfg(test)]
#[path = "settle_tests.rs"]
mod tests;
