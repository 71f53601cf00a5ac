//! Peers that do what no bus does: they speak frames by hand, or meddle with what passes them.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use spandrel_platform::{Address, Connection, Listener, Platform, before};
use spandrel_platform_simulated::{Process, SimulatedConnection, SimulatedPlatform, World};
use spandrel_shared::ProcessIncarnation;

use super::{address_of, cluster, shard_id};
use crate::calls::sequence_of;
use crate::frame::{FrameKind, FrameScratch, Header};
use crate::hello::Hello;
use crate::payload::{request_checksum, subject_of};
use crate::receiver::{Ending, FrameReceiver};
use crate::{BusConfig, BusIdentity, BusRequest};

/// A frame as bytes. A payload goes behind it.
pub(crate) fn frame_of(header: Header, body: &[u8]) -> Vec<u8> {
    let mut scratch = FrameScratch::default();
    scratch.write_raw_body(body);
    scratch.seal(header).to_vec()
}

/// A hello from `from`, for `addressee`.
pub(crate) fn hello_of(from: &str, incarnation: u64, addressee: &str) -> Hello {
    let identity = BusIdentity {
        generation: 0,
        cluster: cluster(),
        shard: shard_id(from),
        shards: 1,
        incarnation: ProcessIncarnation::from_random(1, incarnation),
    };
    Hello::new(&identity, &BusConfig::default(), shard_id(addressee))
}

pub(crate) fn hello_frame(hello: &Hello, session: u32) -> Vec<u8> {
    frame_of(Header::new(FrameKind::Hello, 1, session, 0), &hello.encode())
}

/// The header of the request of that count, in a slot of its own.
pub(crate) fn request_header(session: u32, count: u64, request: &BusRequest) -> Header {
    let mut header = Header::new(FrameKind::Request, 1, session, sequence_of(count, count));
    header.subject = subject_of(request);
    header
}

/// A request as bytes, payload included.
pub(crate) fn request_frame(session: u32, count: u64, request: &BusRequest, payload: &[u8]) -> Vec<u8> {
    let pool = spandrel_platform::BufferPool::default();
    let parts = [pool.copy_of(payload).freeze()];
    let mut header = request_header(session, count, request);
    header.payload_bytes = payload.len();
    header.payload_checksum = if payload.is_empty() { 0 } else { request_checksum(request, &parts) };
    let body = postcard::to_allocvec(request).expect("it is short");
    [frame_of(header, &body), payload.to_vec()].concat()
}

/// A connection on which frames are written by hand.
pub(crate) struct RawPeer {
    pub(crate) process: Process,
    pub(crate) connection: SimulatedConnection,
    frames: Rc<RefCell<Option<FrameReceiver<SimulatedPlatform>>>>,
}

/// A frame that a raw peer received.
pub(crate) type RawFrame = Result<(Header, Vec<u8>, Vec<u8>), Ending>;

impl RawPeer {
    /// Connects from a process of the name `from` to the node `to`.
    pub(crate) fn connect(world: &World, from: &str, to: &str) -> Self {
        let process = world.process(from);
        let (platform, address) = (process.platform(), address_of(world, to));
        let connected = process.block_on(async move { platform.connect(&address).await });
        Self::over(&process, connected.expect("it ends").expect("somebody listens"))
    }

    pub(crate) fn over(process: &Process, connection: SimulatedConnection) -> Self {
        let mut frames = FrameReceiver::new(&process.platform(), connection.clone());
        frames.widen();
        Self { process: process.clone(), connection, frames: Rc::new(RefCell::new(Some(frames))) }
    }

    pub(crate) fn send(&self, bytes: &[u8]) {
        self.connection.send(bytes, &[]);
    }

    /// The next frame: header, body, payload.
    pub(crate) fn receive(&self) -> RawFrame {
        let slot = Rc::clone(&self.frames);
        let mut frames = slot.take().expect("one receive at a time");
        let received = self.process.block_on(async move {
            let received = receive_frame(&mut frames).await;
            *slot.borrow_mut() = Some(frames);
            received
        });
        received.expect("a frame comes, or the connection ends")
    }

    /// The next frame if it comes within a while. No further one may be received if none does.
    pub(crate) fn receive_soon(&self) -> Option<RawFrame> {
        let mut frames = self.frames.take().expect("one receive at a time");
        let (slot, platform) = (Rc::clone(&self.frames), self.process.platform());
        let received = self.process.block_on(async move {
            let deadline = platform.now() + Duration::from_millis(20);
            let received = before(&platform, deadline, receive_frame(&mut frames)).await;
            *slot.borrow_mut() = Some(frames);
            received
        });
        received.expect("it ends")
    }

    /// Says hello and reads the answer to it.
    pub(crate) fn greet(&self, hello: &Hello, session: u32) -> Header {
        self.send(&hello_frame(hello, session));
        self.receive().expect("an answer to the hello").0
    }
}

pub(crate) async fn receive_frame(frames: &mut FrameReceiver<SimulatedPlatform>) -> RawFrame {
    let header = frames.header().await?;
    let body = frames.body(&header).await?.to_vec();
    let payload = frames.payload(&header).await?;
    Ok((header, body, payload.map_or_else(Vec::new, |payload| payload.to_vec())))
}

/// What a proxy does with bytes on their way: `true` for those of the side that connected.
pub(crate) type Meddle = Rc<dyn Fn(bool, &mut Vec<u8>)>;

/// Starts a process that passes on to `to` what reaches it, as `meddle` leaves it, and returns
/// its address.
pub(crate) fn start_proxy(world: &World, name: &str, to: &str, meddle: Meddle) -> Address {
    let process = world.start_process(name);
    let (platform, target) = (process.platform(), address_of(world, to));
    let own = address_of(world, name);
    let listener = platform.listen(&own).expect("the port is free");
    process.spawn(async move {
        while let Ok(near) = listener.accept().await {
            if let Ok(far) = platform.connect(&target).await {
                platform.spawn(pass(near.clone(), far.clone(), true, Rc::clone(&meddle)));
                platform.spawn(pass(far, near, false, Rc::clone(&meddle)));
            }
        }
    });
    own
}

async fn pass(from: SimulatedConnection, to: SimulatedConnection, forth: bool, meddle: Meddle) {
    let mut bytes = vec![0; 100_000];
    while let Ok(count @ 1..) = from.receive(&mut bytes).await {
        let mut passing = bytes[..count].to_vec();
        meddle(forth, &mut passing);
        to.send(&passing, &[]);
    }
    to.close();
    from.close();
}
