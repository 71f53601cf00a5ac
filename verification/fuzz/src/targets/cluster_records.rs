//! What stands in the cluster's state: records of every kind, and the keys that they stand at.
//!
//! A record that is read is written and read again to the same, and whoever uses it may use all of it. A
//! key has one spelling.

use std::sync::Arc;

use spandrel_cluster::copy_sets::SLABS_PER_CHUNK;
use spandrel_cluster::records::{
    Record, RoomRecord, StaleRecord, TombstoneRecord, VolumeNameRecord, VolumeRoomRecord, decode, encode,
};
use spandrel_cluster::stamp::{GENERATION_MAX, StateStamp, generation_to_recover};
use spandrel_cluster::store::{Entry, Key, Revision};
use spandrel_cluster::{
    AliveRecord, ClusterRecord, CopyBatch, CopySet, DriveRecord, DriveRole, DriveState, Layout, MediaClass,
    Member, NodeRecord, PlacementReason, ScrubRecord, SlabChunk, StateKey, VmBoot, VmDiskBus, VmGoal, VmHost,
    VmPriority, VmRecord, VolumeOwner, VolumeRecord, VolumeState, VolumeWriter,
};
use spandrel_shared::{
    ClusterId, ConfigurationVersion, CopyId, DriveId, Epoch, NodeId, ProcessIncarnation, ShardId,
    SlabGeometry, SlabIndex, Version, VolumeId,
};

use crate::Target;
use crate::choices::Choices;

pub const TARGET: Target = Target {
    name: "cluster-records",
    about: "records and keys of the cluster's state",
    run,
    seeds,
    smoke_runs: 20_000,
    memory_bytes_max: 1 << 20,
};

const KINDS: u8 = 14;

fn run(input: &[u8]) {
    let mut choices = Choices::new(input);
    let kind = choices.byte() % KINDS;
    let bytes = choices.rest();
    match kind {
        0 => drop(read::<ClusterRecord>(bytes)),
        1 => drop(read::<NodeRecord>(bytes)),
        2 => drop(read::<AliveRecord>(bytes)),
        3 => drop(read::<DriveRecord>(bytes)),
        4 => {
            if let Some(volume) = read::<VolumeRecord>(bytes) {
                assert!(u64::from(volume.slab_count()) >= volume.size_bytes.min(1));
            }
        }
        5 => drop(read::<VolumeNameRecord>(bytes)),
        6 => drop(read::<StaleRecord>(bytes)),
        7 => drop(read::<RoomRecord>(bytes)),
        8 => drop(read::<VolumeRoomRecord>(bytes)),
        9 => drop(read::<TombstoneRecord>(bytes)),
        10 => {
            if let Some(chunk) = read::<SlabChunk>(bytes) {
                use_chunk(&chunk);
            }
        }
        11 => {
            if let Some(scrub) = read::<ScrubRecord>(bytes) {
                let slabs = SLABS_PER_CHUNK;
                assert!(scrub.dates(slabs).count() <= slabs as usize);
                assert!(scrub.summary(slabs).slabs_done <= slabs);
            }
        }
        12 => {
            if let Some(vm) = read::<VmRecord>(bytes) {
                let claimed = vm.claimed(NodeId::from_bytes([1; 16]), PlacementReason::Started, 1);
                assert!(claimed.last_run > vm.last_run);
            }
        }
        _ => read_key(bytes),
    }
}

/// The record, if the bytes are one.
fn read<T: Record + PartialEq + std::fmt::Debug>(bytes: &[u8]) -> Option<T> {
    let entry = |value: Arc<[u8]>| Entry {
        key: Key::new("key"),
        value,
        created: Revision(1),
        modified: Revision(1),
        lease: None,
    };
    let record = decode::<T>(&entry(Arc::from(bytes))).ok()?.record;
    let again = decode::<T>(&entry(encode(&record))).expect("what is written can be read").record;
    assert_eq!(again, record);
    Some(record)
}

fn use_chunk(chunk: &SlabChunk) {
    for (offset, set) in chunk.sets.iter().enumerate() {
        let slab = chunk.slab(offset);
        assert_eq!(slab.0 / SLABS_PER_CHUNK, chunk.chunk);
        for member in &set.members {
            assert!(set.on(member.drive).is_some());
        }
    }
}

fn read_key(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Some(key) = StateKey::parse(&Key::new(text)) {
        assert_eq!(key.key().as_str(), text, "one key has one spelling");
        assert_eq!(StateKey::parse(&key.key()), Some(key));
    }
    if let Ok(number) = text.parse::<u64>() {
        let stamp = StateStamp(number);
        let next = generation_to_recover(stamp.generation(), number);
        assert!(next.is_none_or(|next| next > stamp.generation() && next <= GENERATION_MAX));
        assert_eq!(StateStamp::new(stamp.generation(), stamp.revision()), stamp);
    }
}

