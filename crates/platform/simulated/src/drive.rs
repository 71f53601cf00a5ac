//! A simulated drive at work: operations that take time, and the process that holds it.
//!
//! An operation is submitted when it is called, not when its future is first polled, and goes on
//! if the future is dropped. Operations complete in any order, each after a latency that the
//! seed picks. What the drive remembers is [`crate::storage`]'s; what is wrong with it is
//! [`crate::drive_faults`]'; how a test reaches both is [`SimulatedDrive`]'s.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::future::{Future, pending};
use std::rc::Rc;
use std::time::Duration;

use spandrel_platform::sync::{OneshotReceiver, OneshotSender, oneshot};
use spandrel_platform::{
    Buffer, BufferMut, Drive, DriveError, DriveErrorKind, DriveGeometry, DriveOperation, Platform,
};

use crate::drive_control::{CrashMoment, CrashPlan, CrashScope};
use crate::drive_faults::{DriveCounters, Extent, Faults, Room, Stray};
use crate::events::{Event, EventKey};
use crate::host::HostState;
use crate::image::DriveImage;
use crate::overlaps::Overlaps;
use crate::platform::SimulatedPlatform;
use crate::process::{End, ProcessState};
use crate::random::{DelayRange, Random};
use crate::storage::{PendingWrite, Storage};
use crate::trace::Kind;
use crate::world::Shared;

/// A simulated drive's properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SimulatedDriveConfig {
    /// Bytes that can be addressed.
    pub size_bytes: u64,
    /// The unit that the drive writes as a whole: 512 or 4096.
    pub sector_bytes: u32,
    /// Whether completed writes need a flush to survive a power cut.
    pub volatile_cache: bool,
    /// How long a read takes, without its bytes.
    pub read_latency: DelayRange,
    /// How long a write takes, without its bytes.
    pub write_latency: DelayRange,
    /// How long a flush takes.
    pub flush_latency: DelayRange,
    /// What an operation moves in a second, beside its latency; unlimited if absent.
    pub bandwidth_bytes_per_second: Option<u64>,
    /// Whether reads and writes of one part are done at once if that is asked, as by memory; now and then they are not.
    pub works_at_once: bool,
}

impl Default for SimulatedDriveConfig {
    /// A small consumer flash drive: fast, and with a cache that needs flushes.
    fn default() -> Self {
        Self {
            size_bytes: 64 << 20,
            sector_bytes: 512,
            volatile_cache: true,
            read_latency: DelayRange::microseconds(60, 120),
            write_latency: DelayRange::microseconds(15, 80),
            flush_latency: DelayRange::microseconds(100, 1000),
            bandwidth_bytes_per_second: Some(2_000_000_000),
            works_at_once: false,
        }
    }
}

/// Of 1000 operations that could be done at once, how many are not.
const NOT_AT_ONCE_PER_MILLE: u32 = 100;

/// What has become of the drive as a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Health {
    Working,
    /// Answers everything with an error.
    Dead,
    /// Answers nothing.
    Silent,
}

pub(crate) struct DriveState {
    pub(crate) shared: Rc<Shared>,
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) config: SimulatedDriveConfig,
    pub(crate) random: Random,
    pub(crate) inner: RefCell<DriveInner>,
}

pub(crate) struct DriveInner {
    pub(crate) storage: Storage,
    pub(crate) faults: Faults,
    pub(crate) counters: DriveCounters,
    pub(crate) health: Health,
    pub(crate) room: Room,
    pub(crate) latency_factor: u32,
    /// In whose power supply it hangs.
    pub(crate) host: Option<Rc<HostState>>,
    /// Whether what it has kept is decided since its power last went.
    pub(crate) powered: bool,
    /// Raised when it is pulled out: who opened it before holds a dead handle.
    pub(crate) attachment: u64,
    pub(crate) plan: Option<CrashPlan>,
    pub(crate) crashed: bool,
    holder: Option<Holder>,
    /// In flight, by number.
    operations: BTreeMap<u64, Operation>,
    /// Operations that a silent drive keeps to itself.
    pub(crate) stalled: Vec<u64>,
    submitted: u64,
    overlaps: Overlaps,
}

struct Holder {
    process: usize,
    /// Whether a handle is left; if not, it is released with its last operation.
    open: bool,
}

