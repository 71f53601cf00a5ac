//! Drives: block devices, and files that serve as such.
//!
//! Which way an operation takes to the kernel is decided once per drive, when it is opened:
//! - [`DrivePath::Memory`]: the file is in memory (tmpfs, ramfs, a memfd). It is mapped, if nobody can make it shorter,
//!   or else plain calls; at the end of the turn, or at once where that is asked and it is mapped, on the shard's own
//!   thread. They never wait, and the ring would send them through kernel threads.
//! - [`DrivePath::Ring`]: everything else, by io_uring, past the page cache where the file system
//!   can.
//! - [`DrivePath::Threads`]: the same without io_uring.
//!
//! A drive may be made to take the time of another kind of drive, see `drive/medium.rs`: what it is asked for is done at
//! once, and answered when the other one would have.
//!
//! A location is a path. With the feature `test-faults` it may be preceded by `volatile:`, see the
//! module of that name.
//!
//! Invariants:
//! - A drive is open once: a lock on its file keeps other processes, and a second opening in this
//!   one, away until the last operation is done.
//! - An operation that is a future starts when that is first polled and runs to its end, even if it is dropped.

mod blocking;
mod files;
pub(crate) mod locked_file;
#[allow(unsafe_code)]
mod mapped;
mod medium;
mod open;
pub(crate) mod operation;
#[cfg(feature = "test-faults")]
mod volatile;
mod worker;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use rustix::fd::AsFd;
use spandrel_platform::sync::oneshot;
use spandrel_platform::{
    Buffer, BufferMut, Drive, DriveError, DriveErrorKind, DriveGeometry, DriveOperation, Instant,
};

pub use files::{MemoryDrive, create_drive_file, preallocate};
pub use medium::{MediumKind, SimulatedMedium};

use crate::batch::Batch;
use crate::mailbox::WakeFd;
use crate::platform::Sleep;
use crate::ring::Ring;
use crate::runtime::RuntimeConfig;
use crate::shard::Shard;
use locked_file::LockedFile;
use mapped::MappedMemory;
use medium::{MediumModel, Transfer};
use operation::{Failure, Operation, SharedFile, Work};
use worker::{WorkerMailbox, WorkerTable, Workers};

/// Bytes that are read at once in one turn at most, about a tenth of a millisecond's work: whoever reads on and on would never give
/// way to others.
const BYTES_READ_AT_ONCE_MAX: usize = 1 << 20;

/// The way that a drive's operations take to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrivePath {
    /// Copies, or plain calls: the file is in memory.
    Memory,
    /// io_uring.
    Ring,
    /// Threads of the drive's own.
    Threads,
}

/// A drive of this machine. Cheap to clone.
#[derive(Clone)]
pub struct LinuxDrive {
    inner: Rc<OpenDrive>,
    #[cfg(feature = "test-faults")]
    volatile: Option<Rc<volatile::VolatileCache>>,
}

struct OpenDrive {
    shard: Rc<Shard>,
    file: SharedFile,
    geometry: DriveGeometry,
    /// What direct I/O demands of memory, in bytes; none where the page cache serves the file.
    memory_alignment: Option<usize>,
    route: Route,
    /// The drive whose time this one takes, if it is not its own.
    medium: Option<RefCell<MediumModel>>,
}

/// Who performs a drive's operations.
#[derive(Clone)]
enum Route {
    /// Through the mapping, if there is one.
    Memory(Option<Rc<MappedMemory>>),
    Ring,
    Threads(Rc<Workers>),
}

impl LinuxDrive {
    /// Opens the drive at `location` for this process alone.
    pub(crate) async fn open(shard: &Rc<Shard>, location: &str) -> Result<Self, DriveError> {
        let medium = shard.config.simulated_media.get(location).copied();
        #[cfg(feature = "test-faults")]
        if let Some(cache) = volatile::parse(location)? {
            let inner = Rc::new(open::open(shard, cache.path(), medium).await?);
            return Ok(Self { inner, volatile: Some(Rc::new(cache)) });
        }
        #[cfg(not(feature = "test-faults"))]
        if location.starts_with("volatile:") || location.starts_with("volatile,") {
            let detail = "this program was built without the feature test-faults";
            return Err(open::open_error(DriveErrorKind::Unavailable, location, detail));
        }
        let inner = Rc::new(open::open(shard, location, medium).await?);
        Ok(Self {
            inner,
            #[cfg(feature = "test-faults")]
            volatile: None,
        })
    }

