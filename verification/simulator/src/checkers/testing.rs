//! Hand-made volumes, drives and reports, for the tests of what judges them.

use std::collections::BTreeMap;

use spandrel_cluster::store::Revision;
use spandrel_cluster::{CopySet, Layout, Member, StateRequests, VolumeMembership, VolumeRecord, VolumeState};
use spandrel_inspect::{
    CopyReport, Damage, DamageKind, Inspection, JournalReport, LiveBlock, SlabLayout, Structure,
    SuperblockReport,
};
use spandrel_node::{DriveReport, LegReport, NodeReport, OwnedVolumeReport};
use spandrel_shared::{
    ClusterId, ConfigurationVersion, CopyId, DriveId, Epoch, NodeId, ProcessIncarnation, SlabGeometry,
    SlabIndex, Version, VolumeId,
};

use crate::nodes::{SLAB_BYTES, node_id};

/// Where data blocks begin on hand-made drives.
pub(crate) const DATA_OFFSET_BYTES: u64 = 1 << 20;

pub(crate) const BLOCK: u64 = 4096;

pub(crate) fn volume_id() -> VolumeId {
    VolumeId::from_random(1, 1)
}

/// The only drive of a server.
pub(crate) fn drive_id(node: usize) -> DriveId {
    DriveId::from_random((node as u64 + 1) << 56, 2)
}

/// A volume whose slabs have a copy on each of the servers named.
pub(crate) fn volume(slabs: &[&[usize]]) -> VolumeMembership {
    let member = |(part, node): (usize, &usize)| Member {
        drive: drive_id(*node),
        copy: CopyId::from_random(3, *node as u64),
        part: part as u8,
        building: false,
    };
    let set = |nodes: &&[usize]| CopySet {
        layout: Layout::Copies { copies: nodes.len() as u8 },
        members: nodes.iter().enumerate().map(member).collect(),
    };
    let nodes = slabs.iter().flat_map(|nodes| nodes.iter());
    let nodes: BTreeMap<DriveId, NodeId> = nodes.map(|node| (drive_id(*node), node_id(*node))).collect();
    VolumeMembership {
        volume: volume_id(),
        record: VolumeRecord {
            name: "v".to_owned(),
            size_bytes: SLAB_BYTES * slabs.len() as u64,
            grows_to_bytes: None,
            copies: 2,
            write_copies_min: 1,
            slab_bytes: SlabGeometry::new(SLAB_BYTES).expect("a slab size"),
            owner: None,
            preferred_owner: None,
            writer: None,
            epoch: Epoch(1),
            configuration: ConfigurationVersion(1),
            state: VolumeState::Ready,
            iops_limit: None,
            is_pinned: false,
            generation: 0,
            growth: None,
            is_growth_given_up: false,
            created_unix_ms: 0,
        },
        revision: Revision(1),
        sets: slabs.iter().map(set).collect(),
        to_come: Vec::new(),
        marks: BTreeMap::new(),
        room: Default::default(),
        lost: Default::default(),
        nodes,
        read_at: Revision(1),
    }
}

/// The volume, with the copies of a server marked stale.
pub(crate) fn marked(mut volume: VolumeMembership, node: usize) -> VolumeMembership {
    volume.marks.insert(drive_id(node), Version::ZERO);
    volume
}

/// What a reader finds on an empty drive that is whole.
pub(crate) fn inspection(node: usize) -> Inspection {
    Inspection {
        path: format!("n{}", node + 1).into(),
        size_bytes: 2 * DATA_OFFSET_BYTES,
        was_in_use: true,
        superblock: SuperblockReport {
            format_version: 1,
            cluster: ClusterId::from_random(9, 9),
            node: node_id(node),
            drive: drive_id(node),
            sector_bytes: 512,
            size_bytes: 2 * DATA_OFFSET_BYTES,
            slab_bytes: SLAB_BYTES,
            copies_max: 3,
            data_offset_bytes: DATA_OFFSET_BYTES,
            created_unix_ms: 0,
        },
        superblock_copies: Vec::new(),
        root: None,
        cache: None,
        root_slots: Vec::new(),
        journal: JournalReport::default(),
        volumes: Vec::new(),
        copies: Vec::new(),
        blocks_checked: 0,
        damage: Vec::new(),
        structures: Vec::new(),
        blocks: Vec::new(),
    }
}