struct Operation {
    process: Rc<ProcessState>,
    attachment: u64,
    extent: Extent,
    request: Request,
    /// Decided at its submission.
    failure: Option<DriveError>,
    /// Whether the planned crash strikes when it completes.
    crash: Option<CrashScope>,
    event: EventKey,
}

enum Request {
    Read(BufferMut, OneshotSender<Result<BufferMut, DriveError>>),
    Write(OneshotSender<Result<(), DriveError>>),
    Flush { begun: u64, sender: OneshotSender<Result<(), DriveError>> },
}

/// How an operation fails on a drive that is dead or gone.
const DEAD: (DriveErrorKind, &str) = (DriveErrorKind::Medium, "the drive is dead");

impl Request {
    fn operation(&self) -> DriveOperation {
        match self {
            Request::Read(..) => DriveOperation::Read,
            Request::Write(_) => DriveOperation::Write,
            Request::Flush { .. } => DriveOperation::Flush,
        }
    }

    fn fail(self, error: DriveError) {
        match self {
            Request::Read(_, sender) => sender.send(Err(error)),
            Request::Write(sender) | Request::Flush { sender, .. } => sender.send(Err(error)),
        }
    }
}

impl DriveState {
    pub(crate) fn new(
        shared: &Rc<Shared>,
        number: u64,
        name: &str,
        config: SimulatedDriveConfig,
        image: DriveImage,
    ) -> Rc<Self> {
        let sector_bytes = config.sector_bytes;
        assert!(matches!(sector_bytes, 512 | 4096), "sectors of {sector_bytes} bytes are not simulated");
        assert!(config.size_bytes.is_multiple_of(sector_bytes.into()), "a drive consists of whole sectors");
        assert!(image.size_bytes() == config.size_bytes, "the image of {name} has another size");
        let inner = DriveInner {
            storage: Storage::new(image, sector_bytes as usize, config.volatile_cache),
            faults: Faults::default(),
            counters: DriveCounters::default(),
            health: Health::Working,
            room: Room::Enough,
            latency_factor: 1,
            host: None,
            powered: true,
            attachment: 0,
            plan: None,
            crashed: false,
            holder: None,
            operations: BTreeMap::new(),
            stalled: Vec::new(),
            submitted: 0,
            overlaps: Overlaps::default(),
        };
        Rc::new(Self {
            shared: Rc::clone(shared),
            number,
            name: name.to_owned(),
            config,
            random: Random::stream(shared.seed, name, 0x6472_6976),
            inner: RefCell::new(inner),
        })
    }

    pub(crate) fn geometry(&self) -> DriveGeometry {
        DriveGeometry {
            size_bytes: self.config.size_bytes,
            sector_bytes: self.config.sector_bytes,
            volatile_cache: self.config.volatile_cache,
        }
    }

    pub(crate) fn is_attached_to(&self, host: &Rc<HostState>) -> bool {
        self.inner.borrow().host.as_ref().is_some_and(|own| Rc::ptr_eq(own, host))
    }

    fn error(
        &self,
        kind: DriveErrorKind,
        operation: DriveOperation,
        offset: u64,
        detail: &str,
    ) -> DriveError {
        DriveError { kind, operation, offset, detail: format!("{} ({})", detail, self.name) }
    }

