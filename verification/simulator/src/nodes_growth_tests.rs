//! Volumes that grow, on nodes of a simulated world, with a death at each moment of it.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use spandrel_cluster::VolumeMembership;
use spandrel_node::{VolumeGrown, VolumeGrowth};
use spandrel_platform::Platform;
use spandrel_platform_simulated::RunEnd;
use spandrel_shared::{Error, GrowthId, VolumeId};
use spandrel_volume::{BlockDevice, DeviceErrorKind, Exports};

use crate::history::{BLOCK_SECTORS, content, value_of};
use crate::nodes::tests::{on, serving};
use crate::nodes::{NodesWorld, SLAB_BYTES, node_id};

const VOLUME_BYTES: u64 = 2 * SLAB_BYTES;

/// A world with a volume in three copies, and who serves it.
fn with_volume(seed: u64, count: usize) -> (NodesWorld, VolumeId, usize) {
    let nodes = NodesWorld::new(seed, count);
    let created = nodes.create_volume(0, "v", VOLUME_BYTES, 3).expect("there is room");
    assert_eq!(nodes.run_until(|| serving(&nodes).is_some()), RunEnd::ConditionMet);
    let owner = serving(&nodes).expect("somebody serves it");
    (nodes, created.volume, owner)
}

fn membership(nodes: &NodesWorld, volume: VolumeId) -> VolumeMembership {
    let snapshot = nodes.state.inspect(&VolumeMembership::selections(volume));
    VolumeMembership::decode(volume, &snapshot).expect("it can be read").expect("it is there")
}

/// How many copies of the volume are on all drives.
fn copies(nodes: &NodesWorld, volume: VolumeId) -> usize {
    let held = |index| nodes.node(index).map_or(0, |node| node.replica().copies_of(volume).len());
    (0..nodes.count()).map(held).sum()
}

fn grow(nodes: &NodesWorld, index: usize, volume: VolumeId, size_bytes: u64) -> Result<VolumeGrown, Error> {
    on(nodes, index, async move |node, _| {
        node.grow_volume(&VolumeGrowth {
            volume,
            size_bytes,
            former_bytes: None,
            id: GrowthId::from_random(0, size_bytes),
            dry_run: false,
        })
        .await
    })
}

/// All copies that the state names are there and in sync, and no others.
fn is_whole(nodes: &NodesWorld, volume: VolumeId) -> bool {
    let seen = membership(nodes, volume);
    let named: usize = seen.sets.iter().map(|set| set.members.len()).sum();
    let in_sync = |owned: &spandrel_node::OwnedVolumeReport| {
        owned.is_serving && owned.legs.iter().all(|leg| leg.state == "in-sync")
    };
    let serves = |index| nodes.node(index).is_some_and(|node| node.report().owned.iter().any(in_sync));
    seen.record.grows_to_bytes.is_none() && copies(nodes, volume) == named && (0..nodes.count()).any(serves)
}

fn await_whole(nodes: &NodesWorld, volume: VolumeId, what: &str) {
    let end = nodes.run_until(|| is_whole(nodes, volume));
    assert_eq!(end, RunEnd::ConditionMet, "{what}: {:#?}", membership(nodes, volume).record);
}

/// Writes the last block of the volume at a node, and reads it back.
fn use_last_block(nodes: &NodesWorld, index: usize, size_bytes: u64) {
    let read = on(nodes, index, async move |node, platform| {
        let device = node.exports().open("v").await.expect("it is there");
        assert_eq!(device.limits().size_bytes, size_bytes);
        let last = size_bytes - 4096;
        let before = device.read(last, 4096).await.expect("it serves");
        assert_eq!(value_of(&before[0]), Ok(0), "nothing was written there");
        device.write(last, content(platform.buffers(), 7, BLOCK_SECTORS)).await.expect("it serves");
        let behind = device.read(size_bytes, 4096).await.expect_err("there is nothing");
        assert_eq!(behind.kind, DeviceErrorKind::Invalid);
        device.read(last, 4096).await.expect("it serves")
    });
    assert_eq!(value_of(&read[0]), Ok(7));
}

