//! Is the history of one block that of a single register?
//!
//! It is if every operation can be given a moment between its start and its end such that, in the
//! order of these moments, every read sees what was written last: then it is linearizable. Several
//! writes may write the same value, as all trims do. A write whose outcome is unknown has no end:
//! it takes effect at any moment after its start, or never.
//!
//! The check goes through the starts and the ends in the order of time and keeps all configurations
//! that the register may be in: its value, and which of the pending operations have taken effect.
//! What a read saw is known beforehand, so few choices remain open:
//!
//! - A pending read takes effect as soon as the register holds what it saw. It changes nothing, so
//!   sooner is never worse.
//! - Writes take effect only when an operation ends that has not: first some that bring what other
//!   pending reads saw, then the operation itself, or for a read a write that brings its value. What
//!   else could stand before it can as well come after it.
//! - A write that nobody needed may be *absorbed* at its end: it stands directly before the write
//!   that took effect last, and nobody saw it. For that it must have begun before that one took
//!   effect; so of two equal configurations the one with the later write is the better one.
//! - Of several pending writes of one value, the one that ends first is used. Wherever another would
//!   be used before it, the two can change places.
//! - Writes without an end differ in nothing but their value. They are counted instead of named, and
//!   only while reads of their value are still to end: what nobody sees constrains nobody.
//!
//! A configuration that is no better than another in any respect is dropped. Nothing else is, so the
//! check is exact; the tests prove it equal to trying all orders on small histories.
//!
//! The number of configurations can grow exponentially with the operations that are pending at once
//! (the problem is NP-complete), and as a product over the values that several unanswered writes
//! have in common. With up to ten clients, and zero as the only such value, there are a few dozen.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// When something happened, in any unit that grows: no two starts or ends have the same moment.
pub type Moment = u64;

/// One operation on a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The value written or seen; zero is what the block held at first.
    pub value: u64,
    /// Whether it wrote the value.
    pub is_write: bool,
    /// When it was asked for.
    pub start: Moment,
    /// When it was answered, after its start; `None` if it never was, or failed with an unknown
    /// outcome. A read without an answer says nothing.
    pub end: Option<Moment>,
}

/// What makes a history impossible: the first read, by its end, that cannot have seen what it saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// A read saw a value that nobody wrote, or that was written only later.
    FromNowhere {
        /// The read.
        read: Operation,
    },
    /// A read saw a value that was written, but not what the register held while the read lasted.
    Conflict {
        /// The read.
        read: Operation,
        /// What it could have seen, in ascending order. Values of unanswered writes that no earlier
        /// read saw are not listed: they are possible at any time.
        possible: Vec<u64>,
    },
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::FromNowhere { read } => {
                write!(formatter, "a read saw value {}, which nobody had written", read.value)
            }
            Violation::Conflict { read, possible } => {
                write!(formatter, "a read saw value {}; it could have seen {possible:?}", read.value)
            }
        }
    }
}

/// Checks the history of one block, in any order of operations.
///
/// # Panics
///
/// If two starts or ends have the same moment, or more than 128 answered operations are pending at
/// once.
pub fn check(operations: &[Operation]) -> Result<(), Violation> {
    match first_impossible_read(operations) {
        None => Ok(()),
        Some(read) => Err(violation(operations, read)),
    }
}

fn first_impossible_read(operations: &[Operation]) -> Option<Operation> {
    let mut last_read_ends: BTreeMap<u64, Moment> = BTreeMap::new();
    for read in operations.iter().filter(|operation| !operation.is_write) {
        let last = last_read_ends.entry(read.value).or_default();
        *last = (*last).max(read.end.unwrap_or(0));
    }
    let is_seen_after = |value, moment| last_read_ends.get(&value).is_some_and(|last| *last > moment);

    let mut events: Vec<(Moment, Operation)> = Vec::with_capacity(2 * operations.len());
    for operation in operations {
        if let Some(end) = operation.end {
            events.extend([(operation.start, *operation), (end, *operation)]);
        } else if operation.is_write && is_seen_after(operation.value, operation.start) {
            events.push((operation.start, *operation));
        }
    }
    events.sort_unstable_by_key(|(moment, _)| *moment);
    assert!(events.is_sorted_by(|(one, _), (next, _)| one < next), "two moments of one block are the same");

    let mut search = Search::new();
    for (moment, operation) in events {
        if moment == operation.start {
            search.begin(operation);
            continue;
        }
        search.end(operation, moment);
        if search.configurations.is_empty() {
            return Some(operation);
        }
        if !operation.is_write && !is_seen_after(operation.value, moment) {
            search.forget_unanswered(operation.value);
        }
    }
    None
}

