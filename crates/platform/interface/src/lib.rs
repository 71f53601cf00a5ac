//! What the data path and the control path ask of the machine they run on.
//!
//! Everything that is not pure logic (drives, connections, time, randomness, tasks) comes
//! from a [`Platform`]. There are two makes of it: `platform/linux`, the real machine, and
//! `platform/simulated`, a deterministic world with faults. Code that names only this crate
//! runs unchanged in both, which is what lets the simulator test what ships.
//!
//! Invariants:
//! - Everything here lives on one thread. A platform handle, its buffers and its futures are
//!   `!Send`; only wakers may cross threads.
//! - A future that is dropped may leave its operation running (a drive write that was
//!   submitted stays submitted); it never leaves memory that the operation still uses.
//! - No method blocks the thread. What takes time returns a future.
//! - `unsafe` code is in two modules alone: `executor::wakers`, whose pointers are numbers that nobody follows, and `prefetch`.

mod buffer;
mod clock;
mod drive;
mod executor;
mod link;
#[allow(unsafe_code)]
mod prefetch;
mod receive_buffer;
pub mod sync;
mod workers;

use std::future::Future;
use std::time::Duration;

pub use buffer::{BLOCK_BYTES, Buffer, BufferMut, BufferPool};
pub use clock::{Instant, UnixTime};
pub use drive::{Drive, DriveError, DriveErrorKind, DriveGeometry, DriveOperation};
pub use executor::{Executor, TaskHandle, Unpark};
pub use link::{Address, Connection, LinkError, Listener};
pub use prefetch::prefetch;
pub use receive_buffer::ReceiveBuffer;
pub use workers::Workers;

/// A machine to run on: the one parameter of all logic in the data path and control path.
///
/// Handles are cheap to clone; all clones name the same machine and the same thread.
pub trait Platform: Clone + 'static {
    /// A drive of this machine.
    type Drive: Drive;
    /// A byte stream to another process.
    type Connection: Connection;
    /// A place where connections arrive.
    type Listener: Listener<Connection = Self::Connection>;
    /// A connection on its way to another thread of this process.
    type Detached: 'static;

    /// The time since this machine started, suspend included (CLOCK_BOOTTIME).
    fn now(&self) -> Instant;

    /// The time of day, for records that people read. Never for ordering or for promises.
    fn unix_time(&self) -> UnixTime;

    /// Completes at `deadline` or a little later, never before.
    fn sleep_until(&self, deadline: Instant) -> impl Future<Output = ()> + 'static;

    /// Completes after `duration`.
    fn sleep(&self, duration: Duration) -> impl Future<Output = ()> + 'static {
        self.sleep_until(self.now() + duration)
    }

    /// Runs `task` on this thread, from the next turn on, until it completes or is aborted.
    fn spawn(&self, task: impl Future<Output = ()> + 'static) -> TaskHandle;

    /// Sixty-four random bits. Reproducible in a simulation.
    fn random_u64(&self) -> u64;

    /// The pool that all block buffers of this thread come from.
    fn buffers(&self) -> &BufferPool;

    /// Opens the drive at `location`: a path on Linux, a name in a simulation.
    fn open_drive(&self, location: &str) -> impl Future<Output = Result<Self::Drive, DriveError>>;

    /// Connects to `address`. Waits no longer than the machine's own connect timeout.
    fn connect(&self, address: &Address) -> impl Future<Output = Result<Self::Connection, LinkError>>;

    /// Starts to listen on `address`.
    fn listen(&self, address: &Address) -> Result<Self::Listener, LinkError>;

    /// Takes a connection off this thread, for another one of this process to go on with. None of its clones is of any use
    /// afterwards. It stays, and the answer is none, while something that was sent has not left, or if it has a state that
    /// cannot be carried along, as an encrypted one has.
    fn detach(&self, connection: &Self::Connection) -> Option<Self::Detached>;

    /// Goes on with a connection that was detached by this platform or by that of another thread of this process.
    fn attach(&self, detached: Self::Detached) -> Result<Self::Connection, LinkError>;
}

/// Runs `future`, but no longer than until `deadline`.
///
/// `None` means that the deadline came first; `future` is dropped then.
pub async fn before<P: Platform, F: Future>(platform: &P, deadline: Instant, future: F) -> Option<F::Output> {
    let sleep = std::pin::pin!(platform.sleep_until(deadline));
    let future = std::pin::pin!(future);
    match futures_util::future::select(future, sleep).await {
        futures_util::future::Either::Left((output, _)) => Some(output),
        futures_util::future::Either::Right(((), _)) => None,
    }
}
