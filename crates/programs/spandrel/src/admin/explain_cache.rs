//! Why a cache drive, or the cache of a drive, is as it is: see the module `explain`.
//!
//! Invariant: nobody is told to take a cache drive out, to pull or wipe it, as long as anything hangs on the drives behind it,
//! or on what stands there alone.

use std::collections::BTreeSet;

use spandrel_cluster::{DriveRecord, DriveState};
use spandrel_health::OperationalStatus;
use spandrel_shared::DriveId;
use spandrel_shared::size::format_size;

use super::api::{CacheDriveStatus, DriveCacheStatus, DriveStatus, Explanation};
use super::caches::Behind;
use super::explain::{KEEP_DRIVE, begin, start_anew, time};
use super::picture::Facts;
use super::stakes::Stakes;
use crate::text::{alone_text, percent};

/// For so long there has been hardly room on a cache drive before that counts as trouble: bursts are what it is for.
pub(super) const FULL_FOR_LONG_MS: u64 = 10 * 60 * 1000;

/// For so long a drive has gone without a cache drive before that counts as trouble: bindings change as drives come and go.
pub(super) const WITHOUT_FOR_LONG_MS: u64 = 60 * 1000;

impl Facts {
    /// Why a cache drive is as it is that is so.
    pub fn explain_cache_of(&self, status: &CacheDriveStatus) -> Explanation {
        let mut told = begin(format!("drive {}", status.name), &status.status);
        let known = status.id.and_then(|id| Some((id, self.caches.get(&id)?)));
        let Some((id, record)) = known else {
            let failure = status.failure.as_deref().unwrap_or("it does not say why");
            told.why.push(format!(
                "{} was given it as a cache drive, and does not use it: {failure}",
                status.node
            ));
            told.must_not.push(format!(
                "{KEEP_DRIVE}, before all cache drives of {} are there: it may be one of them, damaged",
                status.node
            ));
            return told;
        };
        told.since_ms = status.away_ms;
        let behind = self.behind(id, record);
        let all: BTreeSet<DriveId> = behind.working.union(&behind.at_stake()).copied().collect();
        let stakes = self.stakes(&all, &self.volumes);
        let is_said = self.report_of(record).is_some();
        for operational in &status.status.operational {
            match operational {
                OperationalStatus::Ok => self.tell_of_working_cache(&mut told, status, &behind),
                OperationalStatus::RemovingFromPool => {
                    self.tell_of_retired_cache(&mut told, (status, record), &behind, &stakes)
                }
                _ => self.tell_of_missing_cache(&mut told, (status, record), &behind, &stakes),
            }
        }
        if let Some(obstacle) = &status.obstacle {
            told.why.push(format!("{}: {}", obstacle.what, obstacle.why));
            told.may.push(obstacle.next.clone());
        }
        told.must_not.extend(stakes.must_not(KEEP_DRIVE));
        // Of one that is lost nothing can be moved any more.
        let may_hold_more = status.is_used || !behind.working.is_empty() || !is_said;
        if may_hold_more && !all.is_empty() && stakes.are_none() {
            let first = if is_said { String::new() } else { format!("{} answers and ", status.node) };
            told.must_not.push(format!(
                "pull or wipe it before {first}`spandrel drive remove {}` has emptied it",
                status.name
            ));
        }
        told
    }

    fn tell_of_working_cache(&self, told: &mut Explanation, status: &CacheDriveStatus, behind: &Behind) {
        if behind.working.is_empty() {
            told.why.push("it works, and caches for no drive".to_owned());
            return;
        }
        let caches = self.drives().into_iter().filter(|drive| status.in_use_by.contains(&drive.name));
        for (drive, cache) in caches.filter_map(|drive| Some((drive.name, drive.cache?))) {
            told.why.push(format!("it caches for {drive}: {}", use_text(&cache)));
        }
        told.why.push(format!(
            "if it dies, {} lost for {}: its drives are not used before it is back or given up, \
             and are brought up to date from other nodes then",
            alone_text(status.dirty_bytes),
            status.node
        ));
    }

    fn tell_of_retired_cache(
        &self,
        told: &mut Explanation,
        (status, record): (&CacheDriveStatus, &DriveRecord),
        behind: &Behind,
        stakes: &Stakes,
    ) {
        told.why.push("it was retired: it caches for no further drive".to_owned());
        let is_said = self.report_of(record).is_some();
        told.doing.push(match behind.working.is_empty() {
            true if !is_said => format!("nothing: its node {} does not say how it is", status.node),
            true if behind.at_stake().is_empty() => "nothing: it is empty".to_owned(),
            true => "nothing: no drive that works is bound to it".to_owned(),
            false => format!(
                "it is left by {}, one after the other: {} moved there first",
                status.in_use_by.join(", "),
                alone_text(self.dirty_bytes(&behind.working))
            ),
        });
        if is_said && (!behind.working.is_empty() || stakes.can_be_built()) {
            told.may
                .push(format!("`spandrel drive remove {}` to have it emptied and taken out", status.name));
        }
        told.may.push(format!("`spandrel drive retire --undo {}` to have it used again", status.name));
    }

