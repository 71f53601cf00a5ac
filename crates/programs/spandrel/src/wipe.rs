//! Wiping a drive: a block device, or a file that serves as one.
//!
//! What makes something a file system, a partition table, a member of a RAID or of LVM, or a drive of ours, stands at
//! its start and at its end, and of a few at fixed places between. These regions are overwritten with zeros, and read
//! again. Before that the whole drive is discarded where it can do that: what is not known here goes too then, and the
//! drive knows that all of it is free.
//!
//! Invariants:
//! - Nothing is written unless this process alone has the drive: a lock that every node takes, and for a block device
//!   the kernel's word that nobody else has claimed it or one of its partitions.
//! - Success means that every region was written, is durable, and reads as zeros.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;
use spandrel_inspect::{DriveIdentity, store_end_bytes_max};
use spandrel_shared::Error;

use crate::device::System;

/// What is overwritten at the start and at the end, whatever stands there: partition tables and their copies, the
/// labels of LVM, RAID, ZFS and Ceph, and the first structures of file systems.
const MARGIN_BYTES: u64 = 16 << 20;

/// What is overwritten around a place between these.
const SPOT_BYTES: u64 = 64 << 10;

/// Where Btrfs keeps copies of its superblock.
const BTRFS_COPIES: [u64; 2] = [64 << 20, 256 << 30];

/// What is written, read or discarded at a time.
const PIECE_BYTES: usize = 1 << 20;
const DISCARD_BYTES: u64 = 1 << 30;

/// A drive that nobody else uses for as long as this lives.
pub struct Wiping {
    file: File,
    path: PathBuf,
    size_bytes: u64,
    can_discard: bool,
}

impl Wiping {
    /// Takes the drive at `path` for this process alone. Nothing is changed yet.
    ///
    /// Errors: `DRIVE_NOT_OPENED`, `DRIVE_IN_USE`.
    pub fn begin(path: &Path, system: &System) -> Result<Self, Error> {
        let not_opened = |why: String| {
            let next = "name a block device or a file, as a user who may write to it";
            Error::new("DRIVE_NOT_OPENED", format!("{} is not cleaned", path.display()), why, next)
        };
        let metadata = std::fs::metadata(path).map_err(|error| not_opened(error.to_string()))?;
        let is_device = metadata.file_type().is_block_device();
        if !is_device && !metadata.is_file() {
            return Err(not_opened("it is neither a block device nor a file".to_owned()));
        }
        if let Some(holder) = system.holder(path) {
            return Err(in_use(path, &holder));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true);
        if is_device {
            // The kernel refuses it while somebody else has claimed the device or a part of it.
            options.custom_flags(OFlags::EXCL.bits().cast_signed());
        }
        let mut file = options.open(path).map_err(|error| match error.raw_os_error() {
            Some(code) if code == Errno::BUSY.raw_os_error() => {
                in_use(path, "another program has claimed it")
            }
            _ => not_opened(error.to_string()),
        })?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(in_use(path, "a node that runs, or another program, has it open"));
            }
            Err(error) => return Err(not_opened(format!("it cannot be locked: {error}"))),
        }
        let size_bytes = file.seek(SeekFrom::End(0)).map_err(|error| not_opened(error.to_string()))?;
        let can_discard = !is_device || system.can_discard(path);
        Ok(Self { file, path: path.to_owned(), size_bytes, can_discard })
    }

    /// How large the drive is.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The regions that are overwritten, as first byte and the byte behind the last: ascending, and apart.
    pub fn regions(&self, identity: Option<&DriveIdentity>) -> Vec<(u64, u64)> {
        regions(self.size_bytes, identity)
    }

    /// Discards the drive where it can do that, calling `progress` with the bytes that are done. Whether it was
    /// discarded.
    pub fn discard(&self, mut progress: impl FnMut(u64)) -> bool {
        let mut done = 0;
        while self.can_discard && done < self.size_bytes {
            let length = DISCARD_BYTES.min(self.size_bytes - done);
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Best effort: what counts is overwritten after this.
            if rustix::fs::fallocate(&self.file, flags, done, length).is_err() {
                return false;
            }
            done += length;
            progress(done);
        }
        self.can_discard
    }

    /// Overwrites the regions, and has that durable.
    ///
    /// Errors: `DRIVE_NOT_CLEANED`.
    pub fn overwrite(&self, regions: &[(u64, u64)]) -> Result<(), Error> {
        let failed = |why: String| {
            let next =
                "look at the kernel's log (`dmesg`) for what the drive says, and replace it if it is broken";
            Error::new(
                "DRIVE_NOT_CLEANED",
                format!("{} is not wholly cleaned", self.path.display()),
                why,
                next,
            )
        };
        let zeros = vec![0; PIECE_BYTES];
        for (offset, length) in pieces(regions) {
            let written = self.file.write_all_at(&zeros[..length], offset);
            written.map_err(|error| failed(format!("byte {offset} cannot be written: {error}")))?;
        }
        self.file.sync_all().map_err(|error| failed(format!("it cannot be made durable: {error}")))?;
        let mut read = vec![0; PIECE_BYTES];
        for (offset, length) in pieces(regions) {
            let piece = &mut read[..length];
            let again = self.file.read_exact_at(piece, offset);
            again.map_err(|error| failed(format!("byte {offset} cannot be read again: {error}")))?;
            if piece.iter().any(|byte| *byte != 0) {
                return Err(failed(format!(
                    "zeros were written at byte {offset}, and something else is read there"
                )));
            }
        }
        Ok(())
    }
}

fn in_use(path: &Path, why: &str) -> Error {
    Error::new(
        "DRIVE_IN_USE",
        format!("{} is not cleaned", path.display()),
        why,
        "see that nothing needs it any more, and end its use first: unmount it, stop the node, or take it out of its \
         array; `lsblk` shows who uses what",
    )
}

fn regions(size_bytes: u64, identity: Option<&DriveIdentity>) -> Vec<(u64, u64)> {
    let around = |place: u64| (place.saturating_sub(SPOT_BYTES), place.saturating_add(SPOT_BYTES));
    let mut regions = vec![(0, MARGIN_BYTES), (size_bytes.saturating_sub(MARGIN_BYTES), size_bytes)];
    regions.extend(BTRFS_COPIES.map(around));
    // The second superblock of a drive that is larger than a store can be.
    regions.push(around(store_end_bytes_max()));
    if let Some(identity) = identity {
        regions.push((0, identity.roots_end_bytes));
        regions.push(around(identity.second_superblock_bytes));
    }
    regions.retain(|(start, _)| *start < size_bytes);
    regions.sort_unstable();
    let mut apart: Vec<(u64, u64)> = Vec::new();
    for (start, end) in regions {
        let end = end.min(size_bytes);
        match apart.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => apart.push((start, end)),
        }
    }
    apart
}

fn pieces(regions: &[(u64, u64)]) -> impl Iterator<Item = (u64, usize)> {
    regions.iter().flat_map(|(start, end)| {
        (*start..*end).step_by(PIECE_BYTES).map(move |offset| {
            let length = (end - offset).min(PIECE_BYTES as u64);
            (offset, usize::try_from(length).expect("a piece is small"))
        })
    })
}

#[cfg(test)]
#[path = "wipe_tests.rs"]
mod tests;
