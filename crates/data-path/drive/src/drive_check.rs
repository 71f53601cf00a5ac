//! Tells a drive that has failed from one with bad sectors: a bad sector costs what stands in it, a drive that
//! has failed may hold everything whole.

use spandrel_platform::{Drive, DriveError, Platform};
use spandrel_shared::BLOCK_BYTES;

use crate::layout::Layout;

/// Asks a drive that has failed to read something for its superblocks, at its two ends. One of them is enough.
///
/// # Errors
///
/// Why the drive does not read them either: it has failed.
pub(crate) async fn check_drive_reads<P: Platform>(
    platform: &P,
    drive: &P::Drive,
    layout: &Layout,
) -> Result<(), DriveError> {
    let read = |block| drive.read(Layout::offset_of(block), platform.buffers().take(BLOCK_BYTES));
    if read(0).await.is_err() {
        read(layout.data_end_block()).await?;
    }
    Ok(())
}
