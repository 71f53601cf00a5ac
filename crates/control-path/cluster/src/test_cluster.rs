//! Small clusters for this crate's own tests.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use spandrel_shared::{ClusterId, DriveId, NodeId, ProcessIncarnation, ShardId, SlabGeometry, VolumeId};

use crate::copy_sets::{CopyBatch, CopySet};
use crate::keys::StateKey;
use crate::records::{ClusterRecord, DriveRecord, DriveRole, DriveState, NodeRecord, VolumeOwner};
use crate::simulated::{Faults, SimulatedState, SimulatedStore};
use crate::state::{ClusterState, StateError};
use crate::store::{
    Expected, LeaseId, Outcome, Revision, Selection, Snapshot, StateStore, StoreError, StoreErrorKind,
    Transaction,
};
use crate::test_platform::TestPlatform;
use crate::volumes::{NewVolume, mirror_sets};

pub type TestStore = SimulatedStore<TestPlatform>;
pub type TestState = ClusterState<TestStore>;

pub const SLAB_BYTES: u64 = 4 << 20;

pub fn slab_geometry() -> SlabGeometry {
    SlabGeometry::new(SLAB_BYTES).expect("an allowed size")
}

pub fn node(number: u8) -> NodeId {
    NodeId::from_bytes([number; 16])
}

/// Drive `number` of a node.
pub fn drive(node: u8, number: u8) -> DriveId {
    let mut bytes = [node; 16];
    bytes[15] = number;
    DriveId::from_bytes(bytes)
}

pub fn owner(number: u8) -> VolumeOwner {
    VolumeOwner {
        shard: ShardId::first(node(number)),
        incarnation: ProcessIncarnation::from_bytes([number; 16]),
    }
}

pub fn volume(number: u8) -> VolumeId {
    VolumeId::from_bytes([0xe0 | number; 16])
}

/// A way to the state without faults.
pub fn quick() -> Faults {
    Faults { delay_max: Duration::from_micros(200), ..Faults::default() }
}

/// Everything goes wrong on the way to the state.
pub fn hostile() -> Faults {
    Faults {
        delay_max: Duration::from_millis(20),
        answer_timeout: Duration::from_millis(100),
        request_lost_per_mille: 80,
        answer_lost_per_mille: 80,
        request_late_per_mille: 80,
        late_max: Duration::from_millis(600),
        ..Faults::default()
    }
}

pub struct TestCluster {
    pub platform: TestPlatform,
    pub service: SimulatedState<TestPlatform>,
}

impl TestCluster {
    /// Nodes 1 to `nodes` with `drives` drives of `slabs` slabs each, on a way without faults.
    pub fn new(seed: u64, nodes: u8, drives: u8, slabs: u32) -> Self {
        let platform = TestPlatform::new(seed);
        let service = SimulatedState::new(platform.clone(), quick());
        let cluster = Self { platform, service };
        let state = cluster.state(0);
        cluster.platform.run(async move {
            let record = ClusterRecord {
                id: ClusterId::from_bytes([1; 16]),
                name: "test".to_owned(),
                feature_level: 1,
                slab_bytes: slab_geometry(),
                created_unix_ms: 0,
                generation: 0,
            };
            state.create_cluster(record).await.expect("the state is empty");
            for number in 1..=nodes {
                let record = NodeRecord {
                    name: format!("n{number}"),
                    addresses: Vec::new(),
                    further_shards: Vec::new(),
                    joined_unix_ms: 0,
                    key_digest: None,
                    maintenance_since_unix_ms: None,
                    place: Default::default(),
                    unknown: Default::default(),
                };
                state.put(&StateKey::Node(node(number)), Expected::Absent, record).await.expect("a new node");
                for one in 0..drives {
                    let record = drive_record(number, slabs);
                    let key = StateKey::Drive(drive(number, one));
                    state.put(&key, Expected::Absent, record).await.expect("a new drive");
                }
            }
        });
        cluster
    }

    /// The state as client `number` sees it.
    pub fn state(&self, number: u64) -> TestState {
        ClusterState::new(self.service.client(number, self.platform.clone()))
    }
}

pub fn drive_record(on: u8, slabs: u32) -> DriveRecord {
    DriveRecord {
        node: node(on),
        role: DriveRole::Capacity,
        size_bytes: u64::from(slabs) * SLAB_BYTES,
        blocks_usable: u64::from(slabs) * SLAB_BYTES / 4096,
        slabs_promised_max: slabs,
        attach_number: 1,
        state: DriveState::Active,
        damage: Default::default(),
        media: None,
        name: None,
    }
}

pub fn new_volume(number: u8, slabs: u32, copies: u8) -> NewVolume {
    NewVolume {
        id: volume(number),
        name: format!("vm-{number}"),
        size_bytes: u64::from(slabs) * SLAB_BYTES,
        copies,
        write_copies_min: 1,
        slab_bytes: slab_geometry(),
        preferred_owner: None,
        generation: 0,
        created_unix_ms: 0,
    }
}

/// Copy sets over nodes 1 to `nodes`, which have `drives` drives each, in turn.
pub fn plan(slabs: u32, copies: u8, nodes: u8, drives: u8, batch: u64) -> Vec<CopySet> {
    let drives_of = |slab: u32| -> Vec<DriveId> {
        let turn = |copy: u8| (slab + u32::from(copy)) % u32::from(nodes);
        (0..copies).map(|copy| drive(turn(copy) as u8 + 1, (slab % u32::from(drives)) as u8)).collect()
    };
    let slabs: Vec<_> = (0..slabs).map(drives_of).collect();
    mirror_sets(slabs.iter().map(Vec::as_slice), CopyBatch::from_random(batch, batch), copies)
}

/// A store that fails surely from some transaction on, as if its user had died there.
#[derive(Clone)]
pub struct Dying {
    pub store: TestStore,
    pub transactions_left: Rc<Cell<u32>>,
}

impl StateStore for Dying {
    type Watch = <TestStore as StateStore>::Watch;

    async fn read(&self, selections: &[Selection]) -> Result<Snapshot, StoreError> {
        self.store.read(selections).await
    }

    async fn transact(&self, transaction: Transaction) -> Result<Outcome, StoreError> {
        let Some(left) = self.transactions_left.get().checked_sub(1) else {
            return Err(StoreError::new(StoreErrorKind::Unavailable, "dead"));
        };
        self.transactions_left.set(left);
        self.store.transact(transaction).await
    }

    async fn watch(&self, prefix: &str, from: Revision) -> Result<Self::Watch, StoreError> {
        self.store.watch(prefix, from).await
    }

    async fn grant_lease(&self, time_to_live: Duration) -> Result<LeaseId, StoreError> {
        self.store.grant_lease(time_to_live).await
    }

    async fn keep_alive(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.store.keep_alive(lease).await
    }

    async fn revoke_lease(&self, lease: LeaseId) -> Result<(), StoreError> {
        self.store.revoke_lease(lease).await
    }

    async fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        self.store.compact(revision).await
    }
}

/// Why the state has refused a change.
pub fn code<T: std::fmt::Debug>(result: Result<T, StateError>) -> String {
    match result {
        Err(StateError::Refused(error)) => error.code,
        other => panic!("{other:?} is no refusal"),
    }
}
