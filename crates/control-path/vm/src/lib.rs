//! Virtual machines of a cluster: which node runs which, and what a node does about those that it runs.
//!
//! Nobody commands. What is to be stands in the cluster's state ([`spandrel_cluster::vms`]), and each node looks at that, at
//! the nodes that are alive, and at what runs on it, and takes the next steps by itself: [`plan`] says which. It claims
//! virtual machines that nobody runs, starts those that it has claimed, and ends whatever is not, or no longer, its own. What
//! starts and ends them is a [`hypervisor`], which the program chooses.
//!
//! What keeps a virtual machine from running twice is not in here: it is the claim, a transaction, and that a disk is opened
//! by the run of its claim ([`disk`]) and written to by one front-end at a time.

pub mod disk;
pub mod hypervisor;
pub mod plan;

pub use hypervisor::{Condition, Hypervisor, Instance, VmSpec};
pub use plan::{Planner, Sight, Step};
