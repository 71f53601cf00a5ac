//! What this node does for others: its copies serve owners elsewhere, its owners serve front-ends
//! elsewhere, and its heartbeat answers are promises.

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::Either;
use spandrel_bus::{
    BusRequest, BusResponse, BusService, ClientError, ClientErrorKind, ClientRequest, ClientResponse,
    ExtentState, Peer,
};
use spandrel_cluster::VolumeWriter;
use spandrel_cluster::promises;
use spandrel_cluster::store::StateStore;
use spandrel_platform::{Buffer, Platform, before};
use spandrel_shared::Epoch;
use spandrel_volume::{DeviceError, OwnerError, Phase};

use crate::node::NodeInner;
use crate::ownership::{VolumeAnswer, VolumeRefusal, VolumeRequest};

/// How long a request of another node's client waits for a take-over to end. That may take as long as
/// the last copy of a slab is away, and as long as a request is being served, its node gets no new
/// session here: it had better ask again.
const TAKE_OVER_WAIT_MAX: Duration = Duration::from_secs(1);

/// Answers the bus.
pub(crate) struct NodeService<P: Platform, S: StateStore> {
    pub(crate) node: Rc<NodeInner<P, S>>,
}

type ClientAnswer = Result<(ClientResponse, Vec<Buffer>), ClientError>;

impl<P: Platform, S: StateStore> BusService for NodeService<P, S> {
    async fn serve(
        &self,
        from: Peer,
        request: BusRequest,
        payload: Option<Buffer>,
    ) -> (BusResponse, Vec<Buffer>) {
        let peer = promises::Peer { shard: from.shard, incarnation: from.incarnation };
        match request {
            BusRequest::Replica(request) => {
                match self.node.parts.serve_replica(peer, request, payload).await {
                    Ok((response, parts)) => (BusResponse::Replica(Ok(response)), parts),
                    Err(error) => (BusResponse::Replica(Err(error)), Vec::new()),
                }
            }
            BusRequest::Client(epoch, request) => {
                // Large, and not to make the tasks of requests to copies as large.
                match Box::pin(self.serve_client_while_there(peer, from, epoch, request, payload)).await {
                    Ok((response, parts)) => (BusResponse::Client(Ok(response)), parts),
                    Err(error) => (BusResponse::Client(Err(error)), Vec::new()),
                }
            }
            BusRequest::Heartbeat(heartbeat) => {
                let answer = self.node.parts.liveness.answer(peer, &heartbeat);
                (BusResponse::Heartbeat(answer), Vec::new())
            }
            BusRequest::GivenUp(given_up) => {
                let taken = Box::pin(self.node.given_up(peer, given_up)).await;
                (BusResponse::GivenUp { taken }, Vec::new())
            }
        }
    }

    fn session_ended(&self, _from: Peer) {}
}

impl<P: Platform, S: StateStore> NodeService<P, S> {
    /// Gives up what nobody waits for any more. A request can take as long as a copy is away that its
    /// volume cannot do without; and until it ends, the node that asked gets no new session here, not
    /// even for its heartbeats. A write that is given up half-way ends the ownership.
    async fn serve_client_while_there(
        &self,
        peer: promises::Peer,
        from: Peer,
        epoch: Epoch,
        request: ClientRequest,
        payload: Option<Buffer>,
    ) -> ClientAnswer {
        let gone = std::pin::pin!(self.node.parts.liveness.gone(peer));
        let served = std::pin::pin!(self.serve_client(from, epoch, request, payload));
        match futures_util::future::select(served, gone).await {
            Either::Left((answer, _)) => answer,
            Either::Right(_) => Err(ClientError {
                kind: ClientErrorKind::NotOwner { owner: None },
                detail: "the node that asked has been silent".to_owned(),
            }),
        }
    }

