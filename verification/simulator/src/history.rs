//! What clients did to one volume, in the order in which it happened, for the judge of registers.
//!
//! The unit of a history is the sector of 512 bytes, the smallest thing that a client can change. Each
//! write fills its sectors with a value of its own (zero for trims and write-zeroes), so that a read
//! tells which write each of its sectors comes from. Where only whole blocks were ever touched, a block
//! is judged as one register; elsewhere each of its sectors is. That a block is never torn is judged
//! besides: of two writes that both cover two sectors of a block, a read never sees the one here and
//! the other there.
//!
//! A client that asks for a write again, over another connection, cannot know whether it was done already: it
//! may take effect once more. If nobody else writes there meanwhile, that shows nowhere; if somebody does, it
//! puts its value in the place of theirs again. So each repetition counts as a write of the same value, and the
//! answer ends all of them: what takes effect later is wrong, whichever of them it was.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::time::Duration;

use spandrel_platform::{Buffer, BufferPool};
use spandrel_platform_simulated::World;

use crate::register::{Moment, Operation, Violation, check};

/// Bytes of a sector.
pub const SECTOR_BYTES: usize = 512;

/// So many operations are shown on each side of an impossible read.
const STORY_LINES: usize = 15;

/// Sectors of a block.
pub const BLOCK_SECTORS: u64 = 8;

/// Which operation of a history; from [`History::begin_write`] and [`History::begin_read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationNumber(usize);

/// All operations of all clients on one volume.
#[derive(Default)]
pub struct History {
    operations: RefCell<Vec<Recorded>>,
    newest_value: Cell<u64>,
    clock: Cell<Moment>,
    /// When each moment was.
    times: RefCell<Vec<Duration>>,
    /// Whose time that is; if there is none, all happens at zero.
    world: Option<World>,
    answered: Cell<usize>,
    repeated: Cell<u64>,
}

struct Recorded {
    sectors: Range<u64>,
    what: What,
    start: Moment,
    end: Option<Moment>,
    /// When it was asked for again, and when that may not take effect any more.
    repeats: Vec<(Moment, Option<Moment>)>,
}

enum What {
    Write(u64),
    /// The values that were seen, one for each stretch of equal sectors.
    Read(Vec<(u64, u64)>),
    /// It was refused, and changed nothing.
    Nothing,
}

/// What makes a history impossible.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inconsistency {
    /// The first sector of the volume that shows it.
    pub sector: u64,
    /// What is wrong with it.
    pub what: String,
    /// What was done to that sector, in order of time.
    pub story: String,
}

impl fmt::Display for Inconsistency {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (block, within) = (self.sector / BLOCK_SECTORS, self.sector % BLOCK_SECTORS);
        write!(formatter, "block {block}, sector {within}: {}\n{}", self.what, self.story)
    }
}

impl History {
    /// An empty history, of what happens in a world.
    pub fn of_world(world: World) -> Self {
        Self { world: Some(world), ..Self::default() }
    }

    fn moment(&self) -> Moment {
        self.times.borrow_mut().push(self.world.as_ref().map_or(Duration::ZERO, World::now));
        self.clock.set(self.clock.get() + 1);
        self.clock.get()
    }

    /// A value that was never written.
    pub fn value(&self) -> u64 {
        self.newest_value.set(self.newest_value.get() + 1);
        self.newest_value.get()
    }

    /// The value that was given out last.
    pub fn newest_value(&self) -> u64 {
        self.newest_value.get()
    }

    /// How many operations have begun.
    pub fn count(&self) -> usize {
        self.operations.borrow().len()
    }

    /// How many operations were answered.
    pub fn answered(&self) -> usize {
        self.answered.get()
    }

    /// A write of `value` begins; zero for a trim or write-zeroes.
    pub fn begin_write(&self, sectors: Range<u64>, value: u64) -> OperationNumber {
        self.begin(sectors, What::Write(value))
    }

    /// A read begins.
    pub fn begin_read(&self, sectors: Range<u64>) -> OperationNumber {
        self.begin(sectors, What::Read(Vec::new()))
    }

    fn begin(&self, sectors: Range<u64>, what: What) -> OperationNumber {
        let start = self.moment();
        let mut operations = self.operations.borrow_mut();
        operations.push(Recorded { sectors, what, start, end: None, repeats: Vec::new() });
        OperationNumber(operations.len() - 1)
    }

    /// A write that was not answered is asked for again.
    pub fn repeat_write(&self, number: OperationNumber) {
        self.operations.borrow_mut()[number.0].repeats.push((self.moment(), None));
        self.repeated.set(self.repeated.get() + 1);
    }

    /// How often a write was asked for again.
    pub fn repeated(&self) -> u64 {
        self.repeated.get()
    }

