//! What every make of the store must do, as one suite of tests.
//!
//! A make passes if [`check_all`] returns: each check panics at the first thing that is not as
//! the trait promises. The suite knows nothing of the make but how to get handles and to let time
//! pass, so it runs against a real store as well as in a simulation. It uses only keys below
//! `conformance/`, each check its own.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use futures_util::future::{Either, FutureExt, join, join_all, select};
use spandrel_platform::Instant;

use crate::store::{
    Entry, Event, Expected, Key, LeaseId, Outcome, Revision, Selection, Snapshot, StateStore, StateWatch,
    StoreError, StoreErrorKind, TRANSACTION_BYTES_MAX, TRANSACTION_OPERATIONS_MAX, Transaction,
};

/// How the suite gets at a make of the store, which must work without faults meanwhile.
pub trait Harness {
    /// The make.
    type Store: StateStore;

    /// A further handle to the one state, as another thread or process would have it.
    fn store(&self) -> Self::Store;

    /// A clock that runs no faster than the one by which leases expire.
    fn now(&self) -> Instant;

    /// Lets time pass.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()>;

    /// The shortest time to live for which a lease is worth testing.
    fn time_to_live(&self) -> Duration;
}

/// Runs every check, one after the other.
pub async fn check_all(harness: &impl Harness) {
    reads_see_what_was_written(harness).await;
    prefixes_end_where_they_end(harness).await;
    transactions_are_all_or_nothing(harness).await;
    limits_are_refused(harness).await;
    random_transactions_equal_a_naive_map(harness).await;
    concurrent_increments_all_count(harness).await;
    concurrent_transfers_keep_the_sum(harness).await;
    watches_deliver_all_once_in_order(harness).await;
    watches_see_the_past(harness).await;
    a_dropped_wait_loses_nothing(harness).await;
    compacted_history_is_refused(harness).await;
    leases_expire_and_not_early(harness).await;
    leases_hold_only_their_own_keys(harness).await;
}

fn key(check: &str, name: impl std::fmt::Display) -> Key {
    Key::new(&format!("conformance/{check}/{name}"))
}

async fn read(store: &impl StateStore, selections: &[Selection]) -> Snapshot {
    store.read(selections).await.expect("a read without faults succeeds")
}

async fn get(store: &impl StateStore, key: &Key) -> Option<Entry> {
    read(store, &[Selection::key(key)]).await.groups.remove(0).pop()
}

async fn list(store: &impl StateStore, check: &str) -> Vec<Entry> {
    read(store, &[Selection::Prefix(format!("conformance/{check}/"))]).await.groups.remove(0)
}

/// The revision of a transaction that must succeed.
async fn commit(store: &impl StateStore, transaction: Transaction) -> Revision {
    match store.transact(transaction).await.expect("a transaction without faults is answered") {
        Outcome::Committed { revision } => revision,
        conflict @ Outcome::Conflict { .. } => panic!("no condition fails here: {conflict:?}"),
    }
}

fn kind<T>(result: Result<T, StoreError>) -> Option<StoreErrorKind> {
    result.err().map(|error| error.kind)
}

async fn reads_see_what_was_written(harness: &impl Harness) {
    let (writer, reader) = (harness.store(), harness.store());
    let [first, second] = ["first", "second"].map(|name| key("read", name));
    assert_eq!(get(&reader, &first).await, None);
    let before = read(&reader, &[]).await.revision;
    let made = commit(&writer, Transaction::new().put(&first, *b"one").put(&second, *b"two")).await;
    assert!(made > before, "a change raises the revision");
    let entry = get(&reader, &first).await.expect("it was answered, so it is seen");
    assert_eq!((&*entry.value, entry.created, entry.modified, entry.lease), (&b"one"[..], made, made, None));
    let changed = commit(&writer, Transaction::new().put(&first, *b"")).await;
    let snapshot = read(&reader, &[Selection::key(&second), Selection::key(&first)]).await;
    assert_eq!(snapshot.revision, changed);
    let [second, first] = [0, 1].map(|index| snapshot.entry(index).expect("both are there").clone());
    assert_eq!((&*first.value, first.created, first.modified), (&b""[..], made, changed));
    assert_eq!((&*second.value, second.modified), (&b"two"[..], made));
}

