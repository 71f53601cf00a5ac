//! Load in guests: a virtual machine has a load generator of its own, which does there what the fleet says and sends back what it
//! has counted.
//!
//! Both sides speak over a serial port of the virtual machine, which is a socket for the fleet. Latencies are those that the guest
//! sees, by its own clock: what its processor, its kernel and the bus of its disk add is in them. Each cell is a session of its own;
//! whatever is left of an earlier one is not heard.
//!
//! - [`words`]: what they say.
//! - [`load`]: the fleet's side, a client among others.
//! - [`agent`]: the guest's side.

mod agent;
mod load;
mod words;

pub use agent::GuestAgent;
pub(crate) use load::{GuestLoad, GuestSession};
pub(crate) use words::{GuestCost, Preparation};
