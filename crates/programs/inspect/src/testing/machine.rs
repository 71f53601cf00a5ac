//! A host with one drive, perhaps bound to a cache drive, on which the real store runs.

use std::collections::BTreeMap;
use std::future::Future;

use spandrel_drive::{
    AttachError, AttachOptions, AttachReport, BlockState, CacheChoice, CacheDrive, CacheFormatOptions,
    DriveStore, FormatOptions, ReadPart,
};
use spandrel_platform::Platform;
use spandrel_platform_simulated::{
    DriveImage, Process, Random, SimulatedDrive, SimulatedDriveConfig, SimulatedPlatform, World,
};
use spandrel_shared::checksum::crc32c;
use spandrel_shared::{
    BLOCK_BYTES, ClusterId, CopyId, DriveId, NodeId, PAGE_BLOCKS, SlabGeometry, SlabIndex, Version, VolumeId,
};

use super::Image;
use crate::inspection::{DamageKind, Inspection, ListedWrite};

/// The real store.
pub type Store = DriveStore<SimulatedPlatform>;

const DRIVE: &str = "drive";
const CACHE: &str = "cache";
const PROCESS: &str = "process";

/// Bytes of the cache drive, and chunks of it that the drive gets: its journal takes four.
const CACHE_BYTES: u64 = 4 << 20;
const CHUNKS: u32 = 6;

pub struct Machine {
    pub world: World,
    pub drive: SimulatedDrive,
    pub cache: Option<SimulatedDrive>,
}

impl Machine {
    /// A machine whose drive of 24 MiB is formatted for slabs of 4 MiB.
    pub fn formatted(seed: u64, sector_bytes: u32) -> Self {
        let mut image = DriveImage::new(24 << 20);
        // A file system has given the journal its room, so that only data can find none.
        image.write(0, &[0; 2 << 20]);
        let machine = Self::with_image(seed, sector_bytes, Image::new(image));
        machine.format();
        machine
    }

    /// The same, with a cache drive to which the drive will be bound.
    pub fn with_cache(seed: u64, sector_bytes: u32) -> Self {
        let mut image = Image::new(DriveImage::new(24 << 20));
        let mut cache = DriveImage::new(CACHE_BYTES);
        // A cache drive has all its room.
        cache.write(0, &[0; CACHE_BYTES as usize]);
        image.cache = Some(cache);
        let machine = Self::with_image(seed, sector_bytes, image);
        machine.format();
        machine.run(|platform| async move {
            let drive = platform.open_drive(CACHE).await.unwrap();
            let FormatOptions { cluster, node, .. } = format_options();
            let options = CacheFormatOptions { cluster, node, drive: DriveId::from_bytes([4; 16]) };
            CacheDrive::format(&platform, &drive, options).await.unwrap();
        });
        machine
    }

    fn format(&self) {
        self.run(|platform| async move {
            let drive = platform.open_drive(DRIVE).await.unwrap();
            DriveStore::format(&platform, &drive, format_options()).await.unwrap();
        });
    }

    /// A machine whose drives hold `image`.
    pub fn with_image(seed: u64, sector_bytes: u32, image: Image) -> Self {
        let world = World::new(seed);
        let host = world.add_host("host");
        let add = |name: &str, image: DriveImage| {
            let size_bytes = image.size_bytes();
            let config = SimulatedDriveConfig { size_bytes, sector_bytes, ..SimulatedDriveConfig::default() };
            world.add_drive_from_image(name, config, image)
        };
        let drive = add(DRIVE, image.image);
        let cache = image.cache.map(|cache| add(CACHE, cache));
        world.start_process_on(&host, PROCESS);
        Self { world, drive, cache }
    }

    /// What the drives hold.
    pub fn snapshot(&self) -> Image {
        let cache = self.cache.as_ref().map(SimulatedDrive::snapshot);
        Image { cache, ..Image::new(self.drive.snapshot()) }
    }

    /// What a power cut may leave, some possibilities of it.
    pub fn crash_images(&self, count: usize, random: &Random) -> Vec<Image> {
        let caches = self.cache.as_ref().map(|cache| cache.crash_images(0, count, random));
        let drives = self.drive.crash_images(0, count, random);
        let pair = |(index, image): (usize, DriveImage)| {
            let cache = caches.as_ref().map(|caches| caches[index % caches.len()].clone());
            Image { cache, ..Image::new(image) }
        };
        drives.into_iter().enumerate().map(pair).collect()
    }

    pub fn process(&self) -> Process {
        self.world.process(PROCESS)
    }

    pub fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        make: impl FnOnce(SimulatedPlatform) -> F,
    ) -> T {
        let process = self.process();
        let future = make(process.platform());
        process.block_on(future).unwrap_or_else(|end| panic!("the work does not end: {end:?}"))
    }

    pub fn attach(&self) -> Result<(Store, AttachReport), AttachError> {
        self.run(|platform| async move { attach(&platform).await })
    }
}

fn format_options() -> FormatOptions {
    FormatOptions {
        cluster: ClusterId::from_bytes([1; 16]),
        node: NodeId::from_bytes([2; 16]),
        drive: DriveId::from_bytes([3; 16]),
        slab_geometry: SlabGeometry::new(4 << 20).unwrap(),
    }
}

