use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant as StdInstant;

use spandrel_cluster::conformance::{Harness, check_all};
use spandrel_cluster::store::{Event, Expected, Key, StateWatch};
use spandrel_platform::Instant;

use super::*;
use crate::testing::{Etcd, await_answer, block_on, commit, connect, free_url, put, when_possible};

struct Suite {
    etcd: Etcd,
    started: StdInstant,
}

impl Harness for Suite {
    type Store = EtcdState;

    fn store(&self) -> EtcdState {
        self.etcd.state()
    }

    fn now(&self) -> Instant {
        Instant::from_nanoseconds(0) + self.started.elapsed()
    }

    async fn sleep(&self, duration: Duration) {
        let (sender, receiver) = oneshot::channel();
        std::thread::spawn(move || {
            std::thread::sleep(duration); // tidy-allow(sleep): this is the platform's own clock in these tests
            // Nobody may be waiting any more.
            let _ = sender.send(());
        });
        receiver.await.expect("the sleeping thread answers");
    }

    fn time_to_live(&self) -> Duration {
        // Long enough that nothing expires because the machine is busy.
        Duration::from_secs(4)
    }
}

#[test]
fn it_does_what_every_make_of_the_store_must_do() {
    // A single member elects itself and stays the leader: nothing is left open, as the suite expects.
    let suite = Suite { etcd: Etcd::start(1), started: StdInstant::now() };
    block_on(check_all(&suite));
}

#[test]
fn namespaces_share_an_etcd_and_not_their_keys() {
    let etcd = Etcd::start(1);
    let [one, two, outside] = ["one/", "two/", ""].map(|namespace| etcd.state_in(namespace));
    let from = commit(&one, put("key", b"1"));
    commit(&two, put("key", b"2"));
    let value = |state: &EtcdState, key: &str| {
        let snapshot = when_possible(|| block_on(state.read(&[Selection::key(&Key::new(key))])));
        snapshot.entry(0).map(|entry| entry.value.to_vec())
    };
    assert_eq!((value(&one, "key"), value(&two, "key")), (Some(b"1".to_vec()), Some(b"2".to_vec())));
    assert_eq!((value(&outside, "one/key"), value(&outside, "key")), (Some(b"1".to_vec()), None));
    let keys = |state: &EtcdState| await_answer(state).groups[0].len();
    assert_eq!((keys(&one), keys(&two), keys(&outside)), (1, 1, 2));
    let mut watch = when_possible(|| block_on(two.watch("", from)));
    let events = block_on(watch.next()).unwrap();
    assert!(
        matches!(&events[..], [Event::Put(entry)] if entry.key == Key::new("key") && &*entry.value == b"2")
    );
    let mut watch = when_possible(|| block_on(outside.watch("", from)));
    assert_eq!(block_on(watch.next()).unwrap()[0].key(), &Key::new("one/key"));
}

#[test]
fn nothing_is_done_where_nobody_listens() {
    let state = connect(vec![free_url(), free_url()], "");
    let kind = |error: Option<StoreError>| error.expect("nobody is there").kind;
    let unavailable = StoreErrorKind::Unavailable;
    assert_eq!(kind(block_on(state.read(&[])).err()), unavailable);
    // It is certain that nobody has done it.
    assert_eq!(kind(block_on(state.transact(put("key", b"x"))).err()), unavailable);
    assert_eq!(kind(block_on(state.grant_lease(Duration::from_secs(1))).err()), unavailable);
    assert_eq!(kind(block_on(state.watch("", Revision(1))).err()), unavailable);
}

#[test]
fn an_address_that_is_none_is_refused() {
    let code = |endpoints: &[&str]| {
        let endpoints = endpoints.iter().map(|endpoint| (*endpoint).to_owned()).collect();
        let options = EtcdOptions { endpoints, namespace: String::new(), identity: None };
        EtcdState::connect(&options).err().expect("it is refused").code
    };
    assert_eq!(code(&[]), "STATE_ADDRESS_INVALID");
    assert_eq!(code(&["http://127.0.0.1:2379", "not an address"]), "STATE_ADDRESS_INVALID");
}

