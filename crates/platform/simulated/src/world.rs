//! The world: virtual time, the events to come, and everything that lives in it.
//!
//! The world makes one step at a time: the turn of one ready process, or, when none is ready, the
//! next event, to whose time the clock then moves. Turns take no time. Everything is on one
//! thread and decided by the seed, so a run can be replayed exactly.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use crate::config::{RunLimits, TurnOrder, WorldConfig};
use crate::digest::digest;
use crate::drive::{DriveState, SimulatedDriveConfig};
use crate::drive_control::SimulatedDrive;
use crate::events::{Event, EventKey, EventQueue};
use crate::host::{Host, HostState};
use crate::image::DriveImage;
use crate::network::{Network, NetworkCounters};
use crate::process::{End, Process, ProcessState, ReadyList};
use crate::random::{DelayRange, Random, nanoseconds_of};
use crate::trace::{Kind, Trace};

/// Why a run of the world has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The condition holds.
    ConditionMet,
    /// The virtual time that the run was given is over.
    TimeOver,
    /// The steps that the run was given are over: something runs without end in no time.
    StepsOver,
    /// Nothing is left to do, now or later: whoever still waits waits for ever.
    NothingToDo,
    /// The crash that was planned on the drive of this name has struck.
    CrashPoint(String),
}

pub(crate) struct Shared {
    pub(crate) seed: u64,
    pub(crate) config: WorldConfig,
    now: Cell<u64>,
    events: RefCell<EventQueue>,
    pub(crate) ready: Arc<ReadyList>,
    scheduling: Random,
    trace: Trace,
    hosts: RefCell<Vec<Rc<HostState>>>,
    host_numbers: RefCell<BTreeMap<String, usize>>,
    /// By number; `None` once a process has ended.
    processes: RefCell<Vec<Option<Rc<ProcessState>>>>,
    /// The newest incarnation under each name.
    newest: RefCell<BTreeMap<String, Rc<ProcessState>>>,
    drives: RefCell<BTreeMap<String, Rc<DriveState>>>,
    pub(crate) network: Network,
    /// Processes whose end waits for the end of this step.
    ends: RefCell<Vec<(Rc<ProcessState>, End)>>,
    crash_point: RefCell<Option<String>>,
    running: Cell<bool>,
    owner: RefCell<Weak<Owner>>,
}

impl Shared {
    fn new(seed: u64, config: WorldConfig) -> Self {
        let trace = Trace::new(config.timeline_events);
        Self {
            seed,
            now: Cell::new(0),
            events: RefCell::default(),
            ready: Arc::default(),
            scheduling: Random::stream(seed, "scheduling", 0),
            trace,
            hosts: RefCell::default(),
            host_numbers: RefCell::default(),
            processes: RefCell::default(),
            newest: RefCell::default(),
            drives: RefCell::default(),
            network: Network::new(seed, config.network.clone()),
            config,
            ends: RefCell::default(),
            crash_point: RefCell::default(),
            running: Cell::new(false),
            owner: RefCell::default(),
        }
    }

    /// Nanoseconds since the world began.
    pub(crate) fn now(&self) -> u64 {
        self.now.get()
    }

    pub(crate) fn plan(&self, at: u64, event: Event) -> EventKey {
        self.events.borrow_mut().push(at.max(self.now()), event)
    }

    pub(crate) fn plan_after(&self, nanoseconds: u64, event: Event) -> EventKey {
        self.plan(self.now().saturating_add(nanoseconds), event)
    }

    pub(crate) fn cancel(&self, key: EventKey) {
        // Dropped outside the borrow: what the event holds may plan or cancel in its own drop.
        let event = self.events.borrow_mut().cancel(key);
        drop(event);
    }

    pub(crate) fn record(&self, kind: Kind, numbers: [u64; 3], describe: impl FnOnce() -> String) {
        self.trace.record(self.now(), kind, numbers, describe);
    }

    pub(crate) fn record_silently(&self, kind: Kind, numbers: [u64; 3]) {
        self.trace.record_silently(self.now(), kind, numbers);
    }

