use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Instant as StdInstant;

use spandrel_cluster::conformance::{Harness, check_all};
use spandrel_cluster::store::{Expected, Key};
use spandrel_platform::Instant;

use super::*;

struct Unparker(Thread);

impl Wake for Unparker {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs `future` on this thread.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unparker(std::thread::current())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        std::thread::park();
    }
}

pub(crate) fn put(key: &str, value: &[u8]) -> Transaction {
    Transaction::new().put(&Key::new(key), value)
}

pub(crate) fn commit(state: &RedbState, transaction: Transaction) -> Revision {
    match block_on(state.transact(transaction)).expect("the transaction is answered") {
        Outcome::Committed { revision } => revision,
        conflict => panic!("{conflict:?}"),
    }
}

pub(crate) fn everything(state: &RedbState) -> Snapshot {
    block_on(state.read(&[Selection::prefix("")])).expect("the state can be read")
}

pub(crate) fn kind<T>(result: Result<T, StoreError>) -> StoreErrorKind {
    result.err().expect("it must fail").kind
}

struct Suite {
    state: RedbState,
    started: StdInstant,
}

impl Harness for Suite {
    type Store = RedbState;

    fn store(&self) -> RedbState {
        self.state.clone()
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
        Duration::from_millis(300)
    }
}

#[test]
fn it_conforms() {
    let folder = tempfile::tempdir().unwrap();
    let state = RedbState::open(&folder.path().join("state")).unwrap();
    block_on(check_all(&Suite { state, started: StdInstant::now() }));
}

#[test]
fn everything_but_the_history_outlives_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let state = RedbState::open(&path).unwrap();
    let lease = block_on(state.grant_lease(Duration::from_secs(600))).unwrap();
    let revoked = block_on(state.grant_lease(Duration::from_secs(600))).unwrap();
    commit(&state, put("a", b"1").put_leased(&Key::new("b"), *b"2", lease));
    commit(&state, put("a", b"3").put(&Key::new("c"), *b"4"));
    commit(&state, Transaction::new().delete(&Key::new("c")));
    block_on(state.revoke_lease(revoked)).unwrap();
    let before = everything(&state);
    drop(state);

    let state = RedbState::open(&path).unwrap();
    assert_eq!(everything(&state), before);
    block_on(state.keep_alive(lease)).expect("the lease lives on");
    assert_eq!(kind(block_on(state.keep_alive(revoked))), StoreErrorKind::LeaseGone);
    let another = block_on(state.grant_lease(Duration::from_secs(1))).unwrap();
    assert!(another > revoked, "leases are not reused");
    let mut watch = block_on(state.watch("", Revision(1))).unwrap();
    let oldest = before.revision.next();
    assert_eq!(kind(block_on(watch.next())), StoreErrorKind::Compacted { oldest });
    assert_eq!(commit(&state, put("d", b"5")), oldest);
    block_on(state.revoke_lease(lease)).unwrap();
    drop((state, watch));

    let state = RedbState::open(&path).unwrap();
    let keys: Vec<_> = everything(&state).groups.remove(0).into_iter().map(|entry| entry.key).collect();
    assert_eq!(keys, [Key::new("a"), Key::new("d")]);
}

#[test]
fn threads_share_one_state() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 25;
    let folder = tempfile::tempdir().unwrap();
    let state = RedbState::open(&folder.path().join("state")).unwrap();
    let counter = Key::new("counter");
    commit(&state, Transaction::new().put(&counter, 0_u64.to_le_bytes()));
    let worker = |state: RedbState| {
        let counter = counter.clone();
        move || {
            for _ in 0..ROUNDS {
                loop {
                    let snapshot = block_on(state.read(&[Selection::key(&counter)])).unwrap();
                    let entry = snapshot.entry(0).unwrap();
                    let value = u64::from_le_bytes(entry.value[..].try_into().unwrap());
                    let transaction = Transaction::new()
                        .expect(&counter, Expected::ModifiedAt(entry.modified))
                        .put(&counter, (value + 1).to_le_bytes());
                    let outcome = block_on(state.transact(transaction)).unwrap();
                    if matches!(outcome, Outcome::Committed { .. }) {
                        break;
                    }
                }
            }
        }
    };
    let threads: Vec<_> = (0..THREADS).map(|_| std::thread::spawn(worker(state.clone()))).collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let value = everything(&state).groups[0][0].value.clone();
    assert_eq!(u64::from_le_bytes(value[..].try_into().unwrap()), (THREADS * ROUNDS) as u64);
}

/// What stands in the file at any moment is what a process that dies there leaves behind.
#[test]
fn what_was_answered_outlives_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state");
    let copy = folder.path().join("copy");
    let state = RedbState::open(&path).unwrap();
    for round in 0..20_u8 {
        commit(&state, put(&format!("key/{}", round % 7), &[round; 3000]));
        let answered = everything(&state);
        std::fs::copy(&path, &copy).unwrap();
        let survivor = RedbState::open(&copy).unwrap();
        assert_eq!(everything(&survivor), answered, "round {round}");
    }
}
