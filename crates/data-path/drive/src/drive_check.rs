//! Tells a drive that has failed from one with bad sectors: a bad sector costs what stands in it, a drive that
//! has failed may hold everything whole.
//!
//! Whatever follows from a failed read may be written down: that a copy cannot prove what it holds, that blocks are
//! lost, that a write is in doubt. So a place counts as unreadable only if the drive reads elsewhere, and then
//! still not there: it may have answered nothing for a moment.

use spandrel_platform::{BufferMut, DriveError, Platform};
use spandrel_shared::BLOCK_BYTES;

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
    check_drive_reads(platform, drive, layout).await?;
    Ok(read().await)
}

/// Asks a drive that has failed to read something for its superblocks, at its two ends. One of them is enough.
async fn check_drive_reads<P: Platform>(
    platform: &P,
    drive: &Media<P::Drive>,
    layout: &Layout,
) -> Result<(), DriveError> {
    let read = |block| drive.read(Layout::offset_of(block), platform.buffers().take(BLOCK_BYTES));
    if read(0).await.is_err() {
        read(layout.data_end_block()).await?;
    }
    Ok(())
}
