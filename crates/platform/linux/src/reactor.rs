//! The epoll set of one shard: which sockets are ready, and how the shard sleeps.
//!
//! Everything is registered once, edge-triggered, so that an operation on a socket costs no
//! epoll_ctl. Each source remembers what it was told until a call on the socket shows that the
//! readiness is used up. The ring alone is level-triggered: the kernel looks at its queue again
//! with every wait, so an event that was already served is not reported.
//!
//! Deadlines are kept by a timerfd on CLOCK_BOOTTIME in the set. It counts in nanoseconds, where
//! epoll's own time limit counts in milliseconds, and goes on through a suspend. It is armed only
//! when a sleep needs an earlier end than it already has.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
use spandrel_platform::Instant;
use spandrel_platform::sync::Signal;

use crate::table::Table;

/// Tokens above those of the table: sources that need no call of their own.
const TOKEN_WAKE: u64 = u64::MAX;
const TOKEN_TIMER: u64 = u64::MAX - 1;
const TOKEN_RING: u64 = u64::MAX - 2;

/// Events taken from the kernel by one wait.
const EVENTS_PER_WAIT: usize = 256;

/// Something that wants to hear when its descriptor is ready.
pub(crate) trait EventSource {
    fn on_events(self: Rc<Self>, events: EventFlags);
}

/// The epoll set.
pub(crate) struct Reactor {
    epoll: OwnedFd,
    timer: OwnedFd,
    /// When the timer's next event comes, if it is armed.
    armed: Cell<Option<Instant>>,
    sources: RefCell<Table<Weak<dyn EventSource>>>,
    events: RefCell<Vec<Event>>,
}

impl Reactor {
    pub(crate) fn new(wake: BorrowedFd<'_>) -> rustix::io::Result<Self> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let timer = create_timer()?;
        epoll::add(&epoll, wake, EventData::new_u64(TOKEN_WAKE), EventFlags::IN | EventFlags::ET)?;
        epoll::add(&epoll, &timer, EventData::new_u64(TOKEN_TIMER), EventFlags::IN | EventFlags::ET)?;
        let events = RefCell::new(Vec::with_capacity(EVENTS_PER_WAIT));
        Ok(Self { epoll, timer, armed: Cell::new(None), sources: RefCell::default(), events })
    }

    /// Registers `descriptor`, whose events go to `source` until [`Reactor::remove`].
    pub(crate) fn add(
        &self,
        descriptor: impl AsFd,
        source: Weak<dyn EventSource>,
        interest: EventFlags,
    ) -> rustix::io::Result<u64> {
        let token = self.sources.borrow_mut().insert(source);
        let added = epoll::add(&self.epoll, descriptor, EventData::new_u64(token), interest | EventFlags::ET);
        if let Err(error) = added {
            self.sources.borrow_mut().remove(token);
            return Err(error);
        }
        Ok(token)
    }

    /// Changes what `descriptor` is watched for. What is ready now is reported anew.
    pub(crate) fn change(
        &self,
        descriptor: impl AsFd,
        token: u64,
        interest: EventFlags,
    ) -> rustix::io::Result<()> {
        epoll::modify(&self.epoll, descriptor, EventData::new_u64(token), interest | EventFlags::ET)
    }

    /// Ends a registration.
    pub(crate) fn remove(&self, descriptor: impl AsFd, token: u64) {
        // The kernel may have dropped the entry already; its late events find no source.
        let _ = epoll::delete(&self.epoll, descriptor);
        self.sources.borrow_mut().remove(token);
    }

    /// Makes completions in a ring end the sleep.
    pub(crate) fn add_ring(&self, ring: BorrowedFd<'_>) -> rustix::io::Result<()> {
        epoll::add(&self.epoll, ring, EventData::new_u64(TOKEN_RING), EventFlags::IN)
    }

    /// Looks for events without sleeping. Returns whether there are any.
    pub(crate) fn poll(&self) -> bool {
        self.wait(Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))
    }

    /// Sleeps until there are events or until `deadline`.
    pub(crate) fn sleep(&self, now: Instant, deadline: Option<Instant>) {
        if let Some(deadline) = deadline {
            self.arm(now, deadline);
        }
        self.wait(None);
    }

    fn wait(&self, limit: Option<&Timespec>) -> bool {
        let mut events = self.events.borrow_mut();
        events.clear();
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), limit) {
            Ok(count) => count > 0,
            // A signal, or the ring's completions, ended the sleep.
            Err(Errno::INTR) => false,
            Err(error) => panic!("epoll_wait fails only on a descriptor that is not an epoll set: {error}"),
        }
    }

    fn arm(&self, now: Instant, deadline: Instant) {
        let still_to_come = |armed: &Instant| *armed > now;
        if self.armed.get().filter(still_to_come).is_some_and(|armed| armed <= deadline) {
            return;
        }
        // Relative, so that the clock that the timer counts by need not be the one of `now`. Never
        // zero, which would disarm it.
        let delay = deadline.since(now).max(Duration::from_nanos(1));
        let value = Timespec {
            tv_sec: i64::try_from(delay.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(delay.subsec_nanos()),
        };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        rustix::time::timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once)
            .expect("a valid time span arms a timer");
        self.armed.set(Some(deadline));
    }

    /// Tells the sources what the last wait found.
    pub(crate) fn dispatch(&self) {
        let mut events = std::mem::take(&mut *self.events.borrow_mut());
        for event in &events {
            let (token, flags) = (event.data.u64(), event.flags);
            let source = self.sources.borrow().get(token).and_then(Weak::upgrade);
            if let Some(source) = source {
                source.on_events(flags);
            }
        }
        events.clear();
        self.events.replace(events);
    }
}

fn create_timer() -> rustix::io::Result<OwnedFd> {
    let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
    match rustix::time::timerfd_create(TimerfdClockId::Boottime, flags) {
        // Some sandboxes know the monotonic clock only; nothing is suspended there.
        Err(Errno::INVAL) => rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags),
        created => created,
    }
}

/// A source that remembers what it was told and wakes who waits: enough for listeners and for
/// connects in progress.
#[derive(Default)]
pub(crate) struct Readiness {
    ready: Cell<bool>,
    changed: Signal,
}

impl Readiness {
    /// Forgets the event: the descriptor has nothing more to give.
    pub(crate) fn clear(&self) {
        self.ready.set(false);
    }

    /// Completes when the descriptor is ready.
    pub(crate) async fn ready(&self) {
        self.changed.wait_until(|| self.ready.get()).await;
    }
}

impl EventSource for Readiness {
    fn on_events(self: Rc<Self>, _events: EventFlags) {
        self.ready.set(true);
        self.changed.notify_all();
    }
}
