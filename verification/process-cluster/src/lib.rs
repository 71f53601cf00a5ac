//! The real program as a process: starts it, loads it, kills it, and judges what it has kept.
//!
//! - [`Cluster`] runs `spandrel up` in a directory of its own, and the commands against it.
//! - [`Servers`] runs a cluster of servers, each a process of its own with a member of etcd beside it.
//! - [`Networks`] put a network that can be cut between its servers.
//! - [`History`] knows what was written to each block of a volume and what was answered, and judges
//!   what each block holds: exactly the newest answered content, or a newer one that was asked for;
//!   whole, and of this block.
//! - [`HistoryClient`] writes to a volume with many requests under way, and reads it back; [`LoadThread`]
//!   has it do so on a thread of its own.
//! - [`guest_with`] builds what a virtual machine boots whose guest writes and checks.
//!
//! Invariants:
//! - No two writes of one block are under way at a time, so that "newest" has a meaning.
//! - What was read once is never allowed to go back.

mod cluster;
mod daemon;
mod external_etcd;
mod guest;
mod history;
mod history_client;
mod load_thread;
mod network;
mod program;
mod random;
mod servers;
mod stamp;
mod turn;
mod wait;

pub use cluster::{Cluster, ClusterOptions};
pub use daemon::{CommandOutput, Daemon, KillSwitch};
pub use external_etcd::ExternalEtcd;
pub use guest::guest_with;
pub use history::{History, Violation, ViolationKind};
pub use history_client::{HistoryClient, LoadEnd, LoadOptions, Meanwhile, Next};
pub use load_thread::LoadThread;
pub use network::{Network, Networks};
pub use program::Program;
pub use random::Random;
pub use servers::{PowerSwitch, Server, Servers, ServersOptions};
pub use stamp::{Content, Part, Stamp};
pub use wait::{await_that, comes_true};

/// Whether tests run at full length, as `SPANDREL_TEST_FULL=1` asks. Else at that of continuous integration.
pub fn is_full() -> bool {
    std::env::var_os("SPANDREL_TEST_FULL").is_some()
}