async fn prefixes_end_where_they_end(harness: &impl Harness) {
    let store = harness.store();
    let names = ["a", "a/1", "a/2", "a0", "ab/1", "b"];
    let all = names.iter().fold(Transaction::new(), |all, name| all.put(&key("prefix", name), *b"x"));
    commit(&store, all).await;
    for (prefix, expected) in
        [("a/", &names[1..3]), ("a", &names[..5]), ("", &names[..]), ("c", &[]), ("ab", &names[4..5])]
    {
        let selection = Selection::Prefix(format!("conformance/prefix/{prefix}"));
        let found = read(&store, &[selection]).await.groups.remove(0);
        let found: Vec<_> = found.iter().map(|entry| entry.key.clone()).collect();
        let expected: Vec<_> = expected.iter().map(|name| key("prefix", name)).collect();
        assert_eq!(found, expected, "prefix {prefix:?}");
    }
}

async fn transactions_are_all_or_nothing(harness: &impl Harness) {
    let store = harness.store();
    let [here, there, other] = ["here", "there", "other"].map(|name| key("transaction", name));
    let absent = |key: &Key| Transaction::new().expect(key, Expected::Absent);
    let made = commit(&store, absent(&here).put(&here, *b"1")).await;
    let again = store.transact(absent(&here).put(&here, *b"2").put(&there, *b"2")).await;
    let Ok(Outcome::Conflict { current, .. }) = again else { panic!("{again:?} is no conflict") };
    assert_eq!(current.len(), 1);
    assert_eq!(current[0].as_ref().map(|entry| entry.modified), Some(made), "the conflict says what stands");
    assert_eq!(get(&store, &there).await, None, "no part of it was done");

    let right = Transaction::new()
        .expect(&here, Expected::ModifiedAt(made))
        .expect(&other, Expected::Absent)
        .put(&there, *b"3")
        .delete(&here);
    let moved = commit(&store, right.clone()).await;
    let names: Vec<_> = list(&store, "transaction").await.into_iter().map(|entry| entry.key).collect();
    assert_eq!(names, std::slice::from_ref(&there));
    let repeated = store.transact(right).await;
    let Ok(Outcome::Conflict { current, .. }) = repeated else { panic!("{repeated:?} is no conflict") };
    assert_eq!(current, [None, None]);

    let nothing = commit(&store, Transaction::new().delete(&here)).await;
    assert_eq!(nothing, moved, "deleting what is not there changes nothing");
    let checked = commit(&store, Transaction::new().expect(&there, Expected::ModifiedAt(moved))).await;
    assert_eq!(checked, moved, "a condition alone changes nothing");
    let anew = commit(&store, Transaction::new().put(&here, *b"4")).await;
    let entry = get(&store, &here).await.expect("it was just made");
    assert_eq!(entry.created, anew, "a key that is made anew begins anew");
}

async fn limits_are_refused(harness: &impl Harness) {
    let store = harness.store();
    let many = |count| (0..count).fold(Transaction::new(), |all, name| all.put(&key("limit", name), *b"x"));
    commit(&store, many(TRANSACTION_OPERATIONS_MAX)).await;
    assert_eq!(list(&store, "limit").await.len(), TRANSACTION_OPERATIONS_MAX);
    let long = key("limit", "long");
    let room = TRANSACTION_BYTES_MAX - long.as_str().len();
    commit(&store, Transaction::new().put(&long, vec![7; room])).await;
    assert_eq!(get(&store, &long).await.map(|entry| entry.value.len()), Some(room));

    let before = read(&store, &[]).await.revision;
    for refused in [
        many(TRANSACTION_OPERATIONS_MAX + 1),
        Transaction::new().put(&long, vec![7; room + 1]),
        Transaction::new().put(&long, *b"a").delete(&long),
        Transaction::new().put(&Key::new(""), *b"a"),
    ] {
        assert_eq!(kind(store.transact(refused).await), Some(StoreErrorKind::Invalid));
    }
    assert_eq!(read(&store, &[]).await.revision, before, "nothing was changed");
}

/// A small generator, so that the suite is the same in every run.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) % limit
    }
}

