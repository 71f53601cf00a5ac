//! Recovery: what a crash has left on a drive is brought, by the code that ships, to a state that is consistent
//! and stays the same when the drive is attached once more.
//!
//! A copy of the drive is attached twice in a small world of its own, without clients, so that nothing moves
//! while it is looked at: there the blocks that the store counts as used are exactly those that something
//! names. What the store finds damaged may be so; what it does with the damage is judged all the same. The
//! second attach finds nothing damaged any more, and must still know what the first one could not prove.
//! What happens in that world counts for none of the states that the run is to reach.

use std::collections::BTreeMap;

use spandrel_drive::{AttachError, AttachReport, DriveStore, ListedWrite, PageDescription, SlabDescription};
use spandrel_inspect::DamageKind;
use spandrel_platform::Platform;
use spandrel_platform_simulated::{DriveImage, Host, SimulatedDriveConfig, SimulatedPlatform, World};
use spandrel_shared::{Epoch, Version, VolumeId, witness};

use crate::checkers::structure;
use crate::inspection::{inspect_drive, inspect_image};

type Store = DriveStore<SimulatedPlatform>;

/// The process that attaches the drive.
const PROCESS: &str = "recovery";

/// Recovers what stands on a drive, and judges the result.
///
/// # Errors
///
/// What is not consistent, or has changed by being attached again.
pub fn check(name: &str, config: SimulatedDriveConfig, image: &DriveImage) -> Result<(), String> {
    witness::aside(|| check_in_own_world(name, config, image))
}

fn check_in_own_world(name: &str, config: SimulatedDriveConfig, image: &DriveImage) -> Result<(), String> {
    let world = World::new(0);
    let host = world.add_host("recovery");
    let drive = world.add_drive_from_image(name, config, image.clone());
    let (first, found) = match attach(&world, &host, name, 0) {
        Ok(attached) => attached,
        Err(error) => return judge_refusal(name, image, &error),
    };
    let was_damaged = found.structures_damaged > 0;
    let inspection = inspect_drive(&drive)?;
    if let Some(damage) = inspection.damage.iter().find(|damage| damage.kind == DamageKind::Contradiction) {
        return Err(format!("{name}: after a recovery: {}", damage.detail));
    }
    structure::check_owners(&inspection)?;
    structure::check_used(&inspection, u64::from(first.used_blocks()))?;
    let before = facts(&first);
    world.process(PROCESS).crash();
    let (second, found) =
        attach(&world, &host, name, 0).map_err(|error| format!("{name}: once more: {error}"))?;
    if found.structures_damaged > 0 {
        return Err(format!("{name}: damaged for a second recovery, was damaged before: {was_damaged}"));
    }
    let after = facts(&second);
    match before == after {
        true => Ok(()),
        false => Err(format!("{name}: {before:?} has become {after:?} by another recovery")),
    }
}

/// How often a drive had been attached when it looked like `image`, as an attach would find; none if it cannot be
/// attached. Its newest root does not say that: what an attach writes first are groups of its journal.
pub fn attach_number(name: &str, config: SimulatedDriveConfig, image: &DriveImage) -> Option<u64> {
    let world = World::new(0);
    let host = world.add_host("recovery");
    let _drive = world.add_drive_from_image(name, config, image.clone());
    match witness::aside(|| attach(&world, &host, name, u64::MAX)) {
        Ok((store, _)) => Some(store.attach_number() - 1),
        Err(AttachError::Old { found, .. }) => Some(found),
        Err(_) => None,
    }
}

/// Starts a new process, which attaches the drive.
fn attach(
    world: &World,
    host: &Host,
    name: &str,
    attach_number_known: u64,
) -> Result<(Store, AttachReport), AttachError> {
    let process = world.start_process_on(host, PROCESS);
    let (platform, name) = (process.platform(), name.to_owned());
    let attaching = async move {
        let drive = platform.open_drive(&name).await.map_err(AttachError::Drive)?;
        DriveStore::attach(&platform, drive, attach_number_known).await
    };
    process.block_on(attaching).expect("an attach comes to its end")
}

/// Only a drive that is damaged may be refused, or one that was not formatted to its end.
fn judge_refusal(name: &str, image: &DriveImage, error: &AttachError) -> Result<(), String> {
    let is_damaged = inspect_image(name, image).map_or(true, |inspection| inspection.is_damaged());
    if is_damaged { Ok(()) } else { Err(format!("{name} is not damaged, and not recovered: {error}")) }
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
