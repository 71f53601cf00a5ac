//! How a store uses the area of a cache drive: which writes go there, and how hard it is emptied.
//!
//! The fuller the area, the more writes go past it: so clients come down to what the capacity drive does bit by bit, and are
//! never stopped until there is room.

use std::cell::Cell;

use spandrel_shared::CacheMode;
use spandrel_shared::witness::{self, Rare};

/// Longer writes go past the cache, in blocks: 256 KiB. Capacity drives are good at those.
const CACHED_WRITE_BLOCKS_MAX: u32 = 64;

/// Per mille of the area that are in use when the first writes go past it; all do when it is full.
const SPILL_FROM_PER_MILLE: u64 = 800;

/// Per mille of the area that hold data from which on it is emptied.
const DESTAGE_FROM_PER_MILLE: u64 = 250;

/// Further steps, at each of which one more batch is moved at the same time.
const DESTAGE_STEP_PER_MILLE: u64 = 150;

/// How full an area is, in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheUse {
    /// All of its data blocks.
    pub blocks_total: u32,
    /// Those that can be handed out. Copies of what is read give way, so they count as free.
    pub blocks_free: u32,
    /// Those that hold what the capacity drive does not.
    pub blocks_dirty: u32,
    /// Those that hold copies of what is read.
    pub blocks_copied: u32,
}

impl CacheUse {
    /// Whether clients' writes go past the area, one or all: there is hardly room.
    pub fn spills(&self) -> bool {
        self.used_per_mille() > SPILL_FROM_PER_MILLE
    }

    /// How much of it cannot be handed out, per mille.
    pub fn used_per_mille(&self) -> u64 {
        per_mille(self.blocks_total - self.blocks_free, self.blocks_total)
    }

    fn dirty_per_mille(&self) -> u64 {
        per_mille(self.blocks_dirty, self.blocks_total)
    }
}

fn per_mille(part: u32, whole: u32) -> u64 {
    (u64::from(part) * 1000).checked_div(u64::from(whole)).unwrap_or(0)
}

/// What a store is to do with its area.
#[derive(Default)]
pub(crate) struct CachePolicy {
    mode: Cell<CacheMode>,
    /// Whether all that is in the area is to leave it.
    drains: Cell<bool>,
    /// Whether the capacity drive is a spinning disk.
    spins: Cell<bool>,
    /// By how much the writes that went past the area lag behind those that should have, per mille of one.
    spill_debt: Cell<u64>,
}

impl CachePolicy {
    pub(crate) fn mode(&self) -> CacheMode {
        self.mode.get()
    }

    pub(crate) fn set_mode(&self, mode: CacheMode) {
        self.mode.set(mode);
    }

    pub(crate) fn set_draining(&self, drains: bool) {
        self.drains.set(drains);
    }

    pub(crate) fn set_spinning(&self, spins: bool) {
        self.spins.set(spins);
    }

    pub(crate) fn spins(&self) -> bool {
        self.spins.get()
    }

    /// Whether a client's write of so many blocks goes to the area.
    pub(crate) fn takes_write(&self, blocks: u32, area: CacheUse) -> bool {
        let may_take = self.mode.get().caches_writes() && !self.drains.get();
        if !may_take || blocks > CACHED_WRITE_BLOCKS_MAX || area.blocks_free < blocks {
            return false;
        }
        let over = area.used_per_mille().saturating_sub(SPILL_FROM_PER_MILLE);
        let debt = self.spill_debt.get() + over * 1000 / (1000 - SPILL_FROM_PER_MILLE);
        let spills = debt >= 1000;
        self.spill_debt.set(if over == 0 { 0 } else { debt - if spills { 1000 } else { 0 } });
        if spills {
            witness::reached(Rare::WritePastFullCache);
        }
        !spills
    }

    /// How many batches are to be moved out of the area at the same time.
    pub(crate) fn destages(&self, area: CacheUse) -> usize {
        if area.blocks_dirty == 0 {
            return 0;
        }
        let is_to_leave = self.drains.get() || !self.mode.get().caches_writes();
        let over = area.dirty_per_mille().checked_sub(DESTAGE_FROM_PER_MILLE);
        let batches = over.map_or(0, |over| 1 + (over / DESTAGE_STEP_PER_MILLE) as usize);
        if is_to_leave { batches.max(2) } else { batches }
    }
}

#[cfg(test)]
#[path = "cache_policy_tests.rs"]
mod tests;