async fn random_transactions_equal_a_naive_map(harness: &impl Harness) {
    let stores = [harness.store(), harness.store()];
    let mut naive: BTreeMap<Key, (Vec<u8>, Revision)> = BTreeMap::new();
    let mut draws = Draws(1);
    for round in 0..300 {
        let store = &stores[draws.below(2) as usize];
        let mut transaction = Transaction::new();
        let mut holds = true;
        for _ in 0..draws.below(3) {
            let key = key("random", draws.below(6));
            let (expected, right) = match (naive.get(&key), draws.below(5)) {
                (Some((_, modified)), 1..) => (Expected::ModifiedAt(*modified), true),
                (None, 1..) => (Expected::Absent, true),
                (Some((_, modified)), 0) => (Expected::ModifiedAt(Revision(modified.0 - 1)), false),
                (None, 0) => (Expected::ModifiedAt(Revision(1)), false),
            };
            holds &= right;
            transaction = transaction.expect(&key, expected);
        }
        let mut after: BTreeMap<Key, Option<Vec<u8>>> = BTreeMap::new();
        for _ in 0..draws.below(4) {
            let key = key("random", draws.below(6));
            let value = (draws.below(3) > 0).then(|| format!("{round}").into_bytes());
            after.entry(key).or_insert(value);
        }
        for (key, value) in &after {
            transaction = match value {
                Some(value) => transaction.put(key, value.as_slice()),
                None => transaction.delete(key),
            };
        }
        match store.transact(transaction).await.expect("a transaction without faults is answered") {
            Outcome::Conflict { .. } => assert!(!holds, "round {round}: every condition held"),
            Outcome::Committed { revision } => {
                assert!(holds, "round {round}: a condition did not hold");
                for (key, value) in after {
                    match value {
                        Some(value) => naive.insert(key, (value, revision)),
                        None => naive.remove(&key),
                    };
                }
            }
        }
        let found: BTreeMap<_, _> = list(store, "random")
            .await
            .into_iter()
            .map(|entry| (entry.key, (entry.value.to_vec(), entry.modified)))
            .collect();
        assert_eq!(found, naive, "round {round}");
    }
}

/// The number that stands at a key.
fn number(entry: &Entry) -> u64 {
    let text = std::str::from_utf8(&entry.value).expect("the check wrote text");
    text.parse().expect("the check wrote a number")
}

/// Adds one to `key`, as often as it takes. Returns the number before.
async fn increment(store: &impl StateStore, key: &Key) -> u64 {
    loop {
        let entry = get(store, key).await.expect("the counter is there");
        let next = (number(&entry) + 1).to_string().into_bytes();
        let transaction = Transaction::new().expect(key, Expected::ModifiedAt(entry.modified)).put(key, next);
        match store.transact(transaction).await.expect("a transaction without faults is answered") {
            Outcome::Committed { .. } => return number(&entry),
            Outcome::Conflict { .. } => {}
        }
    }
}

async fn concurrent_increments_all_count(harness: &impl Harness) {
    const WORKERS: u64 = 8;
    const ROUNDS: u64 = 10;
    let key = key("increment", "counter");
    commit(&harness.store(), Transaction::new().put(&key, *b"0")).await;
    let worker = || async {
        let store = harness.store();
        let mut seen = Vec::new();
        for _ in 0..ROUNDS {
            seen.push(increment(&store, &key).await);
        }
        seen
    };
    let mut seen: Vec<_> = join_all((0..WORKERS).map(|_| worker())).await.into_iter().flatten().collect();
    seen.sort_unstable();
    let expected: Vec<_> = (0..WORKERS * ROUNDS).collect();
    assert_eq!(seen, expected, "each increment saw another number");
}

/// Workers move amounts between two keys and readers look at both: never a wrong sum.
async fn concurrent_transfers_keep_the_sum(harness: &impl Harness) {
    let keys = ["left", "right"].map(|name| key("transfer", name));
    let both = keys.iter().map(Selection::key).collect::<Vec<_>>();
    commit(&harness.store(), Transaction::new().put(&keys[0], *b"1000").put(&keys[1], *b"1000")).await;
    let worker = |amount: u64| {
        let both = &both;
        async move {
            let store = harness.store();
            for _ in 0..10 {
                let snapshot = read(&store, both).await;
                let entries = [0, 1].map(|index| snapshot.entry(index).expect("both are there").clone());
                let [left, right] = entries.each_ref().map(number);
                assert_eq!(left + right, 2000, "a read saw half of a transaction");
                let mut transaction = Transaction::new();
                for (entry, value) in entries.iter().zip([left - amount, right + amount]) {
                    transaction = transaction
                        .expect(&entry.key, Expected::ModifiedAt(entry.modified))
                        .put(&entry.key, value.to_string().into_bytes());
                }
                store.transact(transaction).await.expect("a transaction without faults is answered");
            }
        }
    };
    join_all((1..7).map(worker)).await;
    let snapshot = read(&harness.store(), &both).await;
    assert_ne!(snapshot.entry(0).map(number), Some(1000), "some transfer must have succeeded");
}

