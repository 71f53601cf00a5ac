//! Reads the journal group by group, as far as the chain holds, and looks behind its end.
//!
//! A root names the place from which the journal counts, and the attach of the drive in which it
//! was written. Of the groups that stand in the ring, that tells which ones count:
//!
//! - Older attaches wrote before the root: what they left is part of its maps, or of attempts to
//!   attach the drive that did not come to their end.
//! - The same attach wrote what is read here.
//! - A later attach wrote its first groups before its own first root. If that root is missing, the
//!   drive was not in use yet, and they mean nothing. Unless a group names a newer root than the
//!   one that was found: then that one is lost.

use spandrel_platform::{BufferMut, DriveError, Platform};
use spandrel_shared::{BLOCK_BYTES, DriveId};

use crate::drive_check::read_place;
use crate::format::journal::{
    GROUP_BYTES_MAX, Group, GroupHeader, claimed_sequence, decode_group, group_length,
};
use crate::format::root::{JournalPosition, Root};
use crate::layout::Layout;
use crate::media::Media;

/// Bytes that are read at a time: many groups.
const WINDOW_BYTES: usize = 1 << 20;

/// How far behind the chain's end a later group is looked for: damage is local, and groups are
/// short.
const GAP_SEARCH_BYTES: usize = 4 << 20;

/// A walk along the journal.
pub struct JournalReader<'a, P: Platform> {
    platform: &'a P,
    media: &'a Media<P::Drive>,
    layout: Layout,
    origin: Origin,
    position: JournalPosition,
    used_sectors: u64,
    window: Option<Window>,
}

/// What the root says of the groups that count.
#[derive(Clone, Copy)]
struct Origin {
    drive: DriveId,
    attach_number: u64,
    root_generation: u64,
}

/// Sectors that were read last.
struct Window {
    first_sector: u32,
    bytes: BufferMut,
    /// Blocks of it that could not be read, and hold zeros here.
    unreadable: Vec<usize>,
}

/// What stands behind the end of the chain, or at it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// A group that counts stands behind one that is missing or damaged, or the next one could not
    /// be read. A mere crash leaves no such thing: only one group is under way at a time.
    pub gap: bool,
    /// The newest root that a group names.
    pub root_generation: u64,
    /// The latest attach that has left a group.
    pub attach_number: u64,
    /// The highest sequence of the groups that show the gap.
    sequence: u64,
    /// Sectors from the chain's end to the end of what shows the gap.
    sectors: u32,
}

/// What stands at a sector.
enum Found {
    Group(Group),
    /// No whole group.
    Nothing,
    /// The drive does not say.
    Unreadable,
}

/// What stands where the next group of the chain can stand.
struct Next {
    /// That group, and its place: its sector, its lap, and the sectors that are skipped before it.
    group: Option<(Group, (u32, u32, u32))>,
    /// Whether a place could not be read before it was found.
    is_unreadable: bool,
}

impl Origin {
    /// Whether a group counts, if its place in the chain is right.
    fn counts(&self, header: &GroupHeader) -> bool {
        header.attach_number == self.attach_number
            || header.attach_number > self.attach_number && header.root_generation > self.root_generation
    }
}

impl<'a, P: Platform> JournalReader<'a, P> {
    /// A walk from the position that `root` names.
    pub fn new(platform: &'a P, media: &'a Media<P::Drive>, layout: Layout, root: &Root) -> Self {
        let origin =
            Origin { drive: root.drive, attach_number: root.attach_number, root_generation: root.generation };
        let position = root.journal;
        Self { platform, media, layout, origin, position, used_sectors: 0, window: None }
    }

    /// Where the next group stands, or will stand.
    pub fn position(&self) -> JournalPosition {
        self.position
    }

    /// Sectors from the beginning of the walk up to here, skipped ones included.
    pub fn used_sectors(&self) -> u64 {
        self.used_sectors
    }

    /// The next group of the chain; `None` at its end.
    pub async fn next(&mut self) -> Result<Option<Group>, DriveError> {
        let Some((group, (sector, lap, skipped))) = self.find_next().await?.group else { return Ok(None) };
        self.used_sectors += u64::from(skipped);
        self.advance(&group, sector, lap);
        Ok(Some(group))
    }

