//! What the simulator is told by the code that it runs: which rare states were reached, and which
//! owner has completed a change.
//!
//! A simulation that never reaches a state has proven nothing about it, however many seeds it runs; so
//! the code says when it is there. Without the feature `simulation` nothing is told to anybody: the
//! functions are empty, and no program that people run contains any of it.

use crate::{Epoch, VolumeId};

/// A state that only a rare order of events leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rare {
    /// A take-over rolled a write forward that it found on one copy only.
    RolledForwardFromOneCopy,
    /// A take-over met a write that a drive had in doubt after a crash.
    InDoubtGathered,
    /// A stale mark was not made because another owner had taken the volume meanwhile.
    MarkLostToTakeOver,
    /// A page of a map that a trim had emptied holds blocks again.
    PageReusedAfterTrim,
    /// A mark with exceptions: a newer write is complete, an older one is not.
    MarkWithExceptions,
    /// Copies were compared by their contents, as it was not known what one of them had missed.
    ContentsCompared,
    /// A leg that joined missed something and began anew.
    JoiningFellBack,
    /// Copies that were being built took the places of others.
    CopiesBuilt,
    /// Copies that were being built were given up.
    CopiesAbandoned,
    /// Copies on a drive that had been away for too long were begun elsewhere.
    CopiesMissed,
    /// Copies were moved to fill drives evenly.
    CopiesSpread,
    /// Copies were moved to where they share less with others.
    CopiesMovedApart,
    /// A copy was built from one with damaged blocks.
    BuiltBesideDamage,
    /// A copy was built of which a block is lost on all others.
    LostOnNewCopy,
    /// A write was sent to a copy that was being built, and answered when it counted.
    WriteMetPromotion,
    /// A fence waited for promises to run out.
    FenceWaited,
    /// A transaction's outcome was unknown, and was settled.
    OutcomeSettled,
    /// A block that is damaged on the last in-sync copy was healed from a stale one.
    HealedFromStaleCopy,
    /// A read met a damaged block and was answered from another copy.
    ReadElsewhere,
    /// An in-sync copy was found to lack writes that it had confirmed.
    CopyFoundLacking,
    /// A drive could not prove its copies whole.
    CopyUnproven,
    /// The scrub that goes on by itself found what is not well.
    PacedScrubFound,
    /// A drive whose attach number is below the state's was left out.
    OldImageRefused,
    /// A recovery met a last journal group of which some data are missing.
    JournalTailTorn,
    /// A recovery met a root that a crash had torn, or one of its twins missing.
    RootTorn,
    /// A write waited for another one on the same blocks.
    WriteWaitedForWrite,
    /// A write waited for a read of the same blocks.
    WriteWaitedForRead,
    /// An answer waited for a promise that had run out.
    AnswerWaitedForPromise,
    /// A front-end lost the right to write to another one that took it.
    WriterReplaced,
    /// A change came from a front-end that may not write any more, and was refused.
    LostWriterRefused,
    /// A change was repeated because nobody knew whether it was made.
    ChangeRepeated,
    /// A drive refused a change for lack of room.
    DriveFull,
    /// A physical block stayed pinned by a read after it was replaced.
    PinnedWhileReplaced,
    /// A read that took long was answered by another copy, or might have been.
    HedgedRead,
    /// A slow copy that reads avoid was asked whether it is well again.
    SlowCopyProbed,
    /// Copies on a slow drive were taken out.
    SlowCopiesTakenOut,
    /// The slabs by which a volume grew came to count.
    VolumeGrown,
    /// An owner went on with a growth that an earlier one had begun.
    GrowthResumed,
    /// Slabs that were to come to a volume were taken back.
    GrowthTakenBack,
    /// A client that had come to one shard of a node was passed on to the one that has its volume's clients.
    ClientPassedOn,
    /// A write went past a cache that was nearly full.
    WritePastFullCache,
    /// A block was written anew while it was being moved out of a cache.
    DestageMetNewer,
    /// A read was answered by a copy in a cache.
    ReadFromCache,
    /// A read was answered by a copy in memory.
    ReadFromMemory,
    /// A leaf of a drive's maps was evicted from memory.
    LeafEvicted,
    /// A leaf that had been evicted was read back.
    LeafReadBack,
    /// A drive was bound to a cache drive, or to another one.
    DriveBound,
    /// A drive went on without the cache drive that it was bound to.
    CacheLost,
    /// A drive met an area of its cache drive that was of another time.
    CacheOfAnotherTime,
}

