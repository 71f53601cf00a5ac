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
