//! A platform of one thread, with virtual time and connections in memory.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Poll, Waker};

use spandrel_platform::{
    Address, Buffer, BufferMut, BufferPool, Connection, Drive, DriveError, DriveErrorKind, DriveGeometry,
    DriveOperation, Executor, Instant, LinkError, Listener, Platform, TaskHandle, UnixTime,
};

#[derive(Clone)]
pub(crate) struct TestPlatform {
    world: Rc<World>,
}

struct World {
    executor: Executor,
    now: Cell<Instant>,
    timers: RefCell<BTreeMap<(Instant, u64), Waker>>,
    serial: Cell<u64>,
    buffers: BufferPool,
    listeners: RefCell<BTreeMap<Address, Rc<Backlog>>>,
    /// Bytes that a pipe holds, as a socket's buffer does.
    pipe_bytes_max: Cell<usize>,
    /// The most bytes that one receive yields.
    receive_bytes_max: Cell<usize>,
    /// Whether connections cannot be detached.
    connections_stay: Cell<bool>,
}

impl TestPlatform {
    pub(crate) fn new() -> Self {
        let world = World {
            executor: Executor::new(),
            now: Cell::new(Instant::from_nanoseconds(1)),
            timers: RefCell::default(),
            serial: Cell::new(0),
            buffers: BufferPool::default(),
            listeners: RefCell::default(),
            pipe_bytes_max: Cell::new(64 << 10),
            receive_bytes_max: Cell::new(usize::MAX),
            connections_stay: Cell::new(false),
        };
        Self { world: Rc::new(world) }
    }

    /// Makes every later receive yield at most `bytes`.
    pub(crate) fn fragment(&self, bytes: usize) {
        self.world.receive_bytes_max.set(bytes);
    }

    /// Makes every attempt to detach a connection fail, as that of an encrypted one.
    pub(crate) fn keep_connections(&self) {
        self.world.connections_stay.set(true);
    }

    /// Makes pipes of later connections hold at most `bytes`.
    pub(crate) fn limit_pipes(&self, bytes: usize) {
        self.world.pipe_bytes_max.set(bytes);
    }

    /// Runs everything until `future` completes; time passes when nothing else can happen.
    pub(crate) fn run<T: 'static>(&self, future: impl Future<Output = T> + 'static) -> T {
        let output = Rc::new(RefCell::new(None));
        let slot = Rc::clone(&output);
        self.world.executor.spawn(async move {
            let value = future.await;
            *slot.borrow_mut() = Some(value);
        });
        loop {
            self.settle();
            if let Some(value) = output.take() {
                return value;
            }
            assert!(self.pass_time(), "everything waits, and for nothing");
        }
    }

    /// Runs everything that can run without time passing.
    pub(crate) fn settle(&self) {
        while self.world.executor.run_ready() {}
    }

    fn pass_time(&self) -> bool {
        let first = self.world.timers.borrow_mut().pop_first();
        let Some(((deadline, _), waker)) = first else { return false };
        self.world.now.set(deadline.max(self.world.now.get()));
        waker.wake();
        true
    }

    pub(crate) fn live_tasks(&self) -> usize {
        self.world.executor.live_tasks()
    }
}

impl Platform for TestPlatform {
    type Drive = NoDrive;
    type Connection = TestConnection;
    type Listener = TestListener;
    type Detached = TestConnection;

    fn now(&self) -> Instant {
        self.world.now.get()
    }

