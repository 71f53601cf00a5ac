//! Why something is as it is: its state in words, with what the system does about it, and what an operator may and must
//! not do.
//!
//! Everything is told from the facts of one moment. What is seen of a trouble is for how long drives have been away, by the
//! nodes that own volumes; nobody else remembers anything.
//!
//! Invariant: nobody is told to take a drive or a node out, to pull or wipe it, or to put another one in its place, as long
//! as anything [hangs](super::stakes) on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spandrel_cluster::{DriveRecord, DriveState, Member, SettingsRecord, VolumeMembership};
use spandrel_health::OperationalStatus;
use spandrel_node::{DriveAway, DriveSlow};
use spandrel_pool::spread_per_mille;
use spandrel_shared::duration::format_duration;
use spandrel_shared::size::format_size;
use spandrel_shared::{DriveId, Error};

use super::administration::{Administration, state_error, unix_ms, volume_not_found};
use super::api::{CacheDriveStatus, DriveStatus, Explanation, Job, NodeStatus, VolumeStatus};
use super::named_drive::named_drive;
use super::picture::{Facts, KnownNode, leg_id, natural_order};
use super::pool::is_too_close;
use super::stakes::Stakes;
use crate::text::{copies_text, counted, percent, slab_copies, verb_for};

impl Administration {
    /// Why a volume is as it is. Errors: `VOLUME_NOT_FOUND`.
    pub async fn explain_volume(&self, name: &str) -> Result<Explanation, Error> {
        let (facts, settings) = self.facts_to_explain().await?;
        facts.explain_volume(name, &settings).ok_or_else(|| volume_not_found(name))
    }

    /// Why a drive is as it is. Errors: `DRIVE_NOT_FOUND`, `DRIVE_NAME_AMBIGUOUS`.
    pub async fn explain_drive(&self, name: &str) -> Result<Explanation, Error> {
        self.facts().await?.explain_drive(name)
    }

    /// Why a node is as it is. Errors: `NODE_NOT_FOUND`.
    pub async fn explain_node(&self, name: &str) -> Result<Explanation, Error> {
        let facts = self.facts().await?;
        let members = self.state_members().await?;
        let node = facts.known_node(name)?;
        let against = facts.safety(node, &members).against;
        Ok(facts.explain_node(node, &against, unix_ms()))
    }

    /// Why the pool is as it is.
    pub async fn explain_pool(&self) -> Result<Explanation, Error> {
        let (facts, settings) = self.facts_to_explain().await?;
        Ok(facts.explain_pool(&settings))
    }

    async fn facts_to_explain(&self) -> Result<(Facts, SettingsRecord), Error> {
        let settings = self.state().settings().await.map_err(state_error)?;
        Ok((self.facts().await?, settings.map(|stored| stored.record).unwrap_or_default()))
    }
}

/// What must not be done to a drive on which something hangs.
pub(super) const KEEP_DRIVE: &str = "pull, wipe or replace it";

/// The copies of a volume on one drive, by what is the matter with them.
#[derive(Default)]
struct Troubled {
    /// They hold every answered write, and cannot be reached.
    away: BTreeMap<DriveId, u64>,
    /// They hold every answered write, and the volume's owner waits for their node.
    silent: BTreeMap<DriveId, u64>,
    /// They lack writes.
    stale: BTreeMap<DriveId, u64>,
    /// Their drive was given up.
    lost: BTreeMap<DriveId, u64>,
    /// Slabs of which whole copies are there, and none can be reached.
    slabs_unreachable: u64,
    /// Slabs of which no copy is whole.
    slabs_lost: u64,
}

impl Facts {
    /// Why a volume is as it is, and how far its scrub is; none if there is none of that name.
    pub fn explain_volume(&self, name: &str, settings: &SettingsRecord) -> Option<Explanation> {
        let volume = self.volumes.iter().find(|volume| volume.record.name == name)?;
        let status = self.volumes().into_iter().find(|volume| volume.name == name)?;
        let mut told = self.explain_volume_of(&status, settings)?;
        self.tell_of_scrub(&mut told, volume);
        Some(told)
    }

