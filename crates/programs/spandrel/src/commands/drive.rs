//! `spandrel drive`.

use serde::Serialize;
use spandrel_cluster::DriveRole;
use spandrel_shared::Error;
use spandrel_shared::size::format_size;

use crate::admin::api::{
    self, CacheDriveStatus, DriveAdd, DriveAdded, DriveRetire, DriveRetired, DriveStatus,
};
use crate::admin::client::{Client, path_with};
use crate::admin::named_drive::named_drive;
use crate::arguments::{
    DriveAddArguments, DriveCommand, DriveGetArguments, DriveRetireArguments, Output, OutputArguments,
};
use crate::commands::clean::clean;
use crate::commands::removal::remove_drive;
use crate::failure::{EXIT_DAMAGE, EXIT_OK, Outcome, render, system_error};
use crate::reach::Reach;
use crate::table::Table;
use crate::text::{age_text, alone_text, json, percent, say, slab_copies, verb_for};

/// Where a drive is that nobody sees.
const MISSING: &str = "unknown while it is missing or its node is down";

/// Carries out a command about drives.
pub fn drive(reach: &Reach, command: &DriveCommand) -> Outcome {
    let client = || reach.client();
    match command {
        DriveCommand::List(arguments) => list(&client()?, *arguments),
        DriveCommand::Get(arguments) => get(&client()?, arguments),
        DriveCommand::Add(arguments) => add(reach, arguments),
        DriveCommand::Retire(arguments) => retire(&client()?, arguments),
        DriveCommand::Remove(arguments) => remove_drive(&client()?, arguments),
        DriveCommand::Clean(arguments) => clean(&reach.directory()?, arguments),
        DriveCommand::Inspect(arguments) => {
            let outcome = arguments.run(&mut std::io::stdout().lock())?;
            Ok(if outcome.exit_status() == 0 { EXIT_OK } else { EXIT_DAMAGE })
        }
    }
}

fn list(client: &Client, arguments: OutputArguments) -> Outcome {
    let drives: Vec<DriveStatus> = client.get(api::DRIVES)?;
    let caches: Vec<CacheDriveStatus> = client.get(api::CACHES)?;
    say(&match arguments.output {
        Output::Table => {
            let lists =
                [render_list(&drives), render_caches(&caches)].into_iter().filter(|list| !list.is_empty());
            format!("{}\n{}", lists.collect::<Vec<_>>().join("\n"), render_locations(&drives, &caches))
        }
        Output::Json => json(&all_named(&drives, &caches)),
    });
    Ok(EXIT_OK)
}

fn get(client: &Client, arguments: &DriveGetArguments) -> Outcome {
    let drives: Vec<DriveStatus> = client.get(api::DRIVES)?;
    let caches: Vec<CacheDriveStatus> = client.get(api::CACHES)?;
    let drives = drives.iter().map(|drive| (drive.name.clone(), drive.id, Named::Capacity(drive)));
    let caches = caches.iter().map(|cache| (cache.name.clone(), cache.id, Named::Cache(cache)));
    let named = named_drive(drives.chain(caches), &arguments.name)?;
    say(&match (arguments.output.output, named) {
        (Output::Table, Named::Capacity(drive)) => render_one(drive),
        (Output::Table, Named::Cache(cache)) => render_cache(cache),
        (Output::Json, named) => json(&named),
    });
    Ok(EXIT_OK)
}

/// The drives of both roles, those that hold copies first.
fn all_named<'drives>(
    drives: &'drives [DriveStatus],
    caches: &'drives [CacheDriveStatus],
) -> Vec<Named<'drives>> {
    drives.iter().map(Named::Capacity).chain(caches.iter().map(Named::Cache)).collect()
}