    async fn find_next(&mut self) -> Result<Next, DriveError> {
        let mut is_unreadable = false;
        for place in self.next_places().into_iter().flatten() {
            match self.group_at(place.0, self.position.sequence).await? {
                Found::Group(group) if self.follows(&group.header, place.1) => {
                    return Ok(Next { group: Some((group, place)), is_unreadable });
                }
                Found::Group(_) | Found::Nothing => {}
                Found::Unreadable => is_unreadable = true,
            }
        }
        Ok(Next { group: None, is_unreadable })
    }

    /// Where the next group can stand: here, or at the ring's start if it did not fit before its
    /// end. Each with its lap and the sectors that are skipped.
    fn next_places(&self) -> [Option<(u32, u32, u32)>; 2] {
        let here = self.position;
        let left = self.layout.journal_sectors().saturating_sub(here.sector);
        let is_near_end = (left as usize * self.sector_bytes()) < GROUP_BYTES_MAX;
        [(left > 0).then_some((here.sector, here.lap, 0)), is_near_end.then_some((0, here.lap + 1, left))]
    }

    fn follows(&self, header: &GroupHeader, lap: u32) -> bool {
        header.sequence == self.position.sequence
            && header.previous_checksum == self.position.previous_checksum
            && header.lap == lap
            && self.origin.counts(header)
    }

    /// Looks at what stands behind the chain's end.
    pub async fn look_behind(&mut self) -> Result<Behind, DriveError> {
        let mut behind = Behind::default();
        if self.find_next().await?.is_unreadable {
            behind.gap = true;
            behind.sectors = (GROUP_BYTES_MAX / self.sector_bytes()) as u32;
        }
        let journal_sectors = self.layout.journal_sectors();
        let search = (GAP_SEARCH_BYTES / self.sector_bytes()).min(journal_sectors as usize) as u32;
        for step in 0..search {
            let sector = (self.position.sector + step) % journal_sectors;
            let Found::Group(group) = self.group_at(sector, self.position.sequence).await? else { continue };
            let header = group.header;
            if header.attach_number >= self.origin.attach_number {
                behind.attach_number = behind.attach_number.max(header.attach_number);
                behind.root_generation = behind.root_generation.max(header.root_generation);
            }
            // The very next one counts too: it stands in the wrong place, or it would have been read.
            if self.origin.counts(&header) && header.sequence >= self.position.sequence {
                behind.gap = true;
                behind.sequence = behind.sequence.max(header.sequence);
                behind.sectors = behind.sectors.max(step + self.sectors_of(&group));
            }
        }
        Ok(behind)
    }

    /// Whether the group before the place where the walk begins still stands there, if its place is known: a journal of
    /// which it is no part is not the one that the root goes on with. Nobody needs that group any more, so it may have rotted:
    /// then the next one of the chain says the same, since it names the checksum. `None` if neither is found, and a place
    /// cannot be read.
    pub async fn is_continued(&mut self) -> Result<Option<bool>, DriveError> {
        let JournalPosition { sequence, previous_checksum, previous_sector, .. } = self.position;
        let Some(sector) = previous_sector else { return Ok(Some(true)) };
        if sector >= self.layout.journal_sectors() {
            return Ok(Some(false));
        }
        let before = self.group_at(sector, sequence.saturating_sub(1)).await?;
        if let Found::Group(group) = before {
            return Ok(Some(group.header.sequence + 1 == sequence && group.checksum == previous_checksum));
        }
        let next = self.find_next().await?;
        if next.group.is_some() {
            return Ok(Some(true));
        }
        let is_unreadable = next.is_unreadable || matches!(before, Found::Unreadable);
        Ok((!is_unreadable).then_some(false))
    }

    /// Moves on behind what shows a gap.
    pub fn skip(&mut self, behind: &Behind) {
        if behind.gap {
            self.position.previous_sector = None;
        }
        let journal_sectors = self.layout.journal_sectors();
        self.used_sectors += u64::from(behind.sectors);
        self.position.sequence = self.position.sequence.max(behind.sequence + 1);
        self.position.sector += behind.sectors;
        if self.position.sector > journal_sectors {
            self.position.sector -= journal_sectors;
            self.position.lap += 1;
        }
    }

