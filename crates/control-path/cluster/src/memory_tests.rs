use proptest::prelude::*;

use super::*;

fn key(number: u8) -> Key {
    Key::new(&format!("{}/{}", ["a", "ab", "b"][usize::from(number % 3)], number / 3))
}

fn at(seconds: u64) -> Instant {
    Instant::from_nanoseconds(0) + Duration::from_secs(seconds)
}

fn put(number: u8, value: &[u8]) -> Transaction {
    Transaction::new().put(&key(number), value)
}

/// The state again, as simple as can be: a full copy for every revision.
#[derive(Clone, Default)]
struct Naive {
    /// What stood at the keys at each revision, from zero on.
    past: Vec<BTreeMap<Key, Entry>>,
    leases: BTreeMap<LeaseId, (Duration, Instant)>,
    leases_granted: u64,
    compacted: Revision,
}

impl Naive {
    fn new() -> Self {
        Self { past: vec![BTreeMap::new()], ..Self::default() }
    }

    fn revision(&self) -> Revision {
        Revision(self.past.len() as u64 - 1)
    }

    fn entries(&self) -> &BTreeMap<Key, Entry> {
        self.past.last().expect("revision zero is always there")
    }

    /// `None` if a lease is gone.
    fn transact(&mut self, transaction: &Transaction) -> Option<bool> {
        for compare in &transaction.compares {
            let modified = self.entries().get(&compare.key).map(|entry| entry.modified);
            let expected = match compare.expected {
                Expected::Absent => None,
                Expected::ModifiedAt(revision) => Some(revision),
            };
            if modified != expected {
                return Some(false);
            }
        }
        let mut after = self.entries().clone();
        let revision = self.revision().next();
        let mut changed = false;
        for operation in &transaction.operations {
            match operation {
                Operation::Delete { key } => changed |= after.remove(key).is_some(),
                Operation::Put { key, value, lease } => {
                    if lease.is_some_and(|lease| !self.leases.contains_key(&lease)) {
                        return None;
                    }
                    let created = after.get(key).map_or(revision, |entry| entry.created);
                    let entry = Entry {
                        key: key.clone(),
                        value: value.clone(),
                        created,
                        modified: revision,
                        lease: *lease,
                    };
                    after.insert(key.clone(), entry);
                    changed = true;
                }
            }
        }
        if changed {
            self.past.push(after);
        }
        Some(true)
    }

    fn end_lease(&mut self, id: LeaseId) -> bool {
        if self.leases.remove(&id).is_none() {
            return false;
        }
        let mut after = self.entries().clone();
        after.retain(|_, entry| entry.lease != Some(id));
        if after.len() != self.entries().len() {
            self.past.push(after);
        }
        true
    }

    fn expire(&mut self, now: Instant) {
        let over: Vec<_> =
            self.leases.iter().filter(|(_, (_, expires))| *expires <= now).map(|(id, _)| *id).collect();
        for id in over {
            self.end_lease(id);
        }
    }

    /// The changes of every revision from `from` on, found by comparing the copies.
    fn events(&self, prefix: &str, from: Revision) -> Vec<(Revision, Key, Option<Entry>)> {
        let mut events = Vec::new();
        for revision in from.0.max(1)..=self.revision().0 {
            let (before, after) = (&self.past[revision as usize - 1], &self.past[revision as usize]);
            let keys: BTreeSet<_> = before.keys().chain(after.keys()).collect();
            for key in keys {
                if key.as_str().starts_with(prefix) && before.get(key) != after.get(key) {
                    events.push((Revision(revision), key.clone(), after.get(key).cloned()));
                }
            }
        }
        events
    }
}

/// The events of the state, in an order that does not tell the changes of one revision apart.
fn comparable(events: Vec<Event>) -> Vec<(Revision, Key, Option<Entry>)> {
    let mut events: Vec<_> = events
        .into_iter()
        .map(|event| {
            let entry = match &event {
                Event::Put(entry) => Some(entry.clone()),
                Event::Deleted { .. } => None,
            };
            (event.revision(), event.key().clone(), entry)
        })
        .collect();
    events.sort_by(|one, other| (one.0, &one.1).cmp(&(other.0, &other.1)));
    events
}

#[derive(Clone, Debug)]
enum Step {
    /// Keys to compare (true: as they are, false: with something wrong), keys to put with an
    /// optional lease, keys to delete.
    Transact(Vec<(u8, bool)>, Vec<(u8, u8, Option<u8>)>, Vec<u8>),
    Grant(u8),
    KeepAlive(u8),
    Revoke(u8),
    Pass(u8),
    Compact(u8),
    Trim(u8),
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let lease = || prop::option::weighted(0.3, 1..6_u8);
    prop_oneof![
        8 => (
            prop::collection::vec((0..9_u8, prop::bool::weighted(0.9)), 0..3),
            prop::collection::vec((0..9_u8, any::<u8>(), lease()), 0..3),
            prop::collection::vec(0..9_u8, 0..2),
        ).prop_map(|(compares, puts, deletes)| Step::Transact(compares, puts, deletes)),
        2 => (1..20_u8).prop_map(Step::Grant),
        2 => (1..6_u8).prop_map(Step::KeepAlive),
        1 => (1..6_u8).prop_map(Step::Revoke),
        2 => (1..8_u8).prop_map(Step::Pass),
        1 => (0..8_u8).prop_map(Step::Compact),
        1 => (0..8_u8).prop_map(Step::Trim),
        1 => Just(Step::Restart),
    ]
}

