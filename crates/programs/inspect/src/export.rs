//! Writes one copy of a slab out as raw bytes, so that what a lone drive holds can be had.
//!
//! Invariants:
//! - A file that is there is never written over.
//! - No byte is written that did not match its checksum; what is damaged or lost is left zero, and
//!   only if that was asked for.

use std::fs::{File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use serde::Serialize;
use spandrel_shared::{BLOCK_BYTES, Error, SlabIndex, VolumeId};

use crate::data::for_each_block;
use crate::inspect::{CachePaths, Caches, FoundArea, find_area, recover_or_explain};
use crate::source::{DriveFile, Reader, Source};
use crate::state::{Slab, Volume};

/// How damage is dealt with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExportOptions {
    /// Leaves blocks that are damaged or lost zero, instead of writing nothing at all.
    pub zero_damaged: bool,
    /// Reads a drive that a node has open.
    pub allow_in_use: bool,
}

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExportReport {
    /// The volume.
    pub volume: VolumeId,
    /// The slab of it.
    pub slab: SlabIndex,
    /// The file that was made.
    pub output: PathBuf,
    /// Its size: a slab's.
    pub size_bytes: u64,
    /// Blocks that hold data.
    pub blocks_written: u32,
    /// Blocks that were left zero since their content cannot be had, in order.
    pub zeroed_blocks: Vec<u32>,
}

/// Writes the copy of a slab on the drive at `path` to the new file `output`. Blocks of which
/// nothing is stored are holes there.
///
/// # Errors
///
/// Those of [`crate::inspect`]; `COPY_NOT_FOUND`; `COPY_DAMAGED` unless `zero_damaged` is set;
/// `EXPORT_EXISTS`; `EXPORT_FAILED`.
pub fn export(
    path: &Path,
    caches: CachePaths<'_>,
    copy: (VolumeId, SlabIndex),
    output: &Path,
    options: ExportOptions,
) -> Result<ExportReport, Error> {
    let file = DriveFile::open(path, options.allow_in_use)?;
    caches.with(options.allow_in_use, |caches| export_source(&file, caches, path, copy, output, options))
}

pub(crate) fn export_source(
    source: &dyn Source,
    caches: Caches<'_>,
    path: &Path,
    (volume, slab): (VolumeId, SlabIndex),
    output: &Path,
    options: ExportOptions,
) -> Result<ExportReport, Error> {
    let area = find_area(source, caches, path)?;
    let reader = Reader::new(source, area.as_ref().map(FoundArea::placed));
    let recovered = recover_or_explain(reader, path, false, &mut |_| {})?;
    let found = recovered.state.find(volume, slab);
    let found = found.and_then(|slab| Some((slab, recovered.state.volume_of(slab)?)));
    let (copy, owner) = found.ok_or_else(|| {
        Error::new(
            "COPY_NOT_FOUND",
            format!("{} holds no copy of slab {slab} of volume {volume}", path.display()),
            format!("it holds copies of {} slabs", recovered.state.slabs.len()),
            format!("`spandrel drive inspect --all {}` lists them", path.display()),
        )
    })?;
    let damaged = damaged_blocks(reader, owner, copy);
    if !damaged.is_empty() && !options.zero_damaged {
        return Err(Error::new(
            "COPY_DAMAGED",
            format!("slab {slab} of volume {volume} on {} is damaged", path.display()),
            format!("{} of its blocks cannot be had, the first is block {}", damaged.len(), damaged[0]),
            "export another copy, or leave those blocks zero with --zero-damaged",
        ));
    }
    let size_bytes = recovered.superblock.slab_geometry.slab_bytes();
    let blocks_written = write(reader, owner, copy, output, size_bytes)?;
    let output = output.to_owned();
    Ok(ExportReport { volume, slab, output, size_bytes, blocks_written, zeroed_blocks: damaged })
}

/// Every block whose content cannot be had, in order.
fn damaged_blocks(reader: Reader<'_>, volume: &Volume, slab: &Slab) -> Vec<u32> {
    let lost = slab.mapped().filter(|(_, mapping)| mapping.is_lost()).map(|(block, _)| block);
    let mut damaged: Vec<u32> = lost.collect();
    let never: Result<(), std::convert::Infallible> = for_each_block(reader, volume, slab, |place, found| {
        damaged.extend(found.is_err().then_some(place.block));
        Ok(())
    });
    let Ok(()) = never;
    damaged.sort_unstable();
    damaged
}

fn write(
    reader: Reader<'_>,
    volume: &Volume,
    slab: &Slab,
    output: &Path,
    size_bytes: u64,
) -> Result<u32, Error> {
    let failed = |error: std::io::Error| {
        let what = format!("{} cannot be written", output.display());
        Error::new(
            "EXPORT_FAILED",
            what,
            error.to_string(),
            "write to where there is room, and delete the rest",
        )
    };
    let file = create(output)?;
    file.set_len(size_bytes).map_err(failed)?;
    let mut written = 0;
    for_each_block(reader, volume, slab, |place, found| {
        let Ok(bytes) = found else { return Ok(()) };
        written += 1;
        file.write_all_at(bytes, u64::from(place.block) * BLOCK_BYTES as u64)
    })
    .map_err(failed)?;
    file.sync_all().map_err(failed)?;
    Ok(written)
}

fn create(output: &Path) -> Result<File, Error> {
    OpenOptions::new().write(true).create_new(true).open(output).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Error::new(
            "EXPORT_EXISTS",
            format!("{} exists", output.display()),
            "an export never writes over a file",
            "name a new file",
        ),
        _ => {
            let what = format!("{} cannot be made", output.display());
            Error::new(
                "EXPORT_FAILED",
                what,
                error.to_string(),
                "name a file in a folder that you may write to",
            )
        }
    })
}

#[cfg(test)]
#[path = "export_tests.rs"]
mod tests;