    /// Submits an operation; false if it never reaches the drive.
    fn submit(self: &Rc<Self>, handle: &Handle, extent: Extent, request: Request, parts: &[Buffer]) -> bool {
        let process = &handle.process;
        if process.is_stopped() {
            return false;
        }
        let kind = request.operation();
        let offset = extent.start;
        if !self.is_within(&extent) {
            let detail = "outside the drive, or not in whole sectors";
            request.fail(self.error(DriveErrorKind::OutOfRange, kind, offset, detail));
            return true;
        }
        let crash = match self.strike(kind) {
            Some((CrashMoment::BeforeSubmission, scope)) => {
                self.crash(process, scope);
                return false;
            }
            strike => strike,
        };
        let mut inner = self.inner.borrow_mut();
        let number = inner.submitted;
        inner.submitted += 1;
        inner.count(kind, number, &extent);
        let reachable = inner.is_reachable(handle.attachment);
        let failure = if reachable { inner.failure(kind, &extent) } else { Some(DEAD) };
        let has_room = failure.is_none_or(|(failure, _)| failure != DriveErrorKind::NoRoom);
        let failure = failure.map(|(failure, detail)| {
            inner.counters.count_failure(kind, failure);
            self.error(failure, kind, offset, detail)
        });
        if kind == DriveOperation::Write && reachable && has_room {
            let write = inner.stray_or(self, &extent, parts);
            inner.storage.begin_write(number, write);
        }
        let takes = self.latency(kind, &extent, inner.latency_factor);
        let event = self.shared.plan_after(takes, Event::Drive(Rc::clone(self), number));
        let crash_at_completion = crash.filter(|(moment, _)| *moment == CrashMoment::AfterCompletion);
        let operation = Operation {
            process: Rc::clone(process),
            attachment: handle.attachment,
            extent,
            request,
            failure,
            crash: crash_at_completion.map(|(_, scope)| scope),
            event,
        };
        inner.operations.insert(number, operation);
        drop(inner);
        self.trace_submission(kind, number, &extent, parts);
        if let Some((CrashMoment::AfterSubmission, scope)) = crash {
            self.crash(process, scope);
        }
        true
    }

    /// Whether what is asked can be done at once.
    fn is_ready_at_once(&self, handle: &Handle, extent: &Extent) -> bool {
        self.config.works_at_once
            && !handle.process.is_stopped()
            && self.is_within(extent)
            && !self.random.chance(NOT_AT_ONCE_PER_MILLE)
            && self.inner.borrow().works_at_once(handle.attachment, extent)
    }

    /// Reads before it returns, if the drive is of that kind and nothing is wrong with it; returns whether it did.
    fn read_at_once(&self, handle: &Handle, extent: Extent, into: &mut [u8]) -> bool {
        if !self.is_ready_at_once(handle, &extent) {
            return false;
        }
        let mut inner = self.inner.borrow_mut();
        let number = inner.submitted;
        inner.submitted += 1;
        inner.count(DriveOperation::Read, number, &extent);
        inner.overlaps.end(number, extent.start);
        inner.storage.current().read(extent.start, into);
        drop(inner);
        self.trace_submission(DriveOperation::Read, number, &extent, &[]);
        true
    }

    /// Writes before it returns, if the drive is of that kind and nothing is wrong with it; returns whether it did. A planned crash
    /// strikes all the same.
    fn write_at_once(&self, handle: &Handle, extent: Extent, part: &Buffer) -> bool {
        if !self.is_ready_at_once(handle, &extent) {
            return false;
        }
        let process = &handle.process;
        let crash = self.strike(DriveOperation::Write);
        if let Some((CrashMoment::BeforeSubmission, scope)) = crash {
            self.crash(process, scope);
            return false;
        }
        let parts = std::slice::from_ref(part);
        let mut inner = self.inner.borrow_mut();
        let number = inner.submitted;
        inner.submitted += 1;
        inner.count(DriveOperation::Write, number, &extent);
        inner.overlaps.end(number, extent.start);
        let write = inner.stray_or(self, &extent, parts);
        inner.storage.begin_write(number, write);
        if let Some((CrashMoment::AfterSubmission, _)) = crash {
            inner.storage.interrupt_write(number);
        } else {
            inner.storage.complete_write(number);
            inner.faults.written(&extent);
        }
        drop(inner);
        self.trace_submission(DriveOperation::Write, number, &extent, parts);
        if let Some((_, scope)) = crash {
            self.crash(process, scope);
        }
        true
    }

    fn is_within(&self, extent: &Extent) -> bool {
        let sector = u64::from(self.config.sector_bytes);
        extent.end <= self.config.size_bytes
            && extent.start.is_multiple_of(sector)
            && extent.end.is_multiple_of(sector)
    }

    /// Counts a write or flush down towards the planned crash.
    fn strike(&self, kind: DriveOperation) -> Option<(CrashMoment, CrashScope)> {
        let mut inner = self.inner.borrow_mut();
        let plan = inner.plan.as_mut().filter(|_| kind != DriveOperation::Read)?;
        plan.operation -= 1;
        if plan.operation > 0 {
            return None;
        }
        let struck = (plan.moment, plan.scope);
        inner.plan = None;
        Some(struck)
    }

