//! What is the matter with the cluster, as a list: everything whose status is not well, told like an explanation of it.
//!
//! Invariants:
//! - A fault is there exactly as long as its cause: nothing is remembered, and nothing has to be acknowledged.
//! - What follows from another fault is not told beside it: of a node that is down, its drives and its vote are not; of a cache
//!   drive that is missing, the drives behind it are not.

use spandrel_cluster::{SettingsRecord, VolumeMembership};
use spandrel_health::{OperationalStatus, Status};
use spandrel_shared::Error;
use spandrel_shared::size::format_size;

use super::administration::{Administration, unix_ms};
use super::api::{CacheDriveStatus, DriveStatus, Explanation, Fault, Severity, StateMember, VolumeStatus};
use super::explain::begin;
use super::explain_cache::{FULL_FOR_LONG_MS, WITHOUT_FOR_LONG_MS, tell_of_full_cache, tell_of_no_cache};
use super::picture::{Facts, natural_order};
use crate::text::slab_copies;

/// So long after a volume was made it is no fault that no node serves it yet.
const NEW_FOR_MS: u64 = 10_000;

impl Administration {
    /// What is the matter, the most severe first.
    pub async fn faults(&self) -> Result<Vec<Fault>, Error> {
        Ok(self.facts().await?.faults(&self.state_members().await?, unix_ms()))
    }
}

impl Facts {
    /// What is the matter, the most severe first.
    pub fn faults(&self, members: &[StateMember], now_unix_ms: u64) -> Vec<Fault> {
        let settings = &self.settings;
        let mut faults = self.faults_of_nodes(members, now_unix_ms);
        faults.extend(self.faults_of_drives());
        faults.extend(self.faults_of_caches());
        faults.extend(self.faults_of_caching());
        faults.extend(self.faults_of_volumes(settings));
        faults.extend(self.scrubs().iter().flat_map(|scrub| self.faults_of_scrub(scrub)));
        faults.extend(self.faults_of_pool(settings));
        faults.extend(self.faults_of_state(members));
        faults.extend(self.unreadable.iter().map(unreadable));
        faults.sort_by_key(|fault| (std::cmp::Reverse(fault.severity), natural_order(&fault.object)));
        faults
    }

    fn faults_of_nodes(&self, members: &[StateMember], now_unix_ms: u64) -> Vec<Fault> {
        let told = |node| {
            let told = self.explain_node(node, &self.safety(node, members).against, now_unix_ms);
            let worst = worst(&told.status, severity_of_node)?;
            Some(fault(told, worst, node.record.as_ref().map(|record| record.addresses.join(", "))))
        };
        self.nodes.iter().filter_map(told).collect()
    }

    fn faults_of_drives(&self) -> Vec<Fault> {
        let is_down = |name: &str| self.nodes.iter().any(|node| node.name == name && node.report.is_none());
        let told = |drive: DriveStatus| {
            let waits = self.missing_cache_of(&drive).is_some();
            // That its node does not say how it is follows from the node.
            let severity = |operational: OperationalStatus| match operational {
                OperationalStatus::LostCommunication if is_down(&drive.node) => None,
                OperationalStatus::NotUsable if waits => None,
                operational => severity_of_drive(operational),
            };
            let worst = worst(&drive.status, severity)?;
            let place = drive.location.as_ref().map(|path| format!("{}: {path}", drive.node));
            Some(fault(self.explain_drive_of(&drive), worst, place.or_else(|| Some(drive.node.clone()))))
        };
        self.drives().into_iter().filter_map(told).collect()
    }

    fn faults_of_caches(&self) -> Vec<Fault> {
        let is_down = |name: &str| self.nodes.iter().any(|node| node.name == name && node.report.is_none());
        let told = |cache: CacheDriveStatus| {
            let severity = |operational: OperationalStatus| match operational {
                OperationalStatus::LostCommunication if is_down(&cache.node) => None,
                operational => severity_of_cache(operational, &cache),
            };
            let worst = worst(&cache.status, severity)?;
            let place = cache.location.as_ref().map(|path| format!("{}: {path}", cache.node));
            Some(fault(self.explain_cache_of(&cache), worst, place.or_else(|| Some(cache.node.clone()))))
        };
        self.cache_drives().into_iter().filter_map(told).collect()
    }

