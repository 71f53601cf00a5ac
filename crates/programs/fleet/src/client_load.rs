//! One client under load: keeps its I/Os in flight and counts what becomes of them.
//!
//! A client is one task. It wakes when something was received, takes in every answer that is there
//! with one look at the clock, and sends a new I/O for each; what it sends leaves with everything else
//! of the turn. Nothing is allocated here per I/O.
//!
//! Invariants:
//! - From the start to the stop, each thread of a client has its number of I/Os in flight, unless it may
//!   not go as fast or the connection breaks. A failed I/O is followed by a new one too.
//! - Every I/O that was sent ends as exactly one of done, failed or unanswered.
//! - Only what is done within the measured time is counted as done; failures are counted always.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use spandrel_platform::{Instant, Platform, before};

use crate::medium::{Answer, IoReceiver, IoSender};
use crate::nbd_client::{Command, InFlight, NbdError, Request, RequestFailure};
use crate::pace::Pace;
use crate::random::Random;
use crate::source::WriteSource;
use crate::tally::{ClientCounters, ClientTally};
use crate::times::LoadTimes;
use crate::workload::Workload;

/// What all clients of a load thread share.
pub(crate) struct Common {
    pub(crate) times: Arc<LoadTimes>,
    pub(crate) source: WriteSource,
    /// Whether it is counted what is done in each second.
    pub(crate) with_intervals: bool,
}

/// An I/O in flight.
pub(crate) struct Issued {
    at: Instant,
    thread: u32,
}

/// A client and its I/Os.
pub(crate) struct ClientLoad<S> {
    common: Rc<Common>,
    sender: S,
    in_flight: InFlight<Issued>,
    workload: Workload,
    /// How fast each thread may go; empty if as fast as it can.
    paces: Vec<Pace>,
    /// I/Os in flight per thread.
    outstanding: u32,
    content: Random,
    tally: ClientTally,
    /// When an I/O was last done, or the first one sent.
    progress_at: Instant,
    counters: Arc<ClientCounters>,
}

/// What makes up a client.
pub(crate) struct ClientParts<S> {
    pub(crate) name: String,
    pub(crate) sender: S,
    pub(crate) workload: Workload,
    pub(crate) paces: Vec<Pace>,
    pub(crate) outstanding: u32,
    pub(crate) content: Random,
    pub(crate) counters: Arc<ClientCounters>,
}

impl<S: IoSender> ClientLoad<S> {
    pub(crate) fn new(parts: ClientParts<S>, common: &Rc<Common>) -> Self {
        Self {
            common: Rc::clone(common),
            sender: parts.sender,
            in_flight: InFlight::new(),
            workload: parts.workload,
            paces: parts.paces,
            outstanding: parts.outstanding,
            content: parts.content,
            tally: ClientTally::new(&parts.name, common.with_intervals),
            progress_at: Instant::default(),
            counters: parts.counters,
        }
    }

    /// Sends the first I/Os.
    fn start(&mut self, now: Instant) {
        self.progress_at = now;
        for thread in 0..self.workload.threads() {
            for _ in 0..self.outstanding {
                self.issue(thread, now);
            }
        }
        self.publish();
    }

    /// Sends the next I/O of `thread`, if there is one, or has it wait until it may be sent.
    fn issue(&mut self, thread: usize, now: Instant) {
        if let Some(pace) = self.paces.get_mut(thread)
            && !pace.take(now)
        {
            pace.waiting += 1;
            return;
        }
        self.send(thread, now);
    }

    /// Sends what has waited until it may be sent.
    fn issue_due(&mut self, now: Instant) {
        let is_running = now < self.common.times.stop_at();
        for thread in 0..self.paces.len() {
            while self.paces[thread].waiting > 0 && (!is_running || self.paces[thread].take(now)) {
                self.paces[thread].waiting -= 1;
                if is_running {
                    self.send(thread, now);
                }
            }
        }
        self.publish();
    }

    /// When the next I/O may be sent of those that wait for that; at the latest when the load stops.
    fn due(&self) -> Option<Instant> {
        let due = self.paces.iter().filter_map(Pace::due).min()?;
        Some(due.min(self.common.times.stop_at()))
    }

    fn send(&mut self, thread: usize, now: Instant) {
        let Some(io) = self.workload.next(thread) else { return };
        if self.in_flight.len() == 0 {
            // Nothing was asked for until now.
            self.progress_at = now;
        }
        let command = if io.is_write { Command::Write } else { Command::Read };
        let request = Request { command, offset: io.offset, length: io.length };
        // Fewer threads than 2^32: the spec bounds them.
        let cookie = self.in_flight.insert(request, Issued { at: now, thread: thread as u32 });
        if io.is_write {
            let data = self.common.source.piece(&mut self.content, io.length as usize);
            self.sender.send_io(&request, cookie, &[data]);
        } else {
            self.sender.send_io(&request, cookie, &[]);
        }
    }