fn build(
    naive: &Naive,
    compares: &[(u8, bool)],
    puts: &[(u8, u8, Option<u8>)],
    deletes: &[u8],
) -> Transaction {
    let mut transaction = Transaction::new();
    for (number, right) in compares {
        let expected = match naive.entries().get(&key(*number)) {
            Some(entry) if *right => Expected::ModifiedAt(entry.modified),
            Some(_) => Expected::Absent,
            None if *right => Expected::Absent,
            None => Expected::ModifiedAt(Revision(1)),
        };
        transaction = transaction.expect(&key(*number), expected);
    }
    for (number, value, lease) in puts {
        transaction = match lease {
            Some(lease) => transaction.put_leased(&key(*number), [*value], LeaseId(u64::from(*lease))),
            None => transaction.put(&key(*number), [*value]),
        };
    }
    for number in deletes {
        transaction = transaction.delete(&key(*number));
    }
    transaction
}

/// Does one step to both and compares their answers.
fn apply(step: &Step, memory: &mut Memory, naive: &mut Naive, now: &mut Instant) {
    match step {
        Step::Transact(compares, puts, deletes) => {
            let transaction = build(naive, compares, puts, deletes);
            if transaction.validate().is_err() {
                assert_eq!(
                    memory.transact(&transaction).map_err(|error| error.kind),
                    Err(StoreErrorKind::Invalid)
                );
                return;
            }
            match (memory.transact(&transaction), naive.transact(&transaction)) {
                (Ok(Outcome::Committed { revision }), Some(true)) => assert_eq!(revision, naive.revision()),
                (Ok(Outcome::Conflict { current, .. }), Some(false)) => {
                    let expected: Vec<_> = transaction
                        .compares
                        .iter()
                        .map(|compare| naive.entries().get(&compare.key).cloned())
                        .collect();
                    assert_eq!(current, expected);
                }
                (Err(error), None) => assert_eq!(error.kind, StoreErrorKind::LeaseGone),
                (left, right) => panic!("{left:?} is not {right:?}"),
            }
        }
        Step::Grant(seconds) => {
            let time_to_live = Duration::from_secs(u64::from(*seconds));
            naive.leases_granted += 1;
            let id = LeaseId(naive.leases_granted);
            naive.leases.insert(id, (time_to_live, *now + time_to_live));
            assert_eq!(memory.grant_lease(*now, time_to_live), id);
        }
        Step::KeepAlive(number) => {
            let id = LeaseId(u64::from(*number));
            let known = naive.leases.get_mut(&id).map(|lease| lease.1 = *now + lease.0);
            assert_eq!(memory.keep_alive(*now, id).is_ok(), known.is_some());
        }
        Step::Revoke(number) => {
            let id = LeaseId(u64::from(*number));
            assert_eq!(memory.revoke_lease(id).is_ok(), naive.end_lease(id));
        }
        Step::Pass(seconds) => {
            *now = *now + Duration::from_secs(u64::from(*seconds));
            memory.expire_leases(*now);
            naive.expire(*now);
        }
        Step::Compact(back) => {
            let revision = Revision(naive.revision().0.saturating_sub(u64::from(*back)));
            memory.compact(revision);
            naive.compacted = naive.compacted.max(revision);
        }
        Step::Trim(events) => {
            memory.trim_history(usize::from(*events));
            // How much that forgets depends on how changes share revisions: judged by its bound.
            assert!(memory.history.len() <= usize::from(*events));
            naive.compacted = memory.compacted;
        }
        Step::Restart => {
            *memory = Memory::restore(memory.image(), *now).expect("its own image is sound");
            naive.compacted = naive.revision();
            for (time_to_live, expires) in naive.leases.values_mut() {
                *expires = *now + *time_to_live;
            }
        }
    }
}

