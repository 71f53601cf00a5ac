//! The bus: what a node that claims to be one of the cluster sends, asking or answering.
//!
//! An input says which frames of a recorded session are sent, in which order, what of them is changed,
//! and whether their checksums and lengths are made right again. The frames were made by the shipping
//! code; their layout stands here once more, from the document of the wire format.

mod frames;
mod messages;

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use frames::{Frame, Recorded, recorded};
use futures_util::future::join_all;
use messages::{BLOCK_COPY, answer_to, requests};
use spandrel_bus::{
    Bus, BusConfig, BusIdentity, BusRequest, BusResponse, BusService, ClientRequest, ClientResponse,
    Heartbeat, Peer,
};
use spandrel_platform::{Address, BLOCK_BYTES, Buffer, Connection, Listener, Platform, before};
use spandrel_platform_simulated::{SimulatedConnection, SimulatedPlatform};
use spandrel_replica::{PartDescription, ReplicaRequest, ReplicaResponse};
use spandrel_shared::checksum::BlockChecksum;
use spandrel_shared::{ClusterId, NodeId, ProcessIncarnation, ShardId};

use super::wire::{Wire, buffer, connect, drain, receive};
use crate::Target;
use crate::choices::Choices;
use crate::edit::{edit, edit_in_place};

pub const ACCEPTOR: Target = Target {
    name: "bus-acceptor",
    about: "what another node asks over the bus",
    run: ask,
    seeds: asking_seeds,
    smoke_runs: 1200,
    // The longest payload of a frame, twice: while it is received and as it was received.
    memory_bytes_max: 72 << 20,
};

pub const DIALLER: Target = Target {
    name: "bus-dialler",
    about: "what another node answers over the bus",
    run: answer,
    seeds: answering_seeds,
    smoke_runs: 800,
    memory_bytes_max: 108 << 20,
};

pub const MESSAGES: Target = Target {
    name: "bus-messages",
    about: "bodies of the bus: requests and answers as bytes",
    run: read_body,
    seeds: body_seeds,
    smoke_runs: 20_000,
    memory_bytes_max: 1 << 20,
};

const OWNER: ShardId = ShardId::first(NodeId::from_bytes([2; 16]));
const HOLDER: ShardId = ShardId { node: NodeId::from_bytes([3; 16]), number: 1 };
const THIRD: ShardId = ShardId::first(NodeId::from_bytes([5; 16]));

fn identity(shard: ShardId) -> BusIdentity {
    let cluster = ClusterId::from_bytes([1; 16]);
    BusIdentity {
        cluster,
        generation: 0,
        shard,
        shards: 2,
        incarnation: ProcessIncarnation::from_bytes([4; 16]),
    }
}

fn bus(platform: &SimulatedPlatform, shard: ShardId) -> Bus<SimulatedPlatform> {
    let config = BusConfig { request_bytes_max: 256 << 10, requests_max: 64, ..BusConfig::default() };
    Bus::new(platform.clone(), identity(shard), config)
}

/// Answers as a node might, and counts sessions that are open.
#[derive(Clone)]
struct Service {
    platform: SimulatedPlatform,
    serving: Rc<Cell<usize>>,
}

impl Service {
    fn new(platform: &SimulatedPlatform) -> Self {
        Self { platform: platform.clone(), serving: Rc::default() }
    }
}

impl BusService for Service {
    async fn serve(
        &self,
        _: Peer,
        request: BusRequest,
        payload: Option<Buffer>,
    ) -> (BusResponse, Vec<Buffer>) {
        check_blocks(&request, payload.as_ref());
        self.serving.set(self.serving.get() + 1);
        self.platform.sleep(Duration::from_micros(10)).await;
        self.serving.set(self.serving.get() - 1);
        let (response, data) = answer_to(&request);
        let data = (!data.is_empty()).then(|| buffer(&self.platform, &data).freeze());
        (response, data.into_iter().collect())
    }

    fn session_ended(&self, _: Peer) {
        assert_eq!(self.serving.get(), 0, "nothing of a session is served when it is over");
    }
}