    /// Why the status of a volume is as it is that is so; none if there is no such volume any more.
    pub fn explain_volume_of(&self, status: &VolumeStatus, settings: &SettingsRecord) -> Option<Explanation> {
        let volume = self.volumes.iter().find(|volume| volume.volume == status.id)?;
        let mut told = begin(format!("volume {}", status.name), &status.status);
        if self.is_settled(volume) {
            let troubled = self.troubled(volume);
            for operational in &status.status.operational {
                self.tell_of_volume(&mut told, *operational, (volume, status), &troubled, settings);
            }
            let missing = troubled.away.keys().chain(troubled.stale.keys()).chain(troubled.lost.keys());
            for drive in missing.collect::<BTreeSet<_>>() {
                self.tell_of_missing(&mut told, *drive);
            }
            tell_of_jobs(&mut told, &self.jobs_of(volume, &self.drives_left()));
            if self.owner(volume).is_some_and(|owner| owner.copies_without_place > 0) {
                tell_without_place(&mut told);
            }
        } else {
            tell_unsettled(&mut told);
        }
        if let Some(obstacle) = self.obstacle(volume) {
            told.why.push(format!("it waits: {obstacle}"));
        }
        if let Some(size_bytes) = status.grows_to_bytes {
            told.doing.push(format!(
                "it grows from {} to {}: copies of {} are being made; its clients go on meanwhile",
                format_size(status.size_bytes),
                format_size(size_bytes),
                counted(volume.to_come.len() as u64, "further slab")
            ));
        }
        self.tell_what_to_keep(&mut told, volume);
        Some(told)
    }

    /// Which nodes and drives a volume cannot do without.
    fn tell_what_to_keep(&self, told: &mut Explanation, volume: &VolumeMembership) {
        for node in self.nodes.iter().filter(|node| node.report.is_some() && self.needs(volume, node)) {
            told.must_not.push(format!(
                "switch off {}: no other node that runs has a copy in sync of all its parts",
                node.name
            ));
        }
        let (mut last, mut is_thin, mut is_unsettled) = (Vec::new(), false, false);
        for drive in volume.drives() {
            let stakes = self.stakes(&BTreeSet::from([drive]), [volume]);
            if !stakes.last.is_empty() {
                last.push(self.drive_name(drive));
            }
            is_thin |= !stakes.thin.is_empty();
            is_unsettled |= !stakes.unsettled.is_empty();
        }
        last.sort_by_key(|name| natural_order(name));
        if is_unsettled {
            told.must_not.push(
                "pull, wipe, remove or replace any drive or server: it may have what counts".to_owned(),
            );
        } else if !last.is_empty() {
            told.must_not.push(format!(
                "pull, wipe or replace {}: what is there may be on no other drive that can be reached",
                last.join(", ")
            ));
        } else if is_thin {
            told.must_not
                .push("pull, wipe or replace a drive with copies of it before it is healthy".to_owned());
        }
    }

