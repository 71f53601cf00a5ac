//! The owner of a volume: orders its writes, sends them to all copies, takes over and degrades.
//!
//! Reading order: [`BlockDevice`] (what a front-end sees), `owner` (the state and the rules),
//! `write`, `read` (and `hedge`), `takeover`, `settle`, `degrade`, `slow_legs` (and `pace`, `slow_drives`), `resync` (and
//! `missed`, `repair_turns`), `moves`, `scrub`, `lost`. [`OwnerContext`] is all that an owner knows of the world around it.

mod context;
mod degrade;
mod device;
mod few;
mod hedge;
mod idle_mark;
mod legs;
mod lost;
mod membership;
mod missed;
mod moves;
mod owner;
mod pace;
mod range_lock;
mod read;
mod repair_turns;
mod resync;
mod scrub;
mod settle;
mod slow_drives;
mod slow_legs;
mod statistics;
mod takeover;
mod told_once;
mod version_tracker;
mod write;

pub use context::{AskError, OwnerContext};
pub use device::{BlockDevice, DeviceError, DeviceErrorKind, DeviceLimits, Exports, Extent, OpenError};
pub use membership::{
    Leg, LegId, LegState, Member, Membership, MembershipChange, MembershipError, Unsettled,
};
pub use owner::{Owner, OwnerError, Phase};
pub use range_lock::{RangeGuard, RangeLocks};
pub use repair_turns::RepairTurns;
pub use resync::ResyncProgress;
pub use scrub::ScrubReport;
pub use slow_drives::{SlowDrive, SlowDrives};
pub use statistics::OwnerStatistics;
