use std::collections::BTreeSet;

use spandrel_platform_simulated::Random;
use spandrel_shared::canary::Bug;
use spandrel_volume::{LegState, OwnerError, Phase, ScrubReport};

use super::*;
use crate::cruelty::{catches, rot, seed_count, seed_first};
use crate::history::{History, content, value_of};

/// Few blocks, so that operations meet: some in either slab.
const BLOCKS: [u64; 6] = [0, 1, 2, 600, 1023, 1024];

/// A guest that writes and reads until it is told to stop, through whichever owner there is. Runs on
/// a host that never fails.
async fn client(
    shared: Rc<Shared>,
    platform: SimulatedPlatform,
    history: Rc<History>,
    stop: Rc<Cell<bool>>,
    random: Random,
) {
    while !stop.get() {
        let owner =
            shared.nodes.iter().filter_map(|node| node.owner.borrow().clone()).max_by_key(Owner::epoch);
        let Some(owner) = owner else {
            platform.sleep(Duration::from_millis(5)).await;
            continue;
        };
        let block = BLOCKS[random.index(BLOCKS.len())];
        // The owner may die with its process: then nothing is ever answered.
        let gone = std::pin::pin!(shared.changed.wait_until(|| {
            !shared
                .nodes
                .iter()
                .any(|node| node.owner.borrow().as_ref().is_some_and(|own| own.epoch() == owner.epoch()))
        }));
        if random.chance(600) {
            let value = history.value();
            let number = history.begin(block, value, true);
            let write = std::pin::pin!(owner.write(block * 4096, content(platform.buffers(), value)));
            let result = futures_util::future::select(write, gone).await;
            if matches!(result, futures_util::future::Either::Left((Ok(()), _))) {
                history.end(block, number, value);
            }
        } else {
            let number = history.begin(block, 0, false);
            let read = std::pin::pin!(owner.read(block * 4096, 4096));
            let result = futures_util::future::select(read, gone).await;
            if let futures_util::future::Either::Left((Ok(parts), _)) = result {
                history.end(block, number, value_of(&parts[0]));
            }
        }
        platform.sleep(Duration::from_micros(random.between(0, 2000))).await;
    }
}

struct Run {
    owners: OwnersWorld,
    /// The drive on which bits have flipped that may not have been healed yet. Until they are, the
    /// other copies stay: what is damaged on the last good copy is lost, and no fault of the store.
    rotten: Cell<Option<usize>>,
    /// Blocks in which a bit was flipped.
    flipped_blocks: Cell<u64>,
    guests: Process,
    history: Rc<History>,
    stop: Rc<Cell<bool>>,
    random: Random,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.guests.crash();
    }
}

impl Run {
    fn new(seed: u64, clients: usize) -> Self {
        let owners = OwnersWorld::new(seed, 3);
        let history = Rc::new(History::default());
        let stop = Rc::new(Cell::new(false));
        let guests = owners.world.add_host("guests");
        let process = owners.world.start_process_on(&guests, "guests");
        for number in 0..clients {
            let random = Random::stream(seed, "client", number as u64);
            let (shared, history, stop) = (Rc::clone(&owners.shared), Rc::clone(&history), Rc::clone(&stop));
            process.spawn(client(shared, process.platform(), history, stop, random));
        }
        owners.take(0);
        Self {
            owners,
            guests: process,
            rotten: Cell::new(None),
            flipped_blocks: Cell::new(0),
            history,
            stop,
            random: Random::stream(seed, "faults", 0),
        }
    }

    fn run_for(&self, milliseconds: u64) {
        let end = self.owners.world.run_for(Duration::from_millis(milliseconds));
        assert_eq!(end, RunEnd::TimeOver, "the world goes on");
        // No drive lies, so whoever is in sync has what it confirmed.
        for node in &self.owners.shared.nodes {
            let lacking =
                node.owner.borrow().as_ref().map_or(0, |owner| owner.statistics().legs_found_lacking);
            assert_eq!(lacking, 0, "a copy is taken for one that has lost writes");
        }
    }

    /// Something breaks, or comes back, or changes hands.
    fn one_fault(&self) {
        let owners = &self.owners;
        let index = self.random.index(3);
        let spared = self.rotten.get().is_some_and(|rotten| rotten != index);
        match self.random.below(12) {
            // At least one node stays up, unless the power of all is cut.
            0..4 if !spared && owners.is_up(index) && self.count_up() > 1 => {
                owners.stop(index, self.random.chance(500));
            }
            0..7 if owners.process(index).is_none() => owners.start(index, false),
            7 if self.rotten.get().is_none() => owners.lose_answers(self.random.below(20)),
            8 if self.rotten.get().is_none() => (0..3).for_each(|index| owners.stop(index, true)),
            5..10 if self.all_in_sync() => match self.rotten.get() {
                None => self.rot(index),
                Some(_) => self.scrub_away(),
            },
            _ if owners.is_up(index) => owners.take(index),
            _ => {}
        }
    }

    fn count_up(&self) -> usize {
        (0..3).filter(|index| self.owners.is_up(*index)).count()
    }

    /// Whether the newest owner serves and every leg holds every answered write.
    fn all_in_sync(&self) -> bool {
        self.owners.owner().is_some_and(|(_, owner)| {
            owner.epoch() == self.owners.membership().epoch
                && owner.phase() == Phase::Serving
                && owner.legs().values().all(|leg| leg.state == LegState::InSync)
        })
    }