    fn tell_of_volume(
        &self,
        told: &mut Explanation,
        operational: OperationalStatus,
        (volume, status): (&VolumeMembership, &VolumeStatus),
        troubled: &Troubled,
        settings: &SettingsRecord,
    ) {
        match operational {
            OperationalStatus::Ok => {
                let nodes: BTreeSet<&str> = status.legs.iter().map(|leg| leg.node.as_str()).collect();
                told.why.push(format!(
                    "each of its {} has {} in sync, on different nodes of {}",
                    counted(volume.sets.len() as u64, "slab"),
                    copies_text(status.copies),
                    nodes.into_iter().collect::<Vec<_>>().join(", ")
                ));
            }
            OperationalStatus::Suboptimal if is_too_close(&self.pool_view(), volume) => {
                tell_of_closeness(told, settings);
            }
            OperationalStatus::Suboptimal => self.tell_of_unevenness(told, settings),
            OperationalStatus::Incomplete => {
                for (drive, copies) in &troubled.away {
                    told.why.push(format!(
                        "{} on {} cannot be reached; nothing was written to {} current",
                        slab_copies(*copies),
                        self.drive_name(*drive),
                        verb_for(*copies, "it since, so it is", "them since, so they are")
                    ));
                }
                self.tell_of_silent(told, troubled);
            }
            OperationalStatus::Degraded => self.tell_of_stale(told, troubled),
            OperationalStatus::InService => {
                told.why.push("copies are being brought up to date or built".to_owned());
            }
            OperationalStatus::DetachedIncomplete => {
                told.why.push(format!(
                    "of {} no whole copy can be reached: their reads and writes wait, and go on when one is back",
                    counted(troubled.slabs_unreachable, "slab")
                ));
            }
            OperationalStatus::NoRedundancy => {
                told.why.push(format!(
                    "of {} no copy is left that holds every answered write: data is lost",
                    counted(troubled.slabs_lost, "slab")
                ));
                told.may.push(
                    "bring back drives and servers that are away: what is there may be newer".to_owned(),
                );
                told.may.push("restore it from a backup, as a new volume".to_owned());
            }
            OperationalStatus::Starting => {
                told.why.push(
                    "no node says that it serves it: it has just been made, or its owner is gone; its requests wait"
                        .to_owned(),
                );
                told.doing.push("a node that has a copy takes it, within seconds".to_owned());
                told.may.push(
                    "if it stays so: `spandrel cluster state` shows whether most of those run that keep the state"
                        .to_owned(),
                );
            }
            _ => {}
        }
    }

    fn tell_of_silent(&self, told: &mut Explanation, troubled: &Troubled) {
        for (drive, copies) in &troubled.silent {
            let name = self.drive_name(*drive);
            told.why.push(format!(
                "{} on {name} {} current, but its node does not stand by {} now, as when it has just started: requests wait",
                slab_copies(*copies),
                verb_for(*copies, "is", "are"),
                verb_for(*copies, "it", "them")
            ));
            told.doing.push(format!(
                "{name} is waited for; within seconds the volume goes on without it, where it has other copies and its owner \
                 reaches most nodes, and brings back what is there"
            ));
        }
    }

    fn tell_of_stale(&self, told: &mut Explanation, troubled: &Troubled) {
        for (drive, copies) in &troubled.stale {
            let name = self.drive_name(*drive);
            let they_are = verb_for(*copies, "it is", "they are");
            let rest_left_ms = self.slowness(*drive).map_or(0, |slow| slow.rest_left_ms);
            let back = match (self.is_reachable(*drive), rest_left_ms) {
                (false, _) => String::new(),
                (true, 0) => format!(", and {} brought up to date", verb_for(*copies, "is", "are")),
                (true, left_ms) => format!(
                    ", as it is slow; {they_are} brought up to date in {}, or when {they_are} needed",
                    time(left_ms)
                ),
            };
            told.why.push(format!(
                "{} on {name} {} writes that were answered without {}{back}",
                slab_copies(*copies),
                verb_for(*copies, "lacks", "lack"),
                verb_for(*copies, "it", "them")
            ));
        }
        for (drive, copies) in &troubled.lost {
            told.why.push(format!(
                "{} on {} {} lost: the drive was given up",
                slab_copies(*copies),
                self.drive_name(*drive),
                verb_for(*copies, "is", "are")
            ));
        }
    }

    fn tell_of_unevenness(&self, told: &mut Explanation, settings: &SettingsRecord) {
        told.why.push(format!(
            "drives are filled unevenly, by up to {} % of their size, and copies of it can move",
            spread_per_mille(&self.pool_view()) / 10
        ));
        let copies = slab_copies(self.copies_to_spread());
        if settings.balance {
            told.doing.push(format!("copies are spread by themselves, of all volumes about {copies}"));
            told.may.push("`spandrel pool optimize` to have that done at once, and wait for it".to_owned());
        } else {
            told.doing.push("nothing: that copies are spread by themselves is switched off".to_owned());
            told.may.push(format!("`spandrel pool optimize` to have about {copies} moved"));
        }
    }

