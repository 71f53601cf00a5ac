//! Checking a volume: every block of every in-sync copy is read and checked, the copies are
//! compared, and what is damaged is healed.
//!
//! Copies are compared by their checksums, and by the versions of their pages: one whose page has an older version lacks
//! a write that it had confirmed, and is marked stale, as a take-over does: once all slabs were compared, as two may each lack
//! what the other one has. Where blocks differ under the same version nobody knows which one is right; that is told.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use spandrel_platform::{Platform, before};
use spandrel_replica::{PageState, PartDescription, ReplicaRequest, ReplicaResponse};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::geometry::SlabRange;
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{DriveId, PAGE_BLOCKS, SlabIndex, Version};

use crate::context::{AskError, OwnerContext};
use crate::membership::{LegState, Member};
use crate::owner::{Owner, OwnerError, OwnerInner};
use crate::read::BlockPart;
use crate::takeover::SLABS_AT_ONCE;

/// How long the check of a piece may take. A scrub leaves the rest of the slab unchecked then.
pub(crate) const PIECE_TIME_MAX: Duration = Duration::from_secs(10);

/// Blocks that are checked under one lock: 1 MiB.
pub(crate) const PIECE_BLOCKS: u32 = 256;

/// Blocks that are healed at the same time.
const HEALS_AT_ONCE: usize = 16;

/// What a scrub found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubReport {
    /// Blocks that were checked, counted on each copy; holes included.
    pub blocks_checked: u64,
    /// Blocks that were damaged, by drive.
    pub damaged: BTreeMap<DriveId, u64>,
    /// Of these, blocks that were healed.
    pub blocks_healed: u64,
    /// Blocks that are whole on every copy but not the same on all.
    pub blocks_different: u64,
    /// Blocks that are damaged on every copy that was checked. One that is not in sync may still hold them.
    pub blocks_lost: u64,
    /// Pages of which copies hold different versions: some lack writes that they had confirmed.
    pub pages_lacking: u64,
    /// Copies that are not in sync or could not be asked, counted by pieces of 1 MiB.
    pub pieces_unchecked: u64,
    /// Nothing could be checked any more, since the volume waits for something: what was left counts
    /// as unchecked.
    pub gave_up: bool,
}

impl ScrubReport {
    /// Adds what another part of the volume has shown.
    pub fn add(&mut self, other: &ScrubReport) {
        self.blocks_checked += other.blocks_checked;
        self.blocks_healed += other.blocks_healed;
        self.blocks_different += other.blocks_different;
        self.blocks_lost += other.blocks_lost;
        self.pages_lacking += other.pages_lacking;
        self.pieces_unchecked += other.pieces_unchecked;
        self.gave_up |= other.gave_up;
        for (drive, blocks) in &other.damaged {
            *self.damaged.entry(*drive).or_insert(0) += blocks;
        }
    }

    /// Blocks that were damaged, counted on each copy.
    pub fn blocks_damaged(&self) -> u64 {
        self.damaged.values().sum()
    }

    /// Whether every copy was checked.
    pub fn is_whole(&self) -> bool {
        self.pieces_unchecked == 0 && !self.gave_up
    }
}

/// A block that one copy has not whole, while another one has.
struct DamagedCopy {
    block: u32,
    member: Member,
    token: u64,
}

/// What a copy holds of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Checked {
    Hole,
    Data(u32),
    Damaged(u64),
}

/// Compares what the copies hold of a block; those that can be healed are added to `damaged`.
fn judge_block(
    block: u32,
    states: Vec<(Member, Checked)>,
    report: &mut ScrubReport,
    damaged: &mut Vec<DamagedCopy>,
) {
    let whole = |state: &Checked| !matches!(state, Checked::Damaged(_));
    let mut good = states.iter().filter(|(_, state)| whole(state));
    let first = good.next().map(|(_, first)| *first);
    if good.any(|(_, state)| Some(*state) != first) && !canary::is_planted(Bug::CompareNothing) {
        report.blocks_different += 1;
    }
    report.blocks_lost += u64::from(first.is_none() && !states.is_empty());
    for (member, state) in &states {
        let Checked::Damaged(token) = state else { continue };
        *report.damaged.entry(member.drive).or_insert(0) += 1;
        if first.is_some() {
            damaged.push(DamagedCopy { block, member: *member, token: *token });
        }
    }
}