    fn sectors_of(&self, group: &Group) -> u32 {
        (group.length_bytes as usize).div_ceil(self.sector_bytes()) as u32
    }

    fn sector_bytes(&self) -> usize {
        self.layout.sector_bytes as usize
    }

    fn advance(&mut self, group: &Group, sector: u32, lap: u32) {
        let sectors = self.sectors_of(group);
        self.used_sectors += u64::from(sectors);
        self.position = JournalPosition {
            sequence: group.header.sequence + 1,
            sector: sector + sectors,
            lap,
            previous_checksum: group.checksum,
            previous_sector: Some(sector),
        };
    }

    /// What stands at `sector`, where the group of the sequence `expected` would be needed.
    async fn group_at(&mut self, sector: u32, expected: u64) -> Result<Found, DriveError> {
        let drive = self.origin.drive;
        let Some(head) = self.bytes_at(sector, self.sector_bytes()).await? else {
            return Ok(Found::Unreadable);
        };
        let Ok(length) = group_length(head, drive) else { return Ok(Found::Nothing) };
        // What is left of an older group there may well be unreadable: nobody needs it.
        let is_expected = claimed_sequence(head) == Some(expected);
        match self.bytes_at(sector, length).await? {
            Some(bytes) => Ok(decode_group(bytes, drive).map_or(Found::Nothing, Found::Group)),
            None if is_expected => Ok(Found::Unreadable),
            None => Ok(Found::Nothing),
        }
    }

    /// `length` bytes from `sector` on, or fewer at the ring's end. `None` if they cannot be read.
    async fn bytes_at(&mut self, sector: u32, length: usize) -> Result<Option<&[u8]>, DriveError> {
        let journal_bytes = self.layout.journal_bytes() as usize;
        let start = sector as usize * self.sector_bytes();
        let end = (start + length).min(journal_bytes);
        let window_start = |window: &Window| window.first_sector as usize * self.sector_bytes();
        let covered = self.window.as_ref().is_some_and(|window| {
            window_start(window) <= start && end <= window_start(window) + window.bytes.len()
        });
        if !covered {
            self.window = Some(self.read_window(sector, WINDOW_BYTES.min(journal_bytes - start)).await?);
        }
        let sector_bytes = self.sector_bytes();
        let window = self.window.as_ref().expect("read above if it was not there");
        let first = window.first_sector as usize * sector_bytes;
        let range = start - first..end - first;
        let blocks = range.start / BLOCK_BYTES..range.end.div_ceil(BLOCK_BYTES);
        let readable = !window.unreadable.iter().any(|block| blocks.contains(block));
        Ok(readable.then(|| &window.bytes[range]))
    }

    /// Reads a stretch of the journal; if that fails, block by block, so that one bad sector hides
    /// no more than its neighbours.
    async fn read_window(&self, sector: u32, length: usize) -> Result<Window, DriveError> {
        let offset = Layout::offset_of(self.layout.journal_first_block)
            + u64::from(sector) * u64::from(self.layout.sector_bytes);
        let buffers = self.platform.buffers();
        if let Ok(bytes) = self.media.read(offset, buffers.take(length)).await {
            return Ok(Window { first_sector: sector, bytes, unreadable: Vec::new() });
        }
        let mut bytes = buffers.take_zeroed(length);
        let mut unreadable = Vec::new();
        for (block, into) in bytes.chunks_mut(BLOCK_BYTES).enumerate() {
            let place = offset + (block * BLOCK_BYTES) as u64;
            match read_place(self.platform, self.media, &self.layout, place, into.len()).await? {
                Ok(read) => into.copy_from_slice(&read),
                Err(error) => {
                    tracing::warn!(drive = %self.origin.drive, "{error}");
                    unreadable.push(block);
                }
            }
        }
        Ok(Window { first_sector: sector, bytes, unreadable })
    }
}

#[cfg(test)]
#[path = "journal_reader_tests.rs"]
mod tests;
