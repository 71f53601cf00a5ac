//! Taking a volume over: fence, gather, roll forward, compare; only then serve.
//!
//! If nobody knows which legs are in sync, since the cluster's state was set back, that is found out first: see
//! `settle`.
//!
//! 1. Every in-sync leg's node accepts the new epoch and lists the writes that may be incomplete.
//!    From its answer on, no older owner can complete a write. A leg that cannot answer is marked
//!    stale, if the cluster lets this node mark and other copies remain; else the volume waits.
//! 2. M is the highest mark that any of them reports: at or below it, but for its exceptions,
//!    everything is on all of them. What the lists name beyond that is in question.
//! 3. For each block in question, the copy with the highest version is the source, and the others
//!    get its content under that old version. A write that was in doubt on a copy after a crash
//!    is never a source. If the newest content is damaged wherever it is listed, the copies that list it are
//!    marked stale: another copy does not, so the write was never answered, or a resync has brought its
//!    content there.
//! 4. The copies of each slab compare their page versions. One that lacks a version has lost
//!    something that it once had (a drive that lied, a journal that rotted): it is marked stale
//!    since zero. Blocks of which one says that it has lost them are healed when the volume is served.
//!
//! A leg that joins the marked ones at any step makes no difference to the others.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use spandrel_platform::Platform;
use spandrel_replica::{GatheredCopy, Heeded, Mark, PageState, ReplicaRequest, ReplicaResponse};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::geometry::SlabRange;
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{DriveId, PAGE_BLOCKS, ShardId, SlabIndex, Version};

use crate::context::{AskError, OwnerContext};
use crate::membership::{LegId, LegState, Member};
use crate::owner::{OwnerInner, Phase};
use crate::read::CopyPart;
use crate::write::Content;

/// How long a take-over waits before it asks again a leg that did not answer.
const RETRY: Duration = Duration::from_millis(50);

/// How long one waits whose copies could not be compared, or differ so that nothing can be decided: all of them are read
/// again then.
const UNSETTLED_RETRY: Duration = Duration::from_secs(2);

/// Slabs whose copies are compared at the same time: one after the other, a large volume would wait for thousands of
/// round trips.
pub(crate) const SLABS_AT_ONCE: usize = 32;

/// Takes the volume over and then lets it serve, or ends when the owner is deposed.
pub(crate) async fn run<C: OwnerContext>(owner: Rc<OwnerInner<C>>) {
    loop {
        match owner.take_over().await {
            Ok(()) if owner.is_deposed() => return,
            Ok(()) => {
                owner.versions.borrow_mut().settle();
                owner.idle_mark.renew();
                owner.phase.set(Phase::Serving);
                tracing::info!(volume = %owner.volume, epoch = owner.epoch.0, "serving");
                owner.changed.notify_all();
                return;
            }
            Err(Interrupted::Deposed) => return,
            Err(Interrupted::Retry) => owner.context.platform().sleep(RETRY).await,
            Err(Interrupted::Unsettled) => owner.context.platform().sleep(UNSETTLED_RETRY).await,
        }
    }
}

/// Why a take-over did not end.
pub(crate) enum Interrupted {
    /// Another owner was met.
    Deposed,
    /// A leg did not answer, and could not be marked stale yet.
    Retry,
    /// The cluster's state was set back, and what the copies hold does not say yet which of them count.
    Unsettled,
}

/// What the in-sync legs answered.
struct Gathered {
    copies: BTreeMap<(DriveId, SlabIndex), GatheredCopy>,
    mark: Mark,
}

impl<C: OwnerContext> OwnerInner<C> {
    async fn take_over(&self) -> Result<(), Interrupted> {
        self.settle().await?;
        let gathered = self.fence_and_gather().await?;
        // Until all of it is rolled forward, no message may say that more is complete.
        self.versions.borrow_mut().inherit(gathered.mark.clone());
        if canary::is_planted(Bug::MarkBeforeRollForward) {
            self.versions.borrow_mut().settle();
        }
        self.roll_forward(&gathered).await?;
        self.compare_versions().await
    }

