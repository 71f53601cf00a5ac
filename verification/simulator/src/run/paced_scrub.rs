//! The scrub that goes on by itself, where nothing else happens: bits flip on one drive, and a copy gets a block that is
//! whole and not the newest one. Passes must find both, heal what is damaged, and count it in the cluster's state.
//!
//! Beside faults it goes on in the other phases, too; there it must find nothing that has no cause.

use std::collections::BTreeSet;

use spandrel_cluster::records::decode;
use spandrel_cluster::store::Selection;
use spandrel_cluster::{ScrubRecord, ScrubSummary, SettingsRecord, StateKey, Stored, VolumeMembership};
use spandrel_inspect::LiveBlock;
use spandrel_platform::Platform;
use spandrel_replica::{Authority, CopyAddress, Mark, ReplicaRequest};
use spandrel_shared::checksum::BlockChecksum;
use spandrel_shared::{BLOCK_BYTES, DriveId, Version, VolumeId};

use super::{Finding, Run, finding};
use crate::checkers::{damage, scrubbed};
use crate::faults::DrivePlace;
use crate::shape::Shape;

/// Within so many seconds everything is read once.
const PERIOD_S: u32 = 2;

/// A slab that has been begun is read after so long.
const SLAB_MS_MAX: u64 = 5000;

/// So many passes end until one has begun and ended since anything was done.
const PASSES: u64 = 2;

/// Blocks that are damaged, at most.
const BLOCKS_DAMAGED_MAX: usize = 8;

/// A drive with copies of a volume all of whose copies are there and in sync.
struct ChosenDrive {
    volume: VolumeMembership,
    drive: DriveId,
    place: DrivePlace,
}

