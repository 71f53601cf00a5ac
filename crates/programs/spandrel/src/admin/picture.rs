//! From the facts that the cluster's state and its nodes tell to what the API says.
//!
//! Nothing here asks anybody anything: all facts are in [`Facts`], gathered before. They may be of
//! slightly different moments, so what they say of each other need not fit exactly.

use std::collections::{BTreeMap, BTreeSet};

use spandrel_cluster::{
    DriveRecord, DriveState, Member, NodeRecord, PoolRoom, ScrubRecord, SettingsRecord, VolumeMembership,
    VolumeRecord,
};
use spandrel_fleet::Target;
use spandrel_health::{
    CopyFacts, DriveFacts, DriveTrouble, NodeFacts, PoolFacts, Status, VolumeFacts, drive, node, pool, volume,
};
use spandrel_node::{
    DriveReport, DriveSlow, LegReport, NodeReport, OwnedVolumeReport, PathReport, PeerReport, drive_room,
};
use spandrel_platform::Address;
use spandrel_pool::{NodeRoom, PoolView, Space, UNEVEN_PER_MILLE, spread_per_mille};
use spandrel_shared::{BLOCK_BYTES, DriveId, Error, NodeId, SlabGeometry, VolumeId};
use spandrel_volume::LegId;

use crate::admin::administration::node_not_found;
use crate::admin::api::{
    DriveStatus, Export, LegStatus, Maintenance, NodeDetails, NodeStatus, PathStatus, PeerStatus, PoolStatus,
    Progress, ShardShare, StateRole, Traffic, VolumeStatus,
};
use crate::admin::caches::{bound_to, memory_of_drive};
use crate::admin::pool::{is_too_close, is_uneven};

/// All that is known at one moment.
pub struct Facts {
    /// The nodes, in the order of their numbers.
    pub nodes: Vec<KnownNode>,
    /// The names of drives by their identities, as far as any node has told them.
    pub drive_names: BTreeMap<DriveId, String>,
    /// The pool's drives and what is promised on them.
    pub room: PoolRoom,
    /// The cache drives.
    pub caches: BTreeMap<DriveId, DriveRecord>,
    /// The volumes with their copies, those that are being deleted left out.
    pub volumes: Vec<VolumeMembership>,
    /// How far the scrubs of volumes are, as far as their owners have written that down.
    pub scrubs: BTreeMap<VolumeId, ScrubRecord>,
    /// How the pool keeps itself; the defaults if that is among what is unreadable.
    pub settings: SettingsRecord,
    /// What of the cluster's state is there and could not be read.
    pub unreadable: Vec<Error>,
    /// When all this was asked.
    pub gathered_unix_ms: u64,
    /// The pool's slab size.
    pub geometry: SlabGeometry,
    /// Whether the nodes are servers of their own, and not threads of one process.
    pub are_servers: bool,
    /// The generation of the cluster's state. The marks of a volume of an older one say nothing yet.
    pub generation: u32,
}

/// A node, and what it says of itself.
pub struct KnownNode {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: NodeId,
    /// What the cluster's state holds of it; none before its first start.
    pub record: Option<NodeRecord>,
    /// Where it serves NBD: the unix socket first.
    pub nbd_addresses: Vec<Address>,
    /// Whether it runs as far as is known without asking it.
    pub is_alive: bool,
    /// `None` if it does not run or did not answer.
    pub report: Option<NodeReport>,
}

impl KnownNode {
    /// Since when it is in maintenance, if it is.
    pub fn maintenance_since_unix_ms(&self) -> Option<u64> {
        self.record.as_ref().and_then(|record| record.maintenance_since_unix_ms)
    }

