//! What can break, as data: a run's faults are drawn before it begins, so that a run that fails can be
//! tried again with fewer of them.
//!
//! Reading order: [`Fault`] (what there is), `plan` (which ones a seed draws, and when), [`atlas`]
//! (which the system promises to survive at a moment: the others are left out), `inject` (how each
//! is done and undone).

pub mod atlas;
pub mod inject;
pub mod plan;

use std::fmt;

use serde::{Deserialize, Serialize};
use spandrel_shared::CacheMode;

use crate::labels::Labels;

/// A drive by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DrivePlace {
    /// The server.
    pub node: usize,
    /// Which of its drives: its cache drives are counted behind the others.
    pub drive: usize,
}

impl fmt::Display for DrivePlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "n{} drive {}", self.node + 1, self.drive + 1)
    }
}

/// How a drive fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DriveFailure {
    /// It answers everything with an error, and keeps its power.
    Dies,
    /// It is pulled out: its power goes.
    Pulled,
    /// Its writes fail, and may have happened.
    WriteErrors,
    /// Its flushes fail.
    FlushErrors,
}

/// Something that breaks. What lasts is undone by itself after a time, in virtual milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are the words of the texts above them")]
pub enum Fault {
    /// A node's process is killed, or its server loses its power; it is started again.
    Stop { node: usize, power_cut: bool, away_ms: u64 },
    /// All servers lose their power at once, and come back one by one within the time.
    PowerCutAll { away_ms: u64 },
    /// A node's process stands still.
    Pause { node: usize, for_ms: u64 },
    /// Nothing passes from one server to another, or between them.
    Cut { from: usize, to: usize, both_ways: bool, for_ms: u64 },
    /// Nothing passes from one server to another on the second of two networks, or between them.
    CutPath { from: usize, to: usize, both_ways: bool, for_ms: u64 },
    /// Nothing reaches a server from the others, or nothing leaves it, or both.
    Isolate { node: usize, inbound: bool, outbound: bool, for_ms: u64 },
    /// A server is cut off from the cluster's state, and from one other server or all of them: it learns of
    /// nothing that is decided meanwhile.
    Orphan { node: usize, other: Option<usize>, for_ms: u64 },
    /// The connections between two servers break: once, or again and again.
    BreakConnections {
        one: usize,
        other: usize,
        #[serde(default)]
        again: u32,
        #[serde(default)]
        every_ms: u64,
    },
    /// Nothing reaches a server from the clients that are no server's, or nothing of it reaches them.
    ClientsCut { node: usize, inbound: bool, outbound: bool, for_ms: u64 },
    /// The connections of such clients to a server break.
    ClientsDropped { node: usize },
    /// Messages from one server to another take long.
    SlowLink { from: usize, to: usize, delay_ms: u64, for_ms: u64 },
    /// The cluster's state answers nobody.
    StateOutage { for_ms: u64 },
    /// The cluster's state cannot be reached by one node.
    StateCutOff { node: usize, for_ms: u64 },
    /// Requests to the cluster's state, and its answers, are lost or late, so many of 1000 each.
    StateLosses { requests: u32, answers: u32, late: u32, for_ms: u64 },
    /// The time of day of a server jumps.
    TimeOfDay { node: usize, jump_ms: i64 },
    /// A server's clock runs fast or slow by parts per million.
    ClockDrift { node: usize, ppm: i32 },
    /// A drive answers nothing for a while.
    DriveHangs { place: DrivePlace, for_ms: u64 },
    /// A drive takes many times as long as usual.
    DriveSlow { place: DrivePlace, factor: u32, for_ms: u64 },
    /// A drive fails; later it works again, and its node is restarted.
    DriveFails { place: DrivePlace, failure: DriveFailure, for_ms: u64 },
    /// Bits flip in blocks that were written lately, and in others; perhaps its server loses its power at
    /// once, so that a recovery meets them.
    Rot {
        place: DrivePlace,
        newest_per_mille: u32,
        others: u32,
        #[serde(default)]
        power_cut: bool,
    },
    /// The next write to the drive is acknowledged and lost, or written elsewhere.
    StrayWrite { place: DrivePlace, misdirected: bool },
    /// So many blocks cannot be read any more, until they are written.
    Unreadable { place: DrivePlace, blocks: u32 },
    /// A drive has no room for a while.
    NoRoom { place: DrivePlace, for_ms: u64 },
    /// A server loses its power, and one of its drives comes back as it once was; in the end the true
    /// one is put back, and the node restarted. Perhaps all servers lose their power, and this one comes
    /// back first: nobody is there who would know better.
    OldImage {
        place: DrivePlace,
        for_ms: u64,
        #[serde(default)]
        power_cut_all: bool,
    },
    /// All servers lose their power, perhaps after they were stopped in order, and the cluster's state comes back
    /// as it once was, which they refuse; then they lose their power again, and the true state is put back.
    OlderState { in_order: bool, away_ms: u64, for_ms: u64 },
    /// A server loses its power and all its drives, and comes back with blank ones.
    LoseDrives { node: usize, away_ms: u64 },
    /// A cache drive is lost for good: it dies, or is gone when its server comes back from a power cut. Later it is taken out
    /// of the cluster, and a blank one takes its place.
    LoseCache { place: DrivePlace, power_cut: bool, for_ms: u64 },
    /// No fault: an operator has a cache drive emptied and takes it out; later a blank one takes its place.
    ReleaseCache { place: DrivePlace, for_ms: u64 },
    /// No fault: an operator retires a cache drive, and uses it again after a time.
    RetireCache { place: DrivePlace, for_ms: u64 },
    /// No fault: caches are used otherwise from now on.
    CacheMode { mode: CacheMode },
    /// No fault: maps take so much memory of each server from now on; as much as they need if zero.
    MapMemory { bytes: u64 },
    /// No fault: an operator retires a drive, and uses it again after a time.
    Retire { place: DrivePlace, for_ms: u64 },
    /// No fault: somebody says where a server stands.
    Label { node: usize, labels: Labels },
    /// No fault: a volume is scrubbed.
    Scrub { volume: usize },
    /// No fault: a volume is handed over to another server, which may be down.
    HandOver { volume: usize, to: usize },
    /// No fault: an operator limits what a volume's clients may do (to so many I/Os a second; not at all if zero), and has it
    /// stay with its owner or not.
    SetVolume { volume: usize, iops_max: u64, is_pinned: bool },
    /// No fault: a volume is made larger by so many blocks.
    Grow { volume: usize, blocks: u64 },
}

