//! Administering a cluster: what can be asked of it, and how.
//!
//! Reading order: [`api`] (paths and forms), [`administration`] (what is done when something is asked; [`volumes`],
//! [`maintenance`] of nodes, [`access`], and [`retire`] for drives that leave), [`nodes`] (whom it asks in turn),
//! [`picture`] (from facts to forms; [`pool`] of the pool as a whole, [`scrub`] of checking volumes, [`safety`] of whether
//! a node may be switched off, [`stakes`] of what hangs on drives, [`explain`] of why something is as it is, [`faults`] of
//! what is the matter, [`events`] of when that begins and ends), [`servers`] (the processes and their program), [`top`] (how busy
//! it is), [`server`] (HTTP in front of it), [`http`] and [`client`] (asking).

pub mod access;
pub mod administration;
pub mod api;
pub mod caches;
pub mod client;
pub mod counters;
pub mod events;
pub mod explain;
mod explain_cache;
pub mod faults;
pub mod http;
pub mod maintenance;
pub mod named_drive;
pub mod nodes;
pub mod picture;
pub mod pool;
pub mod retire;
pub mod safety;
pub mod scrub;
pub mod server;
pub mod servers;
pub mod stakes;
#[cfg(test)]
pub(crate) mod testing;
pub mod top;
mod vm_requests;
pub mod vms;
pub mod volumes;
