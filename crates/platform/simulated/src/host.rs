//! A simulated machine: its power, its clock, its addresses, and the sleepers on its clock.
//!
//! The clock runs at its own rate from the boot on and never goes back until the next boot. All
//! processes of a host share it. Sleepers wait in the host's own time, so that a change of rate
//! wakes none of them early; the world's queue holds only the first.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use spandrel_platform::{Instant, UnixTime};

use crate::connection::{ConnectionState, Side};
use crate::events::{Event, EventKey};
use crate::random::{Random, nanoseconds_of};
use crate::trace::Kind;
use crate::world::Shared;

/// Rates are fixed-point numbers with this many bits behind the point: 0.23 parts per billion.
const RATE_BITS: u32 = 32;

/// Local times from here on never come.
const NEVER: u64 = u64::MAX / 2;

/// The civil time at which every world begins, in milliseconds: the start of 2026.
const UNIX_TIME_AT_START: i64 = 1_767_225_600_000;

pub(crate) struct HostState {
    pub(crate) number: u32,
    pub(crate) name: String,
    pub(crate) shared: Rc<Shared>,
    pub(crate) random: Random,
    powered: Cell<bool>,
    clock: Cell<Clock>,
    /// What the time of day shows beyond the time since the world began.
    unix_offset_milliseconds: Cell<i64>,
    timers: RefCell<Timers>,
    /// Wires whose next segment waits until this host has power.
    blocked: RefCell<Vec<(Rc<ConnectionState>, Side)>>,
    pub(crate) next_port: Cell<u16>,
    /// Who it has proven to be to whoever has a connection with it.
    pub(crate) proven_name: RefCell<Option<String>>,
}

/// A clock of its own rate, anchored where it last changed. Times in nanoseconds.
#[derive(Clone, Copy)]
struct Clock {
    anchor_world: u64,
    anchor_local: u64,
    rate: u64,
}

impl Clock {
    fn local(&self, world: u64) -> u64 {
        let elapsed = u128::from(world.saturating_sub(self.anchor_world));
        let local = (elapsed * u128::from(self.rate)) >> RATE_BITS;
        self.anchor_local.saturating_add(u64::try_from(local).unwrap_or(u64::MAX))
    }

    /// The first world time at which the clock shows `local` or more.
    fn world(&self, local: u64) -> u64 {
        let ahead = u128::from(local.saturating_sub(self.anchor_local));
        let elapsed = (ahead << RATE_BITS).div_ceil(u128::from(self.rate));
        self.anchor_world.saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX))
    }
}

#[derive(Default)]
struct Timers {
    /// By local deadline and number.
    sleepers: BTreeMap<(u64, u64), Waker>,
    planned: u64,
    /// The event for the first sleeper, and the deadline it was planned for.
    armed: Option<(EventKey, u64)>,
}

impl HostState {
    pub(crate) fn new(shared: &Rc<Shared>, number: u32, name: &str) -> Rc<Self> {
        let random = Random::stream(shared.seed, name, 0x686f_7374);
        let drift_max = i64::from(shared.config.clock_drift_ppm_max) * 1000;
        let spread = random.between(0, 2 * drift_max.unsigned_abs()).cast_signed();
        let clock = Clock {
            anchor_world: shared.now(),
            anchor_local: random.between(0, nanoseconds_of(shared.config.boot_age_max)),
            rate: rate_of(spread - drift_max),
        };
        let unix_offset = random.below(2001).cast_signed() - 1000;
        Rc::new(Self {
            number,
            name: name.to_owned(),
            shared: Rc::clone(shared),
            random,
            powered: Cell::new(true),
            clock: Cell::new(clock),
            unix_offset_milliseconds: Cell::new(unix_offset),
            timers: RefCell::default(),
            blocked: RefCell::default(),
            next_port: Cell::new(49_152),
            proven_name: RefCell::default(),
        })
    }

    pub(crate) fn is_powered(&self) -> bool {
        self.powered.get()
    }

    pub(crate) fn local_time(&self) -> u64 {
        self.clock.get().local(self.shared.now())
    }

