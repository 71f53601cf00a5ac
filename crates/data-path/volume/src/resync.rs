//! Bringing a stale leg back, or building one from nothing: it joins the new writes, gets what it missed, and is promoted.
//!
//! 1. Its node accepts the epoch; copies that are not there are created empty.
//! 2. Its drive notes durably that its copies may lack writes below newer ones, until it hears otherwise. The leg
//!    joins: every new write goes to it too, without being awaited. The older writes drain.
//! 3. Of pages that either side has changed since the leg's mark, and of those of which the leg has lost blocks, what
//!    differs is copied, piece by piece, each under the blocks' lock, so that no write passes the copying. Then the page
//!    gets the source's version.
//! 4. The leg counts as in sync for writes and promises, the older writes drain, what its drive could not prove
//!    of it counts no more, and the promotion is sent. When it is made, reads may use the leg.
//!
//! Which blocks of a page are to be copied: those that this owner knows to be missed (see `missed`), and those for which the maps
//! of both sides have different checksums, as a drive may have lost what it had confirmed. What checksums call the
//! same is the same where it is known what was written; else both sides sum the contents up with a hash that has
//! no chance to be wrong. The question is asked without a lock: from when the leg joined, whatever changes a block
//! changes it on both sides, or the leg falls back.
//!
//! What is copied is no write of the volume and has no version: a page of the leg has the source's
//! version or its former one. A block that the source has lost is lost on the leg too, rather than old; but where nobody
//! has changed the page, the leg has the newest content, and keeps it: when it is promoted, others are healed from it.
//!
//! A leg that misses a message while it joins falls back and begins anew. So does one whose process is not the
//! one any more that answered the fence of the first step.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use futures_util::{TryStreamExt, stream};
use spandrel_platform::{Instant, Platform};
use spandrel_replica::{
    BlockState, ContentDigest, GatheredCopy, Heeded, NewCopy, PageState, ReplicaRequest, ReplicaResponse,
};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::geometry::SlabRange;
use spandrel_shared::knob::{self, Knob};
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{BLOCK_BYTES, DriveId, PAGE_BLOCKS, ShardId, SlabIndex, Version};

use crate::context::{AskError, OwnerContext};
use crate::membership::{Leg, LegId, LegState, Member, MembershipChange};
use crate::missed::{BlockSet, MissedInPage};
use crate::owner::{OwnerError, OwnerInner};
use crate::read::{BlockPart, ReadFor};
use crate::write::Content;

/// Pages of a leg that are under way at the same time, each with a turn at a time.
const PAGES_AT_ONCE: usize = 256;

/// Copies that are said to be whole at the same time.
const COPIES_AT_ONCE: usize = 32;

/// How long a resync waits after a promotion that was refused or failed.
const PROMOTION_RETRY: Duration = Duration::from_millis(20);

/// How long a leg that fell back waits before it joins again.
const REJOIN_DELAY: Duration = Duration::from_millis(200);

/// How far a resync is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResyncProgress {
    /// When it began.
    pub began: Instant,
    /// Pages that are the same on both sides now.
    pub pages_done: u64,
    /// Pages that differed, or may have, when the resync began.
    pub pages_total: u64,
    /// Bytes that were sent.
    pub bytes_copied: u64,
}

