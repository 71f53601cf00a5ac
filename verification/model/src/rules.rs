//! The rules that keep data, one by one, so that each can be taken away.
//!
//! The model asks for a rule at the one place where it holds. `the_rules_are_all_needed` takes
//! away each in turn and demands a counterexample: a rule that nothing needs would not be found wrong
//! when the code breaks it.

use clap::ValueEnum;

/// A rule of ownership or replication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, ValueEnum)]
pub enum Rule {
    /// A fence is answered when every promise that was given to another owner has run out.
    WaitForPromisesBeforeAnsweringFence,
    /// A process that has just started answers no fence for as long as a promise lasts: it does not
    /// know what its predecessor has promised.
    FreshProcessAnswersNoFence,
    /// From a fence on, the volume is left out of every further promise to the former owner.
    ExcludeFencedVolumes,
    /// An owner that is fenced on its own node stops before the fence is answered.
    StopOwnBeforeAnsweringFence,
    /// An owner that hands the volume over stops before it tells anybody that promises to it count no more.
    StopBeforeHandingOver,
    /// What was promised to a later ownership of the same process counts on: a hand-over is of its epoch.
    HandOverIsOfItsEpoch,
    /// A write is answered only with a live promise of every node that holds a needed copy.
    CheckPromisesBeforeWriteAnswer,
    /// So is a read.
    CheckPromisesBeforeReadAnswer,
    /// A copy refuses what comes under a lower epoch than it has accepted.
    RefuseLowerEpochs,
    /// A copy remembers the highest epoch across a crash.
    FenceIsDurable,
    /// An owner begins with the membership that stands when its epoch does.
    ReadMembershipAgainAfterTaking,
    /// An owner serves only when every in-sync copy is fenced or marked.
    FenceEveryCopyBeforeServing,
    /// An owner serves only when what its predecessors left incomplete is the same on every in-sync
    /// copy.
    RollForwardBeforeServing,
    /// Until all is rolled forward, the mark stays where the copies knew it.
    MarkMustNotMoveUntilRolledForward,
    /// A write is answered without a copy only when the cluster's state shows that copy stale.
    MarkBeforeAnswer,
    /// As long as the outcome of marking a copy is unknown, the copy is needed.
    UnknownMarkIsNotMade,
    /// The last in-sync copy of a slab is never marked.
    NeverMarkTheLastCopy,
    /// A copy is stale since the committed mark, not since the newest write.
    StaleSinceIsTheMark,
    /// A change of membership is made only if nothing has changed since its sender looked.
    ChangesCompareConfiguration,
    /// What became of a change whose answer was lost is settled by another transaction: reading does
    /// not show what is still on its way.
    SettleByTransaction,
    /// A read waits for the writes that are under way on its block.
    ReadsWaitForWrites,
    /// New writes go to a copy that joins, too.
    WritesGoToJoiningCopies,
    /// A copy that misses a write while it joins begins anew.
    JoiningCopyFallsBack,
    /// Pages are compared when every write has ended that was not sent to the joining copy.
    DrainBeforeComparingPages,
    /// A page is copied also if only the stale copy has changed it.
    ResyncLooksAtBothSides,
    /// A promotion is sent when every write has ended that does not wait for the copy.
    DrainBeforePromotion,
    /// From before its promotion is sent, writes and promises need the copy.
    PromotionCountsAsInSync,
}

impl Rule {
    /// All rules, in the order in which they are declared.
    pub fn all() -> &'static [Rule] {
        Self::value_variants()
    }
}

/// The rules that hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    removed: u32,
}

impl Rules {
    /// All of them.
    pub const ALL: Rules = Rules { removed: 0 };

    /// All but these.
    pub fn without(rules: impl IntoIterator<Item = Rule>) -> Self {
        Self { removed: rules.into_iter().fold(0, |removed, rule| removed | 1 << rule as u32) }
    }

    /// Whether a rule holds.
    pub fn hold(self, rule: Rule) -> bool {
        self.removed & 1 << rule as u32 == 0
    }
}
