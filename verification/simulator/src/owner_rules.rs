//! What tests of an owner have in common: three nodes, an owner, and its guests.

use std::cell::Cell;
use std::time::Duration;

use spandrel_replica::{Authority, BlockState, CopyAddress};
use spandrel_volume::{LegState, OwnerError, Phase, ScrubReport};

use super::*;
use crate::history::{BLOCK_SECTORS, content, value_of};

const PATIENCE: Duration = Duration::from_secs(60);

/// The outcome of a request, once there is one.
pub(super) type Outcome<T> = Rc<RefCell<Option<Result<T, OwnerError>>>>;

/// Three nodes and their owner.
pub(super) struct Rules {
    pub(super) owners: OwnersWorld,
    pub(super) guests: Process,
}

impl Drop for Rules {
    fn drop(&mut self) {
        self.guests.crash();
    }
}

impl Rules {
    /// Three nodes, all in sync; the first one is the owner.
    pub(super) fn new(seed: u64) -> Self {
        Self::with_nodes(seed, 3)
    }

    /// As many nodes, all in sync; the first one is the owner.
    pub(super) fn with_nodes(seed: u64, nodes: usize) -> Self {
        Self::in_world(OwnersWorld::new(seed, nodes))
    }

    /// The first node of a world is the owner.
    pub(super) fn in_world(owners: OwnersWorld) -> Self {
        let host = owners.world.add_host("guests");
        let guests = owners.world.start_process_on(&host, "guests");
        let rules = Self { owners, guests };
        rules.take(0);
        rules
    }

    pub(super) fn until(&self, what: &str, condition: impl FnMut() -> bool) {
        let end = self.owners.world.run_until_within(PATIENCE, condition);
        let legs = self.owners.owner().map(|(_, owner)| (owner.phase(), owner.legs()));
        assert_eq!(end, RunEnd::ConditionMet, "{what}: {legs:#?}");
    }

    pub(super) fn run_for(&self, time: Duration) {
        assert_eq!(self.owners.world.run_for(time), RunEnd::TimeOver);
    }

    /// Makes a node the owner and waits until it serves.
    pub(super) fn take(&self, index: usize) {
        self.owners.take(index);
        let epoch = self.owners.membership().epoch;
        self.until("it serves", || {
            self.owners
                .owner()
                .is_some_and(|(_, owner)| owner.epoch() == epoch && owner.phase() == Phase::Serving)
        });
    }

    /// Makes a node the owner, whose take-over goes on. Returns its epoch.
    pub(super) fn begin_take(&self, index: usize) -> Epoch {
        self.owners.take(index);
        let epoch = self.owners.membership().epoch;
        self.until("it begins", || self.owner().epoch() == epoch);
        epoch
    }

    /// What a node answers to a request that no owner has made.
    pub(super) fn serve(
        &self,
        index: usize,
        request: ReplicaRequest,
    ) -> Result<ReplicaResponse, ReplicaError> {
        let replica = self.owners.replica(index).expect("it is up");
        let served = self.guests.block_on(async move { replica.serve(request, None).await });
        served.expect("nothing stops it").map(|(response, _)| response)
    }

    /// A node's copy of the first slab, and the authority of the present owner.
    pub(super) fn copy_of(&self, index: usize) -> (CopyAddress, Authority) {
        self.copy_in(SlabIndex(0), index)
    }

    /// A node's copy of a slab, and the authority of the present owner.
    pub(super) fn copy_in(&self, slab: SlabIndex, index: usize) -> (CopyAddress, Authority) {
        let membership = self.owners.membership();
        let members = &membership.slabs[slab.0 as usize];
        let member = members.iter().find(|member| member.drive == drive_id(index));
        let copy = membership.address(slab, member.expect("it has a copy"));
        (copy, Authority { epoch: membership.epoch, configuration: membership.configuration })
    }

    /// What a node's copy of the first slab says of a block.
    pub(super) fn state_of(&self, index: usize, block: u32) -> BlockState {
        let (copy, authority) = self.copy_of(index);
        let request = ReplicaRequest::BlockStates { copy, authority, first: block, count: 1 };
        match self.serve(index, request) {
            Ok(ReplicaResponse::BlockStates(states)) => states[0],
            other => panic!("the copy is there: {other:?}"),
        }
    }

    pub(super) fn owner(&self) -> Owner<Context> {
        self.owners.owner().expect("there is an owner").1
    }

    pub(super) fn leg(&self, index: usize) -> LegState {
        self.owner().legs()[&LegId::standing(drive_id(index))].state
    }

    pub(super) fn await_in_sync(&self) {
        self.until("all are in sync", || (0..3).all(|index| self.leg(index) == LegState::InSync));
    }