/// Takes events from the watch until one of revision `last` was among them.
async fn events_until(watch: &mut impl StateWatch, last: Revision) -> Vec<Event> {
    let mut events: Vec<Event> = Vec::new();
    while events.last().is_none_or(|event| event.revision() < last) {
        let batch = watch.next().await.expect("a watch without faults goes on");
        assert!(!batch.is_empty(), "a watch wakes for something");
        if let (Some(former), Some(first)) = (events.last(), batch.first()) {
            assert!(former.revision() < first.revision(), "a revision came in two parts");
        }
        events.extend(batch);
    }
    events
}

async fn watches_deliver_all_once_in_order(harness: &impl Harness) {
    const WRITERS: u64 = 4;
    const ROUNDS: u64 = 10;
    let store = harness.store();
    let from = read(&store, &[]).await.revision.next();
    let mut watches = Vec::new();
    for _ in 0..3 {
        let watch = harness.store().watch("conformance/watch/", from).await;
        watches.push(watch.expect("a watch from now on is possible"));
    }
    let writer = |writer: u64| {
        let store = harness.store();
        async move {
            let mut written = Vec::new();
            for round in 0..ROUNDS {
                let [own, shared] = [key("watch", writer), key("watch", "shared")];
                let outside = key("watchful", "not below the prefix");
                let mut transaction = Transaction::new().put(&outside, *b"x").put(&shared, *b"x");
                transaction = if round % 3 == 2 {
                    transaction.delete(&own)
                } else {
                    transaction.put(&own, round.to_string().into_bytes())
                };
                written.push((commit(&store, transaction).await, own, round));
            }
            written
        }
    };
    // One watches while the changes are made, the others afterwards.
    let mut meanwhile = watches.pop().expect("three were made");
    let watcher = async {
        let mut events = Vec::new();
        while (events.len() as u64) < 2 * WRITERS * ROUNDS {
            events.extend(meanwhile.next().await.expect("a watch without faults goes on"));
        }
        events
    };
    let (written, seen) = join(join_all((0..WRITERS).map(writer)), watcher).await;
    let mut written: Vec<_> = written.into_iter().flatten().collect();
    written.sort_unstable();
    let last = written.last().expect("something was written").0;
    let mut all_seen = vec![seen];
    for watch in &mut watches {
        all_seen.push(events_until(watch, last).await);
    }
    for events in all_seen {
        assert_eq!(events.len(), 2 * written.len(), "every change once, and no other");
        for (pair, (revision, own, round)) in events.chunks(2).zip(&written) {
            assert_eq!([pair[0].revision(), pair[1].revision()], [*revision; 2]);
            let own = pair.iter().find(|event| event.key() == own).expect("both keys changed");
            match own {
                Event::Put(entry) => assert_eq!(number(entry), *round),
                Event::Deleted { .. } => assert_eq!(round % 3, 2),
            }
        }
    }
}

async fn watches_see_the_past(harness: &impl Harness) {
    let store = harness.store();
    let key = key("past", "key");
    let mut revisions = Vec::new();
    for round in 0..5_u8 {
        revisions.push(commit(&store, Transaction::new().put(&key, [round])).await);
    }
    for from in 0..revisions.len() {
        let watch = harness.store().watch("conformance/past/", revisions[from]).await;
        let events = events_until(&mut watch.expect("it is not compacted"), revisions[4]).await;
        let seen: Vec<_> = events.iter().map(Event::revision).collect();
        assert_eq!(seen, revisions[from..]);
    }
}

/// A task that waits for several things drops the waits that lost.
async fn a_dropped_wait_loses_nothing(harness: &impl Harness) {
    let store = harness.store();
    let key = key("dropped", "key");
    let from = read(&store, &[]).await.revision.next();
    let mut watch = store.watch("conformance/dropped/", from).await.expect("a watch from now on is possible");
    let (mut written, mut seen) = (Vec::new(), Vec::new());
    for round in 0..20_u8 {
        for _ in 0..3 {
            // Polled once, then dropped unless it was ready.
            if let Some(batch) = watch.next().now_or_never() {
                seen.extend(batch.expect("a watch without faults goes on"));
            }
        }
        written.push(commit(&store, Transaction::new().put(&key, [round])).await);
    }
    let last = written[written.len() - 1];
    if seen.last().is_none_or(|event| event.revision() < last) {
        seen.extend(events_until(&mut watch, last).await);
    }
    let seen: Vec<_> = seen.iter().map(Event::revision).collect();
    assert_eq!(seen, written);
}

