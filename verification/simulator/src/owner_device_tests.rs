//! An owner as its guests see it: a device of bytes, against a plain array of them.

use std::time::Duration;

use spandrel_platform_simulated::Random;
use spandrel_replica::Heeded;
use spandrel_shared::BLOCK_BYTES;
use spandrel_volume::{Extent, LegState, OwnerError, Phase};

use super::rules::Rules;
use super::*;

/// Where most requests meet: around the border of the two slabs.
const BORDER: u64 = VOLUME_BYTES / 2;

const BLOCK: u64 = BLOCK_BYTES as u64;

/// What the volume must hold.
struct Expected {
    bytes: Vec<u8>,
    allocated: Vec<bool>,
}

impl Expected {
    fn new() -> Self {
        Self {
            bytes: vec![0; VOLUME_BYTES as usize],
            allocated: vec![false; (VOLUME_BYTES / BLOCK) as usize],
        }
    }

    fn write(&mut self, offset: u64, data: &[u8]) {
        self.bytes[offset as usize..][..data.len()].copy_from_slice(data);
        for block in offset / BLOCK..(offset + data.len() as u64).div_ceil(BLOCK) {
            self.allocated[block as usize] = true;
        }
    }

    /// Whole blocks are unmapped.
    fn trim(&mut self, offset: u64, length: u64) {
        for block in offset.div_ceil(BLOCK)..(offset + length) / BLOCK {
            self.bytes[(block * BLOCK) as usize..][..BLOCK_BYTES].fill(0);
            self.allocated[block as usize] = false;
        }
    }

    fn write_zeroes(&mut self, offset: u64, length: u64) {
        let (first, end) = (offset.next_multiple_of(BLOCK), (offset + length) / BLOCK * BLOCK);
        if first >= end {
            return self.write(offset, &vec![0; length as usize]);
        }
        self.write(offset, &vec![0; (first - offset) as usize]);
        self.write(end, &vec![0; (offset + length - end) as usize]);
        self.trim(first, end - first);
    }

    fn extents(&self, offset: u64, length: u64) -> Vec<Extent> {
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = offset;
        while at < offset + length {
            let end = ((at / BLOCK + 1) * BLOCK).min(offset + length);
            let allocated = self.allocated[(at / BLOCK) as usize];
            match extents.last_mut() {
                Some(last) if last.allocated == allocated => last.length += end - at,
                _ => extents.push(Extent { length: end - at, allocated }),
            }
            at = end;
        }
        extents
    }
}

/// A range of bytes in which anything may meet anything.
fn range(random: &Random) -> (u64, u64) {
    let blocks = [1, 3, 40, 400][random.index(4)];
    let length = random.between(1, blocks * BLOCK);
    let start = BORDER - 200 * BLOCK + random.below(200 * BLOCK);
    let unaligned = (start, length);
    let aligned = (start / BLOCK * BLOCK, length.next_multiple_of(BLOCK));
    if random.chance(500) { aligned } else { unaligned }
}

#[test]
fn a_volume_is_a_device_of_bytes() {
    let rules = Rules::new(1);
    let (owner, platform) = (rules.owner(), rules.guests.platform());
    let worked = rules.guests.block_on(async move {
        let random = Random::stream(1, "device", 0);
        let mut expected = Expected::new();
        for number in 0..300_u32 {
            let (offset, length) = range(&random);
            match random.index(4) {
                0 | 1 => {
                    let data: Vec<u8> =
                        (0..length).map(|at| (at as u32 ^ number.wrapping_mul(0x9e37)) as u8 | 1).collect();
                    let buffer = platform.buffers().copy_of(&data).freeze();
                    owner.write(offset, buffer).await.expect("nothing is broken");
                    expected.write(offset, &data);
                }
                2 => {
                    owner.trim(offset, length).await.expect("nothing is broken");
                    expected.trim(offset, length);
                }
                _ => {
                    owner.write_zeroes(offset, length).await.expect("nothing is broken");
                    expected.write_zeroes(offset, length);
                }
            }
            let (offset, length) = range(&random);
            let parts = owner.read(offset, length as u32).await.expect("nothing is broken");
            let bytes: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
            assert!(
                bytes == expected.bytes[offset as usize..][..length as usize],
                "{number}: {offset}+{length}"
            );
            let extents = owner.extents(offset, length).await.expect("nothing is broken");
            assert_eq!(extents, expected.extents(offset, length), "{number}: {offset}+{length}");
        }
        let extents = owner.extents(0, VOLUME_BYTES).await.expect("nothing is broken");
        assert_eq!(extents, expected.extents(0, VOLUME_BYTES));
    });
    worked.expect("it comes to its end");
    rules.assert_copies_are_the_same();
}

