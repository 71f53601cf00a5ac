//! The state as a service somewhere else, in a simulation: slow, unreachable, with lost answers.
//!
//! The [`Memory`] lives on a machine of its own, the server, which no simulated crash of a node
//! touches. Each simulated process has a [`SimulatedStore`], whose requests travel to the server
//! and back with delays. What may go wrong on the way is said by [`Faults`] and by calls:
//! an outage of the server, a client that is cut off, a request or an answer that is lost, a
//! transaction that is applied only after its sender has given up, a state that is set back to a
//! backup.
//!
//! All chance and all time come from the platforms that it is given, so that one seed gives one
//! course of events.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::{Rc, Weak};
use std::time::Duration;

use spandrel_platform::sync::{Signal, oneshot};
use spandrel_platform::{Platform, before};

use crate::memory::{Image, Memory};
use crate::store::{
    Event, LeaseId, Outcome, Revision, Selection, Snapshot, StateStore, StateWatch, StoreError,
    StoreErrorKind, Transaction,
};

/// How the way to the server behaves. Chances are in requests out of 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Faults {
    /// The least time that a request, or an answer, is on its way.
    pub delay_min: Duration,
    /// The most time that a request, or an answer, is on its way.
    pub delay_max: Duration,
    /// How long a client waits for an answer.
    pub answer_timeout: Duration,
    /// How often a request is lost before it arrives.
    pub request_lost_per_mille: u32,
    /// How often an answer is lost on its way back.
    pub answer_lost_per_mille: u32,
    /// How often a request takes up to `late_max` to arrive.
    pub request_late_per_mille: u32,
    /// The longest that a late request is on its way.
    pub late_max: Duration,
    /// The events that the server remembers for watches.
    pub history_events_max: usize,
}

impl Default for Faults {
    /// No faults: answers within a few milliseconds.
    fn default() -> Self {
        Self {
            delay_min: Duration::from_micros(100),
            delay_max: Duration::from_millis(2),
            answer_timeout: Duration::from_secs(2),
            request_lost_per_mille: 0,
            answer_lost_per_mille: 0,
            request_late_per_mille: 0,
            late_max: Duration::from_secs(10),
            history_events_max: 10_000,
        }
    }
}

/// The simulated service. Cheap to clone; all clones are the same service.
pub struct SimulatedState<P: Platform> {
    world: Rc<World<P>>,
}

impl<P: Platform> Clone for SimulatedState<P> {
    fn clone(&self) -> Self {
        Self { world: Rc::clone(&self.world) }
    }
}

struct World<P: Platform> {
    server: P,
    memory: RefCell<Memory>,
    faults: Cell<Faults>,
    outage: Cell<bool>,
    cut_off: RefCell<BTreeSet<u64>>,
    /// Raised when the state is set back: watches of before end.
    restores: Cell<u64>,
    /// Told of every change of anything above.
    changed: Rc<Signal>,
}

impl<P: Platform> SimulatedState<P> {
    /// An empty state on the machine `server`, which must outlive every client.
    pub fn new(server: P, faults: Faults) -> Self {
        let world = Rc::new(World {
            server: server.clone(),
            memory: RefCell::new(Memory::new()),
            faults: Cell::new(faults),
            outage: Cell::new(false),
            cut_off: RefCell::default(),
            restores: Cell::new(0),
            changed: Rc::new(Signal::new()),
        });
        server.spawn(expire_leases(server.clone(), Rc::downgrade(&world), Rc::clone(&world.changed)));
        Self { world }
    }

    /// The state as the client number `client` sees it, whose own machine is `platform`.
    pub fn client(&self, client: u64, platform: P) -> SimulatedStore<P> {
        SimulatedStore { world: Rc::clone(&self.world), client, platform }
    }

    /// Changes how the way to the server behaves.
    pub fn set_faults(&self, faults: Faults) {
        self.world.faults.set(faults);
    }

    /// Begins or ends an outage: the server answers nobody and applies nothing. When it ends, every
    /// lease lives its whole time again, since nobody could renew one.
    pub fn set_outage(&self, outage: bool) {
        if self.world.outage.replace(outage) && !outage {
            self.world.memory.borrow_mut().keep_all_alive(self.world.server.now());
        }
        self.world.changed.notify_all();
    }

