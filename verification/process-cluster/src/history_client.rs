//! An NBD client that keeps a history: it writes stamped blocks with many requests under way, lives
//! through the death of its server, and reads everything back to be judged.
//!
//! Everything happens on the thread that calls, in an event loop of its own.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::{join, join_all};
use spandrel_fleet::{NbdClient, NbdError};
use spandrel_platform::{Address, Instant, Platform};
use spandrel_platform_linux::{LinuxPlatform, Runtime, RuntimeConfig};
use spandrel_shared::BLOCK_BYTES;

use crate::history::{History, Violation};
use crate::random::Random;
use crate::stamp::Content;

/// Bytes that are read at a time when everything is read.
const READ_BYTES: u32 = 1 << 20;

/// Reads under way when everything is read.
const READS_AT_ONCE: usize = 8;

/// Requests that may fail before a load ends.
const FAILURES_MAX: usize = 100;

/// How long a server may take until it opens an export again, and how often it is asked.
const OPEN_TIME_MAX: Duration = Duration::from_secs(60);
const OPEN_PAUSE: Duration = Duration::from_millis(20);

/// How long requests take to reach the kernel of the server's machine, which is this one, however busy that is.
const SENT_AFTER: Duration = Duration::from_millis(200);

/// A client of one volume, with the history of its blocks.
pub struct HistoryClient {
    runtime: Runtime,
    address: Address,
    export: String,
    history: Rc<RefCell<History>>,
    random: Rc<Random>,
}

/// What happens between the opening of a volume and the reading of it.
pub struct Meanwhile {
    /// What is done as soon as it is open.
    pub begin: Box<dyn FnOnce()>,
    /// Where the volume is loaded then, over another connection.
    pub address: Address,
    /// Asked after each answer, with their number: until when.
    pub next: Box<dyn FnMut(u64) -> Next>,
    /// What is done when the first reads have been sent over the first connection.
    pub end: Box<dyn FnOnce()>,
}

/// What a load does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadOptions {
    /// Requests that are kept under way.
    pub in_flight: usize,
    /// A write is of one to so many blocks; half of them of one.
    pub write_blocks_max: u64,
    /// How many of 100 requests are reads, each judged.
    pub read_percent: u64,
}

/// What a load does next.
pub enum Next {
    /// It goes on.
    GoOn,
    /// It goes on, and does this in so long: beside whatever is under way then.
    AndLater(Duration, Box<dyn FnOnce()>),
    /// It asks for nothing more, and awaits what is under way.
    End,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self { in_flight: 16, write_blocks_max: 4, read_percent: 10 }
    }
}

/// How a load went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadEnd {
    /// Requests that were answered without an error.
    pub answered: u64,
    /// Requests that were answered with an error.
    pub failures: Vec<String>,
    /// Reads that found what must not be.
    pub violations: Vec<Violation>,
    /// Requests that were under way when the connection broke; zero if it was not broken.
    pub unanswered: usize,
    /// How the connection broke, if it did.
    pub broken: Option<String>,
    /// The longest time in which requests were under way and none was answered.
    pub pause_max: Duration,
    /// The longest time from a request to its answer.
    pub wait_max: Duration,
}

impl LoadEnd {
    /// Whether everything was answered, without an error, and nothing wrong was read.
    pub fn is_faultless(&self) -> bool {
        self.failures.is_empty() && self.violations.is_empty() && self.broken.is_none()
    }
}

impl HistoryClient {
    /// A client of a new volume of `size_bytes`, served as `export` at `address`.
    pub fn new(address: Address, export: &str, size_bytes: u64, seed: u64) -> Self {
        let history = History::new(seed, size_bytes / BLOCK_BYTES as u64);
        Self {
            runtime: Runtime::new(RuntimeConfig::default()).expect("the process may open a few files more"),
            address,
            export: export.to_owned(),
            history: Rc::new(RefCell::new(history)),
            random: Rc::new(Random::new(seed)),
        }
    }

    /// Uses the volume at another address from now on.
    pub fn use_address(&mut self, address: Address) {
        self.address = address;
    }

    /// The volume has this size from now on; connections that are opened then use all of it.
    pub fn grow(&mut self, size_bytes: u64) {
        self.history.borrow_mut().grow(size_bytes / BLOCK_BYTES as u64);
    }

    /// What stood behind this end was given up: the volume has this size again.
    pub fn give_up_behind(&mut self, size_bytes: u64) {
        self.history.borrow_mut().give_up_behind(size_bytes / BLOCK_BYTES as u64);
    }

