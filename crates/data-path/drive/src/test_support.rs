//! What the tests of the store share: a machine with one simulated drive, an oracle that knows
//! what may be read after a crash, a language for workloads, and the crash images of a moment.

pub mod cached;
pub mod explorer;
pub mod machine;
pub mod observation;
pub mod oracle;
pub mod script;

use std::cell::Cell;

use spandrel_platform_simulated::{SimulatedDriveConfig, SimulatedPlatform};
use spandrel_shared::{
    BLOCK_BYTES, ClusterId, CopyId, DriveId, Epoch, NodeId, SlabGeometry, SlabIndex, Version, VolumeId,
};

use crate::{AttachOptions, CacheChoice, DriveStore, FormatOptions};

/// The store under test.
pub type Store = DriveStore<SimulatedPlatform>;

/// One slab of one volume.
pub type SlabKey = (VolumeId, SlabIndex);

/// Slabs of 4 MiB: two pages, the smallest that there is.
pub fn small_slabs() -> SlabGeometry {
    SlabGeometry::new(4 << 20).unwrap()
}

/// Who the drive under test is.
pub fn format_options() -> FormatOptions {
    FormatOptions {
        cluster: ClusterId::from_bytes([1; 16]),
        node: NodeId::from_bytes([2; 16]),
        drive: DriveId::from_bytes([3; 16]),
        slab_geometry: small_slabs(),
    }
}

/// The volume with this number.
pub fn volume(number: u8) -> VolumeId {
    VolumeId::from_bytes([0x90 + number; 16])
}

/// Slab `slab` of the volume with this number.
pub fn key(number: u8, slab: u32) -> SlabKey {
    (volume(number), SlabIndex(slab))
}

/// The copy with this number.
pub fn copy(number: u64) -> CopyId {
    CopyId::from_random(0x1000, number)
}

/// A version.
pub fn version(epoch: u32, counter: u64) -> Version {
    Version::new(Epoch(epoch), counter)
}

/// A drive of `size_mib` with a cache that needs flushes.
pub fn drive_config(size_mib: u64) -> SimulatedDriveConfig {
    SimulatedDriveConfig { size_bytes: size_mib << 20, ..SimulatedDriveConfig::default() }
}

/// How the drive under test is attached: nobody knows its number, and all of its maps are in memory unless
/// [`vary_map_memory`] was called.
pub fn attach_options<D>(cache: CacheChoice<D>) -> AttachOptions<D> {
    AttachOptions { map_memory_bytes_max: next_map_memory().flatten(), ..AttachOptions::with_cache(cache) }
}

thread_local! {
    static TURNS: Cell<Option<usize>> = const { Cell::new(None) };
}

/// From now on each drive that this test attaches has all of its maps in memory, or few leaves of them, in turns; and so has
/// one on which steps are carried out, one time after the other.
pub fn vary_map_memory() {
    TURNS.set(Some(0));
}

/// How much of the maps is in memory from the next turn on, if the test varies that.
pub fn next_map_memory() -> Option<Option<u64>> {
    let turn = TURNS.get()?;
    TURNS.set(Some(turn + 1));
    Some([None, Some(BLOCK_BYTES as u64), Some(3 * BLOCK_BYTES as u64)][turn % 3])
}

/// How much more than usual the random tests do: `SPANDREL_TEST_FACTOR`, one if absent.
pub fn factor() -> usize {
    std::env::var("SPANDREL_TEST_FACTOR").ok().and_then(|text| text.parse().ok()).unwrap_or(1)
}
