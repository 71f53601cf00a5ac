//! Virtual machines by QEMU: a process for each, told what to do over QMP, its disk over the node's own NBD socket or a socket of its own
//! over which the node shares the guest's memory.
//!
//! The processes outlive the program that has started them: whoever is started next in the same folder finds them by what
//! stands there, and looks after them. Each has a folder of its own, with its sockets, its console's log and what QEMU said.
//!
//! - [`command_line`]: what QEMU is started with.
//! - [`disk`]: disks that share their guests' memory.
//! - [`folder`]: the folder of a virtual machine, and which process it is.
//! - [`console`]: its serial console.
//! - [`machine`]: one virtual machine, from its start to its end.
//! - [`process`]: a process that may not be a child of this one.
//! - [`probe`]: whether hardware virtualization works, found out by a start.
//! - [`qemu`]: all virtual machines of a node.
//! - [`from_node`]: the same for a node's own threads, which know nothing of this program's runtime.
//!
//! Invariants:
//! - No process is signalled whose command line does not say that it is this virtual machine's: numbers of processes are used
//!   again.
//! - A virtual machine that was ended has no process any more.

pub mod command_line;
pub mod console;
pub mod disk;
pub mod folder;
pub mod from_node;
pub mod machine;
pub mod probe;
pub mod process;
pub mod qemu;

pub use console::VmConsole;
pub use disk::{ServeDisk, ServedDisk};
pub use from_node::{OpenOutgoing, Outgoing, QemuOfNode};
pub use probe::Emulator;
pub use qemu::{Qemu, QemuOptions};
