//! Nodes of a simulated world, with a service whose answers a test can foretell and hold back.

pub(crate) mod raw;
pub(crate) mod warnings;

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use spandrel_platform::sync::Signal;
use spandrel_platform::{Address, Buffer, Platform};
use spandrel_platform_simulated::{Process, RunEnd, SimulatedPlatform, World};
use spandrel_replica::{
    Authority, BlockState, CopyAddress, Mark, PartDescription, ReplicaError, ReplicaRequest, ReplicaResponse,
};
use spandrel_shared::checksum::BlockChecksum;
use spandrel_shared::{
    BLOCK_BYTES, ClusterId, ConfigurationVersion, CopyId, Epoch, NodeId, ProcessIncarnation, ShardId,
    SlabIndex, Version, VolumeId,
};

use crate::{
    Bus, BusConfig, BusError, BusIdentity, BusRequest, BusResponse, BusService, ClientError, ClientErrorKind,
    ClientRequest, ClientResponse, HeartbeatAnswer, Peer,
};

pub(crate) const PORT: u16 = 7300;

pub(crate) const VOLUME: VolumeId = VolumeId::from_bytes([7; 16]);

pub(crate) fn cluster() -> ClusterId {
    ClusterId::from_bytes([1; 16])
}

/// The shard 0 of the node `name`, or the one whose number follows behind a full stop.
pub(crate) fn shard_id(name: &str) -> ShardId {
    let (node, number) = name.split_once('.').unwrap_or((name, "0"));
    let mut bytes = [0x40; 16];
    bytes[..node.len()].copy_from_slice(node.as_bytes());
    ShardId { node: NodeId::from_bytes(bytes), number: number.parse().expect("a number") }
}

pub(crate) fn address_of(world: &World, name: &str) -> Address {
    Address::Tcp(SocketAddr::new(world.host(name).address(0), PORT))
}

/// What a service saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Began(Peer, u64),
    Ended(Peer, u64),
    SessionEnded(Peer),
}

/// Answers after a random while, or when it is let.
#[derive(Clone)]
pub(crate) struct TestService {
    platform: SimulatedPlatform,
    pub(crate) log: Rc<RefCell<Vec<Event>>>,
    pub(crate) held: Rc<Cell<bool>>,
    pub(crate) delay_us_max: Rc<Cell<u64>>,
    release: Rc<Signal>,
}

impl TestService {
    pub(crate) fn new(platform: &SimulatedPlatform) -> Self {
        Self {
            platform: platform.clone(),
            log: Rc::default(),
            held: Rc::default(),
            delay_us_max: Rc::new(Cell::new(100)),
            release: Rc::default(),
        }
    }

    pub(crate) fn release(&self) {
        self.held.set(false);
        self.release.notify_all();
    }

    pub(crate) fn began(&self) -> usize {
        self.log.borrow().iter().filter(|event| matches!(event, Event::Began(..))).count()
    }

    fn buffer(&self, bytes: &[u8]) -> Buffer {
        self.platform.buffers().copy_of(bytes).freeze()
    }

    fn answer(&self, request: BusRequest, payload: Option<Buffer>) -> (BusResponse, Vec<Buffer>) {
        match request {
            BusRequest::Heartbeat(heartbeat) => {
                let answer = HeartbeatAnswer { promise_ms: heartbeat.number, ..HeartbeatAnswer::default() };
                (BusResponse::Heartbeat(answer), Vec::new())
            }
            BusRequest::GivenUp(given_up) => (BusResponse::GivenUp { taken: given_up.take }, Vec::new()),
            BusRequest::Client(_, request) => {
                let (response, payload) = self.answer_client(request, payload);
                (BusResponse::Client(response), payload)
            }
            BusRequest::Replica(request) => match self.answer_replica(request, payload) {
                Ok((response, payload)) => (BusResponse::Replica(Ok(response)), payload),
                Err(error) => (BusResponse::Replica(Err(error)), Vec::new()),
            },
        }
    }

