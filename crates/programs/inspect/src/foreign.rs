//! What stands on something that is no drive of ours, for the error that says so.

use crate::source::Reader;

/// Bytes at the start that are looked at.
const HEAD_BYTES: u64 = 128 << 10;

/// Marks that others leave: at which byte, what, and whose it is. What lies within a partition
/// table comes before it.
const MARKS: [(usize, &[u8], &str); 9] = [
    (0x438, &[0x53, 0xEF], "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (0x1_0040, b"_BHRfS_M", "a Btrfs file system"),
    (0, b"LUKS\xBA\xBE", "a LUKS encrypted volume"),
    (0x218, b"LVM2 001", "an LVM physical volume"),
    (0x1000, &[0xFC, 0x4E, 0x2B, 0xA9], "a Linux RAID member"),
    (0, b"QFI\xFB", "a qcow2 image"),
    (0x200, b"EFI PART", "a GPT partition table: name a partition or another drive"),
    (0x1FE, &[0x55, 0xAA], "a boot sector or partition table"),
];

/// What stands there, in words.
pub(crate) fn recognize(reader: Reader<'_>) -> String {
    let length = reader.size_bytes().min(HEAD_BYTES) as usize;
    let head = match reader.bytes(0, length) {
        Ok(head) => head,
        Err(why) => return format!("its start cannot be had: {why}"),
    };
    let stands = |(offset, mark, _): &&(usize, &[u8], &str)| {
        head.get(*offset..offset + mark.len()).is_some_and(|found| found == *mark)
    };
    match MARKS.iter().find(stands) {
        Some((_, _, name)) => format!("it carries {name}"),
        None if head.is_empty() => "it is empty".to_owned(),
        None if head.iter().all(|byte| *byte == 0) => {
            "it holds only zeros at its start: it was never formatted, or was wiped".to_owned()
        }
        None => "it carries something unknown".to_owned(),
    }
}