    /// The names of those volumes that it owns, by what it says or by what the cluster's state says: that one has died
    /// does not mean that another one has taken its volumes.
    pub fn volumes_of<'a>(&self, volumes: impl Iterator<Item = (VolumeId, &'a VolumeRecord)>) -> Vec<String> {
        let reported = self.report.iter().flat_map(|report| &report.owned);
        let reported: BTreeSet<VolumeId> = reported.map(|owned| owned.volume).collect();
        let has = |volume: &VolumeId, record: &VolumeRecord| {
            record.owner.is_some_and(|owner| owner.shard.node == self.id) || reported.contains(volume)
        };
        let owned = volumes.filter(|(volume, record)| has(volume, record));
        let mut names: Vec<String> = owned.map(|(_, record)| record.name.clone()).collect();
        names.sort_by_key(|name| natural_order(name));
        names
    }
}

impl Facts {
    /// The pool as the API shows it.
    pub fn pool(&self) -> PoolStatus {
        // One that is on its way out serves what it holds.
        let usable =
            self.room.drives.keys().filter(|drive| self.is_reachable(**drive) && !self.is_given_up(**drive));
        let usable = usable.count();
        let facts = PoolFacts { drives: self.room.drives.len(), drives_usable: usable };
        let space = Space::of(&self.pool_view());
        let slab_bytes = self.geometry.slab_bytes();
        let with_drives = space.nodes.len();
        let copies_default = match with_drives {
            0 | 1 => 1,
            2 => 2,
            _ => 3,
        };
        PoolStatus {
            status: pool::status(&facts),
            slab_bytes,
            total_bytes: space.total() * slab_bytes,
            promised_bytes: space.used() * slab_bytes,
            free_bytes: space.free() * slab_bytes,
            reserve_bytes: space.reserve * slab_bytes,
            copies_default,
            volume_bytes_max: space.usable_slabs(copies_default) * slab_bytes,
        }
    }

    /// The pool, to make plans by.
    pub fn pool_view(&self) -> PoolView {
        let node = |known: &KnownNode| NodeRoom {
            node: known.id,
            name: known.name.clone(),
            is_online: known.report.is_some(),
            volumes_owned: known.report.as_ref().map_or(0, |report| report.owned.len() as u32),
            place: known.record.as_ref().map(|record| record.place.clone()).unwrap_or_default(),
            is_in_maintenance: known.maintenance_since_unix_ms().is_some(),
        };
        let drive = |(drive, record): (&DriveId, &DriveRecord)| {
            drive_room(*drive, record, self.room.promised(), self.is_reachable(*drive))
        };
        PoolView {
            geometry: self.geometry,
            nodes: self.nodes.iter().map(node).collect(),
            drives: self.room.drives.iter().map(drive).collect(),
        }
    }

    /// Whether new copies may be placed on a drive.
    pub fn is_usable(&self, drive: DriveId, record: &DriveRecord) -> bool {
        record.state == DriveState::Active && self.is_reachable(drive)
    }

    /// Whether a drive works, as its node says.
    pub fn is_reachable(&self, drive: DriveId) -> bool {
        self.drive_report(drive).is_some_and(|report| report.failure.is_none())
    }

    /// The legs of a volume that can be used: their drives work, and the volume's owner does not wait for their nodes.
    pub fn answering(&self, volume: &VolumeMembership) -> BTreeSet<LegId> {
        let owner = self.owner(volume);
        let legs: BTreeSet<LegId> = volume.sets.iter().flat_map(|set| &set.members).map(leg_id).collect();
        let answers = |leg: &LegId| {
            self.is_reachable(leg.drive) && leg_of(owner, *leg).is_none_or(|told| !told.is_silent)
        };
        legs.into_iter().filter(answers).collect()
    }

    pub(super) fn drive_report(&self, drive: DriveId) -> Option<&DriveReport> {
        let mut drives =
            self.nodes.iter().filter_map(|node| node.report.as_ref()).flat_map(|report| &report.drives);
        drives.find(|report| report.drive == Some(drive))
    }

    pub(super) fn node_name(&self, id: NodeId) -> String {
        let known = self.nodes.iter().find(|node| node.id == id);
        known.map_or_else(|| id.to_string(), |node| node.name.clone())
    }

