//! The map of a drive's store: what a block's place is, and what it costs to change and to read it.

use std::cell::Cell;

use divan::Bencher;
use divan::counter::ItemsCount;
use futures_util::FutureExt;
use futures_util::future::join_all;
use spandrel_drive::{DriveStore, FormatOptions, SlabLayout, SlabSlot};
use spandrel_platform::{BLOCK_BYTES, Buffer, Platform};
use spandrel_platform_simulated::{Process, SimulatedDriveConfig, SimulatedPlatform, World};
use spandrel_shared::checksum::BlockChecksum;
use spandrel_shared::geometry::SlabGeometry;
use spandrel_shared::{ClusterId, CopyId, DriveId, Epoch, NodeId, SlabIndex, Version, VolumeId};

use crate::world::{run, world};

const VOLUME: VolumeId = VolumeId::from_bytes([0xe1; 16]);
const SLAB_BYTES: u64 = 64 << 20;
const SLAB_BLOCKS: u32 = (SLAB_BYTES / BLOCK_BYTES as u64) as u32;
const EPOCH: Epoch = Epoch(2);

/// A store on a drive of its own, with one slab whose blocks have all been written.
struct Written {
    /// Nothing goes on without it.
    _world: World,
    process: Process,
    store: DriveStore<SimulatedPlatform>,
    slot: SlabSlot,
    data: Buffer,
    next: Cell<u64>,
}

impl Written {
    fn new() -> Self {
        let world = world();
        let host = world.add_host("machine");
        world.add_drive(
            "drive",
            SimulatedDriveConfig { size_bytes: 512 << 20, ..SimulatedDriveConfig::default() },
        );
        let process = world.start_process_on(&host, "node");
        let platform = process.platform();
        let (store, slot) = run(&process, async move {
            let drive = platform.open_drive("drive").await.expect("the drive is there");
            let options = FormatOptions {
                cluster: ClusterId::from_bytes([1; 16]),
                node: NodeId::from_bytes([2; 16]),
                drive: DriveId::from_bytes([3; 16]),
                slab_geometry: SlabGeometry::new(SLAB_BYTES).expect("64 MiB is a size of slabs"),
            };
            DriveStore::format(&platform, &drive, options).await.expect("the drive is empty");
            let (store, _) = DriveStore::attach(&platform, drive, 0).await.expect("the drive is whole");
            let copy = CopyId::from_bytes([4; 16]);
            let slot =
                store.add_slab(VOLUME, SlabIndex(0), SlabLayout::mirror(3, 0), copy, Version::ZERO).await;
            drop(store.fence(VOLUME, EPOCH).await);
            (store, slot.expect("there is room"))
        });
        let data = process.platform().buffers().take_zeroed(BLOCK_BYTES).freeze();
        let written = Self { _world: world, process, store, slot, data, next: Cell::new(0) };
        for _ in 0..SLAB_BLOCKS / 256 {
            written.write(256);
        }
        written
    }

    /// The block that comes next, here and there in the slab.
    fn next_block(&self) -> u32 {
        let turn = self.next.replace(self.next.get() + 1);
        (turn * 4099 % u64::from(SLAB_BLOCKS)) as u32
    }

    /// Writes so many blocks at the same time.
    fn write(&self, count: u32) {
        let checksum = BlockChecksum::new(VOLUME, SlabIndex(0));
        let writes: Vec<_> = (0..count)
            .map(|_| {
                let block = self.next_block();
                let version = Version::new(EPOCH, self.next.get());
                let checksums = vec![checksum.of(block, &self.data)];
                self.store.begin_write(self.slot, block, version, self.data.clone(), checksums.into())
            })
            .collect();
        let done = run(&self.process, join_all(writes));
        assert!(done.iter().all(Result::is_ok), "{done:?}");
        self.store.note_mark(VOLUME, Version::new(EPOCH, self.next.get()), &[]);
    }
}

/// Looks up where so many blocks in a row are.
#[divan::bench(args = [1, 512])]
fn look_up(bencher: Bencher<'_, '_>, count: u32) {
    let written = Written::new();
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        let first = written.next_block().min(SLAB_BLOCKS - count);
        let states = written.store.block_states(written.slot, first, count).now_or_never();
        states.expect("all of the map is in memory").expect("the slab is there").len()
    });
}

/// Writes so many blocks at a time: places, checksums, a group of the journal, the map.
#[divan::bench(args = [1, 32])]
fn write_blocks(bencher: Bencher<'_, '_>, count: u32) {
    let written = Written::new();
    bencher.counter(ItemsCount::new(count)).bench_local(|| written.write(count));
}

/// Reads a block, and checks it.
#[divan::bench]
fn read_block(bencher: Bencher<'_, '_>) {
    let written = Written::new();
    bencher.bench_local(|| {
        let (store, slot, block) = (written.store.clone(), written.slot, written.next_block());
        run(
            &written.process,
            async move { store.read(slot, block, 1).await.expect("the slab is there").len() },
        )
    });
}
