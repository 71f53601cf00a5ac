//! The shipping code in simulated worlds: clusters that crash, lose power and messages, and checkers
//! that can fail.

pub mod history;
pub mod nodes;
pub mod owners;
pub mod register;