    /// Drives whose cache is full for long, and those that have none though their node has cache drives.
    fn faults_of_caching(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        for drive in self.drives() {
            let full_ms = drive.cache.as_ref().and_then(|cache| cache.full_ms).unwrap_or(0);
            let without_ms = drive.without_cache_ms.unwrap_or(0);
            let mut told = begin(format!("drive {}", drive.name), &drive.status);
            let kind = if full_ms >= FULL_FOR_LONG_MS {
                told.since_ms = Some(full_ms);
                tell_of_full_cache(&mut told, full_ms);
                "cache.full"
            } else if without_ms >= WITHOUT_FOR_LONG_MS {
                told.since_ms = Some(without_ms);
                tell_of_no_cache(&mut told, &drive, without_ms);
                "cache.unbound"
            } else {
                continue;
            };
            let place = drive.location.as_ref().map(|path| format!("{}: {path}", drive.node));
            faults.push(fault(told, (Severity::Warning, kind), place));
        }
        faults
    }

    fn faults_of_volumes(&self, settings: &SettingsRecord) -> Vec<Fault> {
        let told = |volume: VolumeStatus| {
            let waits = |known: &VolumeMembership| known.volume == volume.id && !self.is_settled(known);
            let new = volume.created_unix_ms..volume.created_unix_ms + NEW_FOR_MS;
            // If clocks differ, it is better told than not.
            let is_new = new.contains(&self.gathered_unix_ms);
            let severity = |operational: OperationalStatus| match operational {
                OperationalStatus::Starting if is_new => None,
                operational => severity_of_volume(operational),
            };
            let worst = match self.volumes.iter().any(waits) {
                true => (Severity::Critical, "volume.not-compared"),
                false => worst(&volume.status, severity)?,
            };
            Some(fault(self.explain_volume_of(&volume, settings)?, worst, None))
        };
        self.volumes().into_iter().filter_map(told).collect()
    }

    fn faults_of_pool(&self, settings: &SettingsRecord) -> Vec<Fault> {
        let details = self.pool_details(settings);
        let pool = |kind: &str, severity, reason: String, action: &str| Fault {
            severity,
            kind: kind.to_owned(),
            object: "pool".to_owned(),
            place: None,
            reason,
            actions: vec![action.to_owned()],
            must_not: Vec::new(),
            since_ms: None,
        };
        let mut faults = Vec::new();
        let (free, reserve) = (details.pool.free_bytes, details.pool.reserve_bytes);
        if free < reserve {
            let reason = format!(
                "{} are free, and {} should be for repairs: after the loss of a drive what it held may find no room",
                format_size(free),
                format_size(reserve)
            );
            faults.push(pool(
                "pool.reserve",
                Severity::Warning,
                reason,
                "add drives or nodes, or delete volumes",
            ));
        }
        if details.copies_without_place > 0 {
            let reason = format!(
                "{} should be built elsewhere, and no drive has room on a node that holds no other copy of the same slab",
                slab_copies(details.copies_without_place)
            );
            faults.push(pool(
                "pool.place",
                Severity::Major,
                reason,
                "bring back what is missing, or add drives or nodes",
            ));
        }
        faults
    }

    /// Those that vote on the cluster's state and do not run, unless they are nodes: that these are down is told already.
    fn faults_of_state(&self, members: &[StateMember]) -> Vec<Fault> {
        let is_node_down = |member: &StateMember| {
            self.nodes.iter().any(|node| Some(node.id) == member.server && node.report.is_none())
        };
        let votes = members.iter().filter(|member| member.votes).count();
        let running = members.iter().filter(|member| member.votes && member.runs).count();
        let away = members.iter().filter(|member| member.votes && !member.runs && !is_node_down(member));
        let fault = |member: &StateMember| Fault {
            severity: if 2 * running > votes + 1 { Severity::Warning } else { Severity::Major },
            kind: "state.member".to_owned(),
            object: format!("server {}", member.name),
            place: member.endpoints.first().cloned(),
            reason: format!(
                "it votes on the cluster's state, and does not answer: {running} of {votes} that vote run"
            ),
            actions: vec!["start it; `spandrel cluster state` shows all of them".to_owned()],
            must_not: Vec::new(),
            since_ms: None,
        };
        away.map(fault).collect()
    }
}