    /// The way that this drive's operations take to the kernel.
    pub fn path(&self) -> DrivePath {
        match self.inner.route {
            Route::Memory(_) => DrivePath::Memory,
            Route::Ring => DrivePath::Ring,
            Route::Threads(_) => DrivePath::Threads,
        }
    }

    /// Whether operations pass the page cache by.
    pub fn is_direct(&self) -> bool {
        self.inner.memory_alignment.is_some()
    }
}

impl Drive for LinuxDrive {
    fn geometry(&self) -> DriveGeometry {
        #[cfg(feature = "test-faults")]
        if self.volatile.is_some() {
            return DriveGeometry { volatile_cache: true, ..self.inner.geometry };
        }
        self.inner.geometry
    }

    async fn read(&self, offset: u64, into: BufferMut) -> Result<BufferMut, DriveError> {
        self.inner.check(DriveOperation::Read, offset, [into.len()])?;
        self.inner.shard.counters.drive_reads.add(1);
        let due = self.inner.due(|medium, now| medium.transfer(now, Transfer::Read, offset, into.len()));
        let read = self.read_now(offset, into).await;
        if let Some(due) = due {
            Sleep::until(&self.inner.shard, due).await;
        }
        read
    }

    async fn write(&self, offset: u64, parts: Vec<Buffer>) -> Result<(), DriveError> {
        self.inner.check(DriveOperation::Write, offset, parts.iter().map(|part| part.len()))?;
        self.inner.shard.counters.drive_writes.add(1);
        let length = || parts.iter().map(|part| part.len()).sum();
        let due = self.inner.due(|medium, now| medium.transfer(now, Transfer::Write, offset, length()));
        let written = self.write_now(offset, parts).await;
        if let Some(due) = due {
            Sleep::until(&self.inner.shard, due).await;
        }
        written
    }

    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> bool {
        let length = into.len();
        let Some(mapped) = self.mapped(DriveOperation::Read, offset, length) else { return false };
        let shard = &self.inner.shard;
        let is_read = shard.drives.may_read_at_once(length) && mapped.read(offset, into);
        if is_read {
            shard.drives.note_read_at_once(length);
            shard.counters.drive_reads.add(1);
        }
        is_read
    }

    fn write_at_once(&self, offset: u64, part: &Buffer) -> bool {
        let Some(mapped) = self.mapped(DriveOperation::Write, offset, part.len()) else { return false };
        let is_written = mapped.write(self.inner.file.file(), offset, std::iter::once(&part[..])).is_ok();
        self.inner.shard.counters.drive_writes.add(u64::from(is_written));
        is_written
    }

    async fn flush(&self) -> Result<(), DriveError> {
        self.inner.shard.counters.drive_flushes.add(1);
        let due = self.inner.due(MediumModel::flush);
        let flushed = self.flush_now().await;
        if let Some(due) = due {
            Sleep::until(&self.inner.shard, due).await;
        }
        flushed
    }
}

/// The operations as this machine does them.
impl LinuxDrive {
    /// The memory that this is, if an operation on it takes no time and lies within it.
    fn mapped(&self, operation: DriveOperation, offset: u64, length: usize) -> Option<&MappedMemory> {
        #[cfg(feature = "test-faults")]
        if self.volatile.is_some() {
            return None;
        }
        let Route::Memory(Some(mapped)) = &self.inner.route else { return None };
        let is_possible =
            self.inner.medium.is_none() && self.inner.check(operation, offset, [length]).is_ok();
        is_possible.then_some(mapped)
    }

    async fn read_now(&self, offset: u64, into: BufferMut) -> Result<BufferMut, DriveError> {
        #[cfg(feature = "test-faults")]
        if let Some(volatile) = &self.volatile {
            return volatile.read(&self.inner, offset, into).await;
        }
        self.inner.read(offset, into).await
    }

    async fn write_now(&self, offset: u64, parts: Vec<Buffer>) -> Result<(), DriveError> {
        #[cfg(feature = "test-faults")]
        if let Some(volatile) = &self.volatile {
            return volatile.write(&self.inner, offset, &parts);
        }
        self.inner.write(offset, parts).await
    }

