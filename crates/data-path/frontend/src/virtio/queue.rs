//! A queue in a guest's memory: takes the requests that the guest makes available there, and answers them there.
//!
//! The guest is woken once for all that was answered together, and only if it wants to be. It wakes this side only while this side
//! waits.
//!
//! Invariants:
//! - Each request is answered once, and one that changes something not before the device has answered it, unless the device says that
//!   its node stops: then the request stays among those that were begun, and whoever serves the queue next does it again.
//! - A request is known as begun before the device hears of it, and as ended not before its answer is in the queue. So one that is
//!   done again, by whoever goes on after a break, is one whose answer the guest has not seen.
//! - A queue whose guest breaks its rules is left alone from there on. So no guest keeps the shard from others: it gets no further than
//!   its requests are done.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::{Either, select};
use spandrel_platform::sync::Signal;
use spandrel_platform::{Platform, Workers};
use spandrel_volume::BlockDevice;
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{GuestAddress, GuestMemory};

use super::chain::{Chain, Table};
use super::config::QUEUE_SIZE_MAX;
use super::request::{Failure, Request, SERIAL_BYTES, Status};
use crate::in_flight::{Admission, InFlight};

/// The most memory of a queue's requests, in bytes. Further ones wait in the queue.
const BYTES_IN_FLIGHT_MAX: u64 = 32 << 20;

/// What stands around a queue: the guest's memory, how both sides wake each other, and what is known of requests beyond the life
/// of this process.
pub trait GuestSide: 'static {
    /// The guest's memory.
    type Memory: GuestMemory;

    /// The guest's memory as it is now: more of it can be plugged in.
    fn memory(&self) -> Arc<Self::Memory>;

    /// Completes when the guest has woken this side since the last time. It may do so in vain.
    fn kicked(&self) -> impl Future<Output = ()>;

    /// Wakes the guest.
    fn interrupt(&self);

    /// Takes note that the request at this place of the queue's table is begun.
    fn begun(&self, head: u16);

    /// Takes note that its answer is about to be in the queue.
    fn ending(&self, head: u16);

    /// Takes note that it is there. `used` answers were there in all, modulo 65,536.
    fn ended(&self, head: u16, used: u16);
}

/// How a queue lies in the guest's memory, and how far it was served.
#[derive(Clone, Debug)]
pub struct QueueSetup {
    /// How many places it has: a power of two.
    pub size: u16,
    /// Its table of descriptors.
    pub descriptors: GuestAddress,
    /// Where the guest says what is available.
    pub available: GuestAddress,
    /// Where the guest is told what was used.
    pub used: GuestAddress,
    /// How many requests were taken before, modulo 65,536.
    pub next_available: u16,
    /// Whether either side says how far it has come, so that it is woken only for what is behind that.
    pub event_index: bool,
    /// Requests that were begun before and not answered, in the order in which they were taken.
    pub unanswered: Vec<u16>,
    /// Who the disk is, for guests that ask.
    pub serial: [u8; SERIAL_BYTES],
}

/// A queue that is served.
pub struct VirtioQueue<P: Platform, D: BlockDevice, G: GuestSide> {
    inner: Rc<Inner<P, D, G>>,
}

struct Inner<P: Platform, D, G: GuestSide> {
    platform: P,
    device: D,
    guest: G,
    serial: [u8; SERIAL_BYTES],
    table: Table,
    queue: RefCell<Queue>,
    in_flight: Rc<InFlight>,
    workers: Workers<Job>,
    stopping: Cell<bool>,
    /// Answers are in the queue of which the guest was not told.
    untold: Cell<bool>,
    /// Nothing is taken or answered any more.
    over: Cell<bool>,
    changed: Signal,
}

/// A request that was taken.
struct Job {
    head: u16,
    request: Request,
    _admission: Admission,
}

impl<P: Platform, D: BlockDevice, G: GuestSide> VirtioQueue<P, D, G> {
    /// Serves a queue from now on: what was begun before first.
    ///
    /// # Errors
    /// In words, if it does not lie in the guest's memory.
    pub fn start(platform: P, device: D, guest: G, setup: QueueSetup) -> Result<Self, String> {
        let queue =
            lay_out(&*guest.memory(), &setup).map_err(|error| format!("a queue is unusable: {error}"))?;
        let inner = Rc::new(Inner {
            platform: platform.clone(),
            device,
            guest,
            serial: setup.serial,
            table: Table { address: setup.descriptors, size: setup.size },
            queue: RefCell::new(queue),
            in_flight: InFlight::new(setup.size.into(), BYTES_IN_FLIGHT_MAX),
            workers: Workers::new(setup.size.into()),
            stopping: Cell::new(false),
            untold: Cell::new(false),
            over: Cell::new(false),
            changed: Signal::new(),
        });
        // Whoever served the queue before may have ended between an answer and the word of it.
        inner.guest.interrupt();
        let (serving, telling) = (Rc::clone(&inner), Rc::clone(&inner));
        platform.spawn(async move { serving.serve(setup.unanswered).await });
        platform.spawn(async move { telling.tell().await });
        Ok(Self { inner })
    }

    /// Takes no more requests, and completes when all that were taken are done with. How many were taken, modulo 65,536: there whoever
    /// serves the queue next begins.
    pub async fn stop(&self) -> u16 {
        let inner = &self.inner;
        inner.stopping.set(true);
        inner.changed.notify_all();
        inner.changed.wait_until(|| inner.over.get()).await;
        inner.queue.borrow().next_avail()
    }
}

