//! io_uring: the one place of the data path where the compiler's memory rules are not enough,
//! because the kernel reads and writes memory while no Rust code shows it.
//!
//! Invariants, on which the `unsafe` below rests:
//! - An operation's memory (its buffers and the list that names them) belongs to this module from
//!   its start to its completion. It is not touched, moved or freed in between.
//! - The ring is not dropped while an operation is under way; dropping waits. If waiting fails, the
//!   memory is leaked rather than freed.
//! - The ring is used by the thread that made it.

use std::collections::VecDeque;
use std::io;

use io_uring::{IoUring, Probe, cqueue, opcode, squeue, types};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd};
use rustix::io::Errno;

use crate::cores::Cores;
use crate::drive::operation::{Failure, Operation, Progress, Work};
use crate::table::Table;

/// Parts that the kernel takes in one vectored write.
const PARTS_PER_WRITE_MAX: usize = 1024;

/// Bytes that one entry moves; the rest of a longer operation follows in another.
const BYTES_PER_ENTRY_MAX: usize = 1 << 30;

/// The completion key of the entry that tries the ring out: no operation's.
const TRIAL_KEY: u64 = u64::MAX;

/// A ring with the operations under way in it.
pub(crate) struct Ring {
    ring: IoUring,
    under_way: Table<UnderWay>,
    under_way_max: usize,
    /// Operations for which the ring has had no room yet.
    waiting: VecDeque<Operation>,
}

struct UnderWay {
    operation: Operation,
    /// The list of a vectored write's parts, as the kernel reads it.
    vectors: Vec<libc::iovec>,
}

impl Ring {
    /// A ring that takes `entries` operations in one call. Fails where io_uring is missing,
    /// forbidden, or too old. What the kernel cannot do at once its own threads do, which stay on `cores`: not every
    /// kernel has them follow the thread that makes the ring.
    pub(crate) fn new(entries: u32, cores: Option<&Cores>) -> io::Result<Self> {
        let mut ring = build(entries)?;
        if let Some(cores) = cores {
            ring.submitter().register_iowq_aff(&cpu_set(cores))?;
        }
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        let needed = [opcode::Read::CODE, opcode::Write::CODE, opcode::Writev::CODE, opcode::Fsync::CODE];
        if !needed.iter().all(|code| probe.is_supported(*code)) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring is too old"));
        }
        try_out(&mut ring)?;
        let under_way_max = ring.params().cq_entries() as usize;
        Ok(Self { ring, under_way: Table::default(), under_way_max, waiting: VecDeque::new() })
    }

    /// Queues an operation for the next [`Ring::submit`].
    pub(crate) fn start(&mut self, operation: Operation) {
        self.waiting.push_back(operation);
    }

    /// Hands the queued operations to the kernel, as many as it takes now. Returns the number of
    /// calls that this took.
    pub(crate) fn submit(&mut self) -> u64 {
        let mut calls = 0;
        loop {
            self.fill();
            if self.ring.submission().is_empty() {
                return calls;
            }
            calls += 1;
            match self.ring.submit() {
                Ok(_) if self.can_fill() => {}
                Ok(_) => return calls,
                Err(error) if is_passing(&error) => return calls,
                Err(error) => panic!("io_uring_enter fails only on a ring that is broken: {error}"),
            }
        }
    }

    /// Whether something waits that the kernel has not been given yet and could take.
    pub(crate) fn has_unsubmitted(&mut self) -> bool {
        !self.ring.submission().is_empty() || self.can_fill()
    }

    /// Whether the kernel has completed something.
    pub(crate) fn has_completions(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Moves the operations that are done into `finished`, and continues those that are not.
    pub(crate) fn take_completions(&mut self, finished: &mut Vec<(Operation, Result<(), Failure>)>) {
        // One at a time, because what continues goes back into the ring's own queue.
        while let Some(completion) = self.ring.completion().next() {
            let Some(mut entry) = self.under_way.remove(completion.user_data()) else { continue };
            match entry.operation.advance(result_of(&completion)) {
                Progress::Done(result) => finished.push((entry.operation, result)),
                Progress::More => self.waiting.push_front(entry.operation),
            }
        }
    }

    fn can_fill(&self) -> bool {
        !self.waiting.is_empty() && self.under_way.len() < self.under_way_max
    }

    /// Moves waiting operations into the submission queue while both have room.
    fn fill(&mut self) {
        while self.under_way.len() < self.under_way_max && !self.ring.submission().is_full() {
            let Some(operation) = self.waiting.pop_front() else { return };
            let key = self.under_way.insert(UnderWay { operation, vectors: Vec::new() });
            let under_way = self.under_way.get_mut(key).expect("it was just inserted");
            let entry = under_way.entry().user_data(key);
            // SAFETY: the entry points into memory that `under_way` owns on the heap. It stays in
            // the table, where nothing touches it, until its completion is taken or the ring is
            // dropped, which waits for the completion. The descriptor is held open by it as well.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("the submission queue was seen to have room");
        }
    }

    /// Brings everything that was started to its end. Fails if the kernel cannot be asked.
    fn drain(&mut self) -> io::Result<()> {
        let mut finished = Vec::new();
        loop {
            self.fill();
            if self.under_way.is_empty() {
                return Ok(());
            }
            match self.ring.submit_and_wait(1) {
                Ok(_) => {}
                Err(error) if is_passing(&error) => {}
                Err(error) => return Err(error),
            }
            self.take_completions(&mut finished);
            finished.clear();
        }
    }
}

