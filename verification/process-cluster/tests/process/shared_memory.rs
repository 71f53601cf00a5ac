//! A guest whose memory is shared with what serves its disk.

use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use spandrel_process_cluster::{await_that, guest_with};

const DISK_BYTES: u64 = 64 << 20;

/// How much the guest writes between two kills, at least, in units of 512 bytes.
const WRITTEN_SECTORS: u64 = 256;

/// A process that is killed at the end, if not before.
struct Process(Child);

impl Process {
    fn start(command: &mut Command) -> Self {
        let program = command.get_program().to_owned();
        let child = command.stdin(Stdio::null()).spawn();
        Self(child.unwrap_or_else(|error| {
            panic!("{} cannot be run ({error}): `cargo xtask packages`", program.display())
        }))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(folder: &Path) -> Process {
    let mut disk = Command::new(env!("CARGO_BIN_EXE_spandrel-test-disk"));
    Process::start(disk.current_dir(folder).args(["disk.sock", "disk"]))
}

fn boot(folder: &Path, task: &str) -> Process {
    let files = guest_with(Path::new(env!("CARGO_BIN_EXE_spandrel-test-guest")));
    let console = File::create(folder.join("console")).expect("the folder is there");
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.current_dir(folder).stdout(console);
    qemu.args("-no-user-config -nodefaults -display none -serial stdio -m 128M -smp 1 -cpu max".split(' '));
    qemu.args(["-machine", "q35,accel=tcg,memory-backend=memory"]);
    qemu.args(["-object", "memory-backend-memfd,id=memory,size=128M,share=on"]);
    qemu.args(["-chardev", "socket,id=disk,path=disk.sock,reconnect=1"]);
    qemu.args(["-device", "vhost-user-blk-pci,chardev=disk,num-queues=1"]);
    qemu.arg("-kernel").arg(&files.kernel).arg("-initrd").arg(&files.initrd);
    Process::start(qemu.arg("-append").arg(spandrel_guest::arguments(task)))
}

#[test]
fn a_guest_goes_on_through_kills_of_what_serves_its_disk_and_all_that_it_wrote_is_there() {
    let folder = tempfile::tempdir().expect("there is room");
    let folder = folder.path();
    File::create(folder.join("disk")).and_then(|file| file.set_len(DISK_BYTES)).expect("there is room");
    let written = || std::fs::metadata(folder.join("disk")).expect("the file is there").blocks();
    let said = || std::fs::read_to_string(folder.join("console")).unwrap_or_default();
    let mut disk = serve(folder);
    await_that("a socket", || folder.join("disk.sock").exists());
    let _guest = boot(folder, "verify:12:7");
    for _ in 0..2 {
        let before = written();
        let is_under_way = || written() >= before + WRITTEN_SECTORS || said().contains("FAILED");
        await_that("a guest that writes", is_under_way);
        drop(disk);
        disk = serve(folder);
    }
    await_that("the guest's end", || said().contains("guest: verified") || said().contains("FAILED"));
    assert!(said().contains("guest: verified"), "{}", said());
}
