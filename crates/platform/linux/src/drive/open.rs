//! How a drive is opened: what it is, who else uses it, and how to reach it best.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{AtFlags, FlockOperation, OFlags, StatxFlags};
use rustix::io::Errno;
use spandrel_platform::{DriveError, DriveErrorKind, DriveGeometry, DriveOperation};

use super::locked_file::LockedFile;
use super::mapped::MappedMemory;
use super::medium::{MediumModel, SimulatedMedium};
use super::{OpenDrive, Route};
use crate::platform::Sleep;
use crate::shard::Shard;

/// The file system types that keep their files in memory.
const TMPFS: i64 = 0x0102_1994;
const RAMFS: i64 = 0x8584_58f6;
const HUGETLBFS: i64 = 0x9584_58f6;

/// The sector of a file in memory, and of one that the page cache serves: the smaller, so that no
/// journal is padded without need.
const CACHED_SECTOR_BYTES: u32 = 512;

/// What direct I/O is taken to demand where the kernel does not say: the larger, which suits all.
const UNKNOWN_SECTOR_BYTES: u32 = 4096;

/// How often a block device is claimed and locked, and with what pause. A claim that was given up
/// lasts for as long as a child process that is just being started has a copy of the descriptor.
/// And systemd-udevd locks a device while it looks at it: for moments after it was plugged in, or
/// closed by somebody who has written to it.
const CLAIM_TRIES: u32 = 10;
const LOCK_TRIES: u32 = 500;
const TRY_PAUSE: Duration = Duration::from_millis(5);

/// What direct I/O demands of a file.
#[derive(Clone, Copy)]
struct DirectLimits {
    sector_bytes: u32,
    memory_alignment: usize,
}

/// Opens the file or block device at `path` for this process alone. It takes the time of `medium`, if there is one.
pub(super) async fn open(
    shard: &Rc<Shard>,
    path: &str,
    medium: Option<SimulatedMedium>,
) -> Result<OpenDrive, DriveError> {
    let unavailable = |detail: String| open_error(DriveErrorKind::Unavailable, path, &detail);
    let system = |error: std::io::Error| unavailable(error.to_string());
    let metadata = std::fs::metadata(path).map_err(system)?;
    let is_block_device = metadata.file_type().is_block_device();
    if !is_block_device && !metadata.is_file() {
        return Err(unavailable("neither a file nor a block device".to_string()));
    }
    let file = if is_block_device { claim_device(shard, path).await? } else { open_file(path)? };
    if is_block_device {
        await_lock(shard, &file, path, LOCK_TRIES).await?;
    }
    let locked = lock(file, path)?;
    let mut file = locked.file();
    let size_bytes = file.seek(SeekFrom::End(0)).map_err(system)?;
    // A block device's file lies in memory, the device does not.
    let in_memory = !is_block_device && is_in_memory(file).map_err(|error| system(error.into()))?;
    let direct = if in_memory { None } else { set_direct(file, is_block_device) };
    let sector_bytes = direct.map_or(CACHED_SECTOR_BYTES, |limits| limits.sector_bytes);
    if sector_bytes != 512 && sector_bytes != 4096 {
        return Err(unavailable(format!("its sectors have {sector_bytes} bytes; 512 or 4096 are needed")));
    }
    let size_bytes = size_bytes - size_bytes % u64::from(sector_bytes);
    if size_bytes == 0 {
        return Err(unavailable("it is empty".to_string()));
    }
    let medium = medium.map(|medium| MediumModel::new(medium, size_bytes));
    let loses_nothing = in_memory || is_block_device && writes_through(metadata.rdev());
    let file = Arc::new(locked);
    let route = if in_memory {
        Route::Memory(MappedMemory::map(file.file(), size_bytes).map(Rc::new))
    } else {
        shard.drives.route(shard, &file).map_err(system)?
    };
    let volatile_cache = !loses_nothing || medium.as_ref().is_some_and(MediumModel::has_volatile_cache);
    Ok(OpenDrive {
        shard: Rc::clone(shard),
        file: Rc::new(file),
        geometry: DriveGeometry { size_bytes, sector_bytes, volatile_cache },
        memory_alignment: direct.map(|limits| limits.memory_alignment),
        route,
        medium: medium.map(RefCell::new),
    })
}

/// An error of opening the drive at `path`.
pub(super) fn open_error(kind: DriveErrorKind, path: &str, detail: &str) -> DriveError {
    DriveError { kind, operation: DriveOperation::Open, offset: 0, detail: format!("{path}: {detail}") }
}

