//! Drives without io_uring: threads that wait in plain system calls.
//!
//! Many containers forbid io_uring. There each drive has a few threads of its own, which take jobs
//! from one queue; a flush needs no place in that queue's order, because it covers only writes that
//! had completed before it was asked for. Block buffers cannot leave the shard's thread, so a job
//! carries its bytes in aligned memory of its own: one copy, which is the price of this path.
//!
//! Invariants:
//! - A drive's threads live until all its jobs are done, so its file is not let go before that.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use rustix::fd::AsFd;
use spandrel_platform::BLOCK_BYTES;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::drive::blocking::{read_all, write_all};
use crate::drive::locked_file::LockedFile;
use crate::drive::operation::{Failure, Operation, Work};
use crate::mailbox::Mailbox;
use crate::table::Table;

/// Threads of one drive: how many operations it has under way at a time.
const THREADS_PER_DRIVE: usize = 4;

/// Memory of finished jobs that a drive keeps for its next ones.
const SPARE_MEMORY_COUNT: usize = 16;
const SPARE_MEMORY_BYTES_MAX: usize = 256 << 10;

/// Where a shard's drive threads leave what they have done.
pub(crate) type WorkerMailbox = Mailbox<Completion>;

/// A job that is done, with its memory.
pub(crate) struct Completion {
    key: u64,
    memory: Memory,
    result: Result<(), Failure>,
}

/// The operations that a shard's drive threads have in hand.
#[derive(Default)]
pub(crate) struct WorkerTable {
    under_way: Table<(Operation, Rc<Workers>)>,
}

impl WorkerTable {
    /// Gives `operation` to the threads of its drive.
    pub(crate) fn start(&mut self, operation: Operation, workers: Rc<Workers>) {
        let mut memory = workers.memory(operation.length());
        let kind = match &operation.work {
            Work::Read(_) => JobKind::Read,
            Work::Flush => JobKind::Flush,
            Work::Write(_) => {
                memory.fill_from(operation.parts_left());
                JobKind::Write
            }
        };
        let offset = operation.position();
        let queue = Arc::clone(&workers.queue);
        let key = self.under_way.insert((operation, workers));
        queue.push(Job { key, kind, offset, memory });
    }

    /// Answers those who wait for `completion`.
    pub(crate) fn finish(&mut self, completion: Completion) {
        let Some((mut operation, workers)) = self.under_way.remove(completion.key) else { return };
        if let Work::Read(buffer) = &mut operation.work
            && completion.result.is_ok()
        {
            buffer.copy_from_slice(completion.memory.bytes());
        }
        workers.keep(completion.memory);
        // Should this be the drive's last holder, its threads end before the waiter can look.
        drop(workers);
        operation.finish(completion.result);
    }
}

/// The threads of one drive. Dropping waits for their jobs to be done.
pub(crate) struct Workers {
    queue: Arc<JobQueue>,
    threads: Vec<JoinHandle<()>>,
    spare: RefCell<Vec<Memory>>,
}

impl Workers {
    /// Starts the threads of the drive in `file`.
    pub(crate) fn start(file: &Arc<LockedFile>, mailbox: &Arc<WorkerMailbox>) -> io::Result<Self> {
        let queue = Arc::new(JobQueue::default());
        let mut workers = Self { queue, threads: Vec::new(), spare: RefCell::default() };
        for _ in 0..THREADS_PER_DRIVE {
            let (queue, file) = (Arc::clone(&workers.queue), Arc::clone(file));
            let mailbox = Arc::clone(mailbox);
            let thread = std::thread::Builder::new().name("spandrel-drive".to_string());
            workers.threads.push(thread.spawn(move || serve(&queue, &file, &mailbox))?);
        }
        Ok(workers)
    }

    /// Memory for `length` bytes.
    fn memory(&self, length: usize) -> Memory {
        let mut memory = self.spare.borrow_mut().pop().unwrap_or_default();
        memory.resize(length);
        memory
    }

    fn keep(&self, memory: Memory) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_MEMORY_COUNT && memory.capacity_bytes() <= SPARE_MEMORY_BYTES_MAX {
            spare.push(memory);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // A thread that panicked has told so itself.
            let _ = thread.join();
        }
    }
}

struct Job {
    key: u64,
    kind: JobKind,
    offset: u64,
    memory: Memory,
}

#[derive(Clone, Copy)]
enum JobKind {
    Read,
    Write,
    Flush,
}

#[derive(Default)]
struct JobQueue {
    state: Mutex<JobQueueState>,
    changed: Condvar,
}

#[derive(Default)]
struct JobQueueState {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl JobQueue {
    fn push(&self, job: Job) {
        self.lock().jobs.push_back(job);
        self.changed.notify_one();
    }

    /// The next job; none once the queue is closed and empty.
    fn pop(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, JobQueueState> {
        // A poisoned lock means a panic between two lines that leave the queue whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve(queue: &JobQueue, file: &LockedFile, mailbox: &WorkerMailbox) {
    while let Some(mut job) = queue.pop() {
        let result = match job.kind {
            JobKind::Read => read_all(file, job.memory.bytes_mut(), job.offset),
            JobKind::Write => write_all(file, job.memory.bytes(), job.offset),
            JobKind::Flush => rustix::fs::fdatasync(file.as_fd()).map_err(Failure::System),
        };
        // A shard that has ended waits for no answer.
        let _ = mailbox.post(Completion { key: job.key, memory: job.memory, result });
    }
}

#[derive(Clone, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(4096))]
struct MemoryBlock([u8; BLOCK_BYTES]);

/// Bytes that may cross threads, aligned as direct I/O demands.
#[derive(Default)]
struct Memory {
    blocks: Vec<MemoryBlock>,
    length: usize,
}

impl Memory {
    fn resize(&mut self, length: usize) {
        self.blocks.resize_with(length.div_ceil(BLOCK_BYTES), MemoryBlock::new_zeroed);
        self.length = length;
    }

    fn capacity_bytes(&self) -> usize {
        self.blocks.capacity() * BLOCK_BYTES
    }

    fn bytes(&self) -> &[u8] {
        &self.blocks.as_slice().as_bytes()[..self.length]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.blocks.as_mut_slice().as_mut_bytes()[..self.length]
    }

    fn fill_from<'part>(&mut self, parts: impl Iterator<Item = &'part [u8]>) {
        let mut rest = self.bytes_mut();
        for part in parts {
            let (front, back) = rest.split_at_mut(part.len());
            front.copy_from_slice(part);
            rest = back;
        }
    }
}
