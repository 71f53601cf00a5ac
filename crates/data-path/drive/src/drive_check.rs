//! Tells a drive that has failed from one with bad sectors: a bad sector costs what stands in it, a drive that
//! has failed may hold everything whole.
//!
//! Whatever follows from a failed read may be written down: that a copy cannot prove what it holds, that blocks are
//! lost, that a write is in doubt. So a place counts as unreadable only if the drive reads elsewhere, and then
//! still not there: it may have answered nothing for a moment.

use spandrel_platform::{BufferMut, Drive, DriveError, Platform};
use spandrel_shared::BLOCK_BYTES;

use crate::latched_drive::LatchedDrive;
use crate::layout::Layout;
use crate::media::Media;

/// Reads `length` bytes from `offset` on. The inner error is that of a place that cannot be read, on a drive that
/// works.
///
/// # Errors
///
/// The drive reads nothing: it has failed.
pub(crate) async fn read_place<P: Platform>(
    platform: &P,
    drive: &Media<P::Drive>,
    layout: &Layout,
    offset: u64,
    length: usize,
) -> Result<Result<BufferMut, DriveError>, DriveError> {
    let read = || drive.read(offset, platform.buffers().take(length));
    if let Ok(bytes) = read().await {
        return Ok(Ok(bytes));
    }
    match drive.area().filter(|_| offset >= Layout::offset_of(layout.size_blocks)) {
        Some(area) => {
            let cache = area.drive();
            let last = (cache.geometry().size_bytes / BLOCK_BYTES as u64).saturating_sub(1);
            check_drive_reads(platform, cache, last * BLOCK_BYTES as u64).await?;
        }
        None => {
            let last = Layout::offset_of(layout.data_end_block());
            check_drive_reads(platform, drive.capacity(), last).await?;
        }
    }
    Ok(read().await)
}

/// Asks a drive that has failed to read something for its superblocks, at its two ends. One of them is enough.
async fn check_drive_reads<P: Platform>(
    platform: &P,
    drive: &LatchedDrive<P::Drive>,
    last_offset: u64,
) -> Result<(), DriveError> {
    let read = |offset| drive.read(offset, platform.buffers().take(BLOCK_BYTES));
    if read(0).await.is_err() {
        read(last_offset).await?;
    }
    Ok(())
}
