use super::*;
use crate::Executor;

fn run<T: 'static>(future: impl Future<Output = T> + 'static) -> Option<T> {
    let executor = Executor::new();
    let output = Rc::new(RefCell::new(None));
    let slot = Rc::clone(&output);
    executor.spawn(async move {
        let value = future.await;
        *slot.borrow_mut() = Some(value);
    });
    while executor.run_ready() {}
    output.take()
}

#[test]
fn oneshot_delivers_before_and_after_the_wait_begins() {
    let (sender, receiver) = oneshot();
    sender.send(5);
    assert_eq!(run(receiver), Some(Some(5)));

    let executor = Executor::new();
    let (sender, receiver) = oneshot();
    let seen = Rc::new(Cell::new(None));
    let slot = Rc::clone(&seen);
    executor.spawn(async move { slot.set(receiver.await) });
    while executor.run_ready() {}
    sender.send(6);
    while executor.run_ready() {}
    assert_eq!(seen.get(), Some(6));
}

#[test]
fn oneshot_tells_when_the_sender_is_gone() {
    let (sender, receiver) = oneshot::<u8>();
    drop(sender);
    assert_eq!(run(receiver), Some(None));
}

#[test]
fn a_signal_between_look_and_wait_is_not_lost() {
    let signal = Signal::new();
    let notified = signal.notified();
    signal.notify_all();
    assert_eq!(futures_util::FutureExt::now_or_never(notified), Some(()));
    assert_eq!(futures_util::FutureExt::now_or_never(signal.notified()), None);
}

#[test]
fn wait_until_looks_again_after_each_notification() {
    let executor = Executor::new();
    let (signal, count, done) = (Rc::new(Signal::new()), Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
    let (own_signal, own_count, own_done) = (Rc::clone(&signal), Rc::clone(&count), Rc::clone(&done));
    executor.spawn(async move {
        own_signal.wait_until(|| own_count.get() == 2).await;
        own_done.set(true);
    });
    for value in 1..=2 {
        while executor.run_ready() {}
        assert!(!done.get());
        count.set(value);
        signal.notify_all();
    }
    while executor.run_ready() {}
    assert!(done.get());
}

/// A task that waits for a signal or for something else polls the wait whenever the other wakes it, and
/// drops it when the other comes first.
#[test]
fn a_wait_has_one_place_however_often_it_is_polled_and_none_when_it_is_dropped() {
    let signal = Signal::new();
    let waker = Waker::noop();
    let mut context = Context::from_waker(waker);
    let mut waits: Vec<Notified<'_>> = (0..3).map(|_| signal.notified()).collect();
    for _ in 0..100 {
        for wait in &mut waits {
            assert!(Pin::new(wait).poll(&mut context).is_pending());
        }
    }
    assert_eq!(signal.waiter_count(), 3);
    drop(waits.remove(1));
    assert_eq!(signal.waiter_count(), 2);
    drop(signal.notified());
    assert_eq!(signal.waiter_count(), 2, "what was never polled has no place");
    signal.notify_all();
    assert_eq!(signal.waiter_count(), 0);
    assert!(Pin::new(&mut waits[0]).poll(&mut context).is_ready());
    drop(waits);
    assert_eq!(signal.waiter_count(), 0);
}

/// The place of a wait that is polled by another task than before wakes that one.
#[test]
fn a_wait_that_moves_to_another_task_wakes_that_one() {
    let executor = Executor::new();
    let signal = Rc::new(Signal::new());
    let done = Rc::new(Cell::new(false));
    let (own_signal, own_done) = (Rc::clone(&signal), Rc::clone(&done));
    executor.spawn(async move {
        let mut wait = own_signal.notified();
        // As if by a former task.
        assert!(Pin::new(&mut wait).poll(&mut Context::from_waker(Waker::noop())).is_pending());
        wait.await;
        own_done.set(true);
    });
    while executor.run_ready() {}
    assert_eq!(signal.waiter_count(), 1);
    signal.notify_all();
    while executor.run_ready() {}
    assert!(done.get());
}

#[test]
fn a_queue_keeps_its_order() {
    let queue = Rc::new(Queue::new());
    queue.push(1);
    queue.push(2);
    let own = Rc::clone(&queue);
    let taken = run(async move { (own.pop().await, own.pop_all().await) });
    assert_eq!(taken, Some((1, VecDeque::from([2]))));
    assert!(queue.is_empty());
}
