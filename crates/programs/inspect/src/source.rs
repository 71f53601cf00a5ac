//! The bytes that are inspected: a drive, or a file that was one.
//!
//! Invariants:
//! - Nothing is ever written.
//! - A drive that a node has open is not opened, unless that is asked for: what changes while it
//!   is read can look like damage.

use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use spandrel_shared::{BLOCK_BYTES, Error};

use crate::cache_drive::Area;

/// Where the bytes of a drive come from.
pub trait Source {
    /// Bytes that there are.
    fn size_bytes(&self) -> u64;

    /// Fills `into` from byte `offset` on, or says why that cannot be done.
    fn read(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()>;
}

/// A drive or a file, opened for reading.
pub struct DriveFile {
    file: File,
    size_bytes: u64,
}

impl DriveFile {
    /// Opens the drive at `path`. As long as it is open no node can open it, unless
    /// `allow_in_use` is set: then nobody is asked, and nobody is kept out.
    ///
    /// # Errors
    ///
    /// `DRIVE_UNREADABLE`; `DRIVE_IN_USE` if a node has it open.
    pub fn open(path: &Path, allow_in_use: bool) -> Result<Self, Error> {
        let unreadable = |error: std::io::Error| unreadable(path, &error);
        let metadata = std::fs::metadata(path).map_err(unreadable)?;
        if !metadata.is_file() && !metadata.file_type().is_block_device() {
            return Err(Error::new(
                "DRIVE_UNREADABLE",
                format!("{} cannot be inspected", path.display()),
                "it is neither a file nor a block device",
                "name the drive's device, the file that serves as a drive, or an image of one",
            ));
        }
        let mut file = File::open(path).map_err(unreadable)?;
        if !allow_in_use {
            lock(&file, path)?;
        }
        let size_bytes = file.seek(SeekFrom::End(0)).map_err(unreadable)?;
        Ok(Self { file, size_bytes })
    }
}

/// Takes the lock that every user of a drive takes, shared: several may read at once. It ends with
/// the file.
fn lock(file: &File, path: &Path) -> Result<(), Error> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(()),
        Err(Errno::WOULDBLOCK) => Err(Error::new(
            "DRIVE_IN_USE",
            format!("{} is in use", path.display()),
            "a node has it open, and what changes while it is read can look like damage",
            "stop the node first, or allow it with --in-use and do not trust single findings",
        )),
        Err(error) => Err(unreadable(path, &error.into())),
    }
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    let next = match error.kind() {
        ErrorKind::NotFound => "check the path; `lsblk` lists the block devices",
        ErrorKind::PermissionDenied => "run it as a user who may read the drive",
        _ => "look at the kernel's log (`dmesg`) for what the device says",
    };
    Error::new("DRIVE_UNREADABLE", format!("{} cannot be read", path.display()), error.to_string(), next)
}

impl Source for DriveFile {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.file.read_exact_at(into, offset)
    }
}

/// Reads stretches of a drive and of the area on a cache drive that it is bound to, and says of those that cannot be had why.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    source: &'a dyn Source,
    area: Option<PlacedArea<'a>>,
}

/// An area, with the byte of the drive's store behind which it is numbered.
#[derive(Clone, Copy)]
pub(crate) struct PlacedArea<'a> {
    pub(crate) offset_bytes: u64,
    pub(crate) area: &'a Area<'a>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(source: &'a dyn Source, area: Option<PlacedArea<'a>>) -> Self {
        Self { source, area }
    }

    /// What the drive itself holds.
    pub(crate) fn size_bytes(&self) -> u64 {
        self.source.size_bytes()
    }

    /// The area, if there is one.
    pub(crate) fn area(&self) -> Option<PlacedArea<'a>> {
        self.area
    }

    /// `length` bytes from `offset` on.
    pub(crate) fn bytes(&self, offset: u64, length: usize) -> Result<Vec<u8>, String> {
        let placed = self.area.filter(|placed| offset >= placed.offset_bytes);
        let (from, there) = match placed {
            Some(placed) => (offset - placed.offset_bytes, placed.area.size_bytes()),
            None => (offset, self.source.size_bytes()),
        };
        if from.checked_add(length as u64).is_none_or(|end| end > there) {
            return Err("it lies behind the drive's end".to_owned());
        }
        let mut bytes = vec![0; length];
        let read = match placed {
            Some(placed) => placed.area.read(from, &mut bytes),
            None => self.source.read(from, &mut bytes),
        };
        match read {
            Ok(()) => Ok(bytes),
            Err(error) => Err(format!("it cannot be read: {error}")),
        }
    }

    /// A whole block.
    pub(crate) fn block(&self, block: u32) -> Result<Vec<u8>, String> {
        self.bytes(offset_of(block), BLOCK_BYTES)
    }
}

/// The byte at which `block` begins.
pub(crate) fn offset_of(block: u32) -> u64 {
    u64::from(block) * BLOCK_BYTES as u64
}

#[cfg(test)]
#[path = "source_tests.rs"]
mod tests;
