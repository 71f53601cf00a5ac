use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;

use futures_util::FutureExt;
use futures_util::future::join_all;
use rustix::fs::OFlags;
use spandrel_platform::Platform;
use tempfile::TempDir;

use super::*;
use crate::test_support::{Numbers, run, run_with};
use crate::{Cores, LinuxPlatform, Runtime};

pub(super) const DRIVE_BYTES: usize = 2 << 20;

/// A folder on the disk that this test's program is on.
pub(super) fn disk_folder() -> TempDir {
    let program = std::env::current_exe().unwrap();
    tempfile::tempdir_in(program.parent().unwrap()).unwrap()
}

fn drive_file(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("drive");
    create_drive_file(&path, DRIVE_BYTES as u64).unwrap();
    path
}

pub(super) fn location_in(folder: &TempDir) -> String {
    drive_file(folder).to_str().unwrap().to_string()
}

pub(super) fn without_ring() -> RuntimeConfig {
    RuntimeConfig { use_io_uring: false, ..RuntimeConfig::default() }
}

/// Everything that must hold whatever way the operations take.
fn check_drive(config: &RuntimeConfig, location: &str, path: DrivePath) {
    check_content(config, location, path);
    check_limits(config, location);
    check_many_parts(config, location);
    check_exclusive_use(config, location);
    check_dropped_futures(config, location);
}

/// Random writes, many at a time, against a plain array; then again after the drive was closed.
pub(super) fn check_content(config: &RuntimeConfig, location: &str, path: DrivePath) {
    let place = location.to_string();
    let oracle = run_with(config.clone(), move |platform| async move {
        let drive = platform.open_drive(&place).await.unwrap();
        assert_eq!(drive.path(), path);
        assert_eq!(drive.geometry().size_bytes, DRIVE_BYTES as u64);
        let mut numbers = Numbers::new(3);
        let mut oracle = vec![0; DRIVE_BYTES];
        drive.write(0, vec![platform.buffers().take_zeroed(DRIVE_BYTES).freeze()]).await.unwrap();
        for _ in 0..30 {
            let writes = write_everywhere(&platform, &drive, &mut numbers, &mut oracle);
            join_all(writes).await;
            drive.flush().await.unwrap();
            check_reads(&platform, &drive, &mut numbers, &oracle).await;
        }
        let statistics = platform.statistics();
        assert!(statistics.drive_writes >= 30 * 16 && statistics.drive_flushes == 30);
        assert_eq!(statistics.ring_submits > 0, path == DrivePath::Ring);
        oracle
    });
    let place = location.to_string();
    run_with(config.clone(), move |platform| async move {
        let drive = platform.open_drive(&place).await.unwrap();
        let whole = drive.read(0, platform.buffers().take(DRIVE_BYTES)).await.unwrap();
        assert!(whole[..] == oracle[..]);
    });
}

/// One write in each sixteenth of the drive, at any sector, in any parts, from any memory.
fn write_everywhere<'drive>(
    platform: &LinuxPlatform,
    drive: &'drive LinuxDrive,
    numbers: &mut Numbers,
    oracle: &mut [u8],
) -> Vec<impl Future<Output = ()> + use<'drive>> {
    const REGION_BYTES: usize = DRIVE_BYTES / 16;
    let sector = drive.geometry().sector_bytes as usize;
    let write = |region: usize, numbers: &mut Numbers, oracle: &mut [u8]| {
        let start = numbers.below(REGION_BYTES / sector - 8);
        let mut sectors_left = 1 + numbers.below((REGION_BYTES / sector - start).min(40));
        let start = region * REGION_BYTES + start * sector;
        let (mut parts, mut at) = (Vec::new(), start);
        while sectors_left > 0 {
            let sectors = 1 + numbers.below(sectors_left);
            sectors_left -= sectors;
            let length = sectors * sector;
            // In every other part the memory begins where direct I/O cannot take it from.
            let skew = if numbers.below(2) == 0 { 0 } else { 1 + numbers.below(600) };
            let buffer = platform.buffers().copy_of(&numbers.bytes(skew + length)).freeze();
            let part = buffer.slice(skew..skew + length);
            oracle[at..at + length].copy_from_slice(&part);
            at += length;
            parts.push(part);
        }
        async move { drive.write(start as u64, parts).await.unwrap() }
    };
    (0..16).map(|region| write(region, numbers, oracle)).collect()
}