    /// It is missing, or does not work.
    fn tell_of_missing_cache(
        &self,
        told: &mut Explanation,
        (status, record): (&CacheDriveStatus, &DriveRecord),
        behind: &Behind,
        stakes: &Stakes,
    ) {
        let (name, node) = (&status.name, &status.node);
        if self.report_of(record).is_none() {
            told.why.push(format!("its node {node} does not say how it is"));
            told.may.push(format!("`spandrel explain node {node}`"));
            return;
        }
        told.why.push(match &status.failure {
            Some(failure) => format!("its node does not use it: {failure}"),
            None => format!("its node {node} runs without it: it was not there when {node} started"),
        });
        if !behind.broken.is_empty() {
            told.why.push(format!(
                "not used without it: {}, as what stands there alone belongs to what is on them",
                self.sorted_names(&behind.broken).join(", ")
            ));
        }
        if !behind.unsure.is_empty() {
            let unsure = self.sorted_names(&behind.unsure).join(", ");
            told.why.push(format!("missing, too, and perhaps bound to it: {unsure}"));
        }
        told.may.push(format!(
            "put it back or look at its cables; then `spandrel drive add PATH` on its server takes it up again at once, with the \
             drives behind it; or {}",
            start_anew(node)
        ));
        if stakes.can_be_built() {
            told.may.push(format!(
                "`spandrel drive remove {name}` to give it up at once: its drives go on without it, and are brought up to \
                 date from other nodes"
            ));
        }
        self.tell_of_giving_up(told, (status, record), behind, stakes);
    }

    fn tell_of_giving_up(
        &self,
        told: &mut Explanation,
        (status, record): (&CacheDriveStatus, &DriveRecord),
        behind: &Behind,
        stakes: &Stakes,
    ) {
        if behind.broken.is_empty() || record.state != DriveState::Active && status.left_ms.is_none() {
            return;
        }
        let node = self.nodes.iter().find(|known| known.id == record.node);
        let is_maintained = node.is_some_and(|node| node.maintenance_since_unix_ms().is_some());
        told.doing.push(match status.left_ms {
            _ if !stakes.can_be_built() => format!(
                "it is waited for: it is not given up as long as no other copies of parts of {} are whole and can be reached",
                [&stakes.last[..], &stakes.unsettled[..]].concat().join(", ")
            ),
            _ if is_maintained => "it is waited for: its node is in maintenance".to_owned(),
            Some(left) if left > 0 => {
                format!("it is waited for; if it stays away, it is given up in {}", time(left))
            }
            Some(_) => "it is not waited for any more, and is given up".to_owned(),
            None => "it is waited for".to_owned(),
        });
    }

    /// The cache drive without which a drive is not used, if that is the reason.
    pub(super) fn missing_cache_of(&self, drive: &DriveStatus) -> Option<CacheDriveStatus> {
        drive.failure.as_ref()?;
        let bound_to = drive.bound_to.as_ref()?;
        let is_it =
            |cache: &CacheDriveStatus| cache.name == *bound_to && cache.node == drive.node && !cache.is_used;
        self.cache_drives().into_iter().find(is_it)
    }

    /// What there is to say of the cache of a drive.
    pub(super) fn tell_of_cache(&self, told: &mut Explanation, status: &DriveStatus) {
        if let Some(cache) = &status.cache {
            told.why.push(format!("{} caches for it: {}", cache.drive, use_text(cache)));
            if let Some(full_ms) = cache.full_ms.filter(|full_ms| *full_ms >= FULL_FOR_LONG_MS) {
                tell_of_full_cache(told, full_ms);
            }
        } else if let Some(cache) = self.missing_cache_of(status) {
            told.may.push(format!("`spandrel explain drive {}` says what is the matter with it", cache.name));
        }
        if let Some(without_ms) = status.without_cache_ms {
            tell_of_no_cache(told, status, without_ms);
        }
        if let Some(memory) = status.memory {
            let part = percent(memory.hit_bytes, memory.hit_bytes + memory.missed_bytes);
            told.why.push(format!("{} of what was read was copied in memory", part));
        }
    }
}

/// That writes have come down to what the capacity drive does.
pub(super) fn tell_of_full_cache(told: &mut Explanation, full_ms: u64) {
    told.why.push(format!(
        "there has been hardly room on its cache drive for {}: writes go at the pace at which the drive itself takes them",
        time(full_ms)
    ));
    told.may.push("add cache drives or larger ones, or let less be written".to_owned());
}

/// That a drive goes without a cache drive, though its node has one.
pub(super) fn tell_of_no_cache(told: &mut Explanation, status: &DriveStatus, without_ms: u64) {
    let why = match &status.cache_obstacle {
        Some(obstacle) => obstacle.why.clone(),
        None => "no cache drive of its node has room for its journal and what it would cache".to_owned(),
    };
    told.why.push(format!("it has gone without a cache drive for {}: {why}", time(without_ms)));
    told.doing.push(
        "it gets part of one as soon as there is room, and others have all copies that it holds".to_owned(),
    );
    told.may.push(format!(
        "give {} one more cache drive, or a larger one: `spandrel drive add PATH --role cache` on its server (a cluster of \
         `spandrel up` keeps those that it was made with)",
        status.node
    ));
}

/// How a drive uses what it has of a cache drive.
fn use_text(cache: &DriveCacheStatus) -> String {
    let reads = cache.hit_bytes + cache.missed_bytes;
    let mut text = format!(
        "{}, {} of {} stand there alone",
        cache.mode,
        format_size(cache.dirty_bytes),
        format_size(cache.total_bytes)
    );
    if cache.copied_bytes > 0 {
        text += &format!(", {} are copies of what is read", format_size(cache.copied_bytes));
    }
    if reads > 0 {
        text += &format!(", {} of what was read was there", percent(cache.hit_bytes, reads));
    }
    text
}

#[cfg(test)]
#[path = "explain_cache_tests.rs"]
mod tests;
