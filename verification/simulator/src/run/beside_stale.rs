//! A block that is damaged on every copy in sync is healed from one that is stale, if that still holds the newest
//! content: the maps of the copies in sync say what that is.
//!
//! Under faults that is promised only as long as the stale copy can be reached, so it is tried where nothing
//! else happens: a server goes away, a change makes its copy stale, another block is damaged on all the
//! others, and the server comes back.

use std::collections::BTreeMap;
use std::rc::Rc;

use spandrel_cluster::{Member, VolumeMembership};
use spandrel_inspect::LiveBlock;
use spandrel_shared::{BLOCK_BYTES, SlabIndex, VolumeId};

use super::{Finding, Run, finding};
use crate::clients::{self, ClientVolume};
use crate::faults::DrivePlace;
use crate::inspection::inspect;

/// So many times slower than usual is the drive of the stale copy, so that its resync is not over before
/// anybody has read.
const SLOWNESS: u32 = 50;

/// A slab all of whose copies are there and in sync.
pub(super) struct HealthySlab {
    pub(super) volume: VolumeId,
    pub(super) slab: SlabIndex,
    /// The copy that becomes stale.
    pub(super) stale: DrivePlace,
    pub(super) others: Vec<DrivePlace>,
}

impl HealthySlab {
    /// Where all of its copies are.
    pub(super) fn places(&self) -> impl Iterator<Item = DrivePlace> {
        self.others.iter().copied().chain([self.stale])
    }
}

