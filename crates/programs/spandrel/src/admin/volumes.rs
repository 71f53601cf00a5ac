//! Making, moving, growing and deleting volumes.

use std::time::{Duration, Instant};

use spandrel_cluster::VolumeSettings;
use spandrel_cluster::vms::disk_of;
use spandrel_node::{VolumeCreation, VolumeGrowth};
use spandrel_shared::size::format_size;
use spandrel_shared::{DriveId, Error, GrowthId, IopsLimit, VolumeId};

use super::administration::{Administration, state_error, unless_conflict, volume_not_found};
use super::api::{
    DriveCopies, NewSize, VolumeCreate, VolumeCreateAnswer, VolumeDeletion, VolumeResize, VolumeResized,
    VolumeSettingsChange, VolumeStatus,
};
use super::nodes::NodeAccess;
use crate::random::random;

/// How often, and with what pause, a volume's owner is looked for.
pub(super) const OWNER_TRIES: u32 = 100;
pub(super) const OWNER_PAUSE: Duration = Duration::from_millis(100);

/// For how long, and with what pause, it is looked whether a client that leaves is gone.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(1);
const LEAVE_PAUSE: Duration = Duration::from_millis(50);

impl Administration {
    /// Has another node own a volume. Clients go on.
    pub async fn move_volume(&self, name: &str, to: &str) -> Result<VolumeStatus, Error> {
        let to = self.entry(to).await?;
        let id = self.state().volume_by_name(name).await.map_err(state_error)?;
        let id = id.ok_or_else(|| volume_not_found(name))?;
        let to = to.id;
        let hand_over = |owner: NodeAccess| async move { owner.hand_over(id, to).await };
        self.by_owner((name, id), "moved", hand_over).await?;
        self.volume(name).await
    }

    /// Sets what a volume's clients may do at most, and whether it follows them.
    ///
    /// Errors: `VOLUME_NOT_FOUND`, `IOPS_LIMIT_INVALID`.
    pub async fn set_volume(&self, name: &str, change: VolumeSettingsChange) -> Result<VolumeStatus, Error> {
        let id = self.state().volume_by_name(name).await.map_err(state_error)?;
        let id = id.ok_or_else(|| volume_not_found(name))?;
        unless_conflict(|| self.state().set_volume(id, |settings| changed(name, settings, &change))).await?;
        self.volume(name).await
    }

    /// Makes a volume larger, or only says what that would do. Clients go on.
    pub async fn resize_volume(&self, name: &str, resize: VolumeResize) -> Result<VolumeResized, Error> {
        let VolumeStatus { id, size_bytes: former_bytes, .. } = self.volume(name).await?;
        // Decided once: whoever owns the volume next is asked for the same.
        let (size_bytes, reckoned_from) = match resize.size {
            NewSize::SizeBytes(size_bytes) => (size_bytes, None),
            NewSize::AddBytes(more) => (former_bytes.saturating_add(more), Some(former_bytes)),
        };
        let growth = VolumeGrowth {
            volume: id,
            size_bytes,
            former_bytes: reckoned_from,
            id: GrowthId::from_random(random(), random()),
            dry_run: resize.dry_run,
        };
        let grow = |owner: NodeAccess| async move { owner.grow_volume(growth).await };
        let grown = self.by_owner((name, id), "made larger", grow).await?;
        let facts = self.facts().await?;
        let on =
            |(drive, slabs): (&DriveId, &u64)| DriveCopies { drive: facts.drive_name(*drive), slabs: *slabs };
        Ok(VolumeResized {
            volume: self.volume(name).await?,
            former_bytes,
            size_bytes,
            slabs: grown.slabs,
            copies: grown.copies.iter().map(on).collect(),
            warnings: grown.warnings.iter().map(ToString::to_string).collect(),
        })
    }

    /// Has a volume's owner do something that is the same once and twice. If the owner changes meanwhile, the next one is
    /// asked.
    async fn by_owner<T, F>(
        &self,
        (name, id): (&str, VolumeId),
        wanted: &str,
        ask: impl Fn(NodeAccess) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        for _ in 0..OWNER_TRIES {
            if let Some(access) = self.owner_of(name, id).await? {
                match ask(access).await {
                    Err(error) if is_of_a_lost_owner(&error) => {}
                    outcome => return outcome,
                }
            }
            tokio::time::sleep(OWNER_PAUSE).await;
        }
        Err(volume_not_served(name, wanted))
    }

