//! The guest's memory: files that the machine passes on, mapped, and what the machine's own addresses mean there.
//!
//! Whoever can shorten such a file could end this process, which would then touch memory that is not there. So a file must be sealed
//! against that.

use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::fs::SealFlags;
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap, MmapRegion};

/// The guest's memory, mapped.
pub(crate) type Memory = GuestMemoryMmap<()>;

/// The guest's memory, and where the machine has it.
pub(crate) struct GuestTable {
    pub(crate) memory: Arc<Memory>,
    regions: Vec<VhostUserMemoryRegion>,
}

impl GuestTable {
    /// Maps it.
    pub(crate) fn map(regions: &[VhostUserMemoryRegion], files: Vec<File>) -> io::Result<Self> {
        let mapped: io::Result<Vec<_>> =
            regions.iter().zip(files).map(|(region, file)| map(region, file)).collect();
        let memory = Memory::from_regions(mapped?).map_err(io::Error::other)?;
        Ok(Self { memory: Arc::new(memory), regions: regions.to_vec() })
    }

    /// What the machine's address `address` is to the guest.
    pub(crate) fn guest_address(&self, address: u64) -> Option<GuestAddress> {
        let within = |region: &&VhostUserMemoryRegion| {
            address.checked_sub(region.user_addr).is_some_and(|offset| offset < region.memory_size)
        };
        let region = self.regions.iter().find(within)?;
        Some(GuestAddress(region.guest_phys_addr + (address - region.user_addr)))
    }
}

fn map(region: &VhostUserMemoryRegion, file: File) -> io::Result<GuestRegionMmap<()>> {
    let seals = rustix::fs::fcntl_get_seals(&file).unwrap_or(SealFlags::empty());
    if !seals.contains(SealFlags::SHRINK) {
        return Err(io::Error::other(
            "the guest's memory is a file that could be shortened, and not sealed against it",
        ));
    }
    let end = region.mmap_offset.checked_add(region.memory_size);
    if end.is_none_or(|end| file.metadata().is_ok_and(|metadata| metadata.len() < end)) {
        return Err(io::Error::other("the guest's memory is shorter than was said"));
    }
    let length = usize::try_from(region.memory_size).map_err(io::Error::other)?;
    let mapped =
        MmapRegion::from_file(FileOffset::new(file, region.mmap_offset), length).map_err(io::Error::other)?;
    let region = GuestRegionMmap::new(mapped, GuestAddress(region.guest_phys_addr));
    region.ok_or_else(|| io::Error::other("the guest's memory ends beyond all addresses"))
}