/// What is written to a copy has passed the checksums that come with it.
fn check_blocks(request: &BusRequest, payload: Option<&Buffer>) {
    let BusRequest::Replica(ReplicaRequest::Write { copy, first, checksums, .. }) = request else { return };
    let payload = payload.map_or(&[][..], |payload| payload);
    assert_eq!(payload.len(), checksums.len() * BLOCK_BYTES, "one checksum a block");
    let by_address = BlockChecksum::new(copy.volume, copy.slab);
    for ((block, data), checksum) in (*first..).zip(payload.chunks(BLOCK_BYTES)).zip(checksums) {
        assert_eq!(by_address.of(block, data), *checksum, "nobody sees blocks that are damaged");
    }
}

/// The one under test accepts.
fn ask(input: &[u8]) {
    let mut choices = Choices::new(input);
    let modes = choices.byte();
    let connections = sessions(&mut choices, recorded(), modes & 1 == 0);
    let wire = Wire::new(modes & 4 != 0);
    let platform = wire.tested.platform();
    let tested = bus(&platform, HOLDER);
    let listener = platform.listen(&Wire::address()).expect("nobody else listens");
    wire.tested.spawn(tested.serve(listener, Service::new(&platform)));

    let platform = wire.stranger.platform();
    wire.run(async move {
        let mut open = Vec::new();
        for bytes in connections {
            let connection = connect(&platform).await;
            connection.send(&bytes, &[]);
            platform.spawn(drain(connection.clone()));
            open.push(connection);
            platform.sleep(Duration::from_millis(1)).await;
        }
        platform.sleep(Duration::from_millis(20)).await;
        open.iter().for_each(SimulatedConnection::close);
    });
    let good = bus(&wire.stranger.platform(), THIRD);
    good.set_peer(HOLDER, vec![Wire::address()]);
    wire.run(async move {
        good.changes().wait_until(|| good.session(HOLDER).is_some()).await;
        let heartbeat = BusRequest::Heartbeat(Heartbeat::default());
        let answered = good.call(HOLDER, heartbeat, Vec::new()).await;
        assert!(matches!(answered, Ok((BusResponse::Heartbeat(_), _))), "{answered:?}");
    });
}

/// What a stranger says, on one connection after the other.
fn sessions(choices: &mut Choices<'_>, recorded: &Recorded, greets: bool) -> Vec<Vec<u8>> {
    let mut connections = Vec::new();
    let mut bytes = Vec::new();
    let (mut session, mut sequence) = (1, 0);
    if greets {
        bytes.extend(recorded.hello.clone().numbered(session, 0).sealed());
    }
    while !choices.is_empty() && connections.len() < 4 {
        match choices.byte() % 8 {
            0 => {
                let count = usize::from(choices.byte());
                bytes.extend(choices.bytes(count));
            }
            1 => bytes.extend(changed(recorded.hello.clone().numbered(session, 0), choices)),
            2 => {
                connections.push(std::mem::take(&mut bytes));
                session += u32::from(choices.byte() % 3);
                bytes.extend(recorded.hello.clone().numbered(session, 0).sealed());
            }
            3 => {
                let count = usize::from(choices.short() % 512);
                let frame = Frame { body: choices.bytes(count).to_vec(), ..recorded.requests[0].clone() };
                sequence += 1;
                bytes.extend(frame.numbered(session, sequence).sealed());
            }
            kind => {
                sequence += 1;
                let frame = &recorded.requests[choices.index(recorded.requests.len())];
                let frame = frame.clone().numbered(session, sequence);
                bytes.extend(if kind < 6 { frame.sealed() } else { changed(frame, choices) });
            }
        }
    }
    connections.push(bytes);
    connections
}

