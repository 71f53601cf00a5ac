//! `spandrel cluster backup`, `cluster recover` and `cluster settle`.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use spandrel_cluster::StateStamp;
use spandrel_cluster::backup::StateBackup;
use spandrel_shared::Error;

use crate::admin::administration::unix_ms;
use crate::admin::api::{self, Settle, SettleStatus};
use crate::admin::client::Client;
use crate::arguments::{RecoverArguments, SettleArguments};
use crate::confirm::confirm;
use crate::directory::Directory;
use crate::failure::{EXIT_OK, Outcome, system_error};
use crate::server::recover;
use crate::server::settings::{ServerSettings, lock};
use crate::server::silence::check_stopped;
use crate::text::say;

/// Writes the whole state into a file.
pub fn backup(client: &Client, path: &Path) -> Outcome {
    let backup: StateBackup = client.get(api::STATE_BACKUP)?;
    let failed = |error: std::io::Error| {
        Error::new(
            "FILE_NOT_WRITTEN",
            format!("the backup cannot be written to {}", path.display()),
            error.to_string(),
            "name a file that is not there yet, in a folder that this user may write to",
        )
    };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(failed)?;
    file.write_all(&backup.to_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    say(&format!("the state at revision {} is in {}\n", backup.revision, path.display()));
    Ok(EXIT_OK)
}

/// Makes a state of a backup count.
pub fn recover(directory: &Directory, arguments: &RecoverArguments) -> Outcome {
    ServerSettings::read(directory)?;
    let _lock = lock(directory)?;
    let settings = ServerSettings::read(directory)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| system_error("the program cannot start", &error))?;
    let backup = match &arguments.from {
        Some(path) => read_backup(path)?,
        None => runtime.block_on(recover::read_member(directory, &settings))?,
    };
    if backup.cluster != settings.cluster {
        return Err(Error::new(
            "BACKUP_OF_OTHER_CLUSTER",
            "the backup cannot be used here",
            format!(
                "it is of the cluster {} ({}), not of {}",
                backup.name, backup.cluster, settings.cluster_name
            ),
            "use a backup of this cluster",
        ));
    }
    let seen = recover::newest_seen(&settings)?;
    let picture = describe(&backup, seen, unix_ms())?;
    if arguments.dry_run {
        say(&picture);
        runtime.block_on(check_stopped(&settings, Some(&backup)))?;
        return Ok(EXIT_OK);
    }
    runtime.block_on(check_stopped(&settings, Some(&backup)))?;
    confirm(&picture, &settings.cluster_name, arguments.yes)?;
    let is_witness = settings.witness;
    let generation = runtime.block_on(recover::recover(directory, settings, &backup, seen))?;
    let dir = directory.path().display();
    let kind = if is_witness { "witness" } else { "node" };
    say(&format!(
        "the state is that of the backup now, as generation {generation}\n\n\
         start this server:        spandrel --dir {dir} {kind} run\n\
         then start the others anew; they go by the new state, and help to keep it\n\
         what volumes wait for:    spandrel --dir {dir} cluster settle\n"
    ));
    Ok(EXIT_OK)
}

fn read_backup(path: &Path) -> Result<StateBackup, Error> {
    let bytes = std::fs::read(path).map_err(|error| {
        let what = format!("the backup {} cannot be read", path.display());
        Error::new("BACKUP_UNREADABLE", what, error.to_string(), "name a file that this user may read")
    })?;
    StateBackup::from_bytes(&bytes)
}

/// What is about to be done, and what it may cost.
fn describe(backup: &StateBackup, seen: StateStamp, now_unix_ms: u64) -> Result<String, Error> {
    let minutes = now_unix_ms.saturating_sub(backup.taken_unix_ms) / 60_000;
    let mut text = format!(
        "The state of cluster {} is put back to revision {} of generation {}, which was read {} min ago and knows {} \
         volumes.\n",
        backup.name,
        backup.revision,
        backup.generation,
        minutes,
        backup.volumes()
    );
    let _ = match seen > backup.stamp() {
        true => writeln!(text, "This server's drives have seen {seen}: what has changed since is lost."),
        false => writeln!(text, "This server's drives have seen nothing newer; those of others may have."),
    };
    text += "\n\
        - Volumes made since are not known any more. Their copies stay on the drives.\n\
        - Volumes deleted since are there again, without their data.\n\
        - Servers that have joined since have to join anew; servers removed since have to be removed again.\n\
        - Access given or taken back since is as it was. Join tokens are not valid any more.\n\
        - No volume is served before all its copies were compared, so all drives must be there. Copies that lack\n  \
          something are brought up to date.\n\
        - Every server must be stopped now, and be started anew then. One that goes on with the former state all the same\n  \
          ends once it sees the new one.\n";
    let half_made = backup.half_made()?;
    if !half_made.is_empty() {
        let names = half_made.into_values().collect::<Vec<_>>().join(", ");
        let _ = writeln!(
            text,
            "- Volumes that were just being made are not known any more, as those made since: {names}."
        );
    }
    Ok(text)
}

/// Shows which volumes wait for their copies to be compared, or gives up what they wait for.
pub fn settle(client: &Client, arguments: &SettleArguments) -> Outcome {
    let SettleArguments { without, without_growth, dry_run, yes } = arguments;
    let ask = |dry_run| {
        let settle = Settle { without: without.clone(), without_growth: without_growth.clone(), dry_run };
        client.post::<SettleStatus>(api::SETTLE, &settle)
    };
    let status = ask(true)?;
    if status.volumes.is_empty() {
        say("all volumes are settled: their copies were compared since the state was put back last\n");
        return Ok(EXIT_OK);
    }
    let gives_up = what_is_given_up(without, without_growth, &status);
    if gives_up.is_empty() || *dry_run {
        say(&(waiting_text(&status) + &gives_up));
        return Ok(EXIT_OK);
    }
    let names: Vec<&str> = without.iter().chain(without_growth).map(String::as_str).collect();
    confirm(gives_up.trim_end(), names[0], *yes)?;
    ask(false)?;
    let volumes = if without.is_empty() { without_growth.join(", ") } else { status.volumes.join(", ") };
    say(&format!("the volumes {volumes} go on without what was given up\n"));
    Ok(EXIT_OK)
}

fn waiting_text(status: &SettleStatus) -> String {
    let away = if status.nodes_away.is_empty() { "none".to_owned() } else { status.nodes_away.join(", ") };
    let mut text = format!("volumes that wait: {}\nnodes that are away: {away}\n", status.volumes.join(", "));
    for (volume, obstacle) in &status.obstacles {
        let _ = writeln!(text, "volume {volume} waits: {obstacle}");
    }
    text
}

/// What giving up may cost; empty if nothing is.
fn what_is_given_up(without: &[String], without_growth: &[String], status: &SettleStatus) -> String {
    let mut text = String::new();
    if !without.is_empty() {
        let _ = writeln!(
            text,
            "The drives of {} are given up for lost. If only they hold the newest data of the volumes {}, these data are \
             lost.",
            without.join(", "),
            status.volumes.join(", ")
        );
    }
    if !without_growth.is_empty() {
        let _ = writeln!(
            text,
            "What was written to {} behind the end that the state knows is lost. A later backup would know it.",
            without_growth.join(", ")
        );
    }
    text
}

#[cfg(test)]
#[path = "recover_tests.rs"]
mod tests;
