//! Simulated drives under the eyes of the offline reader, which shares no reading code with the store.
//!
//! A drive that is bound to a cache drive holds only half of what it is: so it is looked at together with the cache drives of
//! its server.

use std::ops::Range;
use std::path::Path;

use spandrel_drive::CacheSuperblock;
use spandrel_inspect::{Caches, InspectOptions, Inspection, Place, Source, inspect_source};
use spandrel_platform_simulated::{DriveImage, Random, SimulatedDrive};
use spandrel_shared::{BLOCK_BYTES, DriveId, Error};

/// A drive, and the cache drives of its server.
#[derive(Clone, Copy)]
pub struct Media<'a> {
    /// The drive.
    pub drive: &'a SimulatedDrive,
    /// The cache drives.
    pub caches: &'a [SimulatedDrive],
}

/// What a drive and the cache drives of its server hold.
#[derive(Clone, PartialEq, Eq)]
pub struct Images {
    /// The drive's content.
    pub drive: DriveImage,
    /// That of the cache drives.
    pub caches: Vec<DriveImage>,
}

impl<'a> Media<'a> {
    /// What its checksums, and those of tests, call it.
    pub fn name(&self) -> &'a str {
        self.drive.name()
    }

    /// What they hold now.
    pub fn snapshot(&self) -> Images {
        self.images_by(SimulatedDrive::snapshot)
    }

    /// What they hold whatever a power cut takes from them.
    pub fn durable_images(&self) -> Images {
        self.images_by(SimulatedDrive::durable_image)
    }

    fn images_by(&self, image: impl Fn(&SimulatedDrive) -> DriveImage) -> Images {
        Images { drive: image(self.drive), caches: self.caches.iter().map(image).collect() }
    }

    /// What a power cut may leave: some possibilities.
    pub fn crash_images(&self, random: &Random) -> Vec<Images> {
        let caches: Vec<Vec<DriveImage>> =
            self.caches.iter().map(|cache| cache.crash_images(0, 1, random)).collect();
        let of_caches = || caches.iter().map(|images| images[random.index(images.len())].clone()).collect();
        let drives = self.drive.crash_images(0, 1, random).into_iter();
        drives.map(|drive| Images { drive, caches: of_caches() }).collect()
    }

    /// What the offline reader finds now.
    ///
    /// # Errors
    ///
    /// Those of [`inspect`].
    pub fn inspect(&self) -> Result<Inspection, String> {
        inspect(self.name(), &self.snapshot())
    }

    /// The drive that something stands on that an inspection names, and where.
    pub fn place_of(&self, inspection: &Inspection, offset_bytes: u64) -> (&'a SimulatedDrive, u64) {
        match inspection.place_of(offset_bytes) {
            Place::Drive(offset) => (self.drive, offset),
            Place::Cache(offset) => {
                let wanted = inspection.cache.as_ref().map(|cache| cache.cache);
                let mut caches = self.caches.iter();
                let cache = caches.find(|cache| wanted.is_some() && cache_id(&cache.snapshot()) == wanted);
                (cache.expect("what is named stands on a drive"), offset)
            }
        }
    }

    /// Where a stretch stands that an inspection names: in several places if it goes beyond one chunk of an area.
    pub fn pieces_of(
        &self,
        inspection: &Inspection,
        offset_bytes: u64,
        length_bytes: u64,
    ) -> Vec<(&'a SimulatedDrive, Range<u64>)> {
        let end = offset_bytes + length_bytes;
        let (mut pieces, mut start) = (Vec::new(), offset_bytes);
        while start < end {
            let border = inspection.cache.as_ref().and_then(|cache| {
                let within = start.checked_sub(cache.offset_bytes)?;
                Some(start + cache.chunk_bytes - within.checked_rem(cache.chunk_bytes)?)
            });
            let behind = border.map_or(end, |border| border.min(end));
            let (drive, place) = self.place_of(inspection, start);
            pieces.push((drive, place..place + behind - start));
            start = behind;
        }
        pieces
    }

    /// Flips a bit somewhere in a stretch that an inspection names. If that stands in several places, `random` says in which.
    pub fn flip(&self, inspection: &Inspection, offset_bytes: u64, length_bytes: u64, random: &Random) {
        let pieces = self.pieces_of(inspection, offset_bytes, length_bytes);
        let (drive, range) = match &pieces[..] {
            [alone] => alone.clone(),
            _ => {
                let (drive, byte) = self.place_of(inspection, offset_bytes + random.below(length_bytes));
                (drive, byte..byte + 1)
            }
        };
        drive.flip_random_bit(range);
    }

    /// Whether what is planned may still damage what they hold.
    pub fn endangers_content(&self) -> bool {
        self.drive.endangers_content() || self.caches.iter().any(SimulatedDrive::endangers_content)
    }
}

impl Images {
    /// A drive that no cache drive stands in front of.
    pub fn alone(drive: DriveImage) -> Self {
        Self { drive, caches: Vec::new() }
    }

    /// The block that an inspection names.
    pub fn block(&self, inspection: &Inspection, offset_bytes: u64) -> Vec<u8> {
        self.read(inspection, offset_bytes, BLOCK_BYTES)
    }

    /// Some bytes of such a block.
    pub fn read(&self, inspection: &Inspection, offset_bytes: u64, length: usize) -> Vec<u8> {
        match inspection.place_of(offset_bytes) {
            Place::Drive(offset) => self.drive.read_vec(offset, length),
            Place::Cache(offset) => {
                let wanted = inspection.cache.as_ref().map(|cache| cache.cache);
                let cache = self.caches.iter().find(|cache| wanted.is_some() && cache_id(cache) == wanted);
                cache.expect("what is named stands on a drive").read_vec(offset, length)
            }
        }
    }
}

/// Who a cache drive is; none if it cannot say.
pub fn cache_id(image: &DriveImage) -> Option<DriveId> {
    CacheSuperblock::decode(&image.read_vec(0, BLOCK_BYTES)).ok().map(|superblock| superblock.drive)
}

struct Image<'a>(&'a DriveImage);

impl Source for Image<'_> {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.0.read(offset, into);
        Ok(())
    }
}

/// What the offline reader finds: everything live is listed.
///
/// # Errors
///
/// Why nothing can be found, as text: no superblock, as a rule, or no cache drive.
pub fn inspect(name: &str, images: &Images) -> Result<Inspection, String> {
    let caches: Vec<Image<'_>> = images.caches.iter().map(Image).collect();
    let caches: Vec<&dyn Source> = caches.iter().map(|cache| cache as &dyn Source).collect();
    inspect_with(name, &images.drive, Caches::Among(&caches)).map_err(|error| error.to_string())
}

/// The same of a drive alone: of one that is bound to a cache drive, what stands there counts as lost.
///
/// # Errors
///
/// Those of [`inspect`].
pub fn inspect_alone(name: &str, image: &DriveImage) -> Result<Inspection, String> {
    inspect_with(name, image, Caches::Lost).map_err(|error| error.to_string())
}

/// Whether a drive has never been formatted, or not to its end.
pub fn carries_nothing(name: &str, image: &DriveImage) -> bool {
    inspect_with(name, image, Caches::Lost).is_err()
}

fn inspect_with(name: &str, image: &DriveImage, caches: Caches<'_>) -> Result<Inspection, Error> {
    let options = InspectOptions { allow_in_use: true, list_blocks: true };
    inspect_source(&Image(image), caches, Path::new(name), options, &mut |_| {})
}
