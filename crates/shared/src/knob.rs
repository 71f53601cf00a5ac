//! Thresholds that the simulator turns down, so that what lies beyond them is not rare there.
//!
//! A threshold that is right for real loads can keep a run of some thousand operations from ever reaching the
//! code behind it. Without the feature `simulation` a knob cannot be turned: its value is the one that ships,
//! which stands where it is used.

/// A threshold that can be turned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Knob {
    /// Writes by which one must be behind the newest to become an exception of the mark.
    ExceptionDistance,
    /// How long a client elsewhere must have written to a volume before the volume comes to its node, in milliseconds.
    FollowAfter,
    /// For how long the copies on a slow drive rest the first time, in milliseconds.
    SlowDriveRest,
    /// How many bits of two blocks' checksums a resync compares: with few, blocks that differ look the same.
    ComparedChecksumBits,
}

#[cfg(feature = "simulation")]
const KNOBS: usize = 4;

#[cfg(feature = "simulation")]
thread_local! {
    static TURNED: std::cell::Cell<[Option<u64>; KNOBS]> = const { std::cell::Cell::new([None; KNOBS]) };
}

/// Gives a knob another value on this thread, or with `None` the one that ships.
#[cfg(feature = "simulation")]
pub fn turn(knob: Knob, value: Option<u64>) {
    let mut turned = TURNED.get();
    turned[knob as usize] = value;
    TURNED.set(turned);
}

/// The value of a knob: `shipped`, if it was not turned.
#[cfg(feature = "simulation")]
pub fn value(knob: Knob, shipped: u64) -> u64 {
    TURNED.get()[knob as usize].unwrap_or(shipped)
}

/// The value of a knob: `shipped`.
#[cfg(not(feature = "simulation"))]
#[inline(always)]
pub const fn value(_knob: Knob, shipped: u64) -> u64 {
    shipped
}
