//! Which node serves a volume, and whose client may write to it, on nodes of a simulated world.

use std::cell::Cell;

use spandrel_cluster::VolumeSettings;
use spandrel_volume::{BlockDevice, DeviceErrorKind, Exports};

use super::tests::{await_health, index_of, on, open_at, serving, with_volume};
use super::*;
use crate::history::{BLOCK_SECTORS, content};

const VOLUME_BYTES: u64 = 2 * SLAB_BYTES;

/// Has a client write to the only volume at a node again and again. How many writes were answered, and how many failed.
fn write_at(nodes: &NodesWorld, index: usize) -> (Rc<Cell<u64>>, Rc<Cell<u64>>) {
    let device = open_at(nodes, index);
    let (written, failed) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let counts = (Rc::clone(&written), Rc::clone(&failed));
    let platform = nodes.process(index).expect("up").platform();
    nodes.process(index).expect("up").spawn(async move {
        loop {
            let outcome = device.write(0, content(platform.buffers(), written.get(), BLOCK_SECTORS)).await;
            failed.set(failed.get() + u64::from(outcome.is_err()));
            written.set(written.get() + 1);
            platform.sleep(Duration::from_millis(1)).await;
        }
    });
    counts
}

#[test]
fn one_node_writes_at_a_time() {
    let nodes = NodesWorld::new(2, 3);
    nodes.create_volume(0, "v", VOLUME_BYTES, 3).expect("there is room");
    let first = open_at(&nodes, 0);
    let second = open_at(&nodes, 1);
    assert!(!first.limits().read_only);
    assert!(second.limits().read_only, "somebody else writes");
    let refused = on(&nodes, 1, async move |_, platform| {
        second.write(0, content(platform.buffers(), 1, BLOCK_SECTORS)).await.expect_err("it may only read")
    });
    assert_eq!(refused.kind, DeviceErrorKind::ReadOnly);
    drop(first);
    let end = nodes.run_until(|| {
        let owned = ownerships(&nodes);
        owned.values().flatten().all(|volume| volume.writer.is_none())
    });
    assert_eq!(end, RunEnd::ConditionMet, "the right to write comes back");
    let third = open_at(&nodes, 2);
    assert!(!third.limits().read_only);
}

#[test]
fn a_volume_comes_to_the_node_whose_client_writes() {
    let (nodes, _, owner) = with_volume(13);
    let client = (owner + 1) % 3;
    let looked = open_at(&nodes, client);
    drop(looked);
    assert_eq!(nodes.world.run_for(Duration::from_secs(8)), RunEnd::TimeOver);
    assert_eq!(serving(&nodes), Some(owner), "who only looks in moves nothing");
    let (written, failed) = write_at(&nodes, client);
    let moved = || serving(&nodes) == Some(client);
    assert_eq!(nodes.world.run_until_within(PATIENCE, moved), RunEnd::ConditionMet);
    let before = written.get();
    let goes_on = || written.get() > before + 100;
    assert_eq!(nodes.world.run_until_within(PATIENCE, goes_on), RunEnd::ConditionMet);
    assert_eq!(failed.get(), 0, "no write fails");
}

#[test]
fn a_volume_is_handed_over_in_less_time_than_promises_last() {
    let (nodes, created, owner) = with_volume(14);
    assert_eq!(nodes.world.run_for(Duration::from_secs(2)), RunEnd::TimeOver);
    for to in [(owner + 1) % 3, (owner + 2) % 3, owner] {
        let from = serving(&nodes).expect("it is served");
        let began = nodes.world.now();
        let volume = created.volume;
        let moved = on(&nodes, from, async move |node, _| node.hand_over(volume, node_id(to)).await);
        assert_eq!(moved, Ok(()));
        assert_eq!(nodes.run_until(|| serving(&nodes) == Some(to)), RunEnd::ConditionMet);
        let took = nodes.world.now() - began;
        assert!(took < Duration::from_millis(100), "{took:?}, though promises last 1.5 s");
    }
    let refused = on(&nodes, (owner + 1) % 3, async move |node, _| {
        node.hand_over(created.volume, node_id(owner)).await.expect_err("it is not its owner")
    });
    assert_eq!(refused.code, "NOT_OWNER");
}

/// While it is pinned it stays where it is for longer than it takes to follow a client.
#[test]
fn a_pinned_volume_follows_nobody() {
    for seed in 50..54 {
        let (nodes, created, owner) = with_volume(seed);
        nodes.set_volume(created.volume, VolumeSettings { is_pinned: true, ..VolumeSettings::default() });
        assert_eq!(nodes.run_until(|| !nodes.is_deciding()), RunEnd::ConditionMet, "seed {seed}");
        let client = (owner + 1) % 3;
        let (_, failed) = write_at(&nodes, client);
        assert_eq!(nodes.world.run_for(Duration::from_secs(30)), RunEnd::TimeOver);
        assert_eq!(serving(&nodes), Some(owner), "seed {seed}");
        // Moving it is something else.
        let (volume, third) = (created.volume, (owner + 2) % 3);
        let moved = on(&nodes, owner, async move |node, _| node.hand_over(volume, node_id(third)).await);
        assert_eq!(moved, Ok(()), "seed {seed}");
        assert_eq!(nodes.run_until(|| serving(&nodes) == Some(third)), RunEnd::ConditionMet, "seed {seed}");
        nodes.set_volume(created.volume, VolumeSettings::default());
        nodes.stop(third, true);
        let follows = nodes.run_until(|| serving(&nodes) == Some(client));
        assert_eq!((follows, failed.get()), (RunEnd::ConditionMet, 0), "seed {seed}");
    }
}