/// Starts a resync for every stale leg whose node answers.
pub(crate) fn start_where_needed<C: OwnerContext>(owner: &Rc<OwnerInner<C>>) {
    let now = owner.context.platform().now();
    let stale: Vec<(LegId, ShardId)> = {
        let legs = owner.legs.borrow();
        let running = owner.resync.borrow();
        let ready = legs.iter().filter(|(id, leg)| {
            leg.state == LegState::Stale
                && !running.contains_key(id)
                && owner.context.is_reachable(leg.shard)
                && owner.may_be_built(**id)
                && !owner.rests(**id, now)
        });
        ready.map(|(id, leg)| (*id, leg.shard)).collect()
    };
    for (leg, shard) in stale {
        let owner = Rc::clone(owner);
        let platform = owner.context.platform().clone();
        let progress =
            ResyncProgress { began: platform.now(), pages_done: 0, pages_total: 0, bytes_copied: 0 };
        owner.resync.borrow_mut().insert(leg, progress);
        platform.spawn(async move {
            let result = owner.resync_leg(leg, shard).await;
            if let Err(stopped) = result {
                tracing::debug!(volume = %owner.volume, %leg, "resync stopped: {stopped:?}");
                if matches!(stopped, Stopped::FellBack) {
                    witness::reached(Rare::JoiningFellBack);
                }
                if let Stopped::Leg(error) = &stopped {
                    owner.note_failure_of(leg, error);
                }
                if owner.leg_state(leg) == LegState::Joining {
                    owner.set_leg_state(leg, LegState::Stale);
                }
                owner.context.platform().sleep(REJOIN_DELAY).await;
            }
            owner.resync.borrow_mut().remove(&leg);
            owner.changed.notify_all();
        });
    }
}

/// Why a resync did not end.
#[derive(Debug)]
enum Stopped {
    /// The leg, or its node, failed.
    Leg(AskError),
    /// The leg fell back.
    FellBack,
    /// The promotion was not made.
    NotPromoted,
    /// The ownership has ended.
    Owner,
}

impl From<AskError> for Stopped {
    fn from(error: AskError) -> Self {
        Stopped::Leg(error)
    }
}

impl From<OwnerError> for Stopped {
    fn from(_: OwnerError) -> Self {
        Stopped::Owner
    }
}

impl<C: OwnerContext> OwnerInner<C> {
    async fn resync_leg(&self, leg: LegId, shard: ShardId) -> Result<(), Stopped> {
        let members = self.members_of(leg);
        self.prepare_copies(leg, shard, &members).await?;
        let since = self.stale_since(leg);
        if !leg.is_building {
            // From here on it cannot be told by its versions what it lacks. If the cluster's state is lost, the drive must
            // know that. Copies that are being built count in no former state either.
            let (volume, drive, authority) = (self.volume, leg.drive, self.authority());
            let doubt = ReplicaRequest::Doubt { volume, drive, authority, proven: since };
            self.in_time(self.context.ask(shard, doubt, None)).await?;
        }
        self.missed.follow(leg);
        self.set_leg_state(leg, LegState::Joining);
        if !canary::is_planted(Bug::CopyUndrained) {
            self.drain(leg, LegState::Joining).await?;
        }
        let mut pages = self.pages_to_copy(&members, since).await?;
        if leg.is_building && canary::is_planted(Bug::CountUnbuilt) {
            pages.clear();
        }
        self.update_progress(leg, |progress| progress.pages_total = pages.len() as u64);
        let skipped = usize::from(canary::is_planted(Bug::PromoteBeforeLastPage));
        let pages = &pages[..pages.len().saturating_sub(skipped)];
        let copying = stream::iter(pages.iter().map(|page| Ok(self.copy_page(leg, page))));
        copying.try_buffer_unordered(PAGES_AT_ONCE).try_collect::<()>().await?;
        self.promote(leg).await
    }

    /// Whether the leg can be promoted when it is complete: copies that were being built join those that their drive
    /// holds already, which must be in sync.
    fn may_be_built(&self, leg: LegId) -> bool {
        let beside = self.legs.borrow().get(&LegId::standing(leg.drive)).map(|leg| leg.state);
        !leg.is_building || beside.is_none_or(|state| state == LegState::InSync)
    }

    /// The version up to which the leg is complete.
    fn stale_since(&self, leg: LegId) -> Version {
        let since = self.membership.borrow().stale.get(&leg.drive).copied();
        since.filter(|_| !leg.is_building).unwrap_or(Version::ZERO)
    }

    /// Whether the leg is not brought back yet, since its drive was slow and nobody needs it. What is being built there has
    /// no other place, and is built.
    fn rests(&self, leg: LegId, now: Instant) -> bool {
        let is_in_sync = |_, other: &Leg| other.state == LegState::InSync;
        !leg.is_building
            && self.context.slow_drives().rests(leg.drive, now)
            && self.has_two_beside(leg, is_in_sync)
    }

