//! A model of who may write to a volume and which copies hold what: the rules of ownership and
//! replication, explored in every order in which things can happen.
//!
//! The program is tested in simulated worlds, one order of events at a time. This crate leaves the
//! program out and keeps its rules: a few nodes, a volume of one or two blocks, a state that fits into some
//! hundred bytes. So all orders can be tried: crashes, messages that are late or lost, owners that do not know
//! that they were overtaken, transactions whose answer is lost and that are made later. The checker is
//! [stateright]. It finds no counterexample with all [rules](Rule), and one without any of them.
//!
//! # How it reads
//!
//! 1. [`state`]: what there is. The names are those of the program.
//! 2. [`rules`]: what keeps data, rule by rule.
//! 3. [`actions`]: what can happen; then the steps themselves, each with its conditions: `take_over` (crashes,
//!    taking, hand-overs, fences, promises, roll-forward), `requests` (writes, reads, the mark), `changes` (marking
//!    and promoting copies, lost answers), `resync` (joining).
//! 4. `properties`: what must always hold, and what must be seen to happen, so that the exploration
//!    is known to reach what it is for.
//! 5. [`configuration`]: the worlds, and how often what may happen in each. `reduction`: which states are one.
//!
//! # What is left out
//!
//! - Time. Promises run out at the last moment that counts (see `take_over`); patience, as before an owner
//!   counts as silent, is no rule of safety: here anybody may take the volume at any time.
//! - Partitions as such: every message may come late or never, to any node, at any time.
//! - Who may mark a copy (`spandrel_cluster::majority`): here every owner may, at any time.
//! - Drives that rot, lie or lose what they confirmed, and with them unproven and doubtful copies, `Heal`,
//!   `compare_versions`: marking a copy since zero is among what may happen anyway, but why is not.
//! - The exceptions of the mark, writes larger than a block, trims, room, building new copies,
//!   front-ends.
//! - That a transaction which takes the volume can lose its answer: it is the same as taking the volume and
//!   doing nothing.
//! - More than one change of an owner's copies under way at a time: the program makes one after the other
//!   (`OwnerInner::membership_turn`). Lost answers of the transaction that settles one.
//! - That an owner asks only the process that answered its fence (`OwnerInner::ask_copy`): here a copy loses nothing
//!   when its process starts anew.
//!
//! One thing that the program does is not among the rules, as no counterexample was found without it: an owner
//! needs the promises for all slabs of the volume, not only for the one that is read or written. Since a new
//! owner serves no slab before every in-sync copy of all of them is fenced or marked, those of the one slab
//! would do in the two worlds with two slabs.
//!
//! # The rules in the program
//!
//! | rule | where the program does it |
//! |---|---|
//! | `WaitForPromisesBeforeAnsweringFence` | `Giver::fence` and `Giver::may_answer` in `crates/control-path/cluster/src/promises/giver.rs` |
//! | `FreshProcessAnswersNoFence` | `Giver::grace_until` in `crates/control-path/cluster/src/promises/giver.rs` |
//! | `ExcludeFencedVolumes` | `Giver::raise` in `crates/control-path/cluster/src/promises/giver.rs` and `Holder::answered` in `crates/control-path/cluster/src/promises/holder.rs` |
//! | `StopOwnBeforeAnsweringFence` | `Liveness::is_promised` and `Liveness::begin_fence` in `crates/programs/node/src/liveness.rs` |
//! | `StopBeforeHandingOver` | `NodeInner::hand_over` in `crates/programs/node/src/handover.rs` |
//! | `HandOverIsOfItsEpoch` | `Giver::handed_over` in `crates/control-path/cluster/src/promises/giver.rs` |
//! | `CheckPromisesBeforeWriteAnswer` | `OwnerInner::write_piece` in `crates/data-path/volume/src/write.rs` |
//! | `CheckPromisesBeforeReadAnswer` | `Owner::read` in `crates/data-path/volume/src/read.rs` |
//! | `RefuseLowerEpochs` | `Replica::check_epoch` in `crates/data-path/replica/src/replica.rs` |
//! | `FenceIsDurable` | `Replica::fence` in `crates/data-path/replica/src/replica.rs` |
//! | `ReadMembershipAgainAfterTaking` | `NodeInner::try_take` in `crates/programs/node/src/ownership.rs`; `ClusterState::take_volume` in `crates/control-path/cluster/src/volumes.rs` compares the configuration besides, and either would do |
//! | `FenceEveryCopyBeforeServing` | `OwnerInner::fence_and_gather` in `crates/data-path/volume/src/takeover.rs` |
//! | `RollForwardBeforeServing` | `OwnerInner::roll_forward` in `crates/data-path/volume/src/takeover.rs` |
//! | `MarkMustNotMoveUntilRolledForward` | `VersionTracker::inherit` and `VersionTracker::settle` in `crates/data-path/volume/src/version_tracker.rs` |
//! | `MarkBeforeAnswer` | `OwnerInner::await_needed` in `crates/data-path/volume/src/write.rs` |
//! | `UnknownMarkIsNotMade` | `OwnerInner::change` in `crates/data-path/volume/src/degrade.rs` |
//! | `NeverMarkTheLastCopy` | `Membership::may_mark` in `crates/data-path/volume/src/membership.rs` and `last_copy_lost` in `crates/control-path/cluster/src/membership.rs` |
//! | `StaleSinceIsTheMark` | `OwnerInner::take_out` in `crates/data-path/volume/src/degrade.rs` |
//! | `ChangesCompareConfiguration` | `change_record` in `crates/control-path/cluster/src/changes.rs` |
//! | `SettleByTransaction` | `ClusterState::settle_unknown` in `crates/control-path/cluster/src/changes.rs` |
//! | `ReadsWaitForWrites` | `RangeLocks::shared` and `RangeLocks::exclusive` in `crates/data-path/volume/src/range_lock.rs` |
//! | `WritesGoToJoiningCopies` | `OwnerInner::send_and_await` in `crates/data-path/volume/src/write.rs` |
//! | `JoiningCopyFallsBack` | `OwnerInner::fall_back` in `crates/data-path/volume/src/owner.rs` |
//! | `DrainBeforeComparingPages` | `OwnerInner::resync_leg` in `crates/data-path/volume/src/resync.rs` |
//! | `ResyncLooksAtBothSides` | `OwnerInner::pages_to_copy` in `crates/data-path/volume/src/resync.rs` |
//! | `DrainBeforePromotion` | `OwnerInner::promote` in `crates/data-path/volume/src/resync.rs` |
//! | `PromotionCountsAsInSync` | `LegState::is_needed` in `crates/data-path/volume/src/membership.rs` |
//!
//! [stateright]: https://docs.rs/stateright

pub mod actions;
mod changes;
pub mod configuration;
mod model;
mod properties;
mod reduction;
mod requests;
mod resync;
pub mod rules;
pub mod sets;
pub mod state;
pub mod story;
mod take_over;

pub use actions::Action;
pub use configuration::Configuration;
pub use model::OwnershipModel;
pub use rules::{Rule, Rules};
pub use state::State;
