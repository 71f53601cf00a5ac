//! One request of each kind, and an answer to each.

use spandrel_bus::{
    BusRequest, BusResponse, ClientError, ClientErrorKind, ClientRequest, ClientResponse, ExtentState,
    GivenUp, Heartbeat, HeartbeatAnswer, OwnedVolume,
};
use spandrel_platform::BLOCK_BYTES;
use spandrel_replica::{
    Authority, BlockState, ContentDigest, CopyAddress, GatheredCopy, Heeded, ListedWrite, Mark, NewCopy,
    PageState, PartDescription, ReplicaError, ReplicaRequest, ReplicaResponse,
};
use spandrel_shared::checksum::BlockChecksum;
use spandrel_shared::{ConfigurationVersion, CopyId, DriveId, Epoch, SlabIndex, Version, VolumeId};

const VOLUME: VolumeId = VolumeId::from_bytes([0xe1; 16]);
const DRIVE: DriveId = DriveId::from_bytes([0xd1; 16]);

/// The copy that all requests are about.
pub const BLOCK_COPY: CopyAddress =
    CopyAddress { volume: VOLUME, slab: SlabIndex(3), copy: CopyId::from_bytes([0xc1; 16]) };

fn version(counter: u64) -> Version {
    Version::new(Epoch(7), counter)
}

fn mark() -> Mark {
    Mark { version: version(300), exceptions: vec![version(12), version(299)] }
}

fn block(number: u32) -> [u8; BLOCK_BYTES] {
    [number as u8; BLOCK_BYTES]
}

fn checksum(number: u32) -> u32 {
    BlockChecksum::new(BLOCK_COPY.volume, BLOCK_COPY.slab).of(number, &block(number))
}

/// Requests with their payloads.
pub fn requests() -> Vec<(BusRequest, Vec<u8>)> {
    let replica = replica_requests().into_iter().map(|(request, data)| (BusRequest::Replica(request), data));
    let client =
        client_requests().into_iter().map(|(request, data)| (BusRequest::Client(Epoch(7), request), data));
    let owned = vec![OwnedVolume { volume: VOLUME, epoch: Epoch(7) }; 2];
    let heartbeat = BusRequest::Heartbeat(Heartbeat { number: 9, owned, exclusions_seen: 4 });
    let ownership = OwnedVolume { volume: VOLUME, epoch: Epoch(7) };
    let given_up = BusRequest::GivenUp(GivenUp { ownership, take: true, stay: false });
    replica.chain(client).chain([(heartbeat, Vec::new()), (given_up, Vec::new())]).collect()
}

fn replica_requests() -> Vec<(ReplicaRequest, Vec<u8>)> {
    let copy = BLOCK_COPY;
    let authority = Authority { epoch: Epoch(7), configuration: ConfigurationVersion(5) };
    let (first, count) = (20, 4);
    let write = ReplicaRequest::Write {
        copy,
        authority,
        mark: mark(),
        first,
        version: version(301),
        checksums: vec![checksum(20), checksum(21)].into(),
    };
    let good = Some(checksum(20));
    let new = NewCopy { copy, drive: DRIVE, copies: 3, part: 1, epoch: Epoch(7) };
    let heeds = Heeded::Copies(vec![copy.copy]);
    let plain = [
        ReplicaRequest::Trim { copy, authority, mark: mark(), first, count, version: version(302) },
        ReplicaRequest::Read { copy, authority, first, count },
        ReplicaRequest::Check { copy, authority, first, count },
        ReplicaRequest::Heal { copy, authority, block: 20, token: 77, checksum: None },
        ReplicaRequest::Fence { volume: VOLUME, epoch: Epoch(8), settles: true, heeds },
        ReplicaRequest::NoteMark { volume: VOLUME, authority, mark: mark() },
        ReplicaRequest::Pages { copy, authority },
        ReplicaRequest::BlockStates { copy, authority, first, count },
        ReplicaRequest::SetPageVersion { copy, authority, page: 1, version: version(9), whole: true },
        ReplicaRequest::AddCopy(new),
        ReplicaRequest::RemoveCopy { copy },
        ReplicaRequest::Lose { copy, authority, block: 20 },
        ReplicaRequest::Prove { copy, authority },
        ReplicaRequest::Doubt { volume: VOLUME, drive: DRIVE, authority, proven: version(9) },
        ReplicaRequest::Digests { copy, authority, first, count },
    ];
    let heal = ReplicaRequest::Heal { copy, authority, block: 20, token: 77, checksum: good };
    let with_data = [(write, [block(20), block(21)].concat()), (heal, block(20).to_vec())];
    with_data.into_iter().chain(plain.into_iter().map(|request| (request, Vec::new()))).collect()
}

