//! An inspection from the superblock to the last data block.

use std::path::{Path, PathBuf};

use spandrel_shared::{BLOCK_BYTES, Error};

use crate::cache_drive::{Area, CacheSuperblock};
use crate::data::for_each_block;
use crate::foreign::recognize;
use crate::inspection::{
    CopyReport, Damage, DamageKind, Inspection, ListedWrite, LiveBlock, PageReport, Phase, Progress,
    RootReport, SuperblockReport, VolumeReport,
};
use crate::recover::{NoSuperblock, Recovered, binding_of, recover};
use crate::source::{DriveFile, PlacedArea, Reader, Source, offset_of};
use crate::state::{Slab, Volume};
use crate::superblock::{FORMAT_VERSION, Superblock};

/// What an inspection is to do besides checking everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InspectOptions {
    /// Reads a drive that a node has open.
    pub allow_in_use: bool,
    /// Lists every live structure and data block. A full drive of 1 TiB has 268 million blocks,
    /// and each takes 48 bytes of memory.
    pub list_blocks: bool,
}

/// Where the area is looked for of a drive that is bound to a cache drive.
#[derive(Clone, Copy)]
pub enum Caches<'a> {
    /// On one of these.
    Among(&'a [&'a dyn Source]),
    /// Nowhere: what stands there is lost.
    Lost,
}

/// The same, by paths.
#[derive(Clone, Copy, Debug)]
pub enum CachePaths<'a> {
    /// On one of these drives, files or images.
    Among(&'a [PathBuf]),
    /// Nowhere.
    Lost,
}

impl CachePaths<'_> {
    /// Opens them for `work`.
    pub(crate) fn with<T>(
        self,
        allow_in_use: bool,
        work: impl FnOnce(Caches<'_>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let Self::Among(paths) = self else { return work(Caches::Lost) };
        let files = paths.iter().map(|path| DriveFile::open(path, allow_in_use));
        let files = files.collect::<Result<Vec<_>, Error>>()?;
        let sources: Vec<&dyn Source> = files.iter().map(|file| file as &dyn Source).collect();
        work(Caches::Among(&sources))
    }
}

/// Inspects the drive, file or image at `path`: checks every checksum on it.
///
/// # Errors
///
/// `DRIVE_UNREADABLE`, `DRIVE_IN_USE`, `DRIVE_NOT_SPANDREL`, `DRIVE_IS_CACHE`, `DRIVE_FORMAT_NEWER`,
/// `DRIVE_SUPERBLOCK_DAMAGED`, `CACHE_DRIVE_MISSING`. Damage behind a superblock is no error: it is in the result.
pub fn inspect(path: &Path) -> Result<Inspection, Error> {
    inspect_with(path, CachePaths::Among(&[]), InspectOptions::default(), &mut |_| {})
}

/// Inspects as [`inspect`] does, with options, and tells `progress` how far it is.
///
/// # Errors
///
/// Those of [`inspect`].
pub fn inspect_with(
    path: &Path,
    caches: CachePaths<'_>,
    options: InspectOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Inspection, Error> {
    let file = DriveFile::open(path, options.allow_in_use)?;
    caches.with(options.allow_in_use, |caches| inspect_source(&file, caches, path, options, progress))
}

/// Inspects bytes that need not be a file's. `path` names them in the result and in errors.
///
/// # Errors
///
/// Those of [`inspect`], but that the drive is in use.
pub fn inspect_source(
    source: &dyn Source,
    caches: Caches<'_>,
    path: &Path,
    options: InspectOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Inspection, Error> {
    let area = find_area(source, caches, path)?;
    let reader = Reader::new(source, area.as_ref().map(FoundArea::placed));
    let recovered = recover_or_explain(reader, path, options.list_blocks, progress)?;
    let data = check_data(reader, &recovered, options.list_blocks, progress);
    let volumes = report_volumes(&recovered);
    let mut damage = recovered.damage;
    damage.sort_by_key(|damage| damage.kind);
    damage.extend(data.damage);
    let root = recovered.root.map(|root| RootReport {
        generation: root.generation,
        attach_number: root.attach_number,
        state_revision: root.state_revision,
    });
    Ok(Inspection {
        path: path.to_owned(),
        size_bytes: reader.size_bytes(),
        was_in_use: options.allow_in_use,
        superblock: report_superblock(&recovered.superblock),
        superblock_copies: recovered.superblock_copies,
        root,
        cache: recovered.cache,
        root_slots: recovered.root_slots,
        journal: recovered.journal,
        volumes,
        copies: data.copies,
        blocks_checked: data.blocks_checked,
        damage,
        structures: recovered.structures,
        blocks: data.blocks,
    })
}

/// The area of a drive.
pub(crate) struct FoundArea<'a> {
    area: Area<'a>,
    offset_bytes: u64,
}

impl FoundArea<'_> {
    pub(crate) fn placed(&self) -> PlacedArea<'_> {
        PlacedArea { offset_bytes: self.offset_bytes, area: &self.area }
    }
}

