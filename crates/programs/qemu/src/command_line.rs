//! What QEMU is started with.
//!
//! Everything is said, and nothing is taken from QEMU's defaults, which change from version to version. Paths of sockets are
//! relative to the virtual machine's folder, in which the process is started: those of unix sockets must be short. A guest
//! begins only when it is told to over QMP, so whoever starts it knows that it was heard.

use std::path::Path;

use spandrel_cluster::{VmBoot, VmDiskBus};
use spandrel_vm::VmSpec;
use spandrel_vm::disk::DiskName;

use crate::folder::{CONSOLE_LOG, CONSOLE_SOCKET, DISK_SOCKET, INCOMING_SOCKET, LOAD_SOCKET, QMP_SOCKET};
use crate::probe::{Accelerator, Emulator, QemuVersion};

/// How long a guest's I/O waits for the node's NBD server when that is away, before it fails and the guest is paused: longer
/// than any restart takes.
const RECONNECT_DELAY_S: u32 = 3600;

/// How often QEMU tries to reach its disk while the node is away that shares the guest's memory, in seconds.
const RECONNECT_S: u32 = 1;

/// The first version that is told so in milliseconds. Later ones are not told in seconds any more.
const RECONNECTS_IN_MILLISECONDS: QemuVersion = QemuVersion(9, 2);

/// The most queues of a disk that shares the guest's memory.
pub const QUEUES_MAX: u16 = 8;

/// The name of the serial port by which a guest's load generator is reached.
pub const LOAD_PORT: &str = "spandrel.load";

/// The arguments of QEMU for a virtual machine whose disk is served at `nbd_socket`, if not within its folder.
pub fn arguments(spec: &VmSpec, emulator: Emulator, nbd_socket: &Path) -> Vec<String> {
    let accelerator = emulator.accelerator;
    let mut line = Line::default();
    line.option("-name", format!("{},process=spandrel-vm", escaped(&spec.name)));
    line.option("-uuid", spec.disk.vm);
    line.flag("-no-user-config").flag("-nodefaults");
    line.option("-display", "none");
    let shares_memory = spec.disk_bus == VmDiskBus::VhostUser;
    let memory_kibibytes = (spec.memory_bytes >> 10) + odd_kibibytes(accelerator);
    let memory = if shares_memory { ",memory-backend=memory" } else { "" };
    line.option("-machine", format!("q35,accel={}{memory}", accelerator.qemu_name()));
    if shares_memory {
        let memory = format!("memory-backend-memfd,id=memory,size={memory_kibibytes}K,share=on");
        line.option("-object", memory);
    }
    line.option("-cpu", accelerator.processor());
    line.option("-smp", spec.processors);
    line.option("-m", format!("{memory_kibibytes}K"));
    // What the guest has done to itself is asked for, and not guessed from how the process has ended.
    line.flag("-no-shutdown");
    line.flag("-S");
    line.option("-chardev", format!("socket,id=qmp,path={QMP_SOCKET},server=on,wait=off"));
    line.option("-mon", "chardev=qmp,mode=control");
    line.option(
        "-chardev",
        format!("socket,id=console,path={CONSOLE_SOCKET},server=on,wait=off,logfile={CONSOLE_LOG}"),
    );
    line.option("-serial", "chardev:console");
    line.disk(spec, emulator.version, nbd_socket);
    line.option("-device", "virtio-rng-pci");
    line.option("-netdev", "user,id=network");
    line.option("-device", "virtio-net-pci,netdev=network,romfile=");
    line.option("-device", "virtio-serial-pci");
    line.option("-chardev", format!("socket,id=load,path={LOAD_SOCKET},server=on,wait=off"));
    line.option("-device", format!("virtserialport,chardev=load,name={LOAD_PORT}"));
    if spec.is_arriving {
        line.option("-incoming", format!("unix:{INCOMING_SOCKET}"));
    }
    if let VmBoot::Kernel { kernel, initrd, arguments } = &spec.boot {
        line.option("-kernel", kernel);
        if let Some(initrd) = initrd {
            line.option("-initrd", initrd);
        }
        line.option("-append", arguments);
    }
    line.0
}

/// What a machine's memory is larger by, in KiB.
///
/// Where QEMU translates, it has to be told of a page that is sent before it notes the next change of that page. For memory of a multiple of
/// 256 KiB, versions before 9.0 forget that, so a machine that moves can lose what its guest writes meanwhile. With anything else they go
/// through it page by page, and tell of each. Other versions have the same, as both sides of a move need to.
fn odd_kibibytes(accelerator: Accelerator) -> u64 {
    match accelerator {
        Accelerator::Kvm => 0,
        // QEMU rounds up to this.
        Accelerator::Tcg => 8,
    }
}

/// A command line under construction.
#[derive(Default)]
struct Line(Vec<String>);

impl Line {
    fn flag(&mut self, name: &str) -> &mut Self {
        self.0.push(name.to_owned());
        self
    }

    fn option(&mut self, name: &str, value: impl ToString) {
        self.flag(name).0.push(value.to_string());
    }

    fn disk(&mut self, spec: &VmSpec, version: QemuVersion, nbd_socket: &Path) {
        // A kernel that is given comes first by itself.
        let boots_first = if spec.boot == VmBoot::Disk { ",bootindex=0" } else { "" };
        match spec.disk_bus {
            VmDiskBus::Nbd => {
                let server = escaped(&nbd_socket.display().to_string());
                let disk = format!(
                    "driver=nbd,node-name=disk,server.type=unix,server.path={server},{},reconnect-delay={RECONNECT_DELAY_S},\
                     discard=unmap,detect-zeroes=unmap",
                    nbd_export(spec.disk)
                );
                self.option("-blockdev", disk);
                self.option(
                    "-device",
                    format!("virtio-blk-pci,drive=disk,werror=stop,rerror=stop{boots_first}"),
                );
            }
            VmDiskBus::VhostUser => {
                let id = shared_disk(spec.disk);
                let reconnect = if version < RECONNECTS_IN_MILLISECONDS {
                    format!("reconnect={RECONNECT_S}")
                } else {
                    format!("reconnect-ms={}", RECONNECT_S * 1000)
                };
                self.option("-chardev", format!("socket,id={id},path={DISK_SOCKET},{reconnect}"));
                let queues = spec.processors.min(QUEUES_MAX);
                let device = format!("vhost-user-blk-pci,chardev={id},num-queues={queues}{boots_first}");
                self.option("-device", device);
            }
        }
    }
}

/// How a disk is named that is served over NBD.
fn nbd_export(disk: DiskName) -> String {
    format!("export={disk}")
}

/// What the connection to a disk is called that shares the guest's memory. Both sides of a move may call it as they like.
fn shared_disk(disk: DiskName) -> String {
    format!("disk-{}-{}", disk.vm, disk.run)
}

/// Whether a process with these arguments runs the virtual machine of this disk, for this run.
pub fn is_of<'w>(words: impl IntoIterator<Item = &'w [u8]>, disk: DiskName) -> bool {
    let marks = [format!(",{},", nbd_export(disk)), format!(",id={},", shared_disk(disk))];
    let contains = |word: &[u8], mark: &String| word.windows(mark.len()).any(|part| part == mark.as_bytes());
    words.into_iter().any(|word| marks.iter().any(|mark| contains(word, mark)))
}

/// A value within a list of QEMU's, where a comma ends it.
fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
#[path = "command_line_tests.rs"]
mod tests;
