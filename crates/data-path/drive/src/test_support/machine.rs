//! A host with one drive, and the process that uses it.

use std::future::Future;

use spandrel_platform::Platform;
use spandrel_platform_simulated::{
    DriveImage, Host, OpenDrive, Process, SimulatedDrive, SimulatedDriveConfig, SimulatedPlatform, World,
};
use spandrel_shared::{BLOCK_BYTES, CopyId, SlabGeometry, Version};

use super::observation::{Content, fill};
use super::script::checksums;
use super::{SlabKey, Store, attach_options, format_options, small_slabs};
use crate::layout::Layout;
use crate::media::Media;
use crate::{
    AttachError, AttachReport, CacheChoice, DriveStore, FormatOptions, SlabLayout, SlabSlot, StoreError,
};

const DRIVE: &str = "drive";
const PROCESS: &str = "process";

/// A host with one drive. Cheap to clone.
#[derive(Clone)]
pub struct Machine {
    /// Everything.
    pub world: World,
    /// The host.
    pub host: Host,
    /// The drive, as a thing.
    pub drive: SimulatedDrive,
}

impl Machine {
    /// A machine whose drive holds zeros.
    pub fn new(seed: u64, config: SimulatedDriveConfig) -> Self {
        Self::with_image(seed, config, DriveImage::new(config.size_bytes))
    }

    /// A machine whose drive holds `image`.
    pub fn with_image(seed: u64, config: SimulatedDriveConfig, image: DriveImage) -> Self {
        let world = World::new(seed);
        let host = world.add_host("host");
        let drive = world.add_drive_from_image(DRIVE, config, image);
        world.start_process_on(&host, PROCESS);
        Self { world, host, drive }
    }

    /// A machine whose drive is formatted.
    pub fn formatted(seed: u64, config: SimulatedDriveConfig) -> Self {
        let machine = Self::new(seed, config);
        machine.format();
        machine
    }

    /// Formats the drive for small slabs.
    pub fn format(&self) {
        self.format_with(small_slabs());
    }

    /// Formats the drive.
    pub fn format_with(&self, slab_geometry: SlabGeometry) {
        self.run(move |platform| async move {
            let drive = open(&platform).await;
            let options = FormatOptions { slab_geometry, ..format_options() };
            DriveStore::format(&platform, &drive, options).await.unwrap();
        });
    }

    /// A machine whose drive is formatted, and its store.
    pub fn attached(seed: u64, config: SimulatedDriveConfig) -> (Self, Store) {
        let machine = Self::formatted(seed, config);
        let (store, _) = machine.attach().unwrap();
        (machine, store)
    }

    /// The process that runs.
    pub fn process(&self) -> Process {
        self.world.process(PROCESS)
    }

    /// The platform of the process that runs.
    pub fn platform(&self) -> SimulatedPlatform {
        self.process().platform()
    }

    /// Runs what `make` makes until it has completed.
    pub fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        make: impl FnOnce(SimulatedPlatform) -> F,
    ) -> T {
        let process = self.process();
        let future = make(process.platform());
        process.block_on(future).unwrap_or_else(|end| panic!("the work does not end: {end:?}"))
    }

    /// Attaches the drive in the process that runs.
    pub fn attach(&self) -> Result<(Store, AttachReport), AttachError> {
        self.run(attach)
    }

    /// The process dies and starts again. The drive has kept what completed.
    pub fn restart(&self) {
        self.process().crash();
        self.world.start_process_on(&self.host, PROCESS);
    }

    /// The power fails and returns. The drive has kept what the seed says of what it may lose.
    pub fn power_cycle(&self) {
        self.host.power_cut();
        self.host.power_on();
        self.world.start_process_on(&self.host, PROCESS);
    }
}

/// Opens the drive.
pub async fn open(platform: &SimulatedPlatform) -> OpenDrive {
    platform.open_drive(DRIVE).await.unwrap()
}

/// The drive as the media of a store that is bound to no cache drive.
pub fn capacity(platform: &SimulatedPlatform, drive: &OpenDrive, layout: &Layout) -> Media<OpenDrive> {
    Media::new(drive.clone(), None, layout, platform.buffers().clone())
}

/// A file on a full file system, as the drive under a store: the journal and the roots have their
/// room, and what was written once has it, too.
pub fn preallocated(config: SimulatedDriveConfig) -> DriveImage {
    let layout = Layout::for_drive(config.size_bytes, config.sector_bytes, small_slabs()).unwrap();
    let mut image = DriveImage::new(config.size_bytes);
    image.write(0, &vec![0; layout.data_first_block as usize * BLOCK_BYTES]);
    image
}

/// Opens and attaches the drive.
pub async fn attach(platform: SimulatedPlatform) -> Result<(Store, AttachReport), AttachError> {
    let drive = open(&platform).await;
    DriveStore::attach_with(&platform, drive, attach_options(CacheChoice::None)).await
}

/// Writes one block.
pub async fn write_block(
    platform: &SimulatedPlatform,
    store: &Store,
    key: SlabKey,
    block: u32,
    version: Version,
    content: Content,
) -> Result<(), StoreError> {
    write_blocks(platform, store, key, block, version, &[content]).await
}

/// Writes blocks that lie behind each other.
pub async fn write_blocks(
    platform: &SimulatedPlatform,
    store: &Store,
    key: SlabKey,
    first: u32,
    version: Version,
    contents: &[Content],
) -> Result<(), StoreError> {
    let mut data = platform.buffers().take(contents.len() * BLOCK_BYTES);
    for (content, block) in contents.iter().zip(data.chunks_exact_mut(BLOCK_BYTES)) {
        fill(*content, block);
    }
    let checksums = checksums(key, first, &data);
    let slot = store.find_slab(key.0, key.1).expect("a slab that is there").slot;
    store.write(slot, first, version, data.freeze(), checksums.into()).await
}

/// Adds a slab's copy.
pub async fn add_slab(store: &Store, key: SlabKey, copy: CopyId) -> Result<SlabSlot, StoreError> {
    store.add_slab(key.0, key.1, SlabLayout::mirror(2, 0), copy, Version::ZERO).await
}
