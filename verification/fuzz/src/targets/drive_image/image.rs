//! Drives that the shipping store wrote, and what may be read from them.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use spandrel_drive::{DriveStore, FormatOptions, SlabLayout, SlabSlot};
use spandrel_inspect::Structure;
use spandrel_platform::Platform;
use spandrel_platform_simulated::{
    DriveImage, SimulatedDrive, SimulatedDriveConfig, SimulatedPlatform, World, WorldConfig,
};
use spandrel_shared::checksum::{BlockChecksum, crc32c};
use spandrel_shared::{
    BLOCK_BYTES, ClusterId, CopyId, DriveId, Epoch, NodeId, PAGE_BLOCKS, SlabGeometry, SlabIndex, Version,
    VolumeId,
};

use super::inspect;
use super::view::{Seen, SlabKey, View};

const SIZE_BYTES: u64 = 24 << 20;
const SECTOR_BYTES: u32 = 512;
const DRIVE: &str = "drive";
const PROCESS: &str = "process";

/// The size of the drives, in bytes.
pub const fn drive_bytes() -> u64 {
    SIZE_BYTES
}

/// A drive, and what was written to it.
pub struct Written {
    pub image: DriveImage,
    /// Everything on it that has a checksum and is no data.
    pub structures: Vec<Structure>,
    /// Where data stand.
    pub data: Vec<u64>,
    /// What each block holds, and what it held before.
    contents: BTreeMap<(SlabKey, u32), Vec<Seen>>,
}

impl Written {
    /// That what a store offers as whole is what was written: the newest content, if little is damaged.
    pub fn judge(&self, view: &View, newest: bool) {
        for (key, slab) in &view.slabs {
            for (block, history) in self.contents.range((*key, 0)..=(*key, u32::MAX)) {
                let seen = slab.blocks.get(&block.1).copied().unwrap_or(Seen::Hole);
                // The store says that it does not know, or that it may have less than all.
                let is_owned_up = matches!(seen, Seen::Damaged | Seen::Lost) || slab.proven.is_some();
                let is_newest = history.last() == Some(&seen);
                let is_possible = history.contains(&seen) || seen == Seen::Hole;
                assert!(
                    is_newest || is_owned_up || (!newest && is_possible),
                    "{block:?}: {seen:?}, {history:?}"
                );
            }
            let offered = slab.blocks.iter().filter(|(_, seen)| matches!(seen, Seen::Data(_)));
            for (block, _) in offered {
                assert!(self.contents.contains_key(&(*key, *block)), "block {block} of {key:?} was written");
            }
        }
        let slabs: Vec<&SlabKey> = self.contents.keys().map(|(slab, _)| slab).collect();
        assert!(!newest || slabs.iter().all(|slab| view.slabs.contains_key(slab)), "every copy is there");
    }
}

thread_local! {
    static WRITTEN: [OnceCell<Written>; 2] = const { [OnceCell::new(), OnceCell::new()] };
}

/// Has `use_it` work with one of the drives: an even number is one whose journal holds much, an odd one
/// is one that was attached again and made a checkpoint.
pub fn written<T>(number: usize, use_it: impl FnOnce(&Written) -> T) -> T {
    WRITTEN.with(|drives| use_it(drives[number % 2].get_or_init(|| write_drive(number % 2 == 1))))
}

fn world(image: DriveImage) -> (World, SimulatedDrive) {
    let mut config = WorldConfig::default();
    config.limits.steps = 10_000_000;
    let world = World::with_config(1, config);
    let host = world.add_host("host");
    let drive = SimulatedDriveConfig {
        size_bytes: SIZE_BYTES,
        sector_bytes: SECTOR_BYTES,
        ..SimulatedDriveConfig::default()
    };
    let drive = world.add_drive_from_image(DRIVE, drive, image);
    world.start_process_on(&host, PROCESS);
    (world, drive)
}

fn run<T: 'static, F: Future<Output = T> + 'static>(
    world: &World,
    make: impl FnOnce(SimulatedPlatform) -> F,
) -> T {
    let process = world.process(PROCESS);
    let end = process.block_on(make(process.platform()));
    end.unwrap_or_else(|end| panic!("the work on the drive does not come to its end: {end:?}"))
}

/// What a store finds on the drive; `None` if it does not take it. A store that takes it must be able
/// to go on.
pub fn attach(image: &DriveImage) -> Option<View> {
    let (world, _drive) = world(image.clone());
    run(&world, |platform| async move {
        let drive = platform.open_drive(DRIVE).await.expect("the drive is there");
        let (store, report) = DriveStore::attach(&platform, drive, 0).await.ok()?;
        let view = View::of_store(&store, &report).await;
        go_on(&platform, &store).await;
        Some(view)
    })
}

/// Does a little of everything. It may fail, as every request may; the store must bear it.
async fn go_on(platform: &SimulatedPlatform, store: &DriveStore<SimulatedPlatform>) {
    let epoch = Epoch(u32::MAX);
    for slab in store.slabs() {
        let checksum = BlockChecksum::new(slab.volume, slab.slab);
        let data = vec![0x77; 2 * BLOCK_BYTES];
        let blocks = (510..).zip(data.chunks(BLOCK_BYTES));
        let checksums = blocks.map(|(block, data)| checksum.of(block, data)).collect();
        let buffer = platform.buffers().copy_of(&data).freeze();
        drop(store.fence(slab.volume, epoch).await);
        drop(store.write(slab.slot, 510, Version::new(epoch, 1), buffer, checksums).await);
        drop(store.trim(slab.slot, 0, 600, Version::new(epoch, 2)).await);
        store.note_mark(slab.volume, Version::new(epoch, 2), &[]);
    }
    drop(store.checkpoint().await);
    if let Some(slab) = store.slabs().first() {
        drop(store.remove_slab(slab.slot).await);
        let layout = SlabLayout::mirror(2, 1);
        let copy = CopyId::from_bytes([0x99; 16]);
        drop(store.add_slab(slab.volume, slab.slab, layout, copy, Version::ZERO).await);
    }
    drop(store.checkpoint().await);
}

