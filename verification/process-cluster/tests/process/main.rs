//! Tests of the real program as processes, and of what judges these.
//!
//! All are one program: so two of them run beside each other from the first to the last, and it is linked once. A name in
//! front of `::` picks a module, as in `cargo test -p spandrel-process-cluster --test process -- servers::`.

mod amplification;
mod cache_drives;
mod crash;
mod damage;
mod external_state;
mod fleet_runs;
mod growth;
mod guests;
mod history;
mod membership;
mod moves;
mod operations;
mod partitions;
mod pauses;
mod real_clients;
mod recovery;
mod repair;
mod restart;
mod scrub;
mod servers;
mod shards;
mod shared_memory;
mod stamp;
mod state_requests;
mod strangers;
mod top;
