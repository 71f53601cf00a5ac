//! That the suite finds what it is there to find: a make with one bug at a time.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use spandrel_platform::Platform;
use spandrel_platform::sync::Signal;

use super::*;
use crate::memory::Memory;
use crate::store::Operation;
use crate::test_platform::TestPlatform;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    ReadIsStale,
    ReadIsTorn,
    PrefixIsPath,
    ComparesAreIgnored,
    ConflictIsHalfDone,
    ConflictSaysNothing,
    DeleteOfNothingCounts,
    LimitsAreIgnored,
    WatchSkips,
    WatchRepeats,
    WatchSplitsRevisions,
    WatchForgetsThePast,
    WatchLosesWhatWasDropped,
    CompactionIsIgnored,
    LeaseExpiresEarly,
    LeaseKeepsDetachedKeys,
    LeaseOutlivesItsTime,
}

const BUGS: [Bug; 17] = [
    Bug::ReadIsStale,
    Bug::ReadIsTorn,
    Bug::PrefixIsPath,
    Bug::ComparesAreIgnored,
    Bug::ConflictIsHalfDone,
    Bug::ConflictSaysNothing,
    Bug::DeleteOfNothingCounts,
    Bug::LimitsAreIgnored,
    Bug::WatchSkips,
    Bug::WatchRepeats,
    Bug::WatchSplitsRevisions,
    Bug::WatchForgetsThePast,
    Bug::WatchLosesWhatWasDropped,
    Bug::CompactionIsIgnored,
    Bug::LeaseExpiresEarly,
    Bug::LeaseKeepsDetachedKeys,
    Bug::LeaseOutlivesItsTime,
];

/// A store without any distance to it, and with a bug.
#[derive(Clone)]
struct Buggy {
    bug: Bug,
    platform: TestPlatform,
    memory: Rc<RefCell<Memory>>,
    /// The state before the last change.
    before: Rc<RefCell<Memory>>,
    changed: Rc<Signal>,
    /// Calls that are left before a check that repeats itself for ever is stopped.
    budget: Rc<Cell<u32>>,
}

impl Buggy {
    fn new(bug: Bug, platform: TestPlatform) -> Self {
        let (memory, before) = Default::default();
        let (changed, budget) = (Rc::new(Signal::new()), Rc::new(Cell::new(50_000)));
        Self { bug, platform, memory, before, changed, budget }
    }

    fn expire(&self) {
        self.budget.set(self.budget.get().checked_sub(1).expect("the suite comes to an end"));
        if self.memory.borrow_mut().expire_leases(self.platform.now() + self.early()) {
            self.changed.notify_all();
        }
    }

    /// By how much leases expire too early.
    fn early(&self) -> Duration {
        if self.bug == Bug::LeaseExpiresEarly { Duration::from_millis(1) } else { Duration::ZERO }
    }

    /// The transaction as a store with this bug understands it.
    fn distort(&self, mut transaction: Transaction) -> Transaction {
        if self.bug == Bug::ComparesAreIgnored {
            transaction.compares.clear();
        }
        if self.bug == Bug::DeleteOfNothingCounts && !transaction.operations.is_empty() {
            let key = Key::new("something/else");
            transaction = transaction.put(&key, *b"x");
        }
        if self.bug == Bug::LimitsAreIgnored {
            transaction.operations.truncate(TRANSACTION_OPERATIONS_MAX);
            transaction.operations.retain(|operation| !operation.key().as_str().is_empty());
            transaction.operations.dedup_by(|one, other| one.key() == other.key());
            if transaction.bytes() > TRANSACTION_BYTES_MAX {
                transaction.operations.clear();
            }
        }
        transaction
    }
}

impl StateStore for Buggy {
    type Watch = BuggyWatch;

    async fn read(&self, selections: &[Selection]) -> Result<Snapshot, StoreError> {
        self.expire();
        // The others may run meanwhile.
        self.platform.sleep(Duration::from_micros(1)).await;
        let mut snapshot = self.memory.borrow().read(selections);
        match self.bug {
            Bug::ReadIsStale => snapshot = self.before.borrow().read(selections),
            Bug::ReadIsTorn if snapshot.groups.len() > 1 => {
                snapshot.groups[0] = self.before.borrow().read(selections).groups.swap_remove(0);
            }
            Bug::PrefixIsPath => {
                for (selection, group) in selections.iter().zip(&mut snapshot.groups) {
                    if let Selection::Prefix(prefix) = selection
                        && !prefix.ends_with('/')
                    {
                        group.retain(|entry| entry.key.as_str()[prefix.len()..].starts_with('/'));
                    }
                }
            }
            _ => {}
        }
        Ok(snapshot)
    }

