//! A drive that writes nothing more once a flush of it has failed.
//!
//! A flush that fails may have lost whatever was written before, by whomever: the drive drops what it could not keep, and a
//! system tells of it once. So a later flush that ends well says nothing of those writes. Whoever shares the drive has to
//! hear of the first failure: the stores that are bound to a cache drive, and within a store its groups, its checkpoints and
//! its writes ahead.
//!
//! Invariants:
//! - A flush that returns `Ok` was asked for, and has ended, before any flush of the drive was known to have failed.
//! - The failure stays: the drive has to be opened and attached anew.

use std::cell::RefCell;
use std::rc::Rc;

use spandrel_platform::{
    Buffer, BufferMut, Drive, DriveError, DriveErrorKind, DriveGeometry, DriveOperation,
};

/// See the module. Cheap to clone; what one clone is told of a flush holds for all.
#[derive(Clone, Debug)]
pub(crate) struct LatchedDrive<D> {
    drive: D,
    failure: Rc<RefCell<Option<DriveError>>>,
}

impl<D> LatchedDrive<D> {
    pub(crate) fn new(drive: D) -> Self {
        Self { drive, failure: Rc::default() }
    }

    fn check(&self, operation: DriveOperation, offset: u64) -> Result<(), DriveError> {
        match &*self.failure.borrow() {
            None => Ok(()),
            Some(failure) => {
                let detail = format!("what was written before may be lost: {failure}");
                Err(DriveError { kind: DriveErrorKind::Medium, operation, offset, detail })
            }
        }
    }
}

impl<D: Drive> Drive for LatchedDrive<D> {
    fn geometry(&self) -> DriveGeometry {
        self.drive.geometry()
    }

    async fn read(&self, offset: u64, into: BufferMut) -> Result<BufferMut, DriveError> {
        self.drive.read(offset, into).await
    }

    async fn write(&self, offset: u64, parts: Vec<Buffer>) -> Result<(), DriveError> {
        self.check(DriveOperation::Write, offset)?;
        self.drive.write(offset, parts).await
    }

    fn read_at_once(&self, offset: u64, into: &mut [u8]) -> bool {
        self.drive.read_at_once(offset, into)
    }

    fn write_at_once(&self, offset: u64, part: &Buffer) -> bool {
        self.failure.borrow().is_none() && self.drive.write_at_once(offset, part)
    }

    async fn flush(&self) -> Result<(), DriveError> {
        self.check(DriveOperation::Flush, 0)?;
        if let Err(error) = self.drive.flush().await {
            self.failure.borrow_mut().get_or_insert_with(|| error.clone());
            return Err(error);
        }
        // Another one, asked for by somebody else, may have failed meanwhile, and taken the error for both.
        self.check(DriveOperation::Flush, 0)
    }
}

#[cfg(test)]
#[path = "latched_drive_tests.rs"]
mod tests;
