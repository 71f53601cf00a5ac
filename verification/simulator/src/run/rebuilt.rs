//! A copy is built anew while others, or the one whose place it takes, are damaged. What one copy has lost comes from
//! another one; what all have lost is lost on the new copy, too: a read fails, and never finds zeroes or what stood there
//! before.
//!
//! It is tried where nothing else happens: blocks of a slab are damaged on one of its copies, one block on all of them, and
//! the drive of one is retired. In the end a client writes that block anew. No owner takes the volume meanwhile: a write
//! that may be incomplete and is damaged on every copy that lists it has these taken out. Damaged maps, which a restart
//! shows, meet moves under faults (see the atlas).

use spandrel_cluster::DriveState;
use spandrel_node::DriveReport;
use spandrel_platform::Platform;
use spandrel_shared::{BLOCK_BYTES, CacheMode};
use spandrel_volume::{BlockDevice, DeviceErrorKind, Exports};

use super::beside_stale::HealthySlab;
use super::forgotten::AT_REST_MS;
use super::{Finding, LOOK_EVERY, Run, finding};
use crate::faults::DrivePlace;
use crate::nodes::{PATIENCE, SLAB_BYTES};

const SLAB_BLOCKS: u64 = SLAB_BYTES / BLOCK_BYTES as u64;

/// Of 1000 runs, how many try it.
const TRIED_PER_MILLE: u32 = 400;

/// Within so many virtual milliseconds a drive is emptied, if others have room.
const EMPTIED_MS_MAX: u64 = 20_000;

/// Within so many virtual seconds caches have dropped their copies of what was read.
const COPIES_GONE_SECONDS_MAX: u32 = 30;

/// Blocks that are damaged on one copy, at most.
const BLOCKS_DAMAGED_MAX: usize = 8;

impl Run<'_> {
    /// See the module's head.
    pub(super) fn find_damage_by_building(&mut self) -> Result<(), Finding> {
        if !self.random.chance(TRIED_PER_MILLE) {
            return Ok(());
        }
        let Some(chosen) = self.choose_healthy_slab(|_, _, _| true)? else { return Ok(()) };
        self.stop_caching_reads()?;
        // A write that may be incomplete would be looked for on all copies when an owner takes the volume.
        self.advance(AT_REST_MS)?;
        let Some(lost) = self.damage_on_all(&chosen)? else { return Ok(()) };
        self.damage_one_copy(&chosen, lost)?;
        let leaving = self.drives[&chosen.stale];
        self.nodes.decide_drive(leaving, DriveState::Retired);
        let deadline = self.now_ms() + EMPTIED_MS_MAX;
        while self.now_ms() < deadline
            && self.memberships()?.iter().any(|volume| volume.drives().contains(&leaving))
        {
            self.advance(LOOK_EVERY.as_millis() as u64)?;
        }
        self.find_lost(&chosen, lost)?;
        self.change_block(&chosen, u64::from(chosen.slab.0) * SLAB_BLOCKS + u64::from(lost))?;
        self.nodes.decide_drive(leaving, DriveState::Active);
        self.await_all_servers()?;
        self.await_replaced_copies_gone()?;
        [false, true].into_iter().try_for_each(|is_healed| self.judge_scrub(chosen.volume, is_healed))
    }

    /// A block of which a cache has a copy is read, however damaged it is where it belongs.
    fn stop_caching_reads(&mut self) -> Result<(), Finding> {
        self.nodes.change_settings(|settings| {
            settings.memory_cache_bytes = 0;
            for mode in [&mut settings.cache_mode_ssd, &mut settings.cache_mode_hdd] {
                *mode = if mode.caches_writes() { CacheMode::WriteOnly } else { CacheMode::Off };
            }
        });
        for _ in 0..COPIES_GONE_SECONDS_MAX {
            self.advance(1000)?;
            let reports = self.reports();
            let mut drives = reports.iter().flat_map(|report| &report.drives);
            let copied = |drive: &DriveReport| drive.cache.map_or(0, |cache| cache.blocks_copied);
            if drives.all(|drive| copied(drive) + drive.memory_cached_bytes == 0) {
                return Ok(());
            }
        }
        Err(finding("rest")("caches keep copies of what is read though that was turned off".to_owned()))
    }

    /// Damages one block on all copies of a slab, if there is one that all have.
    fn damage_on_all(&mut self, chosen: &HealthySlab) -> Result<Option<u32>, Finding> {
        let mut on_all = Vec::new();
        for place in chosen.places() {
            on_all.push((place, self.blocks_on(place, chosen)?));
        }
        let mut common: Vec<u32> = on_all[0].1.keys().copied().collect();
        common.retain(|block| on_all.iter().all(|(_, blocks)| blocks.contains_key(block)));
        if common.is_empty() {
            return Ok(None);
        }
        let block = common[self.random.index(common.len())];
        for (place, blocks) in on_all {
            self.flip_in(place, blocks[&block].0)?;
        }
        Ok(Some(block))
    }

    /// Damages other blocks of one copy.
    fn damage_one_copy(&mut self, chosen: &HealthySlab, lost: u32) -> Result<(), Finding> {
        let places: Vec<DrivePlace> = chosen.places().collect();
        let place = places[self.random.index(places.len())];
        let mut blocks = self.blocks_on(place, chosen)?;
        blocks.remove(&lost);
        let offsets: Vec<u64> = blocks.values().map(|(offset, _)| *offset).collect();
        for _ in 0..BLOCKS_DAMAGED_MAX.min(offsets.len()) {
            self.flip_in(place, offsets[self.random.index(offsets.len())])?;
        }
        Ok(())
    }

    /// A block that is damaged on all copies cannot be read.
    fn find_lost(&mut self, chosen: &HealthySlab, block: u32) -> Result<(), Finding> {
        let client = self.client_of(chosen);
        let server = chosen.others[0].node;
        let (Some(node), Some(process)) = (self.nodes.node(server), self.nodes.process(server)) else {
            return Err(finding("rest")(format!("n{} is not up", server + 1)));
        };
        let offset = (u64::from(chosen.slab.0) * SLAB_BLOCKS + u64::from(block)) * BLOCK_BYTES as u64;
        let platform = process.platform();
        let reading = async move {
            let deadline = platform.now() + PATIENCE;
            while platform.now() < deadline {
                if let Ok(device) = node.exports().open(&client.name).await {
                    match device.read(offset, BLOCK_BYTES as u32).await {
                        Ok(_) => return Err("it was read, though it is damaged on all copies"),
                        Err(error)
                            if error.kind == DeviceErrorKind::Failed && error.detail.contains("damaged") =>
                        {
                            return Ok(());
                        }
                        Err(_) => {}
                    }
                }
                platform.sleep(LOOK_EVERY).await;
            }
            Err("nobody says that it is damaged")
        };
        let found =
            process.block_on(reading).map_err(|end| finding("rest")(format!("nothing is read: {end:?}")))?;
        found.map_err(|what| finding("lost block")(format!("slab {}, block {block}: {what}", chosen.slab)))
    }
}
