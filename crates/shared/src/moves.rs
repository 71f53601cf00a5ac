//! Copies that are to take the places of others.

use crate::geometry::SlabIndex;
use crate::identity::DriveId;

/// A copy of a slab that is to be built in the place of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// The slab.
    pub slab: SlabIndex,
    /// Whose place it is to take: the copy of this number, from zero.
    pub part: u8,
    /// The drive that is to hold it.
    pub to: DriveId,
}
