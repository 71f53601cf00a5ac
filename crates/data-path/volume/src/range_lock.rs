//! Locks on ranges of a volume's blocks: a write holds its range alone, reads share theirs.
//!
//! Served in the order of arrival: a request waits for every earlier one, waiting or granted, that
//! overlaps it, unless both are shared. So nobody starves.
//!
//! Invariant: two granted ranges that overlap are both shared.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use spandrel_platform::sync::{OneshotSender, oneshot};
use spandrel_shared::BlockRange;
use spandrel_shared::witness::{self, Rare};

/// The locks of one volume. Cheap to clone; all clones are the same.
#[derive(Clone, Default)]
pub struct RangeLocks {
    inner: Rc<RefCell<Inner>>,
}

#[derive(Default)]
struct Inner {
    next_ticket: u64,
    /// Granted and waiting requests, in the order of arrival.
    requests: VecDeque<Request>,
    /// How many of them wait: mostly none, and then nothing has to be looked for.
    waiting: usize,
}

struct Request {
    ticket: u64,
    range: BlockRange,
    shared: bool,
    /// Who waits; `None` once granted.
    waiter: Option<OneshotSender<()>>,
}

impl Request {
    fn conflicts_with(&self, other: &Request) -> bool {
        self.range.overlaps(other.range) && !(self.shared && other.shared)
    }
}

/// A granted range; given back when dropped.
pub struct RangeGuard {
    inner: Rc<RefCell<Inner>>,
    ticket: u64,
}

impl RangeLocks {
    /// Waits until `range` is held alone.
    pub async fn exclusive(&self, range: BlockRange) -> RangeGuard {
        self.lock(range, false).await
    }

    /// Waits until `range` is held, perhaps with others who share.
    pub async fn shared(&self, range: BlockRange) -> RangeGuard {
        self.lock(range, true).await
    }

    /// Whether anybody holds or awaits a range.
    pub fn is_idle(&self) -> bool {
        self.inner.borrow().requests.is_empty()
    }

    async fn lock(&self, range: BlockRange, shared: bool) -> RangeGuard {
        let (guard, wait) = {
            let mut inner = self.inner.borrow_mut();
            let ticket = inner.next_ticket;
            inner.next_ticket += 1;
            let mut request = Request { ticket, range, shared, waiter: None };
            let mut wait = None;
            let earlier = inner.requests.iter().find(|earlier| earlier.conflicts_with(&request));
            if let Some(earlier) = earlier {
                match (shared, earlier.shared) {
                    (false, true) => witness::reached(Rare::WriteWaitedForRead),
                    (false, false) => witness::reached(Rare::WriteWaitedForWrite),
                    (true, _) => {}
                }
                let (sender, receiver) = oneshot();
                request.waiter = Some(sender);
                wait = Some(receiver);
                inner.waiting += 1;
            }
            inner.requests.push_back(request);
            // From here on a dropped future gives its place back.
            (RangeGuard { inner: Rc::clone(&self.inner), ticket }, wait)
        };
        if let Some(wait) = wait {
            wait.await;
        }
        guard
    }
}

impl Drop for RangeGuard {
    fn drop(&mut self) {
        let mut inner = self.inner.borrow_mut();
        let Ok(place) = inner.requests.binary_search_by_key(&self.ticket, |request| request.ticket) else {
            return;
        };
        let Some(ended) = inner.requests.remove(place) else { return };
        inner.waiting -= usize::from(ended.waiter.is_some());
        if inner.waiting == 0 {
            return;
        }
        let mut granted = Vec::new();
        for later in place..inner.requests.len() {
            let request = &inner.requests[later];
            if request.waiter.is_none() || !request.conflicts_with(&ended) {
                continue;
            }
            let blocked = inner.requests.iter().take(later).any(|earlier| earlier.conflicts_with(request));
            if !blocked {
                granted.extend(inner.requests[later].waiter.take());
            }
        }
        inner.waiting -= granted.len();
        drop(inner);
        for waiter in granted {
            waiter.send(());
        }
    }
}

#[cfg(test)]
#[path = "range_lock_tests.rs"]
mod tests;
