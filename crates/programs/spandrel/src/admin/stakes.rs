//! What would be lost with some drives: whether other drives hold whole copies of all that is on them.
//!
//! Whoever is told what to do about a drive or a node must not be told to give up what nobody else has. So all advice to
//! take something out, to pull it, wipe it or put another one in its place is given only if nothing hangs on it.
//!
//! Invariants:
//! - Other copies help only if they hold every answered write, their drive was not given up, and they can be reached now.
//! - What a drive holds counts even if it is out of date or cannot be reached: where no copy is whole, it may be the best.
//! - Before the copies of a volume were compared after the state was put back, any drive may have what counts.

use std::collections::BTreeSet;

use spandrel_cluster::{CopySet, DriveState, Member, VolumeMembership};
use spandrel_shared::{DriveId, Error, NodeId};

use super::picture::{Facts, leg_id, natural_order};

/// The volumes, by their names, for which some drives are needed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stakes {
    /// Of parts of these no other copy is whole and can be reached.
    pub last: Vec<String>,
    /// Of parts of these fewer other copies are whole and can be reached than there should be.
    pub thin: Vec<String>,
    /// Of these it is not known which copies are whole.
    pub unsettled: Vec<String>,
}

/// Who else has those parts of volumes of which no other whole copy can be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elsewhere {
    /// Drives that cannot be reached and have whole copies.
    pub whole: BTreeSet<DriveId>,
    /// The names of the volumes with parts of which no other drive has a whole copy, whether it can be reached or not.
    pub nowhere: Vec<String>,
    /// Drives with copies of these parts that lack writes.
    pub stale: BTreeSet<DriveId>,
}

impl Stakes {
    /// Whether nothing hangs on the drives: all other copies are there.
    pub fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// Whether others have whole copies of all of it, perhaps too few: then it can be built anew from these.
    pub fn can_be_built(&self) -> bool {
        self.last.is_empty() && self.unsettled.is_empty()
    }

    /// What must not be done to the drives, as in "wipe it", and why.
    pub fn must_not(&self, what: &str) -> Vec<String> {
        let mut must_not = Vec::new();
        if !self.unsettled.is_empty() {
            must_not.push(format!(
                "{what}: the cluster's state was put back, and which copies of {} are whole is not known yet",
                self.unsettled.join(", ")
            ));
        }
        if !self.last.is_empty() {
            must_not.push(format!(
                "{what}: no other copies of parts of {} are whole and can be reached",
                self.last.join(", ")
            ));
        }
        if !self.thin.is_empty() {
            must_not.push(format!(
                "{what} yet: other copies of {} are away, out of date or being built",
                self.thin.join(", ")
            ));
        }
        must_not
    }
}

impl Facts {
    /// What hangs on a drive.
    pub fn stakes_of_drive(&self, drive: DriveId) -> Stakes {
        self.stakes(&BTreeSet::from([drive]), &self.volumes)
    }

    /// What hangs on the drives of a node.
    pub fn stakes_of_node(&self, node: NodeId) -> Stakes {
        let own = self.room.drives.iter().filter(|(_, record)| record.node == node);
        self.stakes(&own.map(|(drive, _)| *drive).collect(), &self.volumes)
    }