impl Run<'_> {
    /// See the module's head.
    pub(super) fn find_damage_beside_stale(&mut self) -> Result<(), Finding> {
        let Some(chosen) = self.choose_healthy_slab(|_, _, _| true)? else { return Ok(()) };
        let slow = self.nodes.drives(chosen.stale.node)[chosen.stale.drive].clone();
        self.nodes.stop(chosen.stale.node, false);
        self.change_once(&chosen)?;
        let drive = self.drives[&chosen.stale];
        if self.memberships()?.iter().any(|volume| volume.marks.contains_key(&drive)) {
            self.damage_what_is_the_same(&chosen)?;
            slow.set_latency_factor(SLOWNESS);
        }
        self.nodes.start(chosen.stale.node);
        self.await_nothing_lacking(|run| {
            let joins = run.reports().iter().flat_map(|report| &report.owned).any(|owned| {
                let is_there = |leg: &&spandrel_node::LegReport| leg.drive == drive && leg.state != "stale";
                owned.volume == chosen.volume
                    && owned.is_serving
                    && owned.legs.iter().any(|leg| is_there(&leg))
            });
            Ok((!joins).then(|| format!("{} does not join", chosen.stale)))
        })?;
        self.scrub(chosen.volume);
        slow.set_latency_factor(1);
        self.await_all_servers()?;
        [false, true].into_iter().try_for_each(|is_healed| self.judge_scrub(chosen.volume, is_healed))
    }

    /// A slab with all its copies, of those that are wanted, and one of them on a server without which every
    /// volume can be served.
    pub(super) fn choose_healthy_slab(
        &self,
        is_wanted: impl Fn(&Self, VolumeId, SlabIndex) -> bool,
    ) -> Result<Option<HealthySlab>, Finding> {
        let (present, volumes) = (self.present(), self.memberships()?);
        let good_place = |volume: &VolumeMembership, member: &Member| {
            let is_good = present.contains(&member.drive) && !volume.marks.contains_key(&member.drive);
            let mut places = self.drives.iter().filter(|(_, drive)| is_good && **drive == member.drive);
            places.next().map(|(place, _)| *place)
        };
        let can_be_away = |node: usize| {
            volumes.iter().all(|volume| {
                let is_elsewhere =
                    |member| good_place(volume, member).is_some_and(|place| place.node != node);
                volume.sets.iter().all(|set| set.members.iter().any(is_elsewhere))
            })
        };
        let mut healthy = Vec::new();
        for volume in &volumes {
            for (set, slab) in volume.sets.iter().zip((0..).map(SlabIndex)) {
                if !is_wanted(self, volume.volume, slab) {
                    continue;
                }
                let places = set.members.iter().map(|member| good_place(volume, member));
                let Some(mut others) = places.collect::<Option<Vec<DrivePlace>>>() else { continue };
                let stale = others.swap_remove(self.random.index(others.len()));
                if can_be_away(stale.node) {
                    healthy.push(HealthySlab { volume: volume.volume, slab, stale, others });
                }
            }
        }
        let chosen = (!healthy.is_empty()).then(|| self.random.index(healthy.len()));
        Ok(chosen.map(|index| healthy.swap_remove(index)))
    }

    /// One change by a client, which the server that is away misses.
    pub(super) fn change_once(&self, chosen: &HealthySlab) -> Result<(), Finding> {
        self.change_block(chosen, self.client_of(chosen).block_changed_once())
    }

    /// The volume of a slab, as clients see it.
    pub(super) fn client_of(&self, chosen: &HealthySlab) -> Rc<ClientVolume> {
        let volume = self.volumes.iter().find(|volume| volume.id == chosen.volume);
        Rc::clone(&volume.expect("a volume of this run").client)
    }

    /// A client writes a block of the volume.
    pub(super) fn change_block(&self, chosen: &HealthySlab, block: u64) -> Result<(), Finding> {
        let client = self.client_of(chosen);
        let server = chosen.others[0].node;
        let (Some(node), Some(process)) = (self.nodes.node(server), self.nodes.process(server)) else {
            return Err(finding("rest")(format!("n{} is not up", server + 1)));
        };
        let changing = clients::change_once(client, block, node, process.platform());
        process.block_on(changing).map_err(|end| finding("rest")(format!("nothing is changed: {end:?}")))
    }

    /// Damages a block on all copies in sync that is the same on the stale one.
    fn damage_what_is_the_same(&mut self, chosen: &HealthySlab) -> Result<(), Finding> {
        let on_stale = self.blocks_on(chosen.stale, chosen)?;
        let mut common: Vec<u32> = on_stale.keys().copied().collect();
        let mut on_others = Vec::new();
        for place in &chosen.others {
            let blocks = self.blocks_on(*place, chosen)?;
            common.retain(|block| blocks.get(block).is_some_and(|found| found.1 == on_stale[block].1));
            on_others.push((*place, blocks));
        }
        if common.is_empty() {
            return Ok(());
        }
        let block = common[self.random.index(common.len())];
        for (place, blocks) in on_others {
            self.flip_in(place, blocks[&block].0)?;
        }
        Ok(())
    }

    /// A bit flips in a block that an inspection of a drive has named.
    pub(super) fn flip_in(&mut self, place: DrivePlace, offset_bytes: u64) -> Result<(), Finding> {
        let media = self.nodes.media(place);
        let inspection = media.inspect().map_err(finding("inspection"))?;
        media.flip(&inspection, offset_bytes, BLOCK_BYTES as u64, &self.random);
        self.note_flips(1);
        Ok(())
    }

    /// The slab's blocks on a drive: where each is, and what it holds. Those that the journal's last group
    /// brought are left out: if one is damaged, the power may have gone before it was written.
    pub(super) fn blocks_on(
        &self,
        place: DrivePlace,
        chosen: &HealthySlab,
    ) -> Result<BTreeMap<u32, (u64, Vec<u8>)>, Finding> {
        let media = self.nodes.media(place);
        let images = media.snapshot();
        let inspection = inspect(media.name(), &images).map_err(finding("inspection"))?;
        let is_chosen = |block: &&LiveBlock| {
            (block.volume, block.slab) == (chosen.volume, chosen.slab) && !block.in_last_group
        };
        let content = |block: &LiveBlock| images.block(&inspection, block.offset_bytes);
        let blocks = inspection.blocks.iter().filter(is_chosen);
        Ok(blocks.map(|block| (block.block, (block.offset_bytes, content(block)))).collect())
    }
}
