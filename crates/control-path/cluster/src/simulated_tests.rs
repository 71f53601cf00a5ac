use futures_util::future::join_all;

use super::*;
use crate::conformance::{Harness, check_all};
use crate::store::{Expected, Key};
use crate::test_platform::TestPlatform;

struct Suite {
    platform: TestPlatform,
    state: SimulatedState<TestPlatform>,
    clients: Cell<u64>,
}

impl Harness for Suite {
    type Store = SimulatedStore<TestPlatform>;

    fn store(&self) -> Self::Store {
        self.clients.set(self.clients.get() + 1);
        self.state.client(self.clients.get(), self.platform.clone())
    }

    fn now(&self) -> spandrel_platform::Instant {
        self.platform.now()
    }

    async fn sleep(&self, duration: Duration) {
        self.platform.sleep(duration).await;
    }

    fn time_to_live(&self) -> Duration {
        Duration::from_secs(5)
    }
}

#[test]
fn it_conforms_whatever_the_delays() {
    for seed in 0..20 {
        let platform = TestPlatform::new(seed);
        let faults = Faults { delay_max: Duration::from_millis(seed), ..Faults::default() };
        let state = SimulatedState::new(platform.clone(), faults);
        let suite = Suite { platform: platform.clone(), state, clients: Cell::new(0) };
        platform.run(async move { check_all(&suite).await });
    }
}

fn key(name: &str) -> Key {
    Key::new(name)
}

/// A service with one client.
fn service(faults: Faults) -> (TestPlatform, SimulatedState<TestPlatform>, SimulatedStore<TestPlatform>) {
    let platform = TestPlatform::new(7);
    let state = SimulatedState::new(platform.clone(), faults);
    let store = state.client(1, platform.clone());
    (platform, state, store)
}

fn error_kind<T>(result: Result<T, StoreError>) -> StoreErrorKind {
    result.err().expect("it must fail").kind
}

#[test]
fn a_lost_answer_leaves_the_change_made() {
    let (platform, state, store) = service(Faults { answer_lost_per_mille: 1000, ..Faults::default() });
    let own = state.clone();
    platform.run(async move {
        let result = store.transact(Transaction::new().put(&key("a"), *b"1")).await;
        assert_eq!(error_kind(result), StoreErrorKind::Unknown);
        assert!(own.inspect(&[Selection::key(&key("a"))]).entry(0).is_some());
        assert_eq!(error_kind(store.read(&[]).await), StoreErrorKind::Unavailable, "a read changes nothing");
    });
}

#[test]
fn a_late_request_is_applied_after_its_sender_gave_up() {
    let faults = Faults {
        request_late_per_mille: 1000,
        late_max: Duration::from_secs(60),
        answer_timeout: Duration::from_millis(1),
        ..Faults::default()
    };
    let (platform, state, store) = service(faults);
    platform.clone().run(async move {
        let result = store.transact(Transaction::new().put(&key("a"), *b"1")).await;
        assert_eq!(error_kind(result), StoreErrorKind::Unknown);
        assert!(state.inspect(&[Selection::key(&key("a"))]).entry(0).is_none(), "not yet applied");
        platform.sleep(Duration::from_secs(60)).await;
        assert!(state.inspect(&[Selection::key(&key("a"))]).entry(0).is_some(), "applied by now");
    });
}

#[test]
fn an_outage_and_a_cut_change_nothing_and_end_watches() {
    let (platform, state, store) = service(Faults::default());
    let other = state.client(2, platform.clone());
    platform.run(async move {
        let put = |value: u8| Transaction::new().put(&key("a"), [value]);
        store.transact(put(1)).await.unwrap();
        let from = store.read(&[]).await.unwrap().revision.next();
        let mut watches = [store.watch("", from).await.unwrap(), other.watch("", from).await.unwrap()];

        state.set_cut_off(1, true);
        assert_eq!(error_kind(watches[0].next().await), StoreErrorKind::Unavailable);
        assert_eq!(error_kind(store.transact(put(2)).await), StoreErrorKind::Unavailable);
        other.transact(put(3)).await.unwrap();
        assert_eq!(watches[1].next().await.unwrap().len(), 1, "the other client goes on");
        state.set_cut_off(1, false);
        let events = store.watch("", from).await.unwrap().next().await.unwrap();
        assert_eq!(events.len(), 1, "what was missed is delivered later");

        let lease = store.grant_lease(Duration::from_secs(3)).await.unwrap();
        state.set_outage(true);
        assert_eq!(error_kind(other.transact(put(4)).await), StoreErrorKind::Unavailable);
        assert_eq!(error_kind(watches[1].next().await), StoreErrorKind::Unavailable);
        store.platform.sleep(Duration::from_secs(60)).await;
        state.set_outage(false);
        store.keep_alive(lease).await.expect("no lease expires while nobody can renew it");
        let value = state.inspect(&[Selection::key(&key("a"))]).entry(0).unwrap().value.clone();
        assert_eq!(&*value, [3]);
    });
}

