//! Moving copies to other drives: what a lost drive held is built anew elsewhere, what a drive is to be rid of goes
//! away, and what lies unevenly is spread.
//!
//! Each is the same: a new copy is built in the place of another one, by a resync from nothing (see `resync`). In one
//! transaction the new copies of a drive count, and those whose places they take do not any more. These serve reads and
//! take writes until then, if they can, so that nothing is ever kept less often than before; and whatever waits for
//! the answer of one of them afterwards need not any more.

use std::rc::Rc;

use spandrel_platform::Platform;
use spandrel_replica::ReplicaRequest;
use spandrel_shared::geometry::SlabRange;
use spandrel_shared::{DriveId, Move, SlabIndex};

use crate::context::OwnerContext;
use crate::membership::{Member, Membership, MembershipChange};
use crate::owner::{Owner, OwnerInner};

impl<C: OwnerContext> Owner<C> {
    /// Has copies built, each in the place of another one. They are brought up to date by themselves. Returns whether
    /// the cluster's state has it; if not, why is logged.
    pub async fn build(&self, moves: Vec<Move>) -> bool {
        self.inner.serving().await.is_ok() && self.inner.change(MembershipChange::Build(moves)).await
    }

    /// Gives up the copies that are being built on a drive. Returns whether the cluster's state has it; if not, why is
    /// logged.
    pub async fn abandon(&self, drive: DriveId) -> bool {
        self.inner.serving().await.is_ok() && self.inner.change(MembershipChange::Abandon(drive)).await
    }
}

impl<C: OwnerContext> OwnerInner<C> {
    /// Removes the copies of a former membership that do not count any more. One whose node does not answer now is
    /// removed later by that node.
    pub(crate) fn remove_replaced(&self, former: &Membership) {
        let slabs = (0..).map(SlabIndex).zip(&former.slabs);
        let members = slabs.flat_map(|(slab, members)| members.iter().map(move |member| (slab, *member)));
        let is_gone = |(slab, member): &(SlabIndex, Member)| self.leg_of(*slab, member).is_none();
        let gone: Vec<(SlabIndex, Member)> = members.filter(is_gone).collect();
        let Some(owner) = self.own_handle().filter(|_| !gone.is_empty()) else { return };
        self.context.platform().spawn(async move {
            for (slab, member) in gone {
                owner.remove_copy(slab, &member).await;
            }
        });
    }

    async fn remove_copy(self: &Rc<Self>, slab: SlabIndex, member: &Member) {
        let geometry = self.membership.borrow().geometry;
        let all = SlabRange { slab, first: 0, count: geometry.slab_blocks() };
        // What was sent to it before it counted no more has come back when nobody holds a block of the slab.
        drop(self.locks.exclusive(all.in_volume(geometry)).await);
        let copy = self.membership.borrow().address(slab, member);
        let removed =
            self.in_time(self.context.ask(member.shard, ReplicaRequest::RemoveCopy { copy }, None)).await;
        if let Err(error) = removed {
            tracing::info!(volume = %self.volume, drive = %member.drive, %slab, "a replaced copy remains: {error}");
        }
    }
}