    fn crash(&self, process: &Rc<ProcessState>, scope: CrashScope) {
        self.inner.borrow_mut().crashed = true;
        self.shared.record(Kind::DriveState, [self.number, 1, process.number as u64], || {
            format!("{}: the planned crash strikes {}", self.name, process.name)
        });
        self.shared.crash_point_struck(&self.name);
        process.doom(match scope {
            CrashScope::Process => End::Crash,
            CrashScope::Host => End::PowerCut,
        });
    }

    fn latency(&self, kind: DriveOperation, extent: &Extent, factor: u32) -> u64 {
        let range = match kind {
            DriveOperation::Read | DriveOperation::Open => self.config.read_latency,
            DriveOperation::Write => self.config.write_latency,
            DriveOperation::Flush => self.config.flush_latency,
        };
        let bytes = extent.end - extent.start;
        let moving = self
            .config
            .bandwidth_bytes_per_second
            .map_or(0, |bandwidth| bytes.saturating_mul(1_000_000_000) / bandwidth.max(1));
        self.random.nanoseconds(range).saturating_add(moving).saturating_mul(factor.into())
    }

    fn trace_submission(&self, kind: DriveOperation, number: u64, extent: &Extent, parts: &[Buffer]) {
        let digest = parts
            .iter()
            .fold(kind as u64, |hash, part| crate::digest::fold(hash, crate::digest::digest(part)));
        let (start, end) = (extent.start, extent.end);
        self.shared.record(Kind::DriveSubmit, [self.number << 32 | number, start, digest ^ end], || {
            format!("{}: {kind:?} #{number} of bytes {start}..{end} begins", self.name)
        });
    }

    /// The time of an operation is over.
    pub(crate) fn complete(self: &Rc<Self>, number: u64) {
        let mut inner = self.inner.borrow_mut();
        if inner.health == Health::Silent {
            inner.stalled.push(number);
            return;
        }
        let Some(mut operation) = inner.operations.remove(&number) else { return };
        inner.overlaps.end(number, operation.extent.start);
        inner.release_if_idle();
        let kind = operation.request.operation();
        if !inner.is_reachable(operation.attachment) && operation.failure.is_none() {
            inner.counters.count_failure(kind, DEAD.0);
            operation.failure = Some(self.error(DEAD.0, kind, operation.extent.start, DEAD.1));
        }
        let failed = u64::from(operation.failure.is_some());
        self.shared.record(Kind::DriveComplete, [self.number << 32 | number, kind as u64, failed], || {
            let how = if failed == 1 { "fails" } else { "completes" };
            format!("{}: {kind:?} #{number} {how}", self.name)
        });
        let Operation { process, extent, request, failure, crash, attachment, .. } = operation;
        if let Some(error) = failure {
            let is_reachable = inner.is_reachable(attachment);
            self.settle_failed(&mut inner, number, kind, is_reachable);
            drop(inner);
            if let Some(scope) = crash {
                self.crash(&process, scope);
            } else {
                request.fail(error);
            }
            return;
        }
        inner.perform(number, &extent, request, crash.is_none());
        drop(inner);
        if let Some(scope) = crash {
            self.crash(&process, scope);
        }
    }

    /// A write that failed may have happened, in part or whole. A flush that failed on a drive that it reached may have lost
    /// what it was to make durable.
    fn settle_failed(&self, inner: &mut DriveInner, number: u64, kind: DriveOperation, is_reachable: bool) {
        match kind {
            DriveOperation::Write => {
                let mut choice = random_choice(&self.random);
                inner.storage.fail_write(number, &mut |sector| choice(0, sector));
            }
            DriveOperation::Flush if is_reachable => {
                inner.storage.fail_flush(&mut *random_choice(&self.random));
            }
            DriveOperation::Flush | DriveOperation::Read | DriveOperation::Open => {}
        }
    }

    pub(crate) fn process_ended(&self, process: usize) {
        let ended = self.inner.borrow_mut().interrupt(Some(process));
        for operation in ended {
            self.shared.cancel(operation.event);
        }
    }

    /// Ends every operation in flight; nobody holds the drive any more. Writes are left open. The
    /// submitters are told of an error if `tell`.
    pub(crate) fn interrupt_all(&self, tell: bool) {
        let ended = self.inner.borrow_mut().interrupt(None);
        for operation in ended {
            self.shared.cancel(operation.event);
            if tell {
                let kind = operation.request.operation();
                self.inner.borrow_mut().counters.count_failure(kind, DEAD.0);
                operation.request.fail(self.error(DEAD.0, kind, operation.extent.start, DEAD.1));
            }
        }
    }

