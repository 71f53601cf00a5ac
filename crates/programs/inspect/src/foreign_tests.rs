use std::io::Write as _;
use std::process::Command;

use super::*;

/// What is recognized in a file of 1 MiB that holds these bytes at these places, zeros elsewhere.
fn recognized(bytes: &[(usize, &[u8])]) -> String {
    let mut content = vec![0; 1 << 20];
    for (offset, part) in bytes {
        content[*offset..offset + part.len()].copy_from_slice(part);
    }
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(&content).expect("there is room");
    let text = recognize(Reader::new(&DriveFile::open(file.path(), true).expect("it can be read"), None));
    // What is said of a path is the same, where anything is known.
    assert!(recognize_path(file.path()).is_none_or(|known| known == text));
    text
}

#[test]
fn everything_is_recognized_by_its_mark() {
    for kind in KINDS {
        let text = recognized(&[(kind.offset, kind.mark)]);
        assert!(text.starts_with("it carries a") || text.starts_with("it carries s"), "{text}");
    }
    assert!(recognized(&[]).contains("only zeros"));
    assert_eq!(recognized(&[(0, b"#!/bin/sh")]), "it carries something unknown");
}

#[test]
fn nothing_is_said_of_a_path_where_nothing_is_known() {
    let mut file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.write_all(b"#!/bin/sh").expect("there is room");
    assert_eq!(recognize_path(file.path()), None);
    assert_eq!(describe_path(file.path()).as_deref(), Some("it carries something unknown"));
    assert_eq!(describe_path(Path::new("/nowhere")), None);
    assert_eq!(recognize_path(Path::new("/nowhere")), None);
}

#[test]
fn a_file_system_within_a_boot_sector_is_named() {
    let text = recognized(&[(0x1FE, &[0x55, 0xAA]), (3, b"NTFS    ")]);
    assert_eq!(text, "it carries an NTFS file system");
}

#[test]
fn what_file_systems_say_of_themselves_is_told() {
    let in_2021 = 1_625_000_000_u32.to_le_bytes();
    // 1,000 blocks of 4 KiB, 744 of them free.
    let extended: [(usize, &[u8]); 6] = [
        (0x438, &[0x53, 0xEF]),
        (0x404, &1000_u32.to_le_bytes()),
        (0x40C, &744_u32.to_le_bytes()),
        (0x418, &2_u32.to_le_bytes()),
        (0x460, &0x40_u32.to_le_bytes()),
        (0x508, &in_2021),
    ];
    assert_eq!(recognized(&extended), "it carries an ext4 file system of 2021, 1 MiB used");
    let xfs: [(usize, &[u8]); 4] = [
        (0, b"XFSB"),
        (4, &4096_u32.to_be_bytes()),
        (8, &1024_u64.to_be_bytes()),
        (0x90, &512_u64.to_be_bytes()),
    ];
    assert_eq!(recognized(&xfs), "it carries an XFS file system, 2 MiB used");
    let btrfs: [(usize, &[u8]); 2] = [(0x1_0040, b"_BHRfS_M"), (0x1_0078, &(3_u64 << 20).to_le_bytes())];
    assert_eq!(recognized(&btrfs), "it carries a Btrfs file system, 3 MiB used");
    let raid: [(usize, &[u8]); 3] =
        [(0x1000, &[0xFC, 0x4E, 0x2B, 0xA9]), (0x1020, b"store:0"), (0x1048, &in_2021)];
    assert_eq!(recognized(&raid), "it carries a member of the Linux RAID store:0 of 2021");
}

#[test]
fn numbers_that_make_no_sense_are_left_out() {
    let text = recognized(&[(0x438, &[0x53, 0xEF]), (0x404, &[0xFF; 4]), (0x418, &[0xFF; 4])]);
    assert_eq!(text, "it carries an ext2 file system");
    assert_eq!(recognized(&[(0, b"XFSB"), (4, &[0xFF; 12])]), "it carries an XFS file system");
}

#[test]
fn a_real_file_system_is_described() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let image = folder.path().join("image");
    std::fs::File::create(&image).and_then(|file| file.set_len(16 << 20)).expect("there is room");
    let mut tool = Command::new("mke2fs");
    let found = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
    match tool.env("PATH", found).args(["-q", "-F", "-t", "ext4"]).arg(&image).status() {
        Ok(status) => assert!(status.success()),
        Err(_) => return println!("left out: there is no mke2fs here"),
    }
    let text = recognize_path(&image).expect("it can be read");
    assert!(text.starts_with("it carries an ext4 file system of 20") && text.ends_with(" used"), "{text}");
}
