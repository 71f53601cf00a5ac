//! Simulated drives under the eyes of the offline reader, which shares no reading code with the store.

use std::path::Path;

use spandrel_inspect::{InspectOptions, Inspection, Source, inspect_source};
use spandrel_platform_simulated::{DriveImage, SimulatedDrive};

struct Image(DriveImage);

impl Source for Image {
    fn size_bytes(&self) -> u64 {
        self.0.size_bytes()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> std::io::Result<()> {
        self.0.read(offset, into);
        Ok(())
    }
}

/// What the offline reader finds on an image: everything live is listed.
///
/// # Errors
///
/// Why nothing can be found, as text: no superblock, as a rule.
pub fn inspect_image(name: &str, image: &DriveImage) -> Result<Inspection, String> {
    let options = InspectOptions { allow_in_use: true, list_blocks: true };
    let source = Image(image.clone());
    inspect_source(&source, Path::new(name), options, &mut |_| {}).map_err(|error| error.to_string())
}

/// What the offline reader finds on a drive as it is now.
///
/// # Errors
///
/// Those of [`inspect_image`].
pub fn inspect_drive(drive: &SimulatedDrive) -> Result<Inspection, String> {
    inspect_image(drive.name(), &drive.snapshot())
}
