//! An inspection for a person: a summary, a table of the copies, a list of what is damaged. No line
//! is longer than 100 columns, but for the path.

use std::fmt::Write as _;

use spandrel_shared::calendar::date_text;
use spandrel_shared::size::format_size;
use spandrel_shared::{BLOCK_BYTES, Version};

use crate::inspection::{CacheState, CopyReport, Damage, Inspection, RootSlotState};

/// The width of everything.
const WIDTH: usize = 100;

/// Lines of a list that are shown unless all are asked for.
const SHOWN_MAX: usize = 20;

impl Inspection {
    /// The inspection as text. Long lists are cut unless `all` is set.
    pub fn to_text(&self, all: bool) -> String {
        let mut text = String::new();
        self.summary(&mut text);
        self.write_volumes(&mut text, all);
        self.write_copies(&mut text, all);
        self.write_blocks(&mut text);
        let (by_crash, damaged): (Vec<&Damage>, Vec<&Damage>) =
            self.damage.iter().partition(|damage| damage.by_crash);
        write_damage(&mut text, "left by a crash; nothing that was answered is lost by it", &by_crash, all);
        write_damage(&mut text, "damaged", &damaged, all);
        push_line(&mut text, &self.verdict(damaged.len()));
        text
    }

    fn summary(&self, text: &mut String) {
        let superblock = &self.superblock;
        push_line(text, &format!("{}", self.path.display()));
        if self.was_in_use {
            push_line(text, "  in use      it may have changed meanwhile: do not trust single findings");
        }
        push_line(text, &format!("  drive       {}", superblock.drive));
        push_line(text, &format!("  node        {}", superblock.node));
        push_line(text, &format!("  cluster     {}", superblock.cluster));
        push_line(
            text,
            &format!(
                "  formatted   {}, {} in sectors of {} B, slabs of {}",
                date_text(superblock.created_unix_ms),
                format_size(superblock.size_bytes),
                superblock.sector_bytes,
                format_size(superblock.slab_bytes),
            ),
        );
        if let Some(cache) = &self.cache {
            let state = match cache.state {
                CacheState::Present => format!("an area of {}", format_size(cache.size_bytes)),
                CacheState::AnotherTime => "an image of another time: its journal does not count".to_owned(),
                CacheState::Absent => "not there: what it holds is lost".to_owned(),
            };
            push_line(text, &format!("  cache       {}, {state}", cache.cache));
            if cache.state != CacheState::Absent {
                push_line(
                    text,
                    &format!("              offsets from {} on are of the area there", cache.offset_bytes),
                );
            }
        }
        let whole = self.superblock_copies.iter().filter(|copy| copy.fault.is_none()).count();
        push_line(text, &format!("  superblock  {whole} of {} copies whole", self.superblock_copies.len()));
        match &self.root {
            Some(root) => {
                let generation = root.generation;
                let is_twin = RootSlotState::Whole { generation };
                let whole = self.root_slots.iter().filter(|slot| slot.state == is_twin).count();
                push_line(
                    text,
                    &format!(
                        "  root        generation {generation}, {whole} of 2 copies whole; attach {}, \
                         state revision {}",
                        root.attach_number, root.state_revision
                    ),
                );
            }
            None => push_line(text, "  root        none is whole: nothing behind it can be found"),
        }
        let journal = &self.journal;
        push_line(
            text,
            &format!(
                "  journal     {} behind the root, {} of {}",
                counted(journal.groups, "group"),
                format_size(journal.used_bytes),
                format_size(journal.size_bytes)
            ),
        );
        if journal.groups_cut_off > 0 {
            let cut_off = counted(journal.groups_cut_off, "group");
            push_line(text, &format!("              {cut_off} cut off by damage: what they say is lost"));
        }
        if journal.blocks_in_doubt > 0 {
            let blocks = counted(journal.blocks_in_doubt, "block");
            push_line(text, &format!("              {blocks} of the last group in doubt"));
        }
    }

    fn write_volumes(&self, text: &mut String, all: bool) {
        if self.volumes.is_empty() {
            return;
        }
        push_line(text, "");
        push_line(text, &format!("  {:<36} {:>7} {:>9} {:>20}  LISTED", "VOLUME", "SLABS", "FENCE", "MARK"));
        write_list(text, &self.volumes, all, |text, volume| {
            let slabs = self.copies.iter().filter(|copy| copy.volume == volume.volume).count();
            let listed = match volume.listed.iter().filter(|write| write.in_doubt).count() {
                0 => volume.listed.len().to_string(),
                doubtful => format!("{} ({doubtful} in doubt)", volume.listed.len()),
            };
            let (fence, mark) = (volume.fence_epoch.0, volume.mark.to_string());
            push_line(
                text,
                &format!("  {:<36} {slabs:>7} {fence:>9} {mark:>20}  {listed}", volume.volume.to_string()),
            );
        });
    }

