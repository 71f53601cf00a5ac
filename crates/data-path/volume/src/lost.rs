//! Blocks that copies are known to have lost, as a drive that has lost a part of its map says. They do not wait for a
//! scrub: until they are healed, one failure more loses them for good.
//!
//! A take-over notes the pages of which in-sync copies have lost blocks, a resync those of which no copy in sync has a
//! block whole. They are healed at once if another copy in sync has it. If none has, that is tried again when another leg
//! is in sync, which has it, or lacks it; and if one has but could not give it, or the other one not take it, after a
//! pause: each time twice as long a one, as what it has may be damaged for good. A leg that joins gets what it has lost
//! with its resync.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;

use spandrel_platform::{Instant, Platform, before};
use spandrel_replica::{BlockState, PageState};
use spandrel_shared::geometry::SlabRange;
use spandrel_shared::{PAGE_BLOCKS, SlabIndex};

use crate::context::OwnerContext;
use crate::membership::LegState;
use crate::owner::{OwnerError, OwnerInner};
use crate::scrub::{PIECE_BLOCKS, PIECE_TIME_MAX};

/// The first pause before what could not be healed is tried again.
const PAUSE_MIN: Duration = Duration::from_secs(2);

/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// Pages of which copies have lost blocks, and when to heal them.
#[derive(Default)]
pub(crate) struct LostPages {
    pages: BTreeSet<(SlabIndex, u32)>,
    /// How many legs had been promoted when their healing last began.
    healed_after: Option<u64>,
    /// When to try again, and after which pause that is.
    again: Option<(Instant, Duration)>,
    is_healing: bool,
}

impl LostPages {
    /// Whether it is time to heal. Who hears so begins, and says when it has ended.
    fn is_begun(&mut self, now: Instant, legs_promoted: u64) -> bool {
        if self.pages.is_empty() || self.is_healing {
            return false;
        }
        let is_new = self.healed_after != Some(legs_promoted);
        if !is_new && self.again.is_none_or(|(at, _)| now < at) {
            return false;
        }
        if is_new {
            self.again = None;
        }
        self.healed_after = Some(legs_promoted);
        self.is_healing = true;
        true
    }

    fn end(&mut self, now: Instant, is_to_be_tried_again: bool) {
        let pause = self.again.map_or(PAUSE_MIN, |(_, last)| PAUSE_MAX.min(last * 2));
        self.again = is_to_be_tried_again.then(|| (now + pause, pause));
        self.is_healing = false;
    }
}

/// What is lost of some blocks; the worst of several counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Loss {
    /// No copy in sync lacks any of them.
    Nothing,
    /// What is lost is lost on all copies in sync: another leg may have it.
    Everywhere,
    /// A copy in sync did not answer.
    Unknown,
    /// A copy in sync has what another one has lost.
    OnSome,
}

impl Loss {
    /// `states` are what the maps of all copies in sync say of the same blocks; nothing if one did not answer.
    fn of(states: Option<&[Vec<BlockState>]>) -> Loss {
        let Some(states) = states else { return Loss::Unknown };
        let blocks = 0..states.first().map_or(0, Vec::len);
        let lost =
            blocks.map(|block| states.iter().filter(|states| states[block] == BlockState::Lost).count());
        let losses = lost.map(|copies| match copies {
            0 => Loss::Nothing,
            copies if copies == states.len() => Loss::Everywhere,
            _ => Loss::OnSome,
        });
        losses.max().unwrap_or(Loss::Nothing)
    }
}

/// Heals what is known to be lost, if it is time.
pub(crate) fn heal_where_needed<C: OwnerContext>(owner: &Rc<OwnerInner<C>>) {
    let platform = owner.context.platform().clone();
    let legs_promoted = owner.statistics.borrow().legs_promoted;
    if !owner.lost.borrow_mut().is_begun(platform.now(), legs_promoted) {
        return;
    }
    let owner = Rc::clone(owner);
    platform.clone().spawn(async move {
        let loss = owner.heal_lost_pages().await;
        owner.lost.borrow_mut().end(platform.now(), loss >= Loss::Unknown);
    });
}

impl<C: OwnerContext> OwnerInner<C> {
    /// Notes a page of which a copy has lost blocks.
    pub(crate) fn note_lost_page(&self, slab: SlabIndex, page: u32) {
        self.lost.borrow_mut().pages.insert((slab, page));
    }

    /// Notes the pages of which a copy of a slab has lost blocks.
    pub(crate) fn note_lost_pages(&self, slab: SlabIndex, pages: &[PageState]) {
        let lost = (0..).zip(pages).filter(|(_, page)| page.lost_blocks > 0);
        self.lost.borrow_mut().pages.extend(lost.map(|(page, _)| (slab, page)));
    }

    /// Heals what in-sync copies have lost and others of them have, and says what is left. A page is forgotten when all
    /// copies are in sync, and none of them lacks any of its blocks. One that was promoted meanwhile was not asked.
    async fn heal_lost_pages(&self) -> Loss {
        let pages = self.lost.borrow().pages.clone();
        let mut worst = Loss::Nothing;
        for (slab, page) in pages {
            let legs_promoted = self.statistics.borrow().legs_promoted;
            // One that could not be healed keeps none of the others from it.
            let loss = self.heal_lost_page(slab, page).await.unwrap_or(Loss::Unknown);
            worst = worst.max(loss);
            let all_were_asked = self.statistics.borrow().legs_promoted == legs_promoted
                && self
                    .members(slab)
                    .iter()
                    .all(|(member, state)| member.is_building || *state == LegState::InSync);
            if loss == Loss::Nothing && all_were_asked {
                self.lost.borrow_mut().pages.remove(&(slab, page));
            }
        }
        worst
    }

    /// Application I/O waits for the piece that is being healed alone.
    async fn heal_lost_page(&self, slab: SlabIndex, page: u32) -> Result<Loss, OwnerError> {
        let platform = self.context.platform();
        let first = page * PAGE_BLOCKS;
        let mut worst = Loss::Nothing;
        for first in (first..first + PAGE_BLOCKS).step_by(PIECE_BLOCKS as usize) {
            let piece = SlabRange { slab, first, count: PIECE_BLOCKS };
            self.serving().await?;
            let mut loss = self.loss(piece).await;
            if loss == Loss::OnSome {
                let healed = before(platform, platform.now() + PIECE_TIME_MAX, self.scrub_piece(piece, true));
                healed.await.transpose()?;
                loss = self.loss(piece).await;
            }
            worst = worst.max(loss);
        }
        Ok(worst)
    }

    async fn loss(&self, piece: SlabRange) -> Loss {
        let members = self.in_sync_members(piece.slab);
        let asked = members.iter().map(|member| self.ask_block_states(member, piece));
        let states: Result<Vec<_>, _> = futures_util::future::join_all(asked).await.into_iter().collect();
        Loss::of(states.ok().as_deref())
    }
}

#[cfg(test)]
#[path = "lost_tests.rs"]
mod tests;
