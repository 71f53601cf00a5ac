//! The report of runs: one page that needs no network, with the tables and figures of the published reference architectures.
//!
//! Reading order: `metric` (what is compared), `block` (cells that belong together), `summary` (what stands out, in words),
//! `tables`, `figures`, `economics` (what follows from prices and endurances), `page` (all of it as HTML).
//!
//! Invariants:
//! - Every number comes from what was measured, or is marked as derived. What was not measured is left out, never zero.
//! - The page holds all the numbers of its figures as data: who doubts a figure can read it.

mod block;
mod economics;
mod figures;
mod metric;
mod page;
mod summary;
mod tables;
#[cfg(test)]
mod testing;

pub use economics::Economics;
pub use page::{ReportOptions, render};
