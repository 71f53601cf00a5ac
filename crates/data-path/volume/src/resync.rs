//! Bringing a stale leg back, or building one from nothing: it joins the new writes, gets what it missed, and is promoted.
//!
//! 1. Its node accepts the epoch; copies that are not there are created empty.
//! 2. Its drive notes durably that its copies may lack writes below newer ones, until it hears otherwise. The leg
//!    joins: every new write goes to it too, without being awaited. The older writes drain.
//! 3. Pages that either side has changed since the leg's mark, and those of which the leg has lost blocks, are
//!    copied, 64 KiB at a time, each under the blocks' lock, so that no write passes the copying. Then the page
//!    gets the source's version.
//! 4. The leg counts as in sync for writes and promises, the older writes drain, what its drive could not prove
//!    of it counts no more, and the promotion is sent. When it is made, reads may use the leg.
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

use spandrel_platform::{Instant, Platform};
use spandrel_replica::{GatheredCopy, NewCopy, PageState, ReplicaRequest, ReplicaResponse};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::geometry::SlabRange;
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{BLOCK_BYTES, DriveId, NodeId, PAGE_BLOCKS, SlabIndex, Version};

use crate::context::{AskError, OwnerContext};
use crate::membership::{LegId, LegState, Member, MembershipChange};
use crate::owner::{OwnerError, OwnerInner};
use crate::read::BlockPart;
use crate::write::Content;

/// Blocks that are copied under one lock: 64 KiB.
const CHUNK_BLOCKS: u32 = 16;

/// Pages of a leg that are begun at the same time. How many pieces of them are copied at once, the turns of repair say.
const PAGES_AT_ONCE: usize = 16;

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
    let stale: Vec<(LegId, NodeId)> = {
        let legs = owner.legs.borrow();
        let running = owner.resync.borrow();
        let ready = legs.iter().filter(|(id, leg)| {
            leg.state == LegState::Stale
                && !running.contains_key(id)
                && owner.context.is_reachable(leg.node)
                && owner.may_be_built(**id)
                && !owner.rests(**id, now)
        });
        ready.map(|(id, leg)| (*id, leg.node)).collect()
    };
    for (leg, node) in stale {
        let owner = Rc::clone(owner);
        let platform = owner.context.platform().clone();
        let progress =
            ResyncProgress { began: platform.now(), pages_done: 0, pages_total: 0, bytes_copied: 0 };
        owner.resync.borrow_mut().insert(leg, progress);
        platform.spawn(async move {
            let result = owner.resync_leg(leg, node).await;
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
    async fn resync_leg(&self, leg: LegId, node: NodeId) -> Result<(), Stopped> {
        let members = self.members_of(leg);
        self.prepare_copies(leg, node, &members).await?;
        let since = self.stale_since(leg);
        if !leg.is_building {
            // From here on it cannot be told by its versions what it lacks. If the cluster's state is lost, the drive must
            // know that. Copies that are being built count in no former state either.
            let (volume, drive, authority) = (self.volume, leg.drive, self.authority());
            let doubt = ReplicaRequest::Doubt { volume, drive, authority, proven: since };
            self.in_time(self.context.ask(node, doubt, None)).await?;
        }
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
        for step in pages.chunks(PAGES_AT_ONCE) {
            let copies = step.iter().map(|page| self.copy_page(leg, page));
            for copied in futures_util::future::join_all(copies).await {
                copied?;
            }
        }
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

    /// Whether the leg is not brought back yet, since its drive was slow and nobody needs it.
    fn rests(&self, leg: LegId, now: Instant) -> bool {
        self.context.slow_drives().rests(leg.drive, now) && self.has_two_beside(leg)
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
        node: NodeId,
        members: &[(SlabIndex, Member)],
    ) -> Result<(), Stopped> {
        let (fence, process) = (self.fence_of_stale(node), self.context.process(node));
        let (answer, _) = self.in_time(self.context.ask(node, fence, None)).await?;
        let ReplicaResponse::Gathered(present, _) = answer else { return Err(Stopped::FellBack) };
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
                    pages.push(PageToCopy { slab: *slab, page, target: *target, is_changed });
                }
            }
        }
        Ok(pages)
    }

    async fn source_pages(&self, slab: SlabIndex) -> Result<(Member, Vec<PageState>), Stopped> {
        let source = self.nearest(slab, |_| true).ok_or(Stopped::FellBack)?;
        match self.ask_pages(slab, &source).await {
            Ok(pages) => Ok((source, pages)),
            Err(error) => {
                self.note_failure(slab, &source, &error);
                Err(Stopped::FellBack)
            }
        }
    }

    async fn copy_page(&self, leg: LegId, page: &PageToCopy) -> Result<(), Stopped> {
        let first = page.page * PAGE_BLOCKS;
        for chunk in 0..PAGE_BLOCKS / CHUNK_BLOCKS {
            let piece =
                SlabRange { slab: page.slab, first: first + chunk * CHUNK_BLOCKS, count: CHUNK_BLOCKS };
            let copying = self.copy_chunk(leg, page, piece);
            let context = &self.context;
            context.repair_turns().in_turn(context.platform(), context.repair_share(), copying).await?;
        }
        let whole = SlabRange { slab: page.slab, first, count: PAGE_BLOCKS };
        let geometry = self.membership.borrow().geometry;
        let _lock = self.locks.exclusive(whole.in_volume(geometry)).await;
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
        self.update_progress(leg, |progress| progress.pages_done += 1);
        Ok(())
    }

    /// Copies blocks that no write can change meanwhile.
    async fn copy_chunk(&self, leg: LegId, page: &PageToCopy, piece: SlabRange) -> Result<(), Stopped> {
        let geometry = self.membership.borrow().geometry;
        let _lock = self.locks.exclusive(piece.in_volume(geometry)).await;
        self.promised().await?;
        let (parts, was_damaged) = self.read_and_heal(piece).await?;
        if was_damaged && leg.is_building {
            witness::reached(Rare::BuiltBesideDamage);
        }
        let target_states = self.ask_block_states(&page.target, piece).await?;
        self.check_joining(leg)?;
        let mut first = piece.first;
        for part in parts {
            let count = part.count();
            let offset = (first - piece.first) as usize;
            let already = &target_states[offset..offset + count as usize];
            let is_lost = matches!(part, BlockPart::Lost);
            if is_lost {
                if leg.is_building {
                    witness::reached(Rare::LostOnNewCopy);
                }
                self.note_lost_page(page.slab, page.page);
            }
            let is_kept = is_lost && !page.is_changed;
            if !is_kept && !is_already(&part, already) {
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
            BlockPart::Data { data, checksums } => Some(Content::Data { data, checksums }),
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
}

/// Whether the target's map says that it holds the part already.
fn is_already(part: &BlockPart, states: &[spandrel_replica::BlockState]) -> bool {
    use spandrel_replica::BlockState;
    match part {
        BlockPart::Hole(_) => states.iter().all(|state| *state == BlockState::Hole),
        BlockPart::Data { checksums, .. } => {
            states.iter().zip(checksums).all(|(state, checksum)| *state == BlockState::Data(*checksum))
        }
        BlockPart::Lost => states.iter().all(|state| *state == BlockState::Lost),
    }
}
