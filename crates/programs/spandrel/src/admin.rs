//! Administering a cluster: what can be asked of it, and how.
//!
//! Reading order: [`api`] (paths and forms), [`administration`] (what is done when something is asked), [`nodes`]
//! (whom it asks in turn), [`picture`] (from facts to forms), [`server`] (HTTP in front of it), [`http`] and
//! [`client`] (asking).

pub mod administration;
pub mod api;
pub mod client;
pub mod counters;
pub mod http;
pub mod nodes;
pub mod picture;
pub mod retire;
pub mod server;
