//! A drive that has forgotten the last write that it confirmed, without a trace. A take-over finds it, since the
//! page has a newer version on the other copies.
//!
//! Under faults that is promised only as long as no newer write is rolled forward into the same page there, so it
//! is tried where nothing else happens: a client changes a block, all servers are stopped in order, by which
//! their drives record that the write is complete, and one drive comes back as it was before.

use spandrel_platform_simulated::{DriveImage, SimulatedDrive};
use spandrel_shared::BLOCK_BYTES;
use spandrel_shared::witness::Rare;

use super::{Finding, Run, finding};
use crate::nodes::SLAB_BYTES;

const SLAB_BLOCKS: u64 = SLAB_BYTES / BLOCK_BYTES as u64;

/// Of 1000 runs, how many try it.
const TRIED_PER_MILLE: u32 = 300;

/// How long a drive has had nothing to do when all is durable on it.
pub(super) const AT_REST_MS: u64 = 2500;

impl Run<'_> {
    /// See the module's head.
    pub(super) fn find_forgotten_write(&mut self) -> Result<(), Finding> {
        if !self.random.chance(TRIED_PER_MILLE) {
            return Ok(());
        }
        let chosen = self.choose_healthy_slab(|run, volume, slab| {
            let volume = run.volumes.iter().find(|known| known.id == volume);
            volume.is_some_and(|volume| volume.client.block_changed_once() / SLAB_BLOCKS == u64::from(slab.0))
        })?;
        let Some(chosen) = chosen else { return Ok(()) };
        self.advance(AT_REST_MS)?;
        // What a drive has written may stand on a cache drive: all of the server forget it together.
        let forgetful: Vec<SimulatedDrive> = self.nodes.all_drives(chosen.stale.node).cloned().collect();
        let before: Vec<DriveImage> = forgetful.iter().map(SimulatedDrive::snapshot).collect();
        self.change_once(&chosen)?;
        self.advance(AT_REST_MS)?;
        self.stop_in_order();
        self.was_damaged = true;
        self.nodes.cut_power_of_all();
        forgetful.iter().zip(before).for_each(|(drive, image)| drive.restore(image));
        self.count_reached();
        let found = self.reached(Rare::CopyFoundLacking);
        self.await_all_servers()?;
        self.count_reached();
        if self.reached(Rare::CopyFoundLacking) == found {
            return Err(finding("forgotten write")("nobody has noticed it".to_owned()));
        }
        [false, true].into_iter().try_for_each(|is_healed| self.judge_scrub(chosen.volume, is_healed))
    }
}
