//! Wiping a drive: a block device, or a file that serves as one.
//!
//! What makes something a file system, a partition table, a member of a RAID or of LVM, or a drive of ours, stands at
//! its start and at its end, and of a few at fixed places between. These regions are overwritten with zeros, and read
//! again. Before that the whole drive is emptied where it can do that by itself: what is not known here goes too then,
//! and the drive knows that all of it is free.
//!
//! Invariants:
//! - Nothing is written unless this process alone has the drive: a lock that every node takes, one that those who run
//!   virtual machines take, for a block device the kernel's word that nobody else has claimed it or one of its
//!   partitions, and no other process that has it open for writing, as far as this user may look at processes.
//! - What is asked about and what is written is the one thing that was opened, whatever its path comes to name.
//! - Success means that every region was written, is durable, and reads as zeros: from the drive, not from the page
//!   cache, where the kernel lets go of what it keeps there.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Advice, FallocateFlags, FlockOperation, OFlags};
use rustix::io::Errno;
use spandrel_inspect::{DriveIdentity, store_end_bytes_max};
use spandrel_shared::Error;

use crate::device::{System, Thing};

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

/// What regions are rounded to for the page cache, which keeps a page of which only a part is named. None is larger.
const CACHE_BYTES: u64 = 2 << 20;

/// How often it is looked whether somebody else still uses the drive, and with what pause. What is let go may last for as
/// long as a child process that is just being started has a copy of the descriptor; and systemd-udevd locks a block
/// device while it looks at it, for moments after it was plugged in or closed.
const USE_PAUSE: Duration = Duration::from_millis(5);
const USE_TRIES: u32 = 10;
const DEVICE_LOCK_TRIES: u32 = 500;

/// What became of a whole drive, besides that its start and end were overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emptied {
    /// Its file has no room any more; all of it reads as zeros.
    Discarded,
    /// All of it reads as zeros.
    Zeroed,
    /// Nothing, or only parts of it are empty.
    No,
}

/// A drive that nobody else uses for as long as this lives.
#[derive(Debug)]
pub struct Wiping {
    file: File,
    path: PathBuf,
    size_bytes: u64,
    is_device: bool,
    can_discard: bool,
}

impl Wiping {
    /// Takes the drive at `path` for this process alone. Nothing is changed yet.
    ///
    /// Errors: `DRIVE_NOT_OPENED`, `DRIVE_IN_USE`.
    pub fn begin(path: &Path, system: &System) -> Result<Self, Error> {
        let not_opened = |why: String| not_opened(path, why);
        let named = || std::fs::metadata(path).map_err(|error| not_opened(error.to_string()));
        // Opening something else, like a tape, might change it.
        let metadata = named()?;
        let is_device = metadata.file_type().is_block_device();
        if !is_device && !metadata.is_file() {
            return Err(not_opened("it is neither a block device nor a file".to_owned()));
        }
        let mut file = open(path, is_device, system)?;
        let opened = file.metadata().map_err(|error| not_opened(error.to_string()))?;
        if [Thing::of(&metadata), Thing::of(&named()?)] != [Thing::of(&opened); 2] {
            return Err(not_opened("its path has come to name something else meanwhile".to_owned()));
        }
        let size_bytes = file.seek(SeekFrom::End(0)).map_err(|error| not_opened(error.to_string()))?;
        let mut wiping = Self { file, path: path.to_owned(), size_bytes, is_device, can_discard: true };
        wiping.lock()?;
        wiping.check_unused(system)?;
        wiping.can_discard = !is_device || system.can_discard(&wiping.opened());
        Ok(wiping)
    }

    /// A path that leads to what was opened, whatever the path by which that was done names by now.
    pub fn opened(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }

    /// Takes the lock that every node takes. For a block device it is tried for some seconds, always with the same
    /// file: one that was open for writing and is closed has systemd-udevd look at the device, which locks it anew.
    fn lock(&self) -> Result<(), Error> {
        let tries = if self.is_device { DEVICE_LOCK_TRIES } else { 1 };
        let lock = || match rustix::fs::flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::WOULDBLOCK) => None,
            locked => Some(locked),
        };
        match tried(tries, lock) {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => Err(not_opened(&self.path, format!("it cannot be locked: {error}"))),
            None => Err(in_use(&self.path, "a node that runs, or another program, has it open")),
        }
    }

    /// Refuses to go on if somebody uses the drive who does not take the lock that nodes take. That somebody begins to
    /// is possible at any time: to be asked again before anything is changed, once nothing else of this process has the
    /// drive open, since closing that lets go of a lock that is taken here.
    ///
    /// Errors: `DRIVE_IN_USE`, `DRIVE_NOT_OPENED`.
    pub fn check_unused(&self, system: &System) -> Result<(), Error> {
        let opened = self.opened();
        if let Some(holder) = system.holder(&opened) {
            return Err(in_use(&self.path, &holder));
        }
        let has = |who: &str, number: u32| format!("the process {who} ({number}) has it open");
        let mut writer = None;
        let without_writer = || {
            writer = system.openers(&opened).into_iter().find(|opener| opener.writes);
            writer.is_none().then_some(())
        };
        if tried(USE_TRIES, without_writer).is_none()
            && let Some(writer) = writer
        {
            return Err(in_use(&self.path, &has(&writer.name, writer.number)));
        }
        // What runs a virtual machine locks bytes of its image, which the lock that nodes take does not see.
        match rustix::fs::fcntl_lock(&self.file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(()),
            Err(Errno::AGAIN | Errno::ACCESS) => {
                let opener = system.openers(&opened).into_iter().next();
                let unknown = "another program has locked a part of it".to_owned();
                let who = opener.map_or(unknown, |opener| has(&opener.name, opener.number));
                Err(in_use(&self.path, &who))
            }
            Err(error) => Err(not_opened(&self.path, format!("its bytes cannot be locked: {error}"))),
        }
    }

    /// How large the drive is.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The regions that are overwritten, as first byte and the byte behind the last: ascending, and apart.
    pub fn regions(&self, identity: Option<&DriveIdentity>) -> Vec<(u64, u64)> {
        regions(self.size_bytes, identity)
    }

    /// Empties the drive where it can do that, calling `progress` with the bytes that are done.
    pub fn discard(&self, mut progress: impl FnMut(u64)) -> Emptied {
        let mut done = 0;
        while self.can_discard && done < self.size_bytes {
            let length = DISCARD_BYTES.min(self.size_bytes - done);
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Best effort: what counts is overwritten after this.
            if rustix::fs::fallocate(&self.file, flags, done, length).is_err() {
                return Emptied::No;
            }
            done += length;
            progress(done);
        }
        match (self.can_discard, self.is_device) {
            (false, _) => Emptied::No,
            (true, false) => Emptied::Discarded,
            // The kernel has the device write zeros there; whether it frees the room is the device's affair.
            (true, true) => Emptied::Zeroed,
        }
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
        self.forget(regions)
            .map_err(|error| failed(format!("the page cache cannot be told to forget it: {error}")))?;
        let again = other_than_zeros(&self.file, regions);
        match again.map_err(|error| failed(format!("it cannot be read again: {error}")))? {
            Some(offset) => {
                let why = format!("zeros were written at byte {offset}, and something else is read there");
                Err(failed(why))
            }
            None => Ok(()),
        }
    }

    /// Has the page cache let go of what was written, so that it is read from the drive.
    fn forget(&self, regions: &[(u64, u64)]) -> Result<(), Errno> {
        regions.iter().try_for_each(|(start, end)| {
            let start = start - start % CACHE_BYTES;
            let length = NonZeroU64::new(end.next_multiple_of(CACHE_BYTES) - start);
            rustix::fs::fadvise(&self.file, start, length, Advice::DontNeed)
        })
    }
}

/// Whether there is nothing at `path` wherever something would be overwritten.
///
/// # Errors
/// Why that cannot be read.
pub fn is_blank(path: &Path) -> std::io::Result<bool> {
    let mut file = File::open(path)?;
    let size_bytes = file.seek(SeekFrom::End(0))?;
    Ok(other_than_zeros(&file, &regions(size_bytes, None))?.is_none())
}

/// About where something else than zeros is read.
fn other_than_zeros(file: &File, regions: &[(u64, u64)]) -> std::io::Result<Option<u64>> {
    let mut bytes = vec![0; PIECE_BYTES];
    for (offset, length) in pieces(regions) {
        let piece = &mut bytes[..length];
        file.read_exact_at(piece, offset)?;
        if piece.iter().any(|byte| *byte != 0) {
            return Ok(Some(offset));
        }
    }
    Ok(None)
}

/// Opens what stands at `path`. The kernel refuses a block device while somebody else has claimed it or a part of it.
fn open(path: &Path, is_device: bool, system: &System) -> Result<File, Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    if is_device {
        options.custom_flags(OFlags::EXCL.bits().cast_signed());
    }
    let open = || match options.open(path) {
        Err(error) if is_device && error.raw_os_error() == Some(Errno::BUSY.raw_os_error()) => None,
        opened => Some(opened),
    };
    let claimed = || {
        let holder = system.holder(path);
        in_use(path, holder.as_deref().unwrap_or("another program has claimed it"))
    };
    tried(USE_TRIES, open).ok_or_else(claimed)?.map_err(|error| not_opened(path, error.to_string()))
}

/// Does something until it gives anything, with pauses between.
fn tried<T>(tries: u32, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    (0..tries).find_map(|number| {
        if number > 0 {
            // tidy-allow(sleep): nobody tells when udev lets go of a device
            std::thread::sleep(USE_PAUSE);
        }
        attempt()
    })
}

fn not_opened(path: &Path, why: String) -> Error {
    let next = "name a block device or a file, as a user who may write to it";
    Error::new("DRIVE_NOT_OPENED", format!("{} is not cleaned", path.display()), why, next)
}

fn in_use(path: &Path, why: &str) -> Error {
    Error::new(
        "DRIVE_IN_USE",
        format!("{} is not cleaned", path.display()),
        why,
        "see that nothing needs it any more, and end its use first: unmount it, stop the node or the virtual machine, or \
         take it out of its array; `lsblk` shows who uses what",
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