impl<C: OwnerContext> Owner<C> {
    /// Slabs of the volume.
    pub fn slab_count(&self) -> u32 {
        self.inner.membership.borrow().slabs.len() as u32
    }

    /// Checks one slab on all its in-sync copies. Damaged blocks are healed from another copy if
    /// `heal`; application I/O on the blocks waits while they are checked, 1 MiB at a time.
    pub async fn scrub_slab(&self, slab: SlabIndex, heal: bool) -> Result<ScrubReport, OwnerError> {
        self.scrub_pieces(slab, heal, None).await
    }

    /// The same at leisure, with healing: after each MiB there is a pause, at least as long as that has taken. So the
    /// busier the drives are, the more time is left to applications.
    pub async fn scrub_slab_slowly(
        &self,
        slab: SlabIndex,
        pause_min: Duration,
    ) -> Result<ScrubReport, OwnerError> {
        self.scrub_pieces(slab, true, Some(pause_min)).await
    }

    async fn scrub_pieces(
        &self,
        slab: SlabIndex,
        heal: bool,
        pause_min: Option<Duration>,
    ) -> Result<ScrubReport, OwnerError> {
        let inner = &self.inner;
        let platform = inner.context.platform();
        let geometry = inner.membership.borrow().geometry;
        let mut report = ScrubReport::default();
        for first in (0..geometry.slab_blocks()).step_by(PIECE_BLOCKS as usize) {
            let began = platform.now();
            let check = inner.scrub_piece(SlabRange { slab, first, count: PIECE_BLOCKS }, heal);
            match before(platform, began + PIECE_TIME_MAX, check).await {
                Some(found) => report.add(&found?),
                None => {
                    report.add(&inner.unchecked(slab, geometry.slab_blocks() - first));
                    return Ok(report);
                }
            }
            if let Some(pause_min) = pause_min {
                platform.sleep(pause_min.max(platform.now().since(began))).await;
            }
        }
        match before(platform, platform.now() + PIECE_TIME_MAX, inner.compare_pages(slab, heal)).await {
            Some(compared) => match compared? {
                Some(pages_lacking) => report.pages_lacking = pages_lacking,
                None => report.pieces_unchecked += 1,
            },
            None => report.add(&inner.unchecked(slab, 1)),
        }
        Ok(report)
    }

    /// Whether all copies of a slab are in sync, and none is being built.
    pub fn is_slab_whole(&self, slab: SlabIndex) -> bool {
        let members = self.inner.members(slab);
        members.iter().all(|(member, state)| !member.is_building && *state == LegState::InSync)
    }

    /// What there is to say of a slab that is left unchecked, since a slab before it could not be
    /// checked to its end.
    pub fn slab_unchecked(&self, slab: SlabIndex) -> ScrubReport {
        let blocks = self.inner.membership.borrow().geometry.slab_blocks();
        self.inner.unchecked(slab, blocks)
    }
}

impl<C: OwnerContext> OwnerInner<C> {
    fn unchecked(&self, slab: SlabIndex, blocks: u32) -> ScrubReport {
        let pieces = u64::from(blocks.div_ceil(PIECE_BLOCKS));
        let members = self.members(slab).into_iter().filter(|(member, _)| !member.is_building).count();
        let pieces_unchecked = pieces * members as u64;
        ScrubReport { pieces_unchecked, gave_up: true, ..ScrubReport::default() }
    }

    /// Checks some blocks on all in-sync copies, while application I/O on them waits.
    pub(crate) async fn scrub_piece(&self, piece: SlabRange, heal: bool) -> Result<ScrubReport, OwnerError> {
        self.serving().await?;
        let geometry = self.membership.borrow().geometry;
        let lock = self.locks.shared(piece.in_volume(geometry)).await;
        self.promised().await?;
        let (mut found, damaged) = self.check_piece(piece).await;
        // No write shall come between the good content's reading and the heal.
        let _lock = (!canary::is_planted(Bug::HealOverNewer)).then_some(lock);
        if heal {
            found.blocks_healed = self.heal_all(piece.slab, damaged).await?;
        }
        Ok(found)
    }

