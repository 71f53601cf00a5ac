//! Backups of the cluster's state that every server makes by itself, for the day on which most of those that keep the
//! state are lost.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use spandrel_cluster::backup::StateBackup;
use spandrel_cluster::records::ServersRecord;
use spandrel_cluster::{ClusterState, StateError, StateKey};
use spandrel_shared::Error;

use super::settings::{not_writable, write_durably};
use crate::admin::administration::{state_error, unix_ms};
use crate::directory::Directory;
use crate::node_state::NodeState;

/// How often a backup is made even if no server has come or gone.
const INTERVAL: Duration = Duration::from_secs(3600);

/// How often it is looked whether it is time for one.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// How many are kept: two days of them.
const KEPT: usize = 48;

const FOLDER: &str = "backups";

/// Makes backups for as long as the server runs: at its start, every hour, and when servers come or go. Never
/// completes.
pub async fn keep_backups(directory: Directory, state: ClusterState<NodeState>) {
    let mut last: Option<(Instant, u64)> = None;
    loop {
        match look(&directory, &state, last).await {
            Ok(made) => last = made,
            Err(error) => tracing::warn!("no backup of the cluster's state: {error}"),
        }
        tokio::time::sleep(LOOK_INTERVAL).await;
    }
}

/// Makes a backup if it is time for one. When that was done last, and how often servers had come and gone by then.
async fn look(
    directory: &Directory,
    state: &ClusterState<NodeState>,
    last: Option<(Instant, u64)>,
) -> Result<Option<(Instant, u64)>, Error> {
    let changes = state.get::<ServersRecord>(&StateKey::Servers).await.map_err(state_error)?;
    let changes = changes.map_or(0, |stored| stored.record.changes);
    if last.is_some_and(|(at, known)| at.elapsed() < INTERVAL && known == changes) {
        return Ok(last);
    }
    match state.backup(unix_ms()).await {
        Ok(Some(backup)) => {
            keep(directory, &backup)?;
            Ok(Some((Instant::now(), changes)))
        }
        Ok(None) => Ok(last),
        // It is made a little later.
        Err(StateError::Store(error)) => {
            tracing::debug!("no backup of the cluster's state yet: {error}");
            Ok(last)
        }
        Err(error) => Err(state_error(error)),
    }
}

/// Writes a backup beside the others of this server, the oldest of which goes. Where it is.
pub fn keep(directory: &Directory, backup: &StateBackup) -> Result<PathBuf, Error> {
    let failed = |error: std::io::Error| not_writable(directory, &error);
    // Names are in the order of time.
    let path = write(directory, backup, &format!("state-{:015}.json", backup.taken_unix_ms))?;
    let folder = directory.join(FOLDER);
    let mut present: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(&folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.starts_with("state-") && name.ends_with(".json") {
            present.push(path);
        }
    }
    present.sort();
    let surplus = present.len().saturating_sub(KEPT);
    for old in &present[..surplus] {
        std::fs::remove_file(old).map_err(failed)?;
    }
    Ok(path)
}

/// Writes a backup that stays, however many are made later: one that a recovery was made of, or displaces. Where it is.
pub fn keep_for_good(directory: &Directory, backup: &StateBackup) -> Result<PathBuf, Error> {
    let name = format!("kept-{:015}-revision-{}.json", backup.taken_unix_ms, backup.revision);
    write(directory, backup, &name)
}

fn write(directory: &Directory, backup: &StateBackup, name: &str) -> Result<PathBuf, Error> {
    let failed = |error: std::io::Error| not_writable(directory, &error);
    let folder = directory.join(FOLDER);
    std::fs::create_dir_all(&folder).map_err(failed)?;
    let path = folder.join(name);
    write_durably(&path, &backup.to_bytes()).map_err(failed)?;
    Ok(path)
}

#[cfg(test)]
#[path = "backups_tests.rs"]
mod tests;
