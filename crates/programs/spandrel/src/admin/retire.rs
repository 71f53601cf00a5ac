//! Retiring drives, one or all of a node: their copies move to others, and they take no new ones. Removing one from the
//! pool, when it is empty.

use std::collections::BTreeSet;

use spandrel_cluster::{DriveRecord, DriveRole, DriveState};
use spandrel_pool::{Demand, Shortage, check_room_without};
use spandrel_shared::{DriveId, Error};

use super::administration::{Administration, unix_ms, unless_conflict};
use super::api::{
    self, DriveRemove, DriveRemoved, DriveRetire, DriveRetired, NodeEvacuate, NodeEvacuated, NodeLetGo,
};
use super::client::is_passing;
use super::named_drive::named_drive;
use super::nodes::NodeAccess;
use super::picture::{Facts, KnownNode};
use super::stakes::Elsewhere;

impl Administration {
    /// Has a drive emptied, or used again. It serves what it holds until that is elsewhere.
    ///
    /// Errors: `DRIVE_NOT_FOUND`, `DRIVE_FAILED` to use one again that was given up, `DRIVE_NEEDED` if it works and the
    /// others have no room for its copies, `LAST_COPY` if it does not work and nobody else has what is on it. A cache drive:
    /// see [`Administration::retire_cache`].
    pub async fn retire_drive(&self, name: &str, request: DriveRetire) -> Result<DriveRetired, Error> {
        let facts = self.facts().await?;
        let (drive, record) = find(&facts, name)?;
        if record.role == DriveRole::Cache {
            return self.retire_cache(&facts, (drive, record), request).await;
        }
        let copies_to_move = if request.undo { 0 } else { facts.room.promised().slabs(drive) };
        let name = &facts.drive_name(drive);
        let mut retired = DriveRetired {
            id: drive,
            name: name.clone(),
            role: DriveRole::Capacity,
            copies_to_move,
            slab_bytes: facts.geometry.slab_bytes(),
            warning: None,
            leaving: Vec::new(),
            dirty_bytes: None,
            at_stake: Vec::new(),
            was_retired: record.state == DriveState::Retired,
            works: facts.is_reachable(drive),
        };
        let state = match (record.state, request.undo) {
            // It is being emptied already. That is decided once more, as a former `--undo` may still be on its way.
            (state @ (DriveState::Failed | DriveState::Retired), false) => state,
            (_, true) => DriveState::Active,
            (DriveState::Active, false) => {
                // What a drive held that does not work is missing already: as much of it as possible is built anew.
                if !facts.is_usable(drive, record) {
                    facts.check_not_last(&format!("drive {name} is not retired"), &[drive].into())?;
                }
                let room = check_room(&facts, &[drive].into());
                match room
                    .map_err(|lack| needed("DRIVE_NEEDED", &format!("drive {name} is not retired"), &lack))
                {
                    Err(refused) if facts.is_usable(drive, record) => return Err(refused),
                    checked => retired.warning = checked.err().map(|shortage| shortage.why),
                }
                DriveState::Retired
            }
        };
        if !request.dry_run {
            unless_conflict(|| self.state().decide_drive(drive, state)).await?;
        }
        Ok(retired)
    }

    /// Has all drives of a node emptied: it is to leave the cluster. They serve what they hold until that is elsewhere.
    /// Each is used again if it is no longer retired.
    ///
    /// Errors: `NODE_NOT_FOUND`, `NOT_A_SERVER`, `COPIES_NOT_COMPARED`, `STATE_MAJORITY_NEEDED`, `NODE_NEEDED` if it may run
    /// and the other nodes have no room for the copies, `LAST_COPY` if some of its drives cannot be reached and nobody
    /// else has what is on them.
    pub async fn evacuate_node(&self, name: &str, request: NodeEvacuate) -> Result<NodeEvacuated, Error> {
        self.server()?;
        let facts = self.facts().await?;
        let node = facts.known_node(name)?;
        facts.check_compared(&format!("node {name} is not taken out of the cluster"))?;
        facts.check_votes_for_ever(node, &self.state_members().await?)?;
        let own = || facts.room.drives.iter().filter(|(_, record)| record.node == node.id);
        let copies_to_move = own().map(|(drive, _)| facts.room.promised().slabs(*drive)).sum();
        let warning = facts.check_evacuation(node)?;
        if !request.dry_run {
            tracing::warn!("the drives of node {name} are emptied");
            for (drive, record) in own() {
                let state = match record.state {
                    DriveState::Active => DriveState::Retired,
                    decided => decided,
                };
                unless_conflict(|| self.state().decide_drive(*drive, state)).await?;
            }
        }
        Ok(NodeEvacuated {
            name: name.to_owned(),
            drives: own().map(|(drive, _)| *drive).collect(),
            copies_to_move,
            slab_bytes: facts.geometry.slab_bytes(),
            warning,
        })
    }