async fn check_reads(platform: &LinuxPlatform, drive: &LinuxDrive, numbers: &mut Numbers, oracle: &[u8]) {
    let sector = drive.geometry().sector_bytes as usize;
    let reads = (0..32).map(|_| {
        let sectors = 1 + numbers.below(64);
        let start = numbers.below(DRIVE_BYTES / sector - sectors) * sector;
        let into = platform.buffers().take(sectors * sector);
        async move {
            let content = drive.read(start as u64, into).await.unwrap();
            assert!(content[..] == oracle[start..start + sectors * sector], "at byte {start}");
        }
    });
    join_all(reads).await;
}

pub(super) fn check_limits(config: &RuntimeConfig, location: &str) {
    let place = location.to_string();
    run_with(config.clone(), move |platform| async move {
        let drive = platform.open_drive(&place).await.unwrap();
        let sector = drive.geometry().sector_bytes as usize;
        let end = DRIVE_BYTES as u64;
        let buffer = |length| platform.buffers().take_zeroed(length);
        let parts = |lengths: &[usize]| lengths.iter().map(|length| buffer(*length).freeze()).collect();
        let refused = |result: Result<(), DriveError>| {
            assert_eq!(result.expect_err("it is not possible").kind, DriveErrorKind::OutOfRange);
        };
        refused(drive.read(end, buffer(sector)).await.map(drop));
        refused(drive.read(1, buffer(sector)).await.map(drop));
        refused(drive.read(0, buffer(sector - 1)).await.map(drop));
        refused(drive.read(u64::MAX - sector as u64 + 1, buffer(2 * sector)).await.map(drop));
        refused(drive.write(end - sector as u64, parts(&[sector, sector])).await);
        refused(drive.write(0, parts(&[sector / 2, sector / 2])).await);
        refused(drive.write(7, parts(&[sector])).await);

        // Nothing to do is done at once, even at the very end.
        assert_eq!(drive.write(end, Vec::new()).await, Ok(()));
        assert_eq!(drive.write(0, parts(&[0, 0])).await, Ok(()));
        assert_eq!(drive.read(end, buffer(0)).await.unwrap().len(), 0);
        drive.write(end - sector as u64, parts(&[sector])).await.unwrap();
    });
}

/// More parts than the kernel takes in one call.
pub(super) fn check_many_parts(config: &RuntimeConfig, location: &str) {
    let place = location.to_string();
    run_with(config.clone(), move |platform| async move {
        let drive = platform.open_drive(&place).await.unwrap();
        let sector = drive.geometry().sector_bytes as usize;
        // A part may be used many times: so many do not fit the drive otherwise, with large sectors.
        let count = (DRIVE_BYTES / sector).min(2600);
        let sectors: Vec<Buffer> = (0..7_u8)
            .map(|fill| platform.buffers().copy_of(&vec![fill; sector.max(4096)]).freeze().slice(0..sector))
            .collect();
        let parts = (0..count).map(|number| sectors[number % 7].clone()).collect();
        drive.write(0, parts).await.unwrap();
        let content = drive.read(0, platform.buffers().take(count * sector)).await.unwrap();
        for (number, bytes) in content.chunks(sector).enumerate() {
            assert!(bytes.iter().all(|byte| usize::from(*byte) == number % 7), "part {number}");
        }
    });
}

/// A drive is open once, and can be opened again the moment it was let go.
pub(super) fn check_exclusive_use(config: &RuntimeConfig, location: &str) {
    let place = location.to_string();
    run_with(config.clone(), move |platform| async move {
        for _ in 0..5 {
            let drive = platform.open_drive(&place).await.unwrap();
            let again = platform.open_drive(&place).await.err();
            assert_eq!(again.expect("it is open").kind, DriveErrorKind::InUse);
            let clone = drive.clone();
            let into = platform.buffers().take(4096);
            drop(drive.read(0, into).await.unwrap());
            drop((drive, clone));
        }
    });
}