    pub(crate) fn note(&self, process: u64, text: &str) {
        self.record(Kind::Note, [process, digest(text.as_bytes()), 0], || text.to_owned());
    }

    pub(crate) fn host(&self, number: usize) -> Option<Rc<HostState>> {
        self.hosts.borrow().get(number).cloned()
    }

    pub(crate) fn drive(&self, name: &str) -> Option<Rc<DriveState>> {
        self.drives.borrow().get(name).cloned()
    }

    fn all_drives(&self) -> Vec<Rc<DriveState>> {
        self.drives.borrow().values().cloned().collect()
    }

    /// Ends a process whose end is decided, when the present turn or event is over.
    pub(crate) fn end_after_step(&self, process: &Rc<ProcessState>, end: End) {
        self.ends.borrow_mut().push((Rc::clone(process), end));
        if !self.running.get() {
            self.end_doomed();
        }
    }

    /// Says that a crash planned on a drive has struck; the run returns after this step.
    pub(crate) fn crash_point_struck(&self, drive: &str) {
        *self.crash_point.borrow_mut() = Some(drive.to_owned());
    }

    pub(crate) fn process_ended(&self, process: &Rc<ProcessState>, end: End) {
        self.processes.borrow_mut()[process.number] = None;
        self.network.process_ended(process, end);
        for drive in self.all_drives() {
            drive.process_ended(process.number);
        }
    }

    pub(crate) fn power_lost(&self, host: &Rc<HostState>) {
        let processes: Vec<_> = self.processes.borrow().iter().flatten().cloned().collect();
        for process in processes.iter().filter(|process| Rc::ptr_eq(&process.host, host)) {
            process.end(End::PowerCut);
        }
        for drive in self.all_drives().iter().filter(|drive| drive.is_attached_to(host)) {
            drive.power_lost();
        }
        self.network.power_lost(host);
    }

    pub(crate) fn power_returned(&self, host: &Rc<HostState>) {
        for drive in self.all_drives().iter().filter(|drive| drive.is_attached_to(host)) {
            drive.power_returned();
        }
        self.network.power_returned(host);
    }

    fn end_doomed(&self) {
        loop {
            let ends = self.ends.take();
            if ends.is_empty() {
                return;
            }
            for (process, end) in ends {
                if end == End::PowerCut {
                    process.host.power_cut();
                }
                process.end_now(end);
            }
        }
    }

    /// Makes one step, unless the next event lies beyond `time_max`.
    fn step(&self, time_max: u64) -> Step {
        assert!(!self.running.replace(true), "a task or condition may not run its own world");
        let _running = ClearOnDrop(&self.running);
        let ready = self.ready.len();
        if ready > 0 {
            let index = match self.config.order {
                TurnOrder::Fifo => 0,
                TurnOrder::Random => self.scheduling.index(ready),
            };
            let number = self.ready.take(index);
            let process = number.and_then(|number| self.processes.borrow().get(number).cloned().flatten());
            if let Some(process) = process {
                process.take_turn();
            }
        } else {
            match self.events.borrow().next_time() {
                None => return Step::Nothing,
                Some(time) if time > time_max => return Step::Later,
                Some(_) => {}
            }
            let next = self.events.borrow_mut().pop();
            if let Some((time, event)) = next {
                self.now.set(time);
                self.fire(event);
            }
        }
        self.end_doomed();
        Step::Done
    }

    fn fire(&self, event: Event) {
        match event {
            Event::Timers(host) => host.fire_timers(),
            Event::Drive(drive, operation) => drive.complete(operation),
            Event::Deliver(connection, side) => connection.deliver(side),
            Event::Credit(connection, side) => connection.credit(side),
            Event::Resume(process, pause) => process.resume_from(pause),
            Event::Call(call) => {
                let owner = self.owner.borrow().upgrade();
                if let Some(owner) = owner {
                    call(&World { owner });
                }
            }
        }
    }