    /// What is known of a volume.
    pub async fn volume(&self, name: &str) -> Result<VolumeStatus, Error> {
        let volumes = self.facts().await?.volumes();
        volumes.into_iter().find(|volume| volume.name == name).ok_or_else(|| volume_not_found(name))
    }

    /// How a volume's owner is reached, if it has one that runs.
    pub(super) async fn owner_of(&self, name: &str, id: VolumeId) -> Result<Option<NodeAccess>, Error> {
        let membership = self.state().membership(id).await.map_err(state_error)?;
        let owner = membership.ok_or_else(|| volume_not_found(name))?.record.owner;
        let nodes = self.nodes.list().await?;
        Ok(owner.and_then(|owner| nodes.into_iter().find(|node| node.id == owner.shard.node)?.access))
    }

    /// Has the first node do something that can be reached, one of this process if there is one.
    async fn by_any_node<T, F>(&self, ask: impl Fn(NodeAccess) -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let mut running: Vec<NodeAccess> =
            self.nodes.list().await?.into_iter().filter_map(|node| node.access).collect();
        running.sort_by_key(|access| matches!(access, NodeAccess::There(_)));
        let mut outcome = Err(Error::new(
            "NODE_NOT_RUNNING",
            "no node can do this",
            "all of them are stopped",
            "start one with `spandrel node start`",
        ));
        for access in running {
            outcome = ask(access).await;
            // Nothing was sent to one that is not reached.
            if !outcome.as_ref().is_err_and(|error| error.code == "CLUSTER_NOT_REACHED") {
                break;
            }
        }
        outcome
    }

    /// Makes a volume.
    pub async fn create_volume(&self, create: VolumeCreate) -> Result<VolumeCreateAnswer, Error> {
        let owner = match &create.owner {
            Some(owner) => Some(self.entry(owner).await?.id),
            None => None,
        };
        let creation =
            VolumeCreation { name: create.name, size_bytes: create.size_bytes, copies: create.copies, owner };
        let name = creation.name.clone();
        let ask = |node: NodeAccess| {
            let creation = creation.clone();
            async move { node.create_volume(creation).await }
        };
        let created = self.by_any_node(ask).await?;
        Ok(VolumeCreateAnswer {
            volume: self.volume(&name).await?,
            warnings: created.warnings.iter().map(ToString::to_string).collect(),
        })
    }

    /// What deleting a volume would do.
    pub async fn volume_deletion(&self, name: &str) -> Result<VolumeDeletion, Error> {
        let against = match self.check_no_disk(name).await {
            Err(error) => Some(error),
            Ok(()) => self.await_unused(name).await.err(),
        };
        let facts = self.facts().await?;
        let volume = facts.volumes().into_iter().find(|volume| volume.name == name);
        let volume = volume.ok_or_else(|| volume_not_found(name))?;
        let known = facts.volumes.iter().find(|known| known.volume == volume.id);
        let sets = known.into_iter().flat_map(|known| known.sets.iter().chain(&known.to_come));
        let copies: usize = sets.map(|set| set.members.len()).sum();
        let freed_bytes = copies as u64 * facts.geometry.slab_bytes();
        Ok(VolumeDeletion { volume, freed_bytes, against })
    }

    /// Deletes a volume; with `force` also if a client has it open for writing.
    pub async fn delete_volume(&self, name: &str, force: bool) -> Result<(), Error> {
        self.check_no_disk(name).await?;
        if !force {
            self.await_unused(name).await?;
        }
        let ask = |node: NodeAccess| {
            let name = name.to_owned();
            async move { node.delete_volume(name).await }
        };
        self.by_any_node(ask).await?;
        Ok(())
    }

    /// Refuses to delete a volume that is the disk of a virtual machine, also one that is off.
    async fn check_no_disk(&self, name: &str) -> Result<(), Error> {
        let Some(id) = self.state().volume_by_name(name).await.map_err(state_error)? else { return Ok(()) };
        match self.state().vm_of_disk(id).await.map_err(state_error)? {
            Some(vm) => Err(disk_of(name, &vm, "is not deleted")),
            None => Ok(()),
        }
    }

