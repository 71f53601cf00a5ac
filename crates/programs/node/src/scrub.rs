//! Scrubs the volumes that this node owns: each at the pace that the pool's settings say, and all of one when somebody
//! asks for that.
//!
//! A node reads one slab at a time, MiB by MiB, with pauses: no more of them than is needed to keep the pace, so that
//! applications come first. What a volume's plan has learned is written to the cluster's state when a pass ends, when the
//! volume is handed over, and else once in some minutes.
//!
//! Invariants:
//! - Between these times nothing is asked of the cluster's state.
//! - No slab is counted as read before its volume's record was read from the state: dates and findings of earlier
//!   owners would be lost.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use spandrel_cluster::store::{Revision, StateStore};
use spandrel_cluster::{ScrubSummary, StateError};
use spandrel_platform::sync::Signal;
use spandrel_platform::{Instant, Platform, before};
use spandrel_shared::canary::{self, Bug};
use spandrel_shared::witness::{self, Rare};
use spandrel_shared::{Error, SlabIndex, VolumeId};
use spandrel_volume::{OwnerError, Phase, ScrubReport};

use crate::node::{Node, NodeInner};
use crate::ownership::Ownership;
use crate::report::ScrubProgress;
use crate::scrub_plan::{Now, ScrubPlan};

/// How often it is looked whether a slab is to be read.
const INTERVAL: Duration = Duration::from_secs(1);

/// The longest pause after a MiB: a slab is to be read while its volume stays where it is.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// In which the state is told of slabs that were read, at most once.
const TELL_INTERVAL: Duration = Duration::from_secs(5 * 60);

/// After so long the state is asked again that did not take what it was told.
const TELL_RETRY: Duration = Duration::from_secs(10);

/// How long a volume that is handed over waits for the state to be told. It serves meanwhile.
const TELL_TIME_MAX: Duration = Duration::from_secs(1);

/// After so long the state is asked again that could not be read.
const LEARN_RETRY: Duration = Duration::from_secs(1);

/// How long a scrub that was asked for waits for what the state says. Without that it is carried out all the same, and
/// not counted.
const LEARN_TIME_MAX: Duration = Duration::from_secs(5);

/// The period of scrubs that are asked for where none is set: after a part of it slabs are tried again that could not be
/// read.
const PERIOD_UNSET: Duration = Duration::from_secs(4 * 7 * 24 * 60 * 60);

/// How far the scrub of an owned volume is.
#[derive(Default)]
pub(crate) struct Scrubbing {
    state: RefCell<ScrubState>,
    learned: Signal,
    /// Notified when the state was told, or could not be.
    told: Signal,
}

#[derive(Default)]
struct ScrubState {
    /// None before it was read what the state says, and if that cannot be read.
    plan: Option<ScrubPlan>,
    /// The revision of what the state says; none if that is not known.
    known: Option<Known>,
    is_telling: bool,
    has_failed: bool,
    /// Up to which of the plan's changes the state knows it.
    told: u64,
    /// When it is told again.
    tell_at: Instant,
}

/// What stands in the state: nothing, or what has this revision.
#[derive(Clone, Copy)]
struct Known(Option<Revision>);

/// A slab that is to be read.
struct Turn<P: Platform, S: StateStore> {
    ownership: Rc<Ownership<P, S>>,
    slab: SlabIndex,
    pause: Duration,
    period: Duration,
}

impl Scrubbing {
    /// What there is to say; nothing before it is known what earlier owners have done.
    pub(crate) fn summary(&self) -> Option<ScrubSummary> {
        self.state.borrow().plan.as_ref().map(ScrubPlan::summary)
    }

    fn with_plan<T>(&self, change: impl FnOnce(&mut ScrubPlan) -> T) -> Option<T> {
        self.state.borrow_mut().plan.as_mut().map(change)
    }

    /// Whether the state is to be told something now.
    fn is_to_be_told(&self, now: Instant) -> bool {
        let state = self.state.borrow();
        state.plan.as_ref().is_some_and(|plan| {
            let is_time = now >= state.tell_at || (plan.is_pass_over() && !state.has_failed);
            plan.changes() != state.told && !state.is_telling && is_time
        })
    }

    fn has_news(&self) -> bool {
        let state = self.state.borrow();
        state.plan.as_ref().is_some_and(|plan| plan.changes() != state.told)
    }
}

