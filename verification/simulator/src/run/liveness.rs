//! The second phase: all faults end, but some servers stay away. What can come back without them must; then all
//! are back, and so must be everything else.

use std::collections::BTreeSet;

use spandrel_cluster::VolumeSettings;
use spandrel_node::{DriveReport, NodeReport};

use super::{Finding, PROGRESS, Run, drives_by_place, finding, judge_difference};
use crate::checkers::redundancy;
use crate::faults::atlas::Surroundings;
use crate::faults::{DrivePlace, Fault};
use crate::shape::Shape;

/// Bindings that have not changed for so long are not being changed.
const BINDINGS_REST_MS: u64 = 3000;

impl Run<'_> {
    /// All faults end, but some servers stay away. What has an in-sync copy of every slab on the others
    /// comes back.
    pub(super) fn come_back_in_part(&mut self) -> Result<(), Finding> {
        self.injector.undo_all(&self.nodes);
        // What is looked at from now on stays where it is.
        self.nodes.change_settings(|settings| *settings = Shape::settings_at_rest());
        self.volume_ids()
            .into_iter()
            .for_each(|volume| self.nodes.set_volume(volume, VolumeSettings::default()));
        let mut away = BTreeSet::new();
        for _ in 0..self.plan.shape.left_broken {
            let node = self.random.index(self.nodes.count());
            let fault = Fault::Stop { node, power_cut: self.random.chance(500), away_ms: 0 };
            let (volumes, up) = (self.memberships()?, self.up());
            let surroundings =
                Surroundings { now_ms: self.now_ms(), up: &up, ids: &self.ids, volumes: &volumes };
            if self.atlas.permits(&fault, &surroundings) && away.insert(node) {
                self.atlas.note(&fault, &[], &surroundings);
                self.nodes.stop(node, self.random.chance(500));
            }
        }
        self.restart_broken(&away)?;
        let (present, mut left_alone) = (self.present(), away.clone());
        self.await_nothing_lacking(|run| {
            run.restart_failed(&mut left_alone);
            let reports = run.reports();
            let volumes = run.memberships()?;
            let must = volumes.iter().filter(|volume| redundancy::must_come_back(volume, &present));
            Ok(must.filter_map(|volume| redundancy::check(volume, &reports, &present).err()).next())
        })
    }

    /// Nodes whose drives have failed are restarted, as an operator does; then all but those that are
    /// away are up.
    pub(super) fn restart_broken(&mut self, away: &BTreeSet<usize>) -> Result<(), Finding> {
        self.restart_failed(&mut away.clone());
        let away = away.clone();
        self.await_nothing_lacking(move |run| {
            let down = (0..run.nodes.count()).find(|node| !away.contains(node) && !run.nodes.is_up(*node));
            Ok(down.map(|node| format!("n{} is not up", node + 1)))
        })
    }

    /// Restarts nodes with drives that have failed, once each, and starts those that are down; but not those that are left
    /// alone. What was under way when the last fault ended can fail a drive a moment later.
    fn restart_failed(&self, left_alone: &mut BTreeSet<usize>) {
        for node in 0..self.nodes.count() {
            if left_alone.contains(&node) {
                continue;
            }
            let fails = |drive: &DriveReport| drive.failure.is_some() && !drive.is_being_attached;
            let is_broken = |node: NodeReport| node.drives.iter().any(fails);
            if self.nodes.report(node).is_some_and(is_broken) {
                self.nodes.stop(node, false);
                left_alone.insert(node);
            }
            if !self.nodes.is_started(node) {
                self.nodes.start(node);
            }
        }
    }

    /// All servers come back, with all drives that are not lost for ever; clients are served again.
    pub(super) fn come_back(&mut self) -> Result<(), Finding> {
        self.restart_broken(&BTreeSet::new())?;
        self.judge_places()?;
        let (present, mut restarted) = (self.present(), BTreeSet::new());
        self.await_nothing_lacking(|run| {
            run.restart_failed(&mut restarted);
            run.lacking(&present)
        })?;
        // Before clients overwrite what differs.
        for volume in self.volume_ids() {
            judge_difference(self.scrub(volume).as_ref())?;
        }
        let answered = self.answered();
        self.await_nothing_lacking(|run| {
            let idle = run.volumes.iter().zip(&answered);
            let idle = idle.filter(|(volume, before)| volume.client.history.answered() < **before + PROGRESS);
            Ok(idle.map(|(volume, _)| format!("clients of {} get no answers", volume.client.name)).next())
        })
    }

    /// Nobody changes which cache drives the drives have, and none is on its way to another one.
    fn await_bindings_at_rest(&mut self) -> Result<(), Finding> {
        let bindings = |run: &Self| {
            let reports = run.reports();
            let drives = reports.iter().flat_map(|report| &report.drives);
            let of = |drive: &DriveReport| (drive.location.clone(), drive.bound_to, drive.failure.is_some());
            drives.map(of).collect::<Vec<_>>()
        };
        let (mut before, mut since_ms) = (bindings(self), self.now_ms());
        self.await_nothing_lacking(|run| {
            let now = bindings(run);
            let (is_at_rest, now_ms) =
                (now == before && !now.iter().any(|(_, _, fails)| *fails), run.now_ms());
            if !is_at_rest {
                (before, since_ms) = (now, now_ms);
            }
            let text = || format!("drives get other cache drives, or none: {before:?}");
            Ok((now_ms - since_ms < BINDINGS_REST_MS).then(text))
        })
    }

    /// No drive is being attached anew, with another cache drive or without one: it is used in a moment. Where stray writes
    /// have hit, bindings may never come to rest, but each of them is made.
    fn await_attached(&mut self) -> Result<(), Finding> {
        self.await_nothing_lacking(|run| {
            let is_being_attached =
                |place: &&DrivePlace| run.report_of(**place).is_some_and(|drive| drive.is_being_attached);
            let mut sound =
                run.drives.keys().filter(|place| !run.strayed.contains(place) && !run.lost.contains(place));
            Ok(sound.find(is_being_attached).map(|place| format!("{place} is being attached anew")))
        })
    }

    /// Every drive that is not lost for ever is used, as the drive that it was.
    pub(super) fn judge_places(&mut self) -> Result<(), Finding> {
        if self.plan.shape.cache.is_some() && self.strayed.is_empty() && self.lost.is_empty() {
            self.await_bindings_at_rest()?;
        }
        self.await_attached()?;
        let found = drives_by_place(&self.nodes);
        for (place, drive) in &self.drives {
            if !self.lost.contains(place) && found.get(place) != Some(drive) {
                if self.strayed.contains(place) {
                    self.lost.insert(*place);
                    continue;
                }
                let failure = self.report_of(*place).and_then(|drive| drive.failure);
                return Err(finding("drives")(format!("{place} is not used: {failure:?}")));
            }
        }
        Ok(())
    }

    fn report_of(&self, place: DrivePlace) -> Option<DriveReport> {
        let report = self.nodes.report(place.node)?;
        report.drives.get(place.drive).cloned()
    }
}