#[test]
fn a_restored_backup_goes_back_and_ends_watches() {
    let (platform, state, store) = service(Faults::default());
    platform.run(async move {
        store.transact(Transaction::new().put(&key("a"), *b"old")).await.unwrap();
        let backup = state.backup();
        store.transact(Transaction::new().put(&key("a"), *b"new")).await.unwrap();
        let mut watch = store.watch("", Revision(1)).await.unwrap();
        assert_eq!(watch.next().await.unwrap().len(), 2);
        state.restore(backup);
        assert_eq!(error_kind(watch.next().await), StoreErrorKind::Unavailable);
        let snapshot = store.read(&[Selection::key(&key("a"))]).await.unwrap();
        assert_eq!((snapshot.revision, &*snapshot.entry(0).unwrap().value), (Revision(1), &b"old"[..]));
    });
}

/// Workers add their own numbers to a list while everything goes wrong. Whoever was told that it
/// succeeded is in the list, whoever was told that it failed is not, and an unknown outcome that was
/// settled by changing what it compared does not change any more.
#[test]
fn answers_are_true_whatever_fails() {
    let mut unknown_and_there = 0;
    let mut unknown_and_not = 0;
    for seed in 0..30 {
        let platform = TestPlatform::new(seed);
        let faults = Faults {
            request_lost_per_mille: 100,
            answer_lost_per_mille: 100,
            request_late_per_mille: 100,
            delay_max: Duration::from_millis(50),
            answer_timeout: Duration::from_millis(200),
            late_max: Duration::from_millis(500),
            ..Faults::default()
        };
        let state = SimulatedState::new(platform.clone(), faults);
        let workers: Vec<_> = (0..4).map(|number| state.client(number, platform.clone())).collect();
        let own = platform.clone();
        let (verdicts, settled) = platform.run(async move {
            let verdicts = join_all(workers.into_iter().map(add_numbers)).await;
            let settled = list_of(&state);
            // Whatever was still on its way has arrived by then.
            own.sleep(Duration::from_secs(2)).await;
            assert_eq!(list_of(&state), settled, "seed {seed}: a settled outcome changed");
            (verdicts, settled)
        });
        for (number, verdict) in verdicts.into_iter().flatten() {
            let there = settled.contains(&number);
            match verdict {
                Some(made) => assert_eq!(there, made, "seed {seed}: {number}"),
                None if there => unknown_and_there += 1,
                None => unknown_and_not += 1,
            }
        }
    }
    assert!(unknown_and_there > 10 && unknown_and_not > 10, "{unknown_and_there} {unknown_and_not}");
}

fn list_of(state: &SimulatedState<TestPlatform>) -> Vec<u64> {
    numbers(state.inspect(&[Selection::key(&key("list"))]).entry(0))
}

fn numbers(entry: Option<&crate::store::Entry>) -> Vec<u64> {
    let words = entry.map(|entry| String::from_utf8(entry.value.to_vec()).unwrap()).unwrap_or_default();
    words.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

/// Adds ten numbers; says of each whether it was made, not made, or not known.
async fn add_numbers(store: SimulatedStore<TestPlatform>) -> Vec<(u64, Option<bool>)> {
    let mut verdicts = Vec::new();
    for round in 0..10 {
        let number = store.client * 100 + round;
        let verdict = loop {
            let Ok(snapshot) = store.read(&[Selection::key(&key("list"))]).await else { continue };
            let entry = snapshot.entry(0);
            let mut list = numbers(entry);
            list.push(number);
            let text: Vec<_> = list.iter().map(u64::to_string).collect();
            let expected = entry.map_or(Expected::Absent, |entry| Expected::ModifiedAt(entry.modified));
            let compare = Transaction::new().expect(&key("list"), expected.clone());
            match store.transact(compare.put(&key("list"), text.join(" ").into_bytes())).await {
                Ok(Outcome::Committed { .. }) => break Some(true),
                Ok(Outcome::Conflict { .. }) => break Some(false),
                Err(error) if error.kind == StoreErrorKind::Unavailable => break Some(false),
                Err(_) => {
                    list.pop();
                    settle(&store, expected, &list).await;
                    break None;
                }
            }
        };
        verdicts.push((number, verdict));
    }
    verdicts
}

/// Writes the list as it was, under the same condition, until that has an outcome.
async fn settle(store: &SimulatedStore<TestPlatform>, expected: Expected, list: &[u64]) {
    let text: Vec<_> = list.iter().map(u64::to_string).collect();
    let transaction =
        Transaction::new().expect(&key("list"), expected).put(&key("list"), text.join(" ").into_bytes());
    while store.transact(transaction.clone()).await.is_err() {}
}