impl Run<'_> {
    /// See the module's head.
    pub(super) fn find_by_paced_scrub(&mut self, present: &BTreeSet<DriveId>) -> Result<(), Finding> {
        if self.plan.shape.scrub_period_s.is_none() {
            return Ok(());
        }
        let Some(chosen) = self.choose_drive(present)? else { return Ok(()) };
        self.nodes.change_settings(|set| {
            *set = SettingsRecord { scrub_period_s: PERIOD_S, ..Shape::settings_at_rest() };
        });
        self.find_rot_by_passes(&chosen)?;
        self.find_difference_by_passes(&chosen)?;
        self.stop_paced_scrub()
    }

    /// No slab is read by itself any more from when this returns.
    pub(super) fn stop_paced_scrub(&mut self) -> Result<(), Finding> {
        self.nodes.change_settings(|set| *set = Shape::settings_at_rest());
        self.advance(SLAB_MS_MAX)
    }

    fn choose_drive(&self, present: &BTreeSet<DriveId>) -> Result<Option<ChosenDrive>, Finding> {
        let is_whole = |volume: &VolumeMembership| {
            let mut members = volume.sets.iter().flat_map(|set| &set.members);
            volume.marks.is_empty()
                && members.all(|member| !member.building && present.contains(&member.drive))
        };
        let mut volumes = self.memberships()?;
        volumes.retain(|volume| is_whole(volume) && volume.record.copies > 1);
        if volumes.is_empty() {
            return Ok(None);
        }
        let volume = volumes.swap_remove(self.random.index(volumes.len()));
        let drives: Vec<DriveId> = volume.drives().into_iter().collect();
        let drive = drives[self.random.index(drives.len())];
        let place = self.drives.iter().find(|(_, id)| **id == drive).map(|(place, _)| *place);
        Ok(place.map(|place| ChosenDrive { volume, drive, place }))
    }

    fn find_rot_by_passes(&mut self, chosen: &ChosenDrive) -> Result<(), Finding> {
        // One pass has told all that was found before.
        let before = self.await_passes(chosen.volume.volume, 1)?;
        let media = self.nodes.media(chosen.place);
        let inspection = media.inspect().map_err(finding("inspection"))?;
        let volume = chosen.volume.volume;
        let flipped = damage::flip_live_blocks(media, &inspection, volume, BLOCKS_DAMAGED_MAX, &self.random);
        self.note_flips(flipped);
        let after = self.await_passes(volume, PASSES)?;
        scrubbed::check_damage(flipped, &before, &after).map_err(finding("paced scrub"))?;
        self.judge_scrub(volume, true)
    }

    /// A copy gets other content behind everybody's back, and what it had comes back.
    fn find_difference_by_passes(&mut self, chosen: &ChosenDrive) -> Result<(), Finding> {
        let volume = chosen.volume.volume;
        let media = self.nodes.media(chosen.place);
        let inspection = media.inspect().map_err(finding("inspection"))?;
        let live: Vec<&LiveBlock> = inspection.blocks.iter().filter(|block| block.volume == volume).collect();
        if live.is_empty() {
            return Ok(());
        }
        let block = *live[self.random.index(live.len())];
        let newest = media.snapshot().block(&inspection, block.offset_bytes);
        let older: Vec<u8> = newest.iter().map(|byte| byte ^ 0x55).collect();
        for (content, different) in [(older, 1), (newest, 0)] {
            self.has_planted_difference = true;
            self.fill(chosen, &block, content)?;
            let after = self.await_passes(volume, PASSES)?;
            scrubbed::check_difference(different, &after).map_err(finding("paced scrub"))?;
        }
        Ok(())
    }

    /// Brings content to one copy, which is no write of the volume.
    fn fill(&self, chosen: &ChosenDrive, block: &LiveBlock, content: Vec<u8>) -> Result<(), Finding> {
        let volume = self.membership(chosen.volume.volume)?;
        let member = volume.sets.get(block.slab.0 as usize).and_then(|set| set.on(chosen.drive));
        let failed = |what: &str| finding("rest")(format!("nothing is planted: {what}"));
        let member = member.ok_or_else(|| failed("the copy is gone"))?;
        let copy = CopyAddress { volume: volume.volume, slab: block.slab, copy: member.copy };
        let authority = Authority { epoch: volume.record.epoch, configuration: volume.record.configuration };
        let checksums =
            std::iter::once(BlockChecksum::new(volume.volume, block.slab).of(block.block, &content))
                .collect();
        let (mark, version) = (Mark::default(), Version::ZERO);
        let request = ReplicaRequest::Write { copy, authority, mark, first: block.block, version, checksums };
        let node = chosen.place.node;
        // Each shard has the drives whose numbers come round to it.
        let (Some(up), Some(process)) =
            (self.nodes.shard(node, chosen.place.drive), self.nodes.process(node))
        else {
            return Err(failed("the node is not up"));
        };
        let mut buffer = process.platform().buffers().take(BLOCK_BYTES);
        buffer.copy_from_slice(&content);
        let data = buffer.freeze();
        let filled = process.block_on(async move { up.replica().serve(request, Some(data)).await.map(drop) });
        match filled {
            Ok(Ok(())) => Ok(()),
            other => Err(failed(&format!("{other:?}"))),
        }
    }

    fn membership(&self, id: VolumeId) -> Result<VolumeMembership, Finding> {
        let volume = self.memberships()?.into_iter().find(|volume| volume.volume == id);
        volume.ok_or_else(|| finding("state")("a volume is gone".to_owned()))
    }

    /// What the cluster's state says of a volume's scrub when so many passes have ended since now.
    fn await_passes(&mut self, volume: VolumeId, passes: u64) -> Result<ScrubSummary, Finding> {
        let mut wanted = None;
        let mut found = None;
        self.await_nothing_lacking(|run| {
            let Some(owner) = run.scrub_of(volume) else { return Ok(Some("nobody scrubs".to_owned())) };
            let wanted = *wanted.get_or_insert(owner.passes + passes);
            let stands = run.scrub_in_state(volume)?;
            found = stands.filter(|stands| stands.passes >= wanted);
            let lacking = || format!("pass {wanted} does not end: {owner:?}, and in the state {stands:?}");
            Ok(found.is_none().then(lacking))
        })?;
        found.ok_or_else(|| finding("paced scrub")("it was there".to_owned()))
    }

    /// What its owner says of a volume's scrub.
    fn scrub_of(&self, volume: VolumeId) -> Option<ScrubSummary> {
        let reports = self.reports();
        let owned = reports.iter().flat_map(|report| &report.owned).find(|owned| owned.volume == volume);
        owned.filter(|owned| owned.is_serving).and_then(|owned| owned.scrub)
    }

    fn scrub_in_state(&self, volume: VolumeId) -> Result<Option<ScrubSummary>, Finding> {
        let snapshot = self.nodes.state.inspect(&[Selection::key(&StateKey::Scrub(volume).key())]);
        let stored: Option<Stored<ScrubRecord>> =
            snapshot.entry(0).map(decode).transpose().map_err(|error| finding("state")(error.to_string()))?;
        let slabs = self.membership(volume)?.sets.len() as u32;
        Ok(stored.map(|stored| stored.record.summary(slabs)))
    }
}