/// Attaches the drive, with the cache drive if there is one.
pub async fn attach(platform: &SimulatedPlatform) -> Result<(Store, AttachReport), AttachError> {
    let drive = platform.open_drive(DRIVE).await.unwrap();
    let Ok(cache) = platform.open_drive(CACHE).await else {
        return DriveStore::attach(platform, drive, 0).await;
    };
    let cache = CacheDrive::attach(platform, cache, 0).await?;
    let id = format_options().drive;
    let area = match cache.area(id) {
        Some(area) => area,
        None => cache.bind(id, CHUNKS).await?,
    };
    DriveStore::attach_with(platform, drive, AttachOptions::with_cache(CacheChoice::Bound(area))).await
}

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

/// What is known of a volume.
#[derive(Debug, PartialEq, Eq)]
pub struct VolumeView {
    pub fence: u32,
    pub mark: Version,
    pub exceptions: Vec<Version>,
    pub listed: Vec<ListedWrite>,
}

/// What is known of a drive, however it was found out.
#[derive(Debug, PartialEq, Eq)]
pub struct View {
    pub volumes: BTreeMap<VolumeId, VolumeView>,
    pub slabs: BTreeMap<(VolumeId, SlabIndex), SlabView>,
}

impl View {
    /// What the store says and reads.
    pub async fn of_store(store: &Store, report: &AttachReport) -> Self {
        let mut slabs = BTreeMap::new();
        for slab in store.slabs() {
            let descriptions = store.pages(slab.slot).unwrap();
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
            let listed = store.listed(volume).into_iter().map(|write| ListedWrite {
                version: write.version,
                slab: write.slab,
                first: write.first,
                count: write.count,
                in_doubt: write.in_doubt,
            });
            let view = VolumeView {
                fence: store.fence_epoch(volume).0,
                mark: store.mark(volume),
                exceptions: store.listed_exceptions(volume),
                listed: listed.collect(),
            };
            (volume, view)
        });
        Self { volumes: volumes.collect(), slabs }
    }

    /// What an inspection says, and the content that stands where it says that blocks are.
    pub fn of_inspection(inspection: &Inspection, image: &Image) -> Self {
        let mut slabs: BTreeMap<(VolumeId, SlabIndex), SlabView> = BTreeMap::new();
        for copy in &inspection.copies {
            let pages =
                copy.pages.iter().map(|page| (page.page, (page.version, page.whole, page.mapped_blocks)));
            let (pages, blocks) = (pages.collect(), BTreeMap::new());
            let view = SlabView { copy: copy.copy, blocks, pages, proven: copy.proven };
            slabs.insert((copy.volume, copy.slab), view);
        }
        for block in &inspection.blocks {
            let content = crc32c(&image.block(inspection, block.offset_bytes));
            let slab = slabs.get_mut(&(block.volume, block.slab)).unwrap();
            assert_eq!(slab.blocks.insert(block.block, Seen::Data(content)), None);
        }
        for damage in &inspection.damage {
            let seen = match damage.kind {
                DamageKind::Data => Seen::Damaged,
                DamageKind::Lost => Seen::Lost,
                _ => continue,
            };
            let slab = slabs.get_mut(&(damage.volume.unwrap(), damage.slab.unwrap())).unwrap();
            let first = damage.block.unwrap();
            slab.blocks.extend((first..first + damage.blocks).map(|block| (block, seen)));
        }
        for ((volume, slab), view) in &slabs {
            let report = inspection.copy_of(*volume, *slab).unwrap();
            let count = |wanted: Seen| view.blocks.values().filter(|seen| **seen == wanted).count() as u32;
            let (lost, damaged) = (count(Seen::Lost), count(Seen::Damaged));
            let stored = view.blocks.len() as u32 - lost;
            assert_eq!(
                (report.mapped_blocks, report.lost_blocks, report.damaged_blocks),
                (stored, lost, damaged)
            );
        }
        let volumes = inspection.volumes.iter().map(|volume| {
            let (mark, exceptions) = (volume.mark, volume.exceptions.clone());
            let (fence, listed) = (volume.fence_epoch.0, volume.listed.clone());
            (volume.volume, VolumeView { fence, mark, exceptions, listed })
        });
        Self { volumes: volumes.collect(), slabs }
    }
}

async fn blocks_of(store: &Store, slot: spandrel_drive::SlabSlot, count: u32) -> BTreeMap<u32, Seen> {
    let states = store.block_states(slot, 0, count).await.unwrap();
    let mut blocks = BTreeMap::new();
    let mut next = 0;
    for part in store.read(slot, 0, count).await.unwrap() {
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

/// Attaches the drive as one whose cache drive is lost.
pub async fn attach_lost(platform: &SimulatedPlatform) -> Result<(Store, AttachReport), AttachError> {
    let drive = platform.open_drive(DRIVE).await.unwrap();
    DriveStore::attach_with(platform, drive, AttachOptions::with_cache(CacheChoice::Lost(None))).await
}