#[test]
fn a_key_that_is_none_is_no_wrong_address() {
    let identity = EtcdIdentity {
        authority_pem: String::new(),
        certificate_pem: "no certificate".to_owned(),
        key_pem: "no key".to_owned(),
        member_name: Some("x".to_owned()),
    };
    let endpoints = vec!["https://127.0.0.1:2379".to_owned()];
    let options = EtcdOptions { endpoints, namespace: String::new(), identity: Some(identity) };
    assert_eq!(EtcdState::connect(&options).err().expect("it is refused").code, "STATE_IDENTITY_INVALID");
}

/// Adds one to a counter, until it is known that this was done.
struct Counter {
    state: EtcdState,
    key: Key,
    added: u64,
    /// Additions of which nobody knows whether they were made.
    unknown: u64,
}

impl Counter {
    fn new(state: EtcdState) -> Self {
        Self { state, key: Key::new("counter"), added: 0, unknown: 0 }
    }

    fn read(&self) -> Option<(u64, Expected)> {
        let snapshot = block_on(self.state.read(&[Selection::key(&self.key)])).ok()?;
        Some(match snapshot.entry(0) {
            None => (0, Expected::Absent),
            Some(entry) => (
                u64::from_le_bytes((*entry.value).try_into().expect("eight bytes")),
                Expected::ModifiedAt(entry.modified),
            ),
        })
    }

    /// One attempt.
    fn add(&mut self) {
        let Some((value, expected)) = self.read() else { return };
        let next = (value + 1).to_le_bytes();
        let transaction = Transaction::new().expect(&self.key, expected).put(&self.key, next);
        match block_on(self.state.transact(transaction)) {
            Ok(Outcome::Committed { .. }) => self.added += 1,
            Ok(Outcome::Conflict { .. }) => {}
            Err(error) if error.kind == StoreErrorKind::Unknown => self.unknown += 1,
            Err(error) => assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}"),
        }
    }

    fn add_until_added(&mut self, count: u64) {
        let end = self.added + count;
        let started = StdInstant::now();
        while self.added < end {
            assert!(started.elapsed() < Duration::from_secs(60), "etcd does not come back");
            self.add();
        }
    }
}

/// Each member dies once in the middle of the work, the leader among them, and comes back.
#[test]
fn changes_go_on_when_a_member_dies_and_none_is_made_twice() {
    let mut etcd = Etcd::start(3);
    let mut counter = Counter::new(etcd.state());
    for member in 0..3 {
        counter.add_until_added(20);
        let is_dead = &AtomicBool::new(false);
        counter = std::thread::scope(|scope| {
            let (begun, begins) = std::sync::mpsc::channel();
            let adding = scope.spawn(move || {
                while !is_dead.load(Ordering::SeqCst) {
                    counter.add_until_added(1);
                    // Nobody waits for it any more.
                    let _ = begun.send(());
                }
                counter.add_until_added(20);
                counter
            });
            begins.recv().expect("it works");
            etcd.kill(member);
            is_dead.store(true, Ordering::SeqCst);
            adding.join().expect("it comes to its end")
        });
        etcd.start_member(member);
    }
    await_answer(&counter.state);
    let (value, _) = counter.read().expect("it has just answered");
    let possible = counter.added..=counter.added + counter.unknown;
    assert!(possible.contains(&value), "{value} is not in {possible:?}");
}

#[test]
fn without_a_majority_nothing_is_read_or_changed() {
    let mut etcd = Etcd::start(3);
    let state = etcd.state();
    commit(&state, put("key", b"before"));
    etcd.kill(1);
    etcd.kill(2);
    let error = block_on(state.read(&[])).expect_err("no majority");
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    let error = block_on(state.transact(put("key", b"after"))).expect_err("no majority");
    assert!(matches!(error.kind, StoreErrorKind::Unavailable | StoreErrorKind::Unknown), "{error}");
    etcd.start_member(1);
    await_answer(&state);
    commit(&state, put("key", b"later"));
}

/// Its connections stay, and it answers nothing: both those who ask and those who watch go to another one.
#[test]
fn a_member_that_falls_silent_holds_up_nobody_for_long() {
    let etcd = Etcd::start(3);
    let state = etcd.state();
    let first = commit(&state, put("key", b"0"));
    let mut watch = when_possible(|| block_on(state.watch("key", first)));
    assert!(!block_on(watch.next()).unwrap().is_empty());
    etcd.freeze(state.asked());
    let mut counter = Counter::new(state.clone());
    counter.add_until_added(1);
    let error = block_on(watch.next()).expect_err("the member it was on is silent");
    assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
    let second = commit(&state, put("key", b"1"));
    let seen = when_possible(|| {
        let mut watch = block_on(state.watch("key", first.next()))?;
        let mut seen = Vec::new();
        while seen.last() < Some(&second) {
            seen.extend(block_on(watch.next())?.iter().map(Event::revision));
        }
        Ok(seen)
    });
    assert!(seen.is_sorted() && seen[0] > first, "{seen:?}");
}

