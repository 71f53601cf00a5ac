//! The shipping code in simulated worlds: clusters that crash, lose power and messages, and checkers
//! that can fail.

pub mod owners;
pub mod register;