    async fn flush_now(&self) -> Result<(), DriveError> {
        #[cfg(feature = "test-faults")]
        if let Some(volatile) = &self.volatile {
            return volatile.flush(&self.inner).await;
        }
        self.inner.flush().await
    }
}

impl OpenDrive {
    /// Checks that parts of these lengths fit the drive, one behind the other from `offset` on.
    fn check(
        &self,
        operation: DriveOperation,
        offset: u64,
        lengths: impl IntoIterator<Item = usize>,
    ) -> Result<(), DriveError> {
        let DriveGeometry { size_bytes, sector_bytes, .. } = self.geometry;
        let refuse =
            |detail: String| Err(DriveError { kind: DriveErrorKind::OutOfRange, operation, offset, detail });
        if !offset.is_multiple_of(u64::from(sector_bytes)) {
            return refuse(format!("not at a multiple of {sector_bytes} bytes"));
        }
        let mut end = offset;
        for length in lengths {
            if !length.is_multiple_of(sector_bytes as usize) {
                return refuse(format!("{length} bytes are not a multiple of {sector_bytes}"));
            }
            end = end.saturating_add(length as u64);
        }
        if end > size_bytes {
            return refuse(format!("it would end at byte {end}, but the drive at {size_bytes}"));
        }
        Ok(())
    }

    async fn read(&self, offset: u64, into: BufferMut) -> Result<BufferMut, DriveError> {
        if into.is_empty() {
            return Ok(into);
        }
        let buffer = self.perform(offset, Work::Read(into)).await?;
        Ok(buffer.expect("a read answers with its buffer"))
    }

    async fn write(&self, offset: u64, mut parts: Vec<Buffer>) -> Result<(), DriveError> {
        parts.retain(|part| !part.is_empty());
        if parts.is_empty() {
            return Ok(());
        }
        if let Some(alignment) = self.memory_alignment {
            self.align(&mut parts, alignment);
        }
        self.perform(offset, Work::Write(parts)).await.map(drop)
    }

    async fn flush(&self) -> Result<(), DriveError> {
        self.perform(0, Work::Flush).await.map(drop)
    }

    /// Puts copies in the place of those `parts` that direct I/O would not take, as what was received among other things.
    fn align(&self, parts: &mut [Buffer], alignment: usize) {
        for part in parts.iter_mut().filter(|part| !part.as_ptr().addr().is_multiple_of(alignment)) {
            *part = self.shard.buffers.copy_of(part).freeze();
        }
    }

    /// When the medium whose time this drive takes would be done with what comes now.
    fn due(&self, begin: impl FnOnce(&mut MediumModel, Instant) -> Instant) -> Option<Instant> {
        let medium = self.medium.as_ref()?;
        Some(begin(&mut medium.borrow_mut(), self.shard.now()))
    }

    async fn perform(&self, offset: u64, work: Work) -> operation::Answer {
        let kind = work.operation();
        let (reply, answer) = oneshot();
        let operation = Operation::new(Rc::clone(&self.file), offset, work, reply);
        self.shard.drives.queue(operation, self.route.clone());
        match answer.await {
            Some(answer) => answer,
            None => Err(DriveError {
                kind: DriveErrorKind::Unavailable,
                operation: kind,
                offset,
                detail: "the runtime has ended".to_string(),
            }),
        }
    }
}

/// All drive operations of one shard that wait or are under way.
pub(crate) struct DriveQueue {
    /// Those of the present turn.
    queued: Batch<(Operation, Route)>,
    /// What was read at once in the present turn.
    bytes_read_at_once: Cell<usize>,
    ring: RefCell<RingState>,
    ring_entries: u32,
    workers: RefCell<WorkerTable>,
    worker_mailbox: Arc<WorkerMailbox>,
    /// Empty between calls; kept for its memory.
    finished: RefCell<Vec<(Operation, Result<(), Failure>)>>,
}

enum RingState {
    /// No drive has asked for it yet.
    NotTried,
    Ready(Box<Ring>),
    /// Forbidden, by the configuration or by the system.
    Refused,
}