    /// Fences every needed node. Legs that do not answer are marked stale, and copies that their drives could not prove
    /// whole: together, as neither may count on the other one being what is left.
    async fn fence_and_gather(&self) -> Result<Gathered, Interrupted> {
        let mut gathered = Gathered { copies: BTreeMap::new(), mark: Mark::default() };
        let shards = self.needed_shards();
        let unreachable: BTreeSet<ShardId> =
            shards.iter().copied().filter(|shard| !self.context.is_reachable(*shard)).collect();
        let processes: Vec<_> = shards.iter().map(|shard| self.context.process(*shard)).collect();
        let fences = shards.iter().map(|shard| {
            let (volume, epoch, heeds) = (self.volume, self.epoch, Heeded::All);
            let request = ReplicaRequest::Fence { volume, epoch, settles: true, heeds };
            self.in_time(self.context.ask(*shard, request, None))
        });
        let mut absent = BTreeSet::new();
        // Drives of which somebody has said what they hold who can know.
        let mut told: BTreeSet<DriveId> = BTreeSet::new();
        for ((shard, process), answer) in shards.iter().zip(processes).zip(join_all(fences).await) {
            match answer {
                Ok((ReplicaResponse::Gathered(copies, working), _)) => {
                    let legs = self.legs_in(LegState::InSync).into_iter().filter(|(_, other)| other == shard);
                    let is_told = |drive| working.contains(&drive) || self.context.answers_for(*shard, drive);
                    let answered: Vec<LegId> =
                        legs.map(|(leg, _)| leg).filter(|leg| is_told(leg.drive)).collect();
                    told.extend(answered.iter().map(|leg| leg.drive));
                    let accepted = answered.into_iter().filter_map(|leg| Some((leg, process?)));
                    self.accepted_by.borrow_mut().extend(accepted);
                    for copy in copies.into_iter().filter(|copy| told.contains(&copy.drive)) {
                        if copy.listed.iter().any(|listed| listed.in_doubt) {
                            witness::reached(Rare::InDoubtGathered);
                        }
                        gathered.mark = gathered.mark.newest(copy.mark.clone());
                        gathered.copies.insert((copy.drive, copy.slab), copy);
                    }
                }
                Ok(_) => {
                    absent.insert(*shard);
                }
                Err(error) => {
                    self.stop_if_deposed(&error)?;
                    absent.insert(*shard);
                }
            }
        }
        // Others have taken their time to answer. One that could not be asked then may be there now, as
        // when all nodes come back together.
        if absent.iter().any(|shard| unreachable.contains(shard) && self.context.is_reachable(*shard)) {
            return Err(Interrupted::Retry);
        }
        let known_up_to = gathered.mark.complete_up_to();
        let mut lacking = BTreeMap::new();
        let without_all_copies = self.drives_without_all_copies(&gathered.copies);
        for (leg, shard) in self.legs_in(LegState::InSync) {
            if absent.contains(&shard) || !told.contains(&leg.drive) {
                lacking.insert(leg.drive, known_up_to);
            } else if without_all_copies.contains(&leg.drive) {
                // The drive is gone from its node, or has lost copies: nothing is known of it.
                lacking.insert(leg.drive, Version::ZERO);
            }
        }
        for (drive, proven) in self.unproven(&gathered) {
            let since = lacking.entry(drive).or_insert(proven);
            *since = (*since).min(proven);
        }
        self.mark_or_retry(lacking).await?;
        Ok(gathered)
    }

    fn legs_in(&self, state: LegState) -> Vec<(LegId, ShardId)> {
        let legs = self.legs.borrow();
        legs.iter().filter(|(_, leg)| leg.state == state).map(|(id, leg)| (*id, leg.shard)).collect()
    }

