//! The drives that are given to a server's node.

use std::fs::File;
use std::io::{Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use spandrel_cluster::{ClusterState, DriveRole, MediaClass, StateError};
use spandrel_drive::Layout;
use spandrel_node::{DrivePlace, LetGo};
use spandrel_shared::size::format_size;
use spandrel_shared::{DriveId, Error, NodeId, SlabGeometry};

use super::peers::drive_name;
use super::settings::ServerSettings;
use super::state_member::StateMemberKeeper;
use crate::admin::administration::state_error;
use crate::admin::api::{DriveAdd, DriveAdded};
use crate::device::{System, identify, look_at};
use crate::drive_prefix;
use crate::local::settings::{CACHE_DRIVE_BYTES_MIN, drive_bytes_min};
use crate::node_state::NodeState;
use crate::running_node::{NodeHandle, check_roles};
use crate::shard_thread::ShardHandle;

/// How often it is told what drives are called. Nothing is written where nothing has changed.
const NAMES_INTERVAL: Duration = Duration::from_secs(10 * 60);

/// The same, after what could not be noted.
const NAMES_RETRY: Duration = Duration::from_secs(60);

/// Errors of a node that stops meanwhile. It may have begun with the drive by then.
const WHILE_STOPPING: [&str; 2] = ["NODE_STOPPING", "NODE_STOPPED"];

/// Has a node take a drive into use. It is written down before, so that no copy ever comes to be on a drive that the
/// next start does not know.
pub async fn add_drive(
    node: &NodeHandle,
    keeper: &StateMemberKeeper,
    state: &ClusterState<NodeState>,
    drive: &DriveAdd,
) -> Result<DriveAdded, Error> {
    let path = &drive.path;
    let settings = keeper.settings();
    let was_known = settings.drives.iter().any(|known| known == path);
    // What a file is on may be anything, and others use it as well.
    let media = drive.media.or_else(|| match Path::new(path).is_file() {
        true => None,
        false => System::here().media(Path::new(path)),
    });
    let role = match drive.role {
        Some(role) => role,
        None => role_of(media, &media_of_node(state, settings.node).await.map_err(state_error)?),
    };
    let identity = identify(path).await;
    // What it carries decides.
    let is_cache = role == DriveRole::Cache || identity.as_ref().is_some_and(|identity| identity.is_cache);
    check_roles([(&path[..], if is_cache { DriveRole::Cache } else { role })], node.shard_count())?;
    if !was_known {
        check_new(state, &settings, path, role).await?;
    }
    let mut checked = Ok(());
    keeper.change(|settings| {
        checked = check_name(&settings.name, &settings.drives, path);
        if checked.is_ok() && !was_known {
            settings.drives.push(path.to_owned());
            settings.cache_drives.extend((role == DriveRole::Cache).then(|| path.to_owned()));
        }
    })?;
    checked?;
    let place = DrivePlace { location: format!("{}{path}", drive_prefix()), role, media };
    let report = node.add_drive(place, identity.map(|identity| identity.drive)).await;
    if let Err(error) = &report
        && !was_known
        && !(WHILE_STOPPING.contains(&error.code.as_str()) && is_drive_of(&settings, Path::new(path)))
    {
        keeper.change(|settings| settings.forget_drive(path))?;
    }
    let report = report.map_err(|error| explained(error, Path::new(path)))?;
    // One of its name may have been forgotten meanwhile.
    keeper.change(|settings| {
        if !settings.drives.contains(path) {
            settings.drives.push(path.to_owned());
        }
        // What it carries decides.
        settings.cache_drives.retain(|known| known != path);
        settings.cache_drives.extend((report.role == DriveRole::Cache).then(|| path.to_owned()));
    })?;
    let name = drive_name(&settings.name, path).unwrap_or_else(|| path.to_owned());
    if let Some(id) = report.drive {
        describe(state, id, report.role, &name, media).await;
    }
    tracing::info!("drive {name} was added");
    Ok(DriveAdded { name, size_bytes: report.size_bytes, media, role: report.role })
}

/// Refuses what is new to the node and cannot be of use to it: a drive that was taken out of the pool, or one that is too small.
async fn check_new(
    state: &ClusterState<NodeState>,
    settings: &ServerSettings,
    path: &str,
    role: DriveRole,
) -> Result<(), Error> {
    let Some(identity) = identify(path).await else {
        // What cannot be opened the node refuses.
        let Some(size_bytes) = size_of(path).await else { return Ok(()) };
        let cluster = state.cluster().await.map_err(state_error)?;
        return cluster.map_or(Ok(()), |known| check_room(path, size_bytes, role, known.record.slab_bytes));
    };
    let is_own = (identity.cluster, identity.node) == (settings.cluster, settings.node);
    // The node would take up a cache drive all the same, to move what stands there alone; but what was given up is given up.
    if !is_own || !state.is_drive_removed(identity.drive).await.map_err(state_error)? {
        return Ok(());
    }
    Err(Error::new(
        "DRIVE_FAILED",
        format!("{path} cannot become a drive"),
        format!("it is the drive {}, and that was taken out of the pool", identity.drive),
        format!("wipe it with `spandrel drive clean {path}`; then it can be added as a new one"),
    ))
}

/// Refuses a new drive without room for a slab, or one for journals of others with hardly anything beside them.
fn check_room(path: &str, size_bytes: u64, role: DriveRole, slabs: SlabGeometry) -> Result<(), Error> {
    let (fits, what_for, least_bytes) = match role {
        DriveRole::Cache => (
            size_bytes >= CACHE_DRIVE_BYTES_MIN,
            "the journals of the drives that it is to cache for".to_owned(),
            CACHE_DRIVE_BYTES_MIN,
        ),
        DriveRole::Capacity => (
            // Smaller sectors leave more room; whether that is enough with its own the node says.
            Layout::for_drive(size_bytes, 512, slabs).is_some(),
            format!("one slab of {} and its journal", format_size(slabs.slab_bytes())),
            drive_bytes_min(slabs),
        ),
    };
    if fits {
        return Ok(());
    }
    Err(Error::new(
        "DRIVE_TOO_SMALL",
        format!("{path} cannot become a drive"),
        format!("it has {}, and that is too small for {what_for}", format_size(size_bytes)),
        format!("choose one of at least {}", format_size(least_bytes)),
    ))
}

/// How large what stands at a path is, if it can be opened.
async fn size_of(path: &str) -> Option<u64> {
    look_at(path, |path| File::open(path).ok()?.seek(SeekFrom::End(0)).ok()).await
}

/// What the drives of a node that hold copies are made of.
async fn media_of_node(
    state: &ClusterState<NodeState>,
    node: NodeId,
) -> Result<Vec<Option<MediaClass>>, StateError> {
    let drives = state.drives().await?.into_values().map(|stored| stored.record);
    Ok(drives.filter(|record| record.node == node).map(|record| record.media).collect())
}

/// What a new drive is used for where nobody says: it caches if it is faster than all that hold copies on its node.
fn role_of(media: Option<MediaClass>, others: &[Option<MediaClass>]) -> DriveRole {
    // From the fastest to the slowest.
    let is_slower = |other: &Option<MediaClass>| other.zip(media).is_some_and(|(other, media)| other > media);
    match !others.is_empty() && others.iter().all(is_slower) {
        true => DriveRole::Cache,
        false => DriveRole::Capacity,
    }
}

/// Has a node let go of a drive that is no part of the pool any more, and does not give it to it again. Whoever asks for
/// that is not believed: the cluster's state must say that the drive was taken out.
pub async fn let_go(
    node: &NodeHandle,
    keeper: &StateMemberKeeper,
    state: &ClusterState<NodeState>,
    drive: DriveId,
) -> Result<(), Error> {
    let Some(name) = state.removed_drive_name(drive).await.map_err(state_error)? else {
        return Err(Error::new(
            "DRIVE_IN_USE",
            format!("the node does not let go of drive {drive}"),
            "it was not taken out of the pool",
            "take it out with `spandrel drive remove`",
        ));
    };
    match node.let_go_drive(drive).await? {
        LetGo::Done(location) => return forget(keeper, &location),
        LetGo::NotYet => {
            return Err(Error::new(
                "DRIVE_IN_USE",
                format!("the node does not let go of drive {name} yet"),
                "what stands there alone is being moved to the drives that it caches for",
                "leave it where it is: the node lets go of it by itself when that is done",
            ));
        }
        LetGo::NotThere => {}
    }
    // It was missing, or something else stands in its place.
    let settings = keeper.settings();
    let is_called_so = |path: &&String| drive_name(&settings.name, path).as_ref() == Some(&name);
    for path in settings.drives.iter().filter(is_called_so) {
        if is_path_removed(state, &settings, path).await.map_err(state_error)? {
            keeper.change(|settings| settings.forget_drive(path))?;
        }
    }
    Ok(())
}

/// Whether the drive at a path was taken out of the pool. Of one that does not stand there any more only its name tells.
async fn is_path_removed(
    state: &ClusterState<NodeState>,
    settings: &ServerSettings,
    path: &str,
) -> Result<bool, StateError> {
    match identify(path).await {
        Some(identity) if (identity.cluster, identity.node) == (settings.cluster, settings.node) => {
            state.is_drive_removed(identity.drive).await
        }
        _ => is_name_removed(state, settings, path).await,
    }
}

/// Whether a node has a drive in the pool that is called so, or may be, as what it is called is not known: it may be where
/// another one was that had its name.
async fn may_be_in_pool(
    state: &ClusterState<NodeState>,
    node: NodeId,
    name: &str,
) -> Result<bool, StateError> {
    let (drives, caches) = (state.drives().await?, state.cache_drives().await?);
    let records = drives.into_values().chain(caches.into_values()).map(|stored| stored.record);
    let mut own = records.filter(|record| record.node == node);
    Ok(own.any(|record| record.name.is_none_or(|known| known == name)))
}

/// Whether what was called like a drive at this path was taken out of the pool, and nothing in the pool is.
async fn is_name_removed(
    state: &ClusterState<NodeState>,
    settings: &ServerSettings,
    path: &str,
) -> Result<bool, StateError> {
    let Some(name) = drive_name(&settings.name, path) else { return Ok(false) };
    let is_removed = state.removed_drive_names().await?.contains(&name);
    Ok(is_removed && !may_be_in_pool(state, settings.node, &name).await?)
}

/// Forgets the drives of which a shard of the node lets go by itself, as they were taken out of the pool and nobody could tell
/// it: wiped, they would be taken for new ones at the next start. Ends with the shard.
pub async fn forget_let_go(shard: ShardHandle, keeper: Arc<StateMemberKeeper>) {
    while let Ok(locations) = shard.ask(|shard| async move { shard.drives_let_go().await }).await {
        for location in locations {
            // What cannot be written down now is found again with the next start.
            if let Err(error) = forget(&keeper, &location) {
                tracing::error!("{error}");
            }
        }
    }
}

fn forget(keeper: &StateMemberKeeper, location: &str) -> Result<(), Error> {
    let prefix = drive_prefix();
    keeper.change(|settings| {
        let path = location.strip_prefix(&prefix).unwrap_or(location);
        settings.forget_drive(path);
    })
}

/// Forgets drives that were taken out of the pool while this server was away. A cache drive that is there is the node's
/// business: others may have something there yet.
pub async fn forget_removed(
    state: &ClusterState<NodeState>,
    keeper: &StateMemberKeeper,
) -> Result<(), StateError> {
    let settings = keeper.settings();
    for path in &settings.drives {
        if !is_cache(path) && is_path_removed(state, &settings, path).await? {
            tracing::warn!("the drive at {path} was taken out of the pool, and is not used any more");
            // What cannot be written down now is found again with the next start.
            if let Err(error) = keeper.change(|settings| settings.forget_drive(path)) {
                tracing::error!("{error}");
            }
        }
    }
    Ok(())
}

fn is_cache(path: &str) -> bool {
    let identity = spandrel_inspect::identify_path(Path::new(path)).ok().flatten();
    identity.is_some_and(|identity| identity.is_cache)
}

/// Refuses a drive whose name another drive of the node has.
fn check_name(node: &str, drives: &[String], path: &str) -> Result<(), Error> {
    let name = drive_name(node, path);
    let other = drives.iter().find(|known| *known != path && drive_name(node, known) == name);
    let (Some(name), Some(other)) = (name, other) else { return Ok(()) };
    Err(Error::new(
        "DRIVE_NAME_TAKEN",
        format!("{path} cannot become a drive"),
        format!("it would be called {name}, and that is what {other} is called"),
        "name it by another path, such as a link under /dev/disk/by-id, or rename the file",
    ))
}

/// Whether what stands at a path is a drive of this server's node. The cluster may know it then, so the next start must
/// take it.
fn is_drive_of(settings: &ServerSettings, path: &Path) -> bool {
    let identity = spandrel_inspect::identify_path(path).ok().flatten();
    identity.is_some_and(|identity| (identity.cluster, identity.node) == (settings.cluster, settings.node))
}

/// Why a drive was refused, with what this machine knows of it. Where it knows no more, the store's own words stay.
fn explained(mut error: Error, path: &Path) -> Error {
    let known = match &error.code[..] {
        "DRIVE_IN_FOREIGN_USE" => spandrel_inspect::recognize_path(path),
        "DRIVE_NOT_OPENED" => System::here().user(path),
        _ => None,
    };
    if let Some(known) = known {
        error.why = known;
    }
    error
}

/// Notes in the cluster's state what the drives of a node are called, again and again, as an older server may have dropped
/// that: they are called so also while the node is down, whoever is asked. Ends with the node.
pub async fn tell_names(node: NodeHandle, state: ClusterState<NodeState>, node_name: String) {
    let prefix = drive_prefix();
    while let Ok(report) = node.report().await {
        let mut are_noted = true;
        let drives = report.drives.into_iter().filter(|drive| drive.failure.is_none());
        let drives = drives.map(|drive| (drive.drive, DriveRole::Capacity, drive.location));
        let caches = report.caches.into_iter().filter(|drive| drive.failure.is_none());
        let caches = caches.map(|drive| (drive.drive, DriveRole::Cache, drive.location));
        for (id, role, location) in drives.chain(caches) {
            let path = location.strip_prefix(&prefix).unwrap_or(&location);
            if let (Some(id), Some(name)) = (id, drive_name(&node_name, path)) {
                are_noted &= describe(&state, id, role, &name, None).await;
            }
        }
        tokio::time::sleep(if are_noted { NAMES_INTERVAL } else { NAMES_RETRY }).await;
    }
}

/// Notes what a drive is, and returns whether it could. The drive works all the same where this cannot be noted.
async fn describe(
    state: &ClusterState<NodeState>,
    drive: DriveId,
    role: DriveRole,
    name: &str,
    media: Option<MediaClass>,
) -> bool {
    let described = state.describe_drive(drive, role, Some(name), media).await;
    if let Err(error) = &described {
        tracing::warn!(%drive, "what drive {name} is could not be noted: {error}");
    }
    described.is_ok()
}

#[cfg(test)]
#[path = "drives_tests.rs"]
mod tests;
