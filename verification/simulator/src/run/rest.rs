//! The last phase: clients stop, and the copies, the drives and the whole history are judged.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use spandrel_shared::{DriveId, VolumeId};
use spandrel_volume::ScrubReport;

use super::{Finding, NOTICED_MS, Run, finding};
use crate::checkers::same_copies::{self, InspectedDrive};
use crate::checkers::{areas, damage, known_lost, structure};
use crate::clients;
use crate::faults::plan::PlannedFault;
use crate::faults::{DrivePlace, Fault};
use crate::inspection::inspect;

/// Within so many virtual seconds nothing is left of copies that were moved away.
const REPLACED_SECONDS_MAX: u32 = 30;

impl Run<'_> {
    /// Nothing happens any more: everything is judged.
    pub(super) fn rest(&mut self) -> Result<(), Finding> {
        self.volumes.iter().for_each(|volume| volume.client.stop());
        self.advance(500)?;
        if self.plan.shape.scrub_period_s.is_some() {
            self.stop_paced_scrub()?;
        }
        self.find_loss_without_cause()?;
        // What is damaged on a drive but whole in its node's memory shows at the next attach.
        for node in self.atlas.damaged().keys().copied().collect::<Vec<_>>() {
            self.nodes.stop(node, false);
        }
        self.await_all_servers()?;
        self.await_apart()?;
        if self.has_moved() {
            self.await_replaced_copies_gone()?;
        }
        self.await_nothing_lacking(Self::known_lost)?;
        self.await_nothing_lacking(|run| Ok(areas::check(&run.reports()).err()))?;
        let present = self.present();
        for volume in self.volume_ids() {
            // The first scrub heals what is left of the faults.
            for is_healed in [false, true] {
                self.judge_scrub(volume, is_healed)?;
            }
        }
        self.find_new_damage(&present)?;
        self.find_by_paced_scrub(&present)?;
        self.find_damage_beside_stale()?;
        self.find_damage_by_building()?;
        self.find_forgotten_write()?;
        self.find_damage_after_power_cut(&present)?;
        self.read_all_back()?;
        self.judge_drives()?;
        for volume in &self.volumes {
            let judged = volume.client.history.check();
            judged.map_err(|what| finding("register")(format!("volume {}, {what}", volume.client.name)))?;
        }
        self.look()
    }

    /// All servers are up with the drives that they have, and it was noticed what those lack.
    pub(super) fn await_all_servers(&mut self) -> Result<(), Finding> {
        self.restart_broken(&BTreeSet::new())?;
        self.judge_places()?;
        self.advance(NOTICED_MS)?;
        let present = self.present();
        self.await_nothing_lacking(|run| run.lacking(&present))
    }

    /// Nothing remains of copies that were moved away, or made for a growth that was taken back.
    pub(super) fn await_replaced_copies_gone(&mut self) -> Result<(), Finding> {
        let mut left = None;
        for _ in 0..REPLACED_SECONDS_MAX {
            left = self.replaced_copy()?;
            if left.is_none() {
                break;
            }
            self.advance(1000)?;
        }
        left.map_or(Ok(()), |what| Err(finding("replaced copies")(what)))
    }

    /// Whether copies may have been moved away, or made in vain.
    fn has_moved(&self) -> bool {
        let moves =
            |planned: &PlannedFault| matches!(planned.fault, Fault::Retire { .. } | Fault::Grow { .. });
        self.plan.shape.keeps_itself() || self.plan.faults.iter().any(moves)
    }

    /// A copy on a drive that the cluster's state does not have there.
    fn replaced_copy(&self) -> Result<Option<String>, Finding> {
        let volumes = self.memberships()?;
        for (place, drive) in self.drives.iter().filter(|(place, _)| !self.lost.contains(place)) {
            let inspection = self.nodes.media(*place).inspect();
            let inspection = inspection.map_err(finding("inspection"))?;
            for copy in &inspection.copies {
                let volume = volumes.iter().find(|volume| volume.volume == copy.volume);
                let set = volume.and_then(|volume| volume.sets.get(copy.slab.0 as usize));
                if set.is_none_or(|set| set.on(*drive).is_none()) {
                    return Ok(Some(format!(
                        "{place} still holds a copy of slab {} of {}",
                        copy.slab, copy.volume
                    )));
                }
            }
        }
        Ok(None)
    }

    /// What in-sync copies on damaged servers have lost of any volume, as their drives know.
    fn known_lost(&self) -> Result<Option<String>, Finding> {
        let is_damaged = |place: &&DrivePlace| self.atlas.damaged().contains_key(&place.node);
        let mut inspected = BTreeMap::new();
        for place in self.drives.keys().filter(is_damaged).filter(|place| !self.lost.contains(place)) {
            let inspection = self.nodes.media(*place).inspect();
            inspected.insert(self.drives[place], inspection.map_err(finding("inspection"))?);
        }
        let volumes = self.memberships()?;
        Ok(volumes.iter().find_map(|volume| known_lost::check(volume, &inspected).err()))
    }

    pub(super) fn judge_scrub(&mut self, volume: VolumeId, is_healed: bool) -> Result<(), Finding> {
        let report = self.scrub_now(volume)?;
        let fails = report.gave_up
            || report.blocks_different > 0
            || (self.lost.is_empty() && report.pieces_unchecked > 0)
            || (is_healed && !report.damaged.is_empty());
        match fails {
            true => {
                Err(finding("scrub")(format!("{report:?}{}", if is_healed { " after healing" } else { "" })))
            }
            false => Ok(()),
        }
    }

    /// Bits flip once more, while all is idle and healthy: exactly they are found.
    fn find_new_damage(&mut self, present: &BTreeSet<DriveId>) -> Result<(), Finding> {
        let Some((volume, drive, place)) = self.copy_to_damage(present)? else { return Ok(()) };
        let media = self.nodes.media(place);
        let inspection = media.inspect().map_err(finding("inspection"))?;
        let flipped = damage::flip_live_blocks(media, &inspection, volume, 8, &self.random);
        if flipped == 0 {
            return Ok(());
        }
        self.note_flips(flipped);
        let report = self.scrub_now(volume)?;
        damage::check(&BTreeMap::from([(drive, flipped)]), &report).map_err(finding("damage"))
    }

    /// Bits flip in what a drive has written last, and its server loses its power: a recovery keeps these
    /// blocks as damaged, and never puts what was there before in their place. A take-over may heal some of
    /// them before they are looked for.
    fn find_damage_after_power_cut(&mut self, present: &BTreeSet<DriveId>) -> Result<(), Finding> {
        let Some((volume, drive, place)) = self.copy_to_damage(present)? else { return Ok(()) };
        let media = self.nodes.media(place);
        let inspection = media.inspect().map_err(finding("inspection"))?;
        let flipped = damage::flip_newest_blocks(media, &inspection, volume, &self.random);
        if flipped == 0 {
            return Ok(());
        }
        self.note_flips(flipped);
        self.nodes.stop(place.node, true);
        self.restart_broken(&BTreeSet::new())?;
        self.advance(NOTICED_MS)?;
        self.await_nothing_lacking(|run| run.lacking(present))?;
        let report = self.scrub_now(volume)?;
        damage::check_rest(&BTreeMap::from([(drive, flipped)]), &report).map_err(finding("damage"))
    }

    pub(super) fn note_flips(&mut self, flipped: u64) {
        self.outcome.bits_flipped += flipped;
        self.was_damaged = true;
    }

    fn scrub_now(&self, volume: VolumeId) -> Result<ScrubReport, Finding> {
        self.scrub(volume).ok_or_else(|| finding("scrub")("nobody scrubs".to_owned()))
    }

    /// An in-sync copy of a volume that is not the last one of any slab.
    fn copy_to_damage(
        &self,
        present: &BTreeSet<DriveId>,
    ) -> Result<Option<(VolumeId, DriveId, DrivePlace)>, Finding> {
        let volumes = self.memberships()?;
        let volume = &volumes[self.random.index(volumes.len())];
        let in_sync = volume
            .drives()
            .into_iter()
            .filter(|drive| present.contains(drive) && !volume.marks.contains_key(drive));
        let in_sync: Vec<DriveId> = in_sync.collect();
        let drive = in_sync[self.random.index(in_sync.len())];
        let has_others = volume.sets.iter().all(|set| {
            set.members.iter().any(|member| member.drive != drive && in_sync.contains(&member.drive))
        });
        let place = self.drives.iter().find(|(_, id)| **id == drive).map(|(place, _)| *place);
        Ok(place.filter(|_| has_others).map(|place| (volume.volume, drive, place)))
    }

    fn read_all_back(&mut self) -> Result<(), Finding> {
        for volume in &self.volumes {
            let index = self.random.index(self.nodes.count());
            let (Some(node), Some(process)) =
                (self.nodes.shard(index, self.random.index(2)), self.nodes.process(index))
            else {
                return Err(finding("read back")(format!("n{} is not up", index + 1)));
            };
            let reading = clients::read_back(Rc::clone(&volume.client), node, process.platform());
            let read = process.block_on(reading);
            read.map_err(|end| {
                finding("read back")(format!("{} cannot be read: {end:?}", volume.client.name))
            })?;
        }
        self.look()
    }

    /// The drives, read by a reader that shares no code with the store.
    fn judge_drives(&mut self) -> Result<(), Finding> {
        let mut inspected = BTreeMap::new();
        for (place, drive) in &self.drives {
            if self.lost.contains(place) {
                continue;
            }
            let media = self.nodes.media(*place);
            let images = media.snapshot();
            let inspection = inspect(media.name(), &images).map_err(finding("inspection"))?;
            if !self.atlas.damaged().contains_key(&place.node) {
                structure::check(&inspection).map_err(finding("structure"))?;
            } else if inspection.is_damaged() {
                continue;
            }
            inspected.insert(*drive, InspectedDrive { images, inspection });
        }
        for volume in self.memberships()? {
            same_copies::check(&volume, &inspected).map_err(finding("same copies"))?;
        }
        Ok(())
    }
}
