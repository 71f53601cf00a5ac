//! A host with a capacity drive and a cache drive to which that is bound.

use spandrel_platform::Platform;
use spandrel_platform_simulated::{
    DriveImage, OpenDrive, Random, SimulatedDrive, SimulatedDriveConfig, SimulatedPlatform,
};
use spandrel_shared::DriveId;

use super::explorer::{Budget, crash_images};
use super::machine::{Machine, open};
use super::{Store, attach_options, drive_config, format_options};
use crate::{
    AttachError, AttachReport, CacheArea, CacheChoice, CacheDrive, CacheFormatOptions, CacheSuperblock,
    DriveStore,
};

const CACHE: &str = "cache";

/// Chunks of the cache drive that the capacity drive gets: its journal takes four of them.
pub const CHUNKS: u32 = 6;

/// What the two drives hold.
pub type Images = (DriveImage, DriveImage);

/// A host with both drives. Cheap to clone.
#[derive(Clone)]
pub struct CachedMachine {
    /// The host with the capacity drive.
    pub machine: Machine,
    /// The cache drive, as a thing.
    pub cache: SimulatedDrive,
}

/// Who the cache drive under test is.
pub fn cache_options() -> CacheFormatOptions {
    let options = format_options();
    CacheFormatOptions { cluster: options.cluster, node: options.node, drive: DriveId::from_bytes([4; 16]) }
}

/// A cache drive with a cache of its own that needs flushes.
pub fn cache_config() -> SimulatedDriveConfig {
    drive_config(4)
}

impl CachedMachine {
    /// A machine whose drives hold these.
    pub fn with_images(seed: u64, config: SimulatedDriveConfig, images: Images) -> Self {
        let machine = Machine::with_image(seed, config, images.0);
        let config = SimulatedDriveConfig { size_bytes: cache_config().size_bytes, ..config };
        let cache = machine.world.add_drive_from_image(CACHE, config, images.1);
        Self { machine, cache }
    }

    /// A machine whose drives are formatted.
    pub fn formatted(seed: u64, config: SimulatedDriveConfig) -> Self {
        let images = (DriveImage::new(config.size_bytes), DriveImage::new(cache_config().size_bytes));
        let cached = Self::with_images(seed, config, images);
        cached.machine.format();
        cached.run(|platform| async move {
            format_cache(&platform).await;
        });
        cached
    }

    /// A machine whose drives are bound and attached.
    pub fn attached(seed: u64, config: SimulatedDriveConfig) -> (Self, Store) {
        let cached = Self::formatted(seed, config);
        let (store, _) = cached.attach().unwrap();
        (cached, store)
    }

    /// See [`Machine::run`].
    pub fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        make: impl FnOnce(SimulatedPlatform) -> F,
    ) -> T {
        self.machine.run(make)
    }

    /// Attaches both drives, bound to each other.
    pub fn attach(&self) -> Result<(Store, AttachReport), AttachError> {
        self.run(attach_bound)
    }

    /// Attaches the capacity drive with a choice that is made of the cache drive.
    pub fn attach_with(
        &self,
        choose: impl FnOnce(CacheArea<OpenDrive>) -> CacheChoice<OpenDrive> + 'static,
    ) -> Result<(Store, AttachReport), AttachError> {
        self.run(|platform| async move {
            let area = bound_area(&platform).await?;
            let drive = open(&platform).await;
            DriveStore::attach_with(&platform, drive, attach_options(choose(area))).await
        })
    }

    /// What both drives hold.
    pub fn snapshot(&self) -> Images {
        (self.machine.drive.snapshot(), self.cache.snapshot())
    }

    /// What a power cut may leave on both now: images of one beside those of the other, as they come.
    pub fn crash_images(&self, budget: Budget, random: &Random) -> Vec<Images> {
        let capacity = crash_images(&self.machine.drive, budget, random);
        let cache = crash_images(&self.cache, budget, random);
        let count = capacity.len().max(cache.len());
        let any = |images: &[DriveImage], index: usize| images[index % images.len()].clone();
        (0..count)
            .map(|index| (any(&capacity, index), any(&cache, random.below(cache.len() as u64) as usize)))
            .collect()
    }
}

/// Opens the cache drive.
pub async fn open_cache(platform: &SimulatedPlatform) -> OpenDrive {
    platform.open_drive(CACHE).await.unwrap()
}

/// Formats the cache drive.
pub async fn format_cache(platform: &SimulatedPlatform) -> CacheSuperblock {
    let drive = open_cache(platform).await;
    CacheDrive::format(platform, &drive, cache_options()).await.unwrap()
}

/// Attaches the cache drive, and binds the capacity drive to it if it is not.
async fn bound_area(platform: &SimulatedPlatform) -> Result<CacheArea<OpenDrive>, AttachError> {
    let cache = CacheDrive::attach(platform, open_cache(platform).await, 0).await?;
    let id = format_options().drive;
    match cache.area(id) {
        Some(area) => Ok(area),
        None => cache.bind(id, CHUNKS).await,
    }
}

/// Opens and attaches both drives.
pub async fn attach_bound(platform: SimulatedPlatform) -> Result<(Store, AttachReport), AttachError> {
    let area = bound_area(&platform).await?;
    let drive = open(&platform).await;
    DriveStore::attach_with(&platform, drive, attach_options(CacheChoice::Bound(area))).await
}