#[test]
fn a_volume_grows_while_a_client_writes() {
    let (nodes, volume, owner) = with_volume(1, 3);
    let (written, failed) = (Rc::new(Cell::new(0_u64)), Rc::new(Cell::new(0_u64)));
    let counts = (Rc::clone(&written), Rc::clone(&failed));
    let process = nodes.process((owner + 1) % 3).expect("up");
    let (node, platform) = (nodes.node((owner + 1) % 3).expect("up"), process.platform());
    process.spawn(async move {
        let device = node.exports().open("v").await.expect("it is there");
        loop {
            let data = content(platform.buffers(), written.get() + 1, BLOCK_SECTORS);
            let outcome = device.write(0, data).await;
            failed.set(failed.get() + u64::from(outcome.is_err()));
            written.set(written.get() + 1);
            platform.sleep(Duration::from_millis(1)).await;
        }
    });
    assert_eq!(nodes.run_until(|| counts.0.get() > 10), RunEnd::ConditionMet);
    let began = nodes.world.now();
    let size_bytes = 4 * SLAB_BYTES + 4096;
    let grown = grow(&nodes, owner, volume, size_bytes).expect("there is room");
    assert!(nodes.world.now() - began < Duration::from_millis(500), "{:?}", nodes.world.now() - began);
    assert_eq!((grown.slabs, grown.copies.values().sum::<u64>()), (3, 9));
    let seen = membership(&nodes, volume);
    assert_eq!((seen.record.size_bytes, seen.sets.len(), seen.record.epoch.0), (size_bytes, 5, 2));
    let answered = counts.0.get();
    assert_eq!(nodes.run_until(|| counts.0.get() > answered + 10), RunEnd::ConditionMet);
    assert_eq!(counts.1.get(), 0, "no write failed");
    // The same again changes nothing.
    let again = grow(&nodes, owner, volume, size_bytes).expect("it has that size");
    assert_eq!((again, membership(&nodes, volume).record.epoch), (VolumeGrown::default(), seen.record.epoch));
    use_last_block(&nodes, (owner + 1) % 3, size_bytes);
    await_whole(&nodes, volume, "after all");
}

/// The ownership under which a volume has grown begins with what the state says: so that is told what was read until then.
#[test]
fn a_volume_that_grows_keeps_the_dates_of_its_slabs() {
    let (nodes, volume, owner) = with_volume(3, 3);
    nodes.change_settings(|settings| settings.scrub_period_s = 20);
    let scrub = |slabs: u32| {
        let owned = nodes.node(owner).expect("up").report().owned;
        owned.iter().find_map(|owned| owned.scrub).filter(|scrub| scrub.slabs == slabs)
    };
    let is_one_read = || scrub(2).is_some_and(|scrub| scrub.slabs_never_read == 1);
    assert_eq!(nodes.run_until(is_one_read), RunEnd::ConditionMet);
    grow(&nodes, owner, volume, 3 * SLAB_BYTES).expect("there is room");
    assert_eq!(nodes.run_until(|| scrub(3).is_some()), RunEnd::ConditionMet);
    assert_eq!(
        scrub(3).expect("it is known").slabs_never_read,
        2,
        "the one that is not read yet, and the new one"
    );
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let (nodes, volume, owner) = with_volume(2, 3);
    let before = membership(&nodes, volume);
    for (size_bytes, code) in
        [(SLAB_BYTES, "SIZE_SMALLER"), (VOLUME_BYTES + 5, "SIZE_UNALIGNED"), (1 << 40, "POOL_FULL")]
    {
        assert_eq!(grow(&nodes, owner, volume, size_bytes).expect_err("it cannot be").code, code);
    }
    let elsewhere = grow(&nodes, (owner + 1) % 3, volume, 2 * VOLUME_BYTES);
    assert_eq!(elsewhere.expect_err("it is another's").code, "NOT_OWNER");
    let would = on(&nodes, owner, async move |node, _| {
        node.grow_volume(&VolumeGrowth {
            volume,
            size_bytes: 2 * VOLUME_BYTES,
            former_bytes: None,
            id: GrowthId::from_random(0, 0),
            dry_run: true,
        })
        .await
    });
    assert_eq!(would.expect("there is room").slabs, 2);
    let after = membership(&nodes, volume);
    assert_eq!((after.record, after.room), (before.record, before.room));
}