impl<P: Platform, S: StateStore> Node<P, S> {
    /// Reads and checks every block of every in-sync copy of a volume that this node owns, compares
    /// the copies with each other, and, if `heal`, replaces what is damaged and counts it as a scrub. Clients go on
    /// meanwhile.
    ///
    /// Errors: `NOT_OWNER` if this node does not own the volume, at the beginning or any more.
    pub async fn scrub_volume(
        &self,
        volume: VolumeId,
        heal: bool,
        progress: impl Fn(ScrubProgress),
    ) -> Result<ScrubReport, Error> {
        let inner = &self.inner;
        let not_owner = || {
            Error::new(
                "NOT_OWNER",
                format!("volume {volume} cannot be checked by node {}", inner.config.name),
                "another node owns it, or nobody does at the moment",
                "try again: the owner is asked then",
            )
        };
        let ownership = inner.ownership(volume).ok_or_else(not_owner)?;
        if heal {
            inner.await_learned(&ownership).await;
            ownership.scrubbing.with_plan(|plan| plan.begin_pass(inner.scrub_now()));
        }
        let owner = &ownership.owner;
        let slabs_total = owner.slab_count();
        let mut report = ScrubReport::default();
        for slab in (0..slabs_total).map(SlabIndex) {
            progress(ScrubProgress { slabs_done: slab.0, slabs_total });
            if report.gave_up {
                report.add(&owner.slab_unchecked(slab));
                continue;
            }
            let found = owner.scrub_slab(slab, heal).await.map_err(|_| not_owner())?;
            if heal {
                let period = inner.scrub_period().unwrap_or(PERIOD_UNSET);
                ownership.scrubbing.with_plan(|plan| plan.note(slab, &found, period, inner.scrub_now()));
            }
            report.add(&found);
        }
        progress(ScrubProgress { slabs_done: slabs_total, slabs_total });
        if heal {
            inner.tell_scrub_in_time(&ownership).await;
        }
        Ok(report)
    }
}

impl<P: Platform, S: StateStore> NodeInner<P, S> {
    /// Reads what the state says of the scrub of a volume, when an ownership begins.
    pub(crate) async fn learn_scrub(self: Rc<Self>, ownership: Rc<Ownership<P, S>>) {
        let volume = ownership.owner.volume();
        let stored = loop {
            match self.parts.state.scrub(volume).await {
                Ok(stored) => break stored,
                Err(StateError::Refused(error)) => {
                    tracing::error!("the volume is not scrubbed by this node: {error}");
                    return;
                }
                Err(_) => self.parts.platform.sleep(LEARN_RETRY).await,
            }
            if ownership.owner.phase() == Phase::Deposed {
                return;
            }
        };
        let (slabs, now) = (ownership.owner.slab_count(), self.scrub_now());
        let created_unix_s = ownership.seen().record.created_unix_ms / 1000;
        let record = stored.as_ref().map(|stored| &stored.record);
        let plan = ScrubPlan::new(record, slabs, created_unix_s, now);
        {
            let mut state = ownership.scrubbing.state.borrow_mut();
            state.known = Some(Known(stored.as_ref().map(|stored| stored.revision)));
            // What it has changed already can wait.
            state.told = plan.changes();
            state.tell_at = now.instant + TELL_INTERVAL;
            state.plan = Some(plan);
        }
        ownership.scrubbing.learned.notify_all();
    }

    async fn await_learned(&self, ownership: &Ownership<P, S>) {
        let scrubbing = &ownership.scrubbing;
        let learned = scrubbing.learned.wait_until(|| scrubbing.state.borrow().plan.is_some());
        before(&self.parts.platform, self.parts.platform.now() + LEARN_TIME_MAX, learned).await;
    }

    fn scrub_now(&self) -> Now {
        let platform = &self.parts.platform;
        Now { instant: platform.now(), unix_s: platform.unix_time().0 / 1000 }
    }

    /// Within which time everything is to be read once; none if that is not done by itself.
    fn scrub_period(&self) -> Option<Duration> {
        let period_s = self.parts.view.settings()?.scrub_period_s;
        (period_s > 0).then(|| Duration::from_secs(period_s.into()))
    }

    /// Reads slab after slab at the set pace, as long as the node runs.
    pub(crate) async fn keep_scrubbing(self: Rc<Self>) {
        loop {
            match self.next_turn() {
                Some(turn) => self.take_turn(turn).await,
                None => self.parts.platform.sleep(INTERVAL).await,
            }
            let ownerships: Vec<_> = self.ownerships.borrow().values().cloned().collect();
            let now = self.parts.platform.now();
            for ownership in ownerships.into_iter().filter(|ownership| ownership.scrubbing.is_to_be_told(now))
            {
                let node = Rc::clone(&self);
                self.parts.platform.spawn(async move { node.tell_scrub(&ownership).await });
            }
        }
    }

