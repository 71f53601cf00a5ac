//! What one connection has to send: copied heads in one stretch of memory, bodies by reference.
//!
//! Heads that follow each other are one piece, so that a run of small messages leaves as one
//! contiguous stretch and a message with a body as two.

use std::collections::VecDeque;
use std::io::IoSlice;

use spandrel_platform::Buffer;

/// Sent bytes at the front of the staging memory that are worth moving the rest down for.
const COMPACT_BYTES_MIN: usize = 64 << 10;

/// Staging memory that an empty queue keeps.
const STAGING_BYTES_KEPT: usize = 256 << 10;

/// Bytes that wait to be sent, in order.
#[derive(Default)]
pub(crate) struct SendQueue {
    /// The heads of all messages, of which the first `staging_sent` bytes are sent.
    staging: Vec<u8>,
    staging_sent: usize,
    pieces: VecDeque<Piece>,
    bytes: usize,
}

enum Piece {
    /// The next so many bytes of the staging memory.
    Staged(usize),
    Body(Buffer),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Piece::Staged(length) => *length,
            Piece::Body(body) => body.len(),
        }
    }
}

impl SendQueue {
    /// Adds `head`, which is copied, and behind it `body`.
    pub(crate) fn push(&mut self, head: &[u8], body: &[Buffer]) {
        if !head.is_empty() {
            self.staging.extend_from_slice(head);
            self.bytes += head.len();
            match self.pieces.back_mut() {
                Some(Piece::Staged(length)) => *length += head.len(),
                _ => self.pieces.push_back(Piece::Staged(head.len())),
            }
        }
        for part in body.iter().filter(|part| !part.is_empty()) {
            self.bytes += part.len();
            self.pieces.push_back(Piece::Body(part.clone()));
        }
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Fills `slices` with what comes next and returns how many of them, and how many bytes.
    pub(crate) fn gather<'queue>(&'queue self, slices: &mut [IoSlice<'queue>]) -> (usize, usize) {
        let mut staged = &self.staging[self.staging_sent..];
        let mut bytes = 0;
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            let content = match piece {
                Piece::Staged(length) => {
                    let (content, rest) = staged.split_at(*length);
                    staged = rest;
                    content
                }
                Piece::Body(body) => body,
            };
            *slice = IoSlice::new(content);
            bytes += content.len();
            count += 1;
        }
        (count, bytes)
    }

    /// Drops the first `count` bytes, which are sent.
    pub(crate) fn consume(&mut self, count: usize) {
        assert!(count <= self.bytes, "sent {count} bytes of {}", self.bytes);
        self.bytes -= count;
        let mut rest = count;
        while rest > 0 {
            let piece = self.pieces.front_mut().expect("the pieces make up the bytes");
            let taken = rest.min(piece.len());
            rest -= taken;
            let whole = taken == piece.len();
            match piece {
                Piece::Staged(length) => {
                    *length -= taken;
                    self.staging_sent += taken;
                }
                Piece::Body(body) if !whole => *body = body.slice(taken..body.len()),
                Piece::Body(_) => {}
            }
            if whole {
                self.pieces.pop_front();
            }
        }
        self.release_staging();
    }

    fn release_staging(&mut self) {
        if self.staging_sent == self.staging.len() {
            self.staging.clear();
            self.staging.shrink_to(STAGING_BYTES_KEPT);
            self.staging_sent = 0;
        } else if self.staging_sent >= COMPACT_BYTES_MIN && self.staging_sent * 2 >= self.staging.len() {
            self.staging.drain(..self.staging_sent);
            self.staging_sent = 0;
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
#[path = "send_queue_tests.rs"]
mod tests;
