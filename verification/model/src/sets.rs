//! Small sets of small things, as bits: a state is copied and hashed millions of times.

use std::fmt;

/// How many nodes there are, each with one drive.
pub const NODES: usize = 3;

/// How many blocks a volume has at most.
pub const BLOCKS_MAX: usize = 2;

/// A node, and the drive in it.
pub type NodeId = usize;

/// A block of the volume.
pub type Block = usize;

/// A slab of the volume.
pub type Slab = usize;

/// A set of nodes, or of slabs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Set(u8);

impl Set {
    /// Nothing.
    pub const EMPTY: Set = Set(0);

    /// What is listed.
    pub const fn of<const N: usize>(items: [usize; N]) -> Self {
        let mut bits = 0;
        let mut index = 0;
        while index < N {
            bits |= 1 << items[index];
            index += 1;
        }
        Set(bits)
    }

    /// Those of `0..end` for which `is_in` holds.
    pub fn filter(end: usize, is_in: impl Fn(usize) -> bool) -> Self {
        Set((0..end).filter(|item| is_in(*item)).fold(0, |bits, item| bits | 1 << item))
    }

    /// Whether it holds `item`.
    pub fn contains(self, item: usize) -> bool {
        self.0 & 1 << item != 0
    }

    /// Whether it holds all of `other`.
    pub fn covers(self, other: Set) -> bool {
        other.0 & !self.0 == 0
    }

    /// Whether it holds nothing.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// With `item`.
    pub fn with(self, item: usize) -> Self {
        Set(self.0 | 1 << item)
    }

    /// Without `item`.
    pub fn without(self, item: usize) -> Self {
        Set(self.0 & !(1 << item))
    }

    /// What is in both.
    pub fn and(self, other: Set) -> Self {
        Set(self.0 & other.0)
    }

    /// What is in this one only.
    pub fn minus(self, other: Set) -> Self {
        Set(self.0 & !other.0)
    }

    /// What it holds, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        (0..u8::BITS as usize).filter(move |item| self.contains(*item))
    }
}

impl fmt::Display for Set {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items: Vec<String> = self.iter().map(|item| item.to_string()).collect();
        write!(formatter, "{{{}}}", items.join(" "))
    }
}