    fn members_of(&self, leg: LegId) -> Vec<(SlabIndex, Member)> {
        let membership = self.membership.borrow();
        let slabs = (0..).map(SlabIndex).zip(&membership.slabs);
        let members = slabs.flat_map(|(slab, members)| members.iter().map(move |member| (slab, *member)));
        members.filter(|(_, member)| member.leg() == leg).collect()
    }

    /// The node accepts the epoch and has every copy of the leg, if only an empty one. What the copies
    /// say of themselves can lower the version since which they are stale, never raise it; and that is
    /// in the cluster's state before anything else is done with them.
    async fn prepare_copies(
        &self,
        leg: LegId,
        shard: ShardId,
        members: &[(SlabIndex, Member)],
    ) -> Result<(), Stopped> {
        let own = Heeded::Copies(members.iter().map(|(_, member)| member.copy).collect());
        let (fence, process) = (self.fence_of_stale(shard, own), self.context.process(shard));
        let (answer, _) = self.in_time(self.context.ask(shard, fence, None)).await?;
        let ReplicaResponse::Gathered(present, working) = answer else { return Err(Stopped::FellBack) };
        if !working.contains(&leg.drive) && !self.context.answers_for(shard, leg.drive) {
            return Err(Stopped::FellBack);
        }
        self.accepted_by.borrow_mut().extend(process.map(|process| (leg, process)));
        let of_itself = members.iter().filter_map(|(slab, member)| {
            let is_it = |copy: &&GatheredCopy| copy.slab == *slab && copy.copy == member.copy;
            present.iter().find(is_it).map_or(Some(Version::ZERO), |copy| copy.proven)
        });
        if !leg.is_building {
            self.lower_mark(leg.drive, of_itself.min()).await?;
        }
        let copies = self.membership.borrow().copies;
        for (slab, member) in members {
            if present.iter().any(|copy| copy.slab == *slab && copy.copy == member.copy) {
                continue;
            }
            let copy = self.membership.borrow().address(*slab, member);
            let new = NewCopy { copy, drive: member.drive, copies, part: member.part, epoch: self.epoch };
            self.in_time(self.ask_copy(member, ReplicaRequest::AddCopy(new), None)).await?;
        }
        Ok(())
    }

    /// Sees to it that the leg counts as stale since `proven` at the latest.
    async fn lower_mark(&self, drive: DriveId, proven: Option<Version>) -> Result<(), Stopped> {
        let since = self.membership.borrow().stale.get(&drive).copied().unwrap_or(Version::ZERO);
        match proven {
            Some(proven) if proven < since => {
                tracing::warn!(volume = %self.volume, %drive, %since, %proven, "copies hold less than was known");
                let lowered = self.mark_since(BTreeMap::from([(drive, proven)])).await;
                if lowered { Ok(()) } else { Err(Stopped::FellBack) }
            }
            _ => Ok(()),
        }
    }

    /// Completes when the writes that began before now have ended, if the leg is still in `state`.
    async fn drain(&self, leg: LegId, state: LegState) -> Result<(), Stopped> {
        let newest = self.versions.borrow().newest();
        loop {
            let changed = self.changed.notified();
            if self.is_deposed() {
                return Err(Stopped::Owner);
            }
            if self.leg_state(leg) != state {
                return Err(Stopped::FellBack);
            }
            let unawaited = self.unawaited.borrow().get(&leg).copied().unwrap_or(0);
            let drained = !self.versions.borrow().is_under_way_up_to(newest);
            if drained && (state == LegState::Joining || unawaited == 0) {
                return Ok(());
            }
            // The end of a write is not signalled one by one.
            let look_again = self.context.platform().sleep(Duration::from_millis(5));
            futures_util::future::select(std::pin::pin!(changed), std::pin::pin!(look_again)).await;
        }
    }

