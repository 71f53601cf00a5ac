//! Cache drives as the API shows them, and how they are taken out of the cluster.
//!
//! One that works is emptied first: the drives that are bound to it get what stands there alone, and go on with another one or
//! without any. One that does not work is given up: what stands there alone is lost for its node, so its drives are brought up
//! to date from others.
//!
//! Invariants:
//! - None is taken out as long as a drive that works is bound to it. Of a node that may run and does not answer nobody knows that.
//! - None is given up unless whoever asks for it has named all for which something is lost.
//! - None is given up if other nodes do not have whole copies of all that is on the drives behind it. Where nobody says which
//!   these are, they are all drives of its node that may be.

use std::collections::BTreeSet;

use spandrel_cluster::{DriveRecord, DriveRole, DriveState, StateError};
use spandrel_health::{DriveFacts, drive};
use spandrel_node::{CacheDriveReport, DriveAway, DriveReport, NodeReport};
use spandrel_shared::{BLOCK_BYTES, DriveId, Error};

use super::administration::{Administration, state_error, unix_ms, unless_conflict};
use super::api::{
    CacheDriveStatus, CacheGivenUp, DriveCacheStatus, DriveMemoryStatus, DriveRemove, DriveRemoved,
    DriveRetire, DriveRetired,
};
use super::picture::{Facts, natural_order, trouble};
use crate::text::alone_text;

/// The drives that are bound to a cache drive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// Those that work, so that what stands on the cache drive can be moved to them.
    pub working: BTreeSet<DriveId>,
    /// Those that do not.
    pub broken: BTreeSet<DriveId>,
    /// Those that may be bound to it: nobody is there to say that.
    pub unsure: BTreeSet<DriveId>,
}

impl Behind {
    /// What is given up with the cache drive, if it is not emptied.
    pub fn at_stake(&self) -> BTreeSet<DriveId> {
        self.broken.union(&self.unsure).copied().collect()
    }
}

/// The cache drive that a drive is bound to, as its node says.
pub fn bound_to(report: &DriveReport) -> Option<DriveId> {
    report.bound_to.or(report.cache.map(|cache| cache.drive))
}

impl Administration {
    /// Has a cache drive emptied, or used again: see [`Administration::retire_drive`].
    ///
    /// Errors: `CACHE_FAILED` if it does not work, so that nothing can be moved.
    pub(super) async fn retire_cache(
        &self,
        facts: &Facts,
        (drive, record): (DriveId, &DriveRecord),
        request: DriveRetire,
    ) -> Result<DriveRetired, Error> {
        let behind = facts.behind(drive, record);
        let name = facts.drive_name(drive);
        let status = facts.cache_drive(drive, record);
        let state = if request.undo { DriveState::Active } else { DriveState::Retired };
        let is_dead = facts.cache_report(drive).is_none_or(|report| report.failure.is_some());
        if !request.undo && is_dead && behind.working.is_empty() && facts.report_of(record).is_some() {
            return Err(Error::new(
                "CACHE_FAILED",
                format!("drive {name} is not retired"),
                "it does not work or is not there, so nothing can be moved from it",
                format!("bring it back, or give it up: `spandrel drive remove {name}`"),
            ));
        }
        if !request.dry_run {
            unless_conflict(|| self.state().decide_drive(drive, state)).await?;
        }
        let is_other = |other: &CacheDriveStatus| {
            other.node == status.node && other.id != Some(drive) && other.is_used && other.status.is_healthy()
        };
        let goes_without = !request.undo && !facts.cache_drives().iter().any(is_other);
        let warning = format!(
            "{} has no other cache drive that is used: its drives go on without, as fast as they are themselves",
            status.node
        );
        Ok(DriveRetired {
            id: drive,
            name,
            role: DriveRole::Cache,
            copies_to_move: 0,
            slab_bytes: facts.geometry.slab_bytes(),
            warning: goes_without.then_some(warning),
            leaving: if request.undo { Vec::new() } else { status.in_use_by },
            dirty_bytes: facts.dirty_bytes(&behind.working),
            at_stake: facts.sorted_names(&behind.at_stake()),
            was_retired: record.state != DriveState::Active,
            works: status.is_used,
        })
    }

