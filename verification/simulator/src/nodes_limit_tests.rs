//! Limits of volumes, for the clients of nodes of a simulated world.

use std::cell::Cell;

use spandrel_cluster::VolumeSettings;
use spandrel_shared::IopsLimit;
use spandrel_volume::{BlockDevice, Exports};

use super::tests::{await_health, serving, with_volume};
use super::*;
use crate::history::{BLOCK_SECTORS, SECTOR_BYTES, content};

/// A world with a volume in three copies that has a limit, and the node that owns it.
fn limited_volume(seed: u64, iops_max: u64) -> (NodesWorld, VolumeId, usize) {
    let (nodes, created, owner) = with_volume(seed);
    let limit = IopsLimit { iops_max, normalized_bytes: IopsLimit::NORMALIZED_BYTES_DEFAULT };
    nodes.set_volume(created.volume, VolumeSettings { iops_limit: Some(limit), is_pinned: false });
    assert_eq!(nodes.run_until(|| !nodes.is_deciding()), RunEnd::ConditionMet, "seed {seed}");
    (nodes, created.volume, owner)
}

/// A limit holds within a hundredth for clients that always want more, also while the volume comes to their node; when it ends, all
/// that waits goes on at once.
#[test]
fn a_limit_holds_for_all_clients_of_a_node_together() {
    const IOPS_MAX: u64 = 500;
    let (nodes, volume, owner) = limited_volume(55, IOPS_MAX);
    let client = (owner + 1) % 3;
    let answered = Rc::new(Cell::new(0_u64));
    for worker in 0..8_u64 {
        let (node, platform) =
            (nodes.node(client).expect("up"), nodes.process(client).expect("up").platform());
        let answered = Rc::clone(&answered);
        nodes.process(client).expect("up").spawn(async move {
            let device = node.exports().open("v").await.expect("it is there");
            loop {
                let data = content(platform.buffers(), answered.get(), BLOCK_SECTORS);
                device.write(worker * 4096, data).await.expect("it is served");
                answered.set(answered.get() + 1);
            }
        });
    }
    // All have it open by then.
    assert_eq!(nodes.world.run_for(Duration::from_secs(2)), RunEnd::TimeOver);
    let mut former = answered.get();
    let mut within = |seconds: u64| {
        assert_eq!(nodes.world.run_for(Duration::from_secs(seconds)), RunEnd::TimeOver);
        let now = answered.get();
        now - std::mem::replace(&mut former, now)
    };
    for second in 0..4 {
        let count = within(1);
        assert!(count.abs_diff(IOPS_MAX) <= IOPS_MAX / 100, "second {second}: {count}");
    }
    // It follows its client meanwhile: what was missed then comes back for 20 ms of it at most.
    let before = within(10);
    assert!((9 * IOPS_MAX..=10 * IOPS_MAX + IOPS_MAX / 50).contains(&before), "{before}");
    assert_eq!(serving(&nodes), Some(client));
    nodes.set_volume(volume, VolumeSettings::default());
    assert_eq!(nodes.world.run_for(Duration::from_millis(200)), RunEnd::TimeOver);
    within(0);
    let free = within(1);
    assert!(free > 4 * IOPS_MAX, "{free}");
}

/// The right to write ends with each I/O, and its next one waits all the same.
#[test]
fn a_limit_holds_for_a_client_that_comes_anew_with_each_write() {
    const IOPS_MAX: u64 = 20;
    let (nodes, _, owner) = limited_volume(57, IOPS_MAX);
    let answered = Rc::new(Cell::new(0_u64));
    let (node, platform) = (nodes.node(owner).expect("up"), nodes.process(owner).expect("up").platform());
    let count = Rc::clone(&answered);
    nodes.process(owner).expect("up").spawn(async move {
        loop {
            let device = node.exports().open("v").await.expect("it is there");
            // Two at once: the second one has to wait, and its place outlives the device.
            let writes = [0, 4096]
                .map(|offset| device.write(offset, content(platform.buffers(), count.get(), BLOCK_SECTORS)));
            for outcome in join_all(writes).await {
                count.set(count.get() + u64::from(outcome.is_ok()));
            }
        }
    });
    assert_eq!(nodes.world.run_for(Duration::from_secs(2)), RunEnd::TimeOver);
    let before = answered.get();
    assert_eq!(nodes.world.run_for(Duration::from_secs(10)), RunEnd::TimeOver);
    let done = answered.get() - before;
    assert!((5 * IOPS_MAX..=10 * IOPS_MAX + 2).contains(&done), "{done}");
}

/// What a limit makes a request wait is the user's will: it is no pause of the storage, and no latency of it.
#[test]
fn the_wait_for_a_limit_is_no_pause() {
    const IOPS_MAX: u64 = 20;
    // Each counts as 32 I/Os, and so comes 1.6 s behind the one before.
    const WRITE_SECTORS: u64 = 32 * IopsLimit::NORMALIZED_BYTES_DEFAULT as u64 / SECTOR_BYTES as u64;
    let (nodes, _, owner) = limited_volume(58, IOPS_MAX);
    // That a new volume is not served at once is a pause of its own.
    await_health(&nodes, 58);
    assert_eq!(nodes.world.run_for(Duration::from_secs(3)), RunEnd::TimeOver);
    let answered = Rc::new(Cell::new(0_u64));
    // One waits for its place, the other one for the blocks that both write.
    for _ in 0..2 {
        let (node, platform) = (nodes.node(owner).expect("up"), nodes.process(owner).expect("up").platform());
        let count = Rc::clone(&answered);
        nodes.process(owner).expect("up").spawn(async move {
            let device = node.exports().open("v").await.expect("it is there");
            loop {
                let data = content(platform.buffers(), count.get(), WRITE_SECTORS);
                device.write(0, data).await.expect("it is served");
                count.set(count.get() + 1);
            }
        });
    }
    let written = nodes.world.run_until_within(PATIENCE, || answered.get() == 6);
    assert_eq!(written, RunEnd::ConditionMet);
    let load = nodes.node(owner).expect("up").load();
    let volume = load.volumes.first().expect("it is used here");
    let pause_ms = volume.longest_pause.map_or(0, |pause| pause.length_ms);
    assert!(pause_ms <= 500, "{volume:#?}");
    let writes = volume.frontend.writes;
    // They have waited for eight seconds each.
    assert!(writes.done >= 6 && writes.in_flight_us < 2_000_000, "{volume:#?}");
}
