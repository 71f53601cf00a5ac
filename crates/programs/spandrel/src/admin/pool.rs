//! The pool as a whole: what is being repaired and moved, how evenly it is filled, and how it keeps itself.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use spandrel_cluster::{DriveRecord, DriveState, Member, SettingsRecord, VolumeMembership};
use spandrel_node::placed;
use spandrel_pool::{PoolView, copies_to_even_out, plan_apart, plan_balance};
use spandrel_shared::duration::format_duration;
use spandrel_shared::size::format_size;
use spandrel_shared::{DriveId, Error};
use spandrel_volume::LegId;

use super::administration::{Administration, state_error, unix_ms, unless_conflict};
use super::api::{
    DriveFill, Job, JobKind, Optimize, Optimized, PoolDetails, PoolSettings, PoolSettingsChange,
    PoolSettingsPreview, Progress,
};
use super::picture::{Facts, leg_id};

/// The shortest time in which everything may be read once.
const SCRUB_PERIOD_S_MIN: u32 = 10;

/// The longest one: a year.
const SCRUB_PERIOD_S_MAX: u32 = 52 * 7 * 24 * 60 * 60;

impl Administration {
    /// The pool, and what is being done with its copies.
    pub async fn pool(&self) -> Result<PoolDetails, Error> {
        let settings = self.state().settings().await.map_err(state_error)?;
        let settings = settings.map(|stored| stored.record).unwrap_or_default();
        Ok(self.facts().await?.pool_details(&settings))
    }

    /// Has copies spread as evenly as they can, whatever the settings say. Done by the owners of the volumes, little by
    /// little; asking again does no harm.
    pub async fn optimize(&self, request: Optimize) -> Result<Optimized, Error> {
        let facts = self.facts().await?;
        if !request.dry_run {
            self.change_pool(|settings| settings.optimize_since_unix_ms = Some(unix_ms())).await?;
        }
        let slab_bytes = facts.geometry.slab_bytes();
        Ok(Optimized { copies_to_move: facts.copies_to_spread(), slab_bytes })
    }

    /// Changes how the pool keeps itself.
    ///
    /// Errors: `TIME_TOO_SHORT`, `TIME_TOO_LONG`, `MEMORY_TOO_SMALL`, `MEMORY_CACHE_TOO_SMALL`, `MAP_MEMORY_TOO_SMALL`.
    pub async fn set_pool(&self, change: PoolSettingsChange) -> Result<PoolSettings, Error> {
        self.check_memory_in_all(&change).await?;
        let changed = self.change_pool(|settings| apply(&change, settings)).await?;
        Ok(pool_settings(&changed))
    }

    /// What a change of how the pool keeps itself would do. Errors: as those of the change.
    pub async fn preview_pool_settings(
        &self,
        change: PoolSettingsChange,
    ) -> Result<PoolSettingsPreview, Error> {
        let (before, after) = self.check_memory_in_all(&change).await?;
        let warnings = self.facts().await?.given_up_at_once(&before, &after);
        Ok(PoolSettingsPreview { before: pool_settings(&before), after: pool_settings(&after), warnings })
    }

    /// Refuses a change that makes no sense, also with what is set already. The settings before and after it.
    async fn check_memory_in_all(
        &self,
        change: &PoolSettingsChange,
    ) -> Result<(SettingsRecord, SettingsRecord), Error> {
        check_settings(change)?;
        let before = self.state().settings().await.map_err(state_error)?;
        let before = before.map(|stored| stored.record).unwrap_or_default();
        let mut after = before.clone();
        apply(change, &mut after);
        if change.memory_cache_bytes.or(change.map_memory_bytes).is_some_and(|bytes| bytes > 0) {
            let bytes = after.memory_cache_bytes.saturating_add(after.map_memory_bytes);
            check_fits_server(
                bytes,
                memory_of_this_server(),
                "for the maps of its drives and for copies of what is read",
            )?;
        }
        Ok((before, after))
    }

    async fn change_pool(&self, change: impl Fn(&mut SettingsRecord)) -> Result<SettingsRecord, Error> {
        unless_conflict(|| self.state().change_settings(&change)).await
    }
}