    /// Waits a moment for a client that is just leaving the volume. An error if one stays.
    async fn await_unused(&self, name: &str) -> Result<(), Error> {
        let deadline = Instant::now() + LEAVE_TIME_MAX;
        loop {
            let facts = self.facts().await?;
            let volume = facts.volumes().into_iter().find(|volume| volume.name == name);
            let Some(writer) = volume.ok_or_else(|| volume_not_found(name))?.writer else { return Ok(()) };
            if Instant::now() >= deadline {
                let (why, next) = match facts.known_node(&writer)?.report {
                    Some(_) => (
                        format!("a client of node {writer} has it open for writing"),
                        "disconnect the client, or delete it all the same with --force",
                    ),
                    None => (
                        format!(
                            "a client of node {writer} may write to it: that node runs, or has run until some \
                                 seconds ago, and does not answer"
                        ),
                        "try again when the node answers or is known to be gone (`spandrel node list`), or delete it \
                         all the same with --force",
                    ),
                };
                return Err(Error::new("VOLUME_IN_USE", format!("volume {name} is not deleted"), why, next));
            }
            tokio::time::sleep(LEAVE_PAUSE).await;
        }
    }

    /// The names of all volumes.
    pub async fn volume_names(&self) -> Result<Vec<String>, Error> {
        Ok(self.facts().await?.volumes().into_iter().map(|volume| volume.name).collect())
    }
}

/// Whether an error means that the owner that was asked is it no more: the next one is asked then.
pub(super) fn is_of_a_lost_owner(error: &Error) -> bool {
    let codes = ["NOT_OWNER", "NODE_STOPPED", "NODE_NOT_RUNNING", "ANSWER_BROKEN", "CLUSTER_NOT_REACHED"];
    codes.contains(&error.code.as_str())
}

/// The error that an owner was waited for in vain.
pub(super) fn volume_not_served(name: &str, wanted: &str) -> Error {
    Error::new(
        "VOLUME_NOT_SERVED",
        format!("volume {name} cannot be {wanted}"),
        format!("for {} s no node served it", (OWNER_PAUSE * OWNER_TRIES).as_secs()),
        "look at it with `spandrel volume get`, and start the nodes that hold its copies",
    )
}

/// What is set of a volume, after a change.
fn changed(
    name: &str,
    settings: VolumeSettings,
    change: &VolumeSettingsChange,
) -> Result<VolumeSettings, Error> {
    let is_limit_meant = change.iops_max.is_some() || change.normalized_bytes.is_some();
    Ok(VolumeSettings {
        iops_limit: match is_limit_meant {
            true => changed_limit(name, settings.iops_limit, change)?,
            false => settings.iops_limit,
        },
        is_pinned: change.pinned.unwrap_or(settings.is_pinned),
    })
}

/// The limit of a volume that has `present`, after a change.
fn changed_limit(
    name: &str,
    present: Option<IopsLimit>,
    change: &VolumeSettingsChange,
) -> Result<Option<IopsLimit>, Error> {
    let refuse = |why: String, next: &str| {
        let what = format!("the limit of volume {name} stays as it is");
        Err(Error::new("IOPS_LIMIT_INVALID", what, why, next))
    };
    let Some(iops_max) = change.iops_max.or(present.map(|limit| limit.iops_max)) else {
        return refuse(
            "its clients are not limited, so there is nothing that sizes could count for".to_owned(),
            "say how many I/Os a second they may do, with --iops-max",
        );
    };
    if iops_max == 0 {
        return Ok(None);
    }
    let present = present.map(|limit| limit.normalized_bytes);
    let normalized_bytes = change.normalized_bytes.or(present).unwrap_or(IopsLimit::NORMALIZED_BYTES_DEFAULT);
    let limit = IopsLimit { iops_max, normalized_bytes };
    if limit.is_valid() {
        return Ok(Some(limit));
    }
    refuse(
        format!(
            "{iops_max} I/Os a second, counted by {}, cannot be held",
            format_size(normalized_bytes.into())
        ),
        "give 1 to 100,000,000 I/Os a second, counted by 1 KiB or more; 0 ends a limit",
    )
}

#[cfg(test)]
#[path = "volumes_tests.rs"]
mod tests;
