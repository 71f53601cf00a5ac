//! The shipping code in simulated worlds: clusters that crash, lose power and messages, and checkers
//! that can fail.
//!
//! Reading order: [`shape`] (what a seed draws), [`faults`] (what breaks, and what is promised),
//! [`nodes`] (the servers), [`clients`] and [`history`] (what is asked and answered), [`run`] (one
//! run from start to verdict), [`checkers`] (what must hold), [`measurement`] (what operations cost),
//! [`scale`] (what size costs).
//! `owners` is a smaller world, of owners without nodes, for rules that need a hand on single requests.

// The futures of a whole cluster are nested deeply: those of clients hold those of owners, replicas and drives.
#![recursion_limit = "256"]

pub mod campaign;
pub mod canaries;
pub mod checkers;
pub mod clients;
pub mod faults;
#[cfg(test)]
mod guests;
pub mod history;
pub mod inspection;
pub mod labels;
pub mod logbook;
pub mod measurement;
pub mod nodes;
pub mod owners;
pub mod register;
pub mod report;
pub mod run;
pub mod scale;
pub mod scenarios;
pub mod shape;
pub mod shorten;