    fn answer_client(
        &self,
        request: ClientRequest,
        payload: Option<Buffer>,
    ) -> (Result<ClientResponse, ClientError>, Vec<Buffer>) {
        match request {
            ClientRequest::Attach { attachment, .. } => {
                (Ok(ClientResponse::Attached { size_bytes: attachment }), Vec::new())
            }
            ClientRequest::Read { offset, length, .. } => {
                // In parts of any size, as an owner's answer may be.
                let bytes = pattern(offset, length as usize);
                let cut = self.platform.random_u64() as usize % (bytes.len() + 1);
                let parts = [&bytes[..cut], &bytes[cut..]].map(|part| self.buffer(part));
                (Ok(ClientResponse::Data), parts.to_vec())
            }
            ClientRequest::Write { attachment, .. } => {
                let payload = payload.map_or_else(Vec::new, |payload| payload.to_vec());
                let whole = payload == pattern(attachment, payload.len());
                let kind = ClientErrorKind::Failed;
                let error = ClientError { kind, detail: "other bytes arrived".to_owned() };
                (if whole { Ok(ClientResponse::Done) } else { Err(error) }, Vec::new())
            }
            _ => (Ok(ClientResponse::Done), Vec::new()),
        }
    }

    fn answer_replica(
        &self,
        request: ReplicaRequest,
        payload: Option<Buffer>,
    ) -> Result<(ReplicaResponse, Vec<Buffer>), ReplicaError> {
        match request {
            ReplicaRequest::Write { first, checksums, .. } => {
                let payload = payload.ok_or(ReplicaError::NotFound)?;
                let expected: Vec<u8> = (first..).take(checksums.len()).flat_map(block_content).collect();
                if *payload == *expected {
                    return Ok((ReplicaResponse::Done, Vec::new()));
                }
                Err(ReplicaError::DriveFailed("other blocks arrived".to_owned()))
            }
            ReplicaRequest::Read { copy, first, count, .. } => {
                let mut payload = Vec::new();
                let parts = copy_parts(&copy, first, count);
                let mut block = first;
                for part in &parts {
                    match part {
                        PartDescription::Hole(count) => block += count,
                        PartDescription::Damaged { .. } => block += 1,
                        PartDescription::Data(checksums) => {
                            let data: Vec<u8> =
                                (block..).take(checksums.len()).flat_map(block_content).collect();
                            payload.push(self.buffer(&data));
                            block += checksums.len() as u32;
                        }
                    }
                }
                Ok((ReplicaResponse::Parts(parts), payload))
            }
            ReplicaRequest::BlockStates { first, count, .. } => {
                let states = (first..).take(count as usize).map(BlockState::Data);
                Ok((ReplicaResponse::BlockStates(states.collect()), Vec::new()))
            }
            _ => Ok((ReplicaResponse::Done, Vec::new())),
        }
    }
}

/// What a test's request is known by in the log.
fn number_of(request: &BusRequest) -> u64 {
    match request {
        BusRequest::Client(_, ClientRequest::Attach { attachment, .. })
        | BusRequest::Client(_, ClientRequest::Write { attachment, .. }) => *attachment,
        BusRequest::Heartbeat(heartbeat) => heartbeat.number,
        _ => 0,
    }
}

impl BusService for TestService {
    async fn serve(
        &self,
        from: Peer,
        request: BusRequest,
        payload: Option<Buffer>,
    ) -> (BusResponse, Vec<Buffer>) {
        let number = number_of(&request);
        self.log.borrow_mut().push(Event::Began(from, number));
        if !matches!(request, BusRequest::Heartbeat(_)) {
            let delay_us = self.platform.random_u64() % (self.delay_us_max.get() + 1);
            self.platform.sleep(Duration::from_micros(delay_us)).await;
            self.release.wait_until(|| !self.held.get()).await;
        }
        let answer = self.answer(request, payload);
        self.log.borrow_mut().push(Event::Ended(from, number));
        answer
    }

    fn session_ended(&self, from: Peer) {
        self.log.borrow_mut().push(Event::SessionEnded(from));
    }
}

/// Asserts that no session of a node overlaps another one and that nothing was served twice.
pub(crate) fn check_log(log: &[Event]) {
    let mut present: Vec<Peer> = Vec::new();
    let mut served = BTreeSet::new();
    let mut busy: BTreeSet<(ShardId, u64)> = BTreeSet::new();
    for event in log {
        match event {
            Event::Began(peer, number) => {
                let other = present.iter().find(|other| other.shard == peer.shard && *other != peer);
                assert!(other.is_none(), "{peer:?} is served while {other:?} is not over");
                if !present.contains(peer) {
                    present.push(*peer);
                }
                let key = (peer.incarnation, *number);
                assert!(*number == 0 || served.insert(key), "request {number} is served twice");
                assert!(*number == 0 || busy.insert((peer.shard, *number)));
            }
            Event::Ended(peer, number) => {
                assert!(present.contains(peer), "{peer:?} is over, and request {number} of it ends");
                busy.remove(&(peer.shard, *number));
            }
            Event::SessionEnded(peer) => {
                assert!(busy.iter().all(|(shard, _)| *shard != peer.shard), "{peer:?} is over too early");
                present.retain(|other| other != peer);
            }
        }
    }
}

