//! What the tests of this crate share: an NBD server that does as it is told, worlds where every
//! latency is known, and loads that run there.

mod server;
mod worlds;

pub(crate) use server::{Answer, Asked, Behaviour, LinuxServer, TestServer};
pub(crate) use worlds::{NETWORK_DELAY, World};