    /// A write was answered, and so are its repetitions. One that never is may take effect at any later time,
    /// or never.
    pub fn end_write(&self, number: OperationNumber) {
        let recorded = &mut self.operations.borrow_mut()[number.0];
        recorded.end = Some(self.moment());
        for (_, end) in &mut recorded.repeats {
            *end = Some(self.moment());
        }
        self.answered.set(self.answered.get() + 1);
    }

    /// A read was answered with `parts`, one behind the other.
    ///
    /// # Errors
    ///
    /// A sector that holds more than one value: it is torn.
    pub fn end_read<'a>(
        &self,
        number: OperationNumber,
        parts: impl IntoIterator<Item = &'a [u8]>,
    ) -> Result<(), String> {
        let mut seen: Vec<(u64, u64)> = Vec::new();
        let bytes: Vec<&[u8]> = parts.into_iter().collect();
        for sector in bytes.iter().flat_map(|part| part.chunks(SECTOR_BYTES)) {
            let value = value_of(sector)?;
            match seen.last_mut() {
                Some((count, last)) if *last == value => *count += 1,
                _ => seen.push((1, value)),
            }
        }
        let mut operations = self.operations.borrow_mut();
        let recorded = &mut operations[number.0];
        let sectors: u64 = seen.iter().map(|(count, _)| count).sum();
        if sectors != recorded.sectors.end - recorded.sectors.start {
            return Err(format!("a read of sectors {:?} brought {sectors}", recorded.sectors));
        }
        recorded.end = Some(self.moment());
        recorded.what = What::Read(seen);
        self.answered.set(self.answered.get() + 1);
        Ok(())
    }

    /// A write was refused: it has changed nothing, and never will.
    pub fn refuse(&self, number: OperationNumber) {
        self.operations.borrow_mut()[number.0].what = What::Nothing;
    }

    /// The stretches that clients have touched, in order and without overlaps.
    pub fn touched(&self) -> Vec<Range<u64>> {
        let operations = self.operations.borrow();
        let mut ranges: Vec<Range<u64>> =
            operations.iter().map(|recorded| recorded.sectors.clone()).collect();
        ranges.sort_by_key(|range| range.start);
        let mut merged: Vec<Range<u64>> = Vec::new();
        for range in ranges {
            match merged.last_mut() {
                Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
                _ => merged.push(range),
            }
        }
        merged
    }

    /// Whether every block behaved like a register, and was never torn.
    ///
    /// # Errors
    ///
    /// The first sector that did not.
    pub fn check(&self) -> Result<(), Inconsistency> {
        let operations = self.operations.borrow();
        let mut by_block: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (number, recorded) in operations.iter().enumerate() {
            if matches!(recorded.what, What::Nothing) || (recorded.is_read() && recorded.end.is_none()) {
                continue;
            }
            let sectors = &recorded.sectors;
            for block in sectors.start / BLOCK_SECTORS..sectors.end.div_ceil(BLOCK_SECTORS) {
                by_block.entry(block).or_default().push(number);
            }
        }
        for (block, numbers) in by_block {
            let recorded: Vec<&Recorded> = numbers.iter().map(|number| &operations[*number]).collect();
            check_block(block, &recorded, &self.times.borrow())?;
        }
        Ok(())
    }
}

impl Recorded {
    fn is_read(&self) -> bool {
        matches!(self.what, What::Read(_))
    }

    fn covers(&self, sector: u64) -> bool {
        self.sectors.contains(&sector)
    }

    fn covers_block(&self, block: u64) -> bool {
        self.covers(block * BLOCK_SECTORS) && self.covers(block * BLOCK_SECTORS + BLOCK_SECTORS - 1)
    }

    /// The value that was written or seen at `sector`, which it covers.
    fn value_at(&self, sector: u64) -> u64 {
        match &self.what {
            What::Write(value) => *value,
            What::Read(seen) => {
                let mut left = sector - self.sectors.start;
                for (count, value) in seen {
                    match left.checked_sub(*count) {
                        Some(rest) => left = rest,
                        None => return *value,
                    }
                }
                unreachable!("a read that was answered has seen all of its sectors")
            }
            What::Nothing => unreachable!("refused writes are left out"),
        }
    }

    /// What it did to `sector`, which it covers: one operation, and one more for each repetition.
    fn at(&self, sector: u64) -> impl Iterator<Item = Operation> {
        let (value, is_write) = (self.value_at(sector), !self.is_read());
        let attempts = std::iter::once((self.start, self.end)).chain(self.repeats.iter().copied());
        attempts.map(move |(start, end)| Operation { value, is_write, start, end })
    }
}