    /// Why a drive is as it is. Errors: `DRIVE_NOT_FOUND`, `DRIVE_NAME_AMBIGUOUS`.
    pub fn explain_drive(&self, name: &str) -> Result<Explanation, Error> {
        let (drives, caches) = (self.drives(), self.cache_drives());
        let drives = drives.iter().map(|drive| (drive.name.clone(), drive.id, Ok(drive)));
        let caches = caches.iter().map(|cache| (cache.name.clone(), cache.id, Err(cache)));
        Ok(match named_drive(drives.chain(caches), name)? {
            Ok(drive) => self.explain_drive_of(drive),
            Err(cache) => self.explain_cache_of(cache),
        })
    }

    /// Why a drive is as it is that is so.
    pub fn explain_drive_of(&self, status: &DriveStatus) -> Explanation {
        let mut told = begin(format!("drive {}", status.name), &status.status);
        let known = status.id.and_then(|id| Some((id, self.room.drives.get(&id)?)));
        let Some((id, record)) = known else {
            self.tell_of_stranger(&mut told, status);
            return told;
        };
        let stakes = self.stakes_of_drive(id);
        let copies = self.room.promised().slabs(id);
        for operational in &status.status.operational {
            self.tell_of_drive(&mut told, *operational, (status, record), copies, &stakes);
        }
        self.tell_of_cache(&mut told, status);
        if let Some(slow) = self.slowness(id) {
            tell_of_slowness(&mut told, &slow, &status.name, &stakes);
        }
        if !self.is_reachable(id) {
            self.tell_of_missing(&mut told, id);
        }
        let left = self.drives_left();
        if left.contains(&id) && copies > 0 {
            let (are, copies) = (verb_for(copies, "is", "are"), slab_copies(copies));
            told.doing.push(match stakes.can_be_built() {
                true => format!("what it holds is built elsewhere: {copies} to go"),
                false => {
                    format!(
                        "{copies} {are} to be built elsewhere; what no other drive has waits for this one"
                    )
                }
            });
            if stakes.are_none() {
                told.must_not.push("pull or wipe it before it is empty".to_owned());
            }
        }
        let jobs = self.jobs(&left);
        tell_of_jobs(&mut told, jobs.iter().filter(|job| job.drive == status.name));
        told.must_not.extend(stakes.must_not(KEEP_DRIVE));
        told
    }

    /// A drive that was given to a node, and of which the pool does not know that it is one of its own.
    fn tell_of_stranger(&self, told: &mut Explanation, status: &DriveStatus) {
        let failure = status.failure.as_deref().unwrap_or("it does not say why");
        told.why.push(format!("{} was given it, and does not use it: {failure}", status.node));
        if let Some(path) = &status.location {
            told.may.push(format!("`spandrel drive inspect {path}` on its server shows what is on it"));
        }
        if status.id.is_none() {
            told.must_not.push(format!(
                "{KEEP_DRIVE}, before all drives of {} are there: it may be one of them, damaged",
                status.node
            ));
        } else if let Some(id) = status.id {
            told.must_not.extend(self.stakes_of_drive(id).must_not(KEEP_DRIVE));
        }
    }