/// It may still be made by the silent member: nobody says that it was not, and it is not sent to another one.
#[test]
fn a_change_that_nobody_answers_is_unknown() {
    let etcd = Etcd::start(3);
    let state = etcd.state();
    let key = Key::new("key");
    let before = commit(&state, put("key", b"before"));
    let asked = state.asked();
    etcd.freeze(asked);
    let change = Transaction::new().expect(&key, Expected::ModifiedAt(before)).put(&key, *b"after");
    let error = block_on(state.transact(change)).expect_err("the member is silent");
    assert_eq!(error.kind, StoreErrorKind::Unknown, "{error}");
    let read = || {
        when_possible(|| block_on(state.read(&[Selection::key(&key)]))).entry(0).expect("it is there").clone()
    };
    assert_eq!(&*read().value, b"before");
    // Whoever sent it settles it.
    let settled =
        commit(&state, Transaction::new().expect(&key, Expected::ModifiedAt(before)).put(&key, *b"own"));
    etcd.thaw(asked);
    // The member that was silent takes part again, and what it had been sent comes too late.
    await_answer(&etcd.state_of(asked));
    assert_eq!((&*read().value, read().modified), (&b"own"[..], settled));
}

#[test]
fn what_does_nothing_is_answered_by_a_majority_all_the_same() {
    let mut etcd = Etcd::start(3);
    let state = etcd.state();
    let nothing = || block_on(state.transact(Transaction::new()));
    let made = commit(&state, put("key", b"x"));
    assert_eq!(when_possible(nothing), Outcome::Committed { revision: made });
    let never = Transaction::new().expect(&Key::new("none"), Expected::ModifiedAt(Revision::ZERO));
    let outcome = when_possible(|| block_on(state.transact(never.clone())));
    assert!(matches!(outcome, Outcome::Conflict { .. }));
    etcd.kill(1);
    etcd.kill(2);
    assert!(nothing().is_err());
}

#[test]
fn a_lease_lives_on_another_member() {
    let mut etcd = Etcd::start(3);
    let state = etcd.state();
    let lease = when_possible(|| block_on(state.grant_lease(Duration::from_secs(300))));
    commit(&state, Transaction::new().put_leased(&Key::new("leased"), *b"x", lease));
    etcd.kill(0);
    when_possible(|| block_on(state.keep_alive(lease)));
    assert_eq!(await_answer(&state).groups[0].len(), 1);
    // A first attempt may have done it, and nobody knew.
    when_possible(|| match block_on(state.revoke_lease(lease)) {
        Err(error) if error.kind == StoreErrorKind::LeaseGone => Ok(()),
        result => result,
    });
    assert_eq!(await_answer(&state).groups[0].len(), 0);
}

#[test]
fn members_are_exchanged_for_others_while_the_one_that_is_asked_stays() {
    let mut etcd = Etcd::start(3);
    let all = etcd.endpoints();
    let state = etcd.state_of(0);
    let set = |places: &[usize]| {
        let endpoints: Vec<String> = places.iter().map(|place| all[*place].clone()).collect();
        block_on(state.set_endpoints(&endpoints)).unwrap();
    };
    commit(&state, put("a", b"1"));
    set(&[1, 0, 2]);
    assert_eq!(state.asked_endpoint(), all[0], "it answers, so it is asked further");
    set(&[2, 1, 0]);
    assert_eq!(state.asked_endpoint(), all[0]);
    etcd.kill(0);
    commit(&state, put("a", b"2"));
    assert_ne!(state.asked_endpoint(), all[0]);
    set(&[2]);
    commit(&state, put("a", b"3"));
    assert_eq!(state.asked_endpoint(), all[2]);
    assert_eq!(block_on(state.set_endpoints(&[])).unwrap_err().code, "STATE_ADDRESS_INVALID");
    commit(&state, put("a", b"4"));
}
