//! Files that serve as drives: how they come to be.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{FallocateFlags, MemfdFlags, SealFlags};
use rustix::io::Errno;
use spandrel_platform::{DriveError, DriveErrorKind, DriveOperation};

/// Drives have a whole number of these, so that every sector size divides their size.
const SIZE_UNIT_BYTES: u64 = 4096;

/// Creates the file `path` to serve as a drive of `size_bytes`, a multiple of 4096. The file takes
/// room only as it is written to. A file that exists already is refused, whatever it holds.
pub fn create_drive_file(path: &Path, size_bytes: u64) -> Result<(), DriveError> {
    check_size(&path.display().to_string(), size_bytes)?;
    let failed = |error: std::io::Error| file_error(path, &error);
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    let sized = file.set_len(size_bytes).and_then(|()| file.sync_all());
    if let Err(error) = sized.and_then(|()| sync_directory(path)) {
        // Half a drive is worse than none; it was made here and holds nothing.
        let _ = std::fs::remove_file(path);
        return Err(failed(error));
    }
    Ok(())
}

/// Has the file system set aside room for `length_bytes` from `offset` on of the drive file `path`,
/// so that writes there cannot meet a full file system. Does nothing where the file system cannot,
/// and on block devices, which need no room.
pub fn preallocate(path: &Path, offset: u64, length_bytes: u64) -> Result<(), DriveError> {
    let failed = |error: std::io::Error| file_error(path, &error);
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(failed)?;
    if length_bytes == 0 || !file.metadata().map_err(failed)?.is_file() {
        return Ok(());
    }
    loop {
        match rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, offset, length_bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(failed(error.into())),
        }
    }
}

/// A drive in this process's memory. It keeps its content while this value lives, however often it
/// is opened in between.
#[derive(Debug)]
pub struct MemoryDrive {
    memory: OwnedFd,
    size_bytes: u64,
}

impl MemoryDrive {
    /// A drive of `size_bytes` zeros, a multiple of 4096, that takes memory only as it is written
    /// to. `name` shows in `/proc/PID/maps` and the like.
    pub fn new(name: &str, size_bytes: u64) -> Result<Self, DriveError> {
        check_size(name, size_bytes)?;
        let create = |flags| rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC | flags);
        let memory = match create(MemfdFlags::NOEXEC_SEAL | MemfdFlags::ALLOW_SEALING) {
            // Kernels before 6.3 do not know the first wish.
            Err(Errno::INVAL) => create(MemfdFlags::ALLOW_SEALING),
            created => created,
        };
        let sized = memory.and_then(|memory| {
            rustix::fs::ftruncate(&memory, size_bytes)?;
            // Whoever maps it can count on all of it.
            rustix::fs::fcntl_add_seals(&memory, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
            Ok(memory)
        });
        let memory = sized.map_err(|error| file_error(Path::new(name), &error.into()))?;
        Ok(Self { memory, size_bytes })
    }

    /// The path by which this process opens the drive.
    pub fn location(&self) -> String {
        format!("/proc/self/fd/{}", self.memory.as_raw_fd())
    }

    /// The path by which another process of the same user opens the drive.
    pub fn location_for_others(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.memory.as_raw_fd())
    }

    /// The drive's size.
    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }
}

fn check_size(name: &str, size_bytes: u64) -> Result<(), DriveError> {
    if size_bytes != 0 && size_bytes.is_multiple_of(SIZE_UNIT_BYTES) {
        return Ok(());
    }
    Err(DriveError {
        kind: DriveErrorKind::OutOfRange,
        operation: DriveOperation::Open,
        offset: 0,
        detail: format!("{name}: a drive of {size_bytes} bytes is not a multiple of {SIZE_UNIT_BYTES}"),
    })
}

/// Makes the name of a new file as durable as the file.
fn sync_directory(path: &Path) -> std::io::Result<()> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(parent.unwrap_or(Path::new(".")))?.sync_all()
}

fn file_error(path: &Path, error: &std::io::Error) -> DriveError {
    let kind = match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOSPC | Errno::DQUOT | Errno::FBIG) => DriveErrorKind::NoRoom,
        _ => DriveErrorKind::Unavailable,
    };
    let detail = format!("{}: {error}", path.display());
    DriveError { kind, operation: DriveOperation::Open, offset: 0, detail }
}
