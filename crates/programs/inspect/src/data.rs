//! Reads and checks the data blocks of slab copies, many at a time where they lie behind each
//! other.

use spandrel_shared::BLOCK_BYTES;
use spandrel_shared::checksum::BlockChecksum;

use crate::source::{Reader, offset_of};
use crate::state::{Slab, Volume};

/// Blocks that are read at a time.
const BLOCKS_AT_ONCE: usize = 256;

/// A block of a slab, and where it stands on the drive.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    /// Within the slab.
    pub block: u32,
    pub physical: u32,
    checksum: u32,
}

/// Hands every block that a slab's map names to `look`: its place and its content, or what is
/// wrong with it. In ascending order.
pub(crate) fn for_each_block<E>(
    reader: Reader<'_>,
    volume: &Volume,
    slab: &Slab,
    mut look: impl FnMut(Place, Result<&[u8], String>) -> Result<(), E>,
) -> Result<(), E> {
    let checksum = BlockChecksum::new(volume.volume, slab.slab);
    let mut check = |place: Place, bytes: Result<&[u8], String>| {
        let checked = bytes.and_then(|bytes| {
            let matches = checksum.of(place.block, bytes) == place.checksum;
            if matches { Ok(bytes) } else { Err("it does not match its checksum".to_owned()) }
        });
        look(place, checked)
    };
    let mut run: Vec<Place> = Vec::new();
    for (block, mapping) in slab.mapped() {
        let Some(physical) = mapping.physical() else { continue };
        let continues = run.last().is_some_and(|last| last.physical.checked_add(1) == Some(physical));
        if !continues || run.len() == BLOCKS_AT_ONCE {
            read_run(reader, &run, &mut check)?;
            run.clear();
        }
        run.push(Place { block, physical, checksum: mapping.checksum });
    }
    read_run(reader, &run, &mut check)
}

/// Reads places that lie behind each other; if that fails, block by block, so that one bad sector
/// hides no other block.
fn read_run<E>(
    reader: Reader<'_>,
    run: &[Place],
    check: &mut impl FnMut(Place, Result<&[u8], String>) -> Result<(), E>,
) -> Result<(), E> {
    let Some(first) = run.first() else { return Ok(()) };
    if let Ok(bytes) = reader.bytes(offset_of(first.physical), run.len() * BLOCK_BYTES) {
        return run
            .iter()
            .zip(bytes.chunks_exact(BLOCK_BYTES))
            .try_for_each(|(place, bytes)| check(*place, Ok(bytes)));
    }
    run.iter().try_for_each(|place| match reader.block(place.physical) {
        Ok(bytes) => check(*place, Ok(&bytes)),
        Err(why) => check(*place, Err(why)),
    })
}