    /// What the in-sync copies hold of blocks that the caller holds, and what of that can be healed.
    async fn check_piece(&self, piece: SlabRange) -> (ScrubReport, Vec<DamagedCopy>) {
        let mut report = ScrubReport::default();
        let (in_sync, others): (Vec<_>, Vec<_>) = self
            .members(piece.slab)
            .into_iter()
            .filter(|(member, _)| !member.is_building)
            .partition(|(_, state)| *state == LegState::InSync);
        report.pieces_unchecked += others.len() as u64;
        let members: Vec<Member> = in_sync.into_iter().map(|(member, _)| member).collect();
        let checks = members.iter().map(|member| self.ask_check(member, piece));
        let mut copies: Vec<(Member, Vec<Checked>)> = Vec::with_capacity(members.len());
        for (member, checked) in members.iter().zip(futures_util::future::join_all(checks).await) {
            match checked {
                Ok(checked) => copies.push((*member, checked)),
                Err(error) => {
                    self.note_failure(piece.slab, member, &error);
                    report.pieces_unchecked += 1;
                }
            }
        }
        report.blocks_checked += copies.len() as u64 * u64::from(piece.count);
        let mut damaged = Vec::new();
        for index in 0..piece.count {
            let states = copies.iter().map(|(member, checked)| (*member, checked[index as usize]));
            judge_block(piece.first + index, states.collect(), &mut report, &mut damaged);
        }
        (report, damaged)
    }

    /// Heals blocks, several at a time: a copy that has lost a part of its map has many. Returns how many
    /// it healed.
    async fn heal_all(&self, slab: SlabIndex, damaged: Vec<DamagedCopy>) -> Result<u64, OwnerError> {
        let heals = damaged.into_iter().map(|damaged| self.heal_from_other(slab, damaged));
        let healed = stream::iter(heals).buffer_unordered(HEALS_AT_ONCE);
        healed.try_fold(0, async |count, is_healed| Ok(count + u64::from(is_healed))).await
    }

    /// How many pages of a slab some in-sync copy holds at an older version than another one; none if that cannot be
    /// told. If `heal`, copies that lack writes so are marked stale, if others remain, and brought up to date from these.
    async fn compare_pages(&self, slab: SlabIndex, heal: bool) -> Result<Option<u64>, OwnerError> {
        if canary::is_planted(Bug::CompareNothing) {
            return Ok(Some(0));
        }
        let Some((pages_lacking, lacking)) = self.lacking_in(slab).await? else { return Ok(None) };
        for drive in &lacking {
            witness::reached(Rare::CopyFoundLacking);
            tracing::error!(volume = %self.volume, %slab, %drive, "a copy lacks writes that it had confirmed");
        }
        if heal && !lacking.is_empty() {
            self.mark_lacking(lacking);
        }
        Ok(Some(pages_lacking))
    }

    /// How many pages of a slab some in-sync copy holds at an older version than another one, and on which drives; none if
    /// that cannot be told.
    async fn lacking_in(&self, slab: SlabIndex) -> Result<Option<(u64, BTreeSet<DriveId>)>, OwnerError> {
        let members = self.in_sync_members(slab);
        let Some(pages) = self.pages_of_all(slab, &members).await else { return Ok(None) };
        // Writes that are under way have come to one copy and not to another one yet: those pages are looked at again,
        // without them.
        let mut pages_lacking = 0;
        let mut lacking = BTreeSet::new();
        for page in pages_that_differ(&pages) {
            self.serving().await?;
            let whole = SlabRange { slab, first: page * PAGE_BLOCKS, count: PAGE_BLOCKS };
            let geometry = self.membership.borrow().geometry;
            let _lock = self.locks.shared(whole.in_volume(geometry)).await;
            self.promised().await?;
            let members = self.in_sync_members(slab);
            let Some(pages) = self.pages_of_all(slab, &members).await else { return Ok(None) };
            let version = |pages: &Vec<PageState>| pages[page as usize].version;
            let newest = pages.iter().map(version).max().unwrap_or(Version::ZERO);
            let lack = members.iter().zip(&pages).filter(|(_, pages)| version(pages) < newest);
            let mut lack = lack.map(|(member, _)| member.drive).peekable();
            pages_lacking += u64::from(lack.peek().is_some());
            lacking.extend(lack);
        }
        Ok(Some((pages_lacking, lacking)))
    }