    fn tell_of_drive(
        &self,
        told: &mut Explanation,
        operational: OperationalStatus,
        (status, record): (&DriveStatus, &DriveRecord),
        copies: u64,
        stakes: &Stakes,
    ) {
        let (name, node) = (&status.name, &status.node);
        match operational {
            OperationalStatus::Ok => told.why.push(format!(
                "it works, and {} of it is promised to volumes ({})",
                format_size(status.promised_bytes),
                percent(status.promised_bytes, status.promisable_bytes)
            )),
            OperationalStatus::LostCommunication => self.tell_of_lost_drive(told, node, record),
            OperationalStatus::NotUsable
            | OperationalStatus::StaleMetadata
            | OperationalStatus::UnrecognizedMetadata => {
                let failure = status.failure.as_deref().unwrap_or("it does not say why");
                told.why.push(format!("its node does not use it: {failure}"));
                if self.missing_cache_of(status).is_some() {
                    // It is as well as it can be without that one.
                } else if stakes.are_none() {
                    told.may.push(format!(
                        "replace it: `spandrel drive add` of a new one, then `spandrel drive remove {name}`"
                    ));
                } else {
                    told.may.push(format!(
                        "look at its cables and at the log of {node}, and {}",
                        start_anew(node)
                    ));
                }
            }
            OperationalStatus::RemovingFromPool => {
                told.why.push("it was retired: it takes no new copies".to_owned());
                if copies == 0 && stakes.are_none() {
                    told.doing.push("nothing: it is empty".to_owned());
                    told.may.push(format!("`spandrel drive remove {name}`, and pull it then"));
                }
                told.may.push(format!("`spandrel drive retire --undo {name}` to have it used again"));
            }
            OperationalStatus::IoError => {
                let damaged = status.blocks_damaged.saturating_sub(status.blocks_healed);
                told.why.push(format!("{} on it are damaged", counted(damaged, "block")));
                told.doing.push("damaged blocks are healed from other copies when they are read".to_owned());
                told.may.push("`spandrel scrub` to have all of them found and healed now".to_owned());
                if stakes.are_none() {
                    told.may.push(format!("`spandrel drive remove {name}` if they become more"));
                }
            }
            OperationalStatus::FailedMedia => {
                told.why.push("it was given up: what it held counts as lost".to_owned());
                if stakes.are_none() {
                    told.may.push(format!("`spandrel drive remove {name}` takes it off the list"));
                }
            }
            _ => {}
        }
    }

    /// Nobody says how the drive is: its node is down, or runs without it.
    fn tell_of_lost_drive(&self, told: &mut Explanation, node: &str, record: &DriveRecord) {
        let runs = self.nodes.iter().any(|known| known.id == record.node && known.report.is_some());
        if runs {
            told.why.push(format!(
                "its node {node} runs without it: it was not there or could not be read when {node} started"
            ));
            told.may.push(format!(
                "put it back or look at its cables, and {}; its log says what it found",
                start_anew(node)
            ));
        } else {
            told.why.push(format!("its node {node} does not say how it is"));
            told.may.push(format!("`spandrel explain node {node}`"));
        }
    }

    /// Why a node is as it is; `against` is what stands against switching it off.
    pub fn explain_node(&self, node: &KnownNode, against: &[Error], now_unix_ms: u64) -> Explanation {
        let status = self.nodes().into_iter().find(|status| status.id == node.id).expect("it is known");
        let mut told = begin(format!("node {}", node.name), &status.status);
        for operational in &status.status.operational {
            self.tell_of_node(&mut told, *operational, node, &status, now_unix_ms);
        }
        if node.report.is_some() {
            tell_of_drives(&mut told, self.drives().iter().filter(|drive| drive.node == node.name));
            let caches = self.cache_drives();
            tell_of_cache_drives(&mut told, caches.iter().filter(|cache| cache.node == node.name));
            let needed = against.iter().map(|error| format!("switch it off: {}", error.why));
            told.must_not.extend(needed);
        } else {
            let stakes = self.stakes_of_node(node.id);
            told.must_not.extend(stakes.must_not("take it out of the cluster or wipe its drives"));
            for other in self.nodes.iter().filter(|other| other.id != node.id && other.report.is_some()) {
                let needing = self.volumes_needing(other);
                if !needing.is_empty() {
                    told.must_not.push(format!(
                        "switch off {} too: {} would wait",
                        other.name,
                        needing.join(", ")
                    ));
                }
            }
        }
        told
    }