/// Says why `read`, the first that is impossible, is so.
fn violation(operations: &[Operation], read: Operation) -> Violation {
    let now = read.end.unwrap_or(Moment::MAX);
    let begun: Vec<Operation> = operations.iter().filter(|other| other.start < now).copied().collect();
    let writes = || begun.iter().filter(|operation| operation.is_write);
    if read.value != 0 && writes().all(|write| write.value != read.value) {
        return Violation::FromNowhere { read };
    }

    // What was answered before this moment was overwritten before the read began.
    let is_over = |write: &&Operation| write.end.is_some_and(|end| end < read.start);
    let overwritten = writes().filter(is_over).map(|write| write.start).max().unwrap_or(0);
    // When a read that saw the value first ended.
    let mut seen: BTreeMap<u64, Moment> = BTreeMap::new();
    for earlier in begun.iter().filter(|operation| !operation.is_write) {
        if let Some(end) = earlier.end.filter(|end| *end < now) {
            seen.entry(earlier.value).and_modify(|first| *first = end.min(*first)).or_insert(end);
        }
    }
    // Only one write can have brought it; zero was there at first.
    let is_unique = |value| value != 0 && writes().filter(|write| write.value == value).count() == 1;
    // The zero of the beginning is none: while it is there, what the read saw can be written before it.
    let is_candidate = |write: &&Operation| match (write.end, seen.get(&write.value)) {
        (Some(end), _) => end > overwritten,
        (None, Some(seen)) => *seen > overwritten || !is_unique(write.value),
        (None, None) => false,
    };
    let candidates: BTreeSet<u64> = writes().filter(is_candidate).map(|write| write.value).collect();

    let could_see = |value: &u64| {
        let at_that_moment = |operation: &Operation| match operation {
            operation if *operation == read => Operation { value: *value, ..read },
            operation => Operation { end: operation.end.filter(|end| *end < now), ..*operation },
        };
        let history: Vec<Operation> = begun.iter().map(at_that_moment).collect();
        first_impossible_read(&history).is_none()
    };
    Violation::Conflict { read, possible: candidates.into_iter().filter(could_see).collect() }
}

/// What the register may hold at a moment, and what has led to it.
#[derive(Clone, Debug)]
struct Configuration {
    value: u64,
    /// When the write of the value took effect; zero before the first one.
    since: Moment,
    /// The pending operations that have taken effect: their [`Pending::bit`]s.
    done: u128,
    /// How many unanswered writes have taken effect, by value.
    spent: BTreeMap<u64, usize>,
}

impl Configuration {
    /// Whether all that can follow the other can follow this one. It is good to have done a read
    /// (`reads` has their bits) and to have a write still in hand: where the other one used it, this
    /// one can absorb it.
    fn is_no_worse_than(&self, other: &Self, reads: u128) -> bool {
        let missing_reads = other.done & !self.done & reads;
        let missing_writes = self.done & !other.done & !reads;
        let spent_by_other = |value| other.spent.get(value).copied().unwrap_or(0);
        self.value == other.value
            && self.since >= other.since
            && missing_reads | missing_writes == 0
            && self.spent.iter().all(|(value, count)| *count <= spent_by_other(value))
    }
}

/// An operation that has begun and will be answered.
#[derive(Clone, Copy, Debug)]
struct Pending {
    operation: Operation,
    /// Its place in the sets of [`Configuration::done`].
    bit: u128,
}

/// All that may be true at a moment of the history.
struct Search {
    pending: Vec<Pending>,
    /// How many writes without an end have begun, by value.
    unanswered: BTreeMap<u64, usize>,
    configurations: Vec<Configuration>,
}

impl Search {
    fn new() -> Self {
        let initial = Configuration { value: 0, since: 0, done: 0, spent: BTreeMap::new() };
        Self { pending: Vec::new(), unanswered: BTreeMap::new(), configurations: vec![initial] }
    }

