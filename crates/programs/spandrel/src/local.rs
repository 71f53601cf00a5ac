//! `spandrel up`: a cluster of several nodes in this process.
//!
//! Reading order: [`settings`] (what such a cluster consists of), [`media`] (whose time its drives take), [`claim`]
//! (taking its directory), [`cluster`] (its nodes), [`up`] (running it in the foreground).

pub mod claim;
pub mod cluster;
pub mod flush;
pub mod media;
pub mod settings;
pub mod up;