/// The area that a drive is bound to; none if it is bound to none, or that one counts as lost.
pub(crate) fn find_area<'a>(
    source: &dyn Source,
    caches: Caches<'a>,
    path: &Path,
) -> Result<Option<FoundArea<'a>>, Error> {
    let (Some((superblock, binding)), Caches::Among(caches)) = (binding_of(source), caches) else {
        return Ok(None);
    };
    let areas =
        caches.iter().map(|cache| Area::find(*cache, binding.cache, superblock.drive, binding.number));
    let offset_bytes = offset_of(superblock.size_blocks);
    match areas.flatten().next() {
        Some(area) => Ok(Some(FoundArea { area, offset_bytes })),
        None => Err(Error::new(
            "CACHE_DRIVE_MISSING",
            format!("{} is only one half", path.display()),
            match caches.len() {
                _ if caches.iter().any(|cache| is_capacity(*cache)) => format!(
                    "it is bound to the cache drive {}, and what was named is a capacity drive: one that holds copies itself",
                    binding.cache
                ),
                0 => format!(
                    "it is bound to the cache drive {}, where its journal stands and what was written last",
                    binding.cache
                ),
                _ => format!(
                    "it is bound to the cache drive {}, and what was named is another one, is damaged, or has nothing of this \
                     drive any more",
                    binding.cache
                ),
            },
            "name that drive with --cache PATH, or look without it, with --without-cache",
        )),
    }
}

/// Whether it is a drive that caches for others.
fn is_cache(reader: Reader<'_>) -> bool {
    reader.block(0).is_ok_and(|block| CacheSuperblock::parse(&block).is_some())
}

/// Whether it is a drive that holds copies.
fn is_capacity(source: &dyn Source) -> bool {
    Reader::new(source, None).block(0).is_ok_and(|block| Superblock::parse(&block).is_ok())
}