    /// Takes in everything that was received, at `now`.
    fn take_in(&mut self, receiver: &mut impl IoReceiver, now: Instant) -> Result<(), NbdError> {
        let common = Rc::clone(&self.common);
        let is_measured = common.times.is_measured(now);
        let is_running = now < common.times.stop_at();
        let since_start = now.since(common.times.measure_from);
        let mut any_done = false;
        while let Some(Answer { pending, error }) = receiver.next_answer(&mut self.in_flight)? {
            let Request { command, length, .. } = pending.request;
            let Issued { at, thread } = pending.token;
            match error {
                Some(number) => {
                    self.fail(RequestFailure { request: pending.request, number }, now);
                }
                None => {
                    if !std::mem::replace(&mut any_done, true) {
                        // Before anything new is asked for: that would begin another pause.
                        self.end_pause(now);
                    }
                    let latency = now.since(at);
                    self.show_done(latency, length);
                    self.tally.answered += 1;
                    if is_measured {
                        let is_write = command == Command::Write;
                        self.tally.done(is_write, latency, length, since_start);
                    }
                }
            }
            if is_running {
                self.issue(thread as usize, now);
            }
        }
        self.publish();
        Ok(())
    }

    fn show_done(&self, latency: Duration, bytes: u32) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        ClientCounters::add(&self.counters.done, 1);
        ClientCounters::add(&self.counters.done_bytes, u64::from(bytes));
        ClientCounters::add(&self.counters.latency_sum_ns, nanoseconds);
    }

    fn fail(&mut self, failure: RequestFailure, now: Instant) {
        let RequestFailure { request, .. } = failure;
        let at = now.since(self.common.times.start);
        self.tally.tell(at, request.command.name(), Some(request.offset), failure.reason());
        self.count_failed(1, now);
    }

    fn count_failed(&mut self, count: u64, now: Instant) {
        self.tally.failed += count;
        ClientCounters::add(&self.counters.failed, count);
        if self.common.times.is_measured(now)
            && let Some(counts) = self.tally.interval(now.since(self.common.times.measure_from))
        {
            counts.errors += count;
        }
    }

    /// Ends a time without any I/O done.
    fn end_pause(&mut self, now: Instant) {
        let pause = self.common.times.measured_between(self.progress_at, now);
        self.tally.longest_pause = self.tally.longest_pause.max(pause);
        self.progress_at = now;
    }

    fn publish(&self) {
        self.counters.set_waiting(self.progress_at, self.in_flight.len(), self.tally.longest_pause);
    }

    /// The connection is of no use any more: all that was in flight has failed.
    fn break_off(&mut self, now: Instant, error: &NbdError) {
        if self.in_flight.len() > 0 {
            self.end_pause(now);
        }
        let lost = self.in_flight.drain().len() as u64;
        let common = Rc::clone(&self.common);
        self.count_failed(lost, now);
        self.tally.is_lost = true;
        self.counters.is_lost.store(true, Ordering::Relaxed);
        let reason = format!("{error}; {lost} I/Os were in flight");
        self.tally.tell(now.since(common.times.start), "connection", None, reason);
        self.sender.end();
        self.publish();
    }

    /// Ends the load at `now`, whatever is still in flight, and yields what was counted.
    pub(crate) fn finish(&mut self, now: Instant) -> ClientTally {
        let left = self.in_flight.drain();
        if !left.is_empty() {
            self.end_pause(now);
            self.sender.end();
        }
        for pending in &left {
            let Request { command, offset, .. } = pending.request;
            let waited = now.since(pending.token.at).as_secs_f64();
            let reason = format!("not answered within {waited:.1} s, when the load ended");
            self.tally.tell(now.since(self.common.times.start), command.name(), Some(offset), reason);
        }
        self.tally.unanswered += left.len() as u64;
        self.publish();
        self.tally.clone()
    }
}

/// Puts the load on a client until the load stops or its connection breaks.
pub(crate) async fn run<P: Platform, S: IoSender>(
    platform: P,
    load: Rc<RefCell<ClientLoad<S>>>,
    mut receiver: impl IoReceiver,
) {
    load.borrow_mut().start(platform.now());
    loop {
        let due = load.borrow().due();
        let is_waiting_for_answers = load.borrow().in_flight.len() > 0;
        let filled = match (due, is_waiting_for_answers) {
            (None, false) => break,
            (None, true) => Some(receiver.fill().await),
            // Answers are taken in meanwhile, and it is noticed if the connection breaks.
            (Some(due), _) => before(&platform, due, receiver.fill()).await,
        };
        let now = platform.now();
        let mut load = load.borrow_mut();
        let Some(filled) = filled else {
            load.issue_due(now);
            continue;
        };
        if let Err(error) = filled.and_then(|()| load.take_in(&mut receiver, now)) {
            load.break_off(now, &error);
            return;
        }
        // Where answers come all the time, the wait for them never lasts so long.
        if load.due().is_some_and(|due| due <= now) {
            load.issue_due(now);
        }
    }
    load.borrow().sender.end();
}
