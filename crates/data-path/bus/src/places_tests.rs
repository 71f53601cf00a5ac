use std::cell::Cell;

use futures_util::FutureExt;
use proptest::prelude::*;
use spandrel_platform::Platform;
use spandrel_platform_simulated::World;

use super::*;
use crate::test_support::run_until;

fn take_now(places: &Rc<Places>, bytes: u64) -> Option<Place> {
    places.take(bytes).now_or_never().map(|place| place.expect("it is open"))
}

#[test]
fn places_are_bounded_by_number_and_by_bytes() {
    let places = Places::new(3, 100);
    let first = take_now(&places, 60).expect("there is room");
    assert!(take_now(&places, 41).is_none());
    let second = take_now(&places, 40).expect("there is room");
    let third = take_now(&places, 0).expect("no bytes are needed");
    assert!(take_now(&places, 0).is_none(), "three is all");
    drop((first, second, third));
    let long = take_now(&places, 1000).expect("it is alone");
    assert!(take_now(&places, 1).is_none());
    let short = take_now(&places, 0).expect("no bytes are needed");
    drop(long);
    assert!(take_now(&places, 1000).is_none(), "it would not be alone");
    drop(short);
    assert!(take_now(&places, u64::MAX).is_some());
}

#[test]
fn who_comes_later_does_not_overtake_who_waits() {
    let places = Places::new(10, 100);
    let first = take_now(&places, 90).expect("there is room");
    let mut waiting = Box::pin(places.take(20));
    assert!((&mut waiting).now_or_never().is_none());
    assert!(take_now(&places, 1).is_none(), "another one waits");
    drop(first);
    assert!(take_now(&places, 1).is_none(), "it still waits");
    let second = (&mut waiting).now_or_never().expect("there is room").expect("it is open");
    assert!(take_now(&places, 1).is_some());
    drop(second);
}

#[test]
fn who_gives_up_waiting_lets_the_next_one_through() {
    let world = World::new(1);
    let process = world.process("a");
    let places = Places::new(10, 100);
    let held = take_now(&places, 60).expect("there is room");
    let mut long = Box::pin(places.take(50));
    assert!((&mut long).now_or_never().is_none());
    let served = Rc::new(Cell::new(false));
    let (own, told) = (Rc::clone(&places), Rc::clone(&served));
    process.spawn(async move {
        let _place = own.take(10).await.expect("it is open");
        told.set(true);
    });
    run_until(&world, || places.waiting.borrow().queue.len() == 2);
    assert!(!served.get());
    drop(long);
    run_until(&world, || served.get());
    drop(held);
}

#[test]
fn closing_ends_all_waiting_and_leaves_what_is_taken() {
    let places = Places::new(1, 100);
    let held = take_now(&places, 1).expect("there is room");
    let mut waiting = Box::pin(places.take(1));
    assert!((&mut waiting).now_or_never().is_none());
    places.close();
    assert!(matches!((&mut waiting).now_or_never(), Some(Err(Closed))));
    assert!(matches!(places.take(0).now_or_never(), Some(Err(Closed))));
    drop(waiting);
    assert!(places.emptied().now_or_never().is_none());
    drop(held);
    assert!(places.emptied().now_or_never().is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Many tasks take and give back; all come to their turn, in their order, and never too many.
    #[test]
    fn everybody_gets_a_place_in_order(
        seed: u64,
        requests in proptest::collection::vec((0u64..150, 0u64..50), 1..60),
    ) {
        let world = World::new(seed);
        let process = world.process("a");
        let places = Places::new(5, 100);
        let order = Rc::new(RefCell::new(Vec::new()));
        let finished = Rc::new(Cell::new(0));
        for (number, (bytes, hold_us)) in requests.iter().copied().enumerate() {
            let (places, order, finished) = (Rc::clone(&places), Rc::clone(&order), Rc::clone(&finished));
            let platform = process.platform();
            process.spawn(async move {
                let place = places.take(bytes).await.expect("it is open");
                order.borrow_mut().push(number);
                assert!(places.requests.get() <= 5);
                assert!(places.bytes.get() <= 100 || places.bytes.get() == bytes || bytes == 0);
                platform.sleep(std::time::Duration::from_micros(hold_us)).await;
                drop(place);
                finished.set(finished.get() + 1);
            });
        }
        run_until(&world, || finished.get() == requests.len());
        prop_assert_eq!(order.take(), (0..requests.len()).collect::<Vec<_>>());
        prop_assert_eq!((places.requests.get(), places.bytes.get()), (0, 0));
    }
}
