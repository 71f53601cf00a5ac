use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};

use super::{MappedMemory, PIECE_BYTES, become_huge};
use crate::MemoryDrive;

const SIZE_BYTES: u64 = 16 << 20;
const PIECE: u64 = PIECE_BYTES as u64;

fn drive() -> (MemoryDrive, File) {
    let drive = MemoryDrive::new("mapped", SIZE_BYTES).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(drive.location()).unwrap();
    (drive, file)
}

/// Bytes that the file takes of the machine's memory.
fn taken_bytes(file: &File) -> u64 {
    file.metadata().unwrap().blocks() * 512
}

#[test]
fn what_is_written_is_read_and_is_in_the_file() {
    let (_drive, file) = drive();
    let mapped = MappedMemory::map(&file, SIZE_BYTES).expect("a memory drive is sealed");
    // Over the border of two pieces, and in two parts.
    let (first, second) = ([1_u8; 512], [2_u8; 1024]);
    let offset = PIECE - 512;
    assert_eq!(mapped.write(&file, offset, [&first[..], &second[..]].into_iter()), Ok(1536));
    let mut read = [0; 1536];
    assert!(mapped.read(offset, &mut read));
    assert!(read[..512] == first && read[512..] == second);
    let mut in_file = [0; 1536];
    file.read_exact_at(&mut in_file, offset).unwrap();
    assert_eq!(in_file, read);
}

#[test]
fn what_others_have_written_is_read_once_it_is_set_aside() {
    let (_drive, file) = drive();
    let mapped = MappedMemory::map(&file, SIZE_BYTES).unwrap();
    file.write_all_at(&[7; 512], PIECE).unwrap();
    let mut read = [0; 512];
    assert!(!mapped.read(PIECE, &mut read), "it may be a hole");
    mapped.write(&file, PIECE + 512, [&[8_u8; 512][..]].into_iter()).unwrap();
    assert!(mapped.read(PIECE, &mut read));
    assert_eq!(read, [7; 512], "setting memory aside changes nothing of what is there");
}

#[test]
fn memory_is_taken_only_where_something_is_written() {
    let (_drive, file) = drive();
    let mapped = MappedMemory::map(&file, SIZE_BYTES).unwrap();
    assert!(!mapped.read(0, &mut [0; 4096]));
    assert_eq!(taken_bytes(&file), 0);
    mapped.write(&file, 3 * PIECE, [&[1_u8; 4096][..]].into_iter()).unwrap();
    assert_eq!(taken_bytes(&file), PIECE);
    // The last piece of a drive may be a short one, and is not longer than the drive.
    mapped.write(&file, SIZE_BYTES - 512, [&[1_u8; 512][..]].into_iter()).unwrap();
    assert_eq!(file.metadata().unwrap().len(), SIZE_BYTES);
}

#[test]
fn long_and_short_parts_at_any_place_are_all_stored() {
    let (_drive, file) = drive();
    let mapped = MappedMemory::map(&file, SIZE_BYTES).unwrap();
    let bytes: Vec<u8> = (0..3 * 4096).map(|index| (index % 251) as u8 + 1).collect();
    for (offset, length) in
        [(0, 4096), (4096, 8192), (512, 4096), (520, 4096), (64, 4160), (64, 4100), (128, 4095)]
    {
        mapped.write(&file, 0, [&[0; 4 * 4096][..]].into_iter()).unwrap();
        mapped.write(&file, offset as u64, [&bytes[..length]].into_iter()).unwrap();
        let mut read = vec![0; 4 * 4096];
        assert!(mapped.read(0, &mut read));
        assert_eq!(read[offset..offset + length], bytes[..length], "{length} bytes at {offset}");
        assert!(read[..offset].iter().chain(&read[offset + length..]).all(|byte| *byte == 0));
    }
}

#[test]
fn a_file_that_may_become_shorter_is_not_mapped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("drive");
    crate::create_drive_file(&path, SIZE_BYTES).unwrap();
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    assert!(MappedMemory::map(&file, SIZE_BYTES).is_none());
}

#[test]
fn nobody_makes_a_memory_drive_shorter() {
    let (_drive, file) = drive();
    assert!(file.set_len(SIZE_BYTES - 4096).is_err());
    assert!(MappedMemory::map(&file, SIZE_BYTES + 4096).is_none());
}

/// Where the system can, a block is found without a walk through tables of small pages.
#[test]
fn a_piece_that_was_set_aside_is_one_huge_page() {
    let (_drive, file) = drive();
    let mapped = MappedMemory::map(&file, SIZE_BYTES).unwrap();
    mapped.write(&file, PIECE + 4096, [&[1_u8; 4096][..]].into_iter()).unwrap();
    let address = mapped.start.as_ptr().addr();
    let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut of_drive = maps.lines().skip_while(|line| !line.starts_with(&format!("{address:x}-")));
    let huge =
        of_drive.find(|line| line.starts_with("ShmemPmdMapped:")).expect("it is in memory that is shared");
    // SAFETY: two pieces lie within the mapping.
    let piece = unsafe { mapped.start.add(2 * PIECE_BYTES) }.as_ptr();
    mapped.write(&file, 2 * PIECE, [&[1_u8; 512][..]].into_iter()).unwrap();
    let can_be = become_huge(piece.cast());
    assert_eq!(huge.split_whitespace().nth(1) == Some("2048"), can_be, "{huge}");
}
