//! What QEMU is started with.
//!
//! Everything is said, and nothing is taken from QEMU's defaults, which change from version to version. Paths of sockets are
//! relative to the virtual machine's folder, in which the process is started: those of unix sockets must be short. A guest
//! begins only when it is told to over QMP, so whoever starts it knows that it was heard.

use std::path::Path;

use spandrel_cluster::VmBoot;
use spandrel_vm::VmSpec;

use crate::folder::{CONSOLE_LOG, CONSOLE_SOCKET, INCOMING_SOCKET, QMP_SOCKET};
use crate::probe::Accelerator;

/// How long a guest's I/O waits for the node's NBD server when that is away, before it fails and the guest is paused: longer
/// than any restart takes.
const RECONNECT_DELAY_S: u32 = 3600;

/// The arguments of QEMU for a virtual machine whose disk is served at `nbd_socket`.
pub fn arguments(spec: &VmSpec, accelerator: Accelerator, nbd_socket: &Path) -> Vec<String> {
    let mut line = Line::default();
    line.option("-name", format!("{},process=spandrel-vm", escaped(&spec.name)));
    line.option("-uuid", spec.disk.vm);
    line.flag("-no-user-config").flag("-nodefaults");
    line.option("-display", "none");
    line.option("-machine", format!("q35,accel={}", accelerator.qemu_name()));
    line.option("-cpu", accelerator.processor());
    line.option("-smp", spec.processors);
    line.option("-m", format!("{}M", spec.memory_bytes >> 20));
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
    line.option(
        "-blockdev",
        format!(
            "driver=nbd,node-name=disk,server.type=unix,server.path={},export={},reconnect-delay={RECONNECT_DELAY_S},\
             discard=unmap,detect-zeroes=unmap",
            escaped(&nbd_socket.display().to_string()),
            spec.disk
        ),
    );
    // A kernel that is given comes first by itself.
    let boots_first = if spec.boot == VmBoot::Disk { ",bootindex=0" } else { "" };
    line.option("-device", format!("virtio-blk-pci,drive=disk,werror=stop,rerror=stop{boots_first}"));
    line.option("-device", "virtio-rng-pci");
    line.option("-netdev", "user,id=network");
    line.option("-device", "virtio-net-pci,netdev=network,romfile=");
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
}

/// A value within a list of QEMU's, where a comma ends it.
fn escaped(value: &str) -> String {
    value.replace(',', ",,")
}

#[cfg(test)]
#[path = "command_line_tests.rs"]
mod tests;
