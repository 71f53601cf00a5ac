//! Disks in memory that can be slow, stuck or broken.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use spandrel_platform::sync::Signal;
use spandrel_platform::{BLOCK_BYTES, Buffer, Platform};
use spandrel_volume::{BlockDevice, DeviceError, DeviceErrorKind, DeviceLimits, Exports, Extent, OpenError};

use super::TestPlatform;

#[derive(Clone)]
pub(crate) struct MemoryDisk {
    state: Rc<State>,
    /// What an opened disk holds, so that attachments can be counted.
    _attachment: Option<Rc<()>>,
}

struct State {
    platform: TestPlatform,
    limits: Cell<DeviceLimits>,
    content: RefCell<Vec<u8>>,
    /// Per block: whether something is stored.
    allocated: RefCell<Vec<bool>>,
    /// While set, requests wait.
    held: Cell<bool>,
    released: Signal,
    /// Delays of the next requests, used in turn.
    delays: RefCell<Vec<Duration>>,
    failure: Cell<Option<DeviceErrorKind>>,
    /// A read yields parts of this length; an odd one at first, as there may be many slabs.
    part_bytes: Cell<usize>,
    requests: Cell<usize>,
    attachments: Rc<()>,
    waiting: Cell<usize>,
    waiting_peak: Cell<usize>,
}

impl MemoryDisk {
    pub(crate) fn new(platform: &TestPlatform, size_bytes: usize) -> Self {
        let limits = DeviceLimits {
            size_bytes: size_bytes as u64,
            request_bytes_min: 512,
            request_bytes_preferred: 4096,
            request_bytes_max: 32 << 20,
            read_only: false,
        };
        let state = State {
            platform: platform.clone(),
            limits: Cell::new(limits),
            content: RefCell::new(vec![0; size_bytes]),
            allocated: RefCell::new(vec![false; size_bytes / BLOCK_BYTES]),
            held: Cell::new(false),
            released: Signal::new(),
            delays: RefCell::default(),
            failure: Cell::new(None),
            part_bytes: Cell::new(5 * 4096 + 512),
            requests: Cell::new(0),
            attachments: Rc::default(),
            waiting: Cell::new(0),
            waiting_peak: Cell::new(0),
        };
        Self { state: Rc::new(state), _attachment: None }
    }

    pub(crate) fn change_limits(&self, change: impl FnOnce(&mut DeviceLimits)) {
        let mut limits = self.state.limits.get();
        change(&mut limits);
        self.state.limits.set(limits);
    }

    pub(crate) fn hold(&self) {
        self.state.held.set(true);
    }

    pub(crate) fn release(&self) {
        self.state.held.set(false);
        self.state.released.notify_all();
    }

    pub(crate) fn delay(&self, delays: Vec<Duration>) {
        *self.state.delays.borrow_mut() = delays;
    }

    /// Makes all later requests fail, or none.
    pub(crate) fn fail(&self, failure: Option<DeviceErrorKind>) {
        self.state.failure.set(failure);
    }

    pub(crate) fn divide_reads(&self, part_bytes: usize) {
        self.state.part_bytes.set(part_bytes);
    }

    pub(crate) fn fill(&self, bytes: &[u8]) {
        self.state.content.borrow_mut()[..bytes.len()].copy_from_slice(bytes);
        self.state.allocated.borrow_mut()[..bytes.len().div_ceil(BLOCK_BYTES)].fill(true);
    }

    /// Requests that ever arrived.
    pub(crate) fn requests(&self) -> usize {
        self.state.requests.get()
    }

    /// Requests in flight here.
    pub(crate) fn waiting(&self) -> usize {
        self.state.waiting.get()
    }

    pub(crate) fn waiting_peak(&self) -> usize {
        self.state.waiting_peak.get()
    }

    /// Handles of those who opened the disk.
    pub(crate) fn attachments(&self) -> usize {
        Rc::strong_count(&self.state.attachments) - 1
    }

    fn opened(&self) -> Self {
        Self { state: Rc::clone(&self.state), _attachment: Some(Rc::clone(&self.state.attachments)) }
    }

    async fn pass(&self) -> Result<(), DeviceError> {
        let state = &self.state;
        let number = state.requests.get();
        state.requests.set(number + 1);
        state.waiting.set(state.waiting.get() + 1);
        state.waiting_peak.set(state.waiting_peak.get().max(state.waiting.get()));
        let delay = {
            let delays = state.delays.borrow();
            (!delays.is_empty()).then(|| delays[number % delays.len()])
        };
        if let Some(delay) = delay {
            state.platform.sleep(delay).await;
        }
        state.released.wait_until(|| !state.held.get()).await;
        state.waiting.set(state.waiting.get() - 1);
        match state.failure.get() {
            Some(kind) => Err(DeviceError::new(kind, "planted failure")),
            None => Ok(()),
        }
    }

    fn check(&self, offset: u64, length: u64) {
        let limits = self.state.limits.get();
        assert!(offset + length <= limits.size_bytes, "{offset} + {length} is outside");
        assert!(offset.is_multiple_of(512) && length.is_multiple_of(512) && length != 0);
    }

    fn blocks(offset: u64, length: u64) -> std::ops::Range<usize> {
        (offset / 4096) as usize..(offset + length).div_ceil(4096) as usize
    }