/// With a client that writes at the node itself, so that the volume would follow it there, and with a start anew.
#[test]
fn a_node_in_maintenance_owns_nothing_that_others_can_own() {
    for seed in 30..36 {
        let (nodes, created, drained) = with_volume(seed);
        let (written, failed) = write_at(&nodes, drained);
        let goes_on = |more| {
            let before = written.get();
            let end = nodes.world.run_until_within(PATIENCE, || written.get() >= before + more);
            assert_eq!(end, RunEnd::ConditionMet, "seed {seed}");
        };
        goes_on(100);
        nodes.set_maintenance(drained, true);
        let began = nodes.world.now();
        let is_elsewhere = || serving(&nodes).is_some_and(|index| index != drained);
        assert_eq!(nodes.run_until(is_elsewhere), RunEnd::ConditionMet, "seed {seed}");
        let took = nodes.world.now() - began;
        assert!(took < Duration::from_secs(1), "seed {seed}: {took:?} is no hand-over");
        // Longer than a volume takes to follow its client.
        for _ in 0..100 {
            goes_on(100);
            assert!(ownerships(&nodes).get(&drained).is_none_or(|owned| owned.is_empty()), "seed {seed}");
        }
        assert_eq!(failed.get(), 0, "seed {seed}");
        let owner = serving(&nodes).expect("it is served");
        let volume = created.volume;
        let refused = on(&nodes, owner, async move |node, _| node.hand_over(volume, node_id(drained)).await);
        assert_eq!(refused.expect_err("it takes none").code, "NODE_IN_MAINTENANCE", "seed {seed}");

        nodes.stop(drained, true);
        nodes.start(drained);
        assert_eq!(nodes.run_until(|| nodes.all_see_all()), RunEnd::ConditionMet, "seed {seed}");
        // It holds copies, and others own nothing that it would not have to share with the third node.
        nodes.stop(owner, true);
        let third = 3 - drained - owner;
        assert_eq!(nodes.run_until(|| serving(&nodes) == Some(third)), RunEnd::ConditionMet, "seed {seed}");

        nodes.set_maintenance(drained, false);
        nodes.start(owner);
        await_health(&nodes, seed);
        let back = on(&nodes, third, async move |node, _| node.hand_over(volume, node_id(drained)).await);
        assert_eq!(back, Ok(()), "seed {seed}");
        assert_eq!(nodes.run_until(|| serving(&nodes) == Some(drained)), RunEnd::ConditionMet, "seed {seed}");
    }
}

#[test]
fn a_node_in_maintenance_serves_what_nobody_else_can_until_somebody_can() {
    for seed in 40..46 {
        let nodes = NodesWorld::new(seed, 2);
        let created = nodes.create_volume(0, "v", VOLUME_BYTES, 2).expect("there is room");
        let drained = index_of(created.owner);
        let other = 1 - drained;
        nodes.set_maintenance(drained, true);
        assert_eq!(nodes.run_until(|| serving(&nodes) == Some(other)), RunEnd::ConditionMet, "seed {seed}");
        nodes.stop(other, true);
        assert_eq!(nodes.run_until(|| serving(&nodes) == Some(drained)), RunEnd::ConditionMet, "seed {seed}");
        let (written, failed) = write_at(&nodes, drained);
        nodes.start(other);
        // Only when the other one has everything in sync again is it a better owner.
        let is_back = || serving(&nodes) == Some(other) && written.get() > 100;
        assert_eq!(nodes.run_until(is_back), RunEnd::ConditionMet, "seed {seed}");
        assert_eq!(failed.get(), 0, "seed {seed}");
    }
}

#[test]
fn a_right_to_write_that_is_given_back_while_nobody_owns_the_volume_is_free() {
    let (nodes, _, owner) = with_volume(12);
    let (client, other) = ((owner + 1) % 3, (owner + 2) % 3);
    let device = open_at(&nodes, client);
    assert!(!device.limits().read_only);
    nodes.stop(owner, true);
    assert_eq!(nodes.world.run_for(Duration::from_millis(100)), RunEnd::TimeOver);
    drop(device);
    let writable = Rc::new(Cell::new(false));
    let (node, platform) = (nodes.node(other).expect("up"), nodes.process(other).expect("up").platform());
    let found = Rc::clone(&writable);
    nodes.process(other).expect("up").spawn(async move {
        while !found.get() {
            let device = node.exports().open("v").await.expect("it is there");
            found.set(!device.limits().read_only);
            platform.sleep(Duration::from_millis(100)).await;
        }
    });
    let end = nodes.world.run_until_within(PATIENCE, || writable.get());
    assert_eq!(end, RunEnd::ConditionMet, "the node that gave it back lives, and cannot keep it");
}

#[test]
fn a_right_to_write_that_is_given_back_while_the_state_is_away_is_waited_for() {
    let (nodes, _, owner) = with_volume(15);
    let client = (owner + 1) % 3;
    let device = open_at(&nodes, client);
    assert!(!device.limits().read_only);
    nodes.state.set_outage(true);
    drop(device);
    assert_eq!(nodes.world.run_for(Duration::from_millis(100)), RunEnd::TimeOver);
    let opened = Rc::new(Cell::new(None));
    let (node, found) = (nodes.node(owner).expect("up"), Rc::clone(&opened));
    nodes.process(owner).expect("up").spawn(async move {
        let device = node.exports().open("v").await.expect("it is there");
        found.set(Some(device.limits().read_only));
    });
    // Longer than a client waits for another one that keeps it.
    assert_eq!(nodes.world.run_for(Duration::from_secs(3)), RunEnd::TimeOver);
    assert_eq!(opened.get(), None, "nobody has it, and nobody can be given it now");
    nodes.state.set_outage(false);
    let end = nodes.world.run_until_within(PATIENCE, || opened.get().is_some());
    assert_eq!((end, opened.get()), (RunEnd::ConditionMet, Some(false)));
}