fn compare(memory: &Memory, naive: &Naive) {
    assert_eq!(memory.revision(), naive.revision());
    for prefix in ["", "a", "a/", "ab", "b/2", "c"] {
        let expected: Vec<_> = naive
            .entries()
            .values()
            .filter(|entry| entry.key.as_str().starts_with(prefix))
            .cloned()
            .collect();
        let snapshot = memory.read(&[Selection::prefix(prefix)]);
        assert_eq!(snapshot, Snapshot { revision: naive.revision(), groups: vec![expected] });
        for from in 1..=naive.revision().0 + 2 {
            let found = memory.events(prefix, Revision(from));
            if Revision(from) <= naive.compacted {
                let kind = StoreErrorKind::Compacted { oldest: naive.compacted.next() };
                assert_eq!(found.map_err(|error| error.kind), Err(kind));
            } else {
                let found = found.expect("the history is there");
                assert_eq!(comparable(found.events), naive.events(prefix, Revision(from)));
                assert_eq!(found.next.0, from.max(naive.revision().0 + 1));
            }
        }
    }
    for (id, lease) in &memory.leases {
        let keys: BTreeSet<_> = naive
            .entries()
            .values()
            .filter(|entry| entry.lease == Some(*id))
            .map(|entry| entry.key.clone())
            .collect();
        assert_eq!((&lease.keys, lease.expires), (&keys, naive.leases[id].1));
    }
    assert_eq!(memory.leases.len(), naive.leases.len());
    assert_eq!(memory.next_expiry(), naive.leases.values().map(|(_, expires)| *expires).min());
}

proptest! {
    #[test]
    fn the_state_equals_a_naive_one(steps in prop::collection::vec(step(), 1..60)) {
        let (mut memory, mut naive, mut now) = (Memory::new(), Naive::new(), at(1));
        for step in &steps {
            apply(step, &mut memory, &mut naive, &mut now);
            compare(&memory, &naive);
        }
    }
}

#[test]
fn a_transaction_that_fails_changes_nothing() {
    let mut memory = Memory::new();
    memory.transact(&put(0, b"first")).unwrap();
    let before = memory.clone();
    let stale = put(1, b"second").expect(&key(0), Expected::ModifiedAt(Revision(7)));
    let Ok(Outcome::Conflict { revision, current }) = memory.transact(&stale) else { panic!("a conflict") };
    assert_eq!(revision, Revision(1));
    assert_eq!(current[0].as_ref().map(|entry| &*entry.value), Some(&b"first"[..]));
    let leaseless = put(1, b"second").put_leased(&key(2), *b"third", LeaseId(9));
    assert_eq!(memory.transact(&leaseless).unwrap_err().kind, StoreErrorKind::LeaseGone);
    assert_eq!(memory, before);
}

#[test]
fn a_lease_expires_on_time_and_takes_only_its_own_keys() {
    let mut memory = Memory::new();
    let lease = memory.grant_lease(at(0), Duration::from_secs(10));
    let attached = Transaction::new()
        .put_leased(&key(0), *b"x", lease)
        .put_leased(&key(1), *b"y", lease)
        .put(&key(2), *b"z");
    memory.transact(&attached).unwrap();
    memory.transact(&put(1, b"detached")).unwrap();
    memory.keep_alive(at(5), lease).unwrap();
    assert!(!memory.expire_leases(at(15) - Duration::from_nanos(1)));
    assert!(memory.expire_leases(at(15)));
    let keys: Vec<_> =
        memory.read(&[Selection::prefix("")]).groups.remove(0).into_iter().map(|entry| entry.key).collect();
    assert_eq!(keys, [key(1), key(2)]);
    assert_eq!(memory.keep_alive(at(15), lease).unwrap_err().kind, StoreErrorKind::LeaseGone);
    assert_ne!(memory.grant_lease(at(16), Duration::from_secs(1)), lease, "leases are not reused");
}

#[test]
fn many_events_come_in_whole_revisions() {
    let mut memory = Memory::new();
    for number in 0..700 {
        let pair = Transaction::new()
            .put(&Key::new(&format!("x/{number}")), *b"1")
            .put(&Key::new(&format!("y/{number}")), *b"1");
        memory.transact(&pair).unwrap();
    }
    let (mut from, mut seen) = (Revision(1), Vec::new());
    loop {
        let pending = memory.events("", from).unwrap();
        if pending.events.is_empty() {
            break;
        }
        assert!(pending.events.len().is_multiple_of(2), "a revision came in two parts");
        assert!(pending.events.len() <= EVENTS_PER_BATCH);
        seen.extend(pending.events.iter().map(Event::revision));
        from = pending.next;
    }
    let expected: Vec<_> = (1..=700).flat_map(|revision| [Revision(revision); 2]).collect();
    assert_eq!(seen, expected);
}

#[test]
fn an_image_with_a_key_of_an_unknown_lease_is_refused() {
    let mut memory = Memory::new();
    let lease = memory.grant_lease(at(0), Duration::from_secs(1));
    memory.transact(&Transaction::new().put_leased(&key(0), *b"x", lease)).unwrap();
    let mut image = memory.image();
    assert!(Memory::restore(image.clone(), at(0)).is_some());
    image.leases.clear();
    assert_eq!(Memory::restore(image, at(0)), None);
}
