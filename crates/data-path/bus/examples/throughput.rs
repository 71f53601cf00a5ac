//! What a message costs: one node sends writes of a few blocks to another one and gets an answer for
//! each, over loopback TCP, each node on a thread of its own.
//!
//! ```text
//! cargo run --release -p spandrel-bus --example throughput -- 32 1 5
//! ```
//!
//! The arguments are the writes in flight, the blocks of each, and the seconds to run. The answering
//! node does nothing with what it gets, so what is left is the bus, the event loop and the kernel.
//! `one thread` behind them runs both nodes in one event loop.

// An example is a program: it owns its terminal and starts its own threads.
#![allow(clippy::disallowed_methods)]

use std::cell::Cell;
use std::rc::Rc;
use std::sync::mpsc;
use std::time::Duration;

use spandrel_bus::{Bus, BusConfig, BusIdentity, BusRequest, BusResponse, BusService, Peer};
use spandrel_platform::{Address, BLOCK_BYTES, Buffer, Instant, Listener, Platform};
use spandrel_platform_linux::{LinuxPlatform, Runtime, RuntimeConfig};
use spandrel_replica::{Authority, CopyAddress, Mark, ReplicaRequest, ReplicaResponse};
use spandrel_shared::checksum::BlockChecksum;
use spandrel_shared::{
    ClusterId, ConfigurationVersion, CopyId, Epoch, NodeId, ProcessIncarnation, ShardId, SlabIndex, Version,
    VolumeId,
};

const ASKER: ShardId = ShardId::first(NodeId::from_bytes([1; 16]));
const ANSWERER: ShardId = ShardId::first(NodeId::from_bytes([2; 16]));

/// Says that everything is done.
struct Yes;

impl BusService for Yes {
    async fn serve(
        &self,
        _from: Peer,
        _request: BusRequest,
        payload: Option<Buffer>,
    ) -> (BusResponse, Vec<Buffer>) {
        assert!(payload.is_some_and(|data| data.len() % BLOCK_BYTES == 0), "every write brings blocks");
        (BusResponse::Replica(Ok(ReplicaResponse::Done)), Vec::new())
    }

    fn session_ended(&self, _from: Peer) {}
}

fn bus(platform: &LinuxPlatform, shard: ShardId) -> Bus<LinuxPlatform> {
    let identity = BusIdentity {
        generation: 0,
        cluster: ClusterId::from_bytes([3; 16]),
        shard,
        shards: 1,
        incarnation: ProcessIncarnation::from_random(platform.random_u64(), platform.random_u64()),
    };
    Bus::new(platform.clone(), identity, BusConfig::default())
}

fn write(first: u32, checksums: &[u32]) -> BusRequest {
    let volume = VolumeId::from_bytes([4; 16]);
    let version = Version::new(Epoch(3), 1_000_000 + u64::from(first));
    BusRequest::Replica(ReplicaRequest::Write {
        copy: CopyAddress { volume, slab: SlabIndex(7), copy: CopyId::from_bytes([5; 16]) },
        authority: Authority { epoch: Epoch(3), configuration: ConfigurationVersion(12) },
        mark: Mark { version, exceptions: vec![version, version] },
        first,
        version,
        checksums: checksums.into(),
    })
}

/// Listens, and answers in the background.
fn answer(platform: &LinuxPlatform) -> Address {
    let any = Address::Tcp(([127, 0, 0, 1], 0).into());
    let listener = platform.listen(&any).expect("a free port");
    let address = listener.address();
    platform.spawn(bus(platform, ANSWERER).serve(listener, Yes));
    address
}

/// Keeps `in_flight` writes in flight until `end` and returns how many were answered.
async fn ask(
    platform: LinuxPlatform,
    address: Address,
    in_flight: usize,
    blocks: u32,
    duration: Duration,
) -> (u64, Duration) {
    let bus = bus(&platform, ASKER);
    bus.set_peer(ANSWERER, vec![address]);
    bus.changes().wait_until(|| bus.session(ANSWERER).is_some()).await;
    let began = platform.now();
    let answered = Rc::new(Cell::new(0));
    let workers: Vec<_> = (0..in_flight)
        .map(|worker| {
            let answered = Rc::clone(&answered);
            keep_writing(platform.clone(), bus.clone(), worker, blocks, began + duration, answered)
        })
        .collect();
    futures_util::future::join_all(workers).await;
    eprintln!("{:#?}", bus.statistics());
    (answered.get(), platform.now().since(began))
}

async fn keep_writing(
    platform: LinuxPlatform,
    bus: Bus<LinuxPlatform>,
    worker: usize,
    blocks: u32,
    end: Instant,
    answered: Rc<Cell<u64>>,
) {
    let mut data = platform.buffers().take_zeroed(blocks as usize * BLOCK_BYTES);
    data.fill(worker as u8);
    let data = data.freeze();
    let checksum = BlockChecksum::new(VolumeId::from_bytes([4; 16]), SlabIndex(7));
    let checksums: Vec<u32> =
        (0..).zip(data.chunks(BLOCK_BYTES)).map(|(block, data)| checksum.of(block, data)).collect();
    while platform.now() < end {
        let (response, _) =
            bus.call(ANSWERER, write(0, &checksums), vec![data.clone()]).await.expect("an answer");
        assert_eq!(response, BusResponse::Replica(Ok(ReplicaResponse::Done)));
        answered.set(answered.get() + 1);
    }
}

/// The processor time that this process has used, in user mode and in the kernel.
fn processor_time() -> (Duration, Duration) {
    // Fields 14 and 15, in hundredths of a second; the name in front of them may hold spaces.
    let text = std::fs::read_to_string("/proc/self/stat").expect("the kernel tells");
    let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    let time = |index: usize| Duration::from_millis(10 * fields[index].parse::<u64>().expect("a number"));
    (time(11), time(12))
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default| {
        arguments.get(index).map_or(default, |text| text.parse::<u64>().expect("a number"))
    };
    let (in_flight, blocks, seconds) = (number(0, 32), number(1, 1), number(2, 5));
    let one_thread = arguments.get(3).is_some();
    let mut runtime = Runtime::new(RuntimeConfig::default()).expect("an event loop");
    let platform = runtime.platform();
    let address = if one_thread { answer(&platform) } else { answer_on_another_thread() };
    let before = processor_time();
    let duration = Duration::from_secs(seconds);
    let asked = ask(platform, address, in_flight as usize, blocks as u32, duration);
    let (writes, took) = runtime.block_on(asked);
    let after = processor_time();
    let per_write_us = |time: Duration| time.as_secs_f64() * 1e6 / writes as f64;
    let (user, kernel) = (per_write_us(after.0 - before.0), per_write_us(after.1 - before.1));
    println!("{writes} writes of {blocks} blocks, {in_flight} in flight, in {:.1} s", took.as_secs_f64());
    println!("{:.0} writes/s", writes as f64 / took.as_secs_f64());
    println!("{:.2} us of processor time per write: {user:.2} user, {kernel:.2} kernel", user + kernel);
}

fn answer_on_another_thread() -> Address {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut runtime = Runtime::new(RuntimeConfig::default()).expect("an event loop");
        let platform = runtime.platform();
        let told = sender.send(answer(&platform));
        assert!(told.is_ok(), "the other thread waits for the address");
        runtime.block_on(std::future::pending::<()>());
    });
    receiver.recv().expect("the other thread listens")
}
