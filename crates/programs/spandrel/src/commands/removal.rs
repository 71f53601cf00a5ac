//! Taking drives and servers out of the cluster for good: `drive remove`, `node remove`, `witness remove`.
//!
//! What they hold moves to others first, and that is waited for. Interrupted, it goes on moving, and the same command takes
//! the waiting up again.

use std::time::Duration;

use spandrel_cluster::DriveRole;
use spandrel_health::OperationalStatus;
use spandrel_shared::size::format_size;
use spandrel_shared::{DriveId, Error};

use crate::admin::api::{
    self, CacheDriveStatus, CacheGivenUp, DriveRemove, DriveRemoved, DriveRetire, DriveRetired, DriveStatus,
    NodeDrain, NodeDrained, NodeEvacuate, NodeEvacuated, PoolDetails, ServerRemove, ServerRemoved,
};
use crate::admin::client::{Client, path_with};
use crate::arguments::{DriveRemoveArguments, ServerRemoveArguments};
use crate::commands::drive::left_text;
use crate::commands::node::await_drained;
use crate::commands::pool::{bytes_bar, copies_bar};
use crate::confirm::confirm;
use crate::failure::{EXIT_OK, Outcome};
use crate::interrupt::{Guard, restore_on_interrupt};
use crate::text::{counted, say, slab_copies, verb_for};

/// How often it is looked how far drives are emptied. There is nothing to wait for but the next look.
const INTERVAL: Duration = Duration::from_secs(1);

/// Takes a drive out of the pool, emptied if it is not empty yet.
pub fn remove_drive(client: &Client, arguments: &DriveRemoveArguments) -> Outcome {
    let DriveRemoveArguments { name, dry_run, yes } = arguments;
    let post_removal = |request| client.post::<DriveRemoved>(&path_with(api::DRIVE_REMOVE, name), &request);
    let remove = |give_up: &[String]| post_removal(DriveRemove { dry_run: false, give_up: give_up.to_vec() });
    let retire = |dry_run| {
        client
            .post::<DriveRetired>(&path_with(api::DRIVE_RETIRE, name), &DriveRetire { undo: false, dry_run })
    };
    // Nothing is moved for a removal that is refused then.
    match post_removal(DriveRemove { dry_run: true, ..DriveRemove::default() }) {
        Ok(would) if would.role == DriveRole::Cache => {
            return take_cache_out(&would, *dry_run, *yes, remove);
        }
        would => unless(&["DRIVE_HOLDS_COPIES", "CACHE_IN_USE"], would)?,
    }
    let would = retire(true)?;
    if would.role == DriveRole::Cache {
        return remove_cache(client, &would, arguments, || retire(false), || remove(&[]));
    }
    let moved = moved_text(would.copies_to_move, would.slab_bytes);
    let lacking = lacking_text(would.warning.as_ref());
    let name = &would.name;
    if *dry_run {
        say(&format!("drive {name} can be taken out of the pool: {moved}\n{lacking}"));
        return Ok(EXIT_OK);
    }
    eprint!("{lacking}");
    confirm(&format!("The drive {name} is taken out of the pool: {moved}."), name, *yes)?;
    let retired = retire(false)?;
    let _told = tell_on_interrupt(&format!("drive {name}"), &format!("drive remove {name}"), name);
    await_empty(client, &[retired.id], retired.copies_to_move)?;
    say_removed(&remove(&[])?, "drive");
    Ok(EXIT_OK)
}

/// Says, if this is interrupted, that what was begun goes on.
fn tell_on_interrupt(what: &str, command: &str, drive: &str) -> Guard {
    let text = interrupted_text(what, command, drive);
    restore_on_interrupt(move || eprintln!("\n{text}"))
}

fn interrupted_text(what: &str, command: &str, drive: &str) -> String {
    format!(
        "interrupted: {what} goes on being emptied; `spandrel {command}` takes the waiting up again, and `spandrel drive retire \
         --undo {drive}` has it used again"
    )
}