impl AsFd for Ring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if let Err(error) = self.drain() {
            tracing::error!(%error, "drive operations could not be waited for; their memory is not reused");
            std::mem::forget(std::mem::take(&mut self.under_way));
        }
    }
}

impl UnderWay {
    /// The kernel's form of what is still to be done. It points into this value's heap memory.
    fn entry(&mut self) -> squeue::Entry {
        let file = types::Fd(self.operation.file.as_fd().as_raw_fd());
        let position = self.operation.position();
        let done = self.operation.done();
        match &mut self.operation.work {
            Work::Flush => opcode::Fsync::new(file).flags(types::FsyncFlags::DATASYNC).build(),
            Work::Read(buffer) => {
                let rest = &mut buffer[done..];
                let length = entry_length(rest.len());
                opcode::Read::new(file, rest.as_mut_ptr(), length).offset(position).build()
            }
            Work::Write(_) => self.write_entry(file, position),
        }
    }

    fn write_entry(&mut self, file: types::Fd, position: u64) -> squeue::Entry {
        let vector = |part: &[u8]| libc::iovec {
            // The kernel only reads through it.
            iov_base: part.as_ptr().cast_mut().cast(),
            iov_len: part.len(),
        };
        self.vectors.clear();
        self.vectors.extend(self.operation.parts_left().take(PARTS_PER_WRITE_MAX).map(vector));
        if let [single] = self.vectors.as_slice() {
            let length = entry_length(single.iov_len);
            return opcode::Write::new(file, single.iov_base.cast(), length).offset(position).build();
        }
        let count = u32::try_from(self.vectors.len()).expect("at most the parts of one write");
        opcode::Writev::new(file, self.vectors.as_ptr(), count).offset(position).build()
    }
}

/// Cores in the kernel's form.
fn cpu_set(cores: &Cores) -> libc::cpu_set_t {
    // SAFETY: it is a field of bits, for which zero says that no core is in it.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for core in cores.numbers() {
        // SAFETY: the numbers of cores are below those that the field has room for.
        unsafe { libc::CPU_SET(core, &mut set) };
    }
    set
}

fn entry_length(length: usize) -> u32 {
    u32::try_from(length.min(BYTES_PER_ENTRY_MAX)).expect("a gigabyte fits 32 bits")
}

fn result_of(completion: &cqueue::Entry) -> Result<usize, Errno> {
    usize::try_from(completion.result()).map_err(|_| Errno::from_raw_os_error(-completion.result()))
}

/// Errors that go away by waiting: a signal, or the kernel short of memory or of completion room.
fn is_passing(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(code, Some(Errno::INTR | Errno::AGAIN | Errno::BUSY))
}

fn build(entries: u32) -> io::Result<IoUring> {
    // Completions need not interrupt the thread: it looks at the queue every turn and before it
    // sleeps. Kernels before 6.0 do not know these wishes.
    match IoUring::builder().dontfork().setup_coop_taskrun().setup_single_issuer().build(entries) {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            IoUring::builder().dontfork().build(entries)
        }
        built => built,
    }
}

/// Sends one empty operation through the ring: some sandboxes let it be made but not used.
fn try_out(ring: &mut IoUring) -> io::Result<()> {
    let entry = opcode::Nop::new().build().user_data(TRIAL_KEY);
    // SAFETY: an empty operation names no memory.
    let pushed = unsafe { ring.submission().push(&entry) };
    pushed.expect("a new submission queue has room");
    loop {
        match ring.submit_and_wait(1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
            Ok(_) => break,
        }
    }
    match ring.completion().next() {
        Some(_) => Ok(()),
        None => Err(io::Error::other("the ring completed nothing")),
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
