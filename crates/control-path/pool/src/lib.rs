//! The pool: how much room the cluster has, and on which drives a volume's slabs go.
//!
//! Everything here is arithmetic on a [`PoolView`], a picture of the pool at one moment: the same
//! picture and the same request give the same plan. Room is counted in *slab copies*, the unit in
//! which drives promise it; what a drive's other bytes are used for stands in
//! docs/internals/space.md.
//!
//! - [`space`] says how much room there is, how much of it volumes of so many copies can use, and
//!   how much should stay free for repairs.
//! - [`plan`] places a new volume, [`growth`] the slabs by which one grows.
//! - [`evenness`] says how evenly drives are filled.
//! - [`moves`] says which copies should lie elsewhere, and where.

mod apportion;
mod domains;
pub mod evenness;
pub mod growth;
pub mod moves;
pub mod plan;
pub mod space;
#[cfg(test)]
mod testing;
mod turns;
pub mod view;

pub use evenness::{
    UNEVEN_PER_MILLE, copies_to_even_out, even_per_mille, is_settled, part_of_one, spread_per_mille,
};
pub use growth::{GrowthPlan, GrowthRequest, check_growth_size, plan_growth};
pub use moves::{
    MovesPlan, PlacedCopy, PlacedVolume, begin_moves, plan_apart, plan_balance, plan_replacements,
};
pub use plan::{Plan, VolumeRequest, Warning, plan_volume};
pub use space::{Demand, Shortage, Space, check_room_without};
pub use view::{DriveRoom, NodeRoom, PoolView};

#[cfg(test)]
mod document_tests;
