//! The walk along the journal: from the root's position, group by group, as far as the chain
//! holds, and a look at what stands behind its end.
//!
//! Which groups count follows from the attach of the drive that wrote them. Older attaches wrote
//! before the root; the same one wrote what is read here; a later one wrote its first groups before
//! its own first root, and they mean nothing unless they name a newer root than there is.

use std::ops::Range;

use spandrel_shared::{BLOCK_BYTES, DriveId};

use crate::journal::{GROUP_BYTES_MAX, Group, GroupHeader, HEADER_BYTES, Place, parse_group, parse_header};
use crate::root::{JournalPosition, Root};
use crate::source::{Reader, offset_of};

/// Bytes of the journal that are read at a time.
const WINDOW_BYTES: usize = 1 << 20;

/// How far behind the chain's end later groups are looked for.
const SEARCH_BYTES: u64 = 4 << 20;

/// Where a journal stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPlace {
    pub first_block: u32,
    pub blocks: u32,
    pub sector_bytes: u32,
}

/// A walk along the journal.
pub struct Chain<'a> {
    reader: Reader<'a>,
    drive: DriveId,
    attach_number: u64,
    root_generation: u64,
    /// Where the journal begins on the drive, and its bytes.
    start: u64,
    journal_bytes: u64,
    sector_bytes: u64,
    position: JournalPosition,
    /// Bytes from the beginning of the walk up to here, skipped ones included.
    used_bytes: u64,
    window: Option<(u64, Vec<u8>)>,
}

/// A group and where it stands on the drive.
#[derive(Clone, Debug)]
pub struct PlacedGroup {
    pub group: Group,
    pub offset_bytes: u64,
}

/// What stands at or behind the chain's end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Behind {
    /// Whole groups that count, or one that cannot be read where the next one must stand: the
    /// chain was cut by damage and not by a crash.
    pub gap: bool,
    /// The newest root that a group names.
    pub root_generation: u64,
    /// Whole groups that count and cannot be applied.
    pub groups_cut_off: u64,
    /// What looks like a group that counts and is not whole.
    pub damaged: Vec<DamagedGroup>,
}

/// A group that is not whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DamagedGroup {
    pub offset_bytes: u64,
    /// What it says of its length.
    pub length_bytes: u64,
    /// What it says of its number; `None` if not even that can be read.
    pub sequence: Option<u64>,
    pub why: String,
}

/// What was found at a place of the journal.
enum Found {
    Place(Place),
    Unreadable(String),
}

impl<'a> Chain<'a> {
    /// A walk from the position that `root` names.
    pub fn new(reader: Reader<'a>, drive: DriveId, journal: JournalPlace, root: &Root) -> Self {
        Self {
            reader,
            drive,
            attach_number: root.attach_number,
            root_generation: root.generation,
            start: offset_of(journal.first_block),
            journal_bytes: u64::from(journal.blocks) * BLOCK_BYTES as u64,
            sector_bytes: u64::from(journal.sector_bytes),
            position: root.journal,
            used_bytes: 0,
            window: None,
        }
    }

    /// Bytes of the journal from the root's position up to here.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// The number of the group that stands, or will stand, next.
    pub fn next_sequence(&self) -> u64 {
        self.position.sequence
    }

    /// Whether the group before the walk's beginning still stands where the root saw it or, if no whole group does, the next
    /// one stands behind it: a journal of which they are no part is not the one that the root goes on with. The error says why
    /// neither can be told.
    pub fn is_continued(&mut self) -> Result<bool, String> {
        let JournalPosition { sequence, previous_checksum, previous_sector, .. } = self.position;
        let Some(sector) = previous_sector else { return Ok(true) };
        let within = u64::from(sector) * self.sector_bytes;
        if within >= self.journal_bytes {
            return Ok(false);
        }
        let before = self.look_at(within, sequence.saturating_sub(1));
        if let Found::Place(Place::Group(Group { header, .. })) = before {
            return Ok(header.sequence + 1 == sequence && header.checksum == previous_checksum);
        }
        let places = self.next_places().into_iter().map(|(within, ..)| within);
        let next: Vec<Found> = places.map(|within| self.look_at(within, sequence)).collect();
        if self.next().is_some() {
            return Ok(true);
        }
        let unreadable = [before].into_iter().chain(next).find_map(|found| match found {
            Found::Unreadable(why) => Some(why),
            Found::Place(_) => None,
        });
        unreadable.map_or(Ok(false), Err)
    }

    /// The next group of the chain; `None` at its end.
    pub fn next(&mut self) -> Option<PlacedGroup> {
        for (within, lap, skipped) in self.next_places() {
            let Found::Place(Place::Group(group)) = self.look_at(within, self.position.sequence) else {
                continue;
            };
            let header = &group.header;
            let follows = header.sequence == self.position.sequence
                && header.previous_checksum == self.position.previous_checksum
                && header.lap == lap
                && self.counts(header);
            if follows {
                let length = (header.length_bytes as u64).next_multiple_of(self.sector_bytes);
                self.used_bytes += skipped + length;
                self.position = JournalPosition {
                    sequence: header.sequence + 1,
                    sector: ((within + length) / self.sector_bytes) as u32,
                    lap,
                    previous_checksum: header.checksum,
                    previous_sector: Some((within / self.sector_bytes) as u32),
                };
                return Some(PlacedGroup { group, offset_bytes: self.start + within });
            }
        }
        None
    }

