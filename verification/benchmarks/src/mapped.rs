//! A drive all of whose copies are full, without a byte of data being written: to see what it costs that much is mapped.
//!
//! The file of a drive that nobody uses is given maps that name a block for each block of each slab copy on it, with the checksum
//! that zeros have there. That is what reads of a sparse file return, so all of it is whole.
//!
//! Invariants:
//! - The root comes last: until it is written the drive is as it was.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use spandrel_drive::format::map::{Leaf, Mapping, PageEntry, PagePointer, encode_leaf, encode_slab_root};
use spandrel_drive::format::root::Root;
use spandrel_drive::layout::ROOT_SLOTS;
use spandrel_drive::{Layout, Superblock};
use spandrel_shared::checksum::{BlockChecksum, crc32c};
use spandrel_shared::{BLOCK_BYTES, Epoch, PAGE_BLOCKS, Version};

/// What each page was written under.
const VERSION: Version = Version { epoch: Epoch(1), counter: 1 };

/// Leaves that are written at once.
const LEAVES_AT_ONCE: usize = 256;

/// Maps all blocks of all slab copies on a drive. Returns how many bytes that are.
pub fn map_all(path: &Path) -> Result<u64, String> {
    let of_it = |error: std::io::Error| format!("{}: {error}", path.display());
    let file = File::options().read(true).write(true).open(path).map_err(of_it)?;
    let mut block = vec![0; BLOCK_BYTES];
    file.read_exact_at(&mut block, 0).map_err(of_it)?;
    let superblock = Superblock::decode(&block).map_err(|error| format!("{}: {error:?}", path.display()))?;
    let mut root = newest_root(&file, &superblock).map_err(of_it)?;
    let mut drive = DriveMap::new(&file, superblock.layout, &root);
    let mut mapped_blocks = 0;
    for index in 0..root.slabs.len() {
        let slab = &root.slabs[index];
        let volume = root.volumes.iter().find(|volume| volume.slot == slab.volume_slot);
        let volume = volume.ok_or_else(|| format!("slab {} belongs to no volume", slab.slab))?.volume;
        let map = drive.map_slab(&BlockChecksum::new(volume, slab.slab)).map_err(of_it)?;
        root.slabs[index].map = map;
        mapped_blocks += u64::from(superblock.layout.slab_geometry.slab_blocks());
    }
    file.sync_data().map_err(of_it)?;
    root.generation += 1;
    let bytes = root.encode();
    for slot in Layout::root_slots_of(root.generation) {
        let offset = Layout::offset_of(superblock.layout.root_slot(slot));
        file.write_all_at(&bytes, offset).map_err(of_it)?;
    }
    file.sync_data().map_err(of_it)?;
    Ok(mapped_blocks * BLOCK_BYTES as u64)
}

fn newest_root(file: &File, superblock: &Superblock) -> std::io::Result<Root> {
    let mut newest: Option<Root> = None;
    let mut bytes = vec![0; superblock.layout.root_slot_blocks as usize * BLOCK_BYTES];
    for slot in 0..ROOT_SLOTS {
        file.read_exact_at(&mut bytes, Layout::offset_of(superblock.layout.root_slot(slot)))?;
        let root = Root::decode(&bytes, superblock.drive).ok();
        newest = newest.into_iter().chain(root).max_by_key(|root| root.generation);
    }
    newest.ok_or_else(|| std::io::Error::other("no root of the drive's maps is whole"))
}

/// The blocks of a drive that are not taken yet, and what is written to them.
struct DriveMap<'a> {
    file: &'a File,
    layout: Layout,
    /// Map pages that the root names so far.
    taken: BTreeSet<u32>,
    next: u32,
    zeros_checksum: u32,
}

impl<'a> DriveMap<'a> {
    fn new(file: &'a File, layout: Layout, root: &Root) -> Self {
        let taken = root.slabs.iter().map(|slab| slab.map.block).collect();
        let zeros_checksum = crc32c(&[0; BLOCK_BYTES]);
        Self { file, layout, taken, next: layout.data_first_block, zeros_checksum }
    }

    fn take(&mut self) -> std::io::Result<u32> {
        while self.taken.contains(&self.next) {
            self.next += 1;
        }
        if self.next >= self.layout.data_end_block() {
            return Err(std::io::Error::other("the drive has no room for all that its slabs can hold"));
        }
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Maps all blocks of a slab copy that was empty. Returns its root page.
    fn map_slab(&mut self, checksum: &BlockChecksum) -> std::io::Result<PagePointer> {
        let mut entries = Vec::new();
        let pages: Vec<u32> = (0..self.layout.slab_geometry.slab_pages()).collect();
        for step in pages.chunks(LEAVES_AT_ONCE) {
            let places = step.iter().map(|_| self.take()).collect::<Result<Vec<u32>, _>>()?;
            let mut bytes = vec![0; step.len() * BLOCK_BYTES];
            for ((page, place), leaf_bytes) in step.iter().zip(&places).zip(bytes.chunks_mut(BLOCK_BYTES)) {
                let leaf = self.leaf(*page, checksum)?;
                let leaf = PagePointer { block: *place, checksum: encode_leaf(&leaf, leaf_bytes) };
                entries.push(PageEntry { leaf, version: VERSION, whole: false });
            }
            self.write(&places, &bytes)?;
        }
        let mut bytes = vec![0; BLOCK_BYTES];
        let place = self.take()?;
        let pointer = PagePointer { block: place, checksum: encode_slab_root(&entries, &mut bytes) };
        self.write(&[place], &bytes)?;
        Ok(pointer)
    }

    fn leaf(&mut self, page: u32, checksum: &BlockChecksum) -> std::io::Result<Leaf> {
        let mut leaf = [Mapping::NONE; PAGE_BLOCKS as usize];
        for (block, mapping) in (page * PAGE_BLOCKS..).zip(&mut leaf) {
            *mapping =
                Mapping { block: self.take()?, checksum: self.zeros_checksum ^ checksum.address_mix(block) };
        }
        Ok(leaf)
    }

    /// Writes pages to their places, which lie in a row but for a few.
    fn write(&self, places: &[u32], bytes: &[u8]) -> std::io::Result<()> {
        let mut rest = bytes;
        for run in places.chunk_by(|one, other| one + 1 == *other) {
            let (now, later) = rest.split_at(run.len() * BLOCK_BYTES);
            self.file.write_all_at(now, Layout::offset_of(run[0]))?;
            rest = later;
        }
        Ok(())
    }
}
