//! What a drive carries that is not a store of ours, so that it is never wiped by mistake.
//!
//! What a formatting leaves that was interrupted is ours, and holds nothing: roots of a drive that was
//! never attached, without a superblock.

use spandrel_platform::{Drive, DriveError, Platform};
use spandrel_shared::BLOCK_BYTES;

use crate::format::root::Root;
use crate::layout::Layout;

/// Bytes at the start of a drive that must be zeros on an empty one. File systems, partition
/// tables and volume managers all leave their mark here.
const HEAD_BYTES: usize = 1 << 20;

/// A mark that something leaves at a fixed place.
struct Signature {
    offset: usize,
    bytes: &'static [u8],
    name: &'static str,
}

/// In the order in which they are tried: what lies within a partition table comes before it.
const SIGNATURES: [Signature; 14] = [
    Signature { offset: 4, bytes: b"SpandrelDisk", name: "another Spandrel store" },
    Signature { offset: 0x438, bytes: &[0x53, 0xEF], name: "an ext2, ext3 or ext4 file system" },
    Signature { offset: 0, bytes: b"XFSB", name: "an XFS file system" },
    Signature { offset: 0x1_0040, bytes: b"_BHRfS_M", name: "a Btrfs file system" },
    Signature { offset: 3, bytes: b"NTFS    ", name: "an NTFS file system" },
    Signature { offset: 0, bytes: b"LUKS\xBA\xBE", name: "a LUKS encrypted volume" },
    Signature { offset: 0x218, bytes: b"LVM2 001", name: "an LVM physical volume" },
    Signature { offset: 0x200, bytes: b"LABELONE", name: "an LVM physical volume" },
    Signature { offset: 0x1000, bytes: &[0xFC, 0x4E, 0x2B, 0xA9], name: "a Linux RAID member" },
    Signature { offset: 0, bytes: b"bluestore block device", name: "a Ceph BlueStore OSD" },
    Signature { offset: 0, bytes: b"QFI\xFB", name: "a qcow2 image" },
    Signature { offset: 0xFF6, bytes: b"SWAPSPACE2", name: "a swap area" },
    Signature { offset: 0x200, bytes: b"EFI PART", name: "a GPT partition table" },
    Signature { offset: 0x1FE, bytes: &[0x55, 0xAA], name: "a boot sector or partition table" },
];

/// What stands on a drive that is to be formatted, or `None` if it is empty.
pub async fn recognize<P: Platform>(
    platform: &P,
    drive: &P::Drive,
    layout: &Layout,
) -> Result<Option<String>, DriveError> {
    if let Some(what) = recognize_content(platform, drive).await? {
        return Ok(Some(what));
    }
    let last = Layout::offset_of(layout.data_end_block());
    let tail = drive.read(last, platform.buffers().take(BLOCK_BYTES)).await?;
    let empty = tail.iter().all(|byte| *byte == 0);
    Ok((!empty).then(|| format!("data at its end (byte {last})")))
}

/// What stands at the start of a drive, or `None` if that is all zeros.
pub async fn recognize_content<P: Platform>(
    platform: &P,
    drive: &P::Drive,
) -> Result<Option<String>, DriveError> {
    let length = (drive.geometry().size_bytes as usize).min(HEAD_BYTES) / BLOCK_BYTES * BLOCK_BYTES;
    let head = drive.read(0, platform.buffers().take(length)).await?;
    Ok(recognize_head(&head))
}

fn recognize_head(head: &[u8]) -> Option<String> {
    let stands = |signature: &&Signature| {
        head.get(signature.offset..signature.offset + signature.bytes.len()) == Some(signature.bytes)
    };
    if let Some(signature) = SIGNATURES.iter().find(stands) {
        return Some(signature.name.to_owned());
    }
    let mut blocks = (0..).zip(head.chunks(BLOCK_BYTES));
    let first = blocks.find_map(|(number, block)| {
        let first = block.iter().position(|byte| *byte != 0)?;
        (!Root::is_never_attached(block)).then_some(number * BLOCK_BYTES + first)
    })?;
    Some(format!("unknown data (the first at byte {first})"))
}

#[cfg(test)]
#[path = "foreign_tests.rs"]
mod tests;