#[test]
fn what_lies_outside_of_the_volume_is_refused() {
    let rules = Rules::new(1);
    let (owner, platform) = (rules.owner(), rules.guests.platform());
    assert_eq!(owner.size_bytes(), VOLUME_BYTES);
    let worked = rules.guests.block_on(async move {
        let outside = [
            (0, 0),
            (VOLUME_BYTES, 1),
            (VOLUME_BYTES - 1, 2),
            (u64::MAX, 1),
            (u64::MAX - 1, 4096),
            (4096, 0),
        ];
        for (offset, length) in outside {
            let refused = |result: Result<(), OwnerError>| {
                assert!(matches!(result, Err(OwnerError::Invalid(_))), "{offset}+{length}: {result:?}");
            };
            let data = platform.buffers().take_zeroed(length as usize).freeze();
            refused(owner.write(offset, data).await);
            refused(owner.read(offset, length as u32).await.map(|_| ()));
            refused(owner.trim(offset, length).await);
            refused(owner.write_zeroes(offset, length).await);
            refused(owner.extents(offset, length).await.map(|_| ()));
        }
        let data = platform.buffers().take_zeroed(4096).freeze();
        assert_eq!(owner.write(VOLUME_BYTES - 4096, data).await, Ok(()), "the last block");
    });
    worked.expect("it comes to its end");
}

#[test]
fn what_is_answered_is_counted() {
    let rules = Rules::new(1);
    let (owner, platform) = (rules.owner(), rules.guests.platform());
    assert_eq!(owner.statistics(), spandrel_volume::OwnerStatistics::default());
    let served = owner.clone();
    let worked = rules.guests.block_on(async move {
        for _ in 0..3 {
            served.write(0, platform.buffers().take_zeroed(5000).freeze()).await.expect("it serves");
        }
        served.trim(0, 8192).await.expect("it serves");
        for _ in 0..2 {
            served.read(100, 700).await.expect("it serves");
        }
    });
    worked.expect("it comes to its end");
    let statistics = owner.statistics();
    assert_eq!((statistics.writes, statistics.write_bytes), (4, 15_000));
    assert_eq!((statistics.reads, statistics.read_bytes), (2, 1400));
    rules.make_stale(2);
    rules.owners.start(2, false);
    rules.await_in_sync();
    let statistics = owner.statistics();
    assert_eq!((statistics.legs_marked, statistics.legs_promoted), (1, 1));
    assert_eq!(statistics.blocks_resynced, 1, "the block that was written meanwhile");
}

/// What the copies hold may differ until a take-over has ended.
#[test]
fn nothing_is_served_before_a_take_over_has_ended() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.owners.judge(|_, request| match request {
        ReplicaRequest::Pages { .. } => Fate::Late(Duration::from_millis(300)),
        _ => Fate::Carry,
    });
    rules.begin_take(1);
    let owner = rules.owner();
    let (reader, writer, reported) = (owner.clone(), owner.clone(), owner.clone());
    let data = rules.guests.platform().buffers().take_zeroed(4096).freeze();
    let worked = rules.guests.block_on(async move {
        assert_eq!(reported.phase(), Phase::TakingOver);
        let in_time = async |what: &str| assert_eq!(reported.phase(), Phase::Serving, "{what}");
        let read = async {
            reader.read(0, 4096).await.expect("it serves in the end");
            in_time("a read").await;
        };
        let write = async {
            writer.write(8192, data).await.expect("it serves in the end");
            in_time("a write").await;
        };
        let extents = async {
            reader.extents(0, 4096).await.expect("it serves in the end");
            in_time("extents").await;
        };
        let serving = async {
            writer.serving().await.expect("it serves in the end");
            in_time("serving").await;
        };
        futures_util::future::join4(read, write, extents, serving).await;
    });
    worked.expect("it comes to its end");
}

/// An owner that meets a higher epoch is not the owner any more, whatever the cluster's state still says of it.
#[test]
fn an_owner_that_meets_a_higher_epoch_has_ended() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    let (volume, epoch) = (rules.owner().volume(), rules.owner().epoch().next());
    let fenced = rules.serve(1, ReplicaRequest::Fence { volume, epoch, settles: true, heeds: Heeded::All });
    assert!(fenced.is_ok(), "{fenced:?}");
    assert_eq!(rules.write(0, 6), Err(OwnerError::Deposed));
    assert!(rules.owners.membership().stale.is_empty(), "the copy is not to blame");
}