impl Facts {
    /// What would be built elsewhere as soon as other settings hold, since it has been away for so long already.
    fn given_up_at_once(&self, before: &SettingsRecord, after: &SettingsRecord) -> Vec<String> {
        let told = |(drive, record): (&DriveId, &DriveRecord)| {
            let away = self.away(*drive).filter(|away| away.is_waited_for)?;
            let node = self.nodes.iter().find(|node| node.id == record.node)?;
            let limit_s = |settings: &SettingsRecord| match node.report {
                Some(_) => settings.rebuild_after_drive_s,
                None => settings.rebuild_after_node_s,
            };
            let is_over = |settings| away.away_ms / 1000 >= u64::from(limit_s(settings));
            let copies = self.room.promised().slabs(*drive);
            let begins = is_over(after)
                && !is_over(before)
                && copies > 0
                && node.maintenance_since_unix_ms().is_none()
                && self.stakes_of_drive(*drive).can_be_built();
            begins.then(|| {
                format!(
                    "{} has been away for {}: its {copies} copies of slabs are built elsewhere at once then",
                    self.drive_name(*drive),
                    format_duration(Duration::from_secs(away.away_ms / 1000))
                )
            })
        };
        self.room.drives.iter().filter_map(told).collect()
    }
}

fn check_settings(change: &PoolSettingsChange) -> Result<(), Error> {
    if [change.rebuild_after_drive_s, change.rebuild_after_node_s].contains(&Some(0)) {
        return Err(Error::new(
            "TIME_TOO_SHORT",
            "the settings of the pool stay as they are",
            "everything would be built anew elsewhere as soon as a node restarts",
            "give a second or more; the defaults are 15 minutes for drives and an hour for nodes",
        ));
    }
    change.memory_cache_bytes.map_or(Ok(()), |bytes| check_memory(bytes, memory_of_this_server()))?;
    change.map_memory_bytes.map_or(Ok(()), |bytes| check_map_memory(bytes, memory_of_this_server()))?;
    change.scrub_period_s.map_or(Ok(()), check_scrub_period)
}

/// Less holds hardly a block for each drive.
const MEMORY_CACHE_BYTES_MIN: u64 = 1 << 20;

/// With less, drives would read their maps back all the time.
const MAP_MEMORY_BYTES_MIN: u64 = 16 << 20;

fn check_map_memory(bytes: u64, memory_bytes: u64) -> Result<(), Error> {
    if bytes > 0 && bytes < MAP_MEMORY_BYTES_MIN {
        return Err(Error::new(
            "MAP_MEMORY_TOO_SMALL",
            "the settings of the pool stay as they are",
            format!(
                "with {} the drives of a node would read map pages back all the time",
                format_size(bytes)
            ),
            format!("give {} or more, or 0 for as much as they need", format_size(MAP_MEMORY_BYTES_MIN)),
        ));
    }
    check_fits_server(bytes, memory_bytes, "for the maps of its drives")
}

fn check_memory(bytes: u64, memory_bytes: u64) -> Result<(), Error> {
    if bytes > 0 && bytes < MEMORY_CACHE_BYTES_MIN {
        return Err(Error::new(
            "MEMORY_CACHE_TOO_SMALL",
            "the settings of the pool stay as they are",
            format!("in {} there is no room for what the drives of a node read", format_size(bytes)),
            format!("give {} or more, or 0 for none", format_size(MEMORY_CACHE_BYTES_MIN)),
        ));
    }
    check_fits_server(bytes, memory_bytes, "for copies of what is read")
}

/// Of the server that is asked, four fifths of the memory at most.
fn check_fits_server(bytes: u64, memory_bytes: u64, purpose: &str) -> Result<(), Error> {
    let most = memory_bytes / 5 * 4;
    if bytes <= most {
        return Ok(());
    }
    Err(Error::new(
        "MEMORY_TOO_SMALL",
        "the settings of the pool stay as they are",
        format!(
            "each node would use {} of memory {purpose}, and this server has {}",
            format_size(bytes),
            format_size(memory_bytes)
        ),
        format!("give {} or less; think of the virtual machines that need memory, too", format_size(most)),
    ))
}

/// The memory of this server, in bytes.
pub fn memory_of_this_server() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram as u64 * u64::from(info.mem_unit)
}