    /// Completes, a little later, what a silent drive has kept to itself.
    pub(crate) fn answer_stalled(self: &Rc<Self>) {
        let mut inner = self.inner.borrow_mut();
        for number in std::mem::take(&mut inner.stalled) {
            if let Some(operation) = inner.operations.get_mut(&number) {
                let takes = self.random.nanoseconds(self.config.read_latency);
                operation.event = self.shared.plan_after(takes, Event::Drive(Rc::clone(self), number));
            }
        }
    }

    pub(crate) fn power_lost(&self) {
        self.interrupt_all(false);
        self.inner.borrow_mut().powered = false;
    }

    /// The drive starts again: what was open is decided by now.
    pub(crate) fn power_returned(&self) {
        let mut inner = self.inner.borrow_mut();
        if std::mem::replace(&mut inner.powered, true) {
            return;
        }
        let mut choice = random_choice(&self.random);
        let image = inner.storage.crash_image(&mut *choice);
        self.settle(&mut inner, image);
    }

    /// Makes `image` what a power cut has left.
    pub(crate) fn settle(&self, inner: &mut DriveInner, image: DriveImage) {
        let open = inner.storage.unflushed_writes().len() as u64;
        inner.counters.lossy_power_cuts += u64::from(open > 0);
        inner.storage.restore(image);
        self.shared.record(Kind::DriveState, [self.number, 2, open], || {
            format!("{}: has power again; {open} unflushed writes were open", self.name)
        });
    }

    fn settle_interrupted(&self, inner: &mut DriveInner) {
        if inner.storage.has_interrupted() {
            inner.storage.settle_interrupted(&mut *random_choice(&self.random));
        }
    }
}

impl DriveInner {
    fn count(&mut self, kind: DriveOperation, number: u64, extent: &Extent) {
        let bytes = extent.end - extent.start;
        let overlap = match kind {
            DriveOperation::Read => {
                self.counters.reads += 1;
                self.counters.read_bytes += bytes;
                self.overlaps.begin_read(number, *extent)
            }
            DriveOperation::Write => {
                self.counters.writes += 1;
                self.counters.written_bytes += bytes;
                self.overlaps.begin_write(number, *extent)
            }
            DriveOperation::Flush | DriveOperation::Open => {
                self.counters.flushes += 1;
                false
            }
        };
        self.counters.overlaps += u64::from(overlap);
    }

    /// The failure that is armed for an operation.
    fn failure(&mut self, kind: DriveOperation, extent: &Extent) -> Option<(DriveErrorKind, &'static str)> {
        let failure = |fails: bool, detail| fails.then_some((DriveErrorKind::Medium, detail));
        match kind {
            DriveOperation::Read => failure(self.faults.read_fails(extent), "injected read error"),
            DriveOperation::Flush => failure(self.faults.flush_fails(), "injected flush error"),
            DriveOperation::Open => None,
            DriveOperation::Write => {
                let needs_room = match self.room {
                    Room::Enough => false,
                    Room::None => true,
                    Room::OnlyOverwrites => {
                        self.storage.current().has_hole(extent.start, extent.end - extent.start)
                    }
                };
                if needs_room {
                    return Some((DriveErrorKind::NoRoom, "no space left on device"));
                }
                failure(self.faults.write_fails(extent), "injected write error")
            }
        }
    }

    /// The write that was asked for, or what a fault makes of it.
    fn stray_or(&mut self, drive: &DriveState, extent: &Extent, parts: &[Buffer]) -> PendingWrite {
        match self.faults.stray(extent) {
            None => PendingWrite::new(extent.start, parts),
            Some(Stray::Lost) => {
                self.counters.writes_lost += 1;
                drive.trace_fault(1, extent.start, || "a write is lost".to_owned());
                PendingWrite::default()
            }
            Some(Stray::To(offset)) => {
                self.counters.writes_misdirected += 1;
                let to = offset.min(drive.config.size_bytes - (extent.end - extent.start));
                drive.trace_fault(2, to, || format!("a write goes to {to} instead of {}", extent.start));
                PendingWrite::new(to, parts)
            }
        }
    }