    fn tell_of_node(
        &self,
        told: &mut Explanation,
        operational: OperationalStatus,
        node: &KnownNode,
        status: &NodeStatus,
        now_unix_ms: u64,
    ) {
        let name = &node.name;
        match operational {
            OperationalStatus::Up => told.why.push(format!(
                "it runs, owns {} and uses {} of {}",
                counted(status.volumes_owned.len() as u64, "volume"),
                status.drives_usable,
                counted(status.drives.into(), "drive")
            )),
            OperationalStatus::Down => self.tell_of_node_down(told, node),
            OperationalStatus::Isolated => {
                told.why.push("it runs, and reaches none of the other nodes that run".to_owned());
                told.doing.push("others take its volumes over; it answers no client meanwhile".to_owned());
                told.may.push(format!("look at its network; `spandrel node get {name}` shows its paths"));
            }
            OperationalStatus::Draining => {
                told.why.push("it is in maintenance, and still owns volumes".to_owned());
                let left = status.maintenance.as_ref().map(|left| left.volumes_left.join(", "));
                told.doing.push(format!("it hands them over: {}", left.unwrap_or_default()));
                told.may.push(format!("`spandrel node resume {name}` to end that"));
                told.must_not.push("switch it off before it owns none: its clients would wait".to_owned());
            }
            OperationalStatus::Paused => {
                told.why.push("it is in maintenance, and owns no volume".to_owned());
                let since = status.maintenance.as_ref().map(|since| since.since_unix_ms);
                told.since_ms = told.since_ms.or(since.map(|since| now_unix_ms.saturating_sub(since)));
                told.doing.push("it is waited for, however long that takes".to_owned());
                told.may.push(format!("`spandrel node resume {name}` when the work on it is done"));
            }
            _ => {}
        }
    }

    fn tell_of_node_down(&self, told: &mut Explanation, node: &KnownNode) {
        let name = &node.name;
        let may_run = self.may_run(node);
        told.why.push(match may_run {
            true => "it does not answer, though it has run until some seconds ago".to_owned(),
            false => "it does not run, or does not answer".to_owned(),
        });
        let own = || self.room.drives.iter().filter(|(_, record)| record.node == node.id);
        let copies: u64 = own().map(|(drive, _)| self.room.promised().slabs(*drive)).sum();
        let stakes = self.stakes_of_node(node.id);
        let waits = |volume: &String| stakes.last.contains(volume) || stakes.unsettled.contains(volume);
        let owned: Vec<String> =
            self.volumes_with(node).into_iter().filter(|volume| !waits(volume)).collect();
        if !owned.is_empty() {
            told.doing.push(format!("others take over what it owned: {}", owned.join(", ")));
        }
        if copies > 0 {
            let drives = counted(own().count() as u64, "drive");
            told.why.push(format!(
                "{} {} on its {drives}",
                slab_copies(copies),
                verb_for(copies, "is", "are")
            ));
        }
        if let Some(away) = own().filter_map(|(drive, _)| self.away(*drive)).max_by_key(|away| away.away_ms) {
            self.tell_of_waiting(told, &away, "the node", &stakes);
        }
        told.may.push(match self.are_servers {
            true => format!("start it: `spandrel node run` on its server, and see {name}'s log if it ends"),
            false => format!("start it: `spandrel node start {name}`"),
        });
        if stakes.are_none() && !may_run {
            told.may.push(format!("`spandrel node remove {name}` if it is gone for good"));
        }
    }

    /// Why the pool is as it is.
    pub fn explain_pool(&self, settings: &SettingsRecord) -> Explanation {
        let details = self.pool_details(settings);
        let mut told = begin("pool".to_owned(), &details.pool.status);
        told.why.push(format!(
            "{} of {} are promised to volumes, {} are free, {} should stay free for repairs",
            format_size(details.pool.promised_bytes),
            format_size(details.pool.total_bytes),
            format_size(details.pool.free_bytes),
            format_size(details.pool.reserve_bytes)
        ));
        tell_of_drives(&mut told, self.drives().iter());
        tell_of_cache_drives(&mut told, self.cache_drives().iter());
        if details.pool.free_bytes < details.pool.reserve_bytes {
            told.may.push(
                "add drives or nodes: after the loss of a drive there may be no room to repair".to_owned(),
            );
        }
        tell_of_jobs(&mut told, &details.jobs);
        if details.copies_without_place > 0 {
            tell_without_place(&mut told);
        }
        if details.pool.status.operational.contains(&OperationalStatus::Incomplete) {
            told.why.push("most of its drives are missing".to_owned());
            told.must_not.push("remove or wipe drives or servers before most are back".to_owned());
        }
        if self.volumes.iter().any(|volume| !self.is_settled(volume)) {
            tell_unsettled(&mut told);
            told.must_not.push("remove, wipe or replace drives or servers before that is over".to_owned());
        }
        told
    }