impl<P: Platform, D: BlockDevice, G: GuestSide> Drop for VirtioQueue<P, D, G> {
    fn drop(&mut self) {
        self.inner.stopping.set(true);
        self.inner.changed.notify_all();
    }
}

fn lay_out<M: GuestMemory>(memory: &M, setup: &QueueSetup) -> Result<Queue, virtio_queue::Error> {
    let mut queue = Queue::new(QUEUE_SIZE_MAX)?;
    queue.try_set_size(setup.size)?;
    queue.try_set_desc_table_address(setup.descriptors)?;
    queue.try_set_avail_ring_address(setup.available)?;
    queue.try_set_used_ring_address(setup.used)?;
    queue.set_event_idx(setup.event_index);
    queue.set_next_avail(setup.next_available);
    queue.set_next_used(queue.used_idx(memory, Ordering::Acquire)?.0);
    queue.set_ready(true);
    if queue.is_valid(memory) { Ok(queue) } else { Err(virtio_queue::Error::QueueNotReady) }
}

impl<P: Platform, D: BlockDevice, G: GuestSide> Inner<P, D, G> {
    async fn serve(self: Rc<Self>, unanswered: Vec<u16>) {
        if let Err(reason) = self.take_until_stopped(unanswered).await {
            tracing::warn!(%reason, "a guest breaks the rules of its disk's queue, which is left alone");
        }
        self.in_flight.drained().await;
        self.workers.close();
        self.tell_if_wanted();
        self.over.set(true);
        self.changed.notify_all();
    }

    async fn take_until_stopped(self: &Rc<Self>, unanswered: Vec<u16>) -> Result<(), String> {
        for head in unanswered {
            self.hand_over(head).await?;
        }
        while !self.stopping.get() {
            self.take_available().await?;
            let stopped = self.changed.wait_until(|| self.stopping.get());
            if let Either::Right(_) = select(pin!(self.guest.kicked()), pin!(stopped)).await {
                break;
            }
        }
        Ok(())
    }

    /// Takes what the guest has made available, until there is no more and the guest knows that it has to wake this side.
    async fn take_available(self: &Rc<Self>) -> Result<(), String> {
        let unusable = |error: virtio_queue::Error| error.to_string();
        let mut is_promised = false;
        loop {
            self.queue.borrow_mut().disable_notification(&*self.guest.memory()).map_err(unusable)?;
            let before = self.queue.borrow().next_avail();
            while let Some(head) = self.next_head().map_err(unusable)? {
                self.hand_over(head).await?;
                if self.stopping.get() {
                    return Ok(());
                }
            }
            if is_promised && self.queue.borrow().next_avail() == before {
                return Err("what it says is available is not there".to_owned());
            }
            let memory = self.guest.memory();
            is_promised = self.queue.borrow_mut().enable_notification(&*memory).map_err(unusable)?;
            if !is_promised {
                return Ok(());
            }
        }
    }

    fn next_head(&self) -> Result<Option<u16>, virtio_queue::Error> {
        let mut queue = self.queue.borrow_mut();
        let head = queue.iter(self.guest.memory())?.next().map(|chain| chain.head_index());
        Ok(head)
    }

    async fn hand_over(self: &Rc<Self>, head: u16) -> Result<(), String> {
        let chain = Chain::at(&*self.guest.memory(), self.table, head).map_err(|bad| bad.0.to_owned())?;
        let request = Request::new(chain).ok_or("a request has no room for how it ends")?;
        self.guest.begun(head);
        let admission = self.in_flight.admit(request.bytes_at_a_time()).await;
        if self.workers.give(Job { head, request, _admission: admission }) {
            self.platform.spawn(Rc::clone(self).work());
        }
        Ok(())
    }

    /// Does requests until there will be no more.
    async fn work(self: Rc<Self>) {
        while let Some(Job { head, request, _admission }) = self.workers.next().await {
            let memory = self.guest.memory();
            let done = request.perform(&self.platform, &self.device, &*memory, &self.serial).await;
            let status = match &done {
                Ok(()) => Some(Status::Done),
                Err(failure) => {
                    note(failure);
                    failure.status()
                }
            };
            if let Some(status) = status {
                let told_bytes = request.conclude(&*memory, status).unwrap_or(0);
                self.answer(head, told_bytes);
            }
        }
    }

    /// Gives a request back to the guest.
    fn answer(&self, head: u16, told_bytes: u32) {
        let memory = self.guest.memory();
        self.guest.ending(head);
        let mut queue = self.queue.borrow_mut();
        if let Err(error) = queue.add_used(&*memory, head, told_bytes) {
            tracing::warn!(%error, "a guest's request cannot be answered");
            return;
        }
        self.guest.ended(head, queue.next_used());
        drop(queue);
        if !self.untold.replace(true) {
            self.changed.notify_all();
        }
    }

    /// Tells the guest of answers, of all that have come together at once.
    async fn tell(self: Rc<Self>) {
        loop {
            self.changed.wait_until(|| self.untold.get() || self.over.get()).await;
            if self.over.get() {
                return;
            }
            self.tell_if_wanted();
        }
    }

    fn tell_if_wanted(&self) {
        if !self.untold.replace(false) {
            return;
        }
        // If it cannot be found out whether the guest wants to know, it is told.
        if self.queue.borrow_mut().needs_notification(&*self.guest.memory()).unwrap_or(true) {
            self.guest.interrupt();
        }
    }
}

fn note(failure: &Failure) {
    match failure {
        Failure::Refused(_, reason) => tracing::warn!(reason, "a guest's request is refused"),
        Failure::Device(error) => tracing::debug!(%error, "a guest's request has failed"),
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
