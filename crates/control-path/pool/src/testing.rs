//! A pool for tests.

use spandrel_shared::{DriveId, NodeId, Place, SlabGeometry};

use crate::view::{DriveRoom, NodeRoom, PoolView};

/// A pool of nodes with drives of these many slabs, all empty.
pub(crate) fn pool<Drives: AsRef<[u32]>>(nodes: &[Drives]) -> PoolView {
    let mut view = PoolView { geometry: SlabGeometry::default(), nodes: Vec::new(), drives: Vec::new() };
    for (number, drives) in (1..).zip(nodes) {
        let node = NodeId::from_bytes([number; 16]);
        view.nodes.push(NodeRoom {
            node,
            name: format!("node-{number}"),
            is_online: true,
            volumes_owned: 0,
            place: Place::default(),
            is_in_maintenance: false,
        });
        for (place, slabs_total) in (1..).zip(drives.as_ref()) {
            let drive = DriveId::from_bytes([number, place, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
            view.drives.push(DriveRoom {
                drive,
                node,
                slabs_total: *slabs_total,
                slabs_used: 0,
                slabs_leaving: 0,
                is_online: true,
            });
        }
    }
    view
}