    /// The drives of which not every copy was told that should be there. One that is being built may not be made yet.
    pub(crate) fn drives_without_all_copies(
        &self,
        gathered: &BTreeMap<(DriveId, SlabIndex), GatheredCopy>,
    ) -> BTreeSet<DriveId> {
        let membership = self.membership.borrow();
        let slabs = (0..).map(SlabIndex).zip(&membership.slabs);
        let members = slabs.flat_map(|(slab, members)| members.iter().map(move |member| (slab, member)));
        let lacks = |(slab, member): &(SlabIndex, &Member)| {
            let copy = gathered.get(&(member.drive, *slab));
            !member.is_building && copy.is_none_or(|copy| copy.copy != member.copy)
        };
        members.filter(lacks).map(|(_, member)| member.drive).collect()
    }

    /// The drives that could not prove their copies whole, and the last version up to which they could.
    fn unproven(&self, gathered: &Gathered) -> BTreeMap<DriveId, Version> {
        let known_up_to = gathered.mark.complete_up_to();
        let mut unproven: BTreeMap<DriveId, Version> = BTreeMap::new();
        for copy in gathered.copies.values() {
            let leg = self.membership.borrow().find(copy.slab, copy.copy).map(Member::leg);
            if let Some(proven) = copy.proven
                && leg.is_some_and(|leg| self.leg_state(leg) == LegState::InSync)
            {
                witness::reached(Rare::CopyUnproven);
                let since = unproven.entry(copy.drive).or_insert(known_up_to);
                *since = (*since).min(proven);
            }
        }
        unproven
    }

    /// Marks legs stale. Where that would take a slab's last in-sync copy, or the cluster does not
    /// let this node mark, the take-over begins again later.
    async fn mark_or_retry(&self, legs: BTreeMap<DriveId, Version>) -> Result<(), Interrupted> {
        if legs.is_empty() {
            return Ok(());
        }
        let drives = legs.keys().copied().collect();
        let may_mark = self.membership.borrow().may_mark(&drives);
        if !may_mark {
            self.tell_obstacle(&legs);
        } else if self.mark_since(legs).await {
            return Ok(());
        }
        Err(if self.is_deposed() { Interrupted::Deposed } else { Interrupted::Retry })
    }

    /// Says once what the volume waits for: to go on without these copies would lose answered writes.
    fn tell_obstacle(&self, legs: &BTreeMap<DriveId, Version>) {
        let legs = legs.iter().map(|(drive, since)| match *since {
            Version::ZERO => format!("drive {drive} (of which nothing is certain)"),
            since => format!("drive {drive} (of which nothing after {since} is certain)"),
        });
        let obstacle = format!(
            "to go on without {} would lose answered writes, as no other copy of some slab is in sync: if servers or drives \
             are away, bring them back",
            legs.collect::<Vec<String>>().join(", ")
        );
        if self.obstacle.is_to_be_told(&obstacle) {
            tracing::error!(volume = %self.volume, "the volume waits: {obstacle}");
        }
    }

    pub(crate) fn stop_if_deposed(&self, error: &AskError) -> Result<(), Interrupted> {
        if let AskError::Replica(spandrel_replica::ReplicaError::Fenced { epoch }) = error
            && *epoch > self.epoch
        {
            self.depose();
        }
        if self.is_deposed() { Err(Interrupted::Deposed) } else { Ok(()) }
    }