/// A frame with something changed, and sealed anew or not.
fn changed(mut frame: Frame, choices: &mut Choices<'_>) -> Vec<u8> {
    let kind = choices.byte();
    for _ in 0..1 + kind % 3 {
        match choices.byte() % 4 {
            0 => edit_in_place(&mut frame.header, choices),
            1 => edit(&mut frame.payload, choices),
            _ => edit(&mut frame.body, choices),
        }
    }
    match kind >> 4 {
        0 => frame.unsealed(),
        // Lengths as they were, or were changed to.
        1..4 => frame.sealed_with_its_lengths(),
        _ => frame.sealed(),
    }
}

fn asking_seeds() -> Vec<Vec<u8>> {
    let count = recorded().requests.len() as u8;
    let mut seeds: Vec<Vec<u8>> = (0..count).map(|number| vec![0, 4, number, 0]).collect();
    // All of them in one session, then the same in pieces and in a second session.
    let all: Vec<u8> = (0..count).flat_map(|number| [4, number, 0]).collect();
    seeds.push([&[0][..], &all].concat());
    seeds.push([&[4][..], &all, &[2, 1], &all].concat());
    seeds.push([&[0][..], &[6, 3, 0, 0x40, 2, 0, 9, 0, 1], &[1, 0x40, 0, 0, 0, 24, 0, 7]].concat());
    seeds
}

/// The one under test dials.
fn answer(input: &[u8]) {
    let mut choices = Choices::new(input);
    let modes = choices.byte();
    let wire = Wire::new(modes & 4 != 0);
    let platform = wire.stranger.platform();
    let listener = platform.listen(&Wire::address()).expect("nobody else listens");
    let script = choices.rest().to_vec();
    wire.stranger.spawn(async move {
        let mut choices = Choices::new(&script);
        while let Ok(connection) = listener.accept().await {
            // Whoever waits for an answer that does not come learns that from the end of the session.
            let patience = platform.now() + Duration::from_millis(50);
            before(&platform, patience, answer_session(&connection, &mut choices)).await;
            connection.close();
        }
    });
    let platform = wire.tested.platform();
    let end = wire.tested.block_on(async move {
        let tested = bus(&platform, OWNER);
        tested.set_peer(HOLDER, vec![Wire::address()]);
        let deadline = platform.now() + Duration::from_secs(2);
        let is_open = tested.changes().wait_until(|| tested.session(HOLDER).is_some());
        if before(&platform, deadline, is_open).await.is_some() {
            join_all(
                requests()
                    .into_iter()
                    .map(|(request, payload)| call_and_judge(&platform, &tested, request, payload)),
            )
            .await;
        }
        tested.stop().await;
    });
    end.unwrap_or_else(|end| panic!("a call or the stop does not come to its end: {end:?}"));
}

/// Makes a call; what comes back must be what was asked for.
async fn call_and_judge(
    platform: &SimulatedPlatform,
    tested: &Bus<SimulatedPlatform>,
    request: BusRequest,
    payload: Vec<u8>,
) {
    let payload = (!payload.is_empty()).then(|| buffer(platform, &payload).freeze());
    let answered = tested.call(HOLDER, request.clone(), payload.into_iter().collect()).await;
    let Ok((response, data)) = answered else { return };
    match (&request, &response) {
        (
            BusRequest::Replica(ReplicaRequest::Read { first, count, .. }),
            BusResponse::Replica(Ok(ReplicaResponse::Parts(parts))),
        ) => judge_parts(*first, *count, parts, &data),
        (
            BusRequest::Client(_, ClientRequest::Read { length, .. }),
            BusResponse::Client(Ok(ClientResponse::Data)),
        ) => assert_eq!(data.iter().map(|part| part.len()).sum::<usize>(), *length as usize),
        _ => assert!(data.is_empty(), "only reads bring data"),
    }
    let of_its_kind = matches!(
        (&request, &response),
        (BusRequest::Replica(_), BusResponse::Replica(_))
            | (BusRequest::Client(..), BusResponse::Client(_))
            | (BusRequest::Heartbeat(_), BusResponse::Heartbeat(_))
            | (BusRequest::GivenUp(_), BusResponse::GivenUp { .. })
    );
    assert!(of_its_kind, "{request:?} is answered with {response:?}");
}

