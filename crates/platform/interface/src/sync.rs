//! How the tasks of one thread wait for each other.
//!
//! All of it is `!Send` and free of locks. Waiters are served in the order of their arrival.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// A value that one task sets once and another awaits.
pub fn oneshot<T>() -> (OneshotSender<T>, OneshotReceiver<T>) {
    let shared = Rc::new(Oneshot { state: RefCell::new(OneshotState::Empty(None)) });
    (OneshotSender { shared: Rc::clone(&shared) }, OneshotReceiver { shared })
}

struct Oneshot<T> {
    state: RefCell<OneshotState<T>>,
}

enum OneshotState<T> {
    Empty(Option<Waker>),
    Full(T),
    SenderGone,
    Taken,
}

/// The setting end of a [`oneshot`].
pub struct OneshotSender<T> {
    shared: Rc<Oneshot<T>>,
}

impl<T> OneshotSender<T> {
    /// Sets the value. Lost without harm if nobody waits any more.
    pub fn send(self, value: T) {
        self.shared.settle(OneshotState::Full(value));
    }
}

impl<T> Oneshot<T> {
    fn settle(&self, settled: OneshotState<T>) {
        let former = {
            let mut state = self.state.borrow_mut();
            if !matches!(*state, OneshotState::Empty(_)) {
                return;
            }
            std::mem::replace(&mut *state, settled)
        };
        if let OneshotState::Empty(Some(waker)) = former {
            waker.wake();
        }
    }
}

impl<T> Drop for OneshotSender<T> {
    fn drop(&mut self) {
        self.shared.settle(OneshotState::SenderGone);
    }
}

/// The awaiting end of a [`oneshot`]. Yields `None` if the sender was dropped.
pub struct OneshotReceiver<T> {
    shared: Rc<Oneshot<T>>,
}

impl<T> Future for OneshotReceiver<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<T>> {
        let mut state = self.shared.state.borrow_mut();
        if let OneshotState::Empty(waker) = &mut *state {
            wake_later(waker, context);
            return Poll::Pending;
        }
        match std::mem::replace(&mut *state, OneshotState::Taken) {
            OneshotState::Full(value) => Poll::Ready(Some(value)),
            _ => Poll::Ready(None),
        }
    }
}

/// Has whoever polls be woken later, instead of whoever was to be before: mostly the same.
pub fn wake_later(waker: &mut Option<Waker>, context: &Context<'_>) {
    match waker {
        Some(waker) => waker.clone_from(context.waker()),
        None => *waker = Some(context.waker().clone()),
    }
}

/// Lets one task at a time through. Whoever has it gives it back by dropping the guard, also when he is dropped himself.
#[derive(Default)]
pub struct Lock {
    is_held: Cell<bool>,
    freed: Signal,
}

impl Lock {
    /// Waits until nobody has it, and takes it.
    pub async fn take(&self) -> LockGuard<'_> {
        self.freed.wait_until(|| !self.is_held.replace(true)).await;
        LockGuard { lock: self }
    }

    /// Takes it if nobody has it.
    pub fn try_take(&self) -> Option<LockGuard<'_>> {
        (!self.is_held.replace(true)).then(|| LockGuard { lock: self })
    }
}

/// A [`Lock`] that somebody has.
pub struct LockGuard<'a> {
    lock: &'a Lock,
}

impl Drop for LockGuard<'_> {
    fn drop(&mut self) {
        self.lock.is_held.set(false);
        self.lock.freed.notify_all();
    }
}

/// Wakes the tasks that wait for something to change. Remembers nothing: a waiter looks at the
/// state first and after each wake-up.
#[derive(Default)]
pub struct Signal {
    /// Raised by each notification, so that a waiter sees those between its look and its wait.
    notifications: Cell<u64>,
    next_ticket: Cell<u64>,
    /// Whom to wake, by the ticket of the wait, in the order of arrival. A wait has one place, however
    /// often it is polled, and none once it is over: whoever waits for this or for something else
    /// leaves nothing behind.
    waiters: RefCell<Vec<(u64, Waker)>>,
}

impl Signal {
    /// A signal nobody waits for.
    pub fn new() -> Self {
        Self::default()
    }

