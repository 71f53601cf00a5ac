//! The owner of a volume: its state, and the rules that every request goes by.
//!
//! An owner starts with a membership and an epoch that the cluster state has just given it. It
//! takes over (see `takeover`), then serves. A guardian task (see `degrade`) marks legs stale that
//! fail or fall silent, and brings stale ones back (see `resync`).
//!
//! Invariants:
//! - Nothing is answered without a live promise of every node that holds a needed leg.
//! - A write is answered when every needed leg has said that it is durable; a leg stops being
//!   needed only by a transaction of the cluster state.
//! - An owner that meets a higher epoch than its own is deposed and answers nothing more.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;
use futures_util::lock::Mutex;
use smallvec::SmallVec;
use spandrel_platform::sync::Signal;
use spandrel_platform::{Buffer, Instant, Platform};
use spandrel_replica::{Authority, Heeded, ReplicaError, ReplicaRequest, ReplicaResponse};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{BLOCK_BYTES, BlockRange, Epoch, ProcessIncarnation, ShardId, SlabIndex, VolumeId};

use crate::context::{AskError, OwnerContext};
use crate::device::{DeviceError, DeviceErrorKind};
use crate::hedge::HedgeBudget;
use crate::idle_mark::IdleMark;
use crate::legs::Legs;
use crate::lost::LostPages;
use crate::membership::{Leg, LegId, LegState, MEMBERS_USUAL, Member, Membership};
use crate::missed::MissedBlocks;
use crate::pace::Paces;
use crate::range_lock::RangeLocks;
use crate::resync::ResyncProgress;
use crate::statistics::OwnerStatistics;
use crate::told_once::ToldOnce;
use crate::version_tracker::VersionTracker;

/// One ownership of one volume. Cheap to clone; all clones are the same.
pub struct Owner<C: OwnerContext> {
    pub(crate) inner: Rc<OwnerInner<C>>,
}

impl<C: OwnerContext> Clone for Owner<C> {
    fn clone(&self) -> Self {
        Self { inner: Rc::clone(&self.inner) }
    }
}

pub(crate) struct OwnerInner<C: OwnerContext> {
    pub(crate) context: C,
    pub(crate) volume: VolumeId,
    pub(crate) epoch: Epoch,
    pub(crate) membership: RefCell<Membership>,
    pub(crate) legs: RefCell<Legs>,
    /// Legs that failed to do what a needed leg must: to be marked stale.
    pub(crate) suspects: RefCell<BTreeMap<LegId, Suspicion>>,
    pub(crate) locks: RangeLocks,
    pub(crate) versions: RefCell<VersionTracker>,
    pub(crate) phase: Cell<Phase>,
    /// Notified when the phase, a leg or the suspects change.
    pub(crate) changed: Signal,
    pub(crate) statistics: RefCell<OwnerStatistics>,
    /// How fast the legs answer.
    pub(crate) paces: Rc<Paces>,
    /// How many reads may be sent to a second copy yet.
    pub(crate) hedge_budget: HedgeBudget,
    /// Counts the guardian's tenths of a second, for reads that wait for a copy.
    pub(crate) ticks: Cell<u64>,
    /// Notified when they are counted.
    pub(crate) ticked: Signal,
    /// Counts the looks of the guardian for what is overdue.
    pub(crate) looks: Cell<u64>,
    /// Whether the copies have been told the mark since the last write.
    pub(crate) idle_mark: IdleMark,
    /// What was said of why the take-over waits.
    pub(crate) obstacle: ToldOnce,
    /// By leg: the process that has told this owner what the leg's copies hold.
    pub(crate) accepted_by: RefCell<BTreeMap<LegId, ProcessIncarnation>>,
    /// Whoever changes the membership holds this until the outcome is known.
    pub(crate) membership_turn: Arc<Mutex<()>>,
    /// Why the membership could not be changed last, which is logged once and not at each attempt.
    pub(crate) refusal: ToldOnce,
    pub(crate) resync: RefCell<BTreeMap<LegId, ResyncProgress>>,
    /// What the legs that are not in sync may have missed.
    pub(crate) missed: MissedBlocks,
    pub(crate) lost: RefCell<LostPages>,
    /// Whether all slabs are being compared, as a scrub has found a copy that lacks writes.
    pub(crate) is_comparing: Cell<bool>,
    /// Writes that were sent to joining legs and not answered yet.
    pub(crate) unawaited: RefCell<BTreeMap<LegId, u64>>,
    own: Weak<OwnerInner<C>>,
}