fn say_removed(removed: &DriveRemoved, what: &str) {
    if let Some(warning) = &removed.warning {
        eprintln!("warning: {warning}");
    }
    let replace = match removed.gives_up {
        Some(_) => {
            "`spandrel drive add PATH --role cache` on its server gives the drives behind it a new one, or this one wiped\n"
        }
        None => "",
    };
    say(&format!("{what} {} was {}\n{}{replace}", removed.name, removed_text(removed), wipe_text(removed)));
}

/// How it is wiped; nothing as long as its node has not let go of it.
fn wipe_text(removed: &DriveRemoved) -> String {
    match &removed.location {
        Some(path) if removed.warning.is_none() => {
            format!("`spandrel drive clean {path}` on its server wipes it\n")
        }
        _ => String::new(),
    }
}

fn removed_text(removed: &DriveRemoved) -> String {
    match &removed.gives_up {
        Some(lost) => format!("given up, and is no part of the pool any more: {}", given_up_text(lost)),
        None => "taken out of the pool".to_owned(),
    }
}

/// Takes a cache drive out of the pool: the drives that are bound to it leave it first. It is not given up.
fn remove_cache(
    client: &Client,
    would: &DriveRetired,
    arguments: &DriveRemoveArguments,
    retire: impl Fn() -> Result<DriveRetired, Error>,
    remove: impl Fn() -> Result<DriveRemoved, Error>,
) -> Outcome {
    let (name, left) = (&would.name, left_text(would));
    let warning = would.warning.as_ref().map_or_else(String::new, |why| format!("warning: {why}\n"));
    if arguments.dry_run {
        say(&format!("cache drive {name} can be taken out of the pool: {left}\n{warning}"));
        return Ok(EXIT_OK);
    }
    eprint!("{warning}");
    confirm(&format!("The cache drive {name} is taken out of the pool: {left}."), name, arguments.yes)?;
    let look = || client.watch(api::CACHES);
    let retired = retire()?;
    let _told = tell_on_interrupt(&format!("cache drive {name}"), &format!("drive remove {name}"), name);
    let removed = remove_once_left(&retired, look, remove, || client.pause(INTERVAL))?;
    say_removed(&removed, "cache drive");
    Ok(EXIT_OK)
}

/// Takes a cache drive out of the pool that no drive uses which works; if it does not work itself, with what stands there alone,
/// for those drives of which that was said.
fn take_cache_out(
    would: &DriveRemoved,
    is_dry: bool,
    is_confirmed: bool,
    remove: impl Fn(&[String]) -> Result<DriveRemoved, Error>,
) -> Outcome {
    let name = &would.name;
    let (done, why) = match &would.gives_up {
        Some(lost) => ("given up", given_up_text(lost)),
        None => ("taken out", "no drive uses it".to_owned()),
    };
    if is_dry {
        say(&format!("cache drive {name} can be {done}: {why}\n"));
        return Ok(EXIT_OK);
    }
    let question = format!("The cache drive {name} is {done}, and no part of the pool any more: {why}.");
    confirm(&question, name, is_confirmed)?;
    let agreed = would.gives_up.as_ref().map_or(&[][..], |lost| &lost.drives[..]);
    say_removed(&remove(agreed)?, "cache drive");
    Ok(EXIT_OK)
}

fn given_up_text(given_up: &CacheGivenUp) -> String {
    let CacheGivenUp { drives, is_known, copies } = given_up;
    let whose = if *is_known { "" } else { " (which of these are bound to it is not known)" };
    format!(
        "what stands there alone is lost for {}{whose}; {} on them {} brought up to date from other nodes",
        drives.join(", "),
        slab_copies(*copies),
        verb_for(*copies, "lacks it, and is", "lack it, and are")
    )
}