    /// What nodes say of a drive that is away: what the one says that has seen it away for longest.
    pub(super) fn away(&self, drive: DriveId) -> Option<DriveAway> {
        let reports = self.nodes.iter().filter_map(|node| node.report.as_ref());
        let told = reports.flat_map(|report| &report.drives_away).filter(|away| away.drive == drive);
        told.max_by_key(|away| away.away_ms).copied()
    }

    /// What becomes of the copies on a drive that is missing.
    fn tell_of_missing(&self, told: &mut Explanation, drive: DriveId) {
        let name = self.drive_name(drive);
        let Some(record) = self.room.drives.get(&drive).filter(|record| record.state == DriveState::Active)
        else {
            return;
        };
        if self.is_reachable(drive) {
            return;
        }
        let stakes = self.stakes_of_drive(drive);
        if let Some(away) = self.away(drive) {
            self.tell_of_waiting(told, &away, &name, &stakes);
        }
        let object = format!("drive {name}");
        match self.nodes.iter().find(|node| node.id == record.node) {
            Some(node) if node.report.is_none() => {
                told.may.push(format!("bring {} back, with {name}", node.name));
            }
            _ if told.object == object => {}
            _ => told.may.push(format!("`spandrel explain {object}` says what is the matter with it")),
        }
        if stakes.can_be_built() {
            told.may
                .push(format!("`spandrel drive retire {name}` to have its copies built elsewhere at once"));
        }
    }

    fn tell_of_waiting(&self, told: &mut Explanation, away: &DriveAway, what: &str, stakes: &Stakes) {
        told.since_ms = told.since_ms.max(Some(away.away_ms));
        let node = self.room.drives.get(&away.drive).map(|record| record.node);
        let maintained = self.nodes.iter().find(|known| Some(known.id) == node);
        let is_maintained = maintained.is_some_and(|known| known.maintenance_since_unix_ms().is_some());
        told.doing.push(match away.left_ms {
            _ if !stakes.can_be_built() => format!(
                "{what} is waited for: nothing is built elsewhere as long as no other copies of parts of {} are whole and \
                 can be reached",
                [&stakes.last[..], &stakes.unsettled[..]].concat().join(", ")
            ),
            _ if is_maintained => format!("{what} is waited for: its node is in maintenance"),
            _ if !away.is_waited_for => {
                format!("{what} is not waited for any more: what it holds is built elsewhere")
            }
            Some(left) => format!(
                "{what} is waited for; if it stays away, what it holds is built elsewhere in {}",
                time(left)
            ),
            None => format!("{what} is waited for"),
        });
    }

    /// What is the matter with which copies of a volume.
    fn troubled(&self, volume: &VolumeMembership) -> Troubled {
        let (answering, mut troubled) = (self.answering(volume), Troubled::default());
        for set in &volume.sets {
            let counting = || set.members.iter().filter(|member| !member.building);
            for member in counting() {
                let kind = match () {
                    () if self.is_given_up(member.drive) => &mut troubled.lost,
                    () if !volume.is_in_sync(member) => &mut troubled.stale,
                    () if !self.is_reachable(member.drive) => &mut troubled.away,
                    () if !answering.contains(&leg_id(member)) => &mut troubled.silent,
                    () => continue,
                };
                *kind.entry(member.drive).or_default() += 1;
            }
            let whole: Vec<&Member> = counting().filter(|member| self.is_whole(volume, member)).collect();
            troubled.slabs_lost += u64::from(whole.is_empty());
            let is_unreachable =
                !whole.is_empty() && !whole.iter().any(|member| answering.contains(&leg_id(member)));
            troubled.slabs_unreachable += u64::from(is_unreachable);
        }
        troubled
    }
}

pub(super) fn begin(object: String, status: &spandrel_health::Status) -> Explanation {
    Explanation {
        object,
        status: status.clone(),
        since_ms: None,
        why: Vec::new(),
        doing: Vec::new(),
        left_ms: None,
        may: Vec::new(),
        must_not: Vec::new(),
    }
}