    /// Takes a cache drive out of the cluster that is as it was when it was looked at: one that was attached since may be in use.
    async fn remove_as_seen(&self, drive: DriveId, record: &DriveRecord, name: &str) -> Result<(), Error> {
        let Some(seen) = self.state().cache_drive(drive).await.map_err(state_error)? else { return Ok(()) };
        let changed = || {
            Error::new(
                "CACHE_CHANGED",
                format!("drive {name} is not taken out"),
                "its node has attached it meanwhile, or somebody else has decided what becomes of it",
                "look at it with `spandrel drive list`, and do it again",
            )
        };
        if (seen.record.attach_number, seen.record.state) != (record.attach_number, record.state) {
            return Err(changed());
        }
        match self.state().remove_cache_drive(drive, &seen, name, unix_ms()).await {
            Err(StateError::Conflict) => Err(changed()),
            outcome => outcome.map_err(state_error),
        }
    }

    /// Takes a cache drive out of the cluster. Its node has to let go of it then.
    ///
    /// Errors: `CACHE_IN_USE` if drives that work are bound to it, `LAST_COPY` if it does not work and nobody else has what the
    /// drives behind it hold. `CACHE_UNSURE` if its node does not say which drives those are: as long as it may run, or if it
    /// was not agreed to give the cache drive up; `CACHE_NOT_EMPTY` if that was not agreed.
    pub(super) async fn remove_cache(
        &self,
        facts: &Facts,
        (drive, record): (DriveId, &DriveRecord),
        request: &DriveRemove,
    ) -> Result<DriveRemoved, Error> {
        let behind = facts.behind(drive, record);
        let status = facts.cache_drive(drive, record);
        facts.check_cache_removal(record, &behind, &status, request)?;
        let name = facts.drive_name(drive);
        if !request.dry_run {
            self.remove_as_seen(drive, record, &name).await?;
        }
        let at_stake = behind.at_stake();
        let copies = at_stake.iter().map(|drive| facts.room.promised().slabs(*drive)).sum();
        let drives = facts.sorted_names(&at_stake);
        let gives_up = CacheGivenUp { drives, is_known: behind.unsure.is_empty(), copies };
        Ok(DriveRemoved {
            name,
            role: DriveRole::Cache,
            gives_up: (!at_stake.is_empty()).then_some(gives_up),
            location: status.location,
            warning: None,
        })
    }
}

impl Facts {
    /// Refuses to take a cache drive out that is to be emptied first or may have to be, with which more is given up than was
    /// agreed, or behind which the last copies of something are.
    fn check_cache_removal(
        &self,
        record: &DriveRecord,
        behind: &Behind,
        status: &CacheDriveStatus,
        request: &DriveRemove,
    ) -> Result<(), Error> {
        let CacheDriveStatus { name, node, .. } = status;
        if !behind.working.is_empty() {
            return Err(Error::new(
                "CACHE_IN_USE",
                format!("drive {name} cannot be removed"),
                format!(
                    "it is used by {}, and {} to be moved to them first",
                    status.in_use_by.join(", "),
                    alone_text(self.dirty_bytes(&behind.working))
                ),
                format!("`spandrel drive retire {name}` has it emptied; wait until no drive uses it"),
            ));
        }
        if !behind.unsure.is_empty() && self.may_run_silently(record) {
            return Err(Error::new(
                "CACHE_UNSURE",
                format!("drive {name} is not removed"),
                format!("its node {node} may run and does not answer, so nobody says whether drives use it"),
                format!("wait until {node} answers or is known to be down; if it hangs, stop it"),
            ));
        }
        let at_stake = behind.at_stake();
        let drives = self.sorted_names(&at_stake);
        if !request.dry_run && drives.iter().any(|drive| !request.give_up.contains(drive)) {
            return Err(self.not_given_up(record, status, &drives));
        }
        self.check_not_last(&format!("drive {name} is not given up"), &at_stake)
    }