/// How long a copy may take for an answer. A fence may have to wait for promises to run out.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(5);

/// Why a leg is to be marked stale.
pub(crate) struct Suspicion {
    /// What it did, for people.
    pub(crate) reason: String,
    /// Its drive has failed, or has lost some of what it had: of two legs it is the less likely one to come back by itself.
    pub(crate) drive_failed: bool,
    /// When that was noted.
    pub(crate) since: Instant,
}

/// What an owner does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Fences, gathers, rolls forward; requests wait.
    TakingOver,
    /// Serves.
    Serving,
    /// Another owner has taken the volume, or this one has given it up; requests are refused.
    Deposed,
}

/// Why an owner did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnerError {
    /// It is not the owner any more. A change may have been made or not: ask the new owner again.
    Deposed,
    /// The request lies outside the volume; nothing changed.
    Invalid(String),
    /// No copy has room for a part of the change; that part changed nothing.
    NoRoom,
    /// A block is damaged on every copy that holds its newest content. Writing the whole block makes it
    /// good again. A change that needed to read it has changed nothing of that block.
    Lost {
        /// The block within the volume.
        block: u64,
    },
}

impl From<OwnerError> for DeviceError {
    fn from(error: OwnerError) -> Self {
        match error {
            OwnerError::Deposed => {
                DeviceError::new(DeviceErrorKind::Failed, "the volume's owner has changed")
            }
            OwnerError::Invalid(detail) => DeviceError::new(DeviceErrorKind::Invalid, detail),
            OwnerError::NoRoom => DeviceError::new(DeviceErrorKind::NoRoom, "the pool has no room"),
            OwnerError::Lost { block } => DeviceError::new(
                DeviceErrorKind::Failed,
                format!(
                    "block {block} (4 KiB at byte {}) is damaged on every copy that could be asked; a copy \
                     that is away may still hold it, and writing it makes it good again",
                    block * BLOCK_BYTES as u64
                ),
            ),
        }
    }
}

impl<C: OwnerContext> Owner<C> {
    /// Begins an ownership. `membership` is what the cluster state says now that it names this
    /// node, with the epoch that it gave.
    pub fn start(context: C, membership: Membership) -> Self {
        let legs = membership.legs().into_iter().map(|(leg, shard)| {
            let drive = leg.drive;
            let is_lost =
                membership.unsettled.as_ref().is_some_and(|unsettled| unsettled.lost.contains(&drive));
            let stale = leg.is_building || is_lost || membership.stale.contains_key(&drive);
            (leg, Leg { shard, state: if stale { LegState::Stale } else { LegState::InSync } })
        });
        let legs: BTreeMap<LegId, Leg> = legs.collect();
        let inner = Rc::new_cyclic(|own| OwnerInner {
            volume: membership.volume,
            epoch: membership.epoch,
            legs: RefCell::new(Legs::new(legs)),
            suspects: RefCell::default(),
            locks: RangeLocks::default(),
            versions: RefCell::new(VersionTracker::new(membership.epoch)),
            phase: Cell::new(Phase::TakingOver),
            changed: Signal::new(),
            statistics: RefCell::default(),
            paces: Rc::default(),
            hedge_budget: HedgeBudget::default(),
            ticks: Cell::new(0),
            ticked: Signal::new(),
            looks: Cell::new(0),
            idle_mark: IdleMark::new(),
            obstacle: ToldOnce::default(),
            accepted_by: RefCell::default(),
            membership_turn: Arc::default(),
            refusal: ToldOnce::default(),
            resync: RefCell::default(),
            missed: MissedBlocks::default(),
            lost: RefCell::default(),
            is_comparing: Cell::new(false),
            unawaited: RefCell::default(),
            membership: RefCell::new(membership),
            own: own.clone(),
            context,
        });
        let owner = Self { inner };
        let platform = owner.inner.context.platform().clone();
        platform.spawn(crate::takeover::run(Rc::clone(&owner.inner)));
        platform.spawn(crate::degrade::guard(Rc::clone(&owner.inner)));
        owner
    }