impl RingState {
    fn ready(&mut self) -> Option<&mut Ring> {
        match self {
            RingState::Ready(ring) => Some(ring),
            RingState::NotTried | RingState::Refused => None,
        }
    }
}

impl DriveQueue {
    pub(crate) fn new(config: &RuntimeConfig, wake: Arc<WakeFd>) -> Self {
        let ring = if config.use_io_uring { RingState::NotTried } else { RingState::Refused };
        Self {
            queued: Batch::default(),
            bytes_read_at_once: Cell::new(0),
            ring: RefCell::new(ring),
            ring_entries: config.ring_entries,
            workers: RefCell::default(),
            worker_mailbox: Arc::new(WorkerMailbox::new(wake)),
            finished: RefCell::default(),
        }
    }

    /// The route of a drive that is not in memory, by the ring if there can be one.
    fn route(&self, shard: &Shard, file: &Arc<LockedFile>) -> std::io::Result<Route> {
        let mut state = self.ring.borrow_mut();
        if matches!(*state, RingState::NotTried) {
            *state = match self.new_ring(shard) {
                Ok(ring) => RingState::Ready(Box::new(ring)),
                Err(error) => {
                    tracing::info!(%error, "no io_uring here: threads serve the drives, which costs more");
                    RingState::Refused
                }
            };
        }
        match *state {
            RingState::Ready(_) => Ok(Route::Ring),
            _ => Ok(Route::Threads(Rc::new(Workers::start(file, &self.worker_mailbox)?))),
        }
    }

    fn new_ring(&self, shard: &Shard) -> std::io::Result<Ring> {
        let ring = Ring::new(self.ring_entries, shard.config.cores.as_ref())?;
        shard.reactor.add_ring(ring.as_fd())?;
        Ok(ring)
    }

    /// Whether so much more may be read at once in this turn.
    fn may_read_at_once(&self, bytes: usize) -> bool {
        self.bytes_read_at_once.get() + bytes <= BYTES_READ_AT_ONCE_MAX
    }

    fn note_read_at_once(&self, bytes: usize) {
        self.bytes_read_at_once.set(self.bytes_read_at_once.get() + bytes);
    }

    /// Has `operation` start at the end of this turn.
    fn queue(&self, operation: Operation, route: Route) {
        self.queued.push((operation, route));
    }

    /// Starts what the turn has queued. What is in memory is done on return.
    pub(crate) fn submit(&self, shard: &Shard) {
        self.bytes_read_at_once.set(0);
        self.queued.for_each(|(operation, route)| self.start(operation, route));
        mapped::order_stores();
        if let Some(ring) = self.ring.borrow_mut().ready() {
            shard.counters.ring_submits.add(ring.submit());
        }
    }

    fn start(&self, operation: Operation, route: Route) {
        match route {
            Route::Memory(mapped) => blocking::perform_in_memory(operation, mapped.as_deref()),
            Route::Threads(workers) => self.workers.borrow_mut().start(operation, workers),
            Route::Ring => {
                let mut state = self.ring.borrow_mut();
                let ring = state.ready().expect("drives have this route only while there is a ring");
                ring.start(operation);
            }
        }
    }

    /// Answers those whose operations are done.
    pub(crate) fn take_completions(&self) {
        let mut finished = self.finished.take();
        if let Some(ring) = self.ring.borrow_mut().ready() {
            ring.take_completions(&mut finished);
        }
        for (operation, result) in finished.drain(..) {
            operation.finish(result);
        }
        self.finished.replace(finished);
        for completion in self.worker_mailbox.take() {
            self.workers.borrow_mut().finish(completion);
        }
    }

    /// Whether something can be done that no event would announce.
    pub(crate) fn has_work(&self) -> bool {
        !self.queued.is_empty()
            || self.worker_mailbox.is_pending()
            || self
                .ring
                .borrow_mut()
                .ready()
                .is_some_and(|ring| ring.has_completions() || ring.has_unsubmitted())
    }

    /// Drops what has not started, and waits for what has. There is no ring and no thread
    /// afterwards.
    pub(crate) fn end(&self) {
        self.queued.clear();
        drop(self.ring.replace(RingState::Refused));
        drop(self.worker_mailbox.close());
        drop(self.workers.take());
    }
}

#[cfg(test)]
#[path = "drive_tests.rs"]
mod tests;