    pub(crate) fn run(&self, limits: RunLimits, condition: &mut dyn FnMut() -> bool) -> RunEnd {
        let time_max = self.now().saturating_add(nanoseconds_of(limits.time));
        let mut steps = 0;
        loop {
            if condition() {
                return RunEnd::ConditionMet;
            }
            if let Some(drive) = self.crash_point.take() {
                return RunEnd::CrashPoint(drive);
            }
            if steps == limits.steps {
                return RunEnd::StepsOver;
            }
            match self.step(time_max) {
                Step::Done => steps += 1,
                Step::Nothing => return RunEnd::NothingToDo,
                Step::Later => {
                    self.now.set(time_max);
                    return RunEnd::TimeOver;
                }
            }
        }
    }

    /// Takes everything apart, so that nothing holds itself alive in a circle.
    fn tear_down(&self) {
        let processes: Vec<_> = self.newest.borrow().values().cloned().collect();
        for process in processes {
            process.tear_down();
        }
        drop(self.events.take());
        drop(self.processes.take());
        drop(self.newest.take());
        drop(self.ends.take());
        self.network.tear_down();
        for host in self.hosts.take() {
            host.take_blocked();
        }
        drop(self.drives.take());
    }
}

enum Step {
    Done,
    Nothing,
    Later,
}

struct ClearOnDrop<'a>(&'a Cell<bool>);

impl Drop for ClearOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// What the last [`World`] handle takes with it.
struct Owner {
    shared: Rc<Shared>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.shared.tear_down();
    }
}

/// A simulated world. Cheap to clone; all clones are the same world, which ends with the last
/// one. A task must not hold one, or it keeps its own world alive for ever.
#[derive(Clone)]
pub struct World {
    owner: Rc<Owner>,
}

impl World {
    /// The world of `seed`, with usual settings.
    pub fn new(seed: u64) -> Self {
        Self::with_config(seed, WorldConfig::default())
    }

    /// The world of `seed`, with settings that the seed picks as well, so that many seeds visit
    /// many kinds of worlds.
    pub fn swarm(seed: u64) -> Self {
        Self::with_config(seed, WorldConfig::swarm(seed))
    }

    /// The world of `seed` with given settings.
    pub fn with_config(seed: u64, config: WorldConfig) -> Self {
        let owner = Rc::new(Owner { shared: Rc::new(Shared::new(seed, config)) });
        *owner.shared.owner.borrow_mut() = Rc::downgrade(&owner);
        Self { owner }
    }

    pub(crate) fn shared(&self) -> &Rc<Shared> {
        &self.owner.shared
    }

    /// The seed that decides everything.
    pub fn seed(&self) -> u64 {
        self.shared().seed
    }

    /// The settings it was made with.
    pub fn config(&self) -> &WorldConfig {
        &self.shared().config
    }