    /// Wakes all who wait.
    pub fn notify_all(&self) {
        self.notifications.set(self.notifications.get() + 1);
        for (_, waker) in self.waiters.take() {
            waker.wake();
        }
    }

    /// Completes at the first notification after this call, even if the future is polled later.
    pub fn notified(&self) -> Notified<'_> {
        Notified { signal: self, seen: self.notifications.get(), ticket: None }
    }

    /// Completes when `condition` holds; looks again after each notification.
    pub async fn wait_until(&self, mut condition: impl FnMut() -> bool) {
        loop {
            let notified = self.notified();
            if condition() {
                return;
            }
            notified.await;
        }
    }

    /// How many wait.
    #[cfg(test)]
    fn waiter_count(&self) -> usize {
        self.waiters.borrow().len()
    }
}

/// Waits for the next notification of a [`Signal`].
pub struct Notified<'a> {
    signal: &'a Signal,
    /// The notifications before it began to wait.
    seen: u64,
    /// Its place among the waiters, once it was polled.
    ticket: Option<u64>,
}

impl Notified<'_> {
    fn is_over(&self) -> bool {
        self.signal.notifications.get() != self.seen
    }
}

impl Future for Notified<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.is_over() {
            return Poll::Ready(());
        }
        let signal = self.signal;
        let mut waiters = signal.waiters.borrow_mut();
        let place = self.ticket.and_then(|ticket| place_of(&waiters, ticket));
        let Some(place) = place else {
            let ticket = signal.next_ticket.get();
            signal.next_ticket.set(ticket + 1);
            self.ticket = Some(ticket);
            waiters.push((ticket, context.waker().clone()));
            return Poll::Pending;
        };
        if !waiters[place].1.will_wake(context.waker()) {
            let former = std::mem::replace(&mut waiters[place].1, context.waker().clone());
            // The end of a waker may be the end of a task, with waits of its own.
            drop(waiters);
            drop(former);
        }
        Poll::Pending
    }
}

impl Drop for Notified<'_> {
    fn drop(&mut self) {
        // A notification has taken all waiters that were there before it.
        let Some(ticket) = self.ticket.filter(|_| !self.is_over()) else { return };
        let mut waiters = self.signal.waiters.borrow_mut();
        let former = place_of(&waiters, ticket).map(|place| waiters.remove(place));
        drop(waiters);
        drop(former);
    }
}

fn place_of(waiters: &[(u64, Waker)], ticket: u64) -> Option<usize> {
    waiters.binary_search_by_key(&ticket, |(other, _)| *other).ok()
}

/// A queue from many tasks to one.
pub struct Queue<T> {
    items: RefCell<VecDeque<T>>,
    waiter: Cell<Option<Waker>>,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { items: RefCell::default(), waiter: Cell::new(None) }
    }
}

impl<T> Queue<T> {
    /// An empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an item at the end.
    pub fn push(&self, item: T) {
        self.items.borrow_mut().push_back(item);
        if let Some(waker) = self.waiter.take() {
            waker.wake();
        }
    }

    /// Takes the first item, if there is one.
    pub fn try_pop(&self) -> Option<T> {
        self.items.borrow_mut().pop_front()
    }

    /// Takes the first item, once there is one. At most one task may wait.
    pub async fn pop(&self) -> T {
        poll_fn(|context| match self.try_pop() {
            Some(item) => Poll::Ready(item),
            None => {
                self.waiter.set(Some(context.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }

    /// Completes when an item is there, and leaves it there.
    pub async fn wait_not_empty(&self) {
        poll_fn(|context| {
            if self.items.borrow().is_empty() {
                self.waiter.set(Some(context.waker().clone()));
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await
    }

    /// Takes all items that are there, once there is at least one.
    pub async fn pop_all(&self) -> VecDeque<T> {
        poll_fn(|context| {
            if self.items.borrow().is_empty() {
                self.waiter.set(Some(context.waker().clone()));
                return Poll::Pending;
            }
            Poll::Ready(self.items.take())
        })
        .await
    }

    /// Items that wait.
    pub fn len(&self) -> usize {
        self.items.borrow().len()
    }

    /// Whether no item waits.
    pub fn is_empty(&self) -> bool {
        self.items.borrow().is_empty()
    }
}

#[cfg(test)]
#[path = "sync_tests.rs"]
mod tests;
