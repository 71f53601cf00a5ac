//! One node, put together from the parts, for any platform: the program runs it on Linux, the
//! simulator in its worlds.
//!
//! So far: [`liveness`], which moves heartbeats and promises between nodes.

pub mod liveness;