async fn compacted_history_is_refused(harness: &impl Harness) {
    let store = harness.store();
    let key = key("compact", "key");
    let first = commit(&store, Transaction::new().put(&key, *b"1")).await;
    let second = commit(&store, Transaction::new().put(&key, *b"2")).await;
    let third = commit(&store, Transaction::new().put(&key, *b"3")).await;
    store.compact(second).await.expect("compacting without faults succeeds");
    for from in [Revision(1), first, second] {
        let mut refused = match store.watch("conformance/compact/", from).await {
            // Some makes say so only when asked for events.
            Ok(mut watch) => kind(watch.next().await),
            refused => kind(refused),
        };
        if let Some(StoreErrorKind::Compacted { oldest }) = &mut refused {
            assert!(*oldest > second && *oldest <= third, "oldest {oldest} of {second} compacted");
        } else {
            panic!("a watch from {from} was not refused: {refused:?}");
        }
    }
    let mut watch = store.watch("conformance/compact/", third).await.expect("it is not compacted");
    assert_eq!(events_until(&mut watch, third).await.len(), 1);
    let entry = get(&store, &key).await.expect("compacting takes no key");
    assert_eq!((&*entry.value, entry.created), (&b"3"[..], first));
}

async fn leases_expire_and_not_early(harness: &impl Harness) {
    let store = harness.store();
    let time_to_live = harness.time_to_live();
    let [leased, kept] = ["leased", "kept"].map(|name| key("lease", name));
    let granted = harness.now();
    let lease = store.grant_lease(time_to_live).await.expect("a lease without faults is granted");
    let made = commit(&store, Transaction::new().put_leased(&leased, *b"x", lease).put(&kept, *b"y")).await;
    assert_eq!(get(&store, &leased).await.and_then(|entry| entry.lease), Some(lease));
    let mut watch = store.watch("conformance/lease/", made.next()).await.expect("it is not compacted");
    let mut renewed = granted;
    for _ in 0..3 {
        harness.sleep(time_to_live / 2).await;
        let before = harness.now();
        match store.keep_alive(lease).await {
            Ok(()) => renewed = before,
            // The machine may have slept longer than it was asked to.
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::LeaseGone);
                assert!(before.since(renewed) >= time_to_live, "the lease expired early");
            }
        }
    }
    let too_long = std::pin::pin!(harness.sleep(time_to_live * 100));
    let events = match select(std::pin::pin!(watch.next()), too_long).await {
        Either::Left((events, _)) => events.expect("a watch without faults goes on"),
        Either::Right(_) => panic!("the lease does not expire"),
    };
    let gone = harness.now();
    assert!(matches!(&events[..], [Event::Deleted { key, .. }] if *key == leased), "{events:?}");
    assert!(gone.since(renewed) >= time_to_live, "the lease expired early");
    let names: Vec<_> = list(&store, "lease").await.into_iter().map(|entry| entry.key).collect();
    assert_eq!(names, [kept]);
    assert_eq!(kind(store.keep_alive(lease).await), Some(StoreErrorKind::LeaseGone));
    let late = store.transact(Transaction::new().put_leased(&leased, *b"x", lease)).await;
    assert_eq!(kind(late), Some(StoreErrorKind::LeaseGone));
}

async fn leases_hold_only_their_own_keys(harness: &impl Harness) {
    let store = harness.store();
    let long = Duration::from_secs(600);
    let [one, two, three] = ["one", "two", "three"].map(|name| key("attached", name));
    let first = store.grant_lease(long).await.expect("a lease without faults is granted");
    let second = store.grant_lease(long).await.expect("a lease without faults is granted");
    assert_ne!(first, second);
    let attach = |key: &Key, lease: LeaseId| Transaction::new().put_leased(key, *b"x", lease);
    for key in [&one, &two, &three] {
        commit(&store, attach(key, first)).await;
    }
    commit(&store, attach(&two, second)).await;
    commit(&store, Transaction::new().put(&three, *b"y")).await;
    store.revoke_lease(first).await.expect("it is there");
    let left: Vec<_> = list(&store, "attached").await.into_iter().map(|entry| entry.key).collect();
    assert_eq!(left, [three, two], "the revoked lease took what was still attached to it");
    assert_eq!(kind(store.revoke_lease(first).await), Some(StoreErrorKind::LeaseGone));
    store.revoke_lease(second).await.expect("it is there");
    assert_eq!(list(&store, "attached").await.len(), 1);
}

#[cfg(test)]
#[path = "conformance_tests.rs"]
mod tests;