const LAST_WRITES: u8 = 16;
const LAST_WRITE_BYTES: usize = 64 << 10;

/// Operations outlive their futures, and the runtime's end waits for them.
fn check_dropped_futures(config: &RuntimeConfig, location: &str) {
    let place = location.to_string();
    let mut runtime = Runtime::new(config.clone()).unwrap();
    let platform = runtime.platform();
    runtime.block_on(async move {
        let drive = platform.open_drive(&place).await.unwrap();
        for round in 0..50_u8 {
            let buffer = platform.buffers().copy_of(&[round; 8192]).freeze();
            let mut write = Box::pin(drive.write(0, vec![buffer]));
            let mut read = Box::pin(drive.read(1 << 20, platform.buffers().take(64 << 10)));
            assert!(write.as_mut().now_or_never().is_none());
            assert!(read.as_mut().now_or_never().is_none());
            drop((write, read));
            // Memory that is used again at once, while the dropped read may still be filled.
            let mut other = platform.buffers().take(64 << 10);
            other.fill(0xa5);
            let settled = drive.read(1 << 20, platform.buffers().take(512.max(sector_of(&drive)))).await;
            settled.unwrap();
            assert!(other.iter().all(|byte| *byte == 0xa5), "the kernel wrote into memory it was not given");
        }
        // These are under way when the runtime ends.
        for fill in 0..LAST_WRITES {
            let buffer = platform.buffers().copy_of(&[fill; LAST_WRITE_BYTES]).freeze();
            let offset = u64::from(fill) * LAST_WRITE_BYTES as u64;
            let mut write = pin!(drive.write(offset, vec![buffer]));
            assert!(write.as_mut().now_or_never().is_none());
            let mut flush = pin!(drive.flush());
            assert!(flush.as_mut().now_or_never().is_none());
        }
    });
    drop(runtime);
    // Nothing is under way any more: the lock is gone, and what was submitted has been done.
    let place = location.to_string();
    run_with(config.clone(), |platform| async move {
        let drive = platform.open_drive(&place).await.unwrap();
        let length = usize::from(LAST_WRITES) * LAST_WRITE_BYTES;
        let content = drive.read(0, platform.buffers().take(length)).await.unwrap();
        for (fill, bytes) in content.chunks(LAST_WRITE_BYTES).enumerate() {
            assert!(bytes.iter().all(|byte| usize::from(*byte) == fill), "write {fill}");
        }
    });
}

fn sector_of(drive: &LinuxDrive) -> usize {
    drive.geometry().sector_bytes as usize
}

/// Whether this machine lets us use io_uring at all.
pub(super) fn ring_path() -> DrivePath {
    match Ring::new(8, None) {
        Ok(_) => DrivePath::Ring,
        Err(_) => DrivePath::Threads,
    }
}

#[test]
fn a_file_on_disk() {
    let folder = disk_folder();
    let location = location_in(&folder);
    check_drive(&RuntimeConfig::default(), &location, ring_path());
    run(move |platform| async move {
        let drive = platform.open_drive(&location).await.unwrap();
        assert!(drive.geometry().volatile_cache);
        let file = rustix::fs::fcntl_getfl(drive.inner.file.as_fd()).unwrap();
        assert_eq!(file.contains(OFlags::DIRECT), drive.is_direct());
    });
}