    /// The newest content of every block, and what may be there besides.
    pub fn history(&self) -> Rc<RefCell<History>> {
        Rc::clone(&self.history)
    }

    /// Loads the volume until `next` says so, or the connection breaks. `next` is asked after each
    /// request that was answered, with their number.
    ///
    /// # Errors
    ///
    /// If the export could not be opened.
    pub fn load(
        &mut self,
        options: LoadOptions,
        next: impl FnMut(u64) -> Next + 'static,
    ) -> Result<LoadEnd, NbdError> {
        let (volume, address) = (self.volume(), self.address.clone());
        self.runtime.block_on(async move { volume.load(&address, options, next).await })
    }

    /// Reads every block and judges it. What was found holds from then on.
    ///
    /// # Errors
    ///
    /// If the volume could not be read.
    pub fn check(&mut self) -> Result<Vec<Violation>, NbdError> {
        let (volume, address) = (self.volume(), self.address.clone());
        self.runtime.block_on(async move {
            let client = volume.open(&address).await?;
            volume.check(&client).await
        })
    }

    /// Opens the volume, has something else happen, and only then reads every block over that connection and judges
    /// it.
    ///
    /// # Errors
    ///
    /// If the volume could not be opened or read.
    pub fn check_after(&mut self, meanwhile: Meanwhile) -> Result<(LoadEnd, Vec<Violation>), NbdError> {
        let (volume, address) = (self.volume(), self.address.clone());
        let Meanwhile { begin, address: elsewhere, next, end } = meanwhile;
        self.runtime.block_on(async move {
            let client = volume.open(&address).await?;
            begin();
            let load = volume.load(&elsewhere, LoadOptions::default(), next).await?;
            let end = async {
                volume.platform.sleep(SENT_AFTER).await;
                end();
            };
            let (violations, ()) = join(volume.check(&client), end).await;
            Ok((load, violations?))
        })
    }

    fn volume(&self) -> Volume {
        Volume {
            platform: self.runtime.platform(),
            export: self.export.clone(),
            history: Rc::clone(&self.history),
            random: Rc::clone(&self.random),
        }
    }
}

/// The volume, as tasks of the client's runtime use it.
struct Volume {
    platform: LinuxPlatform,
    export: String,
    history: Rc<RefCell<History>>,
    random: Rc<Random>,
}

impl Volume {
    /// Opens it, as soon as the server is there and lets it be opened.
    async fn open(&self, address: &Address) -> Result<NbdClient<LinuxPlatform>, NbdError> {
        let platform = &self.platform;
        let deadline = platform.now() + OPEN_TIME_MAX;
        loop {
            match NbdClient::open(platform, address, &self.export).await {
                Ok(client) => return Ok(client),
                Err(error) if platform.now() >= deadline => return Err(error),
                Err(_) => platform.sleep(OPEN_PAUSE).await,
            }
        }
    }

    async fn load(
        &self,
        address: &Address,
        options: LoadOptions,
        next: impl FnMut(u64) -> Next,
    ) -> Result<LoadEnd, NbdError> {
        let client = self.open(address).await?;
        let began = self.platform.now();
        let load = Load {
            platform: self.platform.clone(),
            client,
            history: Rc::clone(&self.history),
            random: Rc::clone(&self.random),
            options,
            next: RefCell::new(next),
            ending: Cell::new(false),
            end: RefCell::new(LoadEnd {
                answered: 0,
                failures: Vec::new(),
                violations: Vec::new(),
                unanswered: 0,
                broken: None,
                pause_max: Duration::ZERO,
                wait_max: Duration::ZERO,
            }),
            answered_at: Cell::new(began),
        };
        join_all((0..options.in_flight).map(|_| load.work())).await;
        Ok(load.end.into_inner())
    }

    async fn check(&self, client: &NbdClient<LinuxPlatform>) -> Result<Vec<Violation>, NbdError> {
        let next = Cell::new(0);
        let violations = RefCell::new(Vec::new());
        let readers = (0..READS_AT_ONCE).map(|_| read_all(client, &self.history, &next, &violations));
        join_all(readers).await.into_iter().collect::<Result<(), NbdError>>()?;
        let mut violations = violations.into_inner();
        violations.sort_by_key(|violation: &Violation| violation.block);
        Ok(violations)
    }
}

