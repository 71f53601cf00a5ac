//! Recovery: what a crash has left on a drive is brought, by the code that ships, to a state that is consistent
//! and stays the same when the drive is attached once more.
//!
//! A copy of the drive is attached twice in a small world of its own, without clients, so that nothing moves
//! while it is looked at: there the blocks that the store counts as used are exactly those that something
//! names. What the store finds damaged may be so; what it does with the damage is judged all the same. The
//! second attach finds nothing damaged any more, and must still know what the first one could not prove.
//! What happens in that world counts for none of the states that the run is to reach.

use std::collections::BTreeMap;

use spandrel_drive::{
    AttachError, AttachOptions, AttachReport, CacheArea, CacheChoice, CacheDrive, DriveStore, ListedWrite,
    PageDescription, SlabDescription,
};
use spandrel_inspect::DamageKind;
use spandrel_platform::Platform;
use spandrel_platform_simulated::{
    DriveImage, Host, OpenDrive, SimulatedDrive, SimulatedDriveConfig, SimulatedPlatform, World,
};
use spandrel_shared::{Epoch, Version, VolumeId, witness};

use crate::checkers::structure::{self, Used};
use crate::inspection::{Images, Media, carries_nothing, inspect};

type Store = DriveStore<SimulatedPlatform>;

/// The process that attaches the drive.
const PROCESS: &str = "recovery";

/// What the drives of a world are like.
#[derive(Clone, Copy, Debug)]
pub struct Configs {
    /// Those that hold data.
    pub drive: SimulatedDriveConfig,
    /// The cache drives.
    pub cache: SimulatedDriveConfig,
    /// How much memory the maps of one may take; as much as they need if none.
    pub map_memory_bytes_max: Option<u64>,
}

/// Recovers what stands on a drive, and judges the result. Only where `may_lack` says that some of it may be gone, a cache
/// drive may be missing or of another time.
///
/// # Errors
///
/// What is not consistent, or has changed by being attached again.
pub fn check(name: &str, configs: Configs, images: &Images, may_lack: bool) -> Result<(), String> {
    witness::aside(|| check_in_own_world(name, configs, images, may_lack))
}

fn check_in_own_world(name: &str, configs: Configs, images: &Images, may_lack: bool) -> Result<(), String> {
    let bench = Bench::new(name, configs, images);
    let (first, found) = match bench.attach(0, false) {
        Ok(attached) => attached,
        Err(error) => return judge_refusal(name, images, may_lack, &error),
    };
    if found.area_lost && !may_lack {
        return Err(format!("{name} gives up what is on its cache drive, and nothing of that is gone"));
    }
    let was_damaged = found.structures_damaged > 0;
    let inspection = Media { drive: &bench.drive, caches: &bench.caches }.inspect()?;
    if let Some(damage) = inspection.damage.iter().find(|damage| damage.kind == DamageKind::Contradiction) {
        return Err(format!("{name}: after a recovery: {}", damage.detail));
    }
    structure::check_owners(&inspection)?;
    structure::check_used(&inspection, used(&first))?;
    let before = facts(&first);
    bench.world.process(PROCESS).crash();
    let (second, found) = bench.attach(0, false).map_err(|error| format!("{name}: once more: {error}"))?;
    if found.structures_damaged > 0 {
        return Err(format!("{name}: damaged for a second recovery, was damaged before: {was_damaged}"));
    }
    let after = facts(&second);
    match before == after {
        true => Ok(()),
        false => Err(format!("{name}: {before:?} has become {after:?} by another recovery")),
    }
}

/// How often a drive had been attached when it looked like this, as an attach would find; none if it cannot be
/// attached. Its newest root does not say that: what an attach writes first are groups of its journal. Only if that stands in an
/// area that is not there any more it does: the drive was bound to another one by a later attach then.
pub fn attach_number(name: &str, configs: Configs, images: &Images) -> Option<u64> {
    let bench = Bench::new(name, configs, images);
    match witness::aside(|| bench.attach(u64::MAX, true)) {
        Ok((store, _)) => Some(store.attach_number() - 1),
        Err(AttachError::Old { found, .. }) => Some(found),
        Err(_) => None,
    }
}

/// The same of a cache drive.
pub fn cache_attach_number(name: &str, config: SimulatedDriveConfig, image: &DriveImage) -> Option<u64> {
    let configs = Configs { drive: config, cache: config, map_memory_bytes_max: None };
    let bench = Bench::new(name, configs, &Images::alone(image.clone()));
    let process = bench.world.start_process_on(&bench.host, PROCESS);
    let (platform, name) = (process.platform(), name.to_owned());
    let attaching = async move {
        let drive = platform.open_drive(&name).await.map_err(AttachError::Drive)?;
        CacheDrive::attach(&platform, drive, u64::MAX).await
    };
    match process.block_on(attaching).expect("an attach comes to its end") {
        Ok(cache) => Some(cache.attach_number() - 1),
        Err(AttachError::Old { found, .. }) => Some(found),
        Err(_) => None,
    }
}

