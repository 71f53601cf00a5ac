//! What a virtual machine speaks to: block protocols, translated into requests to a volume.
//!
//! A front-end takes a guest's requests off a connection, checks them, hands them to a
//! [`BlockDevice`](spandrel_volume::BlockDevice) and sends the answers back. It keeps no data:
//! what it answers, the volume has answered before.

mod in_flight;
mod nbd;
mod statistics;
#[cfg(test)]
mod testing;
pub mod virtio;

pub use nbd::{Exchange, NbdConfig, NbdServer};
pub use statistics::FrontendStatistics;