/// The owner loses its power at each moment of a growth: the next one finishes it or takes it back.
#[test]
fn an_owner_that_dies_while_a_volume_grows_leaves_nothing_half_done() {
    let (mut finished, mut taken_back, mut resumed) = (0, 0, 0);
    for step in 0..48 {
        let (nodes, volume, owner) = with_volume(100 + step, 4);
        let node = nodes.node(owner).expect("up");
        let growth = VolumeGrowth {
            volume,
            size_bytes: 2 * VOLUME_BYTES,
            former_bytes: None,
            id: GrowthId::from_random(0, 0),
            dry_run: false,
        };
        nodes.process(owner).expect("up").spawn(async move { drop(node.grow_volume(&growth).await) });
        assert_eq!(nodes.world.run_for(step as u32 * Duration::from_micros(400)), RunEnd::TimeOver);
        resumed += u32::from(membership(&nodes, volume).record.grows_to_bytes.is_some());
        nodes.stop(owner, true);
        let ended = || {
            let seen = membership(&nodes, volume).record;
            seen.grows_to_bytes.is_none() && serving(&nodes).is_some_and(|now| now != owner)
        };
        assert_eq!(nodes.run_until(ended), RunEnd::ConditionMet, "step {step}");
        nodes.start(owner);
        await_whole(&nodes, volume, &format!("step {step}"));
        match membership(&nodes, volume).record.size_bytes {
            VOLUME_BYTES => taken_back += 1,
            _ => finished += 1,
        }
        let now = serving(&nodes).expect("it is served");
        grow(&nodes, now, volume, 2 * VOLUME_BYTES).expect("there is room");
        use_last_block(&nodes, now, 2 * VOLUME_BYTES);
        await_whole(&nodes, volume, &format!("step {step}, in the end"));
    }
    assert!(finished > 0 && taken_back > 0 && resumed > 0, "{finished} {taken_back} {resumed}");
}

/// The operator has moved the volume to a node: growing makes it follow nobody.
#[test]
fn a_volume_that_was_moved_stays_where_it_is_when_it_grows() {
    let (nodes, volume, owner) = with_volume(4, 3);
    let client = (owner + 1) % 3;
    on(&nodes, client, async |node, platform| {
        let device = node.exports().open("v").await.expect("it is there");
        platform.clone().spawn(async move {
            loop {
                let _ = device.write(0, content(platform.buffers(), 1, BLOCK_SECTORS)).await;
                platform.sleep(Duration::from_millis(50)).await;
            }
        });
    });
    on(&nodes, owner, async move |node, _| node.hand_over(volume, node_id(owner)).await)
        .expect("it is there");
    grow(&nodes, owner, volume, 2 * VOLUME_BYTES).expect("there is room");
    assert_eq!(nodes.world.run_for(Duration::from_secs(20)), RunEnd::TimeOver);
    assert_eq!(serving(&nodes), Some(owner));
}

/// Two operators add to the same size at the same time: one of them is told, and nothing is added that nobody knows of. One
/// who asks again since the answer was lost is not.
#[test]
fn what_is_added_is_added_to_the_size_from_which_it_was_reckoned() {
    let (nodes, volume, owner) = with_volume(4, 3);
    let add = |operator| {
        let growth = added(volume, operator);
        on(&nodes, owner, async move |node, _| node.grow_volume(&growth).await)
    };
    add(1).expect("there is room");
    assert_eq!(add(2).expect_err("it has grown since").code, "SIZE_CHANGED");
    assert_eq!(add(1).expect("it is as large as was asked for"), VolumeGrown::default());
}

/// One who is told in the midst of another's growth that the ownership has ended, and asks again, has not been given
/// what the other one asked for.
#[test]
fn of_two_who_add_at_once_and_ask_until_they_are_answered_one_gets_it() {
    for apart_us in (0..2000).step_by(40) {
        let (nodes, volume, owner) = with_volume(apart_us, 3);
        let outcomes = on(&nodes, owner, async move |node, platform| {
            let ask = async |operator| loop {
                match node.grow_volume(&added(volume, operator)).await {
                    Err(error) if error.code == "NOT_OWNER" => platform.sleep(Duration::from_millis(1)).await,
                    outcome => return outcome.map_err(|error| error.code),
                }
            };
            let later = async {
                platform.sleep(Duration::from_micros(apart_us)).await;
                ask(2).await
            };
            futures_util::future::join(ask(1), later).await
        });
        let (one, other) = &outcomes;
        let got = [one, other].into_iter().filter(|outcome| outcome.is_ok()).count();
        let told = [one, other].into_iter().filter(|outcome| **outcome == Err("SIZE_CHANGED".into())).count();
        assert_eq!((got, told), (1, 1), "{apart_us} us apart: {outcomes:?}");
    }
}

/// What an operator asks for who adds a slab to the size that a volume has at first.
fn added(volume: VolumeId, operator: u64) -> VolumeGrowth {
    VolumeGrowth {
        volume,
        size_bytes: VOLUME_BYTES + SLAB_BYTES,
        former_bytes: Some(VOLUME_BYTES),
        id: GrowthId::from_random(0, operator),
        dry_run: false,
    }
}