/// A drive of either role. As JSON it is what the API says of it, and its role.
#[derive(Serialize)]
#[serde(tag = "role", rename_all = "kebab-case")]
enum Named<'drives> {
    Capacity(&'drives DriveStatus),
    Cache(&'drives CacheDriveStatus),
}

/// Everything about a cache drive, a line each.
fn render_cache(cache: &CacheDriveStatus) -> String {
    let mut table = Table::new(&["CACHE DRIVE", &cache.name]);
    let mut line = |name: &str, value: String| table.row([name.to_owned(), value]);
    line("health", cache.status.health.to_string());
    line("status", cache.status.operational_text());
    line("node", cache.node.clone());
    line("location", cache.location.clone().unwrap_or_else(|| MISSING.to_owned()));
    line("identity", cache.id.map_or("unknown".to_owned(), |id| id.to_string()));
    line("media", cache.media.map_or_else(|| "unknown".to_owned(), |media| media.to_string()));
    line("size", format_size(cache.size_bytes));
    line("there alone", cache.dirty_bytes.map_or_else(|| "unknown".to_owned(), format_size));
    line("caches for", bound_text(cache));
    if !cache.perhaps_bound.is_empty() {
        line("may cache for", cache.perhaps_bound.join(" "));
    }
    let obstacle = cache.obstacle.as_ref();
    let obstacle =
        obstacle.map(|Error { what, why, .. }| format!("{} is not emptied yet: {what}: {why}\n", cache.name));
    table.render() + &failure_text(&cache.name, cache.failure.as_ref()) + &obstacle.unwrap_or_default()
}

/// Why a drive is not used, if it is not: a line of its own, which no table cuts.
fn failure_text(name: &str, failure: Option<&String>) -> String {
    failure.map_or_else(String::new, |failure| format!("{name} is not used: {failure}\n"))
}

/// Everything about a drive, a line each.
pub fn render_one(drive: &DriveStatus) -> String {
    let mut table = Table::new(&["DRIVE", &drive.name]);
    let mut line = |name: &str, value: String| table.row([name.to_owned(), value]);
    line("health", drive.status.health.to_string());
    line("status", drive.status.operational_text());
    line("node", drive.node.clone());
    line("location", drive.location.clone().unwrap_or_else(|| "unknown while its node is down".to_owned()));
    line("identity", drive.id.map_or("unknown".to_owned(), |id| id.to_string()));
    line("media", media_text(drive, "unknown"));
    line("size", format_size(drive.size_bytes));
    line("can be promised", format_size(drive.promisable_bytes));
    line("promised", format_size(drive.promised_bytes));
    line("used", format_size(drive.used_bytes));
    line("written", format_size(drive.written_bytes));
    line("of these blocks", format_size(drive.data_bytes));
    line("flushes", drive.flushes.to_string());
    line("laps of the journal", drive.journal_laps.to_string());
    line("maps in memory", format_size(drive.map_memory_bytes));
    line("map pages read back", drive.map_pages_read.to_string());
    line("damage found", drive.damage_found.to_string());
    line("blocks damaged now", drive.blocks_damaged.saturating_sub(drive.blocks_healed).to_string());
    if let Some(cache) = &drive.cache {
        line("cached by", format!("{} ({})", cache.drive, cache.mode));
        line("room there", format_size(cache.total_bytes));
        line("there alone", format_size(cache.dirty_bytes));
        line("copies there", format_size(cache.copied_bytes));
        let reads = cache.hit_bytes + cache.missed_bytes;
        line("read there", format!("{} ({})", format_size(cache.hit_bytes), percent(cache.hit_bytes, reads)));
        line("copied there", format_size(cache.populated_bytes));
        line("moved from there", format_size(cache.destaged_bytes));
        if let Some(full_ms) = cache.full_ms {
            line("full for", age_text(full_ms));
        }
    } else if let Some(cache) = &drive.bound_to {
        line("cached by", cache.clone());
    }
    table.render() + &failure_text(&drive.name, drive.failure.as_ref())
}

fn retire(client: &Client, arguments: &DriveRetireArguments) -> Outcome {
    let DriveRetireArguments { name, undo, dry_run, output } = arguments;
    let request = DriveRetire { undo: *undo, dry_run: *dry_run };
    let retired: DriveRetired = client.post(&path_with(api::DRIVE_RETIRE, name), &request)?;
    say(&match output.output {
        Output::Table => render_retired(&retired, request),
        Output::Json => json(&retired),
    });
    Ok(EXIT_OK)
}

/// What becomes of the drive, in a sentence or two.
fn render_retired(retired: &DriveRetired, request: DriveRetire) -> String {
    let DriveRetired { name, copies_to_move, slab_bytes, warning, .. } = retired;
    let warning = warning.as_ref().map_or(String::new(), |warning| format!("warning: {warning}\n"));
    if retired.role == DriveRole::Cache && !request.undo {
        return render_retired_cache(retired, request.dry_run) + &warning;
    }
    let (copies, size) = (slab_copies(*copies_to_move), format_size(copies_to_move * slab_bytes));
    let text = match (request.undo, request.dry_run) {
        (true, _) if !retired.was_retired => {
            format!("drive {name} was not retired{}: nothing changes\n", works_text(retired))
        }
        (true, true) => format!("drive {name} would be used again\n"),
        (true, false) if retired.works => format!("drive {name} is used again\n"),
        (true, false) => format!("drive {name} is not retired any more, and is used again once it works\n"),
        (false, true) => {
            format!("drive {name} can be retired: {copies} ({size} at most) would move to other drives\n")
        }
        (false, false) if *copies_to_move == 0 => format!("drive {name} is retired, and empty\n"),
        (false, false) => format!(
            "drive {name} is retired: {copies} ({size} at most) {} to other drives\n\
             `spandrel drive get {name}` shows how much of it is promised yet; `spandrel volume get` what is being built\n",
            verb_for(*copies_to_move, "moves", "move")
        ),
    };
    text + &warning
}

fn render_retired_cache(retired: &DriveRetired, is_dry: bool) -> String {
    let name = &retired.name;
    let left = left_text(retired);
    match is_dry {
        true => format!("cache drive {name} can be retired: {left}\n"),
        false if retired.leaving.is_empty() && retired.at_stake.is_empty() => {
            format!("cache drive {name} is retired, and caches for no drive\n")
        }
        false => format!(
            "cache drive {name} is retired: {left}\n`spandrel drive get {name}` shows how much of it stands there yet\n"
        ),
    }
}

/// What becomes of a cache drive's drives, in words.
pub fn left_text(retired: &DriveRetired) -> String {
    let leaving = format!(
        "it is left by {}, and {} moved there first",
        retired.leaving.join(", "),
        alone_text(retired.dirty_bytes)
    );
    let at_stake = format!(
        "nobody says whether something stands there alone for {}: what does is moved to them, and they leave it, when they work \
         again",
        retired.at_stake.join(", ")
    );
    match (retired.leaving.is_empty(), retired.at_stake.is_empty()) {
        (true, true) => "no drive is bound to it".to_owned(),
        (false, true) => leaving,
        (true, false) => at_stake,
        (false, false) => format!("{leaving}; {at_stake}"),
    }
}

/// That a drive does not work, if it does not.
fn works_text(retired: &DriveRetired) -> &'static str {
    if retired.works { "" } else { ", and does not work or cannot be asked" }
}

