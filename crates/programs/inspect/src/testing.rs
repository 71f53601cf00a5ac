//! What the tests share: a machine whose real store writes the drives that are inspected, workloads
//! on it, and an oracle that knows what each block may hold after a crash.

pub mod machine;
pub mod workload;

use std::path::Path;

use spandrel_platform_simulated::DriveImage;
use spandrel_shared::Error;

use crate::inspect::{InspectOptions, inspect_source};
use crate::inspection::Inspection;
use crate::source::Source;

/// The content of a simulated drive, and blocks of it that cannot be read.
pub struct Image {
    pub image: DriveImage,
    pub unreadable: Vec<u64>,
}

impl Image {
    pub fn new(image: DriveImage) -> Self {
        Self { image, unreadable: Vec::new() }
    }

    /// Inspects it, with everything listed.
    pub fn inspect(&self) -> Result<Inspection, Error> {
        let options = InspectOptions { list_blocks: true, ..InspectOptions::default() };
        inspect_source(self, Path::new("image"), options, &mut |_| {})
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
