//! What stands on something that is no drive of ours, for the error that says so.

use std::path::Path;

use spandrel_shared::size::format_size;

use crate::source::{DriveFile, Reader};

/// Bytes at the start that are looked at.
const HEAD_BYTES: u64 = 128 << 10;

/// Something that others leave: at which byte its mark stands, what the mark is, and what it says of itself.
struct Kind {
    offset: usize,
    mark: &'static [u8],
    describe: fn(&Head<'_>) -> String,
}

impl Kind {
    fn text(&self, head: &[u8]) -> String {
        format!("it carries {}", (self.describe)(&Head(head)))
    }
}

/// What lies within a partition table comes before it.
const KINDS: [Kind; 15] = [
    Kind { offset: 4, mark: OURS, describe: |_| "a Spandrel drive".to_owned() },
    Kind { offset: 4, mark: OUR_CACHE, describe: |_| "a Spandrel cache drive".to_owned() },
    Kind { offset: 0x438, mark: &[0x53, 0xEF], describe: extended },
    Kind { offset: 0, mark: b"XFSB", describe: xfs },
    Kind { offset: 0x1_0040, mark: b"_BHRfS_M", describe: btrfs },
    Kind { offset: 3, mark: b"NTFS    ", describe: |_| "an NTFS file system".to_owned() },
    Kind { offset: 0, mark: b"LUKS\xBA\xBE", describe: |_| "a LUKS encrypted volume".to_owned() },
    Kind { offset: 0x218, mark: b"LVM2 001", describe: |_| "an LVM physical volume".to_owned() },
    Kind { offset: 0x1000, mark: &[0xFC, 0x4E, 0x2B, 0xA9], describe: raid },
    Kind { offset: 0x1018, mark: BCACHE, describe: |_| "a bcache device".to_owned() },
    Kind { offset: 0, mark: b"bluestore block device", describe: |_| "a Ceph BlueStore device".to_owned() },
    Kind { offset: 0xFF6, mark: b"SWAPSPACE2", describe: |_| "swap space".to_owned() },
    Kind { offset: 0, mark: b"QFI\xFB", describe: |_| "a qcow2 image".to_owned() },
    Kind { offset: 0x200, mark: b"EFI PART", describe: |_| "a GPT partition table".to_owned() },
    Kind { offset: 0x1FE, mark: &[0x55, 0xAA], describe: |_| "a boot sector or partition table".to_owned() },
];

const OURS: &[u8] = b"SpandrelDisk";
const OUR_CACHE: &[u8] = crate::cache_drive::MAGIC;

const BCACHE: &[u8] =
    &[0xC6, 0x85, 0x73, 0xF6, 0x4E, 0x1A, 0x45, 0xCA, 0x82, 0x65, 0xF5, 0x7F, 0x48, 0xBA, 0x6D, 0x81];

/// The first bytes of a drive.
struct Head<'a>(&'a [u8]);

