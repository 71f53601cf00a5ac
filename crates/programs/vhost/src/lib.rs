//! vhost-user: a disk whose guest's memory this process shares, so that its requests are read and answered where they lie.
//!
//! A machine (QEMU) connects to a socket of its own and says where its guest's memory and queues are. That is heard by a thread for
//! each disk, which waits for the next word as a rule. The queues are served by the thread of the shard that the machine's node has:
//! the same one that does everything else of the disk.
//!
//! - [`server`]: the socket, and the connections to it.
//! - `control`: what a machine says of its queues and its memory.
//! - `device`: the queues of a connection, on the shard's thread.
//! - `record`: which requests are under way, kept where it outlives this process.
//! - `memory`: the guest's memory.
//! - `dirty_log`: which pages of it were changed, while the machine sends them elsewhere.
//!
//! Invariants:
//! - A request that was begun is answered, by this process or by the next one that the machine connects to.
//! - A queue that the machine was told to have stopped is not touched any more.
//! - Memory that could go away under this process is refused.
//! - While the machine wants to know what changes in the guest's memory, it learns of each page, behind the change.

mod control;
mod device;
mod dirty_log;
mod memory;
mod record;
pub mod server;

pub use control::QUEUES_MAX;
pub use server::{DiskServer, DiskTask, OpenDisk};