fn seeds() -> Vec<Vec<u8>> {
    let records = [
        encode(&ClusterRecord {
            id: ClusterId::from_bytes([1; 16]),
            name: "here".to_owned(),
            feature_level: 1,
            slab_bytes: SlabGeometry::default(),
            created_unix_ms: 1,
            generation: 2,
        }),
        encode(&NodeRecord {
            name: "n1".to_owned(),
            addresses: vec!["a:1".to_owned()],
            further_shards: vec![vec!["a:2".to_owned()]],
            joined_unix_ms: 1,
            key_digest: None,
            maintenance_since_unix_ms: Some(2),
            place: Default::default(),
            unknown: Default::default(),
        }),
        encode(&AliveRecord {
            incarnation: ProcessIncarnation::from_bytes([2; 16]),
            drives: vec![DriveId::from_bytes([3; 16])],
            vm_host: Some(VmHost { memory_bytes: 1 << 30, accelerator: "kvm".to_owned() }),
        }),
        encode(&DriveRecord {
            node: NodeId::from_bytes([4; 16]),
            role: DriveRole::Capacity,
            size_bytes: 1 << 40,
            blocks_usable: 1 << 28,
            slabs_promised_max: 4000,
            attach_number: 9,
            state: DriveState::Active,
            damage: Default::default(),
            media: Some(MediaClass::Ssd),
            name: Some("n1/d1".to_owned()),
        }),
        encode(&example_volume()),
        encode(&VolumeNameRecord { volume: VolumeId::from_bytes([5; 16]) }),
        encode(&StaleRecord { since: Version::new(Epoch(2), 3) }),
        encode(&RoomRecord { promises: 4 }),
        encode(&VolumeRoomRecord { slabs: [(DriveId::from_bytes([3; 16]), 7)].into(), ..Default::default() }),
        encode(&TombstoneRecord { name: "gone".to_owned(), deleted_unix_ms: 5 }),
        encode(&example_chunk()),
        encode(&ScrubRecord::of_new_volume(7, 1)),
        encode(&example_vm()),
    ];
    let (volume, drive) = (VolumeId::from_bytes([5; 16]), DriveId::from_bytes([3; 16]));
    let keys = [
        StateKey::Slabs(volume, 17),
        StateKey::Stale(volume, drive),
        StateKey::VolumeName("vm-01".to_owned()),
        StateKey::Room,
        StateKey::Changed,
    ];
    let keys = keys.iter().map(|key| (KINDS - 1, key.to_string().into_bytes()));
    let records = (0..).zip(records.iter().map(|value| value.to_vec()));
    records.chain(keys).map(|(kind, bytes)| [&[kind][..], &bytes].concat()).collect()
}

fn example_volume() -> VolumeRecord {
    let (node, incarnation) = (NodeId::from_bytes([4; 16]), ProcessIncarnation::from_bytes([2; 16]));
    let shard = ShardId { node, number: 1 };
    VolumeRecord {
        name: "vm-01".to_owned(),
        size_bytes: 1 << 30,
        grows_to_bytes: None,
        copies: 3,
        write_copies_min: 1,
        slab_bytes: SlabGeometry::default(),
        owner: Some(VolumeOwner { shard, incarnation }),
        preferred_owner: Some(node),
        writer: Some(VolumeWriter { shard, incarnation, attachment: 8 }),
        epoch: Epoch(6),
        configuration: ConfigurationVersion(7),
        state: VolumeState::Ready,
        iops_limit: None,
        is_pinned: false,
        generation: 0,
        growth: None,
        is_growth_given_up: false,
        created_unix_ms: 1,
    }
}

fn example_vm() -> VmRecord {
    let vm = VmRecord {
        name: "web".to_owned(),
        volume: VolumeId::from_bytes([5; 16]),
        processors: 2,
        memory_bytes: 512 << 20,
        boot: VmBoot::Kernel { kernel: "/k".to_owned(), initrd: None, arguments: "quiet".to_owned() },
        disk_bus: VmDiskBus::VhostUser,
        priority: VmPriority::High,
        goal: VmGoal::Running,
        placement: None,
        migration: None,
        waits_because: None,
        last_run: 3,
        created_unix_ms: 1,
    };
    let node = NodeId::from_bytes([4; 16]);
    vm.claimed(node, PlacementReason::NodeLost { node: NodeId::from_bytes([7; 16]) }, 2)
}

fn example_chunk() -> SlabChunk {
    let batch = CopyBatch::from_random(1, 2);
    let member = |slab, part: u8| Member {
        drive: DriveId::from_bytes([part; 16]),
        copy: batch.copy(SlabIndex(slab), part),
        part,
        building: part == 2,
    };
    let odd = Member { copy: CopyId::from_bytes([9; 16]), ..member(513, 3) };
    let set = |slab| CopySet {
        layout: Layout::Copies { copies: 3 },
        members: (0..3).map(|part| member(slab, part)).chain([odd]).collect(),
    };
    SlabChunk { chunk: 2, sets: vec![set(512), set(513)] }
}
