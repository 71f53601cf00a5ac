//! virtio-blk: requests that a guest leaves in a queue in its own memory, done and answered there.
//!
//! How the guest's memory is reached, how either side wakes the other, and who agrees with the guest's machine on all that is not
//! known here: whoever serves a queue brings a [`GuestSide`].
//!
//! - `config`: what a guest is told of its disk.
//! - `chain`: the memory of a request.
//! - `request`: what a request asks for, and doing it.
//! - `queue`: the queue, from which requests are taken, and in which they are answered.

mod chain;
mod config;
mod queue;
mod request;
#[cfg(test)]
mod testing;

pub use config::{CONFIG_BYTES, QUEUE_SIZE_MAX, config_space, features, has_event_index};
pub use queue::{GuestSide, QueueSetup, VirtioQueue};
pub use request::SERIAL_BYTES;
