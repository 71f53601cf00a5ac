//! Where the servers stand, and that copies are kept apart accordingly: as soon as nothing else happens, what is closer
//! together than it could be moves by itself.

use std::collections::BTreeMap;

use spandrel_cluster::records::decode;
use spandrel_cluster::store::Selection;
use spandrel_cluster::{
    DriveRecord, DriveState, NodeRecord, SettingsRecord, StateKey, Stored, VolumeMembership,
};
use spandrel_shared::DriveId;

use super::{Finding, Run, finding};
use crate::checkers::apart::{self, PoolDrive};
use crate::shape::Shape;

/// After so long all nodes know of what was set for the pool, and whatever they had begun by then has begun.
const SETTLED_MS: u64 = 3000;

impl Run<'_> {
    /// Says where each server stands, before there are volumes.
    pub(super) fn label_servers(&mut self) {
        for (index, labels) in self.plan.shape.labels.iter().enumerate() {
            self.nodes.label(index, labels.place());
        }
        self.nodes.run_until(|| !self.nodes.is_deciding());
    }

    /// In pools that keep themselves, copies go to where they are as far apart as there is room. Others leave what they
    /// hold where it is.
    pub(super) fn await_apart(&mut self) -> Result<(), Finding> {
        if !self.plan.shape.keeps_itself() || self.plan.shape.domains.is_none() {
            return Ok(());
        }
        self.nodes.change_settings(|set| {
            *set = SettingsRecord { balance: true, ..Shape::settings_at_rest() };
        });
        self.await_nothing_lacking(Self::too_close)?;
        self.nodes.change_settings(|set| *set = Shape::settings_at_rest());
        self.advance(SETTLED_MS)?;
        let present = self.present();
        self.await_nothing_lacking(|run| run.lacking(&present))
    }

    /// What any volume lacks, or which copy could be farther from others.
    fn too_close(&self) -> Result<Option<String>, Finding> {
        let present = self.present();
        if let Some(lacking) = self.lacking(&present)? {
            return Ok(Some(lacking));
        }
        let volumes = self.memberships()?;
        Ok(apart::check(&volumes, &self.pool_drives(&volumes)?).err())
    }

    /// The drives of the pool, as the cluster's state has them.
    fn pool_drives(&self, volumes: &[VolumeMembership]) -> Result<BTreeMap<DriveId, PoolDrive>, Finding> {
        let present = self.present();
        let known = volumes.iter().flat_map(|volume| &volume.nodes);
        let mut drives = BTreeMap::new();
        for (drive, node) in known {
            let keys = [StateKey::Drive(*drive), StateKey::Node(*node)].map(|key| Selection::key(&key.key()));
            let snapshot = self.nodes.state.inspect(&keys);
            let (Some(of_drive), Some(of_node)) = (snapshot.entry(0), snapshot.entry(1)) else { continue };
            let in_state = |error: spandrel_shared::Error| finding("state")(error.to_string());
            let record: Stored<DriveRecord> = decode(of_drive).map_err(in_state)?;
            let server: Stored<NodeRecord> = decode(of_node).map_err(in_state)?;
            drives.insert(
                *drive,
                PoolDrive {
                    node: *node,
                    place: server.record.place,
                    slabs_max: record.record.slabs_promised_max,
                    is_usable: record.record.state == DriveState::Active && present.contains(drive),
                },
            );
        }
        Ok(drives)
    }
}