#[test]
fn the_kernels_threads_that_serve_a_drive_stay_on_the_runtimes_cores() {
    let folder = disk_folder();
    let location = location_in(&folder);
    // On a thread of its own, which no other test's runtime follows.
    let tested = std::thread::spawn(move || {
        let first = Cores::available().unwrap().first(1);
        let own = rustix::thread::gettid().as_raw_nonzero();
        let config = RuntimeConfig { cores: Some(first.clone()), ..RuntimeConfig::default() };
        run_with(config, move |platform| async move {
            let drive = platform.open_drive(&location).await.unwrap();
            drive.flush().await.unwrap();
            if drive.path() == DrivePath::Ring {
                let workers = cores_of_threads(&format!("iou-wrk-{own}"));
                assert!(
                    !workers.is_empty() && workers.iter().all(|cores| *cores == first.to_string()),
                    "{workers:?}"
                );
            }
        });
    });
    tested.join().unwrap();
}

/// The cores of this process's threads of a name.
fn cores_of_threads(name: &str) -> Vec<String> {
    let of = |status: &str, field: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        line.unwrap_or_default().trim().to_owned()
    };
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let told = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("status")).ok());
    told.filter(|status| of(status, "Name:") == name)
        .map(|status| of(&status, "Cpus_allowed_list:"))
        .collect()
}

#[test]
fn a_file_on_disk_through_a_tiny_ring() {
    let folder = disk_folder();
    let config = RuntimeConfig { ring_entries: 2, ..RuntimeConfig::default() };
    check_drive(&config, &location_in(&folder), ring_path());
}

#[test]
fn a_file_on_disk_without_io_uring() {
    let folder = disk_folder();
    check_drive(&without_ring(), &location_in(&folder), DrivePath::Threads);
}

#[test]
fn a_file_in_memory() {
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let location = location_in(&folder);
    check_drive(&RuntimeConfig::default(), &location, DrivePath::Memory);
    run(move |platform| async move {
        let drive = platform.open_drive(&location).await.unwrap();
        assert!(!drive.geometry().volatile_cache && !drive.is_direct());
    });
}

#[test]
fn a_memory_drive() {
    let memory = MemoryDrive::new("test", DRIVE_BYTES as u64).unwrap();
    assert_eq!(memory.size_bytes(), DRIVE_BYTES as u64);
    check_drive(&RuntimeConfig::default(), &memory.location(), DrivePath::Memory);
}

/// A container's filter that answers EPERM to io_uring_setup applies to this thread and those that
/// it starts.
#[test]
fn a_system_that_forbids_io_uring() {
    let checks = || {
        let rules = [(libc::SYS_io_uring_setup, Vec::new())].into_iter().collect();
        let eperm = seccompiler::SeccompAction::Errno(libc::EPERM as u32);
        let allow = seccompiler::SeccompAction::Allow;
        let machine = std::env::consts::ARCH.try_into().unwrap();
        let filter = seccompiler::SeccompFilter::new(rules, allow, eperm, machine).unwrap();
        let program: seccompiler::BpfProgram = filter.try_into().unwrap();
        seccompiler::apply_filter(&program).unwrap();
        let refusal = Ring::new(8, None).err().expect("the filter forbids it");
        assert_eq!(refusal.raw_os_error(), Some(libc::EPERM));
        let folder = disk_folder();
        check_drive(&RuntimeConfig::default(), &location_in(&folder), DrivePath::Threads);
    };
    std::thread::spawn(checks).join().unwrap();
}

#[test]
fn a_memory_drive_keeps_its_content_between_openings_and_shows_it_to_others() {
    let memory = MemoryDrive::new("kept", 1 << 20).unwrap();
    for round in 1..4_u8 {
        let location = memory.location();
        run(move |platform| async move {
            let drive = platform.open_drive(&location).await.unwrap();
            let former = drive.read(4096, platform.buffers().take(4096)).await.unwrap();
            assert!(former.iter().all(|byte| *byte == round - 1));
            drive.write(4096, vec![platform.buffers().copy_of(&[round; 4096]).freeze()]).await.unwrap();
        });
    }
    let command = format!("od -An -tu1 -j4096 -N1 {}", memory.location_for_others());
    let shown = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
    assert_eq!(String::from_utf8(shown.stdout).unwrap().trim(), "3");
}