    /// What is said to who wants a cache drive removed and has not agreed that something is lost for all of these drives.
    fn not_given_up(&self, record: &DriveRecord, status: &CacheDriveStatus, drives: &[String]) -> Error {
        let CacheDriveStatus { name, node, .. } = status;
        let (what, drives) = (format!("drive {name} is not removed"), drives.join(", "));
        let give_up = format!("`spandrel drive remove {name}` says what is lost with it, and asks");
        if self.report_of(record).is_none() {
            return Error::new(
                "CACHE_UNSURE",
                what,
                format!(
                    "its node {node} is down, and nobody says whether something stands there alone for {drives}"
                ),
                format!("start {node}; if it is gone for good, {give_up}"),
            );
        }
        Error::new(
            "CACHE_NOT_EMPTY",
            what,
            format!(
                "{drives} do not work and are bound to it or may be: what stands there alone for them cannot be moved"
            ),
            format!("have them work again; or give it up: {give_up}"),
        )
    }

    /// The drives that are bound to a cache drive.
    pub fn behind(&self, cache: DriveId, record: &DriveRecord) -> Behind {
        let of_node = self.room.drives.iter().filter(|(_, known)| known.node == record.node);
        let of_node: BTreeSet<DriveId> = of_node.map(|(drive, _)| *drive).collect();
        let Some(report) = self.report_of(record) else {
            return Behind { unsure: of_node, ..Behind::default() };
        };
        let mut behind = Behind::default();
        let mut unsaid = of_node;
        for drive in &report.drives {
            let Some(id) = drive.drive else { continue };
            // One that does not work and names no cache drive may be bound to any.
            let is_silent = drive.failure.is_some() && bound_to(drive).is_none();
            let was_unsaid = !is_silent && unsaid.remove(&id);
            if bound_to(drive) != Some(cache) {
                continue;
            }
            if drive.failure.is_none() || drive.is_being_attached {
                behind.working.insert(id);
            } else if was_unsaid {
                behind.broken.insert(id);
            }
        }
        // Of drives that are missing, the cache drive says whether they are bound to it, if it can.
        match self.cache_report(cache) {
            Some(known) if known.failure.is_none() => {
                behind.broken.extend(unsaid.into_iter().filter(|drive| known.bound.contains(drive)));
            }
            _ => behind.unsure = unsaid,
        }
        behind
    }

    /// What the node of a drive says, if it runs.
    pub(super) fn report_of(&self, record: &DriveRecord) -> Option<&NodeReport> {
        self.nodes.iter().find(|node| node.id == record.node)?.report.as_ref()
    }

    /// Whether the node of a drive does not answer, though it may run.
    fn may_run_silently(&self, record: &DriveRecord) -> bool {
        let node = self.nodes.iter().find(|node| node.id == record.node);
        node.is_some_and(|node| node.report.is_none() && self.may_run(node))
    }

    pub(super) fn cache_report(&self, cache: DriveId) -> Option<&CacheDriveReport> {
        let reports = self.nodes.iter().filter_map(|node| node.report.as_ref());
        reports.flat_map(|report| &report.caches).find(|report| report.drive == Some(cache))
    }

    /// Their names, in order.
    pub(super) fn sorted_names(&self, drives: &BTreeSet<DriveId>) -> Vec<String> {
        let mut names: Vec<String> = drives.iter().map(|drive| self.drive_name(*drive)).collect();
        names.sort_by_key(|name| natural_order(name));
        names
    }

    pub(super) fn cache_of_drive(&self, report: &DriveReport) -> Option<DriveCacheStatus> {
        let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
        report.cache.map(|cache| DriveCacheStatus {
            drive: self.drive_name(cache.drive),
            mode: cache.mode,
            total_bytes: bytes(cache.blocks_total),
            dirty_bytes: bytes(cache.blocks_dirty),
            copied_bytes: bytes(cache.blocks_copied),
            hit_bytes: bytes(cache.hits),
            missed_bytes: bytes(cache.misses),
            populated_bytes: bytes(cache.populated),
            destaged_bytes: bytes(cache.destaged),
            full_ms: cache.full_ms,
        })
    }