impl Rare {
    /// All of them, in order.
    pub const ALL: [Self; 49] = [
        Self::RolledForwardFromOneCopy,
        Self::InDoubtGathered,
        Self::MarkLostToTakeOver,
        Self::PageReusedAfterTrim,
        Self::MarkWithExceptions,
        Self::ContentsCompared,
        Self::JoiningFellBack,
        Self::CopiesBuilt,
        Self::CopiesAbandoned,
        Self::CopiesMissed,
        Self::CopiesSpread,
        Self::CopiesMovedApart,
        Self::BuiltBesideDamage,
        Self::LostOnNewCopy,
        Self::WriteMetPromotion,
        Self::FenceWaited,
        Self::OutcomeSettled,
        Self::HealedFromStaleCopy,
        Self::ReadElsewhere,
        Self::CopyFoundLacking,
        Self::CopyUnproven,
        Self::PacedScrubFound,
        Self::OldImageRefused,
        Self::JournalTailTorn,
        Self::RootTorn,
        Self::WriteWaitedForWrite,
        Self::WriteWaitedForRead,
        Self::AnswerWaitedForPromise,
        Self::WriterReplaced,
        Self::LostWriterRefused,
        Self::ChangeRepeated,
        Self::DriveFull,
        Self::PinnedWhileReplaced,
        Self::HedgedRead,
        Self::SlowCopyProbed,
        Self::SlowCopiesTakenOut,
        Self::VolumeGrown,
        Self::GrowthResumed,
        Self::GrowthTakenBack,
        Self::ClientPassedOn,
        Self::WritePastFullCache,
        Self::DestageMetNewer,
        Self::ReadFromCache,
        Self::ReadFromMemory,
        Self::LeafEvicted,
        Self::LeafReadBack,
        Self::DriveBound,
        Self::CacheLost,
        Self::CacheOfAnotherTime,
    ];
}

/// A change of a volume that an owner has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The volume.
    pub volume: VolumeId,
    /// The ownership under which it was answered.
    pub epoch: Epoch,
}

#[cfg(feature = "simulation")]
mod recorder {
    use std::cell::{Cell, RefCell};

    use super::{Completion, Rare};

    thread_local! {
        static REACHED: [Cell<u64>; Rare::ALL.len()] = const { [const { Cell::new(0) }; Rare::ALL.len()] };
        static COMPLETIONS: RefCell<Vec<Completion>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn reached(rare: Rare) {
        REACHED.with(|counts| {
            let count = &counts[rare as usize];
            count.set(count.get() + 1);
        });
    }

    pub(super) fn take_reached() -> [u64; Rare::ALL.len()] {
        REACHED.with(|counts| std::array::from_fn(|index| counts[index].take()))
    }

    pub(super) fn aside<T>(work: impl FnOnce() -> T) -> T {
        let before = take_reached();
        let outcome = work();
        REACHED.with(|counts| counts.iter().zip(before).for_each(|(count, before)| count.set(before)));
        outcome
    }

    pub(super) fn completed(completion: Completion) {
        COMPLETIONS.with(|completions| completions.borrow_mut().push(completion));
    }

    pub(super) fn take_completions() -> Vec<Completion> {
        COMPLETIONS.take()
    }
}

/// The code is in this state.
#[cfg(feature = "simulation")]
pub fn reached(rare: Rare) {
    recorder::reached(rare);
}

/// The code is in this state; nobody is told.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub const fn reached(_rare: Rare) {}

/// An owner answers a change.
#[cfg(feature = "simulation")]
pub fn completed(volume: VolumeId, epoch: Epoch) {
    recorder::completed(Completion { volume, epoch });
}

/// An owner answers a change; nobody is told.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub const fn completed(_volume: VolumeId, _epoch: Epoch) {}

/// How often each state of [`Rare::ALL`] was reached on this thread since this was last asked.
#[cfg(feature = "simulation")]
pub fn take_reached() -> [u64; Rare::ALL.len()] {
    recorder::take_reached()
}

/// Does something whose states do not count: it runs the same code, but is no part of what is watched.
#[cfg(feature = "simulation")]
pub fn aside<T>(work: impl FnOnce() -> T) -> T {
    recorder::aside(work)
}

/// The changes that were answered on this thread since this was last asked, in their order.
#[cfg(feature = "simulation")]
pub fn take_completions() -> Vec<Completion> {
    recorder::take_completions()
}

#[cfg(all(test, feature = "simulation"))]
#[path = "witness_tests.rs"]
mod tests;
