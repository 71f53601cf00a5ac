use std::io::Read;
use std::os::unix::net::UnixStream;

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
        is_cache: false,
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
    match wiping.discard(|done| told = done) {
        Emptied::No => {}
        emptied => assert_eq!((emptied, at(between), told), (Emptied::Discarded, [0; 4], size)),
    }
    assert_eq!(file.as_file().metadata().expect("it is there").len(), size);
}

#[test]
fn a_file_that_somebody_has_locked_is_left_alone() {
    let file = file_with(MIB, &[0]);
    let other = File::open(file.path()).expect("it is there");
    rustix::fs::flock(&other, FlockOperation::NonBlockingLockShared).expect("nobody has it");
    let refused = Wiping::begin(file.path(), &System::here()).expect_err("somebody has it");
    assert_eq!(refused.code, "DRIVE_IN_USE");
    drop(other);
    let first = Wiping::begin(file.path(), &System::here()).expect("nobody has it any more");
    assert!(Wiping::begin(file.path(), &System::here()).is_err(), "one at a time");
    drop(first);
}

/// A process that runs until this is dropped.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_file_that_another_process_may_write_to_is_left_alone() {
    let file = file_with(MIB, &[0]);
    let writer = OpenOptions::new().append(true).open(file.path()).expect("it is there");
    let sleeper = std::process::Command::new("sleep").arg("1000").stdout(writer).spawn();
    let sleeper = Running(sleeper.expect("there is such a program"));
    let refused = Wiping::begin(file.path(), &System::here()).expect_err("somebody has it");
    let number = sleeper.0.id();
    assert_eq!(
        (&refused.code[..], &refused.why[..]),
        ("DRIVE_IN_USE", &format!("the process sleep ({number}) has it open")[..])
    );
    drop(sleeper);
    let wiping = Wiping::begin(file.path(), &System::here()).expect("nobody has it any more");
    // Somebody may begin while it is asked whether this is meant.
    let writer = OpenOptions::new().append(true).open(file.path()).expect("it is there");
    let sleeper = std::process::Command::new("sleep").arg("1000").stdout(writer).spawn();
    let sleeper = Running(sleeper.expect("there is such a program"));
    assert_eq!(wiping.check_unused(&System::here()).expect_err("somebody has it").code, "DRIVE_IN_USE");
    drop(sleeper);
    wiping.check_unused(&System::here()).expect("nobody has it any more");
}

/// One that has it open for reading takes locks alone.
#[test]
fn the_image_of_a_virtual_machine_is_left_alone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = file_with(MIB, &[0]);
    let socket = folder.path().join("socket");
    let mut server = std::process::Command::new("qemu-nbd");
    server.args(["--read-only", "--persistent", "--format=raw", "--socket"]).arg(&socket).arg(file.path());
    let mut server = match server.spawn() {
        Ok(server) => Running(server),
        Err(_) => return println!("left out: there is no qemu-nbd here"),
    };
    let mut client = loop {
        if let Ok(client) = UnixStream::connect(&socket) {
            break client;
        }
        let ended = server.0.try_wait().expect("it is a child of this process");
        assert_eq!(ended, None, "it serves the file");
        std::thread::yield_now();
    };
    // It listens before it opens the image, and greets afterwards.
    let mut greeting = [0; 8];
    client.read_exact(&mut greeting).expect("it greets");
    assert_eq!(&greeting, b"NBDMAGIC");
    let refused = Wiping::begin(file.path(), &System::here()).expect_err("somebody has it");
    let number = server.0.id();
    assert_eq!(
        (&refused.code[..], &refused.why[..]),
        ("DRIVE_IN_USE", &format!("the process qemu-nbd ({number}) has it open")[..])
    );
    drop(server);
    Wiping::begin(file.path(), &System::here()).expect("nobody has it any more");
}