#[test]
fn a_drive_is_used_at_the_end_of_the_turn() {
    let memory = MemoryDrive::new("order", 1 << 20).unwrap();
    run(move |platform| async move {
        let drive = platform.open_drive(&memory.location()).await.unwrap();
        let mut write = pin!(drive.write(0, vec![platform.buffers().copy_of(&[1; 4096]).freeze()]));
        assert!(write.as_mut().now_or_never().is_none());
        let first_byte = || std::fs::read(memory.location()).unwrap()[0];
        assert_eq!(first_byte(), 0, "the turn's messages go first");
        write.await.unwrap();
        assert_eq!(first_byte(), 1);
    });
}

#[test]
fn operations_of_one_turn_are_submitted_in_one_call() {
    if ring_path() != DrivePath::Ring {
        return;
    }
    let folder = disk_folder();
    let location = location_in(&folder);
    run(move |platform| async move {
        let drive = platform.open_drive(&location).await.unwrap();
        let before = platform.statistics().ring_submits;
        let reads = (0..32).map(|block| drive.read(block * 4096, platform.buffers().take(4096)));
        join_all(reads).await.into_iter().for_each(|read| drop(read.unwrap()));
        assert_eq!(platform.statistics().ring_submits - before, 1);
    });
}

#[test]
fn what_is_no_drive_is_refused_with_the_reason() {
    let folder = disk_folder();
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let cases = [
        (folder.path().join("missing"), "No such file"),
        (folder.path().to_path_buf(), "neither a file nor a block device"),
        (PathBuf::from("/dev/null"), "neither a file nor a block device"),
        (empty, "empty"),
    ];
    run(move |platform| async move {
        for (path, reason) in cases {
            let location = path.to_str().unwrap();
            let error = platform.open_drive(location).await.err().expect("it is no drive");
            assert_eq!((error.kind, error.operation), (DriveErrorKind::Unavailable, DriveOperation::Open));
            assert!(error.detail.contains(reason) && error.detail.contains(location), "{error}");
        }
    });
}

#[cfg(not(feature = "test-faults"))]
#[test]
fn planted_faults_are_not_for_programs_that_ship() {
    run(|platform| async move {
        let error = platform.open_drive("volatile:/dev/shm/x").await.err().unwrap();
        assert!(error.detail.contains("without the feature test-faults"), "{error}");
    });
}

#[test]
fn a_file_that_was_cut_short_fails_as_a_medium() {
    for config in [RuntimeConfig::default(), without_ring()] {
        let folder = disk_folder();
        let path = drive_file(&folder);
        run_with(config, move |platform| async move {
            let drive = platform.open_drive(path.to_str().unwrap()).await.unwrap();
            std::fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 20).unwrap();
            let across = drive.read((1 << 20) - 4096, platform.buffers().take(8192)).await;
            assert_eq!(across.unwrap_err().kind, DriveErrorKind::Medium);
            assert!(drive.read(0, platform.buffers().take(8192)).await.is_ok());
        });
    }
}

#[test]
fn creating_a_drive_file_overwrites_nothing_and_takes_no_room() {
    use std::os::unix::fs::MetadataExt;

    let folder = disk_folder();
    let path = folder.path().join("drive");
    create_drive_file(&path, 1 << 30).unwrap();
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!((metadata.len(), metadata.blocks()), (1 << 30, 0));
    assert!(create_drive_file(&path, 1 << 20).unwrap_err().detail.contains("exists"));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 1 << 30);
    for size_bytes in [0, 4095, 4097] {
        let error = create_drive_file(&folder.path().join("odd"), size_bytes).unwrap_err();
        assert_eq!(error.kind, DriveErrorKind::OutOfRange);
        assert!(MemoryDrive::new("odd", size_bytes).is_err());
    }
    assert!(!folder.path().join("odd").exists());

    preallocate(&path, 4096, 1 << 20).unwrap();
    let metadata = std::fs::metadata(&path).unwrap();
    assert_eq!(metadata.len(), 1 << 30, "its size stays");
    assert!(metadata.blocks() * 512 >= 1 << 20, "the room is set aside");
    preallocate(&path, 0, 0).unwrap();
    assert!(preallocate(&folder.path().join("missing"), 0, 4096).is_err());
}