    pub(crate) fn unix_time(&self) -> UnixTime {
        let since_start = i64::try_from(self.shared.now() / 1_000_000).unwrap_or(i64::MAX);
        let shown = UNIX_TIME_AT_START.saturating_add(since_start);
        UnixTime(shown.saturating_add(self.unix_offset_milliseconds.get()).max(0).unsigned_abs())
    }

    pub(crate) fn address(&self, network: u8) -> Ipv4Addr {
        // Counted from one, so that no host has an address that ends in zero and looks like a network.
        let [_, high, middle, low] = (self.number + 1).to_be_bytes();
        assert!(high == 0, "a world has fewer than 65535 hosts");
        Ipv4Addr::new(10, network, middle, low)
    }

    pub(crate) fn block(&self, connection: Rc<ConnectionState>, side: Side) {
        self.blocked.borrow_mut().push((connection, side));
    }

    pub(crate) fn take_blocked(&self) -> Vec<(Rc<ConnectionState>, Side)> {
        self.blocked.take()
    }

    /// Wakes the sleepers that are due.
    pub(crate) fn fire_timers(self: &Rc<Self>) {
        let local = self.local_time();
        let mut due = Vec::new();
        {
            let mut timers = self.timers.borrow_mut();
            timers.armed = None;
            while let Some(first) = timers.sleepers.first_entry()
                && first.key().0 <= local
            {
                due.push(first.remove());
            }
        }
        self.shared.record_silently(Kind::Timers, [self.number.into(), due.len() as u64, local]);
        for waker in due {
            waker.wake();
        }
        self.arm();
    }

    /// Plans the event for the first sleeper, if it isn't planned.
    fn arm(self: &Rc<Self>) {
        let mut timers = self.timers.borrow_mut();
        let first = timers.sleepers.first_key_value().map(|((deadline, _), _)| *deadline);
        let first = first.filter(|deadline| *deadline < NEVER);
        if timers.armed.map(|(_, deadline)| deadline) == first {
            return;
        }
        if let Some((key, _)) = timers.armed.take() {
            self.shared.cancel(key);
        }
        if let Some(deadline) = first {
            let slack = self.random.below(nanoseconds_of(self.shared.config.timer_slack_max).max(1));
            let at = self.clock.get().world(deadline).max(self.shared.now()).saturating_add(slack);
            let key = self.shared.plan(at, Event::Timers(Rc::clone(self)));
            timers.armed = Some((key, deadline));
        }
    }

    fn set_clock(self: &Rc<Self>, clock: Clock) {
        self.clock.set(clock);
        let armed = self.timers.borrow_mut().armed.take();
        if let Some((key, _)) = armed {
            self.shared.cancel(key);
        }
        self.arm();
    }

    pub(crate) fn power_cut(self: &Rc<Self>) {
        if !self.powered.replace(false) {
            return;
        }
        self.shared.record(Kind::Host, [self.number.into(), 0, 0], || format!("{}: power cut", self.name));
        self.shared.power_lost(self);
    }

    pub(crate) fn power_on(self: &Rc<Self>) {
        if self.powered.replace(true) {
            return;
        }
        self.shared.record(Kind::Host, [self.number.into(), 1, 0], || format!("{}: power on", self.name));
        let boot = self.random.between(1_000_000_000, 10_000_000_000);
        self.set_clock(Clock { anchor_world: self.shared.now(), anchor_local: boot, ..self.clock.get() });
        self.shared.power_returned(self);
    }
}

/// The fixed-point rate of a clock that runs `drift_ppb` parts per billion fast.
fn rate_of(drift_ppb: i64) -> u64 {
    let billion = 1_000_000_000;
    assert!((-900_000_000..=9 * billion).contains(&drift_ppb), "a clock cannot drift by {drift_ppb} ppb");
    let rate = (u128::from((billion + drift_ppb).unsigned_abs()) << RATE_BITS) / 1_000_000_000;
    u64::try_from(rate).expect("at most ten times the world's rate")
}