/// Something of the cluster's state that is there and could not be read.
fn unreadable(error: &Error) -> Fault {
    Fault {
        severity: Severity::Major,
        kind: "state.unreadable".to_owned(),
        object: "cluster's state".to_owned(),
        place: None,
        reason: format!("{}: {}; what is shown here goes without it", error.what, error.why),
        actions: vec![error.next.clone()],
        must_not: Vec::new(),
        since_ms: None,
    }
}

/// The most severe of what is the matter, with its kind; none if nothing is.
fn worst(
    status: &Status,
    severity: impl Fn(OperationalStatus) -> Option<(Severity, &'static str)>,
) -> Option<(Severity, &'static str)> {
    let severities = status.operational.iter().filter_map(|operational| severity(*operational));
    severities.max_by_key(|(severity, _)| *severity)
}

fn fault(told: Explanation, (severity, kind): (Severity, &str), place: Option<String>) -> Fault {
    Fault {
        severity,
        kind: kind.to_owned(),
        object: told.object,
        place,
        reason: told.why.join("; "),
        actions: told.may,
        must_not: told.must_not,
        since_ms: told.since_ms,
    }
}

fn severity_of_node(operational: OperationalStatus) -> Option<(Severity, &'static str)> {
    Some(match operational {
        OperationalStatus::Down => (Severity::Critical, "server.down"),
        OperationalStatus::Isolated => (Severity::Critical, "server.isolated"),
        OperationalStatus::Draining | OperationalStatus::Paused => {
            (Severity::Informational, "server.maintenance")
        }
        _ => return None,
    })
}

fn severity_of_drive(operational: OperationalStatus) -> Option<(Severity, &'static str)> {
    Some(match operational {
        OperationalStatus::FailedMedia => (Severity::Major, "drive.failed"),
        OperationalStatus::NotUsable => (Severity::Major, "drive.not-usable"),
        OperationalStatus::LostCommunication => (Severity::Major, "drive.lost-communication"),
        OperationalStatus::StaleMetadata | OperationalStatus::UnrecognizedMetadata => {
            (Severity::Major, "drive.metadata")
        }
        OperationalStatus::IoError => (Severity::Warning, "drive.damaged"),
        OperationalStatus::AbnormalLatency => (Severity::Warning, "drive.slow"),
        OperationalStatus::RemovingFromPool => (Severity::Informational, "drive.retired"),
        _ => return None,
    })
}

fn severity_of_cache(
    operational: OperationalStatus,
    cache: &CacheDriveStatus,
) -> Option<(Severity, &'static str)> {
    Some(match operational {
        OperationalStatus::NotUsable => (Severity::Major, "cache.not-usable"),
        OperationalStatus::LostCommunication => (Severity::Major, "cache.lost-communication"),
        OperationalStatus::StaleMetadata | OperationalStatus::UnrecognizedMetadata => {
            (Severity::Major, "cache.metadata")
        }
        OperationalStatus::RemovingFromPool => match &cache.obstacle {
            Some(obstacle) if obstacle.code == "CACHE_NOT_DRAINED" => {
                (Severity::Warning, "cache.failed-drain")
            }
            _ if cache.in_use_by.is_empty() => (Severity::Informational, "cache.retired"),
            _ => (Severity::Informational, "cache.draining"),
        },
        _ => return None,
    })
}

fn severity_of_volume(operational: OperationalStatus) -> Option<(Severity, &'static str)> {
    Some(match operational {
        OperationalStatus::NoRedundancy => (Severity::Critical, "volume.no-redundancy"),
        OperationalStatus::DetachedIncomplete => (Severity::Critical, "volume.detached"),
        OperationalStatus::Degraded | OperationalStatus::Incomplete => {
            (Severity::Warning, "volume.needs-repair")
        }
        OperationalStatus::Starting => (Severity::Warning, "volume.starting"),
        OperationalStatus::InService => (Severity::Informational, "volume.in-repair"),
        _ => return None,
    })
}

#[cfg(test)]
#[path = "faults_tests.rs"]
mod tests;
