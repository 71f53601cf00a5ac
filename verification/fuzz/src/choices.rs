//! Reads an input as a list of choices, so that every input means something and small changes of it are
//! small changes of what is tried.
//!
//! An input that is used up chooses zero for ever, which targets take for "nothing more".

/// Numbers at which lengths and counters go wrong.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    7,
    0x7f,
    0xff,
    0x100,
    0xfff,
    0x1000,
    0xffff,
    0x1_0000,
    0x7fff_ffff,
    0xffff_fffe,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0xffff_ffff_ffff_ffff,
];

/// What is left of an input.
pub struct Choices<'a> {
    rest: &'a [u8],
}

impl<'a> Choices<'a> {
    /// All of `input`.
    pub fn new(input: &'a [u8]) -> Self {
        Self { rest: input }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// A number of 16 bits.
    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes(self.array())
    }

    /// A number below `count`; zero if that is zero. Takes two bytes.
    pub fn index(&mut self, count: usize) -> usize {
        let choice = usize::from(self.short());
        if count == 0 { 0 } else { choice % count }
    }

    /// A number of any size: small ones, edges and powers of two more often than others.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            kind @ 0..64 => u64::from(kind),
            kind @ 64..80 => EDGES[usize::from(kind - 64)],
            kind @ 80..144 => 1 << (kind - 80),
            kind @ 144..208 => (1 << (kind - 144)) - 1,
            208..232 => u64::from(self.short()),
            _ => u64::from_le_bytes(self.array()),
        }
    }

    /// Up to `count` bytes: all that are left, if these are fewer.
    pub fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(count.min(self.rest.len()));
        self.rest = rest;
        taken
    }

    /// Everything that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }

    fn array<const COUNT: usize>(&mut self) -> [u8; COUNT] {
        let mut array = [0; COUNT];
        let taken = self.bytes(COUNT);
        array[..taken.len()].copy_from_slice(taken);
        array
    }
}
