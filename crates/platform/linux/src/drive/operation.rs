//! One read, write or flush of a drive, from its start to its answer.
//!
//! An operation owns the memory it moves. It lives in the queue or the table of whoever performs it
//! until it is finished, whether or not anybody still waits for the answer: a future that is
//! dropped leaves its operation alone.

use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;
use spandrel_platform::sync::OneshotSender;
use spandrel_platform::{Buffer, BufferMut, DriveError, DriveErrorKind, DriveOperation};

use super::locked_file::LockedFile;

/// The file of an open drive. Threads that serve it share the `Arc`; the shard's own thread clones the `Rc` for each operation,
/// which takes no atomic instruction.
pub(crate) type SharedFile = Rc<Arc<LockedFile>>;

/// What a drive is asked to do, with the memory for it.
pub(crate) enum Work {
    Read(BufferMut),
    Write(Vec<Buffer>),
    Flush,
}

/// What comes back: the filled buffer of a read, nothing of the others.
pub(crate) type Answer = Result<Option<BufferMut>, DriveError>;

/// Why the system did less than it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    System(Errno),
    /// A read met the end of the file: somebody has shortened it.
    EndOfFile,
    /// A write moved nothing, without an error.
    NothingWritten,
}

/// How far an operation is after the system has done something for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The rest has to be asked for.
    More,
    Done(Result<(), Failure>),
}

/// An operation on its way.
pub(crate) struct Operation {
    pub(crate) file: SharedFile,
    pub(crate) work: Work,
    /// Where on the drive it starts, in bytes.
    start: u64,
    /// Bytes that it moves altogether.
    length: usize,
    /// Bytes that it has moved.
    done: usize,
    reply: OneshotSender<Answer>,
}

impl Operation {
    pub(crate) fn new(file: SharedFile, start: u64, work: Work, reply: OneshotSender<Answer>) -> Self {
        let length = work.length();
        Self { file, work, start, length, done: 0, reply }
    }

    /// Where the rest starts, in bytes.
    pub(crate) fn position(&self) -> u64 {
        self.start + self.done as u64
    }

    /// Bytes that it moves altogether.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Bytes that it has moved.
    pub(crate) fn done(&self) -> usize {
        self.done
    }

    /// What is still to be written, part by part.
    pub(crate) fn parts_left(&self) -> impl Iterator<Item = &[u8]> {
        let parts = match &self.work {
            Work::Write(parts) => parts.as_slice(),
            Work::Read(_) | Work::Flush => &[],
        };
        let mut skip = self.done;
        parts.iter().filter_map(move |part| {
            let skipped = skip.min(part.len());
            skip -= skipped;
            (skipped < part.len()).then(|| &part[skipped..])
        })
    }

    /// Takes in what the system did: bytes that it moved, or its error.
    pub(crate) fn advance(&mut self, result: Result<usize, Errno>) -> Progress {
        let count = match result {
            Err(Errno::INTR | Errno::AGAIN) => return Progress::More,
            Err(error) => return Progress::Done(Err(Failure::System(error))),
            Ok(count) => count,
        };
        if count == 0 && self.done < self.length {
            let reading = matches!(self.work, Work::Read(_));
            let failure = if reading { Failure::EndOfFile } else { Failure::NothingWritten };
            return Progress::Done(Err(failure));
        }
        self.done += count;
        assert!(self.done <= self.length, "the system moved {} of {} bytes", self.done, self.length);
        if self.done == self.length { Progress::Done(Ok(())) } else { Progress::More }
    }

    /// Answers whoever waits and lets go of the memory.
    pub(crate) fn finish(self, result: Result<(), Failure>) {
        let operation = self.work.operation();
        let answer = match (result, self.work) {
            (Ok(()), Work::Read(buffer)) => Ok(Some(buffer)),
            (Ok(()), _) => Ok(None),
            (Err(failure), _) => Err(drive_error(failure, operation, self.start, self.length)),
        };
        // The file is let go before the waiter can look: it may be about to open it anew.
        drop(self.file);
        self.reply.send(answer);
    }
}

impl Work {
    fn length(&self) -> usize {
        match self {
            Work::Read(buffer) => buffer.len(),
            Work::Write(parts) => parts.iter().map(|part| part.len()).sum(),
            Work::Flush => 0,
        }
    }

    pub(crate) fn operation(&self) -> DriveOperation {
        match self {
            Work::Read(_) => DriveOperation::Read,
            Work::Write(_) => DriveOperation::Write,
            Work::Flush => DriveOperation::Flush,
        }
    }
}

fn drive_error(failure: Failure, operation: DriveOperation, start: u64, length: usize) -> DriveError {
    let kind = match failure {
        Failure::System(Errno::NOSPC | Errno::DQUOT) => DriveErrorKind::NoRoom,
        Failure::System(Errno::NXIO | Errno::NODEV) => DriveErrorKind::Unavailable,
        _ => DriveErrorKind::Medium,
    };
    let reason = match failure {
        Failure::System(error) => error.to_string(),
        Failure::EndOfFile => "the file has become shorter than the drive".to_string(),
        Failure::NothingWritten => "the system wrote nothing".to_string(),
    };
    let detail = match operation {
        DriveOperation::Read | DriveOperation::Write => format!("{reason} ({length} bytes)"),
        DriveOperation::Open | DriveOperation::Flush => reason,
    };
    DriveError { kind, operation, offset: start, detail }
}

#[cfg(test)]
#[path = "operation_tests.rs"]
mod tests;
