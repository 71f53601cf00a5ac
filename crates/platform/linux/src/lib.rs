//! The real machine: the make of [`spandrel_platform::Platform`] that ships.
//!
//! Each shard thread makes one [`Runtime`] and runs its tasks in [`Runtime::block_on`]; the tasks
//! use the [`LinuxPlatform`]. Other threads reach the shard through its [`RemoteHandle`]. Sockets are
//! served by epoll, drives by io_uring, by plain calls where the drive is in memory, or by threads
//! where io_uring is forbidden; see `runtime` for the loop and `drive` for that choice.
//!
//! Invariants:
//! - Nothing on a shard's thread waits in the kernel except the loop itself.
//! - `unsafe` code is in five modules alone: `ring`, for memory that the kernel fills while nobody looks; `drive::mapped`, for
//!   drives in memory; `allocator`; `scheduling`, for a call that no library wraps; and `time_stamp`, for an instruction.

#[allow(unsafe_code)]
mod allocator;
mod batch;
mod connect;
mod connection;
mod cores;
mod door;
mod drive;
mod listener;
mod mailbox;
mod memory_stream;
mod platform;
mod reactor;
mod remote;
#[allow(unsafe_code)]
mod ring;
mod runtime;
#[allow(unsafe_code)]
mod scheduling;
mod send_queue;
mod shard;
mod socket;
mod spin;
mod statistics;
mod table;
#[cfg(test)]
mod test_support;
#[allow(unsafe_code)]
mod time_stamp;
mod timers;
mod transport;
mod watched;

pub use allocator::Allocator;
pub use connection::{DetachedConnection, LinuxConnection};
pub use cores::Cores;
pub use drive::{
    DrivePath, LinuxDrive, MediumKind, MemoryDrive, SimulatedMedium, create_drive_file, preallocate,
};
pub use listener::LinuxListener;
pub use platform::LinuxPlatform;
pub use remote::RemoteHandle;
pub use runtime::{Runtime, RuntimeConfig, RuntimeError};
pub use scheduling::run_when_idle;
pub use statistics::RuntimeStatistics;
pub use time_stamp::time_stamp_khz;
pub use watched::Watched;