/// Reads a drive, or says for a person why that cannot be done.
pub(crate) fn recover_or_explain(
    reader: Reader<'_>,
    path: &Path,
    list_structures: bool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Recovered, Error> {
    recover(reader, list_structures, progress).map_err(|fault| match fault {
        NoSuperblock::Absent if is_cache(reader) => Error::new(
            "DRIVE_IS_CACHE",
            format!("{} cannot be inspected by itself", path.display()),
            "it is a cache drive: what stands there belongs to the drives that are bound to it",
            format!(
                "inspect one of these together with it: `spandrel drive inspect CAPACITY --cache {}`",
                path.display()
            ),
        ),
        NoSuperblock::Absent => Error::new(
            "DRIVE_NOT_SPANDREL",
            format!("{} is no drive of Spandrel", path.display()),
            recognize(reader),
            "check the path; `spandrel drive list` names the drives of a node",
        ),
        NoSuperblock::Newer { version, unknown_features } => Error::new(
            "DRIVE_FORMAT_NEWER",
            format!("{} has a format that this program does not understand", path.display()),
            format!(
                "the drive's format is version {version} with unknown features {unknown_features:#x}; \
                 this program knows version {FORMAT_VERSION}"
            ),
            "inspect it with the version of Spandrel that the drive's node runs",
        ),
        NoSuperblock::Damaged(why) => Error::new(
            "DRIVE_SUPERBLOCK_DAMAGED",
            format!("{} cannot be inspected", path.display()),
            format!("neither copy of its superblock is whole: {why}"),
            "check that this is the whole drive; an image must be as long as the drive was",
        ),
    })
}

fn report_superblock(superblock: &Superblock) -> SuperblockReport {
    SuperblockReport {
        format_version: superblock.format_version,
        cluster: superblock.cluster,
        node: superblock.node,
        drive: superblock.drive,
        sector_bytes: superblock.sector_bytes,
        size_bytes: offset_of(superblock.size_blocks),
        slab_bytes: superblock.slab_geometry.slab_bytes(),
        copies_max: superblock.slab_count_max,
        data_offset_bytes: offset_of(superblock.data_first_block),
        created_unix_ms: superblock.created_unix_ms,
    }
}

fn report_volumes(recovered: &Recovered) -> Vec<VolumeReport> {
    let state = &recovered.state;
    let mut volumes: Vec<VolumeReport> = state
        .volumes
        .values()
        .map(|volume| VolumeReport {
            volume: volume.volume,
            fence_epoch: volume.fence_epoch,
            mark: volume.listing.mark,
            exceptions: volume.listing.exceptions.clone(),
            listed: volume
                .listing
                .iter()
                .filter_map(|(version, slot, run)| {
                    let slab = state.slabs.get(&slot)?.slab;
                    let (first, count) = (run.first, run.end - run.first);
                    Some(ListedWrite { version, slab, first, count, in_doubt: run.in_doubt })
                })
                .collect(),
        })
        .collect();
    volumes.sort_by_key(|volume| volume.volume);
    volumes
}

struct CheckedData {
    copies: Vec<CopyReport>,
    damage: Vec<Damage>,
    blocks: Vec<LiveBlock>,
    blocks_checked: u64,
}

/// Reads every data block that a map names.
fn check_data(
    reader: Reader<'_>,
    recovered: &Recovered,
    list_blocks: bool,
    progress: &mut dyn FnMut(Progress),
) -> CheckedData {
    let state = &recovered.state;
    let mut slabs: Vec<(u32, &Slab, &Volume)> =
        state.slabs.iter().filter_map(|(slot, slab)| Some((*slot, slab, state.volume_of(slab)?))).collect();
    slabs.sort_by_key(|(_, slab, volume)| (volume.volume, slab.slab));
    let is_stored = |slab: &&Slab| slab.mapped().filter(|(_, mapping)| mapping.physical().is_some()).count();
    let total = slabs.iter().map(|(_, slab, _)| is_stored(slab) as u64).sum();
    let mut checked =
        CheckedData { copies: Vec::new(), damage: Vec::new(), blocks: Vec::new(), blocks_checked: 0 };
    progress(Progress { phase: Phase::Data, done: 0, total });
    for (slot, slab, volume) in slabs {
        let mut report = report_copy(slab, volume);
        let never: Result<(), std::convert::Infallible> =
            for_each_block(reader, volume, slab, |place, found| {
                let offset_bytes = offset_of(place.physical);
                checked.blocks_checked += 1;
                if list_blocks {
                    let in_last_group = recovered.last_group_blocks.contains(&(slot, place.block));
                    let (volume, slab, block) = (volume.volume, slab.slab, place.block);
                    checked.blocks.push(LiveBlock { volume, slab, block, offset_bytes, in_last_group });
                }
                if let Err(why) = found {
                    report.damaged_blocks += 1;
                    let (kind, length) = (DamageKind::Data, BLOCK_BYTES as u64);
                    let damage = Damage::of_structure(kind, offset_bytes, length, why);
                    let (block, blocks) = (Some(place.block), 1);
                    checked.damage.push(Damage { block, blocks, ..of_slab(damage, volume, slab) });
                }
                if checked.blocks_checked.is_multiple_of(256) {
                    progress(Progress { phase: Phase::Data, done: checked.blocks_checked, total });
                }
                Ok(())
            });
        let Ok(()) = never;
        checked.damage.extend(lost_runs(slab).into_iter().map(|(first, count)| {
            let detail = "what was stored is not known any more".to_owned();
            let damage = Damage::of_structure(DamageKind::Lost, 0, 0, detail);
            let (block, blocks) = (Some(first), count);
            Damage { offset_bytes: None, block, blocks, ..of_slab(damage, volume, slab) }
        }));
        checked.copies.push(report);
    }
    progress(Progress { phase: Phase::Data, done: total, total });
    checked
}

fn of_slab(damage: Damage, volume: &Volume, slab: &Slab) -> Damage {
    Damage { volume: Some(volume.volume), slab: Some(slab.slab), ..damage }
}

fn report_copy(slab: &Slab, volume: &Volume) -> CopyReport {
    let lost_blocks = slab.mapped().filter(|(_, mapping)| mapping.is_lost()).count() as u32;
    let pages: Vec<PageReport> = (0..)
        .zip(&slab.pages)
        .map(|(page, content)| PageReport {
            page,
            version: content.version,
            whole: content.whole,
            mapped_blocks: content.mapped_blocks(),
        })
        .filter(|page| page.mapped_blocks > 0 || page.whole || page.version != Default::default())
        .collect();
    CopyReport {
        volume: volume.volume,
        slab: slab.slab,
        copy: slab.copy,
        layout: slab.layout,
        birth: slab.birth,
        newest: pages.iter().map(|page| page.version).max().unwrap_or_default(),
        proven: slab.proven,
        mapped_blocks: pages.iter().map(|page| page.mapped_blocks).sum::<u32>() - lost_blocks,
        lost_blocks,
        damaged_blocks: 0,
        pages,
    }
}

/// The lost blocks of a slab, as runs of a first block and a count.
fn lost_runs(slab: &Slab) -> Vec<(u32, u32)> {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for (block, _) in slab.mapped().filter(|(_, mapping)| mapping.is_lost()) {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == block => *count += 1,
            _ => runs.push((block, 1)),
        }
    }
    runs
}

#[cfg(test)]
#[path = "inspect_tests.rs"]
mod tests;