    fn whole_blocks(offset: u64, length: u64) -> std::ops::Range<usize> {
        offset.div_ceil(4096) as usize..((offset + length) / 4096) as usize
    }
}

impl BlockDevice for MemoryDisk {
    fn limits(&self) -> DeviceLimits {
        self.state.limits.get()
    }

    async fn read(&self, offset: u64, length: u32) -> Result<Vec<Buffer>, DeviceError> {
        self.check(offset, u64::from(length));
        assert!(length <= self.limits().request_bytes_max);
        self.pass().await?;
        let start = offset as usize;
        let content = self.state.content.borrow();
        let pool = self.state.platform.buffers();
        let parts = content[start..start + length as usize].chunks(self.state.part_bytes.get());
        Ok(parts.map(|part| pool.copy_of(part).freeze()).collect())
    }

    async fn write(&self, offset: u64, data: Buffer) -> Result<(), DeviceError> {
        self.check(offset, data.len() as u64);
        self.pass().await?;
        let start = offset as usize;
        self.state.content.borrow_mut()[start..start + data.len()].copy_from_slice(&data);
        self.state.allocated.borrow_mut()[Self::blocks(offset, data.len() as u64)].fill(true);
        Ok(())
    }

    async fn write_zeroes(&self, offset: u64, length: u64, keep_allocated: bool) -> Result<(), DeviceError> {
        self.check(offset, length);
        self.pass().await?;
        self.state.content.borrow_mut()[offset as usize..(offset + length) as usize].fill(0);
        let whole = Self::whole_blocks(offset, length);
        if !whole.is_empty() {
            self.state.allocated.borrow_mut()[whole].fill(keep_allocated);
        }
        Ok(())
    }

    async fn trim(&self, offset: u64, length: u64) -> Result<(), DeviceError> {
        self.check(offset, length);
        self.pass().await?;
        let whole = Self::whole_blocks(offset, length);
        if !whole.is_empty() {
            self.state.content.borrow_mut()[whole.start * 4096..whole.end * 4096].fill(0);
            self.state.allocated.borrow_mut()[whole].fill(false);
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), DeviceError> {
        self.pass().await
    }

    async fn extents(&self, offset: u64, length: u64) -> Result<Vec<Extent>, DeviceError> {
        self.check(offset, length);
        self.pass().await?;
        let allocated = self.state.allocated.borrow();
        let extent = |block: usize| {
            let start = (block as u64 * 4096).max(offset);
            let end = (block as u64 * 4096 + 4096).min(offset + length);
            Extent { length: end - start, allocated: allocated[block] }
        };
        Ok(Self::blocks(offset, length).map(extent).collect())
    }
}

/// Disks by name.
#[derive(Clone)]
pub(crate) struct MemoryExports {
    platform: TestPlatform,
    disks: Rc<BTreeMap<String, MemoryDisk>>,
    open_delay: Rc<Cell<Duration>>,
    opens: Rc<Cell<usize>>,
    open_failure: Rc<Cell<Option<DeviceErrorKind>>>,
    threads: Rc<RefCell<BTreeMap<String, usize>>>,
    /// Of which thread the server is that these are for.
    thread: usize,
}

impl MemoryExports {
    pub(crate) fn new(platform: &TestPlatform, disks: &[(&str, MemoryDisk)]) -> Self {
        let disks = disks.iter().map(|(name, disk)| ((*name).to_owned(), disk.clone())).collect();
        Self {
            platform: platform.clone(),
            disks: Rc::new(disks),
            open_delay: Rc::default(),
            opens: Rc::default(),
            open_failure: Rc::default(),
            threads: Rc::default(),
            thread: 0,
        }
    }

    /// The same disks, for the server of another thread.
    pub(crate) fn of_thread(&self, thread: usize) -> Self {
        Self { thread, ..self.clone() }
    }

    /// Has the server of thread `thread` serve all clients of a disk: those of which nothing is said are served by any.
    pub(crate) fn give_to(&self, name: &str, thread: usize) {
        self.threads.borrow_mut().insert(name.to_owned(), thread);
    }

    pub(crate) fn delay_open(&self, delay: Duration) {
        self.open_delay.set(delay);
    }

    pub(crate) fn fail_open(&self, failure: Option<DeviceErrorKind>) {
        self.open_failure.set(failure);
    }

    pub(crate) fn opens(&self) -> usize {
        self.opens.get()
    }
}

impl Exports for MemoryExports {
    type Device = MemoryDisk;

    fn names(&self) -> Vec<String> {
        self.disks.keys().cloned().collect()
    }

    async fn open(&self, name: &str) -> Result<MemoryDisk, OpenError> {
        self.platform.sleep(self.open_delay.get()).await;
        if let Some(kind) = self.open_failure.get() {
            return Err(DeviceError::new(kind, "planted failure").into());
        }
        let thread = self.threads.borrow().get(name).copied().unwrap_or(self.thread);
        if thread != self.thread {
            return Err(OpenError::Elsewhere(thread));
        }
        self.opens.set(self.opens.get() + 1);
        let disk = self.disks.get(name).map(MemoryDisk::opened);
        let not_found = || DeviceError::new(DeviceErrorKind::NotFound, format!("no volume {name:?}"));
        Ok(disk.ok_or_else(not_found)?)
    }
}
