//! Where the slabs go by which a volume grows: like those of a new one, with as many copies as it has.
//!
//! A volume's last slab may be one that it does not fill. What it grows by within that slab takes no room: all of a slab
//! is promised with its first block.

use spandrel_shared::{BLOCK_BYTES, DriveId, Error, NodeId};

use crate::plan::{Purpose, VolumeRequest, Warning, exact_size, plan_for};
use crate::view::PoolView;

/// A volume that is to grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowthRequest<'a> {
    /// Its name, for texts.
    pub name: &'a str,
    /// Its size.
    pub size_bytes: u64,
    /// The size that it is to have: a multiple of 4 KiB, not smaller.
    pub grows_to_bytes: u64,
    /// How many copies it keeps.
    pub copies: u8,
    /// The node that should own it: one copy of each slab goes there if that suits, as long as it is online.
    pub owner: Option<NodeId>,
}

/// What growing a volume would do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrowthPlan {
    /// The drives of the copies of each slab that comes.
    pub slabs: Vec<Vec<DriveId>>,
    /// What the operator should know before agreeing.
    pub warnings: Vec<Warning>,
}

/// Places the slabs by which a volume grows, on nodes in maintenance only if the others do not suffice.
///
/// Errors: `SIZE_SMALLER`, `SIZE_UNALIGNED`, `TOO_FEW_NODES`, `POOL_FULL`.
pub fn plan_growth(view: &PoolView, request: &GrowthRequest<'_>) -> Result<GrowthPlan, Error> {
    check_growth_size(request.name, request.size_bytes, request.grows_to_bytes)?;
    let slabs_for = |size_bytes| view.geometry.slabs_for(size_bytes);
    let more = slabs_for(request.grows_to_bytes) - slabs_for(request.size_bytes);
    if more == 0 {
        return Ok(GrowthPlan::default());
    }
    let serves = |node: &NodeId| {
        let mut nodes = view.nodes.iter();
        nodes.any(|known| known.node == *node && known.is_online && !known.is_in_maintenance)
    };
    let more = VolumeRequest {
        name: request.name,
        size_bytes: more.saturating_mul(view.geometry.slab_bytes()),
        copies: Some(request.copies),
        owner: request.owner.filter(serves),
    };
    let plan = plan_for(view, &more, Purpose::Grow)?;
    Ok(GrowthPlan { slabs: plan.slabs, warnings: plan.warnings })
}

/// Whether a volume can have another size, as far as that is a matter of numbers.
///
/// Errors: `SIZE_SMALLER`, `SIZE_UNALIGNED`.
pub fn check_growth_size(name: &str, size_bytes: u64, grows_to_bytes: u64) -> Result<(), Error> {
    let what = format!("the size of volume {name:?} cannot be changed");
    if grows_to_bytes < size_bytes {
        let why = format!(
            "it has {}, and {} is less: a volume never shrinks, because what stands behind its new end would be lost, and \
             nobody here knows whether a file system or a partition still uses it",
            exact_size(size_bytes),
            exact_size(grows_to_bytes)
        );
        let next = "make a smaller volume, copy what is needed, and delete this one; what is trimmed takes no room on \
                    the drives";
        return Err(Error::new("SIZE_SMALLER", what, why, next));
    }
    let block = BLOCK_BYTES as u64;
    let beyond = grows_to_bytes % block;
    if beyond == 0 {
        return Ok(());
    }
    let why = format!(
        "{grows_to_bytes} bytes are {beyond} above a multiple of {block}, the unit in which blocks are stored"
    );
    let higher = (grows_to_bytes - beyond).saturating_add(block);
    Err(Error::new("SIZE_UNALIGNED", what, why, format!("make it {higher} bytes")))
}

#[cfg(test)]
#[path = "growth_tests.rs"]
mod tests;
