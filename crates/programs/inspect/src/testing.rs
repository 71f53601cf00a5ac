//! What the tests share: a machine whose real store writes the drives that are inspected, workloads
//! on it, and an oracle that knows what each block may hold after a crash.

pub mod machine;
pub mod workload;

use std::path::Path;

use spandrel_platform_simulated::DriveImage;
use spandrel_shared::{BLOCK_BYTES, Error};

use crate::inspect::{Caches, InspectOptions, inspect_source};
use crate::inspection::{Inspection, Place};
use crate::source::Source;

/// The content of a simulated drive and of the cache drive that it is bound to, if it is, and blocks of it that cannot be read.
#[derive(Clone)]
pub struct Image {
    pub image: DriveImage,
    pub cache: Option<DriveImage>,
    pub unreadable: Vec<u64>,
}

impl Image {
    pub fn new(image: DriveImage) -> Self {
        Self { image, cache: None, unreadable: Vec::new() }
    }

    /// Flips a bit at an offset that an inspection has named.
    pub fn flip_bit(&mut self, inspection: &Inspection, offset: u64, bit: u32) {
        match inspection.place_of(offset) {
            Place::Drive(offset) => self.image.flip_bit(offset, bit),
            Place::Cache(offset) => self.cache.as_mut().unwrap().flip_bit(offset, bit),
        }
    }

    /// The block that stands at such an offset.
    pub fn block(&self, inspection: &Inspection, offset: u64) -> Vec<u8> {
        match inspection.place_of(offset) {
            Place::Drive(offset) => self.image.read_vec(offset, BLOCK_BYTES),
            Place::Cache(offset) => self.cache.as_ref().unwrap().read_vec(offset, BLOCK_BYTES),
        }
    }

    /// Inspects it, with everything listed.
    pub fn inspect(&self) -> Result<Inspection, Error> {
        let cache = self.cache.clone().map(Self::new);
        let caches: Vec<&dyn Source> = cache.iter().map(|cache| cache as &dyn Source).collect();
        self.inspect_with(Caches::Among(&caches))
    }

    /// The same, as if its cache drive were lost.
    pub fn inspect_without_cache(&self) -> Result<Inspection, Error> {
        self.inspect_with(Caches::Lost)
    }

    fn inspect_with(&self, caches: Caches<'_>) -> Result<Inspection, Error> {
        let options = InspectOptions { list_blocks: true, ..InspectOptions::default() };
        inspect_source(self, caches, Path::new("image"), options, &mut |_| {})
    }
}

impl Source for Image {
    fn size_bytes(&self) -> u64 {
        self.image.size_bytes()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        let end = offset + into.len() as u64;
        if self.unreadable.iter().any(|block| block * 4096 < end && offset < (block + 1) * 4096) {
            return Err(std::io::Error::other("a bad sector"));
        }
        self.image.read(offset, into);
        Ok(())
    }
}