    /// A drive's name, or the first digits of its identity if nobody has told one.
    pub fn drive_name(&self, drive: DriveId) -> String {
        let name = self.drive_names.get(&drive).cloned();
        name.unwrap_or_else(|| drive.to_string().chars().take(8).collect())
    }

    /// The nodes as the API shows them.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        self.nodes.iter().map(|node| self.node(node)).collect()
    }

    fn node(&self, known: &KnownNode) -> NodeStatus {
        let running = |node: &&KnownNode| node.report.is_some() && node.id != known.id;
        let maintenance = known
            .maintenance_since_unix_ms()
            .map(|since_unix_ms| Maintenance { since_unix_ms, volumes_left: self.volumes_with(known) });
        let facts = NodeFacts {
            is_running: known.report.is_some(),
            nodes_reached: known.report.as_ref().map_or(0, |report| report.reachable.len()),
            nodes_running: self.nodes.iter().filter(running).count(),
            is_in_maintenance: maintenance.is_some(),
            owns_volumes: maintenance.as_ref().is_some_and(|left| !left.volumes_left.is_empty()),
        };
        let drives = self.room.drives.iter().filter(|(_, record)| record.node == known.id);
        let owned = known.report.iter().flat_map(|report| &report.owned);
        let name_of = |id: VolumeId| self.volumes.iter().find(|volume| volume.volume == id);
        NodeStatus {
            name: known.name.clone(),
            id: known.id,
            status: node::status(&facts),
            nbd_addresses: known.nbd_addresses.iter().map(ToString::to_string).collect(),
            drives: drives.clone().count() as u32,
            drives_usable: drives.filter(|(drive, record)| self.is_usable(**drive, record)).count() as u32,
            volumes_owned: owned
                .filter_map(|owned| name_of(owned.volume))
                .map(|volume| volume.record.name.clone())
                .collect(),
            maintenance,
            connections: known.report.as_ref().map_or(0, |report| report.nbd_connections),
            state_requests: known
                .report
                .as_ref()
                .map_or_else(Default::default, |report| report.state_requests),
        }
    }

    /// The names of the volumes that a node owns.
    pub fn volumes_with(&self, known: &KnownNode) -> Vec<String> {
        known.volumes_of(self.volumes.iter().map(|volume| (volume.volume, &volume.record)))
    }

    /// The node called `name`.
    pub fn known_node(&self, name: &str) -> Result<&KnownNode, Error> {
        self.nodes.iter().find(|node| node.name == name).ok_or_else(|| {
            let names: Vec<String> = self.nodes.iter().map(|node| node.name.clone()).collect();
            node_not_found(name, &names)
        })
    }

    /// Everything that is known of a node, and how it takes part in keeping the state.
    pub fn node_details(&self, known: &KnownNode, state_role: Option<StateRole>) -> NodeDetails {
        let (record, report) = (known.record.as_ref(), known.report.as_ref());
        let drives = self.drives().into_iter().filter(|drive| drive.node == known.name);
        let (mut promisable_bytes, mut promised_bytes, mut used_bytes) = (0, 0, 0);
        for drive in drives {
            promisable_bytes += drive.promisable_bytes;
            promised_bytes += drive.promised_bytes;
            used_bytes += drive.used_bytes;
        }
        let mut peers: Vec<PeerStatus> = Vec::new();
        for peer in report.iter().flat_map(|report| &report.peers).filter(|peer| peer.node != known.id) {
            let status = self.peer(peer);
            match peers.iter_mut().find(|other| other.node == status.node) {
                // Of another pair of their shards: what is worst of them counts.
                Some(other) => {
                    other.silent_ms =
                        other.silent_ms.zip(status.silent_ms).map(|(one, other)| one.max(other));
                    for path in status.paths {
                        match other.paths.iter_mut().find(|known| known.address == path.address) {
                            Some(known) => known.carried_bytes += path.carried_bytes,
                            None => other.paths.push(path),
                        }
                    }
                }
                None => peers.push(status),
            }
        }
        peers.sort_by_key(|peer| natural_order(&peer.node));
        NodeDetails {
            node: self.node(known),
            addresses: record.map_or_else(Vec::new, |record| {
                (0..record.shards()).flat_map(|shard| record.addresses_of(shard).to_vec()).collect()
            }),
            shards: record.map_or(1, NodeRecord::shards),
            shard_shares: report.map_or_else(Vec::new, |report| self.shard_shares(report)),
            place: record.map(|record| record.place.clone()).unwrap_or_default(),
            joined_unix_ms: record.map(|record| record.joined_unix_ms),
            started_unix_ms: report.and_then(|report| report.started_unix_ms),
            incarnation: report.map(|report| report.incarnation),
            state_role,
            promisable_bytes,
            promised_bytes,
            used_bytes,
            peers,
        }
    }

    /// What each of a node's shards has. Its cache drives are the only shard's.
    fn shard_shares(&self, report: &NodeReport) -> Vec<ShardShare> {
        let shards = 1 + report.further_incarnations.len() as u8;
        let share = |shard: u8| {
            let drives = report.drives.iter().filter(|drive| drive.shard == shard);
            let caches = report.caches.iter().filter(|_| shard == 0).filter_map(|cache| cache.drive);
            let drives = drives.filter_map(|drive| drive.drive).chain(caches);
            let is_own = |volume: &&VolumeMembership| {
                let mut owned = report.owned.iter();
                owned.any(|owned| (owned.volume, owned.shard) == (volume.volume, shard))
            };
            let volumes = self.volumes.iter().filter(is_own);
            let mut share = ShardShare {
                shard,
                drives: drives.map(|drive| self.drive_name(drive)).collect(),
                volumes: volumes.map(|volume| volume.record.name.clone()).collect(),
            };
            share.drives.sort_by_key(|name| natural_order(name));
            share.volumes.sort_by_key(|name| natural_order(name));
            share
        };
        (0..shards).map(share).collect()
    }

    fn peer(&self, peer: &PeerReport) -> PeerStatus {
        let paths = peer.paths.iter();
        let path = |path: &PathReport| PathStatus {
            address: path.address.clone(),
            carried_bytes: path.carried_bytes,
        };
        PeerStatus {
            node: self.node_name(peer.node),
            silent_ms: peer.silent_ms,
            paths: paths.map(path).collect(),
        }
    }

    /// The drives as the API shows them: those of the pool, and those that were given to a node and
    /// are not in the pool.
    pub fn drives(&self) -> Vec<DriveStatus> {
        let pool = self.room.drives.iter().map(|(drive, record)| self.drive(*drive, record));
        let mut drives: Vec<DriveStatus> = pool.collect();
        for node in &self.nodes {
            let reports = node.report.iter().flat_map(|report| &report.drives);
            let strangers = reports
                .filter(|report| report.drive.is_none_or(|drive| !self.room.drives.contains_key(&drive)));
            drives.extend(strangers.map(|report| unknown_drive(&node.name, report)));
        }
        drives.sort_by_key(|drive| natural_order(&drive.name));
        drives
    }

    /// A node's words, with cache drives called by their names: the node knows only their identities.
    fn with_cache_names(&self, text: String) -> String {
        let named =
            |text: String, cache: &DriveId| text.replace(&cache.to_string(), &self.drive_name(*cache));
        self.caches.keys().fold(text, named)
    }

    /// What is known of a drive that answers slowly, by the node that has met that most.
    pub fn slowness(&self, drive: DriveId) -> Option<DriveSlow> {
        let reports = self.nodes.iter().filter_map(|node| node.report.as_ref());
        let slow = reports.flat_map(|report| &report.drives_slow).filter(|slow| slow.drive == drive);
        slow.max_by_key(|slow| (slow.times, slow.rest_left_ms)).copied()
    }

    fn drive(&self, drive: DriveId, record: &DriveRecord) -> DriveStatus {
        let report = self.drive_report(drive);
        let failure = report.and_then(|report| Some(self.with_cache_names(report.failure.clone()?)));
        let facts = DriveFacts {
            is_node_reachable: report.is_some(),
            trouble: failure.as_deref().map(trouble),
            is_given_up: record.state == DriveState::Failed,
            is_retired: record.state == DriveState::Retired,
            is_slow: self.slowness(drive).is_some(),
            blocks_damaged: report
                .map_or(0, |report| report.blocks_damaged.saturating_sub(report.blocks_healed)),
        };
        let slab_bytes = self.geometry.slab_bytes();
        let count = |pick: fn(&DriveReport) -> u64| report.map_or(0, pick);
        DriveStatus {
            name: self.drive_name(drive),
            id: Some(drive),
            node: self.node_name(record.node),
            status: drive::status(&facts),
            failure,
            location: report.map(|report| report.location.clone()),
            media: record.media,
            size_bytes: record.size_bytes,
            promisable_bytes: u64::from(record.slabs_promised_max) * slab_bytes,
            promised_bytes: self.room.promised().slabs(drive) * slab_bytes,
            used_bytes: count(|report| report.blocks_used) * BLOCK_BYTES as u64,
            written_bytes: count(|report| report.written_bytes),
            data_bytes: count(|report| report.data_bytes),
            flushes: count(|report| report.flushes),
            journal_laps: count(|report| report.journal_laps),
            map_memory_bytes: count(|report| report.map_memory_bytes),
            map_pages_read: count(|report| report.map_pages_read),
            blocks_damaged: count(|report| report.blocks_damaged),
            blocks_healed: count(|report| report.blocks_healed),
            damage_found: record.damage.checksum_failures,
            bound_to: report.and_then(bound_to).map(|cache| self.drive_name(cache)),
            cache: report.and_then(|report| self.cache_of_drive(report)),
            without_cache_ms: report.and_then(|report| report.without_cache_ms),
            cache_obstacle: report.and_then(|report| report.cache_obstacle.clone()),
            memory: report.and_then(memory_of_drive),
        }
    }

    /// The volumes as the API shows them, by name.
    pub fn volumes(&self) -> Vec<VolumeStatus> {
        let pool = self.pool_view();
        let is_pool_uneven = spread_per_mille(&pool) > UNEVEN_PER_MILLE;
        let volume = |membership| {
            let can_move = is_too_close(&pool, membership) || is_pool_uneven && is_uneven(&pool, membership);
            self.volume(membership, can_move)
        };
        let mut volumes: Vec<VolumeStatus> = self.volumes.iter().map(volume).collect();
        volumes.sort_by_key(|volume| natural_order(&volume.name));
        volumes
    }

    fn volume(&self, membership: &VolumeMembership, is_uneven: bool) -> VolumeStatus {
        let record = &membership.record;
        let owner = self.owner(membership);
        let mut exports: Vec<Export> = Vec::new();
        for node in &self.nodes {
            for address in &node.nbd_addresses {
                let uri = Target::new("", address.clone(), record.name.clone()).to_string();
                exports.push(Export { node: node.name.clone(), is_up: node.report.is_some(), uri });
            }
        }
        let reports = self.nodes.iter().filter_map(|node| node.report.as_ref());
        let stored_blocks: u64 = reports
            .flat_map(|report| &report.drives)
            .flat_map(|report| &report.volumes)
            .filter(|(volume, _)| *volume == membership.volume)
            .map(|(_, blocks)| blocks)
            .sum();
        VolumeStatus {
            name: record.name.clone(),
            id: membership.volume,
            size_bytes: record.size_bytes,
            grows_to_bytes: record.grows_to_bytes,
            copies: record.copies,
            status: self.volume_status(membership, owner, is_uneven),
            owner: record.owner.map(|owner| self.node_name(owner.shard.node)),
            epoch: record.epoch.0,
            is_serving: owner.is_some_and(|owner| owner.is_serving),
            writer: self.writer(membership),
            stored_bytes: stored_blocks * BLOCK_BYTES as u64,
            write_amplification: self.write_amplification(membership),
            legs: self.legs(membership, owner),
            exports,
            traffic: owner.map_or_else(Traffic::default, |owner| Traffic {
                reads: owner.reads,
                writes: owner.writes,
                read_bytes: owner.read_bytes,
                write_bytes: owner.write_bytes,
            }),
            resynced_bytes: owner.map_or(0, |owner| owner.blocks_resynced * BLOCK_BYTES as u64),
            iops_limit: record.iops_limit,
            is_pinned: record.is_pinned,
            created_unix_ms: record.created_unix_ms,
            scrub: Some(self.scrub(membership)),
        }
    }

    /// The node whose client may write now: the one that the cluster's state names, unless that run of it is
    /// known to be over.
    fn writer(&self, membership: &VolumeMembership) -> Option<String> {
        let writer = membership.record.writer?;
        let node = self.nodes.iter().find(|node| node.id == writer.shard.node)?;
        let runs = match &node.report {
            Some(report) => report.is_of(writer.shard, writer.incarnation),
            None => self.may_run(node),
        };
        runs.then(|| node.name.clone())
    }

    /// Whether a node runs, as far as anybody knows: the cluster's state, or the nodes that reach it over the bus.
    pub fn may_run(&self, node: &KnownNode) -> bool {
        let reports = self.nodes.iter().filter_map(|known| known.report.as_ref());
        node.is_alive
            || node.report.is_some()
            || reports.into_iter().any(|report| report.reachable.contains(&node.id))
    }

    /// What the owner says, if it is the one that the cluster's state names.
    pub fn owner(&self, membership: &VolumeMembership) -> Option<&OwnedVolumeReport> {
        let owner = membership.record.owner?;
        let report = self.nodes.iter().find(|node| node.id == owner.shard.node)?.report.as_ref()?;
        if !report.is_of(owner.shard, owner.incarnation) {
            return None;
        }
        // Two shards may both tell of it, while one hands it to the other.
        let told = report.owned.iter().filter(|owned| owned.volume == membership.volume);
        told.max_by_key(|owned| owned.epoch)
    }

    fn volume_status(
        &self,
        membership: &VolumeMembership,
        owner: Option<&OwnedVolumeReport>,
        is_uneven: bool,
    ) -> Status {
        let mut slabs = BTreeSet::new();
        for set in &membership.sets {
            let members = set.members.iter();
            slabs.insert(
                members.map(|member| (leg_id(member), membership.is_in_sync(member))).collect::<Vec<_>>(),
            );
        }
        let answering = self.answering(membership);
        let copy = |(leg, is_in_sync): (LegId, bool)| CopyFacts {
            is_in_sync,
            is_reachable: answering.contains(&leg),
            is_lost: self.is_given_up(leg.drive),
            is_repairing: leg_of(owner, leg).is_some_and(is_repairing),
        };
        volume::status(&VolumeFacts {
            slabs: slabs.into_iter().map(|slab| slab.into_iter().map(copy).collect()).collect(),
            copies: membership.record.copies,
            is_served: owner.is_some_and(|owner| owner.is_serving),
            is_uneven,
        })
    }

    fn legs(&self, membership: &VolumeMembership, owner: Option<&OwnedVolumeReport>) -> Vec<LegStatus> {
        let mut slabs: BTreeMap<LegId, (u32, bool)> = BTreeMap::new();
        for member in membership.sets.iter().flat_map(|set| &set.members) {
            let (count, in_sync) = slabs.entry(leg_id(member)).or_insert((0, true));
            *count += 1;
            *in_sync &= membership.is_in_sync(member);
        }
        let answering = self.answering(membership);
        let leg = |(id, (slabs, in_sync)): (LegId, (u32, bool))| {
            let (drive, told) = (id.drive, leg_of(owner, id));
            let by_marks = if in_sync { "in-sync" } else { "stale" };
            let mut state = told.map_or_else(|| by_marks.to_owned(), |leg| leg.state.clone());
            if id.is_building {
                state = format!("being built: {state}");
            }
            if !answering.contains(&id) {
                state += if self.is_reachable(drive) { " (silent)" } else { " (away)" };
            }
            let node = membership.nodes.get(&drive).map_or_else(String::new, |node| self.node_name(*node));
            let resync = told.and_then(|leg| leg.resync_pages).map(|(done, total)| Progress { done, total });
            LegStatus { drive: self.drive_name(drive), node, state, slabs, resync }
        };
        let mut legs: Vec<LegStatus> = slabs.into_iter().map(leg).collect();
        legs.sort_by_key(|leg| natural_order(&leg.drive));
        legs
    }

    /// What the drives of a volume have written for each byte of data, times its copies.
    fn write_amplification(&self, membership: &VolumeMembership) -> Option<f64> {
        let (mut written, mut data) = (0, 0);
        for report in membership.drives().into_iter().filter_map(|drive| self.drive_report(drive)) {
            written += report.written_bytes;
            data += report.data_bytes;
        }
        (data > 0).then(|| f64::from(membership.record.copies) * written as f64 / data as f64)
    }
}

