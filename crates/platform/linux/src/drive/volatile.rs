//! A drive whose unflushed writes die with the process: killing it is a power cut.
//!
//! For tests of whole processes. Writes that are answered stay in this process's memory, where reads
//! find them, until a flush carries them to the file. The location is
//! `volatile[,OPTION]...:PATH`, with these options:
//! - `skip-flush=COUNT`: after that many flushes, the others are answered without doing anything. A planted
//!   fault: a judge of durability must catch it.
//! - `fail-read=START-END`, `fail-write=START-END`: reads or writes that touch these bytes (END not
//!   among them) fail as a broken medium does.
//! - `slow-flush=MILLISECONDS`: flushes take so long, one after the other, while there is a file `PATH.slow`.
//! - `no-room=START-END`: writes that touch these bytes fail as a full file system does.
//!
//! The first time that one of them has an effect it says so in the log, so that a test knows it was one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use spandrel_platform::sync::{Signal, oneshot};
use spandrel_platform::{Buffer, BufferMut, DriveError, DriveErrorKind, DriveOperation};

use super::OpenDrive;
use super::open::open_error;
use crate::platform::Sleep;

/// Bytes that a flush writes to the file at a time.
const FLUSH_RUN_BYTES_MAX: usize = 256 << 10;

const PREFIX: &str = "volatile";

/// The cache that a power cut empties.
pub(super) struct VolatileCache {
    path: String,
    /// Flushes that are still carried out; none of them is skipped if absent.
    flushes_left: Option<Cell<u64>>,
    slow_flush: Option<SlowFlush>,
    faults: Vec<Fault>,
    has_struck: Cell<bool>,
    sectors: Rc<Sectors>,
}

/// Flushes that take long while there is a file.
#[derive(Clone)]
struct SlowFlush {
    takes: Duration,
    while_there_is: PathBuf,
}

struct Fault {
    name: String,
    operation: DriveOperation,
    bytes: Range<u64>,
    kind: DriveErrorKind,
}

/// The sectors that were written and not flushed, by their offset.
#[derive(Default)]
struct Sectors {
    content: RefCell<BTreeMap<u64, Sector>>,
    /// Names each write, so that a flush knows whether a sector was written again meanwhile.
    writes: Cell<u64>,
    /// One flush runs at a time: two would carry old and new content to the file in any order.
    flushing: Cell<bool>,
    flushed: Signal,
}

#[derive(Clone)]
struct Sector {
    bytes: Rc<[u8]>,
    write: u64,
}

/// The cache that `location` asks for, if it asks for one.
pub(super) fn parse(location: &str) -> Result<Option<VolatileCache>, DriveError> {
    let Some((options, path)) = location.split_once(':') else { return Ok(None) };
    let mut options = options.split(',');
    if options.next() != Some(PREFIX) {
        return Ok(None);
    }
    let mut cache = VolatileCache {
        path: path.to_string(),
        flushes_left: None,
        slow_flush: None,
        faults: Vec::new(),
        has_struck: Cell::new(false),
        sectors: Rc::default(),
    };
    for option in options {
        match parse_option(option) {
            Some(ParsedOption::SkipFlush(after)) => cache.flushes_left = Some(Cell::new(after)),
            Some(ParsedOption::SlowFlush(takes)) => {
                let while_there_is = PathBuf::from(format!("{path}.slow"));
                cache.slow_flush = Some(SlowFlush { takes, while_there_is });
            }
            Some(ParsedOption::Fault(fault)) => cache.faults.push(fault),
            None => {
                let detail = format!("unknown option {option}");
                return Err(open_error(DriveErrorKind::Unavailable, location, &detail));
            }
        }
    }
    Ok(Some(cache))
}

enum ParsedOption {
    SkipFlush(u64),
    SlowFlush(Duration),
    Fault(Fault),
}

fn parse_option(option: &str) -> Option<ParsedOption> {
    let (name, range) = option.split_once('=')?;
    if name == "skip-flush" {
        return range.parse().ok().map(ParsedOption::SkipFlush);
    }
    if name == "slow-flush" {
        return range.parse().ok().map(|ms| ParsedOption::SlowFlush(Duration::from_millis(ms)));
    }
    let (start, end) = range.split_once('-')?;
    let bytes = start.parse().ok()?..end.parse().ok()?;
    let (operation, kind) = match name {
        "fail-read" => (DriveOperation::Read, DriveErrorKind::Medium),
        "fail-write" => (DriveOperation::Write, DriveErrorKind::Medium),
        "no-room" => (DriveOperation::Write, DriveErrorKind::NoRoom),
        _ => return None,
    };
    Some(ParsedOption::Fault(Fault { name: name.to_owned(), operation, bytes, kind }))
}