    /// The volume.
    pub fn volume(&self) -> VolumeId {
        self.inner.volume
    }

    /// The ownership's number.
    pub fn epoch(&self) -> Epoch {
        self.inner.epoch
    }

    /// What the owner does.
    pub fn phase(&self) -> Phase {
        self.inner.phase.get()
    }

    /// What the take-over waits for, and what ends that, in words, if it cannot go on by itself.
    pub fn obstacle(&self) -> Option<String> {
        self.inner.obstacle.last().filter(|_| self.phase() == Phase::TakingOver)
    }

    /// Where it runs.
    pub fn shard(&self) -> ShardId {
        self.inner.context.shard()
    }

    /// The volume's size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.inner.membership.borrow().size_bytes
    }

    /// The membership that the owner goes by.
    pub fn membership(&self) -> Membership {
        self.inner.membership.borrow().clone()
    }

    /// The legs and how far each takes part.
    pub fn legs(&self) -> BTreeMap<LegId, Leg> {
        self.inner.legs.borrow().to_map()
    }

    /// Whether the owner needs a leg whose node does not stand by this ownership at the moment: it promises nothing, or its
    /// present process has not told what it holds. Reads and writes wait for it, or until it is taken out.
    pub fn is_silent(&self, id: LegId, leg: &Leg) -> bool {
        let inner = &self.inner;
        self.phase() == Phase::Serving
            && leg.state.is_needed()
            && !(inner.context.is_promised(leg.shard, inner.volume, inner.epoch)
                && inner.is_accepted_by_present_process(id, leg.shard))
    }

    /// How far the resyncs that are under way are.
    pub fn resync_progress(&self) -> BTreeMap<LegId, ResyncProgress> {
        self.inner.resync.borrow().clone()
    }

    /// What the owner has done since it began.
    pub fn statistics(&self) -> OwnerStatistics {
        *self.inner.statistics.borrow()
    }

    /// Gives the volume up: nothing more is answered. Another node, or this one, takes it with a
    /// higher epoch.
    pub fn depose(&self) {
        self.inner.depose();
    }

    /// Completes when the owner serves, or fails when it never will.
    pub async fn serving(&self) -> Result<(), OwnerError> {
        self.inner.serving().await
    }

    /// Completes when the owner is deposed.
    pub async fn deposed(&self) {
        self.inner.changed.wait_until(|| self.inner.phase.get() == Phase::Deposed).await;
    }
}

impl<C: OwnerContext> OwnerInner<C> {
    /// Asks the process that has told this owner what the leg's copies hold. The one after it may have found some
    /// of that lost when it started: it is not asked before it has told as well. Otherwise a page could get
    /// a newer version there, and nothing would show any more that it lacks an older write.
    pub(crate) async fn ask_copy(
        &self,
        member: &Member,
        request: ReplicaRequest,
        payload: Option<Buffer>,
    ) -> Result<(ReplicaResponse, Vec<Buffer>), AskError> {
        self.check_accepted(member)?;
        self.context.ask(member.shard, request, payload).await
    }

    pub(crate) fn check_accepted(&self, member: &Member) -> Result<(), AskError> {
        if self.is_accepted_by_present_process(member.leg(), member.shard) {
            return Ok(());
        }
        let what = match self.context.process(member.shard) {
            None => "there is no session with its node",
            Some(_) => "its node has started anew, and has not told yet what its copies hold",
        };
        Err(AskError::Unreachable(what.to_owned()))
    }

    pub(crate) fn is_accepted_by_present_process(&self, leg: LegId, shard: ShardId) -> bool {
        // Copies that were being built when they were to be asked may stand by now.
        let accepted_by = self.accepted_by.borrow();
        let accepted_by =
            accepted_by.get(&leg).or_else(|| accepted_by.get(&LegId::standing(leg.drive))).copied();
        accepted_by.is_some() && accepted_by == self.context.process(shard)
    }

