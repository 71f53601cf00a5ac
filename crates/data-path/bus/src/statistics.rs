//! What a bus has done, in numbers.

use std::cell::Cell;
use std::rc::Rc;

use spandrel_replica::ReplicaRequest;
use spandrel_shared::Load;
use spandrel_shared::load::Operation;

use crate::{BusRequest, ClientRequest};

macro_rules! request_kinds {
    ($($(#[$documentation:meta])* $name:ident,)*) => {
        /// What a request asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum RequestKind {
            $($(#[$documentation])* $name,)*
        }

        impl RequestKind {
            /// All kinds.
            pub const ALL: [RequestKind; KINDS] = [$(RequestKind::$name,)*];
        }

        const KINDS: usize = [$(stringify!($name),)*].len();
    };
}

request_kinds! {
    /// A write to a copy.
    CopyWrite,
    /// A trim on a copy.
    CopyTrim,
    /// A read from a copy.
    CopyRead,
    /// A check of a copy's blocks.
    CopyCheck,
    /// The healing of a block.
    CopyHeal,
    /// A fence.
    Fence,
    /// A mark by itself.
    NoteMark,
    /// A question for a copy's pages.
    Pages,
    /// A question for the state of blocks.
    BlockStates,
    /// The setting of a page's version.
    SetPageVersion,
    /// The creation of a copy.
    AddCopy,
    /// The removal of a copy.
    RemoveCopy,
    /// A front-end's attachment.
    Attach,
    /// A front-end's detachment.
    Detach,
    /// A front-end's read.
    Read,
    /// A front-end's write.
    Write,
    /// A front-end's write of zeros.
    WriteZeroes,
    /// A front-end's trim.
    Trim,
    /// A front-end's question for allocation.
    Extents,
    /// A heartbeat.
    Heartbeat,
    /// A volume that was given up.
    GivenUp,
}

impl RequestKind {
    /// What `request` asks for.
    pub fn of(request: &BusRequest) -> Self {
        match request {
            BusRequest::Replica(request) => match request {
                ReplicaRequest::Write { .. } => Self::CopyWrite,
                ReplicaRequest::Trim { .. } => Self::CopyTrim,
                ReplicaRequest::Read { .. } => Self::CopyRead,
                ReplicaRequest::Check { .. } => Self::CopyCheck,
                ReplicaRequest::Heal { .. } | ReplicaRequest::Lose { .. } => Self::CopyHeal,
                ReplicaRequest::Fence { .. } => Self::Fence,
                ReplicaRequest::NoteMark { .. } => Self::NoteMark,
                ReplicaRequest::Pages { .. } => Self::Pages,
                ReplicaRequest::BlockStates { .. } | ReplicaRequest::Digests { .. } => Self::BlockStates,
                ReplicaRequest::SetPageVersion { .. }
                | ReplicaRequest::Prove { .. }
                | ReplicaRequest::Doubt { .. } => Self::SetPageVersion,
                ReplicaRequest::AddCopy(_) => Self::AddCopy,
                ReplicaRequest::RemoveCopy { .. } => Self::RemoveCopy,
            },
            BusRequest::Client(_, request) => match request {
                ClientRequest::Attach { .. } => Self::Attach,
                ClientRequest::Detach { .. } => Self::Detach,
                ClientRequest::Read { .. } => Self::Read,
                ClientRequest::Write { .. } => Self::Write,
                ClientRequest::WriteZeroes { .. } => Self::WriteZeroes,
                ClientRequest::Trim { .. } => Self::Trim,
                ClientRequest::Extents { .. } => Self::Extents,
            },
            BusRequest::Heartbeat(_) => Self::Heartbeat,
            BusRequest::GivenUp(_) => Self::GivenUp,
        }
    }
}

/// Counts a request as under way, if it is one that reads or writes what volumes hold.
pub(crate) fn begin(load: &Rc<Load>, request: &BusRequest) -> Option<Operation<Rc<Load>>> {
    match RequestKind::of(request) {
        RequestKind::CopyRead | RequestKind::CopyCheck | RequestKind::Read => {
            Some(Operation::read(Rc::clone(load)))
        }
        RequestKind::CopyWrite
        | RequestKind::CopyTrim
        | RequestKind::CopyHeal
        | RequestKind::Write
        | RequestKind::WriteZeroes
        | RequestKind::Trim => Some(Operation::write(Rc::clone(load))),
        RequestKind::Fence
        | RequestKind::NoteMark
        | RequestKind::Pages
        | RequestKind::BlockStates
        | RequestKind::SetPageVersion
        | RequestKind::AddCopy
        | RequestKind::RemoveCopy
        | RequestKind::Attach
        | RequestKind::Detach
        | RequestKind::Extents
        | RequestKind::Heartbeat
        | RequestKind::GivenUp => None,
    }
}

/// Requests, counted by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts([u64; KINDS]);

impl RequestCounts {
    /// How many of one kind.
    pub fn of(&self, kind: RequestKind) -> u64 {
        self.0[kind as usize]
    }

    /// How many of all kinds.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// What a bus has done since its creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BusStatistics {
    /// Frames queued for sending, hellos included.
    pub frames_sent: u64,
    /// Their bytes.
    pub bytes_sent: u64,
    /// Answers that were sent in the frame of another one.
    pub answers_joined: u64,
    /// Frames received whole.
    pub frames_received: u64,
    /// Their bytes.
    pub bytes_received: u64,
    /// Requests to other nodes.
    pub requests_sent: RequestCounts,
    /// Requests of other nodes that were handed to the service.
    pub requests_served: RequestCounts,
    /// Sessions that this node dialled.
    pub sessions_dialled: u64,
    /// Sessions that this node accepted.
    pub sessions_accepted: u64,
    /// Hellos that this node refused.
    pub hellos_refused: u64,
    /// Connections that this node closed because the other side broke the protocol.
    pub connections_malformed: u64,
    /// Payloads that were damaged on their way to this node.
    pub payloads_damaged: u64,
    /// Paths of sessions that this node dialled which were lost while the session went on.
    pub paths_lost: u64,
    /// Requests that were sent again on another path.
    pub requests_repeated: u64,
}

macro_rules! counters {
    ($($name:ident),*) => {
        /// Counts for [`BusStatistics`].
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
            requests_sent: RequestCounters,
            requests_served: RequestCounters,
        }

        impl Counters {
            pub(crate) fn snapshot(&self) -> BusStatistics {
                BusStatistics {
                    $($name: self.$name.0.get(),)*
                    requests_sent: self.requests_sent.snapshot(),
                    requests_served: self.requests_served.snapshot(),
                }
            }
        }
    };
}

counters!(
    frames_sent,
    bytes_sent,
    answers_joined,
    frames_received,
    bytes_received,
    sessions_dialled,
    sessions_accepted,
    hellos_refused,
    connections_malformed,
    payloads_damaged,
    paths_lost,
    requests_repeated
);

impl Counters {
    pub(crate) fn sent(&self, bytes: usize) {
        self.frames_sent.add(1);
        self.bytes_sent.add(bytes as u64);
    }

    pub(crate) fn received(&self, bytes: usize) {
        self.frames_received.add(1);
        self.bytes_received.add(bytes as u64);
    }

    pub(crate) fn request_sent(&self, kind: RequestKind) {
        self.requests_sent.0[kind as usize].add(1);
    }

    pub(crate) fn request_served(&self, kind: RequestKind) {
        self.requests_served.0[kind as usize].add(1);
    }
}

/// A number that only grows.
#[derive(Default)]
pub(crate) struct Counter(Cell<u64>);

impl Counter {
    pub(crate) fn add(&self, amount: u64) {
        self.0.set(self.0.get() + amount);
    }
}

#[derive(Default)]
struct RequestCounters([Counter; KINDS]);

impl RequestCounters {
    fn snapshot(&self) -> RequestCounts {
        RequestCounts(std::array::from_fn(|kind| self.0[kind].0.get()))
    }
}