#[test]
fn what_was_opened_stays_what_is_wiped() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (path, away) = (folder.path().join("drive"), folder.path().join("away"));
    for path in [&path, &away] {
        std::fs::write(path, b"mark").expect("there is room");
    }
    let wiping = Wiping::begin(&path, &System::here()).expect("nobody uses it");
    std::fs::rename(&away, &path).expect("it is there");
    assert_eq!(std::fs::read(wiping.opened()).expect("it is open"), b"mark");
    wiping.overwrite(&wiping.regions(None)).expect("there is room");
    assert_eq!(std::fs::read(wiping.opened()).expect("it is open"), [0; 4]);
    assert_eq!(std::fs::read(&path).expect("it is there"), b"mark", "nobody has asked for this one");
}

#[test]
fn only_what_is_blank_where_anything_stands_is_blank() {
    for (marks, expected) in [(&[][..], true), (&[30 * MIB], true), (&[20], false), (&[64 * MIB], false)] {
        let file = file_with(100 * MIB, marks);
        assert_eq!(is_blank(file.path()).expect("it can be read"), expected, "{marks:?}");
    }
    assert!(is_blank(Path::new("/nowhere")).is_err());
}

#[test]
fn what_is_tried_is_tried_until_it_succeeds() {
    let mut number = 0;
    let mut attempt = || {
        number += 1;
        (number == 3).then_some(number)
    };
    assert_eq!(tried(5, &mut attempt), Some(3));
    assert_eq!(tried(2, attempt), None);
}

/// A loop device over a file, for as long as this lives.
struct LoopDevice(PathBuf);

impl LoopDevice {
    fn over(file: &Path) -> Option<Self> {
        let found = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let mut command = std::process::Command::new("losetup");
        let output = command.env("PATH", found).args(["--find", "--show"]).arg(file).output().ok()?;
        let name = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| Self(name.trim().into()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let found = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin:/sbin";
        let mut command = std::process::Command::new("losetup");
        let _ = command.env("PATH", found).arg("--detach").arg(&self.0).status();
    }
}

#[test]
fn a_block_device_is_wiped_once_whoever_looks_at_it_lets_it_go() {
    let file = file_with(64 * MIB, &[0, 30 * MIB, 64 * MIB - 4]);
    let Some(device) = LoopDevice::over(file.path()) else {
        return println!("left out: loop devices cannot be set up here");
    };
    assert_eq!(
        Wiping::begin(file.path(), &System::here()).expect_err("it is behind one").code,
        "DRIVE_IN_USE"
    );
    let looking = File::open(&device.0).expect("it is there");
    rustix::fs::flock(&looking, FlockOperation::NonBlockingLockShared).expect("nobody has it");
    assert_eq!(Wiping::begin(&device.0, &System::here()).expect_err("it is locked").code, "DRIVE_IN_USE");
    let wiping = std::thread::scope(|scope| {
        let begun = scope.spawn(|| Wiping::begin(&device.0, &System::here()));
        drop(looking);
        begun.join().expect("it does not panic")
    });
    let wiping = wiping.expect("nobody has it any more");
    assert_eq!(wiping.size_bytes(), 64 * MIB);
    let refused = Wiping::begin(&device.0, &System::here()).expect_err("it is claimed");
    assert_eq!(refused.code, "DRIVE_IN_USE");
    let emptied = wiping.discard(|_| {});
    assert_ne!(emptied, Emptied::Discarded, "of a device nobody knows");
    wiping.overwrite(&wiping.regions(None)).expect("there is room");
    assert!(is_blank(&wiping.opened()).expect("it can be read"));
    let mut between = [9; 4];
    wiping.file.read_exact_at(&mut between, 30 * MIB).expect("it can be read");
    assert_eq!(between == [0; 4], emptied == Emptied::Zeroed);
}

#[test]
fn what_is_no_drive_is_refused() {
    for path in ["/nowhere", "/proc", "/dev/null"] {
        let refused = Wiping::begin(Path::new(path), &System::here()).expect_err("it is none");
        assert_eq!(refused.code, "DRIVE_NOT_OPENED", "{path}");
    }
}