    /// Makes every block in question the same on all in-sync legs.
    async fn roll_forward(&self, gathered: &Gathered) -> Result<(), Interrupted> {
        if canary::is_planted(Bug::SkipRollForward) {
            return Ok(());
        }
        let slabs = self.membership.borrow().slabs.len() as u32;
        for slab in (0..slabs).map(SlabIndex) {
            let members = self.in_sync_members(slab);
            let questions = questions(slab, &members, gathered);
            for (block, question) in questions {
                for member in members.iter().filter(|member| !question.holders.contains(&member.drive)) {
                    self.copy_forward(slab, block, &question, member).await?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn in_sync_members(&self, slab: SlabIndex) -> Vec<Member> {
        let members = self.members(slab).into_iter();
        members.filter(|(_, state)| *state == LegState::InSync).map(|(member, _)| member).collect()
    }

    /// Copies one block from a holder of its newest version to a copy that lacks it.
    async fn copy_forward(
        &self,
        slab: SlabIndex,
        block: u32,
        question: &Question,
        target: &Member,
    ) -> Result<(), Interrupted> {
        let piece = SlabRange { slab, first: block, count: 1 };
        let Some(content) = self.read_newest(piece, question).await? else {
            return self.give_up_holders(question).await;
        };
        let (request, payload) = self.write_request(piece, &content, question.version, target);
        match self.in_time(self.ask_copy(target, request, payload)).await {
            Ok(_) => {
                if question.holders.len() == 1 {
                    witness::reached(Rare::RolledForwardFromOneCopy);
                }
                self.statistics.borrow_mut().blocks_rolled_forward += 1;
                Ok(())
            }
            Err(error) => {
                self.stop_if_deposed(&error)?;
                let since = self.versions.borrow().mark().complete_up_to();
                self.mark_or_retry(BTreeMap::from([(target.drive, since)])).await
            }
        }
    }

    /// A block's newest content is damaged on all copies that list it. Another in-sync copy does not list that
    /// version: either it was never answered, and nobody has seen it, or that copy has its content from a
    /// resync, which lists nothing. The copies that list it are taken out, and the volume goes on with what
    /// the others hold.
    async fn give_up_holders(&self, question: &Question) -> Result<(), Interrupted> {
        let since = self.versions.borrow().mark().complete_up_to();
        let is_in_sync = |drive: &&DriveId| self.leg_state(LegId::standing(**drive)) == LegState::InSync;
        let holders = question.holders.iter().filter(is_in_sync);
        let holders: BTreeMap<DriveId, Version> = holders.map(|drive| (*drive, since)).collect();
        tracing::warn!(volume = %self.volume, version = %question.version, "a write that may be incomplete is damaged on every copy that lists it");
        self.mark_or_retry(holders).await?;
        // What is in question has changed.
        Err(Interrupted::Retry)
    }

    /// The block's content at its newest version, from any holder that has it whole. `None` if all
    /// holders have damaged it.
    async fn read_newest(
        &self,
        piece: SlabRange,
        question: &Question,
    ) -> Result<Option<Content>, Interrupted> {
        let mut all_answered = true;
        for member in self.in_sync_members(piece.slab) {
            if !question.holders.contains(&member.drive) {
                continue;
            }
            match self.in_time(self.ask_read(&member, piece)).await {
                Ok(mut parts) => match parts.pop() {
                    Some(CopyPart::Data { data, checksums }) => {
                        return Ok(Some(Content::Data { data, checksums: checksums.into() }));
                    }
                    Some(CopyPart::Hole(_)) => return Ok(Some(Content::Hole)),
                    Some(CopyPart::Damaged { .. }) | None => {}
                },
                Err(error) => {
                    self.stop_if_deposed(&error)?;
                    all_answered = false;
                }
            }
        }
        if all_answered { Ok(None) } else { Err(Interrupted::Retry) }
    }

    /// Finds in-sync legs that lack a version which another one has, and marks them.
    async fn compare_versions(&self) -> Result<(), Interrupted> {
        if canary::is_planted(Bug::SkipVersionComparison) {
            return Ok(());
        }
        let slabs = self.membership.borrow().slabs.len() as u32;
        let mut lacking: BTreeMap<DriveId, Version> = BTreeMap::new();
        let compared = (0..slabs).map(|slab| self.compare_slab_versions(SlabIndex(slab)));
        let mut compared = stream::iter(compared).buffer_unordered(SLABS_AT_ONCE);
        while let Some(found) = compared.next().await {
            lacking.extend(found?.into_iter().map(|drive| (drive, Version::ZERO)));
        }
        self.statistics.borrow_mut().legs_found_lacking += lacking.len() as u64;
        for drive in lacking.keys() {
            witness::reached(Rare::CopyFoundLacking);
            tracing::error!(volume = %self.volume, %drive, "a copy lacks writes that it had confirmed");
        }
        self.mark_or_retry(lacking).await
    }

    /// The in-sync legs that lack a version of a slab which another one has. Pages of which one has lost blocks are
    /// noted.
    async fn compare_slab_versions(&self, slab: SlabIndex) -> Result<Vec<DriveId>, Interrupted> {
        let members = self.in_sync_members(slab);
        let pages = self.pages_of(slab, &members).await?;
        pages.iter().for_each(|own| self.note_lost_pages(slab, own));
        let lacks = |own: &[PageState]| {
            let is_newer = |page: usize| pages.iter().any(|other| other[page].version > own[page].version);
            (0..own.len()).any(is_newer)
        };
        let lacking = members.iter().zip(&pages).filter(|(_, own)| lacks(own));
        Ok(lacking.map(|(member, _)| member.drive).collect())
    }

    /// The pages of these copies of a slab, all of them or none.
    pub(crate) async fn pages_of(
        &self,
        slab: SlabIndex,
        members: &[Member],
    ) -> Result<Vec<Vec<PageState>>, Interrupted> {
        let asked = join_all(members.iter().map(|member| self.ask_pages(slab, member))).await;
        asked.into_iter().map(|answer| self.answered(answer)).collect()
    }

    /// An answer without which the take-over cannot go on.
    pub(crate) fn answered<T>(&self, answer: Result<T, AskError>) -> Result<T, Interrupted> {
        answer.or_else(|error| {
            self.stop_if_deposed(&error)?;
            Err(Interrupted::Retry)
        })
    }

    pub(crate) async fn ask_pages(
        &self,
        slab: SlabIndex,
        member: &Member,
    ) -> Result<Vec<PageState>, AskError> {
        let copy = self.membership.borrow().address(slab, member);
        let expected = self.membership.borrow().geometry.slab_blocks() / PAGE_BLOCKS;
        let request = ReplicaRequest::Pages { copy, authority: self.authority() };
        match self.in_time(self.ask_copy(member, request, None)).await? {
            (ReplicaResponse::Pages(pages), _) if pages.len() == expected as usize => Ok(pages),
            _ => Err(AskError::Unreachable("a question was answered with something else".to_owned())),
        }
    }
}

/// A block of which in-sync copies may differ.
struct Question {
    /// The newest version that a copy holds whole.
    version: Version,
    /// The legs that hold it.
    holders: BTreeSet<DriveId>,
}

/// The blocks in question of a slab: those that any member lists beyond the mark.
fn questions(slab: SlabIndex, members: &[Member], gathered: &Gathered) -> BTreeMap<u32, Question> {
    let mut questions: BTreeMap<u32, Question> = BTreeMap::new();
    for member in members {
        let Some(copy) = gathered.copies.get(&(member.drive, slab)) else { continue };
        for listed in &copy.listed {
            let in_doubt = listed.in_doubt && !canary::is_planted(Bug::IgnoreInDoubt);
            let covered =
                gathered.mark.covers(listed.version) && !canary::is_planted(Bug::RollForwardBelowMark);
            if in_doubt || covered {
                continue;
            }
            for block in listed.first..listed.first + listed.count {
                let question = questions
                    .entry(block)
                    .or_insert_with(|| Question { version: listed.version, holders: BTreeSet::new() });
                let is_newer = listed.version > question.version;
                if is_newer != canary::is_planted(Bug::RollForwardTheOlder) {
                    *question = Question { version: listed.version, holders: BTreeSet::new() };
                }
                if listed.version == question.version {
                    question.holders.insert(member.drive);
                }
            }
        }
    }
    questions
}
