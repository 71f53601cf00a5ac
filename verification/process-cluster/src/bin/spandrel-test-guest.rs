//! What runs in the guest that tests boot: it writes to its disk, checks what it reads, and says on its console how far it
//! is.
//!
//! - `verify SECONDS SEED`: writes blocks at random, on the whole disk, and checks each that it has written before; ends with
//!   `guest: verified`, or with `guest: FAILED` and why.
//! - `file`: appends numbers to a file of the file system at `/mnt`, syncs each, and says `guest: synced N` when that is done. It
//!   begins with `guest: found N`, the last number that is there, after a look whether all before it are.
//! - `count`: reads the number in the first block, says `guest: found N`, and writes the next ones there, each with a flush;
//!   says `guest: wrote N` for some of them, and how long the longest took.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::time::{Duration, Instant};

/// The disk.
const DISK: &str = "/dev/vda";

/// A file on the file system of the disk.
const FILE: &str = "/mnt/numbers";

/// A block, in bytes.
const BLOCK: usize = 4096;

/// How many blocks a request has at most.
const REQUEST_BLOCKS_MAX: u64 = 16;

/// Reads and writes that go to the disk and nowhere else.
const O_DIRECT: i32 = 0o40000;

/// How many writes are told as one.
const TOLD_EVERY: u64 = 50;

type Outcome = Result<String, String>;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["verify", seconds, seed] => match (seconds.parse(), seed.parse()) {
            (Ok(seconds), Ok(seed)) => verify(Duration::from_secs(seconds), seed),
            _ => Err("seconds and seed are numbers".to_owned()),
        },
        ["file"] => append(),
        ["count"] => count(),
        _ => Err(format!("nothing is known of {words:?}")),
    };
    match outcome {
        Ok(text) => println!("guest: {text}"),
        Err(why) => println!("guest: FAILED: {why}"),
    }
}

/// Numbers that look like chance, the same for the same seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// A buffer of whole blocks, at an address that the disk can use.
struct Aligned {
    bytes: Vec<u8>,
    begin: usize,
}

impl Aligned {
    fn new() -> Self {
        let bytes = vec![0; BLOCK * (REQUEST_BLOCKS_MAX as usize + 1)];
        let begin = bytes.as_ptr().align_offset(BLOCK);
        Self { bytes, begin }
    }

    fn blocks(&mut self, count: u64) -> &mut [u8] {
        &mut self.bytes[self.begin..self.begin + BLOCK * count as usize]
    }
}

fn open_disk() -> Result<(File, u64), String> {
    let failed = |error: std::io::Error| format!("{DISK}: {error}");
    let mut disk =
        OpenOptions::new().read(true).write(true).custom_flags(O_DIRECT).open(DISK).map_err(failed)?;
    let blocks = disk.seek(SeekFrom::End(0)).map_err(failed)? / BLOCK as u64;
    Ok((disk, blocks))
}

/// Fills a block with what belongs to it.
fn fill(bytes: &mut [u8], block: u64, version: u64) {
    let mut random = Random(block.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ version | 1);
    for piece in bytes.chunks_exact_mut(8) {
        piece.copy_from_slice(&random.next().to_le_bytes());
    }
}

fn verify(time: Duration, seed: u64) -> Outcome {
    let (disk, blocks) = open_disk()?;
    let mut random = Random(seed | 1);
    let (mut buffer, mut expected) = (Aligned::new(), vec![0; BLOCK]);
    let mut versions: BTreeMap<u64, u64> = BTreeMap::new();
    let (mut writes, mut reads) = (0_u64, 0_u64);
    let begun = Instant::now();
    while begun.elapsed() < time {
        let count = 1 + random.below(REQUEST_BLOCKS_MAX);
        let first = random.below(blocks - count);
        let at = first * BLOCK as u64;
        if random.below(2) == 0 {
            writes += 1;
            let bytes = buffer.blocks(count);
            for (block, piece) in (first..).zip(bytes.chunks_exact_mut(BLOCK)) {
                fill(piece, block, writes);
                versions.insert(block, writes);
            }
            disk.write_all_at(bytes, at).map_err(|error| format!("a write at {at}: {error}"))?;
            if random.below(16) == 0 {
                disk.sync_all().map_err(|error| format!("a flush: {error}"))?;
            }
        } else {
            // One that was written before, if there is any behind that place.
            let first = versions.range(first..).next().map_or(first, |(block, _)| *block).min(blocks - count);
            let bytes = buffer.blocks(count);
            let at = first * BLOCK as u64;
            disk.read_exact_at(bytes, at).map_err(|error| format!("a read at {at}: {error}"))?;
            reads += 1;
            for (block, piece) in (first..).zip(bytes.chunks_exact(BLOCK)) {
                match versions.get(&block) {
                    Some(version) => fill(&mut expected, block, *version),
                    None => expected.fill(0),
                }
                if piece != expected {
                    return Err(format!("block {block} holds something else than was written"));
                }
            }
        }
    }
    Ok(format!("verified: {writes} writes, {reads} reads"))
}

fn append() -> Outcome {
    let failed = |error: std::io::Error| format!("{FILE}: {error}");
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(FILE).map_err(failed)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(failed)?;
    // The last one may be cut off: it was not synced.
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut last = 0_u64;
    for line in whole.lines() {
        if line.parse() != Ok(last + 1) {
            return Err(format!("{line:?} stands behind {last}"));
        }
        last += 1;
    }
    if whole.len() < text.len() {
        file.set_len(if whole.is_empty() { 0 } else { whole.len() as u64 + 1 }).map_err(failed)?;
    }
    println!("guest: found {last}");
    loop {
        last += 1;
        file.write_all(format!("{last}\n").as_bytes()).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        println!("guest: synced {last}");
    }
}

fn count() -> Outcome {
    let (disk, _) = open_disk()?;
    let mut buffer = Aligned::new();
    let block = buffer.blocks(1);
    disk.read_exact_at(block, 0).map_err(|error| format!("a read: {error}"))?;
    let mut number = u64::from_le_bytes(std::array::from_fn(|index| block[index]));
    println!("guest: found {number}");
    let mut longest = Duration::ZERO;
    loop {
        number += 1;
        block[..8].copy_from_slice(&number.to_le_bytes());
        let begun = Instant::now();
        disk.write_all_at(block, 0).map_err(|error| format!("write {number}: {error}"))?;
        disk.sync_all().map_err(|error| format!("the flush of {number}: {error}"))?;
        longest = longest.max(begun.elapsed());
        if number.is_multiple_of(TOLD_EVERY) {
            println!("guest: wrote {number}, the longest in {} ms", longest.as_millis());
            longest = Duration::ZERO;
        }
    }
}
