//! Which drives hold the copies of a slab, and how that is stored.
//!
//! Copy sets are stored in chunks of 256 slabs, so that a volume of 64 TiB has 1,024 of them. A
//! pool of 4 PB has some 19,000 chunks, all of which lie in the memory of the cluster's state: so
//! they must be small. A chunk therefore lists its drives, layouts and the common parts of its
//! copies' identities once, and each member names them by number:
//!
//! ```text
//! {"format":1,
//!  "drives":["4f0e…","9a31…","c7d2…"],          by number from 0
//!  "layouts":[{"copies":3}],
//!  "batches":["8d3c55…"],                        the first 12 bytes of copies' identities
//!  "slabs":[[0,[0,0,0],[2,0,1],[1,0,2]],…]}      layout, then members: drive, batch, part
//! ```
//!
//! The last 4 bytes of a copy's identity are its slab and part where [`CopyBatch`] made it, and
//! need not be stored; where they are not, they follow, behind the flags (1: being built). With
//! three copies on 24 drives a chunk has 9 KiB.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use spandrel_shared::{CopyId, DriveId, SlabIndex};

/// Slabs whose copy sets share a key.
pub const SLABS_PER_CHUNK: u32 = 256;

/// A volume has fewer slabs than this: their numbers have 28 bits in the identities of copies.
pub const SLABS_MAX: u32 = 1 << 28;

/// How a slab's data lie in its copy set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Layout {
    /// Every member holds all of the slab.
    Copies {
        /// How many members there should be.
        copies: u8,
    },
    /// Members hold parts, of which `data` restore the slab.
    Erasure {
        /// Parts that hold data.
        data: u8,
        /// Parts that hold parity.
        parity: u8,
    },
}

/// One copy of a slab, on one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Member {
    /// The drive that holds it.
    pub drive: DriveId,
    /// The copy's incarnation.
    pub copy: CopyId,
    /// Which part of the slab it is: the place in the set that it fills.
    pub part: u8,
    /// Whether it is being built: it holds nothing that counts until it is promoted, whatever marks
    /// there are.
    pub building: bool,
}

/// The copies of one slab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopySet {
    /// How the data lie in it.
    pub layout: Layout,
    /// The copies, each on another drive.
    pub members: Vec<Member>,
}

impl CopySet {
    /// The member on a drive.
    pub fn on(&self, drive: DriveId) -> Option<&Member> {
        self.members.iter().find(|member| member.drive == drive)
    }
}

/// The chunk in which a slab's copy set is stored.
pub fn chunk_of(slab: SlabIndex) -> u32 {
    slab.0 / SLABS_PER_CHUNK
}

/// Makes the identities of copies that are made together so that they take little room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyBatch([u8; 12]);

impl CopyBatch {
    /// A batch from 128 random bits, most of which it keeps. It must serve each slab and part once.
    pub fn from_random(high: u64, low: u64) -> Self {
        let [batch @ .., _, _, _, _] = CopyId::from_random(high, low).to_bytes();
        Self(batch)
    }

    /// The identity of the copy of `slab` that is part `part` of its set.
    pub fn copy(self, slab: SlabIndex, part: u8) -> CopyId {
        join(self.0, expected_tail(slab, part))
    }
}

/// The end of an identity that [`CopyBatch`] makes. Slab numbers have 28 bits (64 PiB in slabs of
/// 256 MiB), parts 4.
fn expected_tail(slab: SlabIndex, part: u8) -> u32 {
    (slab.0 << 4) | u32::from(part & 15)
}

fn join(batch: [u8; 12], tail: u32) -> CopyId {
    let mut bytes = [0; 16];
    bytes[..12].copy_from_slice(&batch);
    bytes[12..].copy_from_slice(&tail.to_be_bytes());
    CopyId::from_bytes(bytes)
}

fn split(copy: CopyId) -> ([u8; 12], u32) {
    let bytes = copy.to_bytes();
    let (batch, tail) = bytes.split_first_chunk().expect("an identity has 16 bytes");
    (*batch, u32::from_be_bytes(tail.try_into().expect("12 and 4 are 16")))
}

/// The copy sets of up to 256 slabs, as a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlabChunk {
    /// Which chunk of its volume.
    pub chunk: u32,
    /// The copy sets, from the chunk's first slab on.
    pub sets: Vec<CopySet>,
}

/// The stored form of a [`SlabChunk`].
#[derive(Serialize, Deserialize)]
pub struct ChunkBody {
    chunk: u32,
    drives: Vec<DriveId>,
    layouts: Vec<Layout>,
    batches: Vec<String>,
    slabs: Vec<Vec<Code>>,
}