    /// The slab that should have been begun longest ago, if it is time for one.
    fn next_turn(&self) -> Option<Turn<P, S>> {
        let (period, now) = (self.scrub_period()?, self.scrub_now());
        let mut slabs_per_second = 0.0;
        let mut due: Option<(Duration, Rc<Ownership<P, S>>)> = None;
        for ownership in self.ownerships.borrow().values() {
            let slabs = ownership.owner.slab_count();
            ownership.scrubbing.with_plan(|plan| {
                plan.fit(slabs, now);
                slabs_per_second += plan.interval(period, now).as_secs_f64().recip();
                if ownership.owner.phase() != Phase::Serving {
                    return;
                }
                let due_for = plan.is_due_for(period, now);
                if due_for.is_some() && due_for > due.as_ref().map(|(longest, _)| *longest) {
                    due = due_for.map(|due_for| (due_for, Rc::clone(ownership)));
                }
            });
        }
        let (_, ownership) = due?;
        let can_be_read = |slab| ownership.owner.is_slab_whole(slab);
        let slab =
            ownership.scrubbing.with_plan(|plan| plan.begin_next(period, now, can_be_read)).flatten()?;
        // Half of the time that there is for a slab is for pauses.
        let for_pauses = 0.5 / slabs_per_second;
        let pieces = (self.parts.cluster.slab_bytes.slab_bytes() >> 20).max(1) as f64;
        let pause = Duration::try_from_secs_f64(for_pauses / pieces).unwrap_or(PAUSE_MAX).min(PAUSE_MAX);
        Some(Turn { ownership, slab, pause, period })
    }

    async fn take_turn(&self, turn: Turn<P, S>) {
        let Turn { ownership, slab, pause, period } = turn;
        let found = match canary::is_planted(Bug::ScrubNothing) {
            true => Ok(ScrubReport::default()),
            false => ownership.owner.scrub_slab_slowly(slab, pause).await,
        };
        let found = match found {
            Ok(found) => found,
            // The next owner reads it.
            Err(OwnerError::Deposed) => return,
            Err(error) => {
                tracing::warn!(volume = %ownership.owner.volume(), %slab, "a slab is not scrubbed now: {error:?}");
                ownership.scrubbing.with_plan(|plan| plan.put_off(slab, period, self.scrub_now()));
                return;
            }
        };
        if found.blocks_damaged() + found.blocks_different + found.pages_lacking > 0 {
            witness::reached(Rare::PacedScrubFound);
            tracing::warn!(
                volume = %ownership.owner.volume(), %slab, damaged = found.blocks_damaged(), healed = found.blocks_healed,
                different = found.blocks_different, lost = found.blocks_lost, lacking = found.pages_lacking,
                "a scrub has found what is not well"
            );
        }
        ownership.scrubbing.with_plan(|plan| plan.note(slab, &found, period, self.scrub_now()));
    }

    /// Tells the state what it does not know of the scrub of a volume, before the ownership ends.
    pub(crate) async fn tell_scrub_in_time(&self, ownership: &Ownership<P, S>) {
        let scrubbing = &ownership.scrubbing;
        let telling = async {
            // What is being told may be of before, and is refused if the volume's record changes meanwhile.
            scrubbing.told.wait_until(|| !scrubbing.state.borrow().is_telling).await;
            if scrubbing.has_news() {
                self.tell_scrub(ownership).await;
            }
        };
        let platform = &self.parts.platform;
        before(platform, platform.now() + TELL_TIME_MAX, telling).await;
    }

    /// Tells the state how far the scrub of a volume is. One that does not take it is told again later.
    async fn tell_scrub(&self, ownership: &Ownership<P, S>) {
        let (record, changes, known) = {
            let mut state = ownership.scrubbing.state.borrow_mut();
            let Some(plan) = state.plan.as_ref().filter(|_| !state.is_telling) else { return };
            let told = (plan.record(), plan.changes(), state.known.take());
            state.is_telling = true;
            told
        };
        // Whatever becomes of this: whoever comes next begins with what the state says then.
        let _telling = Telling(&ownership.scrubbing);
        let seen = ownership.seen().clone();
        let known = match known {
            Some(known) => Ok(known),
            None => {
                let stored = self.parts.state.scrub(seen.volume).await;
                stored.map(|stored| Known(stored.map(|stored| stored.revision)))
            }
        };
        let told = match known {
            Ok(Known(revision)) => {
                self.parts.state.note_scrub(self.parts.own, &seen, revision, &record).await
            }
            Err(error) => Err(error),
        };
        let now = self.parts.platform.now();
        let mut state = ownership.scrubbing.state.borrow_mut();
        state.has_failed = told.is_err();
        match told {
            Ok(revision) => {
                state.known = Some(Known(Some(revision)));
                (state.told, state.tell_at) = (changes, now + TELL_INTERVAL);
            }
            Err(error) => {
                tracing::debug!(volume = %seen.volume, "the state does not know how far the scrub is: {error}");
                state.tell_at = now + TELL_RETRY;
            }
        }
    }
}

/// Somebody tells the state; nobody does any more when this is dropped.
struct Telling<'a>(&'a Scrubbing);

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        self.0.state.borrow_mut().is_telling = false;
        self.0.told.notify_all();
    }
}