    /// Cuts a client off, or lets it through again. What it sent before may still arrive; the
    /// answers do not.
    pub fn set_cut_off(&self, client: u64, cut_off: bool) {
        let mut set = self.world.cut_off.borrow_mut();
        if cut_off {
            set.insert(client);
        } else {
            set.remove(&client);
        }
        drop(set);
        self.world.changed.notify_all();
    }

    /// What a backup of the state holds now.
    pub fn backup(&self) -> Image {
        self.world.memory.borrow().image()
    }

    /// Sets the state back to a backup. Its revision goes back too.
    pub fn restore(&self, backup: Image) {
        let restored = Memory::restore(backup, self.world.server.now());
        *self.world.memory.borrow_mut() = restored.expect("a backup names no lease that it does not have");
        self.world.restores.set(self.world.restores.get() + 1);
        self.world.changed.notify_all();
    }

    /// What the server holds, at once and whatever fails: for checkers.
    pub fn inspect(&self, selections: &[Selection]) -> Snapshot {
        self.world.memory.borrow().read(selections)
    }
}

/// Ends leases when their time has run out, as long as the world exists.
async fn expire_leases<P: Platform>(server: P, world: Weak<World<P>>, changed: Rc<Signal>) {
    loop {
        let Some(strong) = world.upgrade() else { return };
        let expired = !strong.outage.get() && strong.memory.borrow_mut().expire_leases(server.now());
        let next = if strong.outage.get() { None } else { strong.memory.borrow().next_expiry() };
        drop(strong);
        if expired {
            changed.notify_all();
        }
        match next {
            Some(deadline) => drop(before(&server, deadline, changed.notified()).await),
            None => changed.notified().await,
        }
    }
}

impl<P: Platform> Drop for World<P> {
    fn drop(&mut self) {
        self.changed.notify_all();
    }
}

impl<P: Platform> World<P> {
    fn chance(&self, per_mille: u32) -> bool {
        self.server.random_u64() % 1000 < u64::from(per_mille)
    }

    fn between(&self, least: Duration, most: Duration) -> Duration {
        let range = most.saturating_sub(least).as_nanos() as u64;
        least + Duration::from_nanos(self.server.random_u64() % (range + 1))
    }

    fn delay(&self) -> Duration {
        let faults = self.faults.get();
        self.between(faults.delay_min, faults.delay_max)
    }

    /// How long a request is on its way to the server.
    fn request_delay(&self) -> Duration {
        let faults = self.faults.get();
        if self.chance(faults.request_late_per_mille) {
            self.between(faults.delay_max, faults.late_max)
        } else {
            self.delay()
        }
    }

    fn reachable(&self, client: u64) -> bool {
        !self.outage.get() && !self.cut_off.borrow().contains(&client)
    }

    /// Runs `work` on the state, with all leases expired that should be.
    fn serve<T>(&self, work: impl FnOnce(&mut Memory) -> T) -> T {
        let mut memory = self.memory.borrow_mut();
        memory.expire_leases(self.server.now());
        let output = work(&mut memory);
        memory.trim_history(self.faults.get().history_events_max);
        drop(memory);
        self.changed.notify_all();
        output
    }
}

/// The simulated service as one simulated process sees it.
pub struct SimulatedStore<P: Platform> {
    world: Rc<World<P>>,
    client: u64,
    platform: P,
}

impl<P: Platform> Clone for SimulatedStore<P> {
    fn clone(&self) -> Self {
        Self { world: Rc::clone(&self.world), client: self.client, platform: self.platform.clone() }
    }
}

