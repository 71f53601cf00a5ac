//! What is known of a drive, whoever found it out.

use std::collections::BTreeMap;

use spandrel_drive::{AttachReport, BlockState, DriveStore, ReadPart, SlabSlot};
use spandrel_inspect::{DamageKind, Inspection, Source};
use spandrel_platform_simulated::{DriveImage, SimulatedPlatform};
use spandrel_shared::checksum::crc32c;
use spandrel_shared::{BLOCK_BYTES, CopyId, PAGE_BLOCKS, SlabIndex, Version, VolumeId};

/// A slab of a volume.
pub type SlabKey = (VolumeId, SlabIndex);

/// What is known of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    Hole,
    /// Stored and whole; the CRC of the content.
    Data(u32),
    Damaged,
    Lost,
}

/// What is known of a slab's copy.
#[derive(Debug, PartialEq, Eq)]
pub struct SlabView {
    pub copy: CopyId,
    /// Everything that is no hole, by block.
    pub blocks: BTreeMap<u32, Seen>,
    /// Version, whole, blocks that are no holes; of each page that was ever written.
    pub pages: BTreeMap<u32, (Version, bool, u32)>,
    pub proven: Option<Version>,
}

/// What is known of a volume: its fence, its mark, the exceptions, versions and blocks of listed writes.
type VolumeView = (u32, Version, Vec<Version>, Vec<(Version, SlabIndex, u32, u32, bool)>);

/// What is known of a drive.
#[derive(Debug, PartialEq, Eq)]
pub struct View {
    pub volumes: BTreeMap<VolumeId, VolumeView>,
    pub slabs: BTreeMap<SlabKey, SlabView>,
}

/// The content of a drive, for the offline reader.
pub struct Image<'a>(pub &'a DriveImage);

impl Source for Image<'_> {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.0.read(offset, into);
        Ok(())
    }
}

impl View {
    /// That the store and the offline reader see the same.
    pub fn assert_same(store: &Self, reader: &Self) {
        assert_eq!(store.volumes, reader.volumes, "volumes, as the store and as the offline reader see them");
        assert!(
            store.slabs.keys().eq(reader.slabs.keys()),
            "{:?}, {:?}",
            store.slabs.keys(),
            reader.slabs.keys()
        );
        for (key, slab) in &store.slabs {
            let other = &reader.slabs[key];
            let facts = |slab: &SlabView| (slab.copy, slab.proven, slab.pages.clone());
            assert_eq!(facts(slab), facts(other), "{key:?}, as the store and as the offline reader see it");
            let blocks = slab.blocks.keys().chain(other.blocks.keys());
            for block in blocks {
                let (seen, other) = (slab.blocks.get(block), other.blocks.get(block));
                assert_eq!(
                    seen, other,
                    "block {block} of {key:?}, read by the store and by the offline reader"
                );
            }
        }
    }

    /// What the store says and reads.
    pub async fn of_store(store: &DriveStore<SimulatedPlatform>, report: &AttachReport) -> Self {
        let mut slabs = BTreeMap::new();
        for slab in store.slabs() {
            let descriptions = store.pages(slab.slot).expect("the slab was just named");
            let pages = (0..).zip(&descriptions).filter_map(|(index, page)| {
                let view = (page.version, page.whole, u32::from(page.mapped_blocks));
                (view != Default::default()).then_some((index, view))
            });
            let pages = pages.collect();
            let blocks = blocks_of(store, slab.slot, descriptions.len() as u32 * PAGE_BLOCKS).await;
            let unproven = report.unproven.iter().find(|copy| copy.slot == slab.slot);
            let proven = unproven.map(|copy| copy.proven);
            slabs.insert((slab.volume, slab.slab), SlabView { copy: slab.copy, blocks, pages, proven });
        }
        let volumes = store.volumes().into_iter().map(|volume| {
            let listed = store.listed(volume).into_iter();
            let listed =
                listed.map(|write| (write.version, write.slab, write.first, write.count, write.in_doubt));
            let fence = store.fence_epoch(volume).0;
            (volume, (fence, store.mark(volume), store.listed_exceptions(volume), listed.collect()))
        });
        Self { volumes: volumes.collect(), slabs }
    }

    /// What an inspection says, and the content that stands where it says that blocks are.
    pub fn of_inspection(inspection: &Inspection, image: &DriveImage) -> Self {
        let mut slabs: BTreeMap<SlabKey, SlabView> = BTreeMap::new();
        for copy in &inspection.copies {
            let pages =
                copy.pages.iter().map(|page| (page.page, (page.version, page.whole, page.mapped_blocks)));
            let (pages, blocks) = (pages.collect(), BTreeMap::new());
            let view = SlabView { copy: copy.copy, blocks, pages, proven: copy.proven };
            slabs.insert((copy.volume, copy.slab), view);
        }
        for block in &inspection.blocks {
            let whole_is_there = block.offset_bytes.checked_add(BLOCK_BYTES as u64);
            if whole_is_there.is_some_and(|end| end <= image.size_bytes()) {
                let content = crc32c(&image.read_vec(block.offset_bytes, BLOCK_BYTES));
                let slab = slabs.get_mut(&(block.volume, block.slab)).expect("a block is of a copy");
                slab.blocks.insert(block.block, Seen::Data(content));
            }
        }
        for damage in &inspection.damage {
            let seen = match damage.kind {
                DamageKind::Data => Seen::Damaged,
                DamageKind::Lost => Seen::Lost,
                _ => continue,
            };
            let (volume, slab) = damage.volume.zip(damage.slab).expect("data are of a slab");
            let first = damage.block.expect("data are of a block");
            let slab = slabs.get_mut(&(volume, slab)).expect("a block is of a copy");
            slab.blocks.extend((first..first + damage.blocks).map(|block| (block, seen)));
        }
        let volumes = inspection.volumes.iter().map(|volume| {
            let listed = volume.listed.iter();
            let listed =
                listed.map(|write| (write.version, write.slab, write.first, write.count, write.in_doubt));
            let view = (volume.fence_epoch.0, volume.mark, volume.exceptions.clone(), listed.collect());
            (volume.volume, view)
        });
        Self { volumes: volumes.collect(), slabs }
    }
}

async fn blocks_of(store: &DriveStore<SimulatedPlatform>, slot: SlabSlot, count: u32) -> BTreeMap<u32, Seen> {
    let states = store.block_states(slot, 0, count).await.expect("the slab has so many blocks");
    let mut blocks = BTreeMap::new();
    let mut next = 0;
    for part in store.read(slot, 0, count).await.expect("the drive works") {
        match &part {
            ReadPart::Hole { .. } => {}
            ReadPart::Data { data, .. } => {
                let contents = data.chunks_exact(BLOCK_BYTES).map(|block| Seen::Data(crc32c(block)));
                blocks.extend((next..).zip(contents));
            }
            ReadPart::Damaged(damaged) => {
                let is_lost = states[damaged.block as usize] == BlockState::Lost;
                blocks.insert(damaged.block, if is_lost { Seen::Lost } else { Seen::Damaged });
            }
        }
        next += part.count();
    }
    blocks
}