impl Head<'_> {
    /// The number that stands in these bytes, as a machine of this order writes it; zero beyond the end.
    fn little<const BYTES: usize>(&self, offset: usize) -> u64 {
        self.0
            .get(offset..offset + BYTES)
            .map_or(0, |bytes| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn big<const BYTES: usize>(&self, offset: usize) -> u64 {
        self.0
            .get(offset..offset + BYTES)
            .map_or(0, |bytes| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

/// What others have left in a file or on a block device, in words. `None` if it cannot be read, if it is nothing that is
/// known here, or if a drive of ours stands there, whole or not.
pub fn recognize_path(path: &Path) -> Option<String> {
    let file = DriveFile::open(path, true).ok()?;
    let reader = Reader::new(&file, None);
    let head = reader.bytes(0, head_bytes(reader)).ok()?;
    kind(&head).filter(|kind| kind.mark != OURS && kind.mark != OUR_CACHE).map(|kind| kind.text(&head))
}

/// What stands in a file or on a block device, in words, whatever it is. `None` if it cannot be read.
pub fn describe_path(path: &Path) -> Option<String> {
    let file = DriveFile::open(path, true).ok()?;
    Some(recognize(Reader::new(&file, None)))
}

/// What stands there, in words.
pub(crate) fn recognize(reader: Reader<'_>) -> String {
    let head = match reader.bytes(0, head_bytes(reader)) {
        Ok(head) => head,
        Err(why) => return format!("its start cannot be had: {why}"),
    };
    match kind(&head) {
        Some(kind) => kind.text(&head),
        None if head.is_empty() => "it is empty".to_owned(),
        None if head.iter().all(|byte| *byte == 0) => {
            "it holds only zeros at its start: it was never formatted, or was wiped".to_owned()
        }
        None => "it carries something unknown".to_owned(),
    }
}

fn head_bytes(reader: Reader<'_>) -> usize {
    reader.size_bytes().min(HEAD_BYTES) as usize
}

/// What is known by its mark.
fn kind(head: &[u8]) -> Option<&'static Kind> {
    let stands = |kind: &&Kind| {
        head.get(kind.offset..kind.offset + kind.mark.len()).is_some_and(|found| found == kind.mark)
    };
    KINDS.iter().find(stands)
}

/// A file system of the ext family: its superblock stands 1 KiB from the start.
fn extended(head: &Head<'_>) -> String {
    const SUPERBLOCK: usize = 0x400;
    const EXTENTS: u64 = 0x40;
    const JOURNAL: u64 = 0x4;
    const BITS_64: u64 = 0x80;
    let compatible = head.little::<4>(SUPERBLOCK + 0x5C);
    let incompatible = head.little::<4>(SUPERBLOCK + 0x60);
    let name = match (incompatible & (EXTENTS | BITS_64) != 0, compatible & JOURNAL != 0) {
        (true, _) => "an ext4 file system",
        (false, true) => "an ext3 file system",
        (false, false) => "an ext2 file system",
    };
    let high =
        |offset| if incompatible & BITS_64 == 0 { 0 } else { head.little::<4>(SUPERBLOCK + offset) << 32 };
    let blocks = head.little::<4>(SUPERBLOCK + 0x4) | high(0x150);
    let free = head.little::<4>(SUPERBLOCK + 0xC) | high(0x158);
    let block_bytes = 1024_u64.checked_shl(head.little::<4>(SUPERBLOCK + 0x18) as u32).unwrap_or(0);
    let made_unix_s = head.little::<4>(SUPERBLOCK + 0x108) | head.little::<1>(SUPERBLOCK + 0x276) << 32;
    format!("{name}{}{}", of_year(made_unix_s), used(blocks.saturating_sub(free), block_bytes))
}

fn xfs(head: &Head<'_>) -> String {
    let block_bytes = head.big::<4>(4);
    let blocks = head.big::<8>(8).saturating_sub(head.big::<8>(0x90));
    format!("an XFS file system{}", used(blocks, block_bytes))
}

fn btrfs(head: &Head<'_>) -> String {
    format!("a Btrfs file system{}", used(head.little::<8>(0x1_0078), 1))
}

/// A member of a RAID that Linux keeps, with its superblock 4 KiB from the start.
fn raid(head: &Head<'_>) -> String {
    const FORTY_BITS: u64 = (1 << 40) - 1;
    let name = head.0.get(0x1020..0x1040).unwrap_or_default();
    let name: String =
        name.iter().take_while(|byte| byte.is_ascii_graphic()).map(|byte| char::from(*byte)).collect();
    let named = if name.is_empty() { String::new() } else { format!(" {name}") };
    format!("a member of the Linux RAID{named}{}", of_year(head.little::<8>(0x1048) & FORTY_BITS))
}

/// The year of a time, if it says anything.
fn of_year(unix_s: u64) -> String {
    const YEAR_S: u64 = 31_556_952;
    if unix_s == 0 { String::new() } else { format!(" of {}", 1970 + unix_s / YEAR_S) }
}

fn used(blocks: u64, block_bytes: u64) -> String {
    match blocks.checked_mul(block_bytes) {
        Some(bytes @ 1..) => format!(", {} used", format_size(bytes)),
        _ => String::new(),
    }
}

#[cfg(test)]
#[path = "foreign_tests.rs"]
mod tests;