    /// Marks legs stale that lack writes, if each slab has others in sync. Whoever scrubs may leave at any time, and the
    /// outcome of the mark must be awaited: so it goes on by itself.
    fn mark_lacking(&self, lacking: BTreeSet<DriveId>) {
        let may_mark = |owner: &Rc<Self>| owner.membership.borrow().may_mark(&lacking);
        let Some(owner) = self.own_handle().filter(may_mark) else { return };
        // One comparison finds all of them.
        if self.is_comparing.replace(true) {
            return;
        }
        self.context.platform().spawn(async move {
            owner.mark_all_lacking().await;
            owner.is_comparing.set(false);
        });
    }

    async fn mark_all_lacking(&self) {
        // A mark is of all copies on a drive, which are then made like those of others: none of these may lack anything that
        // only it has, wherever in the volume that is.
        let Ok(Some(lacking)) = self.lacking_anywhere().await else { return };
        if lacking.is_empty() || !self.membership.borrow().may_mark(&lacking) {
            return;
        }
        self.statistics.borrow_mut().legs_found_lacking += lacking.len() as u64;
        self.mark_since(lacking.into_iter().map(|drive| (drive, Version::ZERO)).collect()).await;
    }

    /// The drives that lack writes of any slab; none if that cannot be told.
    async fn lacking_anywhere(&self) -> Result<Option<BTreeSet<DriveId>>, OwnerError> {
        let slabs = self.membership.borrow().slabs.len() as u32;
        let found = (0..slabs).map(|slab| self.lacking_in(SlabIndex(slab)));
        let mut found = stream::iter(found).buffer_unordered(SLABS_AT_ONCE);
        let mut lacking = BTreeSet::new();
        while let Some(found) = found.next().await {
            let Some((_, drives)) = found? else { return Ok(None) };
            lacking.extend(drives);
        }
        Ok(Some(lacking))
    }

    /// The pages of all these copies of a slab; none if one did not answer.
    async fn pages_of_all(&self, slab: SlabIndex, members: &[Member]) -> Option<Vec<Vec<PageState>>> {
        let asked = join_all(members.iter().map(|member| self.ask_pages(slab, member))).await;
        let mut pages = Vec::with_capacity(members.len());
        for (member, answer) in members.iter().zip(asked) {
            match answer {
                Ok(own) => pages.push(own),
                Err(error) => {
                    self.note_failure(slab, member, &error);
                    return None;
                }
            }
        }
        Some(pages)
    }

    /// Reads the block from another copy, which heals this one, and those that turn out to be damaged as well.
    async fn heal_from_other(&self, slab: SlabIndex, damaged: DamagedCopy) -> Result<bool, OwnerError> {
        let DamagedCopy { block, member, token } = damaged;
        if matches!(self.read_elsewhere(slab, block, token, member).await?, BlockPart::Lost) {
            return Ok(false);
        }
        let piece = SlabRange { slab, first: block, count: 1 };
        let checked = self.ask_check(&member, piece).await;
        Ok(checked.is_ok_and(|checked| !matches!(checked[0], Checked::Damaged(_))))
    }

    async fn ask_check(&self, member: &Member, piece: SlabRange) -> Result<Vec<Checked>, AskError> {
        let copy = self.membership.borrow().address(piece.slab, member);
        let request = ReplicaRequest::Check {
            copy,
            authority: self.authority(),
            first: piece.first,
            count: piece.count,
        };
        let (response, _) = self.in_time(self.ask_copy(member, request, None)).await?;
        let ReplicaResponse::Parts(descriptions) = response else {
            return Err(AskError::Unreachable("a check was answered with something else".to_owned()));
        };
        let mut checked = Vec::with_capacity(piece.count as usize);
        for description in descriptions {
            match description {
                PartDescription::Hole(count) => checked.extend((0..count).map(|_| Checked::Hole)),
                PartDescription::Data(checksums) => checked.extend(checksums.into_iter().map(Checked::Data)),
                PartDescription::Damaged { token, .. } => checked.push(Checked::Damaged(token)),
            }
        }
        if checked.len() == piece.count as usize {
            Ok(checked)
        } else {
            Err(AskError::Unreachable("a check's answer does not fit its question".to_owned()))
        }
    }
}

/// The pages that copies hold at different versions.
fn pages_that_differ(copies: &[Vec<PageState>]) -> Vec<u32> {
    let Some((first, others)) = copies.split_first() else { return Vec::new() };
    let differs = |page: &usize| others.iter().any(|other| other[*page].version != first[*page].version);
    (0..first.len()).filter(differs).map(|page| page as u32).collect()
}
