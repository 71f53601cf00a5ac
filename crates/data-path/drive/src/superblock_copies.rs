//! The two copies of a drive's superblock, at its beginning and its end: either is enough.

use spandrel_platform::{Drive, DriveError, Platform};
use spandrel_shared::BLOCK_BYTES;

use crate::error::AttachError;
use crate::foreign;
use crate::format::FormatError;
use crate::format::superblock::{FORMAT_VERSION, Superblock, format_version};
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
    /// Where copies are damaged.
    pub(crate) damaged_blocks: Vec<u32>,
    /// Where copies are whole and say that the drive has an earlier format.
    pub(crate) outdated_blocks: Vec<u32>,
}

/// Writes the copies anew that are damaged or outdated. Each is durable before the next one is touched, so that one is whole
/// at any time; and all before anything is written that an earlier program would not understand.
pub(crate) async fn renew_superblocks<P: Platform>(
    platform: &P,
    drive: &P::Drive,
    found: &FoundSuperblock,
) -> Result<(), DriveError> {
    for block in found.damaged_blocks.iter().chain(&found.outdated_blocks) {
        write_superblock(platform, drive, &found.superblock, *block).await?;
        drive.flush().await?;
    }
    Ok(())
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
    let second_block =
        first.as_ref().map_or(last_block, |(first, _)| u64::from(first.layout.data_end_block()));
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
    // A damaged copy gets the present version anyway.
    let (superblock, damaged_blocks, versions) = match (first, second) {
        (Ok((first, version)), Ok((second, other))) if first == second => {
            (first, Vec::new(), [version, other])
        }
        (Ok((first, version)), _) => {
            let block = first.layout.data_end_block();
            (first, vec![block], [version, FORMAT_VERSION])
        }
        (Err(_), Ok((second, version))) => (second, vec![0], [FORMAT_VERSION, version]),
        (Err(first), Err(second)) => return Err(no_superblock(platform, drive, first, second).await?),
    };
    let places = [0, superblock.layout.data_end_block()].into_iter().zip(versions);
    let is_outdated = |(block, version): (u32, u32)| (version < FORMAT_VERSION).then_some(block);
    let outdated_blocks = places.filter_map(is_outdated).collect();
    if !superblock.layout.fits(geometry) {
        let needed = u64::from(superblock.layout.size_blocks) * BLOCK_BYTES as u64;
        return Err(AttachError::Size(format!(
            "the drive has {} bytes in sectors of {}; it was formatted with {needed} in sectors of {}",
            geometry.size_bytes, geometry.sector_bytes, superblock.layout.sector_bytes
        )));
    }
    Ok(FoundSuperblock { superblock, damaged_blocks, outdated_blocks })
}

/// Why a copy of the superblock could not be had.
enum SuperblockFault {
    Format(FormatError),
    Drive(DriveError),
}

/// A copy of the superblock, and the version of the format that it says.
async fn read_superblock<P: Platform>(
    platform: &P,
    drive: &P::Drive,
    block: u64,
) -> Result<(Superblock, u32), SuperblockFault> {
    let offset = block * BLOCK_BYTES as u64;
    if offset + BLOCK_BYTES as u64 > drive.geometry().size_bytes {
        return Err(SuperblockFault::Format(FormatError::Inconsistent));
    }
    let buffer = drive.read(offset, platform.buffers().take(BLOCK_BYTES)).await;
    let buffer = buffer.map_err(SuperblockFault::Drive)?;
    let superblock =
        Superblock::decode(&buffer).and_then(|superblock| Ok((superblock, format_version(&buffer)?)));
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
                 this program knows version {FORMAT_VERSION}"
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