    pub(crate) fn authority(&self) -> Authority {
        Authority { epoch: self.epoch, configuration: self.membership.borrow().configuration }
    }

    /// A handle for tasks that outlive a request; none while the owner is being dropped.
    pub(crate) fn own_handle(&self) -> Option<Rc<Self>> {
        self.own.upgrade()
    }

    pub(crate) fn depose(&self) {
        if self.phase.replace(Phase::Deposed) != Phase::Deposed {
            tracing::info!(volume = %self.volume, epoch = self.epoch.0, "the ownership has ended");
            self.changed.notify_all();
        }
    }

    pub(crate) fn is_deposed(&self) -> bool {
        self.phase.get() == Phase::Deposed
    }

    pub(crate) async fn serving(&self) -> Result<(), OwnerError> {
        match self.phase.get() {
            Phase::Serving => return Ok(()),
            Phase::Deposed => return Err(OwnerError::Deposed),
            Phase::TakingOver => {}
        }
        self.changed.wait_until(|| self.phase.get() != Phase::TakingOver).await;
        if self.is_deposed() { Err(OwnerError::Deposed) } else { Ok(()) }
    }

    /// The nodes whose promise every answer needs.
    pub(crate) fn needed_shards(&self) -> Vec<ShardId> {
        self.legs.borrow().needed_shards().to_vec()
    }

    /// A fence for copies that are not in sync. If others on their node are, and its process has just started,
    /// nobody has compared these: then it must not promise anything, so that they are marked stale, or a new
    /// ownership compares them.
    pub(crate) fn fence_of_stale(&self, shard: ShardId, heeds: Heeded) -> ReplicaRequest {
        let settles = !self.needed_shards().contains(&shard);
        ReplicaRequest::Fence { volume: self.volume, epoch: self.epoch, settles, heeds }
    }

    /// Whether every needed node's promise is live, right now.
    pub(crate) fn is_promised(&self) -> bool {
        if canary::is_planted(Bug::ServeWithoutPromises) {
            return true;
        }
        self.context.are_promised(self.legs.borrow().needed_shards(), self.volume, self.epoch)
    }

    /// Completes when every needed node's promise is live. Nothing may be awaited between this and
    /// what relies on it.
    pub(crate) async fn promised(&self) -> Result<(), OwnerError> {
        loop {
            if self.is_deposed() {
                return Err(OwnerError::Deposed);
            }
            if self.is_promised() {
                return Ok(());
            }
            witness::reached(Rare::AnswerWaitedForPromise);
            let changed = std::pin::pin!(self.changed.notified());
            let surroundings = std::pin::pin!(self.context.surroundings_changed());
            futures_util::future::select(changed, surroundings).await;
        }
    }

    pub(crate) fn leg_state(&self, leg: LegId) -> LegState {
        self.legs.borrow().get(&leg).map_or(LegState::Stale, |leg| leg.state)
    }

    pub(crate) fn set_leg_state(&self, leg: LegId, state: LegState) {
        self.legs.borrow_mut().set_state(leg, state);
        self.changed.notify_all();
    }

    /// The leg that a copy belongs to now: of one that was being built it changes with the promotion. None if another
    /// one has taken its place.
    pub(crate) fn leg_of(&self, slab: SlabIndex, member: &Member) -> Option<LegId> {
        self.membership.borrow().find(slab, member.copy).map(Member::leg)
    }

    /// How far a copy takes part now.
    pub(crate) fn state_of(&self, slab: SlabIndex, member: &Member) -> LegState {
        self.leg_of(slab, member).map_or(LegState::Stale, |leg| self.leg_state(leg))
    }

    /// The copies of a slab, with how far each takes part.
    pub(crate) fn members(&self, slab: SlabIndex) -> SmallVec<[(Member, LegState); MEMBERS_USUAL]> {
        let membership = self.membership.borrow();
        let legs = self.legs.borrow();
        let members = membership.slabs.get(slab.0 as usize);
        let with_state =
            |member: &Member| (*member, legs.get(&member.leg()).map_or(LegState::Stale, |leg| leg.state));
        members.into_iter().flatten().map(with_state).collect()
    }