#[test]
fn a_handle_that_outlives_its_runtime_is_harmless() {
    let memory = MemoryDrive::new("outlives", 1 << 20).unwrap();
    let location = memory.location();
    let (platform, drive) = run(|platform| async move {
        let drive = platform.open_drive(&location).await.unwrap();
        (platform, drive)
    });
    assert!(drive.flush().now_or_never().is_none());
    assert!(!platform.spawn(async {}).is_finished());
    assert_eq!(platform.statistics().drive_flushes, 1);
}

/// What a system command prints, if it succeeds. The tests that need more rights than they have
/// are left out with a note.
fn output_of(command: &mut std::process::Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success());
    output.map(|output| String::from_utf8(output.stdout).unwrap().trim().to_string())
}

/// A loop device, which goes with this value.
struct LoopDevice(String);

impl LoopDevice {
    fn over(file: &std::path::Path, sector_bytes: &str) -> Option<Self> {
        let mut command = std::process::Command::new("losetup");
        command.args(["--find", "--show", "--sector-size", sector_bytes]).arg(file);
        output_of(&mut command).map(Self)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let _ = std::process::Command::new("losetup").args(["--detach", &self.0]).status();
    }
}

#[test]
fn a_block_device() {
    for sector_bytes in ["512", "4096"] {
        let folder = disk_folder();
        let Some(device) = LoopDevice::over(&drive_file(&folder), sector_bytes) else {
            eprintln!("left out: loop devices cannot be set up here");
            return;
        };
        check_drive(&RuntimeConfig::default(), &device.0, ring_path());
        check_drive(&without_ring(), &device.0, DrivePath::Threads);
        let location = device.0.clone();
        let name = location.strip_prefix("/dev/").unwrap();
        let cache = std::fs::read_to_string(format!("/sys/block/{name}/queue/write_cache")).unwrap();
        let sector_bytes: u32 = sector_bytes.parse().unwrap();
        let expected = DriveGeometry {
            size_bytes: DRIVE_BYTES as u64,
            sector_bytes,
            volatile_cache: cache.trim() != "write through",
        };
        run(move |platform| async move {
            let drive = platform.open_drive(&location).await.unwrap();
            assert_eq!((drive.geometry(), drive.is_direct()), (expected, true));
            // Something else that claims the device whole, as a mount does.
            let exclusive = OFlags::RDONLY | OFlags::EXCL;
            let claim = || rustix::fs::open(&location, exclusive, rustix::fs::Mode::empty());
            assert_eq!(claim().err(), Some(rustix::io::Errno::BUSY));
            drop(drive);
            // Tests that start processes may keep ours a little longer.
            let claim = loop {
                match claim() {
                    Ok(claim) => break claim,
                    Err(error) => assert_eq!(error, rustix::io::Errno::BUSY),
                }
                platform.sleep(std::time::Duration::from_millis(1)).await;
            };
            let error = platform.open_drive(&location).await.err().unwrap();
            assert_eq!(error.kind, DriveErrorKind::InUse);
            drop(claim);
        });
    }
}

const SMALL_FOLDER: &str = "SPANDREL_TEST_SMALL_FOLDER";