    /// The pages that either side has changed since the leg was complete, those in which the two do not even hold
    /// the same version, and those of which the leg has lost blocks: it is to be in sync with all that others have.
    async fn pages_to_copy(
        &self,
        members: &[(SlabIndex, Member)],
        since: Version,
    ) -> Result<Vec<PageToCopy>, Stopped> {
        let mut pages = Vec::new();
        for (slab, target) in members {
            let (_, source_pages) = self.source_pages(*slab).await?;
            let target_pages = self.ask_pages(*slab, target).await?;
            for (page, (source, own)) in (0..).zip(source_pages.iter().zip(&target_pages)) {
                // A copy that has changed since by itself has another version than the source, or the source has
                // changed as well.
                let differ = own.version != source.version;
                let is_changed =
                    source.version > since || (differ && !canary::is_planted(Bug::ResyncBySourceAlone));
                if is_changed || own.lost_blocks > 0 {
                    let is_explained = source.version > since;
                    pages.push(PageToCopy { slab: *slab, page, target: *target, is_changed, is_explained });
                }
            }
        }
        Ok(pages)
    }

    async fn source_pages(&self, slab: SlabIndex) -> Result<(Member, Vec<PageState>), Stopped> {
        let source = self.source_of(slab)?;
        let pages = self.ask_pages(slab, &source).await;
        Ok((source, self.or_fall_back(&source, slab, pages)?))
    }

    fn source_of(&self, slab: SlabIndex) -> Result<Member, Stopped> {
        self.nearest(slab, |_| true).ok_or(Stopped::FellBack)
    }

    /// The answer of a copy in sync, or its failure, which is not the leg's.
    fn or_fall_back<T>(
        &self,
        source: &Member,
        slab: SlabIndex,
        answer: Result<T, AskError>,
    ) -> Result<T, Stopped> {
        answer.map_err(|error| {
            self.note_failure(slab, source, &error);
            Stopped::FellBack
        })
    }

    async fn copy_page(&self, leg: LegId, page: &PageToCopy) -> Result<(), Stopped> {
        let taken = self.missed.take(leg, page.slab, page.page);
        let blocks = self.blocks_to_copy(page, &taken.missed).await?;
        self.piece_by_piece(page, &blocks, async |piece| self.copy_piece(leg, page, piece).await).await?;
        let geometry = self.membership.borrow().geometry;
        let _lock = self.locks.exclusive(page.range().in_volume(geometry)).await;
        let (_, source_pages) = self.source_pages(page.slab).await?;
        self.check_joining(leg)?;
        let request = ReplicaRequest::SetPageVersion {
            copy: self.membership.borrow().address(page.slab, &page.target),
            authority: self.authority(),
            page: page.page,
            version: source_pages[page.page as usize].version,
            whole: true,
        };
        self.in_time(self.ask_copy(&page.target, request, None)).await?;
        taken.made_whole();
        self.update_progress(leg, |progress| progress.pages_done += 1);
        Ok(())
    }

    /// The blocks of a page that the leg lacks, or may lack.
    async fn blocks_to_copy(&self, page: &PageToCopy, missed: &MissedInPage) -> Result<BlockSet, Stopped> {
        let source = self.source_of(page.slab)?;
        let on_source =
            self.or_fall_back(&source, page.slab, self.ask_block_states(&source, page.range()).await)?;
        let on_target = self.ask_block_states(&page.target, page.range()).await?;
        let mut blocks = missed.blocks.clone();
        let mut alike = BlockSet::default();
        for (block, states) in (0..).zip(on_source.iter().zip(&on_target)) {
            match states {
                (BlockState::Hole, BlockState::Hole) => {}
                (BlockState::Data(one), BlockState::Data(other)) if looks_equal(*one, *other) => {
                    alike.insert(block);
                }
                _ => blocks.insert(block),
            }
        }
        let is_certain = !page.is_changed || missed.is_known && page.is_explained;
        if is_certain || canary::is_planted(Bug::TrustEqualChecksums) {
            return Ok(blocks);
        }
        let compare = async |piece| {
            let differing = self.differing_content(&source, page, piece).await?;
            differing.into_iter().for_each(|block| blocks.insert(block % PAGE_BLOCKS));
            Ok(())
        };
        self.piece_by_piece(page, &alike, compare).await?;
        Ok(blocks)
    }

