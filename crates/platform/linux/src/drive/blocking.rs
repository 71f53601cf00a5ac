//! Reads and writes by plain system calls: for memory, where they never wait, and for threads, which
//! may.

use std::io::IoSlice;

use rustix::fd::AsFd;
use rustix::io::Errno;

use crate::drive::mapped::MappedMemory;
use crate::drive::operation::{Failure, Operation, Progress, Work};

/// Parts that one call writes.
const SLICES_PER_WRITE: usize = 128;

/// Performs all of `operation` on a file in memory, through its mapping if there is one.
pub(crate) fn perform_in_memory(mut operation: Operation, mapped: Option<&MappedMemory>) {
    let result = loop {
        let copied = mapped.and_then(|mapped| copy(&mut operation, mapped));
        let moved = copied.unwrap_or_else(|| move_once(&mut operation));
        match operation.advance(moved) {
            Progress::More => {}
            Progress::Done(result) => break result,
        }
    };
    operation.finish(result);
}

/// Copies all of it, or nothing if that needs a call.
fn copy(operation: &mut Operation, mapped: &MappedMemory) -> Option<Result<usize, Errno>> {
    let position = operation.position();
    let done = operation.done();
    match &mut operation.work {
        Work::Flush => None,
        Work::Read(buffer) => {
            let rest = &mut buffer[done..];
            mapped.read(position, rest).then_some(Ok(rest.len()))
        }
        Work::Write(_) => Some(mapped.write(operation.file.file(), position, operation.parts_left())),
    }
}

fn move_once(operation: &mut Operation) -> Result<usize, Errno> {
    let position = operation.position();
    let done = operation.done();
    match &mut operation.work {
        // There is nothing behind the memory that could be made to keep it.
        Work::Flush => Ok(0),
        Work::Read(buffer) => rustix::io::pread(operation.file.as_fd(), &mut buffer[done..], position),
        Work::Write(_) => {
            let mut slices = [IoSlice::new(&[]); SLICES_PER_WRITE];
            let mut count = 0;
            for (slice, part) in slices.iter_mut().zip(operation.parts_left()) {
                *slice = IoSlice::new(part);
                count += 1;
            }
            rustix::io::pwritev(operation.file.as_fd(), &slices[..count], position)
        }
    }
}

/// Fills `bytes` from `offset` on.
pub(crate) fn read_all(file: impl AsFd, bytes: &mut [u8], offset: u64) -> Result<(), Failure> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pread(file.as_fd(), &mut bytes[done..], offset + done as u64) {
            Ok(0) => return Err(Failure::EndOfFile),
            Ok(count) => done += count,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(Failure::System(error)),
        }
    }
    Ok(())
}

/// Writes all `bytes` from `offset` on.
pub(crate) fn write_all(file: impl AsFd, bytes: &[u8], offset: u64) -> Result<(), Failure> {
    let mut done = 0;
    while done < bytes.len() {
        match rustix::io::pwrite(file.as_fd(), &bytes[done..], offset + done as u64) {
            Ok(0) => return Err(Failure::NothingWritten),
            Ok(count) => done += count,
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(Failure::System(error)),
        }
    }
    Ok(())
}