    fn unix_time(&self) -> UnixTime {
        UnixTime(0)
    }

    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + 'static {
        let timer = Timer { world: Rc::clone(&self.world), key: Cell::new(None) };
        poll_fn(move |context| {
            let world = &timer.world;
            if world.now.get() >= deadline {
                return Poll::Ready(());
            }
            let key = timer.key.get().unwrap_or_else(|| {
                world.serial.set(world.serial.get() + 1);
                (deadline, world.serial.get())
            });
            timer.key.set(Some(key));
            world.timers.borrow_mut().insert(key, context.waker().clone());
            Poll::Pending
        })
    }

    fn spawn(&self, task: impl Future<Output = ()> + 'static) -> TaskHandle {
        self.world.executor.spawn(task)
    }

    fn random_u64(&self) -> u64 {
        4
    }

    fn buffers(&self) -> &BufferPool {
        &self.world.buffers
    }

    async fn open_drive(&self, location: &str) -> Result<NoDrive, DriveError> {
        Err(DriveError {
            kind: DriveErrorKind::Unavailable,
            operation: DriveOperation::Open,
            offset: 0,
            detail: location.to_owned(),
        })
    }

    async fn connect(&self, address: &Address) -> Result<TestConnection, LinkError> {
        let backlog = self.world.listeners.borrow().get(address).cloned();
        let backlog = backlog.ok_or_else(|| LinkError::Refused(address.to_string()))?;
        let (ours, theirs) = self.pair();
        backlog.push(theirs);
        Ok(ours)
    }

    fn listen(&self, address: &Address) -> Result<TestListener, LinkError> {
        let backlog = Rc::new(Backlog::default());
        let former = self.world.listeners.borrow_mut().insert(address.clone(), Rc::clone(&backlog));
        assert!(former.is_none(), "{address} is in use");
        Ok(TestListener { world: Rc::clone(&self.world), address: address.clone(), backlog })
    }

    fn detach(&self, connection: &TestConnection) -> Option<TestConnection> {
        let may_go = connection.queued_bytes() == 0 && !self.world.connections_stay.get();
        may_go.then(|| connection.leave())
    }

    fn attach(&self, detached: TestConnection) -> Result<TestConnection, LinkError> {
        Ok(detached)
    }
}

impl TestPlatform {
    /// Both ends of a connection.
    pub(crate) fn pair(&self) -> (TestConnection, TestConnection) {
        let (one, other) = (Rc::new(Pipe::new(&self.world)), Rc::new(Pipe::new(&self.world)));
        let ours = End { incoming: Rc::clone(&one), outgoing: Rc::clone(&other), has_left: Cell::default() };
        let theirs = End { incoming: other, outgoing: one, has_left: Cell::default() };
        (TestConnection(Rc::new(ours)), TestConnection(Rc::new(theirs)))
    }
}

struct Timer {
    world: Rc<World>,
    key: Cell<Option<(Instant, u64)>>,
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Some(key) = self.key.get() {
            self.world.timers.borrow_mut().remove(&key);
        }
    }
}

/// One direction of a connection.
struct Pipe {
    world: Rc<World>,
    bytes_max: usize,
    state: RefCell<PipeState>,
}

#[derive(Default)]
struct PipeState {
    /// Sent, and held by the sender because the pipe is full.
    queued: VecDeque<u8>,
    /// In the pipe.
    arrived: VecDeque<u8>,
    queued_bytes_peak: usize,
    closed: bool,
    reader: Option<Waker>,
    senders: Vec<Waker>,
}

impl PipeState {
    fn pump(&mut self, bytes_max: usize) {
        let room = bytes_max.saturating_sub(self.arrived.len()).min(self.queued.len());
        self.arrived.extend(self.queued.drain(..room));
        self.queued_bytes_peak = self.queued_bytes_peak.max(self.queued.len());
        if let Some(reader) = self.reader.take_if(|_| !self.arrived.is_empty() || self.closed) {
            reader.wake();
        }
        if room != 0 || self.closed {
            self.senders.drain(..).for_each(Waker::wake);
        }
    }
}

impl Pipe {
    fn new(world: &Rc<World>) -> Self {
        let bytes_max = world.pipe_bytes_max.get();
        Self { world: Rc::clone(world), bytes_max, state: RefCell::default() }
    }

    fn close(&self) {
        let mut state = self.state.borrow_mut();
        state.closed = true;
        state.queued.clear();
        state.pump(self.bytes_max);
    }
}

struct End {
    incoming: Rc<Pipe>,
    outgoing: Rc<Pipe>,
    /// Whether it goes on elsewhere: nothing may be done with this any more.
    has_left: Cell<bool>,
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.has_left.get() {
            self.incoming.close();
            self.outgoing.close();
        }
    }
}

#[derive(Clone)]
pub(crate) struct TestConnection(Rc<End>);

impl TestConnection {
    /// Bytes that the other side has queued for this one beyond what the pipe holds, at most.
    pub(crate) fn incoming_queued_bytes_peak(&self) -> usize {
        self.0.incoming.state.borrow().queued_bytes_peak
    }