    pub(super) fn begin_write(&self, block: u64, value: u64) -> Outcome<()> {
        let (owner, outcome) = (self.owner(), Outcome::default());
        let data = content(self.guests.platform().buffers(), value, BLOCK_SECTORS);
        let slot = Rc::clone(&outcome);
        self.guests.spawn(async move {
            let result = owner.write(block * 4096, data).await;
            *slot.borrow_mut() = Some(result);
        });
        outcome
    }

    pub(super) fn write(&self, block: u64, value: u64) -> Result<(), OwnerError> {
        let outcome = self.begin_write(block, value);
        self.until("the write is answered", || outcome.borrow().is_some());
        outcome.take().expect("it was answered")
    }

    pub(super) fn begin_read(&self, block: u64) -> Outcome<u64> {
        let (owner, outcome) = (self.owner(), Outcome::default());
        let slot = Rc::clone(&outcome);
        self.guests.spawn(async move {
            let result = owner.read(block * 4096, 4096).await;
            let result = result.map(|parts| value_of(&parts[0]).expect("no block is torn"));
            *slot.borrow_mut() = Some(result);
        });
        outcome
    }

    pub(super) fn read(&self, block: u64) -> Result<u64, OwnerError> {
        let outcome = self.begin_read(block);
        self.until("the read is answered", || outcome.borrow().is_some());
        outcome.take().expect("it was answered")
    }

    /// Stops a node and writes, so that its leg is marked stale.
    pub(super) fn make_stale(&self, index: usize) {
        self.owners.stop(index, false);
        self.write(1000, 1).expect("the others take it");
        self.until("it is marked", || self.leg(index) == LegState::Stale);
    }

    /// Starts a node, and runs until all that is missing of its leg's resync is the promotion.
    pub(super) fn start_until_promotion(&self, index: usize) {
        let proven = Rc::new(Cell::new(0));
        let count = Rc::clone(&proven);
        self.owners.judge(move |_, request| {
            count.set(count.get() + u32::from(matches!(request, ReplicaRequest::Prove { .. })));
            Fate::Carry
        });
        self.owners.start(index, false);
        self.until("all its copies are proven", || proven.get() == SLAB_COUNT);
        self.owners.judge_no_more();
    }

    /// Flips a bit in every place of a drive that holds `value`.
    pub(super) fn rot(&self, index: usize, value: u64) {
        let drive = self.owners.drive(index);
        let image = drive.snapshot();
        let mut found = 0;
        for block in (0..image.size_bytes()).step_by(4096) {
            let bytes = image.read_vec(block, 4096);
            if bytes.chunks_exact(8).all(|chunk| chunk == value.to_le_bytes()) {
                drive.flip_bit(block + 99, 3);
                found += 1;
            }
        }
        assert!(found > 0, "the drive holds {value}");
    }

    pub(super) fn scrub(&self) -> ScrubReport {
        let owner = self.owner();
        let (_, process) =
            self.owners.owner().map(|(index, _)| (index, self.owners.process(index))).expect("owner");
        let process = process.expect("the owner's process runs");
        let scrubbed = process.block_on(async move { owner.scrub_slab(SlabIndex(0), true).await });
        scrubbed.expect("nothing stops it").expect("it serves")
    }

    pub(super) fn assert_copies_are_the_same(&self) {
        let report = self.scrub();
        assert_eq!((report.blocks_different, report.pieces_unchecked), (0, 0));
    }

    /// All copies come back in sync and are the same, and a node that takes the volume over reads `value`.
    pub(super) fn assert_all_recover(&self, index: usize, block: u64, value: u64) {
        self.await_in_sync();
        self.assert_copies_are_the_same();
        self.take(index);
        assert_eq!(self.read(block), Ok(value));
    }

    /// Holds up the resync of the leg on node 2 in its last step but the promotion: page 1 of the first
    /// slab gets its version only `delay` later. Page 0 is whole by then.
    pub(super) fn hold_up_resync(request: &ReplicaRequest, delay: Duration) -> Option<Fate> {
        match request {
            ReplicaRequest::SetPageVersion { page: 1, .. } => Some(Fate::Late(delay)),
            _ => None,
        }
    }

    /// Completes when page 0 is whole on the joining leg of node 2, and page 1 is held up.
    pub(super) fn await_held_up(&self) {
        let leg = LegId::standing(drive_id(2));
        self.until("a page is whole", || {
            self.owner().resync_progress().get(&leg).is_some_and(|progress| progress.pages_done > 0)
        });
        assert_eq!(self.leg(2), LegState::Joining);
    }
}
