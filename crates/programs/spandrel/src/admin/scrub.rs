//! Checking volumes, and how far the scrub is that goes on by itself.
//!
//! An owner knows best how far the scrub of its volume is. Where it does not say, what it has written to the cluster's
//! state last is told.

use std::time::Duration;

use futures_channel::mpsc;
use futures_util::StreamExt;
use futures_util::future::join;
use spandrel_cluster::{ScrubRecord, ScrubSummary, VolumeMembership};
use spandrel_shared::duration::format_duration;
use spandrel_shared::{DriveId, Error};

use super::administration::{Administration, state_error, unix_ms, volume_not_found};
use super::api::{
    CheckLine, CheckReport, Damage, Explanation, Fault, Progress, ScrubFound, ScrubStatus, Severity,
};
use super::picture::{Facts, natural_order};
use super::volumes::{OWNER_PAUSE, OWNER_TRIES, is_of_a_lost_owner, volume_not_served};
use crate::text::{age_text, counted};

impl Administration {
    /// How far the scrubs of all volumes are, by name.
    pub async fn scrubs(&self) -> Result<Vec<ScrubStatus>, Error> {
        Ok(self.facts().await?.scrubs())
    }

    /// Checks every block of every copy of a volume, and tells how it gets on.
    pub async fn check_volume(
        &self,
        name: &str,
        heal: bool,
        lines: &mpsc::UnboundedSender<CheckLine>,
    ) -> Result<CheckReport, Error> {
        let started = unix_ms();
        let id = self.state().volume_by_name(name).await.map_err(state_error)?;
        let id = id.ok_or_else(|| volume_not_found(name))?;
        for _ in 0..OWNER_TRIES {
            let Some(access) = self.owner_of(name, id).await? else {
                tokio::time::sleep(OWNER_PAUSE).await;
                continue;
            };
            let (progress, steps) = mpsc::unbounded();
            let tell = steps.for_each(|step: spandrel_node::ScrubProgress| {
                let slabs = Progress { done: step.slabs_done.into(), total: step.slabs_total.into() };
                // Whoever wanted to know may have left.
                let _ = lines.unbounded_send(CheckLine::Progress { volume: name.to_owned(), slabs });
                std::future::ready(())
            });
            let (checked, ()) = join(access.scrub_volume(id, heal, progress), tell).await;
            let found = match checked {
                Ok(found) => found,
                Err(error) if is_of_a_lost_owner(&error) => {
                    tokio::time::sleep(OWNER_PAUSE).await;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let facts = self.facts().await?;
            let ended_unix_ms = unix_ms();
            let damage = |(drive, blocks): (&DriveId, &u64)| Damage {
                drive: facts.drive_name(*drive),
                blocks: *blocks,
            };
            return Ok(CheckReport {
                volume: name.to_owned(),
                ended_unix_ms,
                seconds: ended_unix_ms.saturating_sub(started) / 1000,
                heal,
                blocks_checked: found.blocks_checked,
                damaged: found.damaged.iter().map(damage).collect(),
                blocks_healed: found.blocks_healed,
                blocks_different: found.blocks_different,
                blocks_lost: found.blocks_lost,
                pages_lacking: found.pages_lacking,
                pieces_unchecked: found.pieces_unchecked,
            });
        }
        Err(volume_not_served(name, "checked"))
    }
}

impl Facts {
    /// How far the scrubs of all volumes are, by name.
    pub fn scrubs(&self) -> Vec<ScrubStatus> {
        let mut scrubs: Vec<ScrubStatus> = self.volumes.iter().map(|volume| self.scrub(volume)).collect();
        scrubs.sort_by_key(|scrub| natural_order(&scrub.volume));
        scrubs
    }

    /// How far the scrub of a volume is.
    pub fn scrub(&self, volume: &VolumeMembership) -> ScrubStatus {
        let (record, slabs) = (&volume.record, volume.sets.len() as u32);
        let told = self.owner(volume).and_then(|owner| owner.scrub);
        let summary = told.unwrap_or_else(|| match self.scrubs.get(&volume.volume) {
            Some(stands) => stands.summary(slabs),
            None => ScrubRecord::of_new_volume(slabs, record.created_unix_ms / 1000).summary(slabs),
        });
        let bytes = u64::from(slabs) * self.geometry.slab_bytes() * u64::from(record.copies);
        let ScrubSummary { slabs_done, slabs_never_read, pass_began_unix_s, passes, found, .. } = summary;
        ScrubStatus {
            volume: record.name.clone(),
            slabs: Progress { done: slabs_done.into(), total: summary.slabs.into() },
            slabs_never_read,
            oldest_unix_ms: summary.oldest_unix_s.map_or(record.created_unix_ms, milliseconds),
            newest_unix_ms: summary.newest_unix_s.map(milliseconds),
            pass_began_unix_ms: milliseconds(pass_began_unix_s),
            passes,
            period_s: self.settings.scrub_period_s,
            is_late: summary.is_late(self.settings.scrub_period_s, self.gathered_unix_ms / 1000),
            bytes_per_second: bytes.checked_div(self.settings.scrub_period_s.into()).unwrap_or(0),
            found: ScrubFound {
                since_unix_ms: milliseconds(found.since_unix_s),
                blocks_damaged: found.blocks_damaged,
                blocks_healed: found.blocks_healed,
                blocks_different: found.blocks_different,
                blocks_lost: found.blocks_lost,
                pages_lacking: found.pages_lacking,
            },
            blocks_different_now: summary.blocks_different_now,
            blocks_lost_now: summary.blocks_lost_now,
        }
    }

    /// What there is to say of the scrub of a volume when somebody asks why it is as it is.
    pub fn tell_of_scrub(&self, told: &mut Explanation, volume: &VolumeMembership) {
        let scrub = self.scrub(volume);
        for fault in self.faults_of_scrub(&scrub) {
            told.why.push(fault.reason);
            told.may.extend(fault.actions);
        }
        told.doing.push(match scrub.period_s {
            0 => format!(
                "nothing is read and compared by itself: that is switched off; {}",
                self.waited(&scrub)
            ),
            period_s => format!(
                "every block of every copy is read and compared once in {}; {}",
                period(period_s),
                self.waited(&scrub)
            ),
        });
    }

    /// Since when the slab waits that has waited longest, in words.
    fn waited(&self, scrub: &ScrubStatus) -> String {
        let ago = age_text(self.gathered_unix_ms.saturating_sub(scrub.oldest_unix_ms));
        match scrub.newest_unix_ms {
            None => format!("nothing was since the volume was made {ago} ago"),
            Some(_) => format!("the slab that has waited longest has for {ago}"),
        }
    }

    /// What is the matter with the scrub of a volume, and with what it has found.
    pub fn faults_of_scrub(&self, scrub: &ScrubStatus) -> Vec<Fault> {
        let name = &scrub.volume;
        let fault = |severity, kind: &str, reason: String, actions: Vec<String>| Fault {
            severity,
            kind: kind.to_owned(),
            object: format!("volume {name}"),
            place: None,
            reason,
            actions,
            must_not: Vec::new(),
            since_ms: None,
        };
        let anew = format!("`spandrel scrub {name}` then says whether all is well");
        let mut faults = Vec::new();
        if scrub.blocks_lost_now > 0 {
            let reason = format!("{} damaged on every copy: reads of them fail", are(scrub.blocks_lost_now));
            let write = "write them anew, from a backup".to_owned();
            faults.push(fault(Severity::Critical, "volume.blocks-lost", reason, vec![write, anew.clone()]));
        }
        if scrub.blocks_different_now > 0 {
            let reason = format!(
                "{} whole on every copy, but not the same on all, and nobody knows which copy is right",
                are(scrub.blocks_different_now)
            );
            let write = "check what stands there, and write it anew".to_owned();
            faults.push(fault(Severity::Major, "volume.copies-differ", reason, vec![write, anew]));
        }
        if scrub.is_late {
            let age_ms = self.gathered_unix_ms.saturating_sub(scrub.oldest_unix_ms);
            let reason = format!(
                "copies are not read and compared as often as they should be: {}, and everything should be read once in {}",
                self.waited(scrub),
                period(scrub.period_s)
            );
            let actions = vec![
                format!("`spandrel scrub {name}` reads all of it now"),
                "bring back what is missing; if all is well, drives are too slow for the pace: `spandrel pool set \
                 --scrub-period` gives them more time"
                    .to_owned(),
            ];
            let late = fault(Severity::Warning, "volume.scrub-late", reason, actions);
            let since_ms = age_ms.saturating_sub(u64::from(scrub.period_s) * 1500);
            faults.push(Fault { since_ms: Some(since_ms), ..late });
        }
        faults
    }
}

fn milliseconds(unix_s: u64) -> u64 {
    unix_s.saturating_mul(1000)
}

fn period(seconds: u32) -> String {
    format_duration(Duration::from_secs(seconds.into()))
}

/// So many blocks: `1 block is`, `2 blocks are`.
fn are(blocks: u64) -> String {
    format!("{} {}", counted(blocks, "block"), if blocks == 1 { "is" } else { "are" })
}

#[cfg(test)]
#[path = "scrub_tests.rs"]
mod tests;
