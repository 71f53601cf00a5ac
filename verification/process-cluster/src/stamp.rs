//! The content of a block that says which write it is of, in every part of it.
//!
//! A block is 128 records of 32 bytes: seed, block, sequence, and the record's place mixed with all
//! of them. So content of another block, of another run, torn content, and content that slipped
//! within the block are told apart.

use std::fmt;

use spandrel_shared::BLOCK_BYTES;

const RECORD_BYTES: usize = 32;

/// Names one write of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// Tells the volumes of a test apart.
    pub seed: u64,
    /// The block's number in the volume.
    pub block: u64,
    /// Counts the writes of this block from one.
    pub sequence: u64,
}

/// What a block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Zeros throughout: nothing was written.
    Zeros,
    /// All of one write.
    Whole(Stamp),
    /// Parts of two writes, or of one and zeros; the first and the first that differs.
    Torn(Part, Part),
    /// Bytes that no write ever had: the byte within the block where they begin.
    Foreign {
        /// Where.
        byte: usize,
    },
}

/// What a part of a torn block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Zeros.
    Zeros,
    /// A part of a write.
    Of(Stamp),
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zeros => formatter.write_str("zeros"),
            Self::Of(stamp) => write!(formatter, "{stamp}"),
        }
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "write {} of block {} (seed {:#x})", self.sequence, self.block, self.seed)
    }
}

impl Stamp {
    /// Fills a whole block.
    pub fn fill(&self, block: &mut [u8]) {
        assert_eq!(block.len(), BLOCK_BYTES, "a stamp fills a block");
        for (place, record) in (0..).zip(block.chunks_exact_mut(RECORD_BYTES)) {
            record.copy_from_slice(&self.record(place));
        }
    }

    fn record(&self, place: u64) -> [u8; RECORD_BYTES] {
        let mix = [self.block, self.sequence, place].into_iter().fold(self.seed, |mix, number| {
            (mix ^ number).wrapping_mul(0x9FB2_1C65_1E98_DF25).rotate_left(29).wrapping_add(1)
        });
        let mut bytes = [0; RECORD_BYTES];
        for (word, into) in [self.seed, self.block, self.sequence, mix].iter().zip(bytes.chunks_exact_mut(8))
        {
            into.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// The stamp of a record at a place, if it is one.
    fn of_record(record: &[u8], place: u64) -> Option<Self> {
        let mut words = record
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().expect("chunks have eight bytes")));
        let stamp = Self { seed: words.next()?, block: words.next()?, sequence: words.next()? };
        (stamp.record(place) == record).then_some(stamp)
    }
}

impl Content {
    /// Reads a whole block.
    pub fn of(block: &[u8]) -> Self {
        let mut first: Option<Part> = None;
        for (place, record) in block.chunks_exact(RECORD_BYTES).enumerate() {
            let part = if record.iter().all(|byte| *byte == 0) {
                Part::Zeros
            } else {
                match Stamp::of_record(record, place as u64) {
                    Some(stamp) => Part::Of(stamp),
                    None => return Self::Foreign { byte: place * RECORD_BYTES },
                }
            };
            match first {
                None => first = Some(part),
                Some(first) if first != part => return Self::Torn(first, part),
                Some(_) => {}
            }
        }
        match first {
            Some(Part::Of(stamp)) => Self::Whole(stamp),
            Some(Part::Zeros) | None => Self::Zeros,
        }
    }
}