/// Runs itself again in a namespace where it may mount a file system of one megabyte.
#[test]
fn a_full_file_system_says_so() {
    if let Ok(folder) = std::env::var(SMALL_FOLDER) {
        let path = PathBuf::from(folder).join("drive");
        create_drive_file(&path, 4 << 20).unwrap();
        assert_eq!(preallocate(&path, 0, 3 << 20).unwrap_err().kind, DriveErrorKind::NoRoom);
        run(move |platform| async move {
            let drive = platform.open_drive(path.to_str().unwrap()).await.unwrap();
            let large = || vec![platform.buffers().take_zeroed(2 << 20).freeze()];
            let error = drive.write(0, large()).await.unwrap_err();
            assert_eq!((error.kind, error.operation), (DriveErrorKind::NoRoom, DriveOperation::Write));
        });
        println!("\nfull");
        return;
    }
    let folder = disk_folder();
    let name = std::thread::current().name().unwrap().to_string();
    let script = format!(
        "mount -t tmpfs -o size=1M small '{}' && exec '{}' --exact {name} --nocapture",
        folder.path().display(),
        std::env::current_exe().unwrap().display(),
    );
    let in_namespace = |script: &str| {
        let mut command = std::process::Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]);
        command.env(SMALL_FOLDER, folder.path());
        command
    };
    if output_of(&mut in_namespace("true")).is_none() {
        eprintln!("left out: no namespace can be made here");
        return;
    }
    let output = output_of(&mut in_namespace(&script)).expect("the test in the namespace succeeds");
    assert!(output.lines().any(|line| line == "full"), "{output}");
}

/// A runtime in which the drive at `location` takes the time of a medium.
fn simulating(config: RuntimeConfig, location: &str, kind: MediumKind, scale: f64) -> RuntimeConfig {
    let simulated_media = [(location.to_owned(), SimulatedMedium { kind, scale })].into();
    RuntimeConfig { simulated_media, ..config }
}

/// A simulated disk keeps its content, and takes no less than a real one's time for it.
fn check_simulated_disk(config: RuntimeConfig, location: &str, path: DrivePath) {
    let config = simulating(config, location, MediumKind::Disk, 4.0);
    let location = location.to_owned();
    run_with(config, move |platform| async move {
        let drive = platform.open_drive(&location).await.unwrap();
        assert_eq!(drive.path(), path);
        assert!(drive.geometry().volatile_cache, "a disk has to be flushed, whatever it is on");
        let block = |byte: u8| platform.buffers().copy_of(&[byte; 4096]).freeze();
        let begin = platform.now();
        // Backwards, so that nothing just passes under the head.
        let offset = |number: u8| u64::from(15 - number) * (DRIVE_BYTES as u64 / 16);
        let writes = (0..10).map(|number| drive.write(offset(number), vec![block(number)]));
        join_all(writes).await.into_iter().for_each(Result::unwrap);
        drive.flush().await.unwrap();
        // Nine seeks across a sixteenth of the disk and more, each with half a turn, and a turn for the flush.
        let least_ms = 9.0 * (1.0 + 14.0 / 4.0 + 1000.0 / 240.0) + 1000.0 / 120.0;
        let taken_ms = platform.now().since(begin).as_secs_f64() * 1e3;
        assert!(taken_ms >= least_ms / 4.0, "{taken_ms} ms");
        for number in 0..10 {
            let read = drive.read(offset(number), platform.buffers().take(4096)).await.unwrap();
            assert!(read.iter().all(|byte| *byte == number));
        }
    });
}

#[test]
fn a_simulated_disk_takes_its_time() {
    let folder = disk_folder();
    let location = location_in(&folder);
    check_simulated_disk(RuntimeConfig::default(), &location, DrivePath::Ring);
    check_simulated_disk(without_ring(), &location, DrivePath::Threads);
    let memory = MemoryDrive::new("simulated", DRIVE_BYTES as u64).unwrap();
    check_simulated_disk(RuntimeConfig::default(), &memory.location(), DrivePath::Memory);
}

#[test]
fn simulated_flash_has_its_latency_for_each_and_its_rate_for_all() {
    let memory = MemoryDrive::new("simulated", DRIVE_BYTES as u64).unwrap();
    let location = memory.location();
    let config = simulating(RuntimeConfig::default(), &location, MediumKind::SataSsd, 0.5);
    run_with(config, move |platform| async move {
        let drive = platform.open_drive(&location).await.unwrap();
        assert!(!drive.geometry().volatile_cache);
        let begin = platform.now();
        for _ in 0..5 {
            drive.read(0, platform.buffers().take(4096)).await.unwrap();
        }
        let each = platform.now();
        assert!(each.since(begin).as_micros() >= 5 * 2 * 160);
        join_all((0..50).map(|_| drive.write(0, vec![platform.buffers().take_zeroed(4096).freeze()]))).await;
        assert!(platform.now().since(each).as_micros() >= 50 * 2 * 100);
    });
}

