//! What the admin API says of checking volumes: what one check finds, and how far the scrub is that goes on by itself.

use serde::{Deserialize, Serialize};
use spandrel_node::ScrubProgress;
use spandrel_shared::{DriveId, Error};
use spandrel_volume::ScrubReport;

use super::Progress;

/// `GET`: a list of [`ScrubStatus`], of all volumes. `POST`: lines of [`CheckLine`], a scrub of all volumes.
pub const SCRUB: &str = "/v1/scrub";
/// `POST` with [`CheckQuery`]: lines of [`NodeScrubLine`], of a volume that the node that is asked owns.
pub const NODE_SCRUB: &str = "/v1/node/scrub/{volume}";

/// How far the scrub of a volume is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubStatus {
    /// The volume's name.
    pub volume: String,
    /// Slabs that were read in the present pass, of all.
    pub slabs: Progress,
    /// Slabs that were never read.
    pub slabs_never_read: u32,
    /// When the slab was read that has waited longest; if it never was, when it was made.
    pub oldest_unix_ms: u64,
    /// When a slab was read last; absent if none ever was.
    pub newest_unix_ms: Option<u64>,
    /// When the present pass began.
    pub pass_began_unix_ms: u64,
    /// How many passes have read everything.
    pub passes: u64,
    /// Within how many seconds everything is to be read once; 0 if that is not done by itself.
    pub period_s: u32,
    /// Whether a slab has waited for more than one and a half periods.
    pub is_late: bool,
    /// What has to be read in a second to keep the pace, of all copies together, in bytes; less where nothing is stored.
    pub bytes_per_second: u64,
    /// What was found in total.
    pub found: ScrubFound,
    /// Blocks that were whole on every copy, but not the same on all, when they were read last.
    pub blocks_different_now: u64,
    /// Blocks that were damaged on every copy when they were read last.
    pub blocks_lost_now: u64,
}

/// What scrubs of a volume have found in total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScrubFound {
    /// Since when it is counted.
    pub since_unix_ms: u64,
    /// Blocks that were damaged, counted on each copy.
    pub blocks_damaged: u64,
    /// Of these, blocks that were healed.
    pub blocks_healed: u64,
    /// Blocks that were whole on every copy, but not the same on all.
    pub blocks_different: u64,
    /// Blocks that were damaged on every copy.
    pub blocks_lost: u64,
    /// Pages of which some copies lacked writes that they had confirmed; these copies were brought up to date.
    pub pages_lacking: u64,
}

impl ScrubFound {
    /// Whether nothing was ever found.
    pub fn is_nothing(&self) -> bool {
        *self == Self { since_unix_ms: self.since_unix_ms, ..Self::default() }
    }
}

/// How to check a volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckQuery {
    /// Also heal what is damaged.
    #[serde(default)]
    pub heal: bool,
}

/// One line of what a check says while it goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckLine {
    /// How far it is with a volume.
    Progress {
        /// The volume's name.
        volume: String,
        /// Slabs that are done.
        slabs: Progress,
    },
    /// A volume is done.
    Report(CheckReport),
    /// A volume could not be checked.
    Failed(Error),
}

/// One line of what a node says while it checks a volume that it owns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NodeScrubLine {
    /// How far it is.
    Progress(ScrubProgress),
    /// What it has found.
    Done(NodeScrub),
    /// Why it cannot.
    Failed(Error),
}

/// What a node has found while it checked a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeScrub {
    /// Blocks that were checked, counted on each copy.
    pub blocks_checked: u64,
    /// Blocks that were damaged, by drive.
    pub damaged: Vec<(DriveId, u64)>,
    /// Of these, blocks that were healed.
    pub blocks_healed: u64,
    /// Blocks that are whole on every copy but not the same on all.
    pub blocks_different: u64,
    /// Blocks that are damaged on every copy that was checked.
    #[serde(default)]
    pub blocks_lost: u64,
    /// Pages of which copies lacked writes that they had confirmed: these copies are brought up to date.
    #[serde(default)]
    pub pages_lacking: u64,
    /// Copies that could not be asked, in pieces of 1 MiB.
    pub pieces_unchecked: u64,
    /// Whether the check ended early, since the volume waits for something.
    pub gave_up: bool,
}

impl From<ScrubReport> for NodeScrub {
    fn from(report: ScrubReport) -> Self {
        Self {
            blocks_checked: report.blocks_checked,
            damaged: report.damaged.into_iter().collect(),
            blocks_healed: report.blocks_healed,
            blocks_different: report.blocks_different,
            blocks_lost: report.blocks_lost,
            pages_lacking: report.pages_lacking,
            pieces_unchecked: report.pieces_unchecked,
            gave_up: report.gave_up,
        }
    }
}

impl From<NodeScrub> for ScrubReport {
    fn from(scrub: NodeScrub) -> Self {
        Self {
            blocks_checked: scrub.blocks_checked,
            damaged: scrub.damaged.into_iter().collect(),
            blocks_healed: scrub.blocks_healed,
            blocks_different: scrub.blocks_different,
            blocks_lost: scrub.blocks_lost,
            pages_lacking: scrub.pages_lacking,
            pieces_unchecked: scrub.pieces_unchecked,
            gave_up: scrub.gave_up,
        }
    }
}

/// What a check of a volume found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckReport {
    /// The volume's name.
    pub volume: String,
    /// When the check ended.
    pub ended_unix_ms: u64,
    /// How long it took.
    pub seconds: u64,
    /// Whether damage was to be healed.
    pub heal: bool,
    /// Blocks that were checked, counted on each copy.
    pub blocks_checked: u64,
    /// Blocks that were damaged, by drive.
    pub damaged: Vec<Damage>,
    /// Of these, blocks that were healed.
    pub blocks_healed: u64,
    /// Blocks that are whole on every copy but not the same on all.
    pub blocks_different: u64,
    /// Blocks that are damaged on every copy that was checked.
    #[serde(default)]
    pub blocks_lost: u64,
    /// Pages of which copies lacked writes that they had confirmed: these copies are brought up to date.
    #[serde(default)]
    pub pages_lacking: u64,
    /// Copies that could not be asked, in pieces of 1 MiB.
    pub pieces_unchecked: u64,
}

/// Damage on one drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Damage {
    /// The drive's name.
    pub drive: String,
    /// How many blocks.
    pub blocks: u64,
}

impl CheckReport {
    /// Blocks that were damaged.
    pub fn blocks_damaged(&self) -> u64 {
        self.damaged.iter().map(|damage| damage.blocks).sum()
    }

    /// Whether every copy was checked, and is whole and like the others now.
    pub fn is_clean(&self) -> bool {
        self.blocks_damaged() == self.blocks_healed
            && self.blocks_different == 0
            && self.pages_lacking == 0
            && self.pieces_unchecked == 0
    }
}