/// A copy of a slab on a drive.
pub(crate) fn copy_report(slab: u32) -> CopyReport {
    CopyReport {
        volume: volume_id(),
        slab: SlabIndex(slab),
        copy: CopyId::from_random(3, 1),
        layout: SlabLayout { kind: 0, data: 2, parity: 0, part: 0 },
        birth: Version::ZERO,
        newest: Version::ZERO,
        proven: None,
        mapped_blocks: 0,
        lost_blocks: 0,
        damaged_blocks: 0,
        pages: Vec::new(),
    }
}

/// A block of a slab, which stands in a block of the drive behind the first of the data.
pub(crate) fn live_block(slab: u32, block: u32, place: u64) -> LiveBlock {
    LiveBlock {
        volume: volume_id(),
        slab: SlabIndex(slab),
        block,
        offset_bytes: DATA_OFFSET_BYTES + place * BLOCK,
        in_last_group: false,
    }
}

/// A page of a map.
pub(crate) fn map_page(offset_bytes: u64) -> Structure {
    Structure {
        kind: DamageKind::Leaf,
        offset_bytes,
        length_bytes: BLOCK,
        volume: Some(volume_id()),
        slab: Some(SlabIndex(0)),
        page: Some(0),
        sequence: None,
    }
}

/// Damage to a block.
pub(crate) fn damage(by_crash: bool) -> Damage {
    Damage {
        kind: DamageKind::Data,
        offset_bytes: Some(DATA_OFFSET_BYTES),
        length_bytes: BLOCK,
        volume: Some(volume_id()),
        slab: Some(SlabIndex(0)),
        page: Some(0),
        block: Some(3),
        blocks: 1,
        sequence: None,
        by_crash,
        detail: "block 3 is bad".to_owned(),
    }
}

/// The copies on a server's only drive, as an owner sees them.
pub(crate) fn leg(node: usize, state: &str) -> LegReport {
    LegReport {
        drive: drive_id(node),
        node: node_id(node),
        is_building: false,
        state: state.to_owned(),
        is_silent: false,
        resync_pages: None,
        resync_copied_bytes: 0,
        resync_ms: 0,
    }
}

/// An ownership in epoch 1 of the hand-made volume.
pub(crate) fn owned(is_serving: bool, legs: Vec<LegReport>) -> OwnedVolumeReport {
    OwnedVolumeReport {
        volume: volume_id(),
        shard: 0,
        epoch: Epoch(1),
        is_serving,
        waits_for: None,
        writer: None,
        legs,
        copies_without_place: 0,
        reads: 0,
        writes: 0,
        read_bytes: 0,
        write_bytes: 0,
        blocks_read_elsewhere: 0,
        blocks_healed: 0,
        legs_marked: 0,
        legs_promoted: 0,
        blocks_rolled_forward: 0,
        blocks_resynced: 0,
        scrub: None,
    }
}

/// What a server says of itself that has one drive.
pub(crate) fn report(node: usize, owned: Vec<OwnedVolumeReport>) -> NodeReport {
    NodeReport {
        node: node_id(node),
        name: format!("n{}", node + 1),
        incarnation: ProcessIncarnation::from_random(1, 1),
        further_incarnations: Vec::new(),
        nbd_addresses: Vec::new(),
        nbd_connections: 0,
        started_unix_ms: None,
        peers: Vec::new(),
        reachable: Vec::new(),
        alive: Vec::new(),
        drives_away: Vec::new(),
        drives_slow: Vec::new(),
        state_requests: StateRequests::default(),
        drives: vec![DriveReport { drive: Some(drive_id(node)), ..DriveReport::default() }],
        caches_away: Vec::new(),
        caches: Vec::new(),
        owned,
        vms: Vec::new(),
    }
}