/// A node of the test's cluster.
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) process: Process,
    pub(crate) bus: Bus<SimulatedPlatform>,
    pub(crate) service: TestService,
}

impl Node {
    /// Starts the process of that name, which answers but dials nobody.
    pub(crate) fn start(world: &World, name: &str) -> Self {
        Self::start_with(world, name, cluster(), BusConfig::default())
    }

    pub(crate) fn start_with(world: &World, name: &str, cluster: ClusterId, config: BusConfig) -> Self {
        let process = world.start_process(name);
        let platform = process.platform();
        let identity = BusIdentity {
            generation: 0,
            cluster,
            shard: shard_id(name),
            shards: 3,
            incarnation: ProcessIncarnation::from_random(platform.random_u64(), process.incarnation()),
        };
        let bus = Bus::new(platform.clone(), identity, config);
        let service = TestService::new(&platform);
        let everywhere = Address::Tcp(([0, 0, 0, 0], PORT).into());
        let listener = platform.listen(&everywhere).expect("the port is free");
        process.spawn(bus.serve(listener, service.clone()));
        Self { name: name.to_owned(), process, bus, service }
    }

    pub(crate) fn id(&self) -> ShardId {
        shard_id(&self.name)
    }

    pub(crate) fn dial(&self, world: &World, other: &str) {
        self.dial_at(other, vec![address_of(world, other)]);
    }

    pub(crate) fn dial_at(&self, other: &str, addresses: Vec<Address>) {
        self.bus.set_peer(shard_id(other), addresses);
    }

    /// Runs the world until there is a session with `other`.
    pub(crate) fn await_session(&self, other: &str) {
        let bus = self.bus.clone();
        let other = shard_id(other);
        let waiting = async move { bus.changes().wait_until(|| bus.session(other).is_some()).await };
        self.process.block_on(waiting).expect("a session comes");
    }

    /// Asks and waits for the answer.
    pub(crate) fn ask(
        &self,
        other: &str,
        request: BusRequest,
        payload: &[u8],
    ) -> Result<(BusResponse, Vec<Buffer>), BusError> {
        let call = self.call(other, request, payload);
        self.process.block_on(call).expect("it ends")
    }

    /// A call that has not been polled yet.
    pub(crate) fn call(
        &self,
        other: &str,
        request: BusRequest,
        payload: &[u8],
    ) -> impl Future<Output = Result<(BusResponse, Vec<Buffer>), BusError>> + use<> {
        let pool = self.process.platform().buffers().clone();
        let parts = if payload.is_empty() { Vec::new() } else { vec![pool.copy_of(payload).freeze()] };
        self.bus.call(shard_id(other), request, parts)
    }

    /// A call that runs by itself; its outcome appears in the list that is returned.
    pub(crate) fn start_call(&self, other: &str, request: BusRequest, payload: &[u8]) -> Outcome {
        let call = self.call(other, request, payload);
        let outcome = Outcome::default();
        let slot = outcome.clone();
        self.process.spawn(async move {
            let result = call.await;
            *slot.0.borrow_mut() = Some(result);
        });
        outcome
    }
}

/// What a call came to, once it has.
#[derive(Clone, Default)]
pub(crate) struct Outcome(Rc<RefCell<Option<CallResult>>>);

type CallResult = Result<(BusResponse, Vec<Buffer>), BusError>;