    /// Carries out an operation that succeeds, and tells its submitter if `tell`.
    fn perform(&mut self, number: u64, extent: &Extent, request: Request, tell: bool) {
        match request {
            Request::Read(mut into, sender) => {
                self.storage.current().read(extent.start, &mut into);
                sender.send(Ok(into));
            }
            Request::Write(sender) => {
                self.storage.complete_write(number);
                self.faults.written(extent);
                if tell {
                    sender.send(Ok(()));
                }
            }
            Request::Flush { begun, sender } => {
                self.storage.complete_flush(begun);
                if tell {
                    sender.send(Ok(()));
                }
            }
        }
    }

    /// Whether a handle that was opened at that attachment reaches the drive, or its silence.
    fn is_reachable(&self, attachment: u64) -> bool {
        self.health != Health::Dead && self.attachment == attachment
    }

    /// Whether something can be done at once. Where it would fail or wait, the ordinary operation does.
    fn works_at_once(&self, attachment: u64, extent: &Extent) -> bool {
        self.health == Health::Working
            && self.is_reachable(attachment)
            && self.latency_factor == 1
            && matches!(self.room, Room::Enough)
            && !self.faults.would_fail(extent)
    }

    /// Whether any operation is in flight.
    pub(crate) fn is_busy(&self) -> bool {
        !self.operations.is_empty()
    }

    /// Takes out the operations in flight of one process, or of all. They are returned so that
    /// they are dropped when the drive is not borrowed.
    fn interrupt(&mut self, process: Option<usize>) -> Vec<Operation> {
        let concerned = |number: usize| process.is_none_or(|process| process == number);
        let (ended, left): (BTreeMap<_, _>, BTreeMap<_, _>) = std::mem::take(&mut self.operations)
            .into_iter()
            .partition(|(_, operation)| concerned(operation.process.number));
        self.operations = left;
        for (number, operation) in &ended {
            self.storage.interrupt_write(*number);
            self.overlaps.end(*number, operation.extent.start);
        }
        self.stalled.retain(|number| self.operations.contains_key(number));
        if self.holder.as_ref().is_some_and(|holder| concerned(holder.process)) {
            self.holder = None;
        }
        ended.into_values().collect()
    }

    fn release_if_idle(&mut self) {
        if self.operations.is_empty() && self.holder.as_ref().is_some_and(|holder| !holder.open) {
            self.holder = None;
        }
    }
}

/// One way in which a power cut or a failure may leave writes. That all are kept, that none are,
/// that each is kept or lost whole, and that each may be torn are picked equally often, since bugs
/// hide at the ends as much as in the middle.
pub(crate) fn random_choice(random: &Random) -> Box<dyn FnMut(usize, usize) -> bool + '_> {
    match random.below(4) {
        0 => Box::new(|_, _| true),
        1 => Box::new(|_, _| false),
        2 => {
            let mut decided = None;
            Box::new(move |write, _| match decided {
                Some((of, keep)) if of == write => keep,
                _ => {
                    let keep = random.chance(500);
                    decided = Some((write, keep));
                    keep
                }
            })
        }
        _ => Box::new(|_, _| random.chance(500)),
    }
}

/// Opens a drive for a process.
pub(crate) async fn open(
    platform: &SimulatedPlatform,
    process: &Rc<ProcessState>,
    name: &str,
) -> Result<OpenDrive, DriveError> {
    let unavailable =
        |kind, detail: String| DriveError { kind, operation: DriveOperation::Open, offset: 0, detail };
    let Some(state) = process.shared.drive(name) else {
        return Err(unavailable(DriveErrorKind::Unavailable, format!("there is no drive {name}")));
    };
    let takes = state.latency(DriveOperation::Open, &Extent { start: 0, end: 0 }, 1);
    platform.sleep(Duration::from_nanos(takes)).await;
    let mut inner = state.inner.borrow_mut();
    if inner.health != Health::Working {
        return Err(unavailable(DriveErrorKind::Unavailable, format!("drive {name} does not answer")));
    }
    let elsewhere = inner.host.as_ref().filter(|host| !Rc::ptr_eq(host, &process.host));
    if let Some(host) = elsewhere {
        let detail = format!("drive {name} is attached to host {}", host.name);
        return Err(unavailable(DriveErrorKind::Unavailable, detail));
    }
    if inner.holder.is_some() {
        return Err(unavailable(DriveErrorKind::InUse, format!("drive {name} is open")));
    }
    state.settle_interrupted(&mut inner);
    inner.host = Some(Rc::clone(&process.host));
    inner.holder = Some(Holder { process: process.number, open: true });
    state.shared.record(Kind::DriveState, [state.number, 3, process.number as u64], || {
        format!("{name}: opened by {}", process.name)
    });
    let attachment = inner.attachment;
    drop(inner);
    Ok(OpenDrive { handle: Rc::new(Handle { state, process: Rc::clone(process), attachment }) })
}