/// Opens a block device as its only user, which the kernel refuses while the device is mounted or
/// part of something else.
async fn claim_device(shard: &Rc<Shard>, path: &str) -> Result<File, DriveError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_EXCL);
    let claim = || match options.open(path) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => None,
        opened => Some(opened),
    };
    let opened = tried(shard, CLAIM_TRIES, claim).await.ok_or_else(|| in_use(path))?;
    opened.map_err(|error| open_error(DriveErrorKind::Unavailable, path, &error.to_string()))
}

/// Locks a block device as soon as nobody else has locked it. Always with the same opening: to close
/// one that may write is what has systemd-udevd look at the device, and lock it anew.
async fn await_lock(shard: &Rc<Shard>, file: &File, path: &str, tries: u32) -> Result<(), DriveError> {
    let lock = || match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => None,
        locked => Some(locked),
    };
    let locked = tried(shard, tries, lock).await.ok_or_else(|| in_use(path))?;
    locked.map_err(|error| not_locked(path, error))
}

/// Does something until it gives anything, with pauses between.
async fn tried<T>(shard: &Rc<Shard>, tries: u32, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    for number in 0..tries {
        if number > 0 {
            Sleep::until(shard, shard.now() + TRY_PAUSE).await;
        }
        if let Some(done) = attempt() {
            return Some(done);
        }
    }
    None
}

fn open_file(path: &str) -> Result<File, DriveError> {
    let file = OpenOptions::new().read(true).write(true).open(path);
    file.map_err(|error| open_error(DriveErrorKind::Unavailable, path, &error.to_string()))
}

/// Locks a file. One that this very opening has locked already stays locked.
fn lock(file: File, path: &str) -> Result<LockedFile, DriveError> {
    LockedFile::lock(file).map_err(|error| match error {
        Errno::WOULDBLOCK => in_use(path),
        error => not_locked(path, error),
    })
}

fn in_use(path: &str) -> DriveError {
    open_error(DriveErrorKind::InUse, path, "it is in use by another program, or open already")
}

fn not_locked(path: &str, error: Errno) -> DriveError {
    open_error(DriveErrorKind::Unavailable, path, &format!("it cannot be locked: {error}"))
}

fn is_in_memory(file: &File) -> rustix::io::Result<bool> {
    let kind = rustix::fs::fstatfs(file)?.f_type;
    Ok([TMPFS, RAMFS, HUGETLBFS].contains(&(kind as i64)))
}

/// Makes operations on `file` pass the page cache by, if its file system can, and tells what that
/// demands.
fn set_direct(file: &File, is_block_device: bool) -> Option<DirectLimits> {
    let limits = direct_limits(file, is_block_device)?;
    let flags = rustix::fs::fcntl_getfl(file).ok()?;
    rustix::fs::fcntl_setfl(file, flags | OFlags::DIRECT).ok()?;
    Some(limits)
}

fn direct_limits(file: &File, is_block_device: bool) -> Option<DirectLimits> {
    let known = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        .ok()
        .filter(|status| StatxFlags::from_bits_retain(status.stx_mask).contains(StatxFlags::DIOALIGN));
    let of_device = if is_block_device { rustix::fs::ioctl_blksszget(file).ok() } else { None };
    match (known, of_device) {
        // The kernel says that it cannot be done for this file.
        (Some(status), None) if status.stx_dio_offset_align == 0 => None,
        (Some(status), _) if status.stx_dio_offset_align != 0 => {
            let sector_bytes = of_device.unwrap_or(status.stx_dio_offset_align.max(512));
            let memory_alignment = (status.stx_dio_mem_align as usize).max(1);
            // Memory is aligned to blocks and no more; and a block is the most that a drive asks for.
            (sector_bytes <= 4096 && memory_alignment <= 4096)
                .then_some(DirectLimits { sector_bytes, memory_alignment })
        }
        (_, of_device) => {
            let sector_bytes = of_device.unwrap_or(UNKNOWN_SECTOR_BYTES);
            Some(DirectLimits { sector_bytes, memory_alignment: sector_bytes as usize })
        }
    }
}

/// Whether the block device with this number says that it keeps nothing in a volatile cache.
fn writes_through(device: u64) -> bool {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let folder = format!("/sys/dev/block/{major}:{minor}");
    // A partition has no queue of its own: it is its disk's, one folder up.
    ["queue/write_cache", "../queue/write_cache"].iter().any(|name| {
        // The folder is a link, and the way up leads from where it points to.
        let path = std::fs::canonicalize(&folder).map(|folder| folder.join(Path::new(name)));
        let content = path.and_then(std::fs::read_to_string);
        content.is_ok_and(|content| content.trim() == "write through")
    })
}

#[cfg(test)]
#[path = "open_tests.rs"]
mod tests;
