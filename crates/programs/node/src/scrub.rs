//! Checking whole volumes, on the node that owns them.

use spandrel_cluster::store::StateStore;
use spandrel_platform::Platform;
use spandrel_shared::{Error, SlabIndex, VolumeId};
use spandrel_volume::ScrubReport;

use crate::node::Node;
use crate::report::ScrubProgress;

impl<P: Platform, S: StateStore> Node<P, S> {
    /// Reads and checks every block of every in-sync copy of a volume that this node owns, compares
    /// the copies with each other, and, if `heal`, replaces what is damaged. Clients go on meanwhile.
    ///
    /// Errors: `NOT_OWNER` if this node does not own the volume, at the beginning or any more.
    pub async fn scrub_volume(
        &self,
        volume: VolumeId,
        heal: bool,
        progress: impl Fn(ScrubProgress),
    ) -> Result<ScrubReport, Error> {
        let not_owner = || {
            Error::new(
                "NOT_OWNER",
                format!("volume {volume} cannot be checked by node {}", self.inner.config.name),
                "another node owns it, or nobody does at the moment",
                "try again: the owner is asked then",
            )
        };
        let ownership = self.inner.ownership(volume).ok_or_else(not_owner)?;
        let owner = &ownership.owner;
        let slabs_total = owner.slab_count();
        let mut report = ScrubReport::default();
        for slab in 0..slabs_total {
            progress(ScrubProgress { slabs_done: slab, slabs_total });
            report.add(&match report.gave_up {
                false => owner.scrub_slab(SlabIndex(slab), heal).await.map_err(|_| not_owner())?,
                true => owner.slab_unchecked(SlabIndex(slab)),
            });
        }
        progress(ScrubProgress { slabs_done: slabs_total, slabs_total });
        Ok(report)
    }
}
