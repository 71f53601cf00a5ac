//! The shipping code in simulated worlds: clusters that crash, lose power and messages, and checkers
//! that can fail.

#[cfg(test)]
mod cruelty;
pub mod history;
pub mod nodes;
pub mod owners;
pub mod register;