    /// Takes an empty drive out of the pool; its node lets go of it, and does not take it up again.
    ///
    /// Errors: `DRIVE_NOT_FOUND`, `DRIVE_HOLDS_COPIES`, `COPIES_NOT_COMPARED`, `NOT_A_SERVER`. A cache drive: see
    /// [`Administration::remove_cache`].
    pub async fn remove_drive(&self, name: &str, request: DriveRemove) -> Result<DriveRemoved, Error> {
        let server = self.server()?;
        let facts = self.facts().await?;
        let (drive, record) = find(&facts, name)?;
        let name = &facts.drive_name(drive);
        facts.check_compared(&format!("drive {name} is not removed"))?;
        let access = self.access_to(record.node).await?;
        let mut removed = match record.role {
            DriveRole::Cache => self.remove_cache(&facts, (drive, record), &request).await?,
            DriveRole::Capacity => {
                unless_conflict(|| self.state().remove_drive(drive, name, unix_ms(), request.dry_run))
                    .await?;
                let location = facts.drive_report(drive).map(|report| report.location.clone());
                let name = name.clone();
                DriveRemoved { name, role: record.role, gives_up: None, location, warning: None }
            }
        };
        if request.dry_run {
            return Ok(removed);
        }
        tracing::warn!("drive {name} was taken out of the pool");
        let let_go = match access {
            Some(NodeAccess::Here(_)) => server.let_go(drive).await,
            Some(NodeAccess::There(client)) => {
                let told = client.post(api::NODE_LET_GO, &NodeLetGo { drive }).await;
                told.map_err(|error| if is_passing(&error) { not_told(&error.why) } else { error })
            }
            None => Err(not_told("it does not run")),
        };
        // It is done all the same: a node does not take up a drive that was removed.
        removed.warning = let_go.err().map(|Error { what, why, next, .. }| format!("{what}: {why}; {next}"));
        Ok(removed)
    }
}

impl Facts {
    /// Whether all that is on a node's drives can go to others, or be built anew there. What lacks room for that, if the
    /// node is gone: what was there is missing already, and as much of it as possible is built anew.
    fn check_evacuation(&self, node: &KnownNode) -> Result<Option<String>, Error> {
        let what = format!("node {} is not taken out of the cluster", node.name);
        let own = self.room.drives.iter().filter(|(_, record)| record.node == node.id);
        let drives: BTreeSet<DriveId> = own.map(|(drive, _)| *drive).collect();
        let (reached, away): (BTreeSet<DriveId>, BTreeSet<DriveId>) =
            drives.iter().partition(|drive| self.is_reachable(**drive));
        let is_reachable = !reached.is_empty();
        // What is on those that work can be copied from there.
        self.check_not_last(&what, &away)?;
        let holds_copies = drives.iter().any(|drive| self.room.promised().slabs(*drive) > 0);
        let lack = if holds_copies { check_room(self, &drives).err() } else { None };
        match lack.map(|lack| needed("NODE_NEEDED", &what, &lack)) {
            // One that does not answer may do so in a moment.
            Some(refused) if is_reachable || self.may_run(node) => Err(refused),
            lack => Ok(lack.map(|lack| lack.why)),
        }
    }

    /// Refuses to wait for copies to be built anew of which nothing is there to build them from.
    pub(super) fn check_not_last(&self, what: &str, drives: &BTreeSet<DriveId>) -> Result<(), Error> {
        let stakes = self.stakes(drives, &self.volumes);
        if stakes.last.is_empty() {
            return Ok(());
        }
        let volumes = stakes.last.join(", ");
        Err(Error::new(
            "LAST_COPY",
            what,
            format!(
                "{} cannot be reached, and no other copies of parts of {volumes} are whole and can be",
                self.names_of(drives)
            ),
            self.next_for_last(&self.elsewhere(drives)),
        ))
    }