    /// Flips bits in blocks of one drive that hold what was written last.
    fn rot(&self, index: usize) {
        self.owners.lose_answers(0);
        self.rotten.set(Some(index));
        let flipped = rot(self.owners.drive(index), &self.history, &self.random);
        self.flipped_blocks.set(self.flipped_blocks.get() + flipped);
    }

    /// Scrubs the volume; if that came to its end, no damage is left.
    fn scrub_away(&self) {
        if let Some(reports) = self.scrub()
            && reports.iter().all(|report| {
                report.pieces_unchecked == 0 && report.damaged.values().sum::<u64>() == report.blocks_healed
            })
            && self.all_in_sync()
        {
            self.rotten.set(None);
        }
    }

    /// What the newest owner's scrub of all slabs says, if it lives and serves that long.
    fn scrub(&self) -> Option<Vec<ScrubReport>> {
        let (index, owner) = self.owners.owner()?;
        let process = self.owners.process(index)?;
        let scrub = process.block_on(async move {
            let mut reports = Vec::new();
            for slab in 0..SLAB_COUNT {
                reports.push(owner.scrub_slab(SlabIndex(slab), true).await?);
            }
            Ok::<_, OwnerError>(reports)
        });
        scrub.ok()?.ok()
    }

    /// All nodes up, an owner that serves, all legs in sync; then all copies are the same.
    fn converge(&self, seed: u64) {
        self.owners.lose_answers(0);
        for index in 0..3 {
            if self.owners.process(index).is_none() {
                self.owners.start(index, false);
            }
        }
        let up = || (0..3).all(|index| self.owners.is_up(index));
        assert_eq!(self.owners.world.run_until(up), RunEnd::ConditionMet);
        let state_epoch = || self.owners.membership().epoch;
        let deposed = || {
            self.owners
                .owner()
                .is_none_or(|(_, owner)| owner.phase() == Phase::Deposed || owner.epoch() < state_epoch())
        };
        let mut end = RunEnd::TimeOver;
        for _ in 0..20 {
            if deposed() {
                self.owners.take(self.random.index(3));
            }
            end = self.owners.world.run_until_within(Duration::from_secs(5), || self.all_in_sync());
            if end == RunEnd::ConditionMet {
                break;
            }
        }
        let owner = self
            .owners
            .owner()
            .map(|(node, owner)| (node, owner.phase(), owner.legs(), owner.resync_progress()));
        assert_eq!(end, RunEnd::ConditionMet, "seed {seed}: not healthy again: {owner:#?}");
        self.stop.set(true);
        self.run_for(500);
        self.compare_copies(seed);
        self.history.check(seed);
    }

    fn compare_copies(&self, seed: u64) {
        // The first scrub heals.
        for is_healed in [false, true] {
            for report in self.scrub().expect("nothing disturbs the owner") {
                assert_eq!(report.blocks_different, 0, "seed {seed}: copies differ");
                assert_eq!(report.pieces_unchecked, 0, "seed {seed}");
                assert!(report.blocks_checked >= 3 * 1024, "seed {seed}");
                assert!(!is_healed || report.damaged.is_empty(), "seed {seed}: {report:?} after healing");
            }
        }
    }
}

#[test]
fn a_volume_serves_and_its_copies_are_the_same() {
    let run = Run::new(1, 4);
    run.run_for(300);
    run.converge(1);
    let operations: usize = run.history.count();
    assert!(operations > 100, "{operations}");
}

/// One run under faults: nodes stop and come back, owners change, the power of all is cut, bits flip.
/// Returns the blocks in which a bit was flipped.
fn cruel_run(seed: u64) -> u64 {
    let run = Run::new(seed, 4);
    run.run_for(50);
    for _ in 0..12 {
        run.one_fault();
        run.run_for(run.random.between(1, 300));
    }
    run.converge(seed);
    run.flipped_blocks.get()
}

#[test]
fn a_thousand_cruel_runs_lose_and_tear_nothing() {
    let seeds = seed_count(1000);
    let flipped_blocks: u64 = (seed_first()..seed_first() + seeds).map(cruel_run).sum();
    assert!(flipped_blocks > seeds, "{flipped_blocks}: bit rot hits what is read");
}

#[test]
fn an_answer_before_it_is_durable_is_caught() {
    assert!(catches(Bug::AnswerBeforeDurable, 200, cruel_run));
}

#[test]
fn a_skipped_fence_is_caught() {
    assert!(catches(Bug::SkipFence, 200, cruel_run));
}

#[test]
fn a_trusted_bad_checksum_is_caught() {
    assert!(catches(Bug::TrustBadChecksum, 200, cruel_run));
}

#[test]
fn a_deposed_owner_answers_nothing() {
    let run = Run::new(7, 0);
    run.run_for(50);
    let (_, old) = run.owners.owner().unwrap();
    run.owners.take(1);
    run.run_for(100);
    let process = run.owners.process(0).unwrap();
    let data = content(process.platform().buffers(), 5);
    let answer = process.block_on(async move { old.write(0, data).await }).unwrap();
    assert_eq!(answer, Err(OwnerError::Deposed));
    let drives: BTreeSet<_> = run.owners.membership().stale.into_keys().collect();
    assert_eq!(drives, BTreeSet::new(), "a hand-over marks nobody");
}