/// The leg that a copy belongs to.
pub fn leg_id(member: &Member) -> LegId {
    LegId { drive: member.drive, is_building: member.building }
}

fn leg_of(owner: Option<&OwnedVolumeReport>, id: LegId) -> Option<&LegReport> {
    let is_it = |leg: &&LegReport| (leg.drive, leg.is_building) == (id.drive, id.is_building);
    owner.and_then(|owner| owner.legs.iter().find(is_it))
}

fn is_repairing(leg: &LegReport) -> bool {
    leg.resync_pages.is_some() || matches!(leg.state.as_str(), "joining" | "promoting")
}

/// What a node's words about a drive mean. A drive that carries something else stops its node's
/// start, so of those that are left out most have failed.
pub(super) fn trouble(failure: &str) -> DriveTrouble {
    if failure.contains("DRIVE_IS_OLD") || failure.contains("old image") {
        DriveTrouble::OldOrForeignIdentity
    } else {
        DriveTrouble::Failed
    }
}

fn unknown_drive(node: &str, report: &DriveReport) -> DriveStatus {
    let failure = report.failure.clone();
    let facts = DriveFacts {
        is_node_reachable: true,
        trouble: failure.as_deref().map(trouble),
        ..DriveFacts::default()
    };
    DriveStatus {
        name: format!("{node}/?"),
        id: report.drive,
        node: node.to_owned(),
        status: drive::status(&facts),
        failure,
        location: Some(report.location.clone()),
        media: None,
        size_bytes: report.size_bytes,
        promisable_bytes: 0,
        promised_bytes: 0,
        used_bytes: 0,
        written_bytes: report.written_bytes,
        data_bytes: report.data_bytes,
        flushes: report.flushes,
        journal_laps: report.journal_laps,
        map_memory_bytes: report.map_memory_bytes,
        map_pages_read: report.map_pages_read,
        blocks_damaged: report.blocks_damaged,
        blocks_healed: report.blocks_healed,
        damage_found: report.blocks_damaged + report.structures_damaged,
        bound_to: None,
        cache: None,
        without_cache_ms: None,
        cache_obstacle: None,
        memory: None,
    }
}

/// Sorts `n2` before `n10`: numbers within names count as such.
pub fn natural_order(name: &str) -> Vec<(String, u64)> {
    let mut parts = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let text_end = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
        let (text, behind) = rest.split_at(text_end);
        let digits_end = behind.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(behind.len());
        let (digits, after) = behind.split_at(digits_end);
        let number = if digits.is_empty() { 0 } else { digits.parse().unwrap_or(u64::MAX) };
        parts.push((text.to_owned(), number));
        rest = after;
    }
    parts
}

#[cfg(test)]
#[path = "picture_tests.rs"]
mod tests;