    async fn serve_client(
        &self,
        from: Peer,
        epoch: Epoch,
        request: ClientRequest,
        payload: Option<Buffer>,
    ) -> ClientAnswer {
        let ownership = |volume| {
            let ownership = self.node.ownership(volume).filter(|own| own.owner.epoch() == epoch);
            ownership.ok_or_else(|| self.not_owner(volume))
        };
        let writer =
            |attachment| VolumeWriter { shard: from.shard, incarnation: from.incarnation, attachment };
        let (volume, writer, request) = match request {
            ClientRequest::Attach { volume, attachment } => {
                let ownership = ownership(volume)?;
                let admitted = ownership.admit(&self.node, writer(attachment)).await;
                admitted.map_err(|refusal| self.refuse(volume, refusal))?;
                self.node.follow(&ownership, volume, writer(attachment));
                return Ok((
                    ClientResponse::Attached { size_bytes: ownership.owner.size_bytes() },
                    Vec::new(),
                ));
            }
            ClientRequest::Detach { volume, attachment } => {
                let ownership = ownership(volume)?;
                let released = ownership.release(writer(attachment)).await;
                released.map_err(|refusal| self.refuse(volume, refusal))?;
                return Ok((ClientResponse::Done, Vec::new()));
            }
            ClientRequest::Read { volume, offset, length } => {
                (volume, writer(0), VolumeRequest::Read { offset, length })
            }
            ClientRequest::Write { volume, attachment, offset } => {
                let data = payload.ok_or_else(|| ClientError {
                    kind: ClientErrorKind::Invalid,
                    detail: "a write came without data".to_owned(),
                })?;
                (volume, writer(attachment), VolumeRequest::Write { offset, data })
            }
            // Whether the room stays taken makes no difference: a volume's room is promised to it.
            ClientRequest::WriteZeroes { volume, attachment, offset, length, keep_allocated: _ } => {
                (volume, writer(attachment), VolumeRequest::WriteZeroes { offset, length })
            }
            ClientRequest::Trim { volume, attachment, offset, length } => {
                (volume, writer(attachment), VolumeRequest::Trim { offset, length })
            }
            ClientRequest::Extents { volume, offset, length } => {
                (volume, writer(0), VolumeRequest::Extents { offset, length })
            }
        };
        let ownership = ownership(volume)?;
        if ownership.owner.phase() == Phase::TakingOver {
            let platform = &self.node.parts.platform;
            let deadline = platform.now() + TAKE_OVER_WAIT_MAX;
            if before(platform, deadline, ownership.owner.serving()).await.is_none() {
                return Err(self.refuse(volume, VolumeRefusal::NotNow));
            }
        }
        match ownership.carry_out(writer, request).await {
            Ok(VolumeAnswer::Done) => Ok((ClientResponse::Done, Vec::new())),
            Ok(VolumeAnswer::Data(data)) => Ok((ClientResponse::Data, data)),
            Ok(VolumeAnswer::Extents(extents)) => {
                let states = extents
                    .into_iter()
                    .map(|extent| ExtentState { length: extent.length, allocated: extent.allocated });
                Ok((ClientResponse::Extents(states.collect()), Vec::new()))
            }
            Err(refusal) => Err(self.refuse(volume, refusal)),
        }
    }

    fn not_owner(&self, volume: spandrel_shared::VolumeId) -> ClientError {
        let parts = &self.node.parts;
        let volumes = parts.view.volumes.borrow();
        let owner = volumes.get(&volume).and_then(|stored| stored.record.owner);
        let owner = owner.map(|owner| owner.shard).filter(|owner| *owner != parts.own.shard);
        ClientError {
            kind: ClientErrorKind::NotOwner { owner },
            detail: "this node does not own the volume, or not any more as it was asked".to_owned(),
        }
    }

    fn refuse(&self, volume: spandrel_shared::VolumeId, refusal: VolumeRefusal) -> ClientError {
        match refusal {
            VolumeRefusal::Owner(OwnerError::Deposed) => self.not_owner(volume),
            VolumeRefusal::Owner(OwnerError::Invalid(detail)) => {
                ClientError { kind: ClientErrorKind::Invalid, detail }
            }
            VolumeRefusal::Owner(OwnerError::NoRoom) => {
                ClientError { kind: ClientErrorKind::NoRoom, detail: "the pool has no room".to_owned() }
            }
            VolumeRefusal::Owner(error @ OwnerError::Lost { .. }) => {
                ClientError { kind: ClientErrorKind::Failed, detail: DeviceError::from(error).detail }
            }
            VolumeRefusal::Busy(writer) => {
                ClientError { kind: ClientErrorKind::Busy, detail: self.node.parts.describe_writer(writer) }
            }
            VolumeRefusal::NotNow => ClientError {
                kind: ClientErrorKind::NotOwner { owner: None },
                detail: "the owner is not ready for that yet".to_owned(),
            },
        }
    }
}