impl Fault {
    /// Whether a drive may hold less than it has confirmed, or something else, afterwards.
    pub fn is_damage(&self) -> bool {
        matches!(
            self,
            Fault::Rot { .. }
                | Fault::StrayWrite { .. }
                | Fault::Unreadable { .. }
                | Fault::OldImage { .. }
                | Fault::LoseDrives { .. }
                | Fault::LoseCache { .. }
        )
    }

    /// Its name, for statistics.
    pub fn kind(&self) -> &'static str {
        match self {
            Fault::Stop { power_cut: false, .. } => "process crash",
            Fault::Stop { power_cut: true, .. } => "power cut of a server",
            Fault::PowerCutAll { .. } => "power cut of the cluster",
            Fault::Pause { .. } => "pause",
            Fault::Cut { .. } => "cut",
            Fault::CutPath { .. } => "cut path",
            Fault::Isolate { .. } => "isolation",
            Fault::Orphan { .. } => "orphaned server",
            Fault::BreakConnections { .. } => "broken connections",
            Fault::ClientsCut { .. } => "clients cut off",
            Fault::ClientsDropped { .. } => "broken connections of clients",
            Fault::SlowLink { .. } => "slow link",
            Fault::StateOutage { .. } => "outage of the state",
            Fault::StateCutOff { .. } => "node without the state",
            Fault::StateLosses { .. } => "lossy way to the state",
            Fault::TimeOfDay { .. } => "jump of the time of day",
            Fault::ClockDrift { .. } => "clock drift",
            Fault::DriveHangs { .. } => "hanging drive",
            Fault::DriveSlow { .. } => "slow drive",
            Fault::DriveFails { .. } => "failed drive",
            Fault::Rot { .. } => "bit rot",
            Fault::StrayWrite { misdirected: false, .. } => "lost write",
            Fault::StrayWrite { misdirected: true, .. } => "misdirected write",
            Fault::Unreadable { .. } => "unreadable blocks",
            Fault::NoRoom { .. } => "drive without room",
            Fault::OldImage { .. } => "old image of a drive",
            Fault::OlderState { .. } => "older state of the cluster",
            Fault::LoseDrives { .. } => "loss of all drives of a server",
            Fault::LoseCache { .. } => "loss of a cache drive",
            Fault::ReleaseCache { .. } => "cache drive taken out",
            Fault::RetireCache { .. } => "retired cache drive",
            Fault::CacheMode { .. } => "other mode of the caches",
            Fault::MapMemory { .. } => "other memory for maps",
            Fault::Retire { .. } => "retired drive",
            Fault::Label { .. } => "other labels of a server",
            Fault::Scrub { .. } => "scrub",
            Fault::HandOver { .. } => "hand-over",
            Fault::SetVolume { .. } => "other settings of a volume",
            Fault::Grow { .. } => "growth of a volume",
        }
    }
}
