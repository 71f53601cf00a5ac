//! A simulated make of the platform: hosts, processes, drives and networks in one deterministic
//! world, with faults.
//!
//! A [`World`] is a seed, a virtual clock and everything that lives on it. The code that ships
//! runs in it unchanged, through [`SimulatedPlatform`]; a test breaks things from outside and looks
//! at what the code makes of it. One seed and one program replay a run exactly, on any machine:
//! [`World::trace_hash`] tells whether they did.
//!
//! # Time
//!
//! Computing takes no time; waiting does. A world moves its clock to the next event when no
//! process has anything to run. A host's monotonic clock runs at its own rate (within the drift of
//! the settings), starts anywhere, begins again at each boot, and never goes back between; the
//! time of day may jump. A sleeper never wakes early by its host's clock, and up to the slack of
//! the settings late. A process may pause at any moment for any time.
//!
//! # Processes
//!
//! [`Process::crash`] drops every task where it stands. The host's kernel lives on:
//! - What the process had queued on connections is lost. What had left arrives, whole or (if the
//!   connection ends as broken) in some first part. The peers see the end of the stream in order,
//!   or a broken connection, after the network's delay.
//! - Writes in flight on drives are kept, lost or torn; what had completed is kept.
//! - Its drives and addresses are free for the next incarnation.
//!
//! [`Host::power_cut`] ends all processes of a host without a word. Who is connected to them
//! hears nothing; once the host has power again, what is sent to it is answered by a broken
//! connection. Its drives lose what they may.
//!
//! # Drives
//!
//! A write that completed is seen by every later read. With a volatile cache it survives a power
//! cut for certain only when a flush that began after its completion has completed. Every other
//! write, completed or in flight, is decided sector by sector, independently of all others: kept or
//! lost, so that it may also be torn, and later writes may be kept while earlier ones are lost.
//! A sector is never torn. Where writes to one sector overlap, the later one wins if both are
//! kept. Without a volatile cache only writes in flight are open.
//!
//! On demand a [`SimulatedDrive`] flips bits, loses or misdirects writes, fails reads, writes and
//! flushes, has no room, is slow, silent or dead, is pulled out and put elsewhere, or shows an old
//! image. A write that fails may have happened, in part or whole. After a crash a test can see
//! every content that is possible ([`SimulatedDrive::crash_image`]) and go on from any of them.
//!
//! # Network
//!
//! Connections are ordered and reliable while they last; between connections there is no order.
//! Delays are drawn per segment. A link (one direction between two hosts on one network) that is
//! cut delivers nothing and refuses nothing: senders fill their socket buffers, connects time out,
//! and after the healing everything continues that did not break meanwhile. Receivers get bytes in
//! pieces of any size. There is no keepalive: an idle connection to a host that is gone stays
//! silent for ever.
//!
//! # Example
//!
//! Every content that a power cut may leave, at every write and flush of a workload:
//!
//! ```
//! use spandrel_platform::{Drive, Platform};
//! use spandrel_platform_simulated::{
//!     CrashMoment, CrashPlan, CrashScope, Random, RunEnd, SimulatedDriveConfig, World,
//! };
//!
//! for operation in 1.. {
//!     let world = World::new(operation);
//!     let drive = world.add_drive("drive", SimulatedDriveConfig::default());
//!     drive.crash_at(CrashPlan {
//!         operation,
//!         moment: CrashMoment::AfterSubmission,
//!         scope: CrashScope::Host,
//!     });
//!     let process = world.process("store");
//!     let platform = process.platform();
//!     let end = process.block_on(async move {
//!         let drive = platform.open_drive("drive").await.expect("it is free");
//!         let block = platform.buffers().copy_of(&[7; 512]).freeze();
//!         drive.write(0, vec![block.clone()]).await.expect("no fault is armed");
//!         drive.flush().await.expect("no fault is armed");
//!         drive.write(0, vec![block]).await.expect("no fault is armed");
//!     });
//!     if end.is_ok() {
//!         break;
//!     }
//!     assert_eq!(end, Err(RunEnd::CrashPoint("drive".to_owned())));
//!     for image in drive.crash_images(12, 100, &Random::new(operation)) {
//!         // A new world, whose drive holds what is left: here the code under test would recover.
//!         let world = World::new(operation);
//!         let drive = world.add_drive_from_image("drive", SimulatedDriveConfig::default(), image);
//!         let first = drive.snapshot().read_vec(0, 1)[0];
//!         assert!(first == 7 || (first == 0 && operation <= 2));
//!     }
//! }
//! ```
//!
//! # Not simulated
//!
//! CPU time; memory pressure; sectors that are torn within; drives that reorder against a flush or
//! lie about one (a lost write comes near); TCP's own time-outs on connections that are open.
//!
//! # Invariants
//!
//! - Nothing depends on addresses, hash seeds, threads or the machine's clock.
//! - A process that has ended has no effect on anything any more.
//! - An event costs at most logarithmic time in what the world holds. Only faults look at
//!   everything.

mod byte_queue;
mod config;
mod connection;
mod digest;
mod drive;
mod drive_control;
mod drive_faults;
mod events;
mod host;
mod image;
mod listener;
mod network;
mod overlaps;
mod platform;
mod process;
mod random;
mod storage;
mod trace;
mod world;

pub use config::{NetworkConfig, RunLimits, TurnOrder, WorldConfig};
pub use connection::SimulatedConnection;
pub use drive::{OpenDrive, SimulatedDriveConfig};
pub use drive_control::{CrashMoment, CrashPlan, CrashScope, SimulatedDrive};
pub use drive_faults::{DriveCounters, Repeat, Room};
pub use host::Host;
pub use image::DriveImage;
pub use listener::SimulatedListener;
pub use network::NetworkCounters;
pub use platform::SimulatedPlatform;
pub use process::Process;
pub use random::{DelayRange, Random};
pub use storage::{SectorChoice, UnflushedWrite};
pub use world::{RunEnd, World};
