use spandrel_volume::{LegState, OwnerError, Phase};

use super::*;
use crate::history::{BLOCK_SECTORS, content, value_of};

/// A world that the first node's owner serves, with all copies in sync.
fn served(seed: u64) -> OwnersWorld {
    let owners = OwnersWorld::new(seed, 3);
    owners.take(0);
    let end = owners.world.run_until(|| {
        owners.owner().is_some_and(|(_, owner)| {
            owner.phase() == Phase::Serving && owner.legs().values().all(|leg| leg.state == LegState::InSync)
        })
    });
    assert_eq!(end, RunEnd::ConditionMet);
    owners
}

#[test]
fn a_volume_serves_and_its_copies_are_the_same() {
    const BLOCKS: [u64; 4] = [0, 1, 1023, 1024];
    let owners = served(1);
    let (_, owner) = owners.owner().unwrap();
    let process = owners.process(0).unwrap();
    let platform = process.platform();
    let seen = process.block_on(async move {
        let mut seen = Vec::new();
        for block in BLOCKS {
            let data = content(platform.buffers(), block + 5, BLOCK_SECTORS);
            owner.write(block * 4096, data).await.expect("it serves");
        }
        for block in BLOCKS {
            let parts = owner.read(block * 4096, 4096).await.expect("it serves");
            seen.push(value_of(&parts[0]));
        }
        for slab in 0..SLAB_COUNT {
            let report = owner.scrub_slab(SlabIndex(slab), true).await.expect("it serves");
            assert_eq!((report.blocks_different, report.pieces_unchecked), (0, 0));
            assert!(report.blocks_checked >= 3 * 1024);
        }
        seen
    });
    assert_eq!(seen.unwrap(), BLOCKS.map(|block| Ok(block + 5)));
}

#[test]
fn a_deposed_owner_answers_nothing() {
    let owners = served(7);
    let (_, old) = owners.owner().unwrap();
    owners.take(1);
    assert_eq!(owners.world.run_for(Duration::from_millis(100)), RunEnd::TimeOver);
    let process = owners.process(0).unwrap();
    let data = content(process.platform().buffers(), 5, BLOCK_SECTORS);
    let answer = process.block_on(async move { old.write(0, data).await }).unwrap();
    assert_eq!(answer, Err(OwnerError::Deposed));
    assert_eq!(owners.membership().stale, BTreeMap::new(), "a hand-over marks nobody");
}