    /// Handles blocks of a page piece by piece, each in its turn.
    async fn piece_by_piece(
        &self,
        page: &PageToCopy,
        blocks: &BlockSet,
        mut work: impl AsyncFnMut(SlabRange) -> Result<(), Stopped>,
    ) -> Result<(), Stopped> {
        let (context, turns) = (&self.context, self.context.repair_turns());
        for (first, count) in blocks.stretches() {
            let mut done = 0;
            while done < count {
                let piece_work = async |length: u32| {
                    work(page.piece(first + done, length)).await?;
                    Ok::<u32, Stopped>(length)
                };
                let (platform, share) = (context.platform(), context.repair_share());
                done += turns.in_turn(platform, share, count - done, piece_work).await?;
            }
        }
        Ok(())
    }

    /// The blocks of a piece whose contents differ, or cannot be read on one side.
    async fn differing_content(
        &self,
        source: &Member,
        page: &PageToCopy,
        piece: SlabRange,
    ) -> Result<Vec<u32>, Stopped> {
        witness::reached(Rare::ContentsCompared);
        let geometry = self.membership.borrow().geometry;
        let _lock = self.locks.shared(piece.in_volume(geometry)).await;
        let on_source = self.or_fall_back(source, page.slab, self.ask_digests(source, piece).await)?;
        let on_target = self.ask_digests(&page.target, piece).await?;
        let both = (piece.first..).zip(on_source.into_iter().zip(on_target));
        let differs = both.filter(|(_, (one, other))| one.is_none() || one != other);
        Ok(differs.map(|(block, _)| block).collect())
    }

    async fn ask_digests(
        &self,
        member: &Member,
        piece: SlabRange,
    ) -> Result<Vec<Option<ContentDigest>>, AskError> {
        let copy = self.membership.borrow().address(piece.slab, member);
        let (authority, first, count) = (self.authority(), piece.first, piece.count);
        let request = ReplicaRequest::Digests { copy, authority, first, count };
        match self.in_time(self.ask_copy(member, request, None)).await? {
            (ReplicaResponse::Digests(digests), _) if digests.len() == count as usize => Ok(digests),
            _ => Err(AskError::Unreachable("a question was answered with something else".to_owned())),
        }
    }

    /// Copies blocks that no write can change meanwhile.
    async fn copy_piece(&self, leg: LegId, page: &PageToCopy, piece: SlabRange) -> Result<(), Stopped> {
        let geometry = self.membership.borrow().geometry;
        let _lock = self.locks.exclusive(piece.in_volume(geometry)).await;
        self.promised().await?;
        let (parts, was_damaged) = self.read_and_heal(piece, ReadFor::Repair).await?;
        if was_damaged && leg.is_building {
            witness::reached(Rare::BuiltBesideDamage);
        }
        self.check_joining(leg)?;
        let mut first = piece.first;
        for part in parts {
            let count = part.count();
            let is_lost = matches!(part, BlockPart::Lost);
            if is_lost {
                if leg.is_building {
                    witness::reached(Rare::LostOnNewCopy);
                }
                self.note_lost_page(page.slab, page.page);
            }
            if !is_lost || page.is_changed {
                self.send_part(leg, page, SlabRange { slab: piece.slab, first, count }, part).await?;
            }
            first += count;
        }
        Ok(())
    }