    fn begin(&mut self, operation: Operation) {
        if operation.end.is_none() {
            *self.unanswered.entry(operation.value).or_default() += 1;
            return;
        }
        let taken = self.pending.iter().fold(0, |bits, pending| bits | pending.bit);
        assert_ne!(taken, u128::MAX, "more than 128 operations on one block are pending");
        let bit = 1 << taken.trailing_ones();
        self.pending.push(Pending { operation, bit });
        if !operation.is_write {
            for configuration in self.configurations.iter_mut().filter(|each| each.value == operation.value) {
                configuration.done |= bit;
            }
        }
    }

    /// Keeps the configurations in which the operation has taken effect by `now`, its end.
    fn end(&mut self, operation: Operation, now: Moment) {
        let is_it = |pending: &Pending| pending.operation.start == operation.start;
        let index = self.pending.iter().position(is_it).expect("an operation begins before it ends");
        let bit = self.pending.swap_remove(index).bit;
        let mut next = Vec::with_capacity(2 * self.configurations.len());
        for mut configuration in std::mem::take(&mut self.configurations) {
            if configuration.done & bit != 0 {
                configuration.done &= !bit;
                next.push(configuration);
                continue;
            }
            if operation.is_write && configuration.since > operation.start {
                // It is absorbed.
                next.push(configuration.clone());
            }
            for mut choice in self.after_other_reads(configuration, operation.value, now) {
                if operation.is_write {
                    self.hold(&mut choice, operation.value, now);
                    next.push(choice);
                } else {
                    next.extend(self.after_write(&choice, operation.value, now));
                }
            }
        }
        self.configurations = self.without_worse_ones(next);
    }

    /// The configuration with each set of the values brought that pending reads saw, except `value`.
    fn after_other_reads(&self, before: Configuration, value: u64, now: Moment) -> Vec<Configuration> {
        let wanted: BTreeSet<u64> = self
            .pending
            .iter()
            .filter(|pending| !pending.operation.is_write && before.done & pending.bit == 0)
            .map(|pending| pending.operation.value)
            .filter(|wanted| *wanted != value)
            .collect();
        let mut choices = vec![before];
        for value in wanted {
            let brought: Vec<Configuration> =
                choices.iter().filter_map(|choice| self.after_write(choice, value, now)).collect();
            choices.extend(brought);
        }
        choices
    }

    /// The configuration after one more write of the value; `None` if there is none in hand.
    fn after_write(&self, before: &Configuration, value: u64, now: Moment) -> Option<Configuration> {
        let mut next = before.clone();
        let in_hand = self.pending.iter().filter(|pending| {
            pending.operation.is_write && pending.operation.value == value && before.done & pending.bit == 0
        });
        if let Some(write) = in_hand.min_by_key(|pending| pending.operation.end) {
            next.done |= write.bit;
        } else {
            let spent = next.spent.entry(value).or_default();
            if self.unanswered.get(&value).is_none_or(|begun| begun <= spent) {
                return None;
            }
            *spent += 1;
        }
        self.hold(&mut next, value, now);
        Some(next)
    }

    /// Lets the register hold the value, and all pending reads that saw it take effect.
    fn hold(&self, configuration: &mut Configuration, value: u64, now: Moment) {
        configuration.value = value;
        configuration.since = now;
        for pending in &self.pending {
            if !pending.operation.is_write && pending.operation.value == value {
                configuration.done |= pending.bit;
            }
        }
    }

    /// No read of the value is still to end: what its unanswered writes do makes no difference.
    fn forget_unanswered(&mut self, value: u64) {
        if self.unanswered.remove(&value).is_some() {
            let mut configurations = std::mem::take(&mut self.configurations);
            for configuration in &mut configurations {
                configuration.spent.remove(&value);
            }
            self.configurations = self.without_worse_ones(configurations);
        }
    }

    fn without_worse_ones(&self, configurations: Vec<Configuration>) -> Vec<Configuration> {
        let reads = self.pending.iter().filter(|pending| !pending.operation.is_write);
        let reads = reads.fold(0, |bits, pending| bits | pending.bit);
        let mut best: Vec<Configuration> = Vec::with_capacity(configurations.len());
        for configuration in configurations {
            if !best.iter().any(|other| other.is_no_worse_than(&configuration, reads)) {
                best.retain(|other| !configuration.is_no_worse_than(other, reads));
                best.push(configuration);
            }
        }
        best
    }
}

#[cfg(test)]
#[path = "register_tests.rs"]
mod tests;