/// Shows how drives leave a cache drive, and has it removed when they have. Who removes it says whether that is so: that no drive
/// is known to use it can mean that its node does not answer at present.
fn remove_once_left(
    retired: &DriveRetired,
    look: impl Fn() -> Result<Vec<CacheDriveStatus>, Error>,
    remove: impl Fn() -> Result<DriveRemoved, Error>,
    pause: impl Fn(),
) -> Result<DriveRemoved, Error> {
    let total_bytes = retired.dirty_bytes.unwrap_or(0);
    let bar = bytes_bar(total_bytes);
    let mut told = None;
    loop {
        // It is not there if somebody else has removed it.
        let cache = look()?.into_iter().find(|cache| cache.id == Some(retired.id));
        if let Some(cache) = &cache {
            check_leaves(cache)?;
        }
        if let Some(cache) = cache.filter(|cache| !cache.in_use_by.is_empty()) {
            if let Some(left_bytes) = cache.dirty_bytes {
                bar.set_position(total_bytes.saturating_sub(left_bytes));
            }
            bar.set_message(match &cache.obstacle {
                None => String::new(),
                Some(obstacle) => format!("({}: {})", obstacle.what, obstacle.why),
            });
            pause();
            continue;
        }
        match remove() {
            // It has begun to answer again meanwhile.
            Err(error) if error.code == "CACHE_IN_USE" => {}
            Err(error) if error.code == "CACHE_UNSURE" => {
                if told.as_ref() != Some(&error) {
                    bar.suspend(|| eprintln!("{}", waits_text(&error)));
                    told = Some(error);
                }
            }
            removed => {
                bar.finish_and_clear();
                return removed;
            }
        }
        pause();
    }
}

fn waits_text(error: &Error) -> String {
    format!(
        "{} yet: {}. This waits for it; Ctrl-C ends the waiting, and the same command takes it up again, or gives the cache \
         drive up if its node is gone for good",
        error.what, error.why
    )
}

/// Refuses to wait for drives to leave a cache drive if they do not, or cannot without a person's help.
fn check_leaves(cache: &CacheDriveStatus) -> Result<(), Error> {
    if !cache.status.operational.contains(&OperationalStatus::RemovingFromPool) {
        return Err(used_again(&cache.name));
    }
    match &cache.obstacle {
        Some(obstacle) if !cache.in_use_by.is_empty() && obstacle.code == "CACHE_NOT_DRAINED" => {
            Err(Error::new(
                &obstacle.code,
                format!("cache drive {} is not taken out yet: {}", cache.name, obstacle.what),
                obstacle.why.clone(),
                format!("{}; then `spandrel drive remove {}` goes on", obstacle.next, cache.name),
            ))
        }
        _ => Ok(()),
    }
}

fn used_again(name: &str) -> Error {
    Error::new(
        "DRIVE_USED_AGAIN",
        format!("drive {name} is not emptied"),
        "somebody has it used again meanwhile (`spandrel drive retire --undo`)",
        "do it again if it is still meant; what has moved stays where it is",
    )
}

/// Takes a witness out of the cluster for good.
pub fn remove_witness(client: &Client, arguments: &ServerRemoveArguments) -> Outcome {
    let name = &arguments.name;
    remove_server(client, name, true, true)?;
    if arguments.dry_run {
        say(&format!("witness {name} would be taken out of the cluster\n"));
        return Ok(EXIT_OK);
    }
    confirm(&format!("The witness {name} is taken out of the cluster."), name, arguments.yes)?;
    remove_server(client, name, true, false)?;
    say(&format!("witness {name} was taken out of the cluster\n"));
    Ok(EXIT_OK)
}