    /// Whether a group counts, if its place in the chain is right.
    fn counts(&self, header: &GroupHeader) -> bool {
        header.attach_number == self.attach_number
            || header.attach_number > self.attach_number && header.root_generation > self.root_generation
    }

    /// Where the next group can stand: here, or at the ring's start if it did not fit before its
    /// end. Each with its lap and the bytes that are skipped.
    fn next_places(&self) -> Vec<(u64, u32, u64)> {
        let here = u64::from(self.position.sector) * self.sector_bytes;
        let left = self.journal_bytes.saturating_sub(here);
        let mut places = Vec::new();
        if left > 0 {
            places.push((here, self.position.lap, 0));
        }
        if here > 0 && left < GROUP_BYTES_MAX as u64 {
            places.push((0, self.position.lap.wrapping_add(1), left));
        }
        places
    }

    /// Looks at what stands at and behind the chain's end.
    pub fn look_behind(&mut self) -> Behind {
        let mut behind = Behind::default();
        let places = self.next_places();
        for (within, _, _) in &places {
            if let Found::Unreadable(why) = self.look_at(*within, self.position.sequence) {
                behind.gap = true;
                let offset_bytes = self.start + within;
                behind.damaged.push(DamagedGroup {
                    offset_bytes,
                    length_bytes: self.sector_bytes,
                    sequence: None,
                    why,
                });
            }
        }
        let sectors = self.journal_bytes / self.sector_bytes;
        let first = u64::from(self.position.sector) % sectors;
        for step in 0..(SEARCH_BYTES / self.sector_bytes).min(sectors) {
            let within = (first + step) % sectors * self.sector_bytes;
            match self.look_at(within, self.position.sequence) {
                Found::Place(Place::Group(group)) => self.note_group(&group.header, &mut behind),
                Found::Place(Place::Damaged(header, why)) => {
                    if header.attach_number == self.attach_number && header.sequence >= self.position.sequence
                    {
                        behind.damaged.push(DamagedGroup {
                            offset_bytes: self.start + within,
                            length_bytes: header.length_bytes as u64,
                            sequence: Some(header.sequence),
                            why: why.to_owned(),
                        });
                    }
                }
                Found::Place(Place::Nothing) | Found::Unreadable(_) => {}
            }
        }
        if behind.gap && behind.damaged.is_empty() {
            // Not even a header is left of the group that is missing.
            behind.damaged.extend(places.first().map(|(within, _, _)| DamagedGroup {
                offset_bytes: self.start + within,
                length_bytes: self.sector_bytes,
                sequence: None,
                why: "a group is missing".to_owned(),
            }));
        }
        behind
    }

    fn note_group(&self, header: &GroupHeader, behind: &mut Behind) {
        if header.attach_number >= self.attach_number {
            behind.root_generation = behind.root_generation.max(header.root_generation);
        }
        if self.counts(header) && header.sequence >= self.position.sequence {
            behind.gap = true;
            behind.groups_cut_off += 1;
        }
    }

    /// What stands there, where the group of the sequence `expected` would be needed.
    fn look_at(&mut self, within: u64, expected: u64) -> Found {
        let drive = self.drive;
        let header = match self.bytes(within, HEADER_BYTES as u64) {
            Ok(head) => parse_header(head, drive),
            Err(why) => return Found::Unreadable(why),
        };
        let Some(header) = header else { return Found::Place(Place::Nothing) };
        if header.length_bytes > GROUP_BYTES_MAX {
            return Found::Place(Place::Damaged(header, "its length is wrong"));
        }
        match self.bytes(within, header.length_bytes as u64) {
            Ok(bytes) => Found::Place(parse_group(header, bytes)),
            // What is left of an older group may well be unreadable: nobody needs it.
            Err(why) if header.sequence == expected => Found::Unreadable(why),
            Err(_) => Found::Place(Place::Nothing),
        }
    }

    /// `length` bytes of the journal, or fewer at its end.
    fn bytes(&mut self, within: u64, length: u64) -> Result<&[u8], String> {
        let end = (within + length).min(self.journal_bytes);
        let is_held = |window: &(u64, Vec<u8>)| window.0 <= within && end <= window.0 + window.1.len() as u64;
        if !self.window.as_ref().is_some_and(is_held) {
            let many = (self.journal_bytes - within).min(WINDOW_BYTES as u64).max(end - within);
            let bytes = match self.reader.bytes(self.start + within, many as usize) {
                Ok(bytes) => bytes,
                // Something in the window is bad; perhaps not what is looked for.
                Err(_) => self.reader.bytes(self.start + within, (end - within) as usize)?,
            };
            self.window = Some((within, bytes));
        }
        let (first, bytes) = self.window.as_ref().expect("it was read above if it was not there");
        let range: Range<usize> = (within - first) as usize..(end - first) as usize;
        Ok(&bytes[range])
    }
}
