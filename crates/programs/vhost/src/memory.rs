//! The guest's memory: files that the machine passes on, mapped, and what the machine's own addresses mean there.
//!
//! Whoever can shorten such a file could end this process, which would then touch memory that is not there. So a file must be sealed
//! against that.

use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags};
use vhost::vhost_user::message::VhostUserMemoryRegion;
use vm_memory::mmap::MmapRegionBuilder;
use vm_memory::{FileOffset, GuestAddress, GuestMemoryMmap, GuestRegionMmap};

use crate::dirty_log::{DirtyLog, RegionLog};

/// The guest's memory, mapped. What is written there is marked.
pub(crate) type Memory = GuestMemoryMmap<RegionLog>;

/// The guest's memory, and where the machine has it.
pub(crate) struct GuestTable {
    pub(crate) memory: Arc<Memory>,
    regions: Vec<VhostUserMemoryRegion>,
}

impl GuestTable {
    /// Maps it. What is written there is marked in `log`.
    pub(crate) fn map(
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        log: &Arc<DirtyLog>,
    ) -> io::Result<Self> {
        let mapped: io::Result<Vec<_>> =
            regions.iter().zip(files).map(|(region, file)| map(region, file, log)).collect();
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

fn map(
    region: &VhostUserMemoryRegion,
    file: File,
    log: &Arc<DirtyLog>,
) -> io::Result<GuestRegionMmap<RegionLog>> {
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
    let log = RegionLog { log: Arc::clone(log), base: region.guest_phys_addr };
    let mapped = MmapRegionBuilder::new_with_bitmap(length, log)
        .with_mmap_prot((ProtFlags::READ | ProtFlags::WRITE).bits() as i32)
        .with_mmap_flags((MapFlags::SHARED | MapFlags::NORESERVE).bits() as i32)
        .with_file_offset(FileOffset::new(file, region.mmap_offset))
        .build();
    let region =
        GuestRegionMmap::new(mapped.map_err(io::Error::other)?, GuestAddress(region.guest_phys_addr));
    region.ok_or_else(|| io::Error::other("the guest's memory ends beyond all addresses"))
}