/// Gives drives to the pool, one after the other. One that is refused keeps none of the others out.
fn add(reach: &Reach, arguments: &DriveAddArguments) -> Outcome {
    let client = reach.client()?;
    let mut refused = None;
    for path in &arguments.paths {
        // This machine's folders are none of a server's elsewhere, which wants whole paths.
        let whole = if reach.is_elsewhere() { Ok(path.clone()) } else { std::path::absolute(path) };
        let added = whole
            .map_err(|error| system_error(format!("{} cannot become a drive", path.display()), &error))
            .and_then(|path| {
                let (media, role) = (arguments.media.map(Into::into), arguments.role.map(Into::into));
                client.post(api::DRIVES, &DriveAdd { path: path.display().to_string(), media, role })
            });
        match added {
            Ok(DriveAdded { name, size_bytes, media, role }) => {
                let what = if role == DriveRole::Cache { "cache drive" } else { "drive" };
                let unknown = if path.is_file() { "a file" } else { "of unknown media" };
                let media = media.map_or(unknown.to_owned(), |media| media.to_string());
                say(&format!("{what} {name} added: {}, {media}\n", format_size(size_bytes)));
            }
            Err(error) => {
                if let Some(earlier) = refused.replace(error) {
                    eprint!("{}", render(&earlier));
                }
            }
        }
    }
    refused.map_or(Ok(EXIT_OK), Err)
}