/// A layout's number, or a member.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Code {
    Layout(usize),
    Member(Vec<u32>),
}

const FLAG_BUILDING: u32 = 1;

/// Numbers things in the order in which they come.
struct Table<T>(BTreeMap<T, usize>, Vec<T>);

impl<T: Ord + Copy> Table<T> {
    fn new() -> Self {
        Self(BTreeMap::new(), Vec::new())
    }

    fn number(&mut self, thing: T) -> usize {
        *self.0.entry(thing).or_insert_with(|| {
            self.1.push(thing);
            self.1.len() - 1
        })
    }
}

impl SlabChunk {
    /// The number of the slab at `offset` in this chunk.
    pub fn slab(&self, offset: usize) -> SlabIndex {
        SlabIndex(self.chunk * SLABS_PER_CHUNK + offset as u32)
    }

    pub(crate) fn to_body(&self) -> ChunkBody {
        let (mut drives, mut layouts, mut batches) = (Table::new(), Table::new(), Table::new());
        let mut slabs = Vec::with_capacity(self.sets.len());
        for (offset, set) in self.sets.iter().enumerate() {
            let mut codes = vec![Code::Layout(layouts.number(set.layout))];
            for member in &set.members {
                let (batch, tail) = split(member.copy);
                let numbers = [drives.number(member.drive), batches.number(batch)];
                let mut code: Vec<u32> = numbers.map(|number| number as u32).to_vec();
                code.push(u32::from(member.part));
                let flags = if member.building { FLAG_BUILDING } else { 0 };
                let is_regular = tail == expected_tail(self.slab(offset), member.part);
                if flags != 0 || !is_regular {
                    code.push(flags);
                }
                if !is_regular {
                    code.push(tail);
                }
                codes.push(Code::Member(code));
            }
            slabs.push(codes);
        }
        let batches = batches.1.iter().map(hex).collect();
        ChunkBody { chunk: self.chunk, drives: drives.1, layouts: layouts.1, batches, slabs }
    }

    pub(crate) fn from_body(body: ChunkBody) -> Result<Self, String> {
        if body.chunk >= SLABS_MAX / SLABS_PER_CHUNK {
            return Err(format!("no volume has a chunk {}", body.chunk));
        }
        if body.slabs.len() > SLABS_PER_CHUNK as usize {
            return Err(format!("it holds {} slabs, more than {SLABS_PER_CHUNK}", body.slabs.len()));
        }
        let batches: Option<Vec<_>> = body.batches.iter().map(|text| unhex(text)).collect();
        let batches = batches.ok_or("a batch is not 24 hexadecimal digits")?;
        let mut chunk = Self { chunk: body.chunk, sets: Vec::with_capacity(body.slabs.len()) };
        for codes in body.slabs {
            let slab = chunk.slab(chunk.sets.len());
            let mut codes = codes.into_iter();
            let Some(Code::Layout(layout)) = codes.next() else {
                return Err(format!("slab {slab} has no layout"));
            };
            let layout = *body.layouts.get(layout).ok_or_else(|| format!("slab {slab} has no layout"))?;
            let mut members = Vec::new();
            for code in codes {
                let Code::Member(code) = code else { return Err(format!("slab {slab} has two layouts")) };
                let member = decode_member(slab, &code, &body.drives, &batches);
                members.push(member.ok_or_else(|| format!("slab {slab} has a member that cannot be read"))?);
            }
            chunk.sets.push(CopySet { layout, members });
        }
        Ok(chunk)
    }
}

fn decode_member(slab: SlabIndex, code: &[u32], drives: &[DriveId], batches: &[[u8; 12]]) -> Option<Member> {
    let &[drive, batch, part, ref rest @ ..] = code else { return None };
    let part = u8::try_from(part).ok()?;
    let (flags, tail) = match *rest {
        [] => (0, expected_tail(slab, part)),
        [flags] => (flags, expected_tail(slab, part)),
        [flags, tail] => (flags, tail),
        _ => return None,
    };
    if flags & !FLAG_BUILDING != 0 {
        return None;
    }
    Some(Member {
        drive: *drives.get(usize::try_from(drive).ok()?)?,
        copy: join(*batches.get(usize::try_from(batch).ok()?)?, tail),
        part,
        building: flags & FLAG_BUILDING != 0,
    })
}

fn hex(bytes: &[u8; 12]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<[u8; 12]> {
    let mut bytes = [0; 12];
    if text.len() != 24 || !text.is_ascii() {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
#[path = "copy_sets_tests.rs"]
mod tests;
