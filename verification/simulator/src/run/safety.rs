//! The first phase: the plan's faults strike while clients work, each if the atlas permits it.

use std::rc::Rc;

use spandrel_cluster::VolumeSettings;
use spandrel_node::VolumeGrowth;
use spandrel_shared::{BLOCK_BYTES, DriveId, GrowthId, IopsLimit};

use super::{Finding, Run, RunVolume, finding, judge_difference};
use crate::checkers::recovery::{self, Configs};
use crate::faults::atlas::Surroundings;
use crate::faults::{DrivePlace, Fault};
use crate::nodes::node_id;

impl Run<'_> {
    /// A fault strikes, if the atlas permits it.
    pub(super) fn strike(&mut self, fault: &Fault) -> Result<(), Finding> {
        if let Fault::Scrub { volume } = fault {
            self.scrub_away(*volume)?;
            *self.outcome.faults.entry(fault.kind()).or_insert(0) += 1;
            return Ok(());
        }
        if let Fault::HandOver { volume, to } = *fault {
            self.hand_over(volume, to);
            *self.outcome.faults.entry(fault.kind()).or_insert(0) += 1;
            return self.look();
        }
        if let Fault::SetVolume { volume, iops_max, is_pinned } = *fault {
            self.set_volume(volume, iops_max, is_pinned);
            *self.outcome.faults.entry(fault.kind()).or_insert(0) += 1;
            return self.look();
        }
        let (volumes, up) = (self.memberships()?, self.up());
        self.atlas.forget_lost_drives(&volumes);
        let ids = self.ids.clone();
        let surroundings = Surroundings { now_ms: self.now_ms(), up: &up, ids: &ids, volumes: &volumes };
        let taken = self.places_taken(fault);
        let newest = self.volumes.iter().map(|volume| volume.client.history.newest_value()).max();
        let crashes = self.nodes.crashes();
        let permitted =
            self.atlas.permits(fault, &surroundings) && !taken.iter().any(|place| self.lost.contains(place));
        let now_ms = surroundings.now_ms;
        let struck = match *fault {
            _ if !permitted => None,
            // What was built since the older state on drives that are away then, nobody can know of.
            Fault::OlderState { .. } if self.plan.shape.keeps_itself() => None,
            Fault::OlderState { in_order, away_ms, for_ms } => {
                self.bring_older_state(in_order, away_ms, for_ms)?
            }
            Fault::Grow { volume, blocks } => self.grow(volume, blocks).then(|| fault.kind()),
            Fault::Label { node, labels } => {
                self.nodes.label(node, labels.place());
                Some(fault.kind())
            }
            Fault::CacheMode { mode } => {
                self.nodes
                    .change_settings(move |set| (set.cache_mode_ssd, set.cache_mode_hdd) = (mode, mode));
                Some(fault.kind())
            }
            Fault::MapMemory { bytes } => {
                self.nodes.change_settings(move |set| set.map_memory_bytes = bytes);
                Some(fault.kind())
            }
            Fault::Retire { place, for_ms } => {
                self.injector.retire(&self.nodes, self.drives[&place], now_ms + for_ms);
                Some(fault.kind())
            }
            _ => self.injector.inject(&self.nodes, fault, newest.unwrap_or(0), now_ms).then(|| fault.kind()),
        };
        let Some(kind) = struck else {
            self.outcome.faults_left_out += 1;
            return Ok(());
        };
        let drives_lost: Vec<DriveId> = taken.iter().map(|place| self.drives[place]).collect();
        self.atlas.note(fault, &drives_lost, &surroundings);
        match fault {
            Fault::LoseDrives { .. } => self.lost.extend(taken),
            Fault::StrayWrite { place, .. } => {
                let behind = self.drives_behind(*place);
                self.strayed.extend(behind.into_iter().chain([*place]));
            }
            Fault::Rot { place, .. } => _ = self.roots_damaged.insert(*place, self.root_generation(*place)),
            Fault::Unreadable { place, .. } => _ = self.unreadable.insert(place.node),
            _ => {}
        }
        self.was_damaged |= fault.is_damage();
        if self.nodes.crashes() > crashes {
            self.judge_recoveries()?;
        }
        self.outcome.node_crashes += self.nodes.crashes() - crashes;
        *self.outcome.faults.entry(kind).or_insert(0) += 1;
        self.look()
    }

    /// What servers that are down will make of their drives when they come back.
    fn judge_recoveries(&mut self) -> Result<(), Finding> {
        let shape = &self.plan.shape;
        let configs = Configs {
            drive: shape.drive_config(),
            cache: shape.cache_config(),
            map_memory_bytes_max: (shape.map_memory_bytes > 0).then_some(shape.map_memory_bytes),
        };
        for node in (0..self.nodes.count()).filter(|node| !self.nodes.is_started(*node)) {
            let may_lack = self.may_lack(node);
            for drive in 0..self.nodes.drives(node).len() {
                let media = self.nodes.media(DrivePlace { node, drive });
                // What a drive has kept is open until it has power again.
                let possible = match self.nodes.host(node).is_powered() {
                    true => vec![media.snapshot()],
                    false => media.crash_images(&self.recoveries),
                };
                for images in possible {
                    let checked = recovery::check(media.name(), configs, &images, may_lack);
                    checked.map_err(finding("recovery"))?;
                }
            }
        }
        Ok(())
    }

    /// Whether a fault may have taken something from the drives of a server, or another image stands in the place of one.
    fn may_lack(&self, node: usize) -> bool {
        self.atlas.damaged().contains_key(&node)
            || self.lost.iter().any(|place| place.node == node)
            || self.injector.has_exchanged(node)
    }

    /// The generation of a drive's root; as high as can be if that cannot be read.
    fn root_generation(&self, place: DrivePlace) -> u64 {
        let inspection = self.nodes.media(place).inspect();
        inspection.ok().and_then(|inspection| inspection.root).map_or(u64::MAX, |root| root.generation)
    }

    /// The drives that a fault takes away.
    fn places_taken(&self, fault: &Fault) -> Vec<DrivePlace> {
        match *fault {
            Fault::OldImage { place, .. } => self.drives_behind(place),
            Fault::LoseDrives { node, .. } => {
                self.drives.keys().filter(|place| place.node == node).copied().collect()
            }
            _ => Vec::new(),
        }
    }

    /// The drives that cannot be used without one: itself, or those that are bound to a cache drive.
    fn drives_behind(&self, place: DrivePlace) -> Vec<DrivePlace> {
        if self.nodes.is_cache(place) { self.nodes.bound_to(place) } else { vec![place] }
    }

    /// Has a volume's owner, if it has one, begin to hand it over.
    fn hand_over(&self, volume: usize, to: usize) {
        let Some(RunVolume { id, .. }) = self.volumes.get(volume) else { return };
        let Some(owner) = self.owner_of(*id) else { return };
        let (Some(node), Some(process)) = (self.nodes.owner(owner, *id), self.nodes.process(owner)) else {
            return;
        };
        let id = *id;
        process.spawn(async move {
            // One that is refused has changed nothing.
            let _ = node.hand_over(id, node_id(to)).await;
        });
    }

    /// Has a volume set otherwise, if there is one.
    fn set_volume(&self, volume: usize, iops_max: u64, is_pinned: bool) {
        let Some(RunVolume { id, .. }) = self.volumes.get(volume) else { return };
        let normalized_bytes = IopsLimit::NORMALIZED_BYTES_DEFAULT;
        let iops_limit = (iops_max > 0).then_some(IopsLimit { iops_max, normalized_bytes });
        self.nodes.set_volume(*id, VolumeSettings { iops_limit, is_pinned });
    }

    /// Has a volume's owner begin to make it larger, if it has one.
    fn grow(&self, volume: usize, blocks: u64) -> bool {
        let Some(RunVolume { id, growth, .. }) = self.volumes.get(volume) else { return false };
        let Some(owner) = self.owner_of(*id) else { return false };
        let (Some(node), Some(process)) = (self.nodes.owner(owner, *id), self.nodes.process(owner)) else {
            return false;
        };
        let (id, growth) = (*id, Rc::clone(growth));
        let size_bytes = growth.present_bytes() + blocks * BLOCK_BYTES as u64;
        if growth.is_enough(size_bytes) {
            return false;
        }
        process.spawn(async move {
            // One that is refused, or whose owner dies, is taken back or finished.
            let grown = node
                .grow_volume(&VolumeGrowth {
                    volume: id,
                    size_bytes,
                    former_bytes: None,
                    id: GrowthId::from_random(0, size_bytes),
                    dry_run: false,
                })
                .await;
            if grown.is_ok() {
                growth.answered(size_bytes);
            }
        });
        true
    }

    /// Scrubs a volume. If all volumes are healthy and no damage is left on a server's drives, it counts
    /// as whole again.
    fn scrub_away(&mut self, volume: usize) -> Result<(), Finding> {
        let Some(RunVolume { id, .. }) = self.volumes.get(volume) else { return Ok(()) };
        let report = self.scrub(*id);
        judge_difference(report.as_ref())?;
        if self.lacking(&self.present())?.is_some() {
            return Ok(());
        }
        for node in self.atlas.damaged().keys().copied().collect::<Vec<_>>() {
            let mut places = self.drives.keys().filter(|place| place.node == node);
            let has_strayed = self.strayed.iter().any(|place| place.node == node);
            let is_certain = !has_strayed
                && !self.unreadable.contains(&node)
                && !self.atlas.is_exposed(node, self.now_ms());
            if is_certain && places.all(|place| self.is_whole(*place)) {
                self.atlas.content_is_whole(node);
            }
        }
        Ok(())
    }

    /// Whether nothing of a drive's damage is left. A journal whose last group is gone looks as if there had
    /// been none; so it counts as whole only when a newer root has made it unimportant.
    fn is_whole(&self, place: DrivePlace) -> bool {
        let media = self.nodes.media(place);
        let Ok(inspection) = media.inspect() else { return false };
        let generation = inspection.root.map_or(0, |root| root.generation);
        !media.endangers_content()
            && inspection.damage.is_empty()
            && self.roots_damaged.get(&place).is_none_or(|damaged| generation > *damaged)
    }
}
