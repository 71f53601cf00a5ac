//! The power of all servers fails, and the cluster's state comes back from an older backup.
//!
//! Whatever nodes decided on an older state would be wrong: it may call a copy in sync that has missed writes
//! since, or give an epoch out for the second time. So drives remember how new a state they have seen, and a
//! node whose drives have seen a newer one does not start. As long as the older state stands, no node comes up,
//! no client is answered anything, and nothing changes, neither there nor on a drive. Then the true state is put
//! back, and all goes on as after any power cut.
//!
//! The older state is chosen such that on every server a drive that works has durably recorded a newer one. A
//! server without such a drive cannot know better, and is promised nothing.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use spandrel_cluster::memory::Image;
use spandrel_cluster::store::Entry;
use spandrel_platform_simulated::{DriveImage, RunEnd, SimulatedDrive};
use spandrel_shared::witness;

use super::{Finding, Run, finding};
use crate::faults::Fault;

/// Within this time all requests to the state, and answers to clients, have arrived that were under way.
const IN_FLIGHT: Duration = Duration::from_millis(500);

/// How long an orderly stop may take.
const STOP_PATIENCE: Duration = Duration::from_secs(15);

/// How a node refuses a state that is older than its drives know.
const REFUSAL: &str = "STATE_OLDER_THAN_DRIVES";

/// What must not change as long as an older state stands.
pub(super) struct OlderState {
    entries: Vec<Entry>,
    answered: Vec<usize>,
}

impl Run<'_> {
    /// Brings an older state in the place of the true one, for a time. Returns the name of what was done, which
    /// is a mere power cut, or nothing, if there is no older state that every server must refuse.
    pub(super) fn bring_older_state(
        &mut self,
        in_order: bool,
        away_ms: u64,
        for_ms: u64,
    ) -> Result<Option<&'static str>, Finding> {
        if !self.injector.remembers_state() {
            return Ok(None);
        }
        if in_order {
            self.stop_in_order();
            self.look()?;
        }
        let Some(older) = self.injector.older_state(&self.nodes, self.now_ms()) else {
            if !in_order {
                return Ok(None);
            }
            self.nodes.cut_power_of_all();
            self.start_all(away_ms);
            return Ok(Some(Fault::PowerCutAll { away_ms }.kind()));
        };
        let truth = self.replace_state(older)?;
        let images = self.images();
        self.older_state = Some(OlderState { entries: self.entries(), answered: self.answered() });
        self.start_all(away_ms);
        self.advance(away_ms + for_ms)?;
        self.older_state = None;
        if let Some(name) = self.changed_drive(&images) {
            return Err(finding("older state")(format!("{name} was changed")));
        }
        let refused = (0..self.nodes.count()).filter(|node| self.nodes.refusal(*node).is_some()).count();
        self.outcome.starts_refused += refused as u64;
        self.replace_state(truth)?;
        self.start_all(away_ms);
        Ok(Some(Fault::OlderState { in_order, away_ms, for_ms }.kind()))
    }

    /// Stops all nodes in order, so that their drives record what they know. One that does not come to its end
    /// loses its power like the others.
    pub(super) fn stop_in_order(&self) {
        let running = Rc::new(Cell::new(0));
        for index in 0..self.nodes.count() {
            let Some(process) = self.nodes.process(index) else { continue };
            for shard in self.nodes.shards(index) {
                running.set(running.get() + 1);
                let running = Rc::clone(&running);
                process.spawn(async move {
                    shard.stop().await;
                    running.set(running.get() - 1);
                });
            }
        }
        // What has not ended by then is a stop that something keeps from it, as on real servers.
        _ = self.nodes.world.run_until_within(STOP_PATIENCE, || running.get() == 0);
    }

    /// Cuts the power of all servers, and puts another state in the place of the one that stands, which it
    /// returns.
    fn replace_state(&mut self, other: Image) -> Result<Image, Finding> {
        self.nodes.cut_power_of_all();
        if self.nodes.world.run_for(IN_FLIGHT) != RunEnd::TimeOver {
            return Err(finding("progress")("the world stands still".to_owned()));
        }
        // What the drives have kept is certain when they have power again.
        (0..self.nodes.count()).for_each(|node| self.nodes.host(node).power_on());
        self.nodes.forget_refusals();
        let present = self.nodes.state.backup();
        self.nodes.state.restore(other);
        Ok(present)
    }

    /// What stands in the cluster's state, but for what ends with a lease.
    fn entries(&self) -> Vec<Entry> {
        let entries = self.nodes.state.backup().entries;
        entries.into_iter().filter(|entry| entry.lease.is_none()).collect()
    }

    fn all_drives(&self) -> impl Iterator<Item = &SimulatedDrive> {
        (0..self.nodes.count()).flat_map(|node| self.nodes.all_drives(node))
    }

    fn images(&self) -> Vec<DriveImage> {
        self.all_drives().map(SimulatedDrive::snapshot).collect()
    }

    /// A drive that is not as it was when `images` were taken.
    fn changed_drive(&self, images: &[DriveImage]) -> Option<&str> {
        let mut drives = self.all_drives().zip(images);
        drives.find(|(drive, image)| drive.snapshot() != **image).map(|(drive, _)| drive.name())
    }

    fn start_all(&mut self, away_ms: u64) {
        let now_ms = self.now_ms();
        self.injector.start_all(&self.nodes, now_ms, now_ms + away_ms);
    }

    /// What must hold as long as an older state stands.
    pub(super) fn judge_older_state(&self, older: &OlderState) -> Result<(), Finding> {
        let wrong = |what: String| Err(finding("older state")(what));
        for node in 0..self.nodes.count() {
            if self.nodes.is_up(node) {
                return wrong(format!("n{} is up on a state that is older than its drives know", node + 1));
            }
            let refusal = self.nodes.refusal(node);
            if let Some(other) = refusal.filter(|refusal| refusal.code != REFUSAL) {
                return wrong(format!("n{} refuses it with another error: {other}", node + 1));
            }
        }
        if !witness::take_completions().is_empty() || self.answered() != older.answered {
            return wrong("a client was answered".to_owned());
        }
        let entries = self.entries();
        let is_new = |entry: &&Entry| !older.entries.contains(entry);
        let is_gone = |entry: &&Entry| !entries.iter().any(|other| other.key == entry.key);
        let changed = entries.iter().find(is_new).or_else(|| older.entries.iter().find(is_gone));
        match changed {
            None => Ok(()),
            Some(entry) => wrong(format!("{} was changed in the state", entry.key)),
        }
    }
}

#[cfg(test)]
#[path = "older_state_tests.rs"]
mod tests;
