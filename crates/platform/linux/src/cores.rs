//! Which cores a thread runs on.
//!
//! Left to itself the kernel gives each thread that wakes a core with nothing to do, and a message to it then costs the waking of that
//! core, and the way of its data from one core's caches to another's: more than the work. Threads that are kept on few cores are
//! cheaper for each operation, and leave the other cores alone.

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::str::FromStr;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Some cores, by the numbers that the kernel gives them: at least one. As text it is a list as `taskset` takes it, without
/// strides: `0,2-3`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cores(BTreeSet<usize>);

impl Cores {
    /// Those that the calling thread may run on. Fails where the kernel cannot say it.
    pub fn available() -> io::Result<Self> {
        let set = sched_getaffinity(None)?;
        Ok(Self((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect()))
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Whether all of them are among `others`.
    pub fn are_among(&self, others: &Self) -> bool {
        self.0.is_subset(&others.0)
    }

    /// The first of them: so many, at least one, or all if there are no more.
    pub fn first(&self, count: usize) -> Self {
        Self(self.0.iter().copied().take(count.max(1)).collect())
    }

    /// What the thread with number `index` of `threads`, at least one, is to have: cores that follow each other, as many as any
    /// other thread has or one more or less; or one core with other threads if there are more of them than cores.
    pub fn share(&self, index: usize, threads: usize) -> Self {
        let parts = threads.min(self.0.len());
        let part = index % parts;
        let (first, end) = (part * self.0.len() / parts, (part + 1) * self.0.len() / parts);
        Self(self.0.iter().copied().skip(first).take(end - first).collect())
    }

    /// Their numbers, each below [`CpuSet::MAX_CPU`].
    pub(crate) fn numbers(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    /// Keeps the calling thread on them, and the threads and processes that it will start. Fails if it may run on none of them.
    pub fn keep_thread(&self) -> rustix::io::Result<()> {
        let mut set = CpuSet::new();
        self.0.iter().for_each(|core| set.set(*core));
        sched_setaffinity(None, &set)
    }
}

impl FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_number = |text: &&str| text.bytes().all(|byte| byte.is_ascii_digit());
        let number =
            |text: &str| Some(text).filter(is_number)?.parse().ok().filter(|core| *core < CpuSet::MAX_CPU);
        let range = |part: &str| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            number(first).zip(number(last)).filter(|(first, last)| first <= last)
        };
        let ranges: Option<Vec<_>> = text.split(',').map(range).collect();
        let last = CpuSet::MAX_CPU - 1;
        let ranges = ranges.ok_or_else(|| {
            format!("{text:?} are no cores: write for example 0 or 0,2-3; numbers go up to {last}")
        })?;
        Ok(Self(ranges.into_iter().flat_map(|(first, last)| first..=last).collect()))
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ranges: Vec<(usize, usize)> = Vec::new();
        for core in &self.0 {
            match ranges.last_mut() {
                Some((_, last)) if *last + 1 == *core => *last = *core,
                _ => ranges.push((*core, *core)),
            }
        }
        let text = |(first, last): &(usize, usize)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        };
        formatter.write_str(&ranges.iter().map(text).collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
#[path = "cores_tests.rs"]
mod tests;