    /// A copy did not do what it was asked. What that means depends on how far it takes part; one whose place another
    /// one has taken need not do anything any more.
    pub(crate) fn note_failure(&self, slab: SlabIndex, member: &Member, error: &AskError) {
        match self.leg_of(slab, member) {
            Some(leg) => self.note_failure_of(leg, error),
            None => self.depose_if_fenced(error),
        }
    }

    fn depose_if_fenced(&self, error: &AskError) {
        if let AskError::Replica(ReplicaError::Fenced { epoch }) = error
            && *epoch > self.epoch
        {
            self.depose();
        }
    }

    /// A leg did not do what it was asked.
    pub(crate) fn note_failure_of(&self, leg: LegId, error: &AskError) {
        self.depose_if_fenced(error);
        let reason = match error {
            AskError::Replica(error) => error.to_string(),
            AskError::Unreachable(detail) => detail.clone(),
        };
        let is_untold = matches!(error, AskError::Replica(ReplicaError::Untold));
        let drive_failed = is_untold || matches!(error, AskError::Replica(ReplicaError::DriveFailed(_)));
        // What it told once does not hold any more: it is not asked before it has told anew.
        let is_forgotten = is_untold && self.accepted_by.borrow_mut().remove(&leg).is_some();
        match self.leg_state(leg) {
            LegState::Stale => {}
            // It missed a message: it begins anew.
            LegState::Joining => self.set_leg_state(leg, LegState::Stale),
            LegState::InSync | LegState::Promoting => {
                // Told once: whoever notes the same failure whenever something changes must not be
                // the change.
                let mut suspects = self.suspects.borrow_mut();
                let suspicion = || Suspicion { reason, drive_failed, since: self.context.platform().now() };
                match suspects.entry(leg) {
                    Entry::Vacant(place) => {
                        place.insert(suspicion());
                        drop(suspects);
                        self.changed.notify_all();
                    }
                    Entry::Occupied(mut known) if is_forgotten => *known.get_mut() = suspicion(),
                    Entry::Occupied(_) => {}
                }
            }
        }
    }

    /// Whether what began at look number `begun` has been under way for so long that a copy which has
    /// not answered is taken for silent: its drive hangs, though its node is alive. Costs no timer.
    pub(crate) fn is_overdue(&self, begun: u64) -> bool {
        self.looks.get() >= begun + 2
    }

    /// The answer of a copy, if it comes in time: for questions that are so rare that a timer for each
    /// costs nothing. A request that is given up may be carried out later, but before any that is asked
    /// of the same copy behind it.
    pub(crate) async fn in_time<T>(
        &self,
        answer: impl Future<Output = Result<T, AskError>>,
    ) -> Result<T, AskError> {
        let timeout = std::pin::pin!(self.context.platform().sleep(ANSWER_MAX));
        match futures_util::future::select(std::pin::pin!(answer), timeout).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => {
                Err(AskError::Unreachable(format!("no answer for {} s", ANSWER_MAX.as_secs())))
            }
        }
    }

    /// A leg has missed a write that nobody waits for: it begins anew. That is certain before its
    /// promotion is sent, as that waits for the answers to all such writes; so the cluster state still
    /// calls it stale, and nobody need be asked.
    pub(crate) fn fall_back(&self, leg: LegId, error: &AskError) {
        self.note_failure_of(leg, error);
        if matches!(self.leg_state(leg), LegState::Joining | LegState::Promoting) {
            self.suspects.borrow_mut().remove(&leg);
            self.set_leg_state(leg, LegState::Stale);
        }
    }

    /// The blocks that a client's request covers, if it lies within the volume. Repair takes note that there is a client.
    pub(crate) fn begin_request(&self, offset: u64, length: u64) -> Result<BlockRange, OwnerError> {
        self.context.repair_turns().note_client();
        let size = self.membership.borrow().size_bytes;
        match offset.checked_add(length) {
            Some(end) if end <= size && length > 0 => Ok(BlockRange::covering(offset, length)),
            _ => Err(OwnerError::Invalid(format!(
                "{length} bytes at {offset} are not within the volume's {size} bytes ({} blocks)",
                size / BLOCK_BYTES as u64
            ))),
        }
    }
}