/// Takes a node out of the cluster for good, with its drives: what these hold moves to other nodes first, then it hands
/// its volumes over, if it runs.
pub fn remove_node(client: &Client, arguments: &ServerRemoveArguments) -> Outcome {
    let name = &arguments.name;
    // Nothing is moved for a removal that is refused then.
    unless(&["NODE_HOLDS_COPIES", "NODE_RUNNING"], remove_server(client, name, false, true))?;
    let evacuate = |dry_run| {
        client.post::<NodeEvacuated>(&path_with(api::NODE_EVACUATE, name), &NodeEvacuate { dry_run })
    };
    let would = evacuate(true)?;
    let moved = moved_text(would.copies_to_move, would.slab_bytes);
    let lacking = lacking_text(would.warning.as_ref());
    let with = match would.drives.len() {
        0 => String::new(),
        drives => format!(", and {} out of the pool", counted(drives as u64, "drive")),
    };
    if arguments.dry_run {
        say(&format!("node {name} can be taken out of the cluster{with}: {moved}\n{lacking}"));
        return Ok(EXIT_OK);
    }
    eprint!("{lacking}");
    confirm(&format!("The node {name} is taken out of the cluster{with}: {moved}."), name, arguments.yes)?;
    let evacuated = evacuate(false)?;
    let _told = tell_on_interrupt(&format!("node {name}"), &format!("node remove {name}"), "DRIVE");
    await_empty(client, &evacuated.drives, evacuated.copies_to_move)?;
    let drained: NodeDrained = client.post(&path_with(api::NODE_DRAIN, name), &NodeDrain::default())?;
    await_drained(client, &drained, None)?;
    for drive in &evacuated.drives {
        let path = path_with(api::DRIVE_REMOVE, &drive.to_string());
        // Somebody else may have removed it.
        unless(&["DRIVE_NOT_FOUND"], client.post::<DriveRemoved>(&path, &DriveRemove::default()))?;
    }
    remove_server(client, name, false, false)?;
    say(&format!("node {name} was taken out of the cluster{with}\n"));
    Ok(EXIT_OK)
}

fn remove_server(client: &Client, name: &str, witness: bool, dry_run: bool) -> Result<ServerRemoved, Error> {
    client.post(&path_with(api::SERVER_REMOVE, name), &ServerRemove { witness, dry_run })
}

/// An answer, or an error that is none of these.
fn unless<T>(codes: &[&str], answer: Result<T, Error>) -> Result<(), Error> {
    match answer {
        Err(error) if !codes.contains(&error.code.as_str()) => Err(error),
        _ => Ok(()),
    }
}

fn moved_text(copies: u64, slab_bytes: u64) -> String {
    match copies {
        0 => "no copies of slabs are on it".to_owned(),
        copies => {
            let size = format_size(copies * slab_bytes);
            let move_first = verb_for(copies, "moves", "move");
            format!("{} ({size} at most) {move_first} to other drives first", slab_copies(copies))
        }
    }
}

fn lacking_text(warning: Option<&String>) -> String {
    warning.map_or_else(String::new, |why| {
        format!("warning: not all of them can before there is more room; this waits for that: {why}\n")
    })
}

/// Shows how drives are emptied of so many copies, until they are.
fn await_empty(client: &Client, emptied: &[DriveId], total: u64) -> Result<(), Error> {
    let bar = copies_bar(total);
    loop {
        let drives: Vec<DriveStatus> = client.watch(api::DRIVES)?;
        // Somebody else may have removed them.
        let is_emptied = |drive: &&DriveStatus| drive.id.is_some_and(|id| emptied.contains(&id));
        let left: Vec<&DriveStatus> = drives.iter().filter(is_emptied).collect();
        check_leave(&left)?;
        let left_bytes: u64 = left.iter().map(|drive| drive.promised_bytes).sum();
        if left_bytes == 0 {
            bar.finish_and_clear();
            return Ok(());
        }
        let pool: PoolDetails = client.watch(api::POOL)?;
        bar.set_position(total.saturating_sub(left_bytes / pool.pool.slab_bytes));
        bar.set_message(match pool.copies_without_place {
            0 => String::new(),
            copies => format!("({copies} have no place yet: see `spandrel pool status`)"),
        });
        client.pause(INTERVAL);
    }
}

/// Refuses to wait for drives that nobody empties any more.
fn check_leave(drives: &[&DriveStatus]) -> Result<(), Error> {
    let leaves = |drive: &&&DriveStatus| {
        let operational = &drive.status.operational;
        [OperationalStatus::RemovingFromPool, OperationalStatus::FailedMedia]
            .iter()
            .any(|state| operational.contains(state))
    };
    let stays = drives.iter().find(|drive| !leaves(drive));
    stays.map_or(Ok(()), |stays| Err(used_again(&stays.name)))
}

#[cfg(test)]
#[path = "removal_tests.rs"]
mod tests;