    /// What to do where nothing is there to build copies from. What is deleted cannot come back: nobody is told to do that
    /// as long as another drive has it, or may have.
    fn next_for_last(&self, elsewhere: &Elsewhere) -> String {
        let mut next = "bring it back".to_owned();
        if !elsewhere.whole.is_empty() {
            let others = self.names_of(&elsewhere.whole);
            next = format!(
                "wait for {others}, where other copies are whole, or start what is away; delete nothing before"
            );
        }
        if !elsewhere.nowhere.is_empty() {
            let volumes = elsewhere.nowhere.join(", ");
            if !elsewhere.whole.is_empty() {
                next += "; bring this back, too";
            }
            next += &format!(": no other drive has all that was written to {volumes}");
            if !elsewhere.stale.is_empty() {
                next += &format!("; what {} has of it lacks writes", self.names_of(&elsewhere.stale));
            }
            next += &format!(
                "; if it is gone for good, restore {volumes} from a backup, and delete what is left"
            );
        }
        next
    }

    fn names_of(&self, drives: &BTreeSet<DriveId>) -> String {
        self.sorted_names(drives).join(", ")
    }

    /// Refuses to take drives out of the pool before all copies were compared.
    fn check_compared(&self, what: &str) -> Result<(), Error> {
        let unsettled = self.volumes.iter().filter(|volume| !self.is_settled(volume));
        check_none_waits(what, &unsettled.map(|volume| volume.record.name.clone()).collect::<Vec<_>>())
    }
}

/// Refuses to take drives out of the pool as long as copies of these volumes are to be compared, after the state was put
/// back: it may not know of copies that were built since on just these drives, and nobody would ask for them any more.
pub fn check_none_waits(what: &str, volumes: &[String]) -> Result<(), Error> {
    if volumes.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        "COPIES_NOT_COMPARED",
        what,
        format!(
            "the cluster's state was put back, and which drives have what was written last of {} is not known yet",
            volumes.join(", ")
        ),
        "wait until `spandrel cluster settle` shows no volume that waits: it says for which nodes",
    ))
}

fn not_told(why: &str) -> Error {
    Error::new(
        "NODE_NOT_TOLD",
        "the drive's node was not told",
        why,
        "it lets go of the drive when it learns of it: start it if it does not run",
    )
}

/// The drive of the cluster, of either role, with this name or identity. Errors: `DRIVE_NOT_FOUND`, `DRIVE_NAME_AMBIGUOUS`.
pub fn find<'a>(facts: &'a Facts, name: &str) -> Result<(DriveId, &'a DriveRecord), Error> {
    let drives = facts.room.drives.iter().chain(&facts.caches);
    named_drive(
        drives.map(|(drive, record)| (facts.drive_name(*drive), Some(*drive), (*drive, record))),
        name,
    )
}

/// Whether the other drives have room for all copies of all volumes.
fn check_room(facts: &Facts, drives: &BTreeSet<DriveId>) -> Result<(), Shortage> {
    // What is away for too long is being built elsewhere already, and takes room there.
    let leaving: BTreeSet<DriveId> = facts.drives_left().union(drives).copied().collect();
    let demand = |slabs: u32, copies: u8| Demand { slabs: u64::from(slabs), copies };
    let demands =
        facts.volumes.iter().map(|volume| demand(volume.record.slab_count_grown(), volume.record.copies));
    check_room_without(&facts.pool_view(), &leaving, &demands.collect::<Vec<_>>())
}

fn needed(code: &str, what: &str, shortage: &Shortage) -> Error {
    let Shortage { needed, slabs, copies, room, nodes } = shortage;
    let nodes: Vec<String> = nodes.iter().map(|(node, room)| format!("{node} {room}")).collect();
    Error::new(
        code,
        what,
        format!(
            "the other drives have no room for all copies: of {slabs} slabs with {copies} copies or more there are \
             {needed} copies, no two of a slab on one node; the nodes have room for {room} of these then, counted in slab \
             copies ({})",
            nodes.join(", ")
        ),
        "add drives to these nodes or add a node, or delete volumes; if a drive has failed, replace it first",
    )
}

#[cfg(test)]
#[path = "retire_tests.rs"]
mod tests;