    async fn transact(&self, transaction: Transaction) -> Result<Outcome, StoreError> {
        self.expire();
        let transaction = self.distort(transaction);
        let before = self.memory.borrow().clone();
        let mut outcome = self.memory.borrow_mut().transact(&transaction)?;
        if let Outcome::Conflict { current, .. } = &mut outcome {
            if self.bug == Bug::ConflictIsHalfDone {
                let half = Transaction {
                    operations: transaction.operations.into_iter().skip(1).collect(),
                    ..Transaction::default()
                };
                self.memory.borrow_mut().transact(&half)?;
            }
            if self.bug == Bug::ConflictSaysNothing {
                current.clear();
            }
        } else {
            *self.before.borrow_mut() = before;
        }
        self.changed.notify_all();
        self.platform.sleep(Duration::from_micros(1)).await;
        Ok(outcome)
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<BuggyWatch, StoreError> {
        let current = self.memory.borrow().revision().next();
        let forgets = matches!(self.bug, Bug::WatchForgetsThePast);
        let next = if forgets { from.max(current) } else { from };
        Ok(BuggyWatch {
            store: self.clone(),
            prefix: prefix.to_owned(),
            next,
            held_back: Vec::new(),
            count: 0,
        })
    }

    async fn grant_lease(&self, time_to_live: Duration) -> Result<LeaseId, StoreError> {
        let longer = if self.bug == Bug::LeaseOutlivesItsTime { 1_000_000 } else { 1 };
        Ok(self.memory.borrow_mut().grant_lease(self.platform.now(), time_to_live * longer))
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.expire();
        self.memory.borrow_mut().keep_alive(self.platform.now(), lease)
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.memory.borrow_mut().revoke_lease(lease)?;
        if self.bug == Bug::LeaseKeepsDetachedKeys {
            let delete = Operation::Delete { key: key("attached", "three") };
            self.memory.borrow_mut().transact(&Transaction::new().operation(delete))?;
        }
        self.changed.notify_all();
        Ok(())
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        if self.bug != Bug::CompactionIsIgnored {
            self.memory.borrow_mut().compact(revision);
        }
        Ok(())
    }
}

struct BuggyWatch {
    store: Buggy,
    prefix: String,
    next: Revision,
    held_back: Vec<Event>,
    count: usize,
}

impl StateWatch for BuggyWatch {
    async fn next(&mut self) -> Result<Vec<Event>, StoreError> {
        if !self.held_back.is_empty() {
            return Ok(std::mem::take(&mut self.held_back));
        }
        loop {
            let notified = self.store.changed.notified();
            self.store.expire();
            let pending = self.store.memory.borrow().events(&self.prefix, self.next)?;
            if pending.events.is_empty() {
                let expiry = self.store.memory.borrow().next_expiry();
                let hour = Duration::from_secs(3600);
                let deadline = expiry.unwrap_or(self.store.platform.now() + hour) - self.store.early();
                spandrel_platform::before(&self.store.platform, deadline, notified).await;
                continue;
            }
            if self.store.bug == Bug::WatchLosesWhatWasDropped {
                self.next = pending.next;
            }
            self.store.platform.sleep(Duration::from_micros(1)).await;
            self.next = pending.next;
            let mut events = pending.events;
            self.count += 1;
            match self.store.bug {
                Bug::WatchSkips if self.count > 2 => drop(events.remove(0)),
                Bug::WatchRepeats => events.push(events[0].clone()),
                Bug::WatchSplitsRevisions if events.len() > 1 => {
                    self.held_back = events.split_off(events.len() - 1);
                }
                _ => {}
            }
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }
}

struct BuggySuite(Buggy);

impl Harness for BuggySuite {
    type Store = Buggy;

    fn store(&self) -> Buggy {
        self.0.clone()
    }

    fn now(&self) -> Instant {
        self.0.platform.now()
    }

    async fn sleep(&self, duration: Duration) {
        self.0.platform.sleep(duration).await;
    }

    fn time_to_live(&self) -> Duration {
        Duration::from_secs(5)
    }
}

fn passes(bug: Bug) -> bool {
    catch_unwind(AssertUnwindSafe(|| {
        let platform = TestPlatform::new(1);
        let suite = BuggySuite(Buggy::new(bug, platform.clone()));
        platform.run(async move { check_all(&suite).await });
    }))
    .is_ok()
}

#[test]
fn a_store_without_bugs_passes() {
    assert!(passes(Bug::None));
}

#[test]
fn every_planted_bug_is_found() {
    let unnoticed: Vec<_> = BUGS.into_iter().filter(|bug| passes(*bug)).collect();
    assert_eq!(unnoticed, []);
}