impl<P: Platform> SimulatedStore<P> {
    /// Sends a request that does `work` and waits for its answer. `silence` is what no answer
    /// means.
    async fn call<T: 'static>(
        &self,
        silence: StoreErrorKind,
        work: impl FnOnce(&mut Memory) -> Result<T, StoreError> + 'static,
    ) -> Result<T, StoreError> {
        let (world, client) = (Rc::clone(&self.world), self.client);
        let deadline = self.platform.now() + world.faults.get().answer_timeout;
        if !world.reachable(client) {
            self.platform.sleep(world.delay()).await;
            return Err(StoreError::new(StoreErrorKind::Unavailable, "no connection"));
        }
        let (sender, receiver) = oneshot();
        let (lost, delay) = (world.chance(world.faults.get().request_lost_per_mille), world.request_delay());
        self.world.server.spawn(async move {
            world.server.sleep(delay).await;
            if lost || world.outage.get() {
                return;
            }
            let answer = world.serve(work);
            let answer_lost = world.chance(world.faults.get().answer_lost_per_mille);
            world.server.sleep(world.delay()).await;
            if !answer_lost && world.reachable(client) {
                sender.send(answer);
            }
        });
        match before(&self.platform, deadline, receiver).await {
            Some(Some(answer)) => answer,
            // A lost answer shows by nothing but the time that passes.
            Some(None) | None => {
                self.platform.sleep_until(deadline).await;
                Err(StoreError::new(silence, "no answer in time"))
            }
        }
    }
}

impl<P: Platform> StateStore for SimulatedStore<P> {
    type Watch = SimulatedWatch<P>;

    async fn read(&self, selections: &[Selection]) -> Result<Snapshot, StoreError> {
        let selections = selections.to_vec();
        self.call(StoreErrorKind::Unavailable, move |memory| Ok(memory.read(&selections))).await
    }

    async fn transact(&self, transaction: Transaction) -> Result<Outcome, StoreError> {
        transaction.validate()?;
        self.call(StoreErrorKind::Unknown, move |memory| memory.transact(&transaction)).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<Self::Watch, StoreError> {
        let (prefix, asked) = (prefix.to_owned(), prefix.to_owned());
        let restores = self.world.restores.get();
        self.call(StoreErrorKind::Unavailable, move |memory| memory.events(&asked, from).map(drop)).await?;
        Ok(SimulatedWatch { store: self.clone(), prefix, next: from, restores })
    }

    async fn grant_lease(&self, time_to_live: Duration) -> Result<LeaseId, StoreError> {
        let server = self.world.server.clone();
        self.call(StoreErrorKind::Unknown, move |memory| Ok(memory.grant_lease(server.now(), time_to_live)))
            .await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        let server = self.world.server.clone();
        self.call(StoreErrorKind::Unknown, move |memory| memory.keep_alive(server.now(), lease)).await
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.call(StoreErrorKind::Unknown, move |memory| memory.revoke_lease(lease)).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        let work = move |memory: &mut Memory| {
            memory.compact(revision);
            Ok(())
        };
        self.call(StoreErrorKind::Unknown, work).await
    }
}

/// A watch on the simulated service. Ends when its client is cut off, the server has an outage, or
/// the state is set back.
pub struct SimulatedWatch<P: Platform> {
    store: SimulatedStore<P>,
    prefix: String,
    /// Moves on only when events are handed out, so that a dropped `next` loses none.
    next: Revision,
    restores: u64,
}

impl<P: Platform> SimulatedWatch<P> {
    fn check(&self) -> Result<(), StoreError> {
        let world = &self.store.world;
        if world.reachable(self.store.client) && world.restores.get() == self.restores {
            return Ok(());
        }
        Err(StoreError::new(StoreErrorKind::Unavailable, "the watch's connection broke"))
    }
}

impl<P: Platform> StateWatch for SimulatedWatch<P> {
    async fn next(&mut self) -> Result<Vec<Event>, StoreError> {
        loop {
            let world = &self.store.world;
            let notified = world.changed.notified();
            self.check()?;
            let pending = world.memory.borrow().events(&self.prefix, self.next)?;
            if !pending.events.is_empty() {
                self.store.platform.sleep(world.delay()).await;
                self.check()?;
                self.next = pending.next;
                return Ok(pending.events);
            }
            self.next = pending.next;
            notified.await;
        }
    }
}

#[cfg(test)]
#[path = "simulated_tests.rs"]
mod tests;
