//! One node's copies: fences old owners, applies writes, answers for what it has.
//!
//! A [`Replica`] holds the drives of a node. Owners of volumes, on this node or another, ask it
//! with [`ReplicaRequest`]s: directly, or carried by the bus. It knows nothing of other nodes.
//!
//! Invariants:
//! - A request under an epoch below the highest one accepted for its volume is refused; a change
//!   is refused as well if its epoch was never announced by a fence.
//! - An accepted epoch is durable on every drive that holds a copy of the volume before the fence
//!   is answered, and so is every change that was accepted before it.
//! - A request for another incarnation of a copy than the one that is there is refused.

mod copies;
mod replica;
mod request;

pub use replica::{CopyDescription, CopyWrite, Replica};
pub use request::{
    Authority, BlockState, ContentDigest, CopyAddress, GatheredCopy, Heeded, ListedWrite, Mark, NewCopy,
    PageState, PartDescription, ReplicaError, ReplicaRequest, ReplicaResponse,
};
