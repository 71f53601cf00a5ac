//! Bugs on demand: the simulator plants one and must catch it, which proves that its checkers
//! can fail.
//!
//! Without the feature `simulation` nothing can be planted and every question is answered with a
//! constant `false`, so that no program that people run contains any of it.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// A drive's store answers a change before it is durable.
    AnswerBeforeDurable,
    /// A replica serves owners of any epoch.
    SkipFence,
    /// A drive's store does not compare what it reads with its checksum.
    TrustBadChecksum,
    /// A drive that was attached less often than is known is used.
    TrustOldImage,
}

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