fn check_block(block: u64, recorded: &[&Recorded], times: &[Duration]) -> Result<(), Inconsistency> {
    let first = block * BLOCK_SECTORS;
    let sectors = first..first + BLOCK_SECTORS;
    let is_uniform = |recorded: &&Recorded| {
        recorded.covers_block(block)
            && sectors.clone().all(|sector| recorded.value_at(sector) == recorded.value_at(first))
    };
    if recorded.iter().all(is_uniform) {
        return check_sector(first, recorded, times);
    }
    for sector in sectors.clone() {
        check_sector(sector, recorded, times)?;
    }
    check_torn(block, recorded)
}

fn check_sector(sector: u64, recorded: &[&Recorded], times: &[Duration]) -> Result<(), Inconsistency> {
    let covering = recorded.iter().filter(|recorded| recorded.covers(sector));
    let operations: Vec<Operation> = covering.flat_map(|recorded| recorded.at(sector)).collect();
    check(&operations).map_err(|violation: Violation| Inconsistency {
        sector,
        what: violation.to_string(),
        story: story(&operations, &violation, times),
    })
}

/// Of two writes that both cover two sectors, no read sees one here and the other there.
fn check_torn(block: u64, recorded: &[&Recorded]) -> Result<(), Inconsistency> {
    let first = block * BLOCK_SECTORS;
    let writes = recorded.iter().filter_map(|recorded| match recorded.what {
        // Zeros come from many writes, and from none.
        What::Write(value) if value != 0 => Some((value, *recorded)),
        _ => None,
    });
    let writes: BTreeMap<u64, &Recorded> = writes.collect();
    for read in recorded.iter().filter(|recorded| recorded.is_read()) {
        let seen: Vec<(u64, &Recorded)> = (first..first + BLOCK_SECTORS)
            .filter(|sector| read.covers(*sector))
            .filter_map(|sector| Some((sector, *writes.get(&read.value_at(sector))?)))
            .collect();
        for (sector, write) in &seen {
            let torn = seen.iter().find(|(other_sector, other)| {
                !std::ptr::eq(*write, *other) && write.covers(*other_sector) && other.covers(*sector)
            });
            if let Some((other_sector, other)) = torn {
                return Err(Inconsistency {
                    sector: *sector,
                    what: format!(
                        "torn: it holds value {}, but sector {other_sector} value {}",
                        write.value_at(*sector),
                        other.value_at(*other_sector)
                    ),
                    story: String::new(),
                });
            }
        }
    }
    Ok(())
}

/// The operations around the impossible read as lines, in order of their starts, with virtual times.
fn story(operations: &[Operation], violation: &Violation, times: &[Duration]) -> String {
    let (Violation::FromNowhere { read } | Violation::Conflict { read, .. }) = violation;
    let mut sorted: Vec<&Operation> = operations.iter().collect();
    sorted.sort_by_key(|operation| operation.start);
    let place = sorted.iter().position(|operation| operation.start == read.start).unwrap_or_default();
    let shown = place.saturating_sub(STORY_LINES)..sorted.len().min(place + STORY_LINES);
    let time = |moment: Moment| times.get(moment as usize - 1).copied().unwrap_or_default().as_secs_f64();
    let line = |operation: &&Operation| {
        let pointer = if operation.start == read.start { '>' } else { ' ' };
        let verb = if operation.is_write { "write" } else { "read " };
        let end = operation.end.map_or("never answered".to_owned(), |end| format!("{:.6} s", time(end)));
        format!("{pointer} {verb} {:>6}  from {:.6} s to {end}", operation.value, time(operation.start))
    };
    sorted[shown].iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A buffer of whole sectors that holds `value` all over.
pub fn content(buffers: &BufferPool, value: u64, sectors: u64) -> Buffer {
    let mut buffer = buffers.take(usize::try_from(sectors).expect("a request fits memory") * SECTOR_BYTES);
    for chunk in buffer.chunks_exact_mut(8) {
        chunk.copy_from_slice(&value.to_le_bytes());
    }
    buffer.freeze()
}

/// The value of a sector, or of several.
///
/// # Errors
///
/// It holds more than one: it is torn.
pub fn value_of(bytes: &[u8]) -> Result<u64, String> {
    let pattern: [u8; 8] = std::array::from_fn(|index| bytes[index]);
    let (chunks, rest) = bytes.as_chunks::<8>();
    if rest.is_empty() && chunks.iter().all(|chunk| *chunk == pattern) {
        return Ok(u64::from_le_bytes(pattern));
    }
    let other = chunks.iter().position(|chunk| *chunk != pattern).map_or(0, |index| index * 8);
    Err(format!(
        "a torn sector: it begins with value {}, and holds {:?} at byte {other}",
        u64::from_le_bytes(pattern),
        chunks.get(other / 8).map(|chunk| u64::from_le_bytes(*chunk))
    ))
}

#[cfg(test)]
#[path = "history_tests.rs"]
mod tests;
