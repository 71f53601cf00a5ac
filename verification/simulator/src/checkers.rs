//! What must always be true, one checker in each module. A checker says what is wrong; it never repairs
//! or explains away.
//!
//! | promise | who checks it |
//! |---|---|
//! | a read returns the newest answered write, or a newer one | `history`, `register` |
//! | after a power cut of all servers every answered write is there | the same, over the cut |
//! | a block is never torn | `history` |
//! | two nodes never both complete changes of a volume | [`one_owner`] |
//! | copies that are in sync and idle are the same | [`same_copies`] |
//! | damage is found, healed and reported | [`damage`] |
//! | the scrub that goes on by itself finds damage and differences, heals and counts them | [`scrubbed`] |
//! | what a drive knows to have lost is healed by itself | [`known_lost`] |
//! | an owner leaves no copy out that counts as in sync | [`counted_in_sync`] |
//! | the last good copy is never dropped | [`last_copy`] |
//! | the system comes back to full redundancy by itself, and ends what makes a volume larger | [`redundancy`] |
//! | a volume never becomes smaller, and is as large as somebody was told | [`growth`] |
//! | copies are in different sites, racks and chassis, as far as there is room | [`apart`] |
//! | what stands on the drives is consistent | [`structure`] |
//! | cache drives keep areas of drives that are bound to them, and of no others | [`areas`] |
//! | per operation, round trips, drive writes and flushes are those of the performance model | [`performance`] |
//! | what a crash has left is recovered to a consistent state, for good | [`recovery`] |

pub mod apart;
pub mod areas;
pub mod counted_in_sync;
pub mod damage;
pub mod growth;
pub mod known_lost;
pub mod last_copy;
pub mod one_owner;
pub mod performance;
pub mod recovery;
pub mod redundancy;
pub mod same_copies;
pub mod scrubbed;
pub mod structure;
#[cfg(test)]
pub(crate) mod testing;