/// Completes when the host's clock shows the deadline or a little more.
pub(crate) struct Sleep {
    host: Rc<HostState>,
    deadline: u64,
    number: Option<u64>,
}

impl Sleep {
    pub(crate) fn new(host: Rc<HostState>, deadline: u64) -> Self {
        Self { host, deadline, number: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.host.local_time() >= self.deadline {
            return Poll::Ready(());
        }
        let mut timers = self.host.timers.borrow_mut();
        let number = self.number.unwrap_or_else(|| {
            timers.planned += 1;
            timers.planned
        });
        timers.sleepers.insert((self.deadline, number), context.waker().clone());
        drop(timers);
        self.host.arm();
        self.number = Some(number);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(number) = self.number else { return };
        let removed = self.host.timers.borrow_mut().sleepers.remove(&(self.deadline, number));
        if removed.is_some() {
            self.host.arm();
        }
    }
}

/// A simulated machine. Cheap to clone; all clones are the same host.
#[derive(Clone)]
pub struct Host {
    pub(crate) state: Rc<HostState>,
}

impl Host {
    /// The name it was added under.
    pub fn name(&self) -> &str {
        &self.state.name
    }

    /// Its address on network `network` (0 is the first).
    pub fn address(&self, network: u8) -> IpAddr {
        IpAddr::V4(self.state.address(network))
    }

    /// Whether it has power.
    pub fn is_powered(&self) -> bool {
        self.state.is_powered()
    }

    /// Takes the power away: all processes end, nothing is said to anybody, and what the drives
    /// had not flushed is undetermined. Does nothing without power.
    pub fn power_cut(&self) {
        self.state.power_cut();
    }

    /// Gives the power back. The host boots: its clock begins again near zero, its drives decide
    /// what they have kept, and no process runs until one is started.
    pub fn power_on(&self) {
        self.state.power_on();
    }

    /// From now on it proves to whoever has a connection with it that it is `name`, as with a certificate.
    pub fn prove_name(&self, name: &str) {
        self.state.proven_name.replace(Some(name.to_owned()));
    }

    /// What its monotonic clock shows.
    pub fn now(&self) -> Instant {
        Instant::from_nanoseconds(self.state.local_time())
    }

    /// From now on the clock runs `drift_ppm` parts per million fast (slow if negative). What it
    /// shows does not jump.
    pub fn set_clock_drift(&self, drift_ppm: i32) {
        let state = &self.state;
        state.shared.record(Kind::Host, [state.number.into(), 2, drift_ppm.cast_unsigned().into()], || {
            format!("{}: clock drifts by {drift_ppm} ppm", state.name)
        });
        state.set_clock(Clock {
            anchor_world: state.shared.now(),
            anchor_local: state.local_time(),
            rate: rate_of(i64::from(drift_ppm) * 1000),
        });
    }

    /// Lets the monotonic clock leap ahead, as it does over a suspend that the world did not see.
    /// Sleepers that this makes due wake at once.
    pub fn advance_clock(&self, duration: Duration) {
        let state = &self.state;
        let nanoseconds = nanoseconds_of(duration);
        state.shared.record(Kind::Host, [state.number.into(), 3, nanoseconds], || {
            format!("{}: clock leaps by {duration:?}", state.name)
        });
        state.set_clock(Clock {
            anchor_world: state.shared.now(),
            anchor_local: state.local_time().saturating_add(nanoseconds),
            ..state.clock.get()
        });
    }

    /// Moves the time of day, as an administrator or NTP does. The monotonic clock is untouched.
    pub fn jump_unix_time(&self, milliseconds: i64) {
        let state = &self.state;
        let jump = milliseconds.cast_unsigned();
        state.shared.record(Kind::Host, [state.number.into(), 4, jump], || {
            format!("{}: time of day jumps by {milliseconds} ms", state.name)
        });
        let offset = &state.unix_offset_milliseconds;
        offset.set(offset.get().saturating_add(milliseconds));
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Host({})", self.state.name)
    }
}

#[cfg(test)]
#[path = "host_tests.rs"]
mod tests;