#[test]
fn whoever_waits_for_the_end_of_an_ownership_is_told() {
    let rules = Rules::new(1);
    let owner = rules.owner();
    let (waiting, ended) = (owner.clone(), Rc::new(Cell::new(false)));
    let told = Rc::clone(&ended);
    rules.run_for(Duration::from_secs(1));
    rules.guests.spawn(async move {
        waiting.deposed().await;
        told.set(true);
    });
    rules.run_for(Duration::from_millis(50));
    assert!(!ended.get());
    owner.depose();
    rules.until("it is told", || ended.get());
    assert_eq!(owner.phase(), Phase::Deposed);
    assert_eq!(rules.write(0, 6), Err(OwnerError::Deposed));
}

/// A read that no copy answers at once waits for one that does.
#[test]
fn a_read_is_tried_again() {
    let rules = Rules::new(1);
    rules.write(0, 5).unwrap();
    rules.owners.judge(|_, request| match request {
        ReplicaRequest::Read { .. } | ReplicaRequest::BlockStates { .. } => Fate::Fails(Duration::ZERO),
        _ => Fate::Carry,
    });
    let owner = rules.owner();
    let outcome = Rc::new(RefCell::new(None));
    let slot = Rc::clone(&outcome);
    rules.guests.spawn(async move {
        let read = owner.read(0, 4096).await.map(|_| ());
        *slot.borrow_mut() = Some((read, owner.extents(0, 4096).await));
    });
    rules.run_for(Duration::from_secs(1));
    assert_eq!(*outcome.borrow(), None);
    rules.owners.judge_no_more();
    rules.until("it is answered", || outcome.borrow().is_some());
    let allocated = Extent { length: 4096, allocated: true };
    assert_eq!(outcome.take(), Some((Ok(()), Ok(vec![allocated]))));
}

/// What the owner's own node holds need not be fetched from another one.
#[test]
fn reads_go_to_the_own_node() {
    for own in 0..3 {
        let rules = Rules::new(1);
        rules.write(0, 5).unwrap();
        rules.take(own);
        rules.owners.judge(move |node, request| {
            let is_read = matches!(request, ReplicaRequest::Read { .. } | ReplicaRequest::BlockStates { .. });
            assert!(!is_read || node == own, "node {node} was asked by the owner on {own}");
            Fate::Carry
        });
        assert_eq!(rules.read(0), Ok(5));
    }
}

/// A copy that is stale takes no part in anything, though the process is the one that the owner knows.
#[test]
fn a_stale_copy_is_sent_no_writes() {
    let rules = Rules::new(1);
    rules.owners.judge(|node, request| match request {
        ReplicaRequest::Write { .. } if node == 2 => Fate::Fails(Duration::ZERO),
        ReplicaRequest::Fence { .. } if node == 2 => Fate::Hangs,
        _ => Fate::Carry,
    });
    rules.write(0, 5).unwrap();
    assert_eq!(rules.leg(2), LegState::Stale);
    rules.run_for(Duration::from_millis(300));
    rules.owners.judge(|node, request| {
        assert!(node != 2 || !matches!(request, ReplicaRequest::Write { .. }), "{request:?}");
        match request {
            ReplicaRequest::Fence { .. } if node == 2 => Fate::Hangs,
            _ => Fate::Carry,
        }
    });
    rules.write(0, 6).unwrap();
    rules.run_for(Duration::from_millis(300));
    assert_eq!(rules.leg(2), LegState::Stale);
    rules.owners.judge_no_more();
    rules.await_in_sync();
    rules.assert_copies_are_the_same();
}

/// A take-over asks for what is listed, so that what is long complete should not be.
#[test]
fn when_a_volume_falls_idle_its_copies_learn_that_all_is_complete() {
    let rules = Rules::new(1);
    rules.owners.judge(|node, request| match request {
        // Longer than the guardian waits between two looks.
        ReplicaRequest::Write { .. } if node == 1 => Fate::Late(Duration::from_millis(400)),
        _ => Fate::Carry,
    });
    rules.write(0, 5).unwrap();
    rules.run_for(Duration::from_secs(1));
    let (volume, epoch) = (rules.owner().volume(), rules.owner().epoch());
    for index in 0..3 {
        let replica = rules.owners.replica(index).expect("it is up");
        let listed = rules.guests.block_on(async move {
            let fence = ReplicaRequest::Fence { volume, epoch, settles: true, heeds: Heeded::All };
            let Ok((ReplicaResponse::Gathered(copies, _), _)) = replica.serve(fence, None).await else {
                panic!("the epoch is the present one");
            };
            copies.iter().map(|copy| copy.listed.len()).sum::<usize>()
        });
        assert_eq!(listed, Ok(0), "node {index}");
    }
}