fn client_requests() -> Vec<(ClientRequest, Vec<u8>)> {
    let (volume, attachment, offset) = (VOLUME, 4, 8192);
    let write = ClientRequest::Write { volume, attachment, offset };
    let plain = [
        ClientRequest::Attach { volume, attachment },
        ClientRequest::Detach { volume, attachment },
        ClientRequest::Read { volume, offset, length: 1024 },
        ClientRequest::WriteZeroes { volume, attachment, offset, length: 4096, keep_allocated: true },
        ClientRequest::Trim { volume, attachment, offset, length: 4096 },
        ClientRequest::Extents { volume, offset, length: 4096 },
    ];
    let plain = plain.into_iter().map(|request| (request, Vec::new()));
    [(write, vec![5; 1024])].into_iter().chain(plain).collect()
}

/// An answer to a request, with its payload. One to a request for much data refuses.
pub fn answer_to(request: &BusRequest) -> (BusResponse, Vec<u8>) {
    match request {
        BusRequest::Replica(request) => {
            let (answer, data) = replica_answer(request);
            (BusResponse::Replica(answer), data)
        }
        BusRequest::Client(_, ClientRequest::Read { length, .. }) if *length <= 1 << 16 => {
            (BusResponse::Client(Ok(ClientResponse::Data)), vec![6; *length as usize])
        }
        BusRequest::Client(_, request) => (BusResponse::Client(client_answer(request)), Vec::new()),
        BusRequest::Heartbeat(heartbeat) => {
            let (accepted, exclusions) = (heartbeat.owned.clone(), heartbeat.owned.clone());
            let answer = HeartbeatAnswer { promise_ms: 1500, accepted, exclusions, exclusions_number: 3 };
            (BusResponse::Heartbeat(answer), Vec::new())
        }
        BusRequest::GivenUp(given_up) => (BusResponse::GivenUp { taken: given_up.take }, Vec::new()),
    }
}

fn replica_answer(request: &ReplicaRequest) -> (Result<ReplicaResponse, ReplicaError>, Vec<u8>) {
    let plain = |response| (Ok(response), Vec::new());
    match request {
        ReplicaRequest::Read { first: 20, count: 4, .. } => {
            let data = PartDescription::Data(vec![checksum(20), checksum(21)]);
            let damaged = PartDescription::Damaged { block: 23, token: 5 };
            let parts = vec![data, PartDescription::Hole(1), damaged];
            (Ok(ReplicaResponse::Parts(parts)), [block(20), block(21)].concat())
        }
        ReplicaRequest::Check { count, .. } => {
            plain(ReplicaResponse::Parts(vec![PartDescription::Hole(*count)]))
        }
        ReplicaRequest::Fence { .. } => {
            plain(ReplicaResponse::Gathered(vec![gathered()], vec![DriveId::from_random(1, 1)]))
        }
        ReplicaRequest::Pages { .. } => {
            let page = PageState { version: version(4), whole: true, mapped_blocks: 9, lost_blocks: 2 };
            plain(ReplicaResponse::Pages(vec![page, PageState::default()]))
        }
        ReplicaRequest::BlockStates { .. } => plain(ReplicaResponse::BlockStates(vec![
            BlockState::Hole,
            BlockState::Data(checksum(21)),
            BlockState::Lost,
        ])),
        ReplicaRequest::Digests { .. } => {
            plain(ReplicaResponse::Digests(vec![None, Some(ContentDigest::of(&block(21)))]))
        }
        ReplicaRequest::RemoveCopy { .. } => (Err(ReplicaError::NotFound), Vec::new()),
        ReplicaRequest::NoteMark { .. } => (Err(ReplicaError::Fenced { epoch: Epoch(9) }), Vec::new()),
        ReplicaRequest::Lose { .. } => (Err(ReplicaError::DriveFailed("it burns".to_owned())), Vec::new()),
        _ => plain(ReplicaResponse::Done),
    }
}

fn gathered() -> GatheredCopy {
    let listed = vec![ListedWrite { version: version(301), first: 20, count: 2, in_doubt: true }];
    let proven = Some(version(8));
    let (slab, copy) = (BLOCK_COPY.slab, BLOCK_COPY.copy);
    GatheredCopy { slab, copy, drive: DRIVE, mark: mark(), listed, proven }
}

fn client_answer(request: &ClientRequest) -> Result<ClientResponse, ClientError> {
    match request {
        ClientRequest::Attach { .. } => Ok(ClientResponse::Attached { size_bytes: 1 << 30 }),
        ClientRequest::Extents { .. } => {
            let extent = |allocated| ExtentState { length: 4096, allocated };
            Ok(ClientResponse::Extents(vec![extent(true), extent(false)]))
        }
        ClientRequest::Read { .. } => {
            let kind = ClientErrorKind::NotOwner { owner: Some(super::THIRD) };
            Err(ClientError { kind, detail: "look there".to_owned() })
        }
        _ => Ok(ClientResponse::Done),
    }
}