/// A small world with one server.
struct Bench {
    world: World,
    host: Host,
    drive: SimulatedDrive,
    caches: Vec<SimulatedDrive>,
    map_memory_bytes_max: Option<u64>,
}

impl Bench {
    fn new(name: &str, configs: Configs, images: &Images) -> Self {
        let world = World::new(0);
        let host = world.add_host("recovery");
        let add = |name: &str, config: SimulatedDriveConfig, image: &DriveImage| {
            let config = SimulatedDriveConfig { size_bytes: image.size_bytes(), ..config };
            world.add_drive_from_image(name, config, image.clone())
        };
        let drive = add(name, configs.drive, &images.drive);
        let caches = images.caches.iter().zip(1..);
        let caches =
            caches.map(|(image, number)| add(&format!("cache {number} of {name}"), configs.cache, image));
        let map_memory_bytes_max = configs.map_memory_bytes_max;
        Self { drive, caches: caches.collect(), host, world, map_memory_bytes_max }
    }

    /// Starts a new process, which attaches the drive. Where it `gives_up` it does so also without its cache drive.
    fn attach(&self, attach_number_known: u64, gives_up: bool) -> Result<(Store, AttachReport), AttachError> {
        let process = self.world.start_process_on(&self.host, PROCESS);
        let (platform, name) = (process.platform(), self.drive.name().to_owned());
        let caches: Vec<String> = self.caches.iter().map(|cache| cache.name().to_owned()).collect();
        let map_memory_bytes_max = self.map_memory_bytes_max;
        let attaching = async move {
            let drive = platform.open_drive(&name).await.map_err(AttachError::Drive)?;
            let choice = match find_area(&platform, &drive, &caches).await? {
                Some(area) => CacheChoice::Bound(area),
                None if gives_up => CacheChoice::Lost(None),
                None => CacheChoice::None,
            };
            let options = AttachOptions { attach_number_known, cache: choice, map_memory_bytes_max };
            DriveStore::attach_with(&platform, drive, options).await
        };
        process.block_on(attaching).expect("an attach comes to its end")
    }
}

/// The area that a drive is bound to, if one of the cache drives has it.
async fn find_area(
    platform: &SimulatedPlatform,
    drive: &OpenDrive,
    caches: &[String],
) -> Result<Option<CacheArea<OpenDrive>>, AttachError> {
    let identity = DriveStore::<SimulatedPlatform>::identify(platform, drive).await?;
    let Ok(Some(binding)) = identity.binding else { return Ok(None) };
    for name in caches {
        let cache = platform.open_drive(name).await.map_err(AttachError::Drive)?;
        let Ok(cache) = CacheDrive::attach(platform, cache, 0).await else { continue };
        let area = cache.area(identity.superblock.drive).filter(|area| area.binding() == binding);
        if area.is_some() {
            return Ok(area);
        }
    }
    Ok(None)
}

/// Only a drive that is damaged may be refused, or one that was not formatted to its end, or without its cache drive.
fn judge_refusal(name: &str, images: &Images, may_lack: bool, error: &AttachError) -> Result<(), String> {
    let is_excused = match inspect(name, images) {
        Ok(inspection) => inspection.is_damaged(),
        Err(_) => may_lack || carries_nothing(name, &images.drive),
    };
    if is_excused { Ok(()) } else { Err(format!("{name} is not damaged, and not recovered: {error}")) }
}

fn used(store: &Store) -> Used {
    let area = store.cache_use();
    Used {
        on_drive: store.used_blocks().into(),
        in_area: (area.blocks_total - area.blocks_free).into(),
        dirty: area.blocks_dirty.into(),
    }
}

/// What a store knows of a slab copy.
#[derive(Debug, PartialEq, Eq)]
struct Copy {
    description: SlabDescription,
    proven: Option<Version>,
    pages: Vec<PageDescription>,
}

/// What a store knows of a volume.
#[derive(Debug, PartialEq, Eq)]
struct Volume {
    fence: Epoch,
    mark: Version,
    exceptions: Vec<Version>,
    listed: Vec<ListedWrite>,
}

fn facts(store: &Store) -> (u32, Vec<Copy>, BTreeMap<VolumeId, Volume>) {
    let copy = |description: SlabDescription| Copy {
        description,
        proven: store.proven(description.slot),
        pages: store.pages(description.slot).unwrap_or_default(),
    };
    let volume = |volume: VolumeId| Volume {
        fence: store.fence_epoch(volume),
        mark: store.mark(volume),
        exceptions: store.listed_exceptions(volume),
        listed: store.listed(volume),
    };
    let copies = store.slabs().into_iter().map(copy).collect();
    (store.used_blocks(), copies, store.volumes().into_iter().map(|id| (id, volume(id))).collect())
}

#[cfg(test)]
#[path = "recovery_tests.rs"]
mod tests;