fn judge_parts(first: u32, count: u32, parts: &[PartDescription], data: &[Buffer]) {
    let by_address = BlockChecksum::new(BLOCK_COPY.volume, BLOCK_COPY.slab);
    let mut data = data.iter();
    let mut block = first;
    for part in parts {
        match part {
            PartDescription::Hole(holes) => block += holes,
            PartDescription::Damaged { .. } => block += 1,
            PartDescription::Data(checksums) => {
                let content = data.next().expect("each data part has its buffer");
                assert_eq!(content.len(), checksums.len() * BLOCK_BYTES);
                for (content, checksum) in content.chunks(BLOCK_BYTES).zip(checksums) {
                    assert_eq!(by_address.of(block, content), *checksum, "nobody sees damaged blocks");
                    block += 1;
                }
            }
        }
    }
    assert_eq!((block, data.next().is_none()), (first + count, true));
}

/// Welcomes, then answers each request with a recorded answer.
async fn answer_session(connection: &SimulatedConnection, choices: &mut Choices<'_>) {
    let recorded = recorded();
    let Some(hello) = receive_frame(connection).await else { return };
    let welcome = recorded.welcome.clone().numbered(hello.session(), 0);
    let welcome = if choices.byte() > 200 { changed(welcome, choices) } else { welcome.sealed() };
    connection.send(&welcome, &[]);
    while let Some(request) = receive_frame(connection).await {
        let own = recorded.requests.iter().position(|known| known.body == request.body);
        let kind = choices.byte();
        let index = if kind < 200 { own } else { None };
        let index = index.unwrap_or_else(|| choices.index(recorded.answers.len()));
        let answer = recorded.answers[index].clone().numbered(request.session(), request.sequence());
        match kind % 8 {
            0..4 => connection.send(&answer.sealed(), &[]),
            4..7 => connection.send(&changed(answer, choices), &[]),
            // No answer, for once, unless nothing but silence is left to choose.
            _ if choices.is_empty() => return,
            _ => {}
        }
    }
}

async fn receive_frame(connection: &SimulatedConnection) -> Option<Frame> {
    let header = receive(connection, frames::HEADER_BYTES).await?;
    let (body_bytes, payload_bytes) = frames::lengths(&header);
    let body = receive(connection, body_bytes).await?;
    let payload = receive(connection, payload_bytes).await?;
    Some(Frame { header, body, payload })
}

fn answering_seeds() -> Vec<Vec<u8>> {
    let count = recorded().answers.len();
    let changed_body = |at: u8| [&[0, 0][..], &[4, 0x40, 2, 0, at, 0, 9].repeat(count)].concat();
    vec![vec![0, 0], vec![4, 0], vec![0, 201, 0x40, 0, 0, 8, 0, 7], changed_body(0), changed_body(3)]
}

/// What parses is written and parses again to the same.
fn read_body(input: &[u8]) {
    let mut choices = Choices::new(input);
    if choices.flag() {
        if let Ok((response, _)) = postcard::take_from_bytes::<BusResponse>(choices.rest()) {
            let bytes = postcard::to_allocvec(&response).expect("it fits into memory");
            assert_eq!(postcard::from_bytes(&bytes), Ok(response));
        }
    } else if let Ok((request, _)) = postcard::take_from_bytes::<BusRequest>(choices.rest()) {
        let bytes = postcard::to_allocvec(&request).expect("it fits into memory");
        assert_eq!(postcard::from_bytes(&bytes), Ok(request));
    }
}

fn body_seeds() -> Vec<Vec<u8>> {
    let body = |kind: u8, frame: &Frame| [&[kind][..], &frame.body].concat();
    let requests = recorded().requests.iter().map(|frame| body(0, frame));
    requests.chain(recorded().answers.iter().map(|frame| body(1, frame))).collect()
}

/// A tap between two nodes listens here.
fn tap_address() -> Address {
    Address::Unix("tap".to_owned())
}