fn apply(change: &PoolSettingsChange, settings: &mut SettingsRecord) {
    let PoolSettingsChange {
        rebuild_after_drive_s,
        rebuild_after_node_s,
        balance,
        repair_share,
        retire_slow,
        scrub_period_s,
        cache_mode_ssd,
        cache_mode_hdd,
        memory_cache_bytes,
        map_memory_bytes,
    } = *change;
    settings.map_memory_bytes = map_memory_bytes.unwrap_or(settings.map_memory_bytes);
    settings.memory_cache_bytes = memory_cache_bytes.unwrap_or(settings.memory_cache_bytes);
    settings.cache_mode_ssd = cache_mode_ssd.unwrap_or(settings.cache_mode_ssd);
    settings.cache_mode_hdd = cache_mode_hdd.unwrap_or(settings.cache_mode_hdd);
    settings.scrub_period_s = scrub_period_s.unwrap_or(settings.scrub_period_s);
    settings.rebuild_after_drive_s = rebuild_after_drive_s.unwrap_or(settings.rebuild_after_drive_s);
    settings.rebuild_after_node_s = rebuild_after_node_s.unwrap_or(settings.rebuild_after_node_s);
    settings.balance = balance.unwrap_or(settings.balance);
    settings.repair_share = repair_share.unwrap_or(settings.repair_share);
    settings.retire_slow = retire_slow.unwrap_or(settings.retire_slow);
}

/// Whether everything can be read once in such a time.
fn check_scrub_period(period_s: u32) -> Result<(), Error> {
    let refuse = |code: &str, why: &str, next: &str| {
        Err(Error::new(code, "the settings of the pool stay as they are", why, next))
    };
    match period_s {
        // Not by itself.
        0 | SCRUB_PERIOD_S_MIN..=SCRUB_PERIOD_S_MAX => Ok(()),
        ..SCRUB_PERIOD_S_MIN => refuse(
            "TIME_TOO_SHORT",
            "the end of each pass is written to the cluster's state, for each volume: with a period of less than 10 \
             seconds that would never cease",
            "give days or weeks; the default is 4w; `spandrel scrub` reads everything now",
        ),
        _ => refuse(
            "TIME_TOO_LONG",
            "with a period of more than a year damage is found when the other copies may be lost already",
            "give 52w or less; the default is 4w; `off` has nothing read by itself",
        ),
    }
}

fn pool_settings(record: &SettingsRecord) -> PoolSettings {
    PoolSettings {
        rebuild_after_drive_s: record.rebuild_after_drive_s,
        rebuild_after_node_s: record.rebuild_after_node_s,
        balance: record.balance,
        repair_share: record.repair_share,
        retire_slow: record.retire_slow,
        scrub_period_s: record.scrub_period_s,
        cache_mode_ssd: record.cache_mode_ssd,
        cache_mode_hdd: record.cache_mode_hdd,
        memory_cache_bytes: record.memory_cache_bytes,
        map_memory_bytes: record.map_memory_bytes,
    }
}

impl Facts {
    /// The pool, and what is being done with its copies.
    pub fn pool_details(&self, settings: &SettingsRecord) -> PoolDetails {
        let left = self.drives_left();
        let online = self.pool_view().drives.into_iter().filter(|drive| drive.is_online);
        let mut fills: Vec<DriveFill> = online
            .filter(|drive| drive.slabs_total > 0)
            .map(|drive| DriveFill {
                drive: self.drive_name(drive.drive),
                promised_per_mille: (1000 * u64::from(drive.slabs_used) / u64::from(drive.slabs_total))
                    as u32,
            })
            .collect();
        fills.sort_by_key(|fill| fill.promised_per_mille);
        let reports = self.nodes.iter().filter_map(|node| node.report.as_ref());
        let owned = reports.flat_map(|report| &report.owned);
        PoolDetails {
            pool: self.pool(),
            settings: pool_settings(settings),
            fullest: fills.last().cloned(),
            emptiest: fills.first().cloned(),
            jobs: self.jobs(&left),
            copies_to_replace: self.volumes.iter().map(|volume| copies_to_replace(volume, &left)).sum(),
            copies_without_place: owned.map(|owned| owned.copies_without_place).sum(),
            copies_to_spread: self.copies_to_spread(),
        }
    }

