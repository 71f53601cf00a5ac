//! A platform for this crate's own tests: virtual time and tasks, no drives and no connections.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use spandrel_platform::{
    Address, Buffer, BufferMut, BufferPool, Connection, Drive, DriveError, DriveGeometry, Executor, Instant,
    LinkError, Listener, Platform, TaskHandle, UnixTime,
};

/// A machine of a test. Clones share its time, its tasks and its randomness.
#[derive(Clone)]
pub struct TestPlatform {
    inner: Rc<Inner>,
}

struct Inner {
    executor: Executor,
    now: Cell<Instant>,
    random: Cell<u64>,
    timers: RefCell<BTreeMap<(Instant, u64), Waker>>,
    timer_count: Cell<u64>,
    buffers: BufferPool,
}

impl TestPlatform {
    /// A machine whose chance is determined by `seed`.
    pub fn new(seed: u64) -> Self {
        let inner = Inner {
            executor: Executor::new(),
            now: Cell::new(Instant::from_nanoseconds(1_000_000_000)),
            random: Cell::new(seed),
            timers: RefCell::default(),
            timer_count: Cell::new(0),
            buffers: BufferPool::new(0),
        };
        Self { inner: Rc::new(inner) }
    }

    /// Runs `future` to its end and lets time pass as needed. Panics if it waits for nothing.
    pub fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let output = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&output);
        self.spawn(async move {
            let value = future.await;
            *slot.borrow_mut() = Some(value);
        });
        loop {
            while self.inner.executor.run_ready() {}
            if let Some(value) = output.take() {
                return value;
            }
            let ((instant, _), waker) =
                self.inner.timers.borrow_mut().pop_first().expect("the test waits for something that comes");
            self.inner.now.set(instant.max(self.now()));
            waker.wake();
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.executor.drop_all_tasks();
    }
}

impl Platform for TestPlatform {
    type Drive = Nothing;
    type Connection = Nothing;
    type Listener = Nothing;
    type Detached = Nothing;

    fn now(&self) -> Instant {
        self.inner.now.get()
    }

    fn unix_time(&self) -> UnixTime {
        UnixTime(self.now().nanoseconds() / 1_000_000)
    }

    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + 'static {
        let number = self.inner.timer_count.get();
        self.inner.timer_count.set(number + 1);
        Sleep { machine: self.clone(), timer: (deadline, number) }
    }

    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + 'static {
        self.sleep_until(self.now() + duration)
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) -> TaskHandle {
        self.inner.executor.spawn(task)
    }

    fn random_u64(&self) -> u64 {
        // Splitmix64.
        let state = self.inner.random.get().wrapping_add(0x9E37_79B9_7F4A_7C15);
        self.inner.random.set(state);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn buffers(&self) -> &BufferPool {
        &self.inner.buffers
    }

    async fn open_drive(&self, _location: &str) -> Result<Nothing, DriveError> {
        unreachable!("the cluster's state opens no drives")
    }

    async fn connect(&self, _address: &Address) -> Result<Nothing, LinkError> {
        unreachable!("the cluster's state opens no connections")
    }

    fn listen(&self, _address: &Address) -> Result<Nothing, LinkError> {
        unreachable!("the cluster's state listens nowhere")
    }

    fn detach(&self, _connection: &Nothing) -> Option<Nothing> {
        unreachable!("the cluster's state has no connections")
    }

    fn attach(&self, _detached: Nothing) -> Result<Nothing, LinkError> {
        unreachable!("the cluster's state has no connections")
    }
}

/// A wait for a point in time. Its timer goes with it.
struct Sleep {
    machine: TestPlatform,
    timer: (Instant, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.machine.now() >= self.timer.0 {
            return Poll::Ready(());
        }
        self.machine.inner.timers.borrow_mut().insert(self.timer, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.machine.inner.timers.borrow_mut().remove(&self.timer);
    }
}

/// A drive, connection or listener of which there is none.
#[derive(Clone)]
pub struct Nothing(Infallible);

impl Drive for Nothing {
    fn geometry(&self) -> DriveGeometry {
        match self.0 {}
    }

    async fn read(&self, _offset: u64, _into: BufferMut) -> Result<BufferMut, DriveError> {
        match self.0 {}
    }

    async fn write(&self, _offset: u64, _parts: Vec<Buffer>) -> Result<(), DriveError> {
        match self.0 {}
    }

    fn read_at_once(&self, _offset: u64, _into: &mut [u8]) -> bool {
        match self.0 {}
    }

    fn write_at_once(&self, _offset: u64, _part: &Buffer) -> bool {
        match self.0 {}
    }

    async fn flush(&self) -> Result<(), DriveError> {
        match self.0 {}
    }
}

impl Connection for Nothing {
    async fn receive(&self, _into: &mut [u8]) -> Result<usize, LinkError> {
        match self.0 {}
    }

    fn send(&self, _head: &[u8], _body: &[Buffer]) {
        match self.0 {}
    }

    fn queued_bytes(&self) -> usize {
        match self.0 {}
    }

    async fn send_room(&self, _limit: usize) -> Result<(), LinkError> {
        match self.0 {}
    }

    fn close(&self) {
        match self.0 {}
    }

    fn peer(&self) -> String {
        match self.0 {}
    }
}

impl Listener for Nothing {
    type Connection = Nothing;

    async fn accept(&self) -> Result<Nothing, LinkError> {
        match self.0 {}
    }

    fn address(&self) -> Address {
        match self.0 {}
    }
}
