use std::cell::RefCell;
use std::rc::Rc;

use spandrel_platform::Platform;
use spandrel_platform_simulated::World;

use crate::test_support::{Event, Node, client_write, cluster, done, run_until};
use crate::{BusConfig, BusError};

/// A node that asks one that serves nothing yet and admits two requests at a time.
fn asking(world: &World) -> (Node, Node) {
    let few = BusConfig { requests_max: 2, ..BusConfig::default() };
    let (a, b) = (Node::start(world, "a"), Node::start_with(world, "b", cluster(), few));
    a.dial(world, "b");
    a.await_session("b");
    b.service.held.set(true);
    (a, b)
}

#[test]
fn calls_in_line_are_sent_in_the_order_in_which_they_were_begun() {
    let world = World::new(2);
    let (a, b) = asking(&world);
    let answered = Rc::new(RefCell::new(Vec::new()));
    let (bus, peer, platform, theirs) = (a.bus.clone(), b.id(), a.process.platform(), Rc::clone(&answered));
    a.process.spawn(async move {
        let mut calls: Vec<_> =
            (1..=6).map(|number| (number, bus.begin_call(peer, client_write(number), Vec::new()))).collect();
        // Nobody has awaited one of them yet, and the last one is awaited first.
        while let Some((number, call)) = calls.pop() {
            let answered = Rc::clone(&theirs);
            platform.spawn(async move {
                assert_eq!(call.await.map(|(response, _)| response), Ok(done()));
                answered.borrow_mut().push(number);
            });
        }
    });
    run_until(&world, || b.service.began() == 2);
    b.service.release();
    run_until(&world, || answered.borrow().len() == 6);
    let began = b
        .service
        .log
        .borrow()
        .iter()
        .filter_map(|event| match event {
            Event::Began(_, number) => Some(*number),
            _ => None,
        })
        .collect::<Vec<_>>();
    assert_eq!(began, [1, 2, 3, 4, 5, 6]);
}

#[test]
fn a_call_that_is_dropped_in_line_is_not_sent_and_lets_the_others_go_on() {
    let world = World::new(3);
    let (a, b) = asking(&world);
    let answered = Rc::new(RefCell::new(Vec::new()));
    let (bus, peer, theirs) = (a.bus.clone(), b.id(), Rc::clone(&answered));
    a.process.spawn(async move {
        let mut calls: Vec<_> =
            (1..=5).map(|number| bus.begin_call(peer, client_write(number), Vec::new())).collect();
        drop(calls.remove(3));
        for call in calls {
            let answer = call.await.map(|(response, _)| response);
            theirs.borrow_mut().push(answer);
        }
    });
    run_until(&world, || b.service.began() == 2);
    b.service.release();
    run_until(&world, || answered.borrow().len() == 4);
    assert!(answered.borrow().iter().all(|answer| *answer == Ok(done())), "{answered:?}");
    assert_eq!(b.service.began(), 4);
}

#[test]
fn calls_in_line_end_with_the_session() {
    let world = World::new(4);
    let (a, b) = asking(&world);
    let ended = Rc::new(RefCell::new(Vec::new()));
    let (bus, peer, theirs) = (a.bus.clone(), b.id(), Rc::clone(&ended));
    a.process.spawn(async move {
        let calls: Vec<_> =
            (1..=4).map(|number| bus.begin_call(peer, client_write(number), Vec::new())).collect();
        bus.remove_peer(peer);
        for call in calls {
            let error = call.await.err();
            theirs.borrow_mut().push(error);
        }
    });
    run_until(&world, || ended.borrow().len() == 4);
    let (sent, waiting) = (Some(BusError::SessionLost), Some(BusError::NotConnected));
    assert_eq!(*ended.borrow(), [sent.clone(), sent, waiting.clone(), waiting]);
}