impl Outcome {
    pub(crate) fn is_there(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// What it came to, once it has.
    pub(crate) fn outcome(&self) -> CallResult {
        self.0.borrow().clone().expect("the call has ended")
    }

    pub(crate) fn response(&self) -> Option<Result<BusResponse, BusError>> {
        self.is_there().then(|| self.outcome().map(|(response, _)| response))
    }
}

/// Two nodes that dial each other, with both sessions up.
pub(crate) fn pair(world: &World) -> (Node, Node) {
    let (a, b) = (Node::start(world, "a"), Node::start(world, "b"));
    a.dial(world, "b");
    b.dial(world, "a");
    a.await_session("b");
    b.await_session("a");
    (a, b)
}

pub(crate) fn run(world: &World, duration: Duration) {
    let end = world.run_for(duration);
    assert!(matches!(end, RunEnd::TimeOver | RunEnd::NothingToDo), "{end:?}");
}

pub(crate) fn run_until(world: &World, condition: impl FnMut() -> bool) {
    assert_eq!(world.run_until(condition), RunEnd::ConditionMet);
}

/// Bytes that `number` foretells.
pub(crate) fn pattern(number: u64, length: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let word = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    let mut bytes: Vec<u8> =
        std::iter::repeat_with(word).take(length / 4 + 1).flat_map(u32::to_le_bytes).collect();
    bytes.truncate(length);
    bytes
}

/// What every test's copy holds in a block.
pub(crate) fn block_content(block: u32) -> Vec<u8> {
    pattern(u64::from(block) + 1_000_000, BLOCK_BYTES)
}

/// What the first `Data` part of an answer to a read from block `first` on holds.
pub(crate) fn block_content_from(first: u32, response: &BusResponse) -> Vec<u8> {
    let BusResponse::Replica(Ok(ReplicaResponse::Parts(parts))) = response else {
        panic!("{response:?} is no answer to a read");
    };
    let mut block = first;
    for part in parts {
        match part {
            PartDescription::Data(checksums) => {
                return (block..).take(checksums.len()).flat_map(block_content).collect();
            }
            PartDescription::Hole(count) => block += count,
            PartDescription::Damaged { .. } => block += 1,
        }
    }
    panic!("{parts:?} holds no data");
}

pub(crate) fn copy() -> CopyAddress {
    CopyAddress { volume: VOLUME, slab: SlabIndex(3), copy: CopyId::from_bytes([9; 16]) }
}

pub(crate) fn authority() -> Authority {
    Authority { epoch: Epoch(5), configuration: ConfigurationVersion(17) }
}

/// What a test's copy says of its blocks: some are holes, some are damaged.
pub(crate) fn copy_parts(copy: &CopyAddress, first: u32, count: u32) -> Vec<PartDescription> {
    let checksum = BlockChecksum::new(copy.volume, copy.slab);
    let mut parts: Vec<PartDescription> = Vec::new();
    for block in (first..).take(count as usize) {
        let part = match block % 8 {
            3 => PartDescription::Hole(1),
            6 => PartDescription::Damaged { block, token: u64::from(block) },
            _ => PartDescription::Data(vec![checksum.of(block, &block_content(block))]),
        };
        match (parts.last_mut(), part) {
            (Some(PartDescription::Data(checksums)), PartDescription::Data(more)) => checksums.extend(more),
            (_, part) => parts.push(part),
        }
    }
    parts
}

/// A write of the blocks that every copy holds, and its payload.
pub(crate) fn copy_write(first: u32, count: u32) -> (BusRequest, Vec<u8>) {
    let copy = copy();
    let checksum = BlockChecksum::new(copy.volume, copy.slab);
    let blocks: Vec<Vec<u8>> = (first..).take(count as usize).map(block_content).collect();
    let request = ReplicaRequest::Write {
        copy,
        authority: authority(),
        mark: Mark { version: Version::new(Epoch(5), 40), exceptions: vec![Version::new(Epoch(4), 3)] },
        first,
        version: Version::new(Epoch(5), 41),
        checksums: (first..).zip(&blocks).map(|(block, data)| checksum.of(block, data)).collect(),
    };
    (BusRequest::Replica(request), blocks.concat())
}

pub(crate) fn copy_read(first: u32, count: u32) -> BusRequest {
    BusRequest::Replica(ReplicaRequest::Read { copy: copy(), authority: authority(), first, count })
}

/// The ownership that clients' requests name.
const EPOCH: Epoch = Epoch(5);

pub(crate) fn attach(attachment: u64) -> BusRequest {
    BusRequest::Client(EPOCH, ClientRequest::Attach { volume: VOLUME, attachment })
}

pub(crate) fn attached(attachment: u64) -> BusResponse {
    BusResponse::Client(Ok(ClientResponse::Attached { size_bytes: attachment }))
}

pub(crate) fn client_write(number: u64) -> BusRequest {
    BusRequest::Client(EPOCH, ClientRequest::Write { volume: VOLUME, attachment: number, offset: 0 })
}

pub(crate) fn client_read(offset: u64, length: u32) -> BusRequest {
    BusRequest::Client(EPOCH, ClientRequest::Read { volume: VOLUME, offset, length })
}

pub(crate) fn done() -> BusResponse {
    BusResponse::Client(Ok(ClientResponse::Done))
}
