use std::cell::Cell;

use spandrel_platform::Executor;

use super::*;

#[test]
fn all_listeners_hear_it_the_later_ones_too() {
    let executor = Executor::new();
    let signal = StopSignal::default();
    let heard = Rc::new(Cell::new(0));
    for _ in 0..3 {
        let (listener, heard) = (signal.listen(), Rc::clone(&heard));
        executor.spawn(async move {
            listener.stopped().await;
            heard.set(heard.get() + 1);
        });
    }
    while executor.run_ready() {}
    assert_eq!(heard.get(), 0);
    assert!(!signal.is_raised());
    signal.raise();
    while executor.run_ready() {}
    assert_eq!(heard.get(), 3);
    assert!(signal.is_raised());
    assert_eq!(futures_util::FutureExt::now_or_never(signal.listen().stopped()), Some(()));
}

#[test]
fn places_are_used_again() {
    let signal = StopSignal::default();
    for _ in 0..100 {
        let (one, other) = (signal.listen(), signal.listen());
        assert_eq!(futures_util::FutureExt::now_or_never(one.stopped()), None);
        assert_eq!(futures_util::FutureExt::now_or_never(other.stopped()), None);
    }
    let places = signal.state.places.borrow();
    assert_eq!(places.wakers.len(), 2);
    assert!(places.wakers.iter().all(Option::is_none));
}
