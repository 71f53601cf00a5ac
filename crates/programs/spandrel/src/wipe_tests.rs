use spandrel_shared::{ClusterId, DriveId, NodeId};

use super::*;

const MIB: u64 = 1 << 20;

fn file_with(size_bytes: u64, marks: &[u64]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    file.as_file().set_len(size_bytes).expect("there is room");
    for mark in marks {
        file.as_file().write_all_at(b"mark", *mark).expect("there is room");
    }
    file
}

fn identity(roots_end_bytes: u64, second_superblock_bytes: u64) -> DriveIdentity {
    DriveIdentity {
        cluster: ClusterId::from_random(1, 1),
        node: NodeId::from_random(1, 2),
        drive: DriveId::from_random(1, 3),
        roots_end_bytes,
        second_superblock_bytes,
    }
}

#[test]
fn regions_are_apart_and_within_the_drive() {
    assert_eq!(regions(0, None), []);
    assert_eq!(regions(5, None), [(0, 5)], "less than all margins");
    assert_eq!(regions(30 * MIB, None), [(0, 30 * MIB)], "margins that meet");
    let spot = 64 << 10;
    let btrfs = (64 * MIB - spot, 64 * MIB + spot);
    assert_eq!(regions(100 * MIB, None), [(0, 16 * MIB), btrfs, (84 * MIB, 100 * MIB)]);
    // Many roots, and a drive that has grown.
    let grown = identity(20 * MIB, 40 * MIB - 4096);
    let second = (40 * MIB - 4096 - spot, 40 * MIB - 4096 + spot);
    assert_eq!(regions(100 * MIB, Some(&grown)), [(0, 20 * MIB), second, btrfs, (84 * MIB, 100 * MIB)]);
    let huge = regions(20 << 40, None);
    let store_end = store_end_bytes_max();
    assert!(huge.iter().any(|(start, end)| *start < store_end && store_end - 4096 < *end), "{huge:?}");
    assert!(huge.is_sorted_by(|one, next| one.1 < next.0), "{huge:?}");
    assert_eq!(huge.last(), Some(&((20 << 40) - 16 * MIB, 20 << 40)));
}

#[test]
fn every_region_reads_as_zeros_and_the_size_stays() {
    let size = 100 * MIB + 512;
    let marks = [0, 4, 16 * MIB - 4, 64 * MIB, 90 * MIB, size - 4];
    let between = 30 * MIB;
    let file = file_with(size, &[&marks[..], &[between]].concat());
    let wiping = Wiping::begin(file.path(), &System::here()).expect("nobody uses it");
    assert_eq!(wiping.size_bytes(), size);
    wiping.overwrite(&wiping.regions(None)).expect("there is room");
    let at = |offset| {
        let mut bytes = [9; 4];
        file.as_file().read_exact_at(&mut bytes, offset).expect("it is there");
        bytes
    };
    assert!(marks.iter().all(|mark| at(*mark) == [0; 4]));
    assert_eq!(&at(between), b"mark", "only a discard reaches everything");
    let mut told = 0;
    if wiping.discard(|done| told = done) {
        assert_eq!((at(between), told), ([0; 4], size));
    }
    assert_eq!(file.as_file().metadata().expect("it is there").len(), size);
}

#[test]
fn a_file_that_somebody_has_locked_is_left_alone() {
    let file = file_with(MIB, &[0]);
    let other = File::open(file.path()).expect("it is there");
    rustix::fs::flock(&other, FlockOperation::NonBlockingLockShared).expect("nobody has it");
    let refused = Wiping::begin(file.path(), &System::here()).err().expect("somebody has it");
    assert_eq!(refused.code, "DRIVE_IN_USE");
    drop(other);
    let first = Wiping::begin(file.path(), &System::here()).expect("nobody has it any more");
    assert!(Wiping::begin(file.path(), &System::here()).is_err(), "one at a time");
    drop(first);
}

#[test]
fn what_is_no_drive_is_refused() {
    for path in ["/nowhere", "/proc", "/dev/null"] {
        let refused = Wiping::begin(Path::new(path), &System::here()).err().expect("it is none");
        assert_eq!(refused.code, "DRIVE_NOT_OPENED", "{path}");
    }
}
