//! Bugs on demand: the simulator plants one and must catch it, which proves that its checkers
//! can fail.
//!
//! Without the feature `simulation` nothing can be planted and every question is answered with a
//! constant `false`, so that no program that people run contains any of it.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bug {
    /// A drive's store answers a change before it is durable.
    AnswerBeforeDurable,
    /// A drive's volatile cache is never flushed.
    SkipFlush,
    /// A replica serves owners of any epoch.
    SkipFence,
    /// A node answers a fence while promises of its own are outstanding.
    AnswerFenceAtOnce,
    /// An owner answers without any node's promise.
    ServeWithoutPromises,
    /// An owner answers reads without any node's promise.
    ReadWithoutPromises,
    /// An owner counts a copy as stale before its mark is made.
    AnswerBeforeMark,
    /// The last in-sync copy of a slab may be marked stale.
    DropLastCopy,
    /// A drive's store does not compare what it reads with its checksum.
    TrustBadChecksum,
    /// A drive that was attached less often than is known is used: nobody compares the numbers.
    TrustOldImage,
    /// A recovery takes the journal's last group as whole without looking at its data.
    TrustTornTail,
    /// A recovery leaves the journal's last group out.
    RollLastGroupBack,
    /// A recovery puts the former content in the place of damaged data that were confirmed.
    RollDamageBack,
    /// What a recovery could not prove is forgotten by the next one.
    ForgetUnproven,
    /// A drive's store does not say which pages have lost blocks.
    ConcealLost,
    /// A physical block gets other content before the record that replaced it is durable.
    ReuseBeforeDurable,
    /// A take-over leaves what is in question as it is.
    SkipRollForward,
    /// A take-over takes what the mark covers for in question too.
    RollForwardBelowMark,
    /// A take-over says that all is complete before it has rolled it forward.
    MarkBeforeRollForward,
    /// A take-over spreads the oldest of the versions in question.
    RollForwardTheOlder,
    /// A take-over takes a copy that has a write in doubt for one that holds it.
    IgnoreInDoubt,
    /// A take-over does not compare the copies' page versions.
    SkipVersionComparison,
    /// A resync copies only what its source has changed, not what the stale copy has.
    ResyncBySourceAlone,
    /// A resync does not copy holes.
    ForgetTrims,
    /// A resync copies before the writes that do not go to the joining copy have ended.
    CopyUndrained,
    /// A joining copy is promoted although one page was not copied.
    PromoteBeforeLastPage,
    /// A joining copy is promoted before the writes that nobody awaits have arrived.
    PromoteUndrained,
    /// What a copy may have missed leaves out the writes that were under way when it fell out.
    ForgetUnderWay,
    /// A resync takes blocks whose checksums are the same for the same, although it does not know what was written.
    TrustEqualChecksums,
    /// A scrub gives the lock back before it heals, and a heal that looked at the map waits before it
    /// replaces what is there.
    HealOverNewer,
    /// The paced scrub counts slabs as read without reading them.
    ScrubNothing,
    /// A scrub checks every copy, and does not compare them.
    CompareNothing,
    /// A write starts while a read of its blocks is under way.
    ReadWithoutLock,
    /// A transaction with a lost answer is settled by reading back.
    SettleByReading,
    /// A front-end that lost its right to write goes on writing.
    LostWriterGoesOn,
    /// The slabs by which a volume grows count before their copies were made.
    GrowWithoutCopies,
    /// A copy on a slow drive is left out without being marked stale.
    LeaveSlowUnmarked,
    /// Copies that were begun elsewhere take the places of others before they hold what these hold.
    CountUnbuilt,
    /// Whoever places or moves copies takes each node for a fault domain of its own, whatever its labels.
    IgnoreLabels,
    /// What all copies of a block have lost stands as zeroes on a copy that is built or brought up to date.
    ZeroLost,
    /// A block that is moved out of a cache counts as moved although it was written anew meanwhile.
    DestageOverNewer,
    /// What goes past a cache, or is moved out of it, counts before it is durable on the capacity drive.
    DestageUnflushed,
    /// A copy of what was read stays in the cache when the block of which it is one is given up.
    CopyOutlivesBlock,
    /// A drive trusts the area of its cache drive, whatever stands in it.
    TrustOldCache,
    /// What a leaf that is evicted from memory maps is taken for holes.
    EvictedIsHole,
    /// A root says that the group of the journal before it stands elsewhere.
    MisplaceGroupBefore,
}

impl Bug {
    /// All of them, in order.
    pub const ALL: [Self; 46] = [
        Self::AnswerBeforeDurable,
        Self::SkipFlush,
        Self::SkipFence,
        Self::AnswerFenceAtOnce,
        Self::ServeWithoutPromises,
        Self::ReadWithoutPromises,
        Self::AnswerBeforeMark,
        Self::DropLastCopy,
        Self::TrustBadChecksum,
        Self::TrustOldImage,
        Self::TrustTornTail,
        Self::RollLastGroupBack,
        Self::RollDamageBack,
        Self::ForgetUnproven,
        Self::ConcealLost,
        Self::ReuseBeforeDurable,
        Self::SkipRollForward,
        Self::RollForwardBelowMark,
        Self::MarkBeforeRollForward,
        Self::RollForwardTheOlder,
        Self::IgnoreInDoubt,
        Self::SkipVersionComparison,
        Self::ResyncBySourceAlone,
        Self::ForgetTrims,
        Self::CopyUndrained,
        Self::PromoteBeforeLastPage,
        Self::PromoteUndrained,
        Self::ForgetUnderWay,
        Self::TrustEqualChecksums,
        Self::HealOverNewer,
        Self::ScrubNothing,
        Self::CompareNothing,
        Self::ReadWithoutLock,
        Self::SettleByReading,
        Self::LostWriterGoesOn,
        Self::GrowWithoutCopies,
        Self::LeaveSlowUnmarked,
        Self::CountUnbuilt,
        Self::IgnoreLabels,
        Self::ZeroLost,
        Self::DestageOverNewer,
        Self::DestageUnflushed,
        Self::CopyOutlivesBlock,
        Self::TrustOldCache,
        Self::EvictedIsHole,
        Self::MisplaceGroupBefore,
    ];
}

/// Whether bugs can be planted in this program. A program for people makes sure that they cannot.
pub const CAN_PLANT: bool = cfg!(feature = "simulation");

#[cfg(feature = "simulation")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants a bug on this thread, in place of any other, or takes it out.
#[cfg(feature = "simulation")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether this bug is planted.
#[cfg(feature = "simulation")]
pub fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether this bug is planted: never.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub const fn is_planted(_bug: Bug) -> bool {
    false
}