/// A drive is looked for when its node starts. Other drives of the node may be needed meanwhile.
pub(super) fn start_anew(node: &str) -> String {
    format!("start {node} anew once `spandrel node safe-to-stop {node}` says that it may be switched off")
}

/// The state was put back, and copies are compared before anything is served.
fn tell_unsettled(told: &mut Explanation) {
    told.why.push(
        "the cluster's state was put back: which copies are whole is found out first, and requests wait until then"
            .to_owned(),
    );
    told.doing.push("copies are compared, as soon as all nodes that may have some are there".to_owned());
    told.may.push("`spandrel cluster settle` shows what waits, and for which nodes".to_owned());
}

fn tell_of_jobs<'a>(told: &mut Explanation, jobs: impl IntoIterator<Item = &'a Job>) {
    for job in jobs {
        let left = job.left_ms();
        told.left_ms = told.left_ms.max(left);
        told.doing.push(format!(
            "{} of volume {}: {} on {}, {} done{}",
            job.kind,
            job.volume,
            counted(job.slabs.into(), "slab"),
            job.drive,
            percent(job.pages.done, job.pages.total),
            left.map_or_else(String::new, |left| format!(", {} left", time(left)))
        ));
    }
}

/// Names those drives that are not healthy: what they lack is theirs to explain.
fn tell_of_drives<'drives>(told: &mut Explanation, drives: impl Iterator<Item = &'drives DriveStatus>) {
    for drive in drives.filter(|drive| !drive.status.is_healthy()) {
        told.why.push(format!("drive {} is {}", drive.name, drive.status));
        told.may.push(format!("`spandrel explain drive {}`", drive.name));
    }
}

/// The same for cache drives.
fn tell_of_cache_drives<'drives>(
    told: &mut Explanation,
    caches: impl Iterator<Item = &'drives CacheDriveStatus>,
) {
    for cache in caches.filter(|cache| !cache.status.is_healthy()) {
        told.why.push(format!("cache drive {} is {}", cache.name, cache.status));
        told.may.push(format!("`spandrel explain drive {}`", cache.name));
    }
}

fn tell_without_place(told: &mut Explanation) {
    told.doing.push(
        "copies wait: no drive has room on a node that holds no other copy of the same slab".to_owned(),
    );
    told.may.push("bring back what is missing, or add drives or nodes".to_owned());
}

pub(super) fn time(milliseconds: u64) -> String {
    format_duration(Duration::from_secs(milliseconds.div_ceil(1000)))
}

/// What there is to say of copies that share a fault domain.
fn tell_of_closeness(told: &mut Explanation, settings: &SettingsRecord) {
    told.why.push(
        "copies of the same parts share a site, rack or chassis, and there is room for them elsewhere"
            .to_owned(),
    );
    if settings.balance {
        told.doing.push("they move apart by themselves".to_owned());
    } else {
        told.doing.push("nothing: that copies are moved by themselves is switched off".to_owned());
        told.may.push("`spandrel pool optimize` to have them moved apart".to_owned());
    }
}

/// What there is to say of a drive that holds others up.
fn tell_of_slowness(told: &mut Explanation, slow: &DriveSlow, name: &str, stakes: &Stakes) {
    told.why.push(format!(
        "its answers took half a second and more, ten times as long as those of others, for {}",
        time(slow.slow_ms)
    ));
    told.doing.push(match (slow.times, slow.rest_left_ms) {
        (0, _) => {
            "reads avoid it; writes wait for it, as volumes with copies on it have too few others".to_owned()
        }
        (times, 0) => {
            format!("its copies were taken out {}, and are brought back", counted(times.into(), "time"))
        }
        (times, left_ms) => format!(
            "its copies were taken out {}; they are brought back in {}, or when they are needed",
            counted(times.into(), "time"),
            time(left_ms)
        ),
    });
    if stakes.are_none() {
        told.may.push(format!("`spandrel drive remove {name}` if that goes on: it is emptied first"));
    }
    told.may
        .push("`spandrel pool set --retire-slow on` to have such drives emptied by themselves".to_owned());
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