/// Reads stretch after stretch of a volume, beside others that do so.
async fn read_all(
    client: &NbdClient<LinuxPlatform>,
    history: &RefCell<History>,
    next: &Cell<u64>,
    violations: &RefCell<Vec<Violation>>,
) -> Result<(), NbdError> {
    let size_bytes = history.borrow().block_count() * BLOCK_BYTES as u64;
    let length_max = u64::from(READ_BYTES.min(client.export().request_bytes_max));
    loop {
        let offset = next.get();
        let length = length_max.min(size_bytes - offset);
        if length == 0 {
            return Ok(());
        }
        next.set(offset + length);
        let data = client.read(offset, length as u32).await?;
        let first = offset / BLOCK_BYTES as u64;
        for (block, bytes) in (first..).zip(data.chunks_exact(BLOCK_BYTES)) {
            if let Err(violation) = history.borrow_mut().judge(block, Content::of(bytes)) {
                violations.borrow_mut().push(violation);
            }
        }
    }
}

struct Load<F> {
    platform: LinuxPlatform,
    client: NbdClient<LinuxPlatform>,
    history: Rc<RefCell<History>>,
    random: Rc<Random>,
    options: LoadOptions,
    next: RefCell<F>,
    ending: Cell<bool>,
    end: RefCell<LoadEnd>,
    /// When a request was answered last.
    answered_at: Cell<Instant>,
}

impl<F: FnMut(u64) -> Next> Load<F> {
    /// Keeps one request under way.
    async fn work(&self) {
        while !self.ending.get() {
            let (first, count) = self.choose();
            let is_read = self.random.below(100) < self.options.read_percent;
            let asked_at = self.platform.now();
            let result = if is_read { self.read(first).await } else { self.write(first, count).await };
            let now = self.platform.now();
            let pause = now.since(self.answered_at.replace(now));
            {
                let mut end = self.end.borrow_mut();
                end.pause_max = end.pause_max.max(pause);
                end.wait_max = end.wait_max.max(now.since(asked_at));
            }
            match result {
                Ok(()) => self.count(),
                Err(NbdError::Failed(failure)) => {
                    let mut end = self.end.borrow_mut();
                    end.failures.push(failure.to_string());
                    // A server that refuses everything would be asked for ever.
                    self.ending.set(self.ending.get() || end.failures.len() >= FAILURES_MAX);
                }
                Err(error) => {
                    let mut end = self.end.borrow_mut();
                    end.unanswered += 1;
                    end.broken.get_or_insert(error.to_string());
                    return;
                }
            }
        }
    }

    /// Counts a request that was answered, and does what is to be done then.
    fn count(&self) {
        self.end.borrow_mut().answered += 1;
        let answered = self.end.borrow().answered;
        match (self.next.borrow_mut())(answered) {
            Next::GoOn => {}
            Next::End => self.ending.set(true),
            Next::AndLater(after, act) => {
                let platform = self.platform.clone();
                self.platform.spawn(async move {
                    platform.sleep(after).await;
                    act();
                });
            }
        }
    }

    /// Blocks to which nothing is under way.
    fn choose(&self) -> (u64, u64) {
        let history = self.history.borrow();
        loop {
            let most = self.options.write_blocks_max;
            let count = if self.random.below(2) == 0 { 1 } else { 1 + self.random.below(most) };
            let count = count.min(history.block_count());
            let first = self.random.below(history.block_count() - count + 1);
            if !history.is_busy(first, count) {
                return (first, count);
            }
        }
    }

    /// Reads a block. A write of it may begin meanwhile, and then the read says nothing.
    async fn read(&self, block: u64) -> Result<(), NbdError> {
        let before = self.history.borrow().writes_of(block);
        let data = self.client.read(block * BLOCK_BYTES as u64, BLOCK_BYTES as u32).await?;
        let mut history = self.history.borrow_mut();
        if history.writes_of(block) == before
            && let Err(violation) = history.judge(block, Content::of(&data))
        {
            self.end.borrow_mut().violations.push(violation);
        }
        Ok(())
    }

    async fn write(&self, first: u64, count: u64) -> Result<(), NbdError> {
        let blocks = first..first + count;
        let mut data = self.platform.buffers().take(count as usize * BLOCK_BYTES);
        for (block, bytes) in blocks.clone().zip(data.chunks_exact_mut(BLOCK_BYTES)) {
            self.history.borrow_mut().issue(block).fill(bytes);
        }
        let result = self.client.write(first * BLOCK_BYTES as u64, data.freeze()).await;
        let mut history = self.history.borrow_mut();
        if let Err(error) = result {
            blocks.for_each(|block| history.abandoned(block));
            return Err(error);
        }
        blocks.for_each(|block| history.answered(block));
        Ok(())
    }
}
