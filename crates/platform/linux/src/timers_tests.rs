use std::sync::Arc;
use std::sync::Mutex;
use std::task::Wake;

use super::*;

struct Recorder {
    name: u32,
    woken: Arc<Mutex<Vec<u32>>>,
}

impl Wake for Recorder {
    fn wake(self: Arc<Self>) {
        self.woken.lock().unwrap().push(self.name);
    }
}

fn at(nanoseconds: u64) -> Instant {
    Instant::from_nanoseconds(nanoseconds)
}

#[test]
fn timers_fire_in_order_never_early_and_once() {
    let woken = Arc::new(Mutex::new(Vec::new()));
    let waker = |name| Waker::from(Arc::new(Recorder { name, woken: Arc::clone(&woken) }));
    let timers = Timers::default();
    timers.set(at(30), waker(3));
    timers.set(at(10), waker(1));
    timers.set(at(10), waker(2));
    let cancelled = timers.set(at(5), waker(9));
    timers.cancel(cancelled);

    assert_eq!(timers.next_deadline(), Some(at(10)));
    assert_eq!(timers.fire(at(9)), 0);
    assert_eq!(timers.fire(at(10)), 2);
    assert_eq!(*woken.lock().unwrap(), [1, 2]);
    assert_eq!(timers.fire(at(1000)), 1);
    assert_eq!(*woken.lock().unwrap(), [1, 2, 3]);
    assert_eq!(timers.next_deadline(), None);
}

#[test]
fn renewing_changes_whom_to_wake_until_the_timer_fired() {
    let woken = Arc::new(Mutex::new(Vec::new()));
    let waker = |name| Waker::from(Arc::new(Recorder { name, woken: Arc::clone(&woken) }));
    let timers = Timers::default();
    let key = timers.set(at(1), waker(1));
    assert!(timers.renew(key, &waker(2)));
    timers.fire(at(1));
    assert_eq!(*woken.lock().unwrap(), [2]);
    assert!(!timers.renew(key, &waker(3)));
}