/// What a drive is made of; of a file that nobody has said, and it is told as one.
fn media_text(drive: &DriveStatus, unknown: &str) -> String {
    match (drive.media, &drive.location) {
        (Some(media), _) => media.to_string(),
        (None, Some(location)) if is_file(location) => "file".to_owned(),
        (None, _) => unknown.to_owned(),
    }
}

/// Whether a location is that of a file: block devices are in /dev, and files in memory are below it.
fn is_file(location: &str) -> bool {
    location.starts_with('/') && (!location.starts_with("/dev/") || location.starts_with("/dev/shm/"))
}

/// Where the drives are: whole paths, however long, since `drive inspect` takes them.
fn render_locations(drives: &[DriveStatus], caches: &[CacheDriveStatus]) -> String {
    let line = |(name, location): (&String, &Option<String>)| {
        let location = location.as_deref().unwrap_or("(its node is down, or it is missing)");
        format!("{name}  {location}\n")
    };
    let drives = drives.iter().map(|drive| (&drive.name, &drive.location));
    drives.chain(caches.iter().map(|drive| (&drive.name, &drive.location))).map(line).collect()
}

/// For whom a cache drive caches, as far as that is known.
fn bound_text(cache: &CacheDriveStatus) -> String {
    match cache.bound.is_empty() && !cache.perhaps_bound.is_empty() {
        true => "unknown".to_owned(),
        false => cache.bound.join(" "),
    }
}

/// The cache drives as a table, and below it why some are not used; nothing if there are none.
fn render_caches(caches: &[CacheDriveStatus]) -> String {
    if caches.is_empty() {
        return String::new();
    }
    let heads = ["CACHE DRIVE", "HEALTH", "STATUS", "MEDIA", ">SIZE", ">THERE ALONE", "CACHES FOR"];
    let mut table = Table::new(&heads);
    for cache in caches {
        table.row([
            cache.name.clone(),
            cache.status.health.to_string(),
            cache.status.operational_text(),
            cache.media.map_or_else(|| "-".to_owned(), |media| media.to_string()),
            format_size(cache.size_bytes),
            cache.dirty_bytes.map_or_else(String::new, format_size),
            bound_text(cache),
        ]);
    }
    let failures = caches.iter().map(|cache| failure_text(&cache.name, cache.failure.as_ref()));
    table.render() + &failures.collect::<String>()
}

/// The drives as a table, and below it why some are not used.
pub fn render_list(drives: &[DriveStatus]) -> String {
    let heads = [
        "DRIVE",
        "HEALTH",
        "STATUS",
        "MEDIA",
        ">SIZE",
        ">PROMISED",
        ">USED",
        ">WRITTEN",
        ">DAMAGED",
        ">HEALED",
    ];
    let mut table = Table::new(&heads);
    for drive in drives {
        table.row([
            drive.name.clone(),
            drive.status.health.to_string(),
            drive.status.operational_text(),
            media_text(drive, "-"),
            format_size(drive.size_bytes),
            percent(drive.promised_bytes, drive.promisable_bytes),
            format_size(drive.used_bytes),
            format_size(drive.written_bytes),
            drive.damage_found.to_string(),
            drive.blocks_healed.to_string(),
        ]);
    }
    let failures = drives.iter().map(|drive| failure_text(&drive.name, drive.failure.as_ref()));
    table.render() + &failures.collect::<String>()
}

#[cfg(test)]
#[path = "drive_tests.rs"]
mod tests;