    fn write_copies(&self, text: &mut String, all: bool) {
        if self.copies.is_empty() {
            return;
        }
        push_line(text, "");
        push_line(
            text,
            &format!(
                "  {:<36} {:>5} {:>10} {:>20} {:>8} {:>8}",
                "VOLUME", "SLAB", "STORED", "NEWEST", "LOST", "DAMAGED"
            ),
        );
        write_list(text, &self.copies, all, write_copy);
    }

    fn write_blocks(&self, text: &mut String) {
        if self.structures.is_empty() && self.blocks.is_empty() {
            return;
        }
        push_line(text, "");
        push_line(text, &format!("  {:<13} {:>14} {:>7}  OBJECT", "LIVE", "BYTE OFFSET", "BYTES"));
        for structure in &self.structures {
            let mut object = object_of(structure.volume, structure.slab);
            if let Some(page) = structure.page {
                let _ = write!(object, " page {page}");
            }
            if let Some(sequence) = structure.sequence {
                let _ = write!(object, "number {sequence}");
            }
            let (kind, offset) = (structure.kind.name(), structure.offset_bytes);
            push_line(text, &format!("  {kind:<13} {offset:>14} {:>7}  {object}", structure.length_bytes));
        }
        for block in &self.blocks {
            let object = object_of(Some(block.volume), Some(block.slab));
            let line = format!(
                "  {:<13} {:>14} {BLOCK_BYTES:>7}  {object} block {}",
                "data", block.offset_bytes, block.block
            );
            push_line(text, &line);
        }
    }

    fn verdict(&self, damaged: usize) -> String {
        let checked = counted(self.blocks_checked, "data block");
        let found = match damaged {
            0 => "no damage".to_owned(),
            1 => "1 place damaged".to_owned(),
            more => format!("{more} places damaged"),
        };
        format!("\n{checked} checked, {found}")
    }
}

fn write_copy(text: &mut String, copy: &CopyReport) {
    let stored = format_size(u64::from(copy.mapped_blocks) * BLOCK_BYTES as u64);
    push_line(
        text,
        &format!(
            "  {:<36} {:>5} {stored:>10} {:>20} {:>8} {:>8}",
            copy.volume.to_string(),
            copy.slab.0,
            copy.newest.to_string(),
            copy.lost_blocks,
            copy.damaged_blocks
        ),
    );
    match copy.proven {
        Some(Version::ZERO) => push_line(text, "    the drive can prove nothing of this copy"),
        Some(proven) => push_line(text, &format!("    the drive can prove this copy only up to {proven}")),
        None => {}
    }
}

fn write_damage(text: &mut String, heading: &str, damage: &[&Damage], all: bool) {
    if damage.is_empty() {
        return;
    }
    push_line(text, "");
    push_line(text, &format!("{heading}:"));
    push_line(text, &format!("  {:<13} {:>14}  OBJECT", "KIND", "BYTE OFFSET"));
    let mut before = None;
    write_list(text, damage, all, |text, damage| {
        let offset = damage.offset_bytes.map_or_else(|| "-".to_owned(), |offset| offset.to_string());
        let mut object = object_of(damage.volume, damage.slab);
        if let Some(page) = damage.page {
            let _ = write!(object, " page {page}");
        }
        match damage.block {
            Some(block) if damage.blocks > 1 => {
                let _ = write!(object, " block {block}-{}", block + damage.blocks - 1);
            }
            Some(block) => {
                let _ = write!(object, " block {block}");
            }
            None => {}
        }
        if let Some(sequence) = damage.sequence {
            let _ = write!(object, "number {sequence}");
        }
        push_line(text, format!("  {:<13} {offset:>14}  {object}", damage.kind.name()).trim_end());
        // Of many that are alike it is said once.
        if before.replace((damage.kind, &damage.detail)) != Some((damage.kind, &damage.detail)) {
            wrap(&damage.detail, WIDTH - 4).iter().for_each(|line| push_line(text, &format!("    {line}")));
        }
    });
}

fn object_of(volume: Option<spandrel_shared::VolumeId>, slab: Option<spandrel_shared::SlabIndex>) -> String {
    match (volume, slab) {
        (Some(volume), Some(slab)) => format!("{volume} slab {slab}"),
        _ => String::new(),
    }
}

/// Writes each of `entries`, or the first of them and how many more there are.
fn write_list<T>(text: &mut String, entries: &[T], all: bool, mut write_entry: impl FnMut(&mut String, &T)) {
    let shown = if all { entries.len() } else { entries.len().min(SHOWN_MAX) };
    entries[..shown].iter().for_each(|entry| write_entry(text, entry));
    if shown < entries.len() {
        push_line(text, &format!("  ... and {} more (--all shows them)", entries.len() - shown));
    }
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line);
    text.push('\n');
}

fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// The words of `text` in lines of at most `width` characters.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
#[path = "render_tests.rs"]
mod tests;