#[test]
fn what_a_simulated_drive_refuses_it_refuses_at_once() {
    let memory = MemoryDrive::new("simulated", DRIVE_BYTES as u64).unwrap();
    let location = memory.location();
    // So slow that nothing would ever be answered.
    let config = simulating(RuntimeConfig::default(), &location, MediumKind::Disk, 1e-12);
    run_with(config, move |platform| async move {
        let drive = platform.open_drive(&location).await.unwrap();
        let behind = drive.read(DRIVE_BYTES as u64, platform.buffers().take(4096)).await.unwrap_err();
        assert_eq!(behind.kind, DriveErrorKind::OutOfRange);
        // Done all the same, whether or not anybody waits for the answer.
        let mut write = pin!(drive.write(4096, vec![platform.buffers().copy_of(&[7; 4096]).freeze()]));
        assert!(write.as_mut().now_or_never().is_none());
        let memory = std::fs::File::open(&location).unwrap();
        let mut bytes = [0; 4096];
        while bytes != [7; 4096] {
            platform.sleep(std::time::Duration::from_millis(1)).await;
            std::os::unix::fs::FileExt::read_exact_at(&memory, &mut bytes, 4096).unwrap();
        }
        assert!(write.now_or_never().is_none());
    });
}

#[test]
fn whoever_reads_memory_on_and_on_lets_others_run() {
    const READ_BYTES: usize = 256 << 10;
    const READS: usize = 64;
    let memory = MemoryDrive::new("test", DRIVE_BYTES as u64).unwrap();
    let location = memory.location();
    run(|platform| async move {
        let drive = platform.open_drive(&location).await.unwrap();
        let mut buffer = platform.buffers().take(READ_BYTES);
        assert!(!drive.read_at_once(0, &mut buffer), "what was never written is read by a call");
        assert!(drive.write_at_once(0, &platform.buffers().take_zeroed(READ_BYTES).freeze()));
        let others = Rc::new(Cell::new(0));
        let (seen, same, mut block) = (Rc::clone(&others), drive.clone(), platform.buffers().take(4096));
        platform.spawn(async move {
            // In its turn: once in each.
            loop {
                block = same.read(0, block).await.unwrap();
                seen.set(seen.get() + 1);
            }
        });
        let mut at_once = 0;
        for _ in 0..READS {
            match drive.read_at_once(0, &mut buffer) {
                true => at_once += 1,
                false => buffer = drive.read(0, buffer).await.unwrap(),
            }
        }
        assert!(at_once > READS / 2, "{at_once} of {READS}");
        let turns_min = READS * READ_BYTES / BYTES_READ_AT_ONCE_MAX / 2;
        assert!(others.get() >= turns_min, "{} times", others.get());
    });
}

#[test]
fn what_is_written_at_once_is_read_back_either_way() {
    let memory = MemoryDrive::new("test", DRIVE_BYTES as u64).unwrap();
    let location = memory.location();
    run(|platform| async move {
        let drive = platform.open_drive(&location).await.unwrap();
        let content: Vec<u8> = (0..8192_u32).map(|index| (index % 251) as u8).collect();
        assert!(drive.write_at_once(4096, &platform.buffers().copy_of(&content).freeze()));
        let mut at_once = platform.buffers().take(8192);
        assert!(drive.read_at_once(4096, &mut at_once));
        let in_turn = drive.read(4096, platform.buffers().take(8192)).await.unwrap();
        assert!(at_once[..] == content[..] && in_turn[..] == content[..]);
        assert!(
            !drive.read_at_once(DRIVE_BYTES as u64 - 4096, &mut at_once),
            "it would end behind the drive"
        );
        let part = platform.buffers().take(8192).freeze();
        assert!(!drive.write_at_once(DRIVE_BYTES as u64 - 4096, &part));
        assert!(!drive.write_at_once(100, &part), "it is not aligned");
    });
}