impl VolatileCache {
    /// The file behind the cache.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    fn check(&self, operation: DriveOperation, offset: u64, length: usize) -> Result<(), DriveError> {
        let end = offset + length as u64;
        let touched = |fault: &&Fault| {
            fault.operation == operation && offset < fault.bytes.end && fault.bytes.start < end
        };
        match self.faults.iter().find(touched) {
            None => Ok(()),
            Some(fault) => {
                self.strike(&fault.name);
                Err(DriveError { kind: fault.kind, operation, offset, detail: "a planted fault".to_string() })
            }
        }
    }

    fn strike(&self, fault: &str) {
        if !self.has_struck.replace(true) {
            tracing::warn!("planted fault: {fault}");
        }
    }

    pub(super) async fn read(
        &self,
        drive: &OpenDrive,
        offset: u64,
        into: BufferMut,
    ) -> Result<BufferMut, DriveError> {
        self.check(DriveOperation::Read, offset, into.len())?;
        // Looked up first: a flush may carry them to the file while it is being read.
        let end = offset + into.len() as u64;
        let cached: Vec<(u64, Sector)> = self
            .sectors
            .content
            .borrow()
            .range(offset..end)
            .map(|(at, sector)| (*at, sector.clone()))
            .collect();
        let mut buffer = drive.read(offset, into).await?;
        for (at, sector) in cached {
            let start = usize::try_from(at - offset).expect("within the buffer");
            buffer[start..start + sector.bytes.len()].copy_from_slice(&sector.bytes);
        }
        Ok(buffer)
    }

    pub(super) fn write(&self, drive: &OpenDrive, offset: u64, parts: &[Buffer]) -> Result<(), DriveError> {
        self.check(DriveOperation::Write, offset, parts.iter().map(|part| part.len()).sum())?;
        let sector_bytes = drive.geometry.sector_bytes;
        let write = self.sectors.writes.get() + 1;
        self.sectors.writes.set(write);
        let mut content = self.sectors.content.borrow_mut();
        let sectors = parts.iter().flat_map(|part| part.chunks_exact(sector_bytes as usize));
        for (at, bytes) in (offset..).step_by(sector_bytes as usize).zip(sectors) {
            content.insert(at, Sector { bytes: bytes.into(), write });
        }
        Ok(())
    }

    pub(super) async fn flush(&self, drive: &Rc<OpenDrive>) -> Result<(), DriveError> {
        if let Some(left) = &self.flushes_left {
            match left.get().checked_sub(1) {
                Some(fewer) => left.set(fewer),
                None => {
                    self.strike("skip-flush");
                    return Ok(());
                }
            }
        }
        let slow = self.slow_flush.clone().filter(|slow| slow.while_there_is.exists());
        if slow.is_some() {
            self.strike("slow-flush");
        }
        // A task of its own: a flush that has begun ends, even if nobody waits for it any more.
        let (reply, answer) = oneshot();
        let (sectors, drive) = (Rc::clone(&self.sectors), Rc::clone(drive));
        let executor = drive.shard.executor.clone();
        executor.spawn(async move {
            sectors.flushed.wait_until(|| !sectors.flushing.get()).await;
            sectors.flushing.set(true);
            if let Some(slow) = slow {
                Sleep::until(&drive.shard, drive.shard.now() + slow.takes).await;
            }
            let result = sectors.write_back(&drive).await;
            sectors.flushing.set(false);
            sectors.flushed.notify_all();
            drop(drive);
            reply.send(result);
        });
        answer.await.unwrap_or_else(|| {
            Err(DriveError {
                kind: DriveErrorKind::Unavailable,
                operation: DriveOperation::Flush,
                offset: 0,
                detail: "the runtime has ended".to_string(),
            })
        })
    }
}

impl Sectors {
    async fn write_back(&self, drive: &OpenDrive) -> Result<(), DriveError> {
        let snapshot = self.content.borrow().clone();
        for (offset, run) in runs(&snapshot) {
            drive.write(offset, vec![drive.shard.buffers.copy_of(&run).freeze()]).await?;
        }
        drive.flush().await?;
        let mut content = self.content.borrow_mut();
        for (at, flushed) in snapshot {
            if content.get(&at).is_some_and(|sector| sector.write == flushed.write) {
                content.remove(&at);
            }
        }
        Ok(())
    }
}

/// The sectors as stretches without gaps.
fn runs(sectors: &BTreeMap<u64, Sector>) -> Vec<(u64, Vec<u8>)> {
    let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
    for (at, sector) in sectors {
        match runs.last_mut() {
            Some((start, run)) if *start + run.len() as u64 == *at && run.len() < FLUSH_RUN_BYTES_MAX => {
                run.extend_from_slice(&sector.bytes);
            }
            _ => runs.push((*at, sector.bytes.to_vec())),
        }
    }
    runs
}

#[cfg(test)]
#[path = "volatile_tests.rs"]
mod tests;