/// Writes a drive. The last thing that it says is of no consequence for what blocks hold, since nobody can
/// tell the loss of the last group from a power cut before it.
fn write_drive(attach_again: bool) -> Written {
    let (world, drive) = world(DriveImage::new(SIZE_BYTES));
    let mut contents = run(&world, |platform| async move {
        let drive = platform.open_drive(DRIVE).await.expect("the drive is there");
        let options = FormatOptions {
            cluster: ClusterId::from_bytes([1; 16]),
            node: NodeId::from_bytes([2; 16]),
            drive: DriveId::from_bytes([3; 16]),
            slab_geometry: SlabGeometry::new(4 << 20).expect("4 MiB is a size of slabs"),
        };
        DriveStore::format(&platform, &drive, options).await.expect("the drive is empty");
        drop(drive);
        let mut writer = Writer::attach(&platform).await;
        writer.add_slabs().await;
        writer.work(1).await;
        writer.contents
    });
    if attach_again {
        world.process(PROCESS).crash();
        world.start_process_on(&world.host("host"), PROCESS);
        let former = contents;
        contents = run(&world, |platform| async move {
            let mut writer = Writer::attach(&platform).await;
            writer.contents = former;
            writer.store.checkpoint().await.expect("there is room");
            writer.work(2).await;
            writer.contents
        });
    }
    let image = drive.snapshot();
    let inspection = inspect(&image).expect("a drive of ours");
    assert_eq!(inspection.damage, [], "what is changed later is whole");
    let data = inspection.blocks.iter().map(|block| block.offset_bytes).collect();
    Written { image, structures: inspection.structures, data, contents }
}

/// Writes blocks and keeps in mind what it wrote.
struct Writer {
    platform: SimulatedPlatform,
    store: DriveStore<SimulatedPlatform>,
    contents: BTreeMap<(SlabKey, u32), Vec<Seen>>,
}

const VOLUMES: [VolumeId; 2] = [VolumeId::from_bytes([0xe1; 16]), VolumeId::from_bytes([0xe2; 16])];
const SLABS: [SlabKey; 3] =
    [(VOLUMES[0], SlabIndex(0)), (VOLUMES[0], SlabIndex(1)), (VOLUMES[1], SlabIndex(0))];

impl Writer {
    async fn attach(platform: &SimulatedPlatform) -> Self {
        let drive = platform.open_drive(DRIVE).await.expect("the drive is there");
        let (store, _) = DriveStore::attach(platform, drive, 0).await.expect("the drive is whole");
        Self { platform: platform.clone(), store, contents: BTreeMap::new() }
    }

    async fn add_slabs(&self) {
        for (number, (volume, slab)) in (1..).zip(SLABS) {
            let copy = CopyId::from_bytes([number; 16]);
            let layout = SlabLayout::mirror(3, number % 3);
            self.store.add_slab(volume, slab, layout, copy, Version::ZERO).await.expect("there is room");
        }
    }

    fn slot(&self, (volume, slab): SlabKey) -> SlabSlot {
        self.store.find_slab(volume, slab).expect("it was added").slot
    }

    /// A little of everything that makes records.
    async fn work(&mut self, epoch: u32) {
        for volume in VOLUMES {
            self.store.fence(volume, Epoch(epoch)).await.expect("the drive works");
        }
        let version = |counter| Version::new(Epoch(epoch), counter);
        let mut counter = 0;
        for round in 0..4 {
            for (number, slab) in (0..).zip(SLABS) {
                counter += 1;
                let first = [0, 3, PAGE_BLOCKS - 2, PAGE_BLOCKS + 7][round];
                self.write(slab, first, 4 + number, version(counter)).await;
            }
            if round == 1 {
                self.store.checkpoint().await.expect("there is room");
            }
        }
        let slot = self.slot(SLABS[0]);
        self.store.trim(slot, 2, 2, version(counter + 1)).await.expect("the drive works");
        for block in 2..4 {
            self.contents.entry((SLABS[0], block)).or_default().push(Seen::Hole);
        }
        self.store.set_page_version(slot, 1, version(counter + 2), true).await.expect("the drive works");
        self.store.note_mark(VOLUMES[0], version(counter - 2), &[version(2)]);
        self.write(SLABS[1], 40, 2, version(counter + 3)).await;
        self.store.fence(VOLUMES[1], Epoch(epoch)).await.expect("the drive works");
    }

    async fn write(&mut self, (volume, slab): SlabKey, first: u32, count: u32, version: Version) {
        let checksum = BlockChecksum::new(volume, slab);
        let mut data = Vec::new();
        let mut checksums = Vec::new();
        for block in first..first + count {
            let content = version.counter << 32 | u64::from(block) << 8 | u64::from(version.epoch.0);
            let content = content.to_le_bytes().repeat(BLOCK_BYTES / 8);
            checksums.push(checksum.of(block, &content));
            let seen = Seen::Data(crc32c(&content));
            self.contents.entry(((volume, slab), block)).or_default().push(seen);
            data.extend(content);
        }
        let buffer = self.platform.buffers().copy_of(&data).freeze();
        let slot = self.slot((volume, slab));
        self.store.write(slot, first, version, buffer, checksums.into()).await.expect("the drive works");
    }
}
