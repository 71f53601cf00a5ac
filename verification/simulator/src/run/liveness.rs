//! The second phase: all faults end, but some servers stay away. What can come back without them must; then all
//! are back, and so must be everything else.

use std::collections::BTreeSet;

use super::{Finding, PROGRESS, Run, drives_by_place, finding, judge_difference};
use crate::checkers::redundancy;
use crate::faults::atlas::Surroundings;
use crate::faults::{DrivePlace, Fault};
use crate::shape::Shape;

impl Run<'_> {
    /// All faults end, but some servers stay away. What has an in-sync copy of every slab on the others
    /// comes back.
    pub(super) fn come_back_in_part(&mut self) -> Result<(), Finding> {
        self.injector.undo_all(&self.nodes);
        // What is looked at from now on stays where it is.
        self.nodes.change_settings(|settings| *settings = Shape::settings_at_rest());
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
        let present = self.present();
        self.await_nothing_lacking(|run| {
            let reports = run.reports();
            let volumes = run.memberships()?;
            let must = volumes.iter().filter(|volume| redundancy::must_come_back(volume, &present));
            Ok(must.filter_map(|volume| redundancy::check(volume, &reports, &present).err()).next())
        })
    }

    /// Nodes whose drives have failed are restarted, as an operator does; then all but those that are
    /// away are up.
    pub(super) fn restart_broken(&mut self, away: &BTreeSet<usize>) -> Result<(), Finding> {
        for node in (0..self.nodes.count()).filter(|node| !away.contains(node)) {
            let is_broken =
                |node: spandrel_node::NodeReport| node.drives.iter().any(|drive| drive.failure.is_some());
            if self.nodes.node(node).is_some_and(|up| is_broken(up.report())) {
                self.nodes.stop(node, false);
            }
            if !self.nodes.is_started(node) {
                self.nodes.start(node);
            }
        }
        let away = away.clone();
        self.await_nothing_lacking(move |run| {
            let down = (0..run.nodes.count()).find(|node| !away.contains(node) && !run.nodes.is_up(*node));
            Ok(down.map(|node| format!("n{} is not up", node + 1)))
        })
    }

    /// All servers come back, with all drives that are not lost for ever; clients are served again.
    pub(super) fn come_back(&mut self) -> Result<(), Finding> {
        self.restart_broken(&BTreeSet::new())?;
        self.judge_places()?;
        let present = self.present();
        self.await_nothing_lacking(|run| run.lacking(&present))?;
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

    /// Every drive that is not lost for ever is used, as the drive that it was.
    pub(super) fn judge_places(&mut self) -> Result<(), Finding> {
        let found = drives_by_place(&self.nodes);
        for (place, drive) in &self.drives {
            if !self.lost.contains(place) && found.get(place) != Some(drive) {
                if self.strayed.contains(place) {
                    self.lost.insert(*place);
                    continue;
                }
                return Err(finding("drives")(format!("{place} is not used: {:?}", self.failure_of(*place))));
            }
        }
        Ok(())
    }

    fn failure_of(&self, place: DrivePlace) -> Option<String> {
        let report = self.nodes.node(place.node)?.report();
        report.drives.get(place.drive)?.failure.clone()
    }
}
