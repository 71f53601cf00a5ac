//! What the cluster's state learns of a node's drives, and the drives of the state.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use spandrel_cluster::store::{Expected, StateStore};
use spandrel_cluster::{DriveRecord, StateKey, StateStamp};
use spandrel_platform::Platform;
use spandrel_shared::{DriveId, Error};

use super::let_go;
use crate::caches;
use crate::node::NodeInner;
use crate::parts::NodeParts;
use crate::stubborn::retry;

/// How often what was found on the drives is told to the cluster's state.
const TELL_INTERVAL: Duration = Duration::from_secs(1);

/// Tells the cluster's state what the drives know, and the drives what the state knows, now and then. Never completes.
pub(crate) async fn keep_told<P: Platform, S: StateStore>(node: Rc<NodeInner<P, S>>) {
    let parts = &node.parts;
    loop {
        parts.platform.sleep(TELL_INTERVAL).await;
        caches::follow_settings(parts);
        tell_damage(parts, &node.damage_told).await;
        tell_stamp(parts);
        let_go_of_removed(&node).await;
    }
}

/// Lets go of drives that were taken out of the pool, if nobody could tell this node.
async fn let_go_of_removed<P: Platform, S: StateStore>(node: &NodeInner<P, S>) {
    let drives: Vec<DriveId> =
        node.drives.borrow().iter().filter_map(|drive| Some(drive.superblock.as_ref()?.drive)).collect();
    for drive in drives {
        // The state is asked about those alone that it does not show any more, or not yet.
        let is_shown = node.parts.view.drives.borrow().contains_key(&drive);
        if !is_shown && matches!(node.parts.state.is_drive_removed(drive).await, Ok(true)) {
            tracing::warn!(%drive, "the drive was taken out of the pool, and is not used any more");
            if let Some(location) = let_go(node, drive).await {
                node.let_go.borrow_mut().push(location);
                node.drives_changed.notify_all();
            }
        }
    }
}

/// Tells the drives how new the state is.
pub(crate) fn tell_stamp<P: Platform, S: StateStore>(parts: &NodeParts<P, S>) {
    let Some(revision) = parts.view.changed_for_good() else { return };
    let stamp = StateStamp::new(parts.cluster.generation, revision);
    for store in parts.replica.drives() {
        store.note_state_revision(stamp.0);
    }
}

/// Adds what was found since the last time to what the state counts. `told` is what was added so
/// far, by drive.
pub(crate) async fn tell_damage<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    told: &RefCell<BTreeMap<DriveId, u64>>,
) {
    for store in parts.replica.drives() {
        let drive = store.drive_id();
        let statistics = store.statistics();
        let found = statistics.blocks_damaged + statistics.structures_damaged;
        // A store that was attached anew begins to count anew.
        let before = told.borrow().get(&drive).copied().filter(|before| *before <= found).unwrap_or(0);
        if found == before {
            continue;
        }
        let key = StateKey::Drive(drive);
        let Ok(Some(stored)) = parts.state.get::<DriveRecord>(&key).await else { continue };
        let mut record = stored.record;
        record.damage.checksum_failures += found - before;
        // Counted twice at worst, if the outcome of this is unknown: it is advice, not truth.
        if parts.state.put(&key, Expected::ModifiedAt(stored.revision), record).await.is_ok() {
            told.borrow_mut().insert(drive, found);
        }
    }
}

/// Makes sure that the cluster's state knows a drive, as this if it does not yet. Returns what it knows.
pub(crate) async fn know_drive<P: Platform, S: StateStore>(
    parts: &NodeParts<P, S>,
    drive: DriveId,
    record: DriveRecord,
) -> Result<DriveRecord, Error> {
    let known = retry(parts, || parts.state.add_drive(drive, record.clone())).await?;
    Ok(known.record)
}