    /// The drives that copies are moved away from, by the state or as a node says.
    pub fn drives_left(&self) -> BTreeSet<DriveId> {
        let reports = self.nodes.iter().filter_map(|node| node.report.as_ref());
        let missed = reports.flat_map(|report| &report.drives_away).filter(|away| !away.is_waited_for);
        let decided = self.room.drives.iter().filter(|(_, record)| record.state != DriveState::Active);
        missed.map(|away| away.drive).chain(decided.map(|(drive, _)| *drive)).collect()
    }

    /// How many copies would have to move for all drives to be filled alike, about: what is above the average, if any
    /// volume's copies can be moved at all.
    pub fn copies_to_spread(&self) -> u64 {
        let pool = self.pool_view();
        match copies_to_even_out(&pool) {
            0 => 0,
            copies if self.volumes.iter().any(|volume| is_uneven(&pool, volume)) => copies,
            _ => 0,
        }
    }

    /// What is being copied, and why.
    pub fn jobs(&self, left: &BTreeSet<DriveId>) -> Vec<Job> {
        let mut jobs: Vec<Job> = self.volumes.iter().flat_map(|volume| self.jobs_of(volume, left)).collect();
        jobs.sort_by(|one, two| (&one.volume, &one.drive).cmp(&(&two.volume, &two.drive)));
        jobs
    }

    /// What is being copied of a volume, and why.
    pub fn jobs_of(&self, volume: &VolumeMembership, left: &BTreeSet<DriveId>) -> Vec<Job> {
        let legs = self.owner(volume).map(|owner| &owner.legs[..]).unwrap_or_default();
        let mut slabs: BTreeMap<LegId, u32> = BTreeMap::new();
        for member in volume.sets.iter().flat_map(|set| &set.members) {
            *slabs.entry(leg_id(member)).or_default() += 1;
        }
        let job = |leg: &spandrel_node::LegReport| {
            let (done, total) = leg.resync_pages?;
            let id = LegId { drive: leg.drive, is_building: leg.is_building };
            Some(Job {
                kind: if leg.is_building { kind_of(volume, leg.drive, left) } else { JobKind::Repair },
                volume: volume.record.name.clone(),
                drive: self.drive_name(leg.drive),
                slabs: slabs.get(&id).copied().unwrap_or(0),
                pages: Progress { done, total },
                copied_bytes: leg.resync_copied_bytes,
                elapsed_ms: leg.resync_ms,
            })
        };
        legs.iter().filter_map(job).collect()
    }
}

/// Copies of a volume on drives that are left, and not being built elsewhere yet.
fn copies_to_replace(volume: &VolumeMembership, left: &BTreeSet<DriveId>) -> u64 {
    let of_set = |members: &[Member]| {
        let is_begun = |part: u8| members.iter().any(|other| other.building && other.part == part);
        let waits =
            |member: &&Member| left.contains(&member.drive) && !member.building && !is_begun(member.part);
        members.iter().filter(waits).count() as u64
    };
    volume.sets.iter().map(|set| of_set(&set.members)).sum()
}

/// Why copies are built on a drive: as something is wrong with one whose place they take, or only to spread them.
fn kind_of(volume: &VolumeMembership, drive: DriveId, left: &BTreeSet<DriveId>) -> JobKind {
    let is_well = |member: &Member| volume.is_in_sync(member) && !left.contains(&member.drive);
    let replaces_ill = volume.sets.iter().any(|set| {
        let built = set.members.iter().filter(|member| member.building && member.drive == drive);
        let mut parts = built.map(|member| member.part);
        parts.any(|part| {
            let mut former = set.members.iter().filter(|member| !member.building && member.part == part);
            former.any(|member| !is_well(member))
        })
    });
    if replaces_ill { JobKind::Regeneration } else { JobKind::Rebalance }
}

/// Whether copies of a volume can be moved so that drives are filled more evenly.
pub fn is_uneven(pool: &PoolView, volume: &VolumeMembership) -> bool {
    !plan_balance(pool, &placed(volume), 1, 0).moves.is_empty()
}

/// Whether copies of a volume share a fault domain, and can be moved so that they do not.
pub fn is_too_close(pool: &PoolView, volume: &VolumeMembership) -> bool {
    !plan_apart(pool, &placed(volume), 1, 0).moves.is_empty()
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