    async fn send_part(
        &self,
        leg: LegId,
        page: &PageToCopy,
        piece: SlabRange,
        part: BlockPart,
    ) -> Result<(), Stopped> {
        let content = match part {
            BlockPart::Hole(_) if canary::is_planted(Bug::ForgetTrims) => return Ok(()),
            BlockPart::Hole(_) => Some(Content::Hole),
            BlockPart::Data { data, checksums } => Some(Content::Data { data, checksums: checksums.into() }),
            BlockPart::Lost if canary::is_planted(Bug::ZeroLost) => Some(Content::Hole),
            // The leg shall not show what it held before as if it were the newest.
            BlockPart::Lost => None,
        };
        let (request, payload) = match content {
            // It is no write of the volume: those that are under way have versions of their own, and
            // the page gets the source's when it is whole.
            Some(content) => self.write_request(piece, &content, Version::ZERO, &page.target),
            None => {
                let copy = self.membership.borrow().address(piece.slab, &page.target);
                let (authority, block) = (self.authority(), piece.first);
                (ReplicaRequest::Lose { copy, authority, block }, None)
            }
        };
        self.in_time(self.ask_copy(&page.target, request, payload)).await?;
        self.statistics.borrow_mut().blocks_resynced += u64::from(piece.count);
        self.update_progress(leg, |progress| {
            progress.bytes_copied += u64::from(piece.count) * BLOCK_BYTES as u64;
        });
        Ok(())
    }

    fn check_joining(&self, leg: LegId) -> Result<(), Stopped> {
        if self.leg_state(leg) == LegState::Joining { Ok(()) } else { Err(Stopped::FellBack) }
    }

    async fn promote(&self, leg: LegId) -> Result<(), Stopped> {
        self.check_joining(leg)?;
        self.suspects.borrow_mut().remove(&leg);
        self.set_leg_state(leg, LegState::Promoting);
        if !canary::is_planted(Bug::PromoteUndrained) {
            self.drain(leg, LegState::Promoting).await?;
        }
        let members = self.members_of(leg);
        for some in members.chunks(COPIES_AT_ONCE) {
            let proofs = some.iter().map(|(slab, member)| {
                let copy = self.membership.borrow().address(*slab, member);
                let request = ReplicaRequest::Prove { copy, authority: self.authority() };
                self.in_time(self.ask_copy(member, request, None))
            });
            let proven: Result<Vec<_>, _> =
                futures_util::future::join_all(proofs).await.into_iter().collect();
            if let Err(error) = proven {
                self.set_leg_state(leg, LegState::Stale);
                return Err(error.into());
            }
        }
        while !self.change(MembershipChange::Promote(leg)).await {
            // Not made, for certain.
            if self.is_deposed() {
                return Err(Stopped::Owner);
            }
            if !self.may_promote(leg) {
                self.suspects.borrow_mut().remove(&leg);
                self.set_leg_state(leg, LegState::Stale);
                return Err(Stopped::NotPromoted);
            }
            self.context.platform().sleep(PROMOTION_RETRY).await;
        }
        Ok(())
    }

    /// Whether the leg is complete: only as long as nothing suspects it, and the guardian has not marked it
    /// stale.
    pub(crate) fn may_promote(&self, leg: LegId) -> bool {
        self.leg_state(leg) == LegState::Promoting
            && !self.suspects.borrow().contains_key(&leg)
            && self.may_be_built(leg)
    }

    fn update_progress(&self, leg: LegId, update: impl FnOnce(&mut ResyncProgress)) {
        if let Some(progress) = self.resync.borrow_mut().get_mut(&leg) {
            update(progress);
        }
    }
}

/// A page that differs, or may.
struct PageToCopy {
    slab: SlabIndex,
    page: u32,
    target: Member,
    /// Whether either side has changed it since the leg was complete. Else the leg only lacks what it has lost, and
    /// has what the source may have lost.
    is_changed: bool,
    /// Whether it was written since: else the two differ for something that no owner has seen.
    is_explained: bool,
}

impl PageToCopy {
    fn range(&self) -> SlabRange {
        self.piece(0, PAGE_BLOCKS)
    }

    /// Some of its blocks, the first one counted within the page.
    fn piece(&self, first: u32, count: u32) -> SlabRange {
        SlabRange { slab: self.slab, first: self.page * PAGE_BLOCKS + first, count }
    }
}

/// Whether two blocks may hold the same, by their checksums.
fn looks_equal(one: u32, other: u32) -> bool {
    let unequal_bits = one ^ other;
    let compared = knob::value(Knob::ComparedChecksumBits, 32);
    u64::from(unequal_bits) & ((1 << compared) - 1) == 0
}
