use futures_util::FutureExt;
use spandrel_platform::Executor;

use super::*;

#[test]
fn requests_and_bytes_are_bounded() {
    let in_flight = InFlight::new(3, 100);
    let one = in_flight.try_admit(60).unwrap();
    assert!(in_flight.try_admit(41).is_none(), "too many bytes");
    let two = in_flight.try_admit(40).unwrap();
    let three = in_flight.try_admit(0).unwrap();
    assert!(in_flight.try_admit(0).is_none(), "too many requests");
    drop((one, two, three));
    assert!(in_flight.drained().now_or_never().is_some());
}

#[test]
fn a_giant_goes_alone() {
    let in_flight = InFlight::new(3, 100);
    let small = in_flight.try_admit(1).unwrap();
    assert!(in_flight.try_admit(1000).is_none());
    drop(small);
    let giant = in_flight.try_admit(1000).unwrap();
    assert!(in_flight.try_admit(0).is_none());
    drop(giant);
    assert!(in_flight.try_admit(100).is_some());
}

#[test]
fn waiting_ends_when_a_place_is_given_back() {
    let executor = Executor::new();
    let in_flight = InFlight::new(1, 100);
    let first = in_flight.try_admit(1).unwrap();
    let (own, admitted) = (Rc::clone(&in_flight), Rc::new(Cell::new(0)));
    let count = Rc::clone(&admitted);
    executor.spawn(async move {
        let second = own.admit(1).await;
        count.set(1);
        drop(second);
        own.drained().await;
        count.set(2);
    });
    while executor.run_ready() {}
    assert_eq!(admitted.get(), 0);
    drop(first);
    while executor.run_ready() {}
    assert_eq!(admitted.get(), 2);
}