    /// Whether the other side, or this one, has closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.incoming.state.borrow().closed
    }

    /// Receives exactly `length` bytes, or `None` if the other side closes before.
    pub(crate) async fn receive_exact(&self, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match self.receive(&mut bytes[filled..]).await {
                Ok(0) | Err(_) => return None,
                Ok(count) => filled += count,
            }
        }
        Some(bytes)
    }

    /// Receives all that comes until the other side closes.
    pub(crate) async fn receive_to_end(&self) -> Vec<u8> {
        let mut all = Vec::new();
        while let Some(byte) = self.receive_exact(1).await {
            all.extend(byte);
        }
        all
    }

    /// The same connection for another thread: this one is of no use afterwards.
    fn leave(&self) -> Self {
        let End { incoming, outgoing, .. } = self.end();
        let end =
            End { incoming: Rc::clone(incoming), outgoing: Rc::clone(outgoing), has_left: Cell::default() };
        self.0.has_left.set(true);
        Self(Rc::new(end))
    }

    fn end(&self) -> &End {
        assert!(!self.0.has_left.get(), "it goes on elsewhere");
        &self.0
    }
}

impl Connection for TestConnection {
    async fn receive(&self, into: &mut [u8]) -> Result<usize, LinkError> {
        assert!(!into.is_empty(), "a receive into nothing");
        poll_fn(|context| {
            let pipe = &self.end().incoming;
            let mut state = pipe.state.borrow_mut();
            if state.arrived.is_empty() {
                if state.closed {
                    return Poll::Ready(Ok(0));
                }
                state.reader = Some(context.waker().clone());
                return Poll::Pending;
            }
            let count = into.len().min(state.arrived.len()).min(pipe.world.receive_bytes_max.get());
            for (target, byte) in into.iter_mut().zip(state.arrived.drain(..count)) {
                *target = byte;
            }
            state.pump(pipe.bytes_max);
            Poll::Ready(Ok(count))
        })
        .await
    }

    fn send(&self, head: &[u8], body: &[Buffer]) {
        let pipe = &self.end().outgoing;
        let mut state = pipe.state.borrow_mut();
        if state.closed {
            return;
        }
        state.queued.extend(head);
        body.iter().for_each(|part| state.queued.extend(&part[..]));
        state.pump(pipe.bytes_max);
    }

    fn queued_bytes(&self) -> usize {
        self.end().outgoing.state.borrow().queued.len()
    }

    async fn send_room(&self, limit: usize) -> Result<(), LinkError> {
        poll_fn(|context| {
            let mut state = self.end().outgoing.state.borrow_mut();
            if state.closed {
                return Poll::Ready(Err(LinkError::Closed("closed".to_owned())));
            }
            if state.queued.len() < limit {
                return Poll::Ready(Ok(()));
            }
            state.senders.push(context.waker().clone());
            Poll::Pending
        })
        .await
    }

    fn close(&self) {
        self.end().incoming.close();
        self.end().outgoing.close();
    }

    fn peer(&self) -> String {
        "test".to_owned()
    }
}

#[derive(Default)]
struct Backlog {
    arrived: RefCell<VecDeque<TestConnection>>,
    waker: Cell<Option<Waker>>,
}

impl Backlog {
    fn push(&self, connection: TestConnection) {
        self.arrived.borrow_mut().push_back(connection);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

pub(crate) struct TestListener {
    world: Rc<World>,
    address: Address,
    backlog: Rc<Backlog>,
}

impl Listener for TestListener {
    type Connection = TestConnection;

    async fn accept(&self) -> Result<TestConnection, LinkError> {
        poll_fn(|context| match self.backlog.arrived.borrow_mut().pop_front() {
            Some(connection) => Poll::Ready(Ok(connection)),
            None => {
                self.backlog.waker.set(Some(context.waker().clone()));
                Poll::Pending
            }
        })
        .await
    }

    fn address(&self) -> Address {
        self.address.clone()
    }
}

impl Drop for TestListener {
    fn drop(&mut self) {
        self.world.listeners.borrow_mut().remove(&self.address);
    }
}

/// Front-ends use no drives.
#[derive(Clone)]
pub(crate) struct NoDrive(Infallible);

impl Drive for NoDrive {
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
