//! Takes little-endian fields off the front of bytes, one behind the other.

use spandrel_shared::{Epoch, Version};

/// What is left of some bytes. Every method takes from their front, and returns `None` where too
/// few are left.
pub struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    pub fn array<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        self.bytes(COUNT)?.try_into().ok()
    }

    pub fn skip(&mut self, count: usize) -> Option<()> {
        self.bytes(count).map(|_| ())
    }

    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// An epoch (4) and a counter (8).
    pub fn version(&mut self) -> Option<Version> {
        Some(Version::new(Epoch(self.u32()?), self.u64()?))
    }

    /// A counter (8) and an epoch (4).
    pub fn counter_and_epoch(&mut self) -> Option<Version> {
        let counter = self.u64()?;
        Some(Version::new(Epoch(self.u32()?), counter))
    }
}

/// Whether the first four bytes are the CRC-32C of those behind them.
pub fn is_sealed(bytes: &[u8]) -> bool {
    let Some((checksum, rest)) = bytes.split_first_chunk::<4>() else { return false };
    u32::from_le_bytes(*checksum) == spandrel_shared::checksum::crc32c(rest)
}