    /// What of these volumes hangs on some drives.
    pub fn stakes<'a>(
        &self,
        drives: &BTreeSet<DriveId>,
        volumes: impl IntoIterator<Item = &'a VolumeMembership>,
    ) -> Stakes {
        let mut stakes = Stakes::default();
        for volume in volumes {
            let name = || volume.record.name.clone();
            if !self.is_settled(volume) {
                stakes.unsettled.push(name());
                continue;
            }
            match self.fewest_others(volume, drives) {
                Some(0) => stakes.last.push(name()),
                Some(others) if others + 1 < usize::from(volume.record.copies) => stakes.thin.push(name()),
                _ => {}
            }
        }
        for names in [&mut stakes.last, &mut stakes.thin, &mut stakes.unsettled] {
            names.sort_by_key(|name| natural_order(name));
        }
        stakes
    }

    /// Refuses to give the drives of nodes up if parts of a volume that waits for its copies to be compared have none on
    /// other drives: it would wait for ever.
    ///
    /// # Errors
    ///
    /// `LAST_COPY`.
    pub fn check_left_without(&self, nodes: &BTreeSet<NodeId>) -> Result<(), Error> {
        if nodes.is_empty() {
            return Ok(());
        }
        let is_left = |member: &&Member| {
            let record = self.room.drives.get(&member.drive);
            record.is_some_and(|record| !nodes.contains(&record.node) && record.state != DriveState::Failed)
        };
        let is_nowhere = |volume: &&VolumeMembership| {
            let mut counting =
                volume.sets.iter().map(|set| set.members.iter().filter(|member| !member.building));
            !self.is_settled(volume) && counting.any(|members| members.filter(is_left).count() == 0)
        };
        let mut nowhere: Vec<String> =
            self.volumes.iter().filter(is_nowhere).map(|volume| volume.record.name.clone()).collect();
        if nowhere.is_empty() {
            return Ok(());
        }
        nowhere.sort_by_key(|name| natural_order(name));
        let names = nowhere.join(", ");
        Err(Error::new(
            "LAST_COPY",
            "no drives are given up",
            format!("parts of {names} are on no other drives"),
            format!(
                "bring one of these nodes back with its drives; if all are gone for good, delete {names} first"
            ),
        ))
    }

    /// What a volume waits for that is not served, and what ends that, as its owner says.
    pub fn obstacle(&self, volume: &VolumeMembership) -> Option<String> {
        let told = self.owner(volume)?.waits_for.clone()?;
        let named =
            |text: String, drive: &DriveId| text.replace(&drive.to_string(), &self.drive_name(*drive));
        Some(
            self.room.drives.keys().fold(told, named).replace("VOLUME`", &format!("{}`", volume.record.name)),
        )
    }

    /// Who else has what is on some drives and of which nobody else has a whole copy that can be reached. What is not in
    /// reach may come back: only what nobody else has is lost with the drives.
    pub fn elsewhere(&self, drives: &BTreeSet<DriveId>) -> Elsewhere {
        let mut elsewhere = Elsewhere::default();
        for volume in self.volumes.iter().filter(|volume| self.is_settled(volume)) {
            let (answering, mut is_nowhere) = (self.answering(volume), false);
            for set in concerned(volume, drives) {
                let others = set.members.iter().filter(|member| !drives.contains(&member.drive));
                let (whole, other): (Vec<&Member>, Vec<&Member>) =
                    others.partition(|member| self.is_whole(volume, member));
                if whole.iter().any(|member| answering.contains(&leg_id(member))) {
                    continue;
                }
                elsewhere.whole.extend(whole.iter().map(|member| member.drive));
                if whole.is_empty() {
                    is_nowhere = true;
                    let stale =
                        other.iter().filter(|member| !member.building && !self.is_given_up(member.drive));
                    elsewhere.stale.extend(stale.map(|member| member.drive));
                }
            }
            if is_nowhere {
                elsewhere.nowhere.push(volume.record.name.clone());
            }
        }
        elsewhere.nowhere.sort_by_key(|name| natural_order(name));
        elsewhere
    }

    /// Whether it is known which copies of a volume are whole: not before they were compared after the state was put back.
    pub fn is_settled(&self, volume: &VolumeMembership) -> bool {
        volume.record.generation == self.generation
    }

    /// Whether a copy holds every answered write, and its drive was not given up.
    pub fn is_whole(&self, volume: &VolumeMembership, member: &Member) -> bool {
        volume.is_in_sync(member) && !volume.lost.contains(&member.drive) && !self.is_given_up(member.drive)
    }

    /// Whether what a drive held counts as lost.
    pub fn is_given_up(&self, drive: DriveId) -> bool {
        self.room.drives.get(&drive).is_none_or(|record| record.state == DriveState::Failed)
    }

    /// Of the slabs with copies on some drives, the one with fewest whole copies elsewhere that can be reached: how many
    /// there are. None if no slab has one there.
    fn fewest_others(&self, volume: &VolumeMembership, drives: &BTreeSet<DriveId>) -> Option<usize> {
        let answering = self.answering(volume);
        let is_there = |member: &&Member| {
            !drives.contains(&member.drive)
                && self.is_whole(volume, member)
                && answering.contains(&leg_id(member))
        };
        concerned(volume, drives).map(|set| set.members.iter().filter(is_there).count()).min()
    }
}

/// The slabs of a volume with copies on some drives.
fn concerned<'a>(
    volume: &'a VolumeMembership,
    drives: &'a BTreeSet<DriveId>,
) -> impl Iterator<Item = &'a CopySet> {
    let is_on = |member: &Member| !member.building && drives.contains(&member.drive);
    volume.sets.iter().filter(move |set| set.members.iter().any(is_on))
}

#[cfg(test)]
#[path = "stakes_tests.rs"]
mod tests;
