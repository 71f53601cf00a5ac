//! The two copies of a drive's superblock, at its beginning and its end: either is enough.

use spandrel_platform::{Drive, DriveError, Platform};
use spandrel_shared::BLOCK_BYTES;

use crate::error::AttachError;
use crate::foreign;
use crate::format::FormatError;
use crate::format::superblock::Superblock;
use crate::layout::Layout;

pub(crate) async fn write_superblock<P: Platform>(
    platform: &P,
    drive: &P::Drive,
    superblock: &Superblock,
    block: u32,
) -> Result<(), DriveError> {
    let mut buffer = platform.buffers().take(BLOCK_BYTES);
    superblock.encode(&mut buffer);
    drive.write(Layout::offset_of(block), vec![buffer.freeze()]).await
}

pub(crate) struct FoundSuperblock {
    pub(crate) superblock: Superblock,
    /// Where copies are to be written anew.
    pub(crate) damaged_blocks: Vec<u32>,
}

/// The superblock from its first copy, or from the second at the drive's end.
pub(crate) async fn find_superblock<P: Platform>(
    platform: &P,
    drive: &P::Drive,
) -> Result<FoundSuperblock, AttachError> {
    let geometry = drive.geometry();
    let last_block = (geometry.size_bytes / BLOCK_BYTES as u64).saturating_sub(1);
    let first = read_superblock(platform, drive, 0).await;
    // A drive that has grown holds the second copy where its end was.
    let second_block = first.as_ref().map_or(last_block, |first| u64::from(first.layout.data_end_block()));
    let second = read_superblock(platform, drive, second_block).await;
    // Where the drive reads the other one, it may have answered nothing for a moment.
    let (first, second) = match (first, second) {
        (Err(SuperblockFault::Drive(_)), second @ Ok(_)) => {
            (read_superblock(platform, drive, 0).await, second)
        }
        (first @ Ok(_), Err(SuperblockFault::Drive(_))) => {
            (first, read_superblock(platform, drive, second_block).await)
        }
        both => both,
    };
    let (superblock, damaged_blocks) = match (first, second) {
        (Ok(first), Ok(second)) if first == second => (first, Vec::new()),
        (Ok(first), _) => {
            let block = first.layout.data_end_block();
            (first, vec![block])
        }
        (Err(_), Ok(second)) => (second, vec![0]),
        (Err(first), Err(second)) => return Err(no_superblock(platform, drive, first, second).await?),
    };
    if !superblock.layout.fits(geometry) {
        let needed = u64::from(superblock.layout.size_blocks) * BLOCK_BYTES as u64;
        return Err(AttachError::Size(format!(
            "the drive has {} bytes in sectors of {}; it was formatted with {needed} in sectors of {}",
            geometry.size_bytes, geometry.sector_bytes, superblock.layout.sector_bytes
        )));
    }
    Ok(FoundSuperblock { superblock, damaged_blocks })
}

/// Why a copy of the superblock could not be had.
enum SuperblockFault {
    Format(FormatError),
    Drive(DriveError),
}

async fn read_superblock<P: Platform>(
    platform: &P,
    drive: &P::Drive,
    block: u64,
) -> Result<Superblock, SuperblockFault> {
    let offset = block * BLOCK_BYTES as u64;
    if offset + BLOCK_BYTES as u64 > drive.geometry().size_bytes {
        return Err(SuperblockFault::Format(FormatError::Inconsistent));
    }
    let buffer = drive.read(offset, platform.buffers().take(BLOCK_BYTES)).await;
    let superblock = Superblock::decode(&buffer.map_err(SuperblockFault::Drive)?);
    superblock.map_err(SuperblockFault::Format)
}

async fn no_superblock<P: Platform>(
    platform: &P,
    drive: &P::Drive,
    first: SuperblockFault,
    second: SuperblockFault,
) -> Result<AttachError, DriveError> {
    use SuperblockFault::{Drive, Format};
    for fault in [&first, &second] {
        if let Format(FormatError::Newer { version, unknown_features }) = fault {
            return Ok(AttachError::Newer(format!(
                "the drive's format is version {version} with unknown features {unknown_features:#x}; \
                 this program knows version {}",
                crate::format::superblock::FORMAT_VERSION
            )));
        }
    }
    match (first, second) {
        (Format(FormatError::Magic), Format(FormatError::Magic | FormatError::Inconsistent)) => {
            let what = foreign::recognize_content(platform, drive).await?;
            Ok(what.map_or(AttachError::Empty, AttachError::Foreign))
        }
        (Drive(error), _) | (_, Drive(error)) => Err(error),
        _ => Ok(AttachError::Damaged("both copies of the superblock are damaged".to_owned())),
    }
}