/// A simulated drive that a process has open. Cheap to clone; released when the last clone is
/// dropped and its operations have completed, or when the process ends.
#[derive(Clone)]
pub struct OpenDrive {
    handle: Rc<Handle>,
}

struct Handle {
    state: Rc<DriveState>,
    process: Rc<ProcessState>,
    attachment: u64,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let mut inner = self.state.inner.borrow_mut();
        let current = inner.attachment == self.attachment;
        if let Some(holder) = &mut inner.holder
            && current
            && holder.process == self.process.number
        {
            holder.open = false;
            inner.release_if_idle();
        }
    }
}

impl OpenDrive {
    fn start_read(
        &self,
        offset: u64,
        into: BufferMut,
    ) -> impl Future<Output = Result<BufferMut, DriveError>> + use<> {
        let (sender, receiver) = oneshot();
        let request = Request::Read(into, sender);
        outcome(self.handle.submit(offset, request, &[]).then_some(receiver))
    }

    fn start_write(
        &self,
        offset: u64,
        parts: &[Buffer],
    ) -> impl Future<Output = Result<(), DriveError>> + use<> {
        let (sender, receiver) = oneshot();
        outcome(self.handle.submit(offset, Request::Write(sender), parts).then_some(receiver))
    }

    fn start_flush(&self) -> impl Future<Output = Result<(), DriveError>> + use<> {
        let (sender, receiver) = oneshot();
        let begun = self.handle.state.inner.borrow().storage.begin_flush();
        outcome(self.handle.submit(0, Request::Flush { begun, sender }, &[]).then_some(receiver))
    }
}

impl Handle {
    /// Submits an operation; false if it never reaches the drive.
    fn submit(&self, offset: u64, request: Request, parts: &[Buffer]) -> bool {
        let length = match &request {
            Request::Read(into, _) => into.len(),
            Request::Write(_) | Request::Flush { .. } => parts.iter().map(|part| part.len()).sum(),
        };
        let extent = Extent { start: offset, end: offset.saturating_add(length as u64) };
        self.state.submit(self, extent, request, parts)
    }
}

impl Drive for OpenDrive {
    fn geometry(&self) -> DriveGeometry {
        self.handle.state.geometry()
    }

    fn read(&self, offset: u64, into: BufferMut) -> impl Future<Output = Result<BufferMut, DriveError>> {
        self.start_read(offset, into)
    }

    fn write(&self, offset: u64, parts: Vec<Buffer>) -> impl Future<Output = Result<(), DriveError>> {
        self.start_write(offset, &parts)
    }

    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> bool {
        let extent = Extent { start: offset, end: offset.saturating_add(into.len() as u64) };
        self.handle.state.read_at_once(&self.handle, extent, into)
    }

    fn write_at_once(&self, offset: u64, part: &Buffer) -> bool {
        let extent = Extent { start: offset, end: offset.saturating_add(part.len() as u64) };
        self.handle.state.write_at_once(&self.handle, extent, part)
    }

    fn flush(&self) -> impl Future<Output = Result<(), DriveError>> {
        self.start_flush()
    }
}

/// The result of an operation; never comes if the process ended before it.
async fn outcome<T>(receiver: Option<OneshotReceiver<Result<T, DriveError>>>) -> Result<T, DriveError> {
    let result = match receiver {
        Some(receiver) => receiver.await,
        None => None,
    };
    match result {
        Some(result) => result,
        None => pending().await,
    }
}

impl fmt::Debug for OpenDrive {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "OpenDrive({})", self.handle.state.name)
    }
}

#[cfg(test)]
#[path = "drive_tests.rs"]
mod tests;