    /// The cache drives as the API shows them: those that the cluster knows, and those that were given to a node and are none
    /// of these.
    pub fn cache_drives(&self) -> Vec<CacheDriveStatus> {
        let known = self.caches.iter().map(|(drive, record)| self.cache_drive(*drive, record));
        let mut drives: Vec<CacheDriveStatus> = known.collect();
        for node in &self.nodes {
            let reports = node.report.iter().flat_map(|report| &report.caches);
            let strangers =
                reports.filter(|report| report.drive.is_none_or(|drive| !self.caches.contains_key(&drive)));
            drives.extend(strangers.map(|report| stranger(&node.name, report)));
        }
        drives.sort_by_key(|drive| natural_order(&drive.name));
        drives
    }

    /// A cache drive of the cluster.
    pub(super) fn cache_drive(&self, drive: DriveId, record: &DriveRecord) -> CacheDriveStatus {
        let report = self.cache_report(drive);
        let failure = report.and_then(|report| report.failure.clone());
        let facts = DriveFacts {
            is_node_reachable: report.is_some(),
            trouble: failure.as_deref().map(trouble),
            is_retired: record.state == DriveState::Retired,
            ..DriveFacts::default()
        };
        let behind = self.behind(drive, record);
        let bound: BTreeSet<DriveId> = behind.working.union(&behind.broken).copied().collect();
        let away = self.cache_away(drive);
        CacheDriveStatus {
            name: self.drive_name(drive),
            id: Some(drive),
            node: self.node_name(record.node),
            status: drive::status(&facts),
            is_used: report.is_some_and(|report| report.failure.is_none()),
            failure,
            location: report.map(|report| report.location.clone()),
            media: record.media,
            size_bytes: record.size_bytes,
            bound: self.sorted_names(&bound),
            in_use_by: self.sorted_names(&behind.working),
            perhaps_bound: self.sorted_names(&behind.unsure),
            dirty_bytes: if behind.at_stake().is_empty() { self.dirty_bytes(&behind.working) } else { None },
            away_ms: away.map(|away| away.away_ms),
            left_ms: away.and_then(|away| away.left_ms),
            obstacle: report.and_then(|report| report.obstacle.clone()),
        }
    }

    /// What stands on cache drives alone for these drives; none if one of them does not say it.
    pub(super) fn dirty_bytes(&self, drives: &BTreeSet<DriveId>) -> Option<u64> {
        let dirty = |drive: &DriveId| self.drive_report(*drive)?.cache.map(|cache| cache.blocks_dirty);
        Some(drives.iter().map(dirty).sum::<Option<u64>>()? * BLOCK_BYTES as u64)
    }

    fn cache_away(&self, cache: DriveId) -> Option<DriveAway> {
        let reports = self.nodes.iter().filter_map(|node| node.report.as_ref());
        reports.flat_map(|report| &report.caches_away).find(|away| away.drive == cache).copied()
    }
}

/// One that was given to a node, and of which the cluster does not know that it is one of its own.
fn stranger(node: &str, report: &CacheDriveReport) -> CacheDriveStatus {
    let facts = DriveFacts {
        is_node_reachable: true,
        trouble: report.failure.as_deref().map(trouble),
        ..DriveFacts::default()
    };
    CacheDriveStatus {
        name: format!("{node}/?"),
        id: report.drive,
        node: node.to_owned(),
        status: drive::status(&facts),
        is_used: false,
        failure: report.failure.clone(),
        location: Some(report.location.clone()),
        media: None,
        size_bytes: report.size_bytes,
        bound: Vec::new(),
        in_use_by: Vec::new(),
        perhaps_bound: Vec::new(),
        dirty_bytes: None,
        away_ms: None,
        left_ms: None,
        obstacle: report.obstacle.clone(),
    }
}

/// What memory does for a drive, if anything was read since it may.
pub(super) fn memory_of_drive(report: &DriveReport) -> Option<DriveMemoryStatus> {
    let bytes = |blocks: u64| blocks * BLOCK_BYTES as u64;
    (report.memory_hits + report.memory_misses > 0).then(|| DriveMemoryStatus {
        copied_bytes: report.memory_cached_bytes,
        hit_bytes: bytes(report.memory_hits),
        missed_bytes: bytes(report.memory_misses),
    })
}

#[cfg(test)]
#[path = "caches_tests.rs"]
mod tests;
