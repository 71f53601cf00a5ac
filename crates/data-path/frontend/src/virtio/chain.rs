//! The memory of one request, as its descriptors name it: first what the guest says, then what it wants to be told.
//!
//! Nothing here trusts the guest, which may change all of this while it is read: a chain is walked once, in no more steps than its
//! table has places, and what was found is what counts from there on.

use smallvec::SmallVec;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Address, Bytes, GuestAddress, GuestMemory};

use super::config::QUEUE_SIZE_MAX;

/// The size of a descriptor in memory.
const DESCRIPTOR_BYTES: u64 = 16;

/// The parts that the requests of most guests have.
const PARTS_USUAL: usize = 4;

/// Why a chain cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadChain(pub(super) &'static str);

/// A table of descriptors in the guest's memory.
#[derive(Clone, Copy)]
pub(super) struct Table {
    pub(super) address: GuestAddress,
    pub(super) size: u16,
}

impl Table {
    fn descriptor<M: GuestMemory>(self, memory: &M, index: u16) -> Result<Descriptor, BadChain> {
        if index >= self.size {
            return Err(BadChain("a descriptor is beyond its table"));
        }
        let address = self.address.checked_add(u64::from(index) * DESCRIPTOR_BYTES);
        let descriptor = address.and_then(|address| memory.read_obj(address).ok());
        descriptor.ok_or(BadChain("a table is not in the guest's memory"))
    }

    /// The table that a descriptor of another one stands for.
    fn of(descriptor: &Descriptor) -> Result<Self, BadChain> {
        let length = u64::from(descriptor.len());
        let size = u16::try_from(length / DESCRIPTOR_BYTES).unwrap_or(0);
        // A longer one would keep the shard busy with one request.
        let is_possible = (1..=QUEUE_SIZE_MAX).contains(&size) && length.is_multiple_of(DESCRIPTOR_BYTES);
        if !is_possible {
            return Err(BadChain("an indirect table has an impossible size"));
        }
        Ok(Self { address: descriptor.addr(), size })
    }
}

/// The memory of a request.
#[derive(Default)]
pub(super) struct Chain {
    /// What the guest says.
    pub(super) readable: Stretches,
    /// Where it wants to be told.
    pub(super) writable: Stretches,
}

impl Chain {
    /// Walks the chain that begins at `head`.
    pub(super) fn at<M: GuestMemory>(memory: &M, queue: Table, head: u16) -> Result<Self, BadChain> {
        let (mut table, mut index, mut is_indirect) = (queue, head, false);
        let mut chain = Self::default();
        let mut left = table.size;
        loop {
            left = left.checked_sub(1).ok_or(BadChain("the descriptors form a circle"))?;
            let descriptor = table.descriptor(memory, index)?;
            if descriptor.refers_to_indirect_table() {
                if is_indirect || descriptor.has_next() {
                    return Err(BadChain("an indirect table is where none may be"));
                }
                table = Table::of(&descriptor)?;
                (index, left, is_indirect) = (0, table.size, true);
                continue;
            }
            chain.add(&descriptor)?;
            if !descriptor.has_next() {
                return Ok(chain);
            }
            index = descriptor.next();
        }
    }

    fn add(&mut self, descriptor: &Descriptor) -> Result<(), BadChain> {
        let stretches = match descriptor.is_write_only() {
            true => &mut self.writable,
            false if self.writable.bytes == 0 => &mut self.readable,
            false => return Err(BadChain("the guest says something behind what it wants to be told")),
        };
        stretches.parts.push((descriptor.addr(), descriptor.len()));
        stretches.bytes += u64::from(descriptor.len());
        Ok(())
    }
}

/// Stretches of the guest's memory, one behind the other.
#[derive(Default)]
pub(super) struct Stretches {
    parts: SmallVec<[(GuestAddress, u32); PARTS_USUAL]>,
    bytes: u64,
}

/// Memory that the guest has named is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoMemory;

impl Stretches {
    /// How many bytes they are.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Copies what stands from `offset` on.
    pub(super) fn read<M: GuestMemory>(
        &self,
        memory: &M,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), NoMemory> {
        let mut filled = 0;
        self.each(offset, into.len(), |address, length| {
            let part = &mut into[filled..filled + length];
            filled += length;
            memory.read_slice(part, address).map_err(|_| NoMemory)
        })
    }

    /// Replaces what stands from `offset` on.
    pub(super) fn write<M: GuestMemory>(&self, memory: &M, offset: u64, from: &[u8]) -> Result<(), NoMemory> {
        let mut written = 0;
        self.each(offset, from.len(), |address, length| {
            let part = &from[written..written + length];
            written += length;
            memory.write_slice(part, address).map_err(|_| NoMemory)
        })
    }

    /// Goes through the stretches of `length` bytes from `offset` on.
    fn each(
        &self,
        offset: u64,
        length: usize,
        mut serve: impl FnMut(GuestAddress, usize) -> Result<(), NoMemory>,
    ) -> Result<(), NoMemory> {
        let (mut skipped, mut left) = (offset, length);
        for (address, bytes) in &self.parts {
            let bytes = u64::from(*bytes);
            if skipped >= bytes {
                skipped -= bytes;
                continue;
            }
            if left == 0 {
                break;
            }
            let count = left.min((bytes - skipped) as usize);
            serve(address.checked_add(skipped).ok_or(NoMemory)?, count)?;
            (skipped, left) = (0, left - count);
        }
        if left == 0 { Ok(()) } else { Err(NoMemory) }
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
