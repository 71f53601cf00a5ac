//! The bus: the body of a request as bytes, and requests from one node to another.

use std::rc::Rc;

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use futures_util::future::join_all;
use spandrel_bus::{Bus, BusConfig, BusIdentity, BusRequest, BusResponse, BusService, Peer};
use spandrel_platform::{BLOCK_BYTES, Buffer, Platform};
use spandrel_platform_simulated::{Process, SimulatedPlatform};
use spandrel_replica::{Authority, CopyAddress, Mark, ReplicaRequest, ReplicaResponse};
use spandrel_shared::checksum::BlockChecksum;
use spandrel_shared::{
    ClusterId, ConfigurationVersion, CopyId, Epoch, NodeId, ProcessIncarnation, ShardId, SlabIndex, Version,
    VolumeId,
};

use crate::world::{address, run, world};

const ASKER: ShardId = ShardId::first(NodeId::from_bytes([2; 16]));
const HOLDER: ShardId = ShardId::first(NodeId::from_bytes([3; 16]));

/// A write of a block of zeros to a copy.
fn write() -> BusRequest {
    let copy = CopyAddress {
        volume: VolumeId::from_bytes([0xe1; 16]),
        slab: SlabIndex(3),
        copy: CopyId::from_bytes([0xc1; 16]),
    };
    let checksum = BlockChecksum::new(copy.volume, copy.slab).of(20, &[0; BLOCK_BYTES]);
    let authority = Authority { epoch: Epoch(7), configuration: ConfigurationVersion(5) };
    let version = |counter| Version::new(Epoch(7), counter);
    let mark = Mark { version: version(300), exceptions: vec![version(290), version(299)] };
    let checksums = vec![checksum].into();
    BusRequest::Replica(ReplicaRequest::Write {
        copy,
        authority,
        mark,
        first: 20,
        version: version(301),
        checksums,
    })
}

#[divan::bench]
fn encode_write(bencher: Bencher<'_, '_>) {
    let request = write();
    bencher.bench(|| postcard::to_allocvec(black_box(&request)).expect("it has a form"));
}

#[divan::bench]
fn decode_write(bencher: Bencher<'_, '_>) {
    let bytes = postcard::to_allocvec(&write()).expect("it has a form");
    bencher.bench(|| postcard::from_bytes::<BusRequest>(black_box(&bytes)).expect("it was just made"));
}

/// Answers at once.
struct Done;

impl BusService for Done {
    async fn serve(&self, _: Peer, _: BusRequest, _: Option<Buffer>) -> (BusResponse, Vec<Buffer>) {
        (BusResponse::Replica(Ok(ReplicaResponse::Done)), Vec::new())
    }

    fn session_ended(&self, _: Peer) {}
}

fn bus(process: &Process, shard: ShardId) -> Bus<SimulatedPlatform> {
    let cluster = ClusterId::from_bytes([1; 16]);
    let identity = BusIdentity {
        cluster,
        generation: 0,
        shard,
        shards: 1,
        incarnation: ProcessIncarnation::from_bytes([4; 16]),
    };
    Bus::new(process.platform(), identity, BusConfig::default())
}

/// Sends so many writes of a block at the same time, and awaits their answers: both sides.
#[divan::bench(args = [1, 32])]
fn send_writes(bencher: Bencher<'_, '_>, count: usize) {
    let world = world();
    let host = world.add_host("machine");
    let (asker, holder) = (world.start_process_on(&host, "asker"), world.start_process_on(&host, "holder"));
    let listener = holder.platform().listen(&address()).expect("nobody else listens");
    holder.spawn(bus(&holder, HOLDER).serve(listener, Done));
    let asking = Rc::new(bus(&asker, ASKER));
    asking.set_peer(HOLDER, vec![address()]);
    let session = Rc::clone(&asking);
    run(&asker, async move { session.changes().wait_until(|| session.session(HOLDER).is_some()).await });
    let data = asker.platform().buffers().take_zeroed(BLOCK_BYTES).freeze();
    bencher.counter(ItemsCount::new(count)).bench_local(|| {
        let calls: Vec<_> =
            (0..count).map(|_| asking.begin_call(HOLDER, write(), vec![data.clone()])).collect();
        let answers = run(&asker, join_all(calls));
        assert!(answers.iter().all(Result::is_ok), "{:?}", answers.iter().find(|answer| answer.is_err()));
    });
}