    /// The virtual time since the world began.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.shared().now())
    }

    /// Adds a host, with power.
    pub fn add_host(&self, name: &str) -> Host {
        let shared = self.shared();
        let number = shared.hosts.borrow().len();
        let former = shared.host_numbers.borrow_mut().insert(name.to_owned(), number);
        assert!(former.is_none(), "there is a host {name} already");
        let state = HostState::new(shared, u32::try_from(number).expect("few hosts"), name);
        shared.hosts.borrow_mut().push(Rc::clone(&state));
        Host { state }
    }

    /// The host of that name, which is added if there is none.
    pub fn host(&self, name: &str) -> Host {
        let number = self.shared().host_numbers.borrow().get(name).copied();
        match number.and_then(|number| self.shared().host(number)) {
            Some(state) => Host { state },
            None => self.add_host(name),
        }
    }

    /// The host that has that address.
    pub fn host_at(&self, address: IpAddr) -> Option<Host> {
        self.shared().network.host_at(self.shared(), address).map(|(state, _)| Host { state })
    }

    /// The process of that name, which is started, on the host of the same name, if it doesn't
    /// run.
    pub fn process(&self, name: &str) -> Process {
        let running = self.shared().newest.borrow().get(name).cloned();
        match running.filter(|process| !process.is_stopped()) {
            Some(state) => Process { state },
            None => self.start_process(name),
        }
    }

    /// Starts the process of that name: on the host where it ran before, or else on the host of
    /// the same name. Panics if it runs, or its host has no power.
    pub fn start_process(&self, name: &str) -> Process {
        let former = self.shared().newest.borrow().get(name).map(|process| Rc::clone(&process.host));
        let host = former.map_or_else(|| self.host(name), |state| Host { state });
        self.start_process_on(&host, name)
    }

    /// Starts the process of that name on `host`. Panics if it runs, or `host` has no power.
    pub fn start_process_on(&self, host: &Host, name: &str) -> Process {
        let shared = self.shared();
        assert!(host.is_powered(), "{name} cannot start: host {} has no power", host.name());
        let former = shared.newest.borrow().get(name).cloned();
        let incarnation = former.map_or(1, |former| {
            assert!(former.is_stopped(), "{name} cannot start: it runs");
            former.incarnation + 1
        });
        let number = shared.processes.borrow().len();
        let state = ProcessState::new(shared, &host.state, name, number, incarnation);
        shared.processes.borrow_mut().push(Some(Rc::clone(&state)));
        shared.newest.borrow_mut().insert(name.to_owned(), Rc::clone(&state));
        Process { state }
    }

    /// Adds a drive of zeros. It belongs to the host whose process first opens it.
    pub fn add_drive(&self, name: &str, config: SimulatedDriveConfig) -> SimulatedDrive {
        self.add_drive_from_image(name, config, DriveImage::new(config.size_bytes))
    }

    /// Adds a drive that holds `image`, whose size must be the drive's.
    pub fn add_drive_from_image(
        &self,
        name: &str,
        config: SimulatedDriveConfig,
        image: DriveImage,
    ) -> SimulatedDrive {
        let number = self.shared().drives.borrow().len() as u64;
        let state = DriveState::new(self.shared(), number, name, config, image);
        let former = self.shared().drives.borrow_mut().insert(name.to_owned(), Rc::clone(&state));
        assert!(former.is_none(), "there is a drive {name} already");
        SimulatedDrive::new(state)
    }

    /// The drive of that name.
    pub fn drive(&self, name: &str) -> Option<SimulatedDrive> {
        self.shared().drive(name).map(SimulatedDrive::new)
    }

    /// Runs `call` when `delay` has passed. It is handed the world, so that it need not hold it,
    /// which would keep the world alive for ever.
    pub fn after(&self, delay: Duration, call: impl FnOnce(&World) + 'static) {
        self.shared().plan_after(nanoseconds_of(delay), Event::Call(Box::new(call)));
    }

    /// Makes one step. False if nothing is left to do, now or later.
    pub fn step(&self) -> bool {
        matches!(self.shared().step(u64::MAX), Step::Done)
    }

    /// Runs until `condition` holds, within the limits of the settings. It is looked at before
    /// each step.
    #[must_use = "a run that ends in another way than it should is a finding"]
    pub fn run_until(&self, mut condition: impl FnMut() -> bool) -> RunEnd {
        self.shared().run(self.config().limits, &mut condition)
    }

    /// Runs until `condition` holds, but no longer than `time`.
    #[must_use = "a run that ends in another way than it should is a finding"]
    pub fn run_until_within(&self, time: Duration, mut condition: impl FnMut() -> bool) -> RunEnd {
        self.shared().run(RunLimits { time, ..self.config().limits }, &mut condition)
    }

    /// Runs for `duration`, also if nothing is left to do. Ends as [`RunEnd::TimeOver`] unless it
    /// ran out of steps or met a planned crash.
    pub fn run_for(&self, duration: Duration) -> RunEnd {
        let end = self.shared().now().saturating_add(nanoseconds_of(duration));
        let result = self.run_until_within(duration, || false);
        if result != RunEnd::NothingToDo {
            return result;
        }
        self.shared().now.set(end);
        RunEnd::TimeOver
    }

    /// Runs until nothing is left to do, within the limits of the settings.
    #[must_use = "a run that ends in another way than it should is a finding"]
    pub fn run_until_idle(&self) -> RunEnd {
        self.run_until(|| false)
    }

    /// Takes the power of a host away; see [`Host::power_cut`].
    pub fn power_cut(&self, host: &Host) {
        host.power_cut();
    }

    /// Gives the power of a host back; see [`Host::power_on`].
    pub fn power_on(&self, host: &Host) {
        host.power_on();
    }

    /// From now on nothing that `a` sends reaches `b` and the other way round, on any network.
    /// Nothing is refused either: it waits, as TCP repeats what was lost, until the link heals.
    pub fn cut(&self, a: &Host, b: &Host) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    /// From now on nothing that `from` sends reaches `to`, on any network.
    pub fn cut_one_way(&self, from: &Host, to: &Host) {
        for network in 0..self.config().network.networks {
            self.cut_network(network, from, to);
        }
    }

    /// From now on nothing that `from` sends on network `network` reaches `to`.
    pub fn cut_network(&self, network: u8, from: &Host, to: &Host) {
        self.shared().network.set_cut(self.shared(), network, &from.state, &to.state, true);
    }

    /// Both directions between `a` and `b` work again, on every network. What waited continues,
    /// unless its connection broke meanwhile.
    pub fn heal(&self, a: &Host, b: &Host) {
        self.heal_one_way(a, b);
        self.heal_one_way(b, a);
    }

    /// What `from` sends reaches `to` again, on every network.
    pub fn heal_one_way(&self, from: &Host, to: &Host) {
        for network in 0..self.config().network.networks {
            self.heal_network(network, from, to);
        }
    }

    /// What `from` sends on network `network` reaches `to` again.
    pub fn heal_network(&self, network: u8, from: &Host, to: &Host) {
        self.shared().network.set_cut(self.shared(), network, &from.state, &to.state, false);
    }

    /// Cuts `host` off from every other host, in both directions.
    pub fn isolate(&self, host: &Host) {
        for other in self.all_hosts() {
            if other.state.number != host.state.number {
                self.cut(host, &other);
            }
        }
    }

    /// Heals every link.
    pub fn heal_all(&self) {
        self.shared().network.heal_all(self.shared());
    }

    /// From now on what `from` sends to `to` takes `delay`, on every network.
    pub fn set_link_delay(&self, from: &Host, to: &Host, delay: DelayRange) {
        for network in 0..self.config().network.networks {
            self.shared().network.set_delay(network, &from.state, &to.state, delay);
        }
    }

    /// Breaks every connection between `a` and `b`: of what is on its way, some first part is
    /// still delivered, then both ends see that the connection is broken. Returns how many.
    pub fn break_connections(&self, a: &Host, b: &Host) -> usize {
        self.shared().network.break_connections(self.shared(), &a.state, &b.state)
    }

    /// Breaks one connection between different hosts, which the seed picks, in the same way.
    /// False if there is none.
    pub fn break_random_connection(&self) -> bool {
        self.shared().network.break_random_connection(self.shared())
    }

    /// What all processes together have sent to other hosts.
    pub fn network_counters(&self) -> NetworkCounters {
        self.shared().network.counters.get()
    }

    /// A hash over everything that has happened. Equal for two runs of one seed and one program.
    pub fn trace_hash(&self) -> u64 {
        self.shared().trace.hash()
    }

    /// How many events the hash covers.
    pub fn trace_events(&self) -> u64 {
        self.shared().trace.events()
    }

    /// What happened last, one line each, if the settings ask for a timeline.
    pub fn timeline(&self) -> String {
        self.shared().trace.timeline()
    }

    /// Adds a line of the test's own to the trace.
    pub fn note(&self, text: &str) {
        self.shared().note(u64::MAX, text);
    }

    fn all_hosts(&self) -> Vec<Host> {
        self.shared().hosts.borrow().iter().map(|state| Host { state: Rc::clone(state) }).collect()
    }
}

impl fmt::Debug for World {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "World(seed {}, at {:?})", self.seed(), self.now())
    }
}

#[cfg(test)]
#[path = "world_tests.rs"]
mod tests;
