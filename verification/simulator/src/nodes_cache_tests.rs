//! Nodes whose capacity drives are bound to cache drives.

use spandrel_node::{CacheReport, DriveReport, NodeReport};
use spandrel_shared::CacheMode;
use spandrel_volume::{BlockDevice, Exports};

use super::*;
use crate::history::{BLOCK_SECTORS, content, value_of};

const VOLUME_BYTES: u64 = 2 * SLAB_BYTES;

/// Blocks that a test writes, each with a value of its own.
const BLOCKS: u64 = 64;

fn cached(seed: u64, drives: u8, caches: u8) -> NodesWorld {
    let simple = NodesConfig::simple(seed, 3);
    let config = NodesConfig { drives: vec![drives; 3], caches, leaves_unfit_drives_out: true, ..simple };
    let nodes = NodesWorld::with_config(seed, &config);
    nodes.create_volume(0, "v", VOLUME_BYTES, 3).expect("there is room");
    nodes
}

fn report(nodes: &NodesWorld, index: usize) -> Option<NodeReport> {
    Some(nodes.node(index)?.report())
}

fn caches_of(nodes: &NodesWorld, index: usize) -> Vec<CacheReport> {
    let drives = report(nodes, index).map(|report| report.drives).unwrap_or_default();
    drives.iter().filter_map(|drive: &DriveReport| drive.cache).collect()
}

fn dirty(nodes: &NodesWorld) -> u64 {
    (0..nodes.count()).flat_map(|index| caches_of(nodes, index)).map(|cache| cache.blocks_dirty).sum()
}

/// Writes `value + n` to each block n.
fn write_all(nodes: &NodesWorld, index: usize, value: u64) {
    write_to(nodes, index, "v", value);
}

fn write_to(nodes: &NodesWorld, index: usize, volume: &str, value: u64) {
    let volume = volume.to_owned();
    let process = nodes.process(index).expect("started");
    let (node, platform) = (nodes.node(index).expect("up"), process.platform());
    let written = process.block_on(async move {
        let device = node.exports().open(&volume).await.expect("it is there");
        for block in 0..BLOCKS {
            let data = content(platform.buffers(), value + block, BLOCK_SECTORS);
            device.write(block * 4096, data).await.expect("it serves");
        }
    });
    written.expect("nothing stops the node");
}

fn read_all(nodes: &NodesWorld, index: usize) -> Vec<u64> {
    read_from(nodes, index, "v")
}

fn read_from(nodes: &NodesWorld, index: usize, volume: &str) -> Vec<u64> {
    let volume = volume.to_owned();
    let process = nodes.process(index).expect("started");
    let node = nodes.node(index).expect("up");
    let read = process.block_on(async move {
        let device = node.exports().open(&volume).await.expect("it is there");
        let mut values = Vec::new();
        for block in 0..BLOCKS {
            let parts = device.read(block * 4096, 4096).await.expect("it serves");
            let bytes: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
            values.push(value_of(&bytes).expect("it was written"));
        }
        values
    });
    read.expect("nothing stops the node")
}

fn values(value: u64) -> Vec<u64> {
    (value..value + BLOCKS).collect()
}

/// What keeps the copies from being in sync.
fn troubles(nodes: &NodesWorld) -> Vec<String> {
    let of_node = |index| match report(nodes, index) {
        None => vec![format!("node {index} is down: {:?}", nodes.refusal(index))],
        Some(report) => {
            let drives = report.drives.iter().filter_map(|drive| drive.failure.clone());
            let legs = report.owned.iter().flat_map(|owned| &owned.legs);
            drives.chain(legs.map(|leg| format!("{:?}: {}", leg.node, leg.state))).collect()
        }
    };
    (0..nodes.count()).flat_map(of_node).collect()
}

/// Waits until all copies are in sync.
fn await_health(nodes: &NodesWorld) {
    let is_healthy = || {
        let reports: Vec<_> = (0..nodes.count()).filter_map(|index| report(nodes, index)).collect();
        let mut serving = reports.iter().flat_map(|report| &report.owned).filter(|owned| owned.is_serving);
        reports.len() == nodes.count()
            && serving.clone().count() == 1
            && serving.all(|owned| owned.legs.iter().all(|leg| leg.state == "in-sync"))
    };
    assert_eq!(nodes.run_until(is_healthy), RunEnd::ConditionMet, "{:#?}", troubles(nodes));
}

#[test]
fn drives_share_the_cache_drives_of_their_node_and_take_writes_there() {
    let nodes = cached(1, 4, 2);
    for index in 0..3 {
        let report = report(&nodes, index).unwrap();
        let bound: Vec<usize> = report.caches.iter().map(|cache| cache.bound.len()).collect();
        assert_eq!(bound, [2, 2], "{:?}", report.caches);
        assert!(caches_of(&nodes, index).iter().all(|cache| cache.mode == CacheMode::WriteOnly));
    }
    write_all(&nodes, 0, 100);
    assert_eq!(dirty(&nodes), 3 * BLOCKS);
    assert_eq!(read_all(&nodes, 0), values(100));
    nodes.change_settings(|settings| settings.cache_mode_ssd = CacheMode::Off);
    assert_eq!(nodes.run_until(|| dirty(&nodes) == 0), RunEnd::ConditionMet, "what is cached is moved");
    assert_eq!(read_all(&nodes, 0), values(100));
    write_all(&nodes, 0, 300);
    assert_eq!(dirty(&nodes), 0);
    assert_eq!(read_all(&nodes, 0), values(300));
}

#[test]
fn a_cache_is_used_as_is_set_from_the_start() {
    let nodes = cached(8, 2, 1);
    nodes.change_settings(|settings| settings.cache_mode_ssd = CacheMode::ReadOnly);
    let is_set = |cache: &CacheReport| cache.mode == CacheMode::ReadOnly;
    assert_eq!(nodes.run_until(|| caches_of(&nodes, 1).iter().all(is_set)), RunEnd::ConditionMet);
    nodes.stop(1, true);
    nodes.start(1);
    assert_eq!(nodes.run_until(|| caches_of(&nodes, 1).len() == 2), RunEnd::ConditionMet);
    assert!(caches_of(&nodes, 1).iter().all(is_set), "{:?}", report(&nodes, 1));
}

#[test]
fn what_is_in_the_caches_survives_a_power_cut_of_all_servers() {
    let nodes = cached(2, 2, 1);
    write_all(&nodes, 0, 100);
    nodes.cut_power_of_all();
    (0..3).for_each(|index| nodes.start(index));
    await_health(&nodes);
    assert!(dirty(&nodes) > 0);
    assert_eq!(read_all(&nodes, 1), values(100));
}

/// Who the only cache drive of a node is.
fn cache_id(nodes: &NodesWorld, index: usize) -> DriveId {
    report(nodes, index).unwrap().caches[0].drive.expect("it could say")
}

fn remove_cache(nodes: &NodesWorld, drive: DriveId) {
    let state = ClusterState::new(nodes.state.client(u64::MAX, nodes.clients.platform()));
    let removed = nodes.clients.block_on(async move { remove_cache_drive(&state, drive).await });
    assert_eq!(removed, Ok(Ok(())));
}

/// Their copies are not used as long as the cache drive may come back, and are brought up to date when it was given up.
#[test]
fn without_its_cache_drive_a_node_waits_until_it_was_taken_out() {
    let nodes = cached(3, 2, 1);
    write_all(&nodes, 0, 100);
    let lost = cache_id(&nodes, 1);
    nodes.stop(1, true);
    nodes.caches(1)[0].pull_out();
    nodes.start(1);
    let waits = || {
        let drives = report(&nodes, 1).map(|report| report.drives).unwrap_or_default();
        drives.len() == 2 && drives.iter().all(|drive| drive.failure.is_some())
    };
    assert_eq!(nodes.run_until(waits), RunEnd::ConditionMet);
    write_all(&nodes, 0, 200);
    remove_cache(&nodes, lost);
    let works = || report(&nodes, 1).unwrap().drives.iter().all(|drive| drive.failure.is_none());
    assert_eq!(nodes.run_until(works), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    await_health(&nodes);
    assert!(caches_of(&nodes, 1).is_empty(), "they are bound to none");
    nodes.stop(0, true);
    assert_eq!(
        nodes.run_until(|| nodes.node(2).is_some_and(|node| !node.report().owned.is_empty())
            || nodes.node(1).is_some_and(|node| !node.report().owned.is_empty())),
        RunEnd::ConditionMet
    );
    assert_eq!(read_all(&nodes, 1), values(200));
}

/// Its journals and what is in its areas are those of another time.
#[test]
fn an_old_image_of_a_cache_drive_is_not_used() {
    let nodes = cached(4, 2, 1);
    write_all(&nodes, 0, 100);
    let old = nodes.caches(1)[0].snapshot();
    nodes.stop(1, true);
    nodes.start(1);
    await_health(&nodes);
    write_all(&nodes, 0, 200);
    nodes.stop(1, true);
    nodes.caches(1)[0].restore(old);
    nodes.start(1);
    let is_refused = || {
        let caches = report(&nodes, 1).map(|report| report.caches).unwrap_or_default();
        caches.iter().any(|cache| cache.failure.as_ref().is_some_and(|why| why.contains("old")))
    };
    assert_eq!(nodes.run_until(is_refused), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    assert!(report(&nodes, 1).unwrap().drives.iter().all(|drive| drive.failure.is_some()));
    assert_eq!(read_all(&nodes, 0), values(200));
}

#[test]
fn a_cache_drive_that_dies_is_done_without_once_it_was_taken_out() {
    let nodes = cached(5, 2, 2);
    write_all(&nodes, 0, 100);
    let before = report(&nodes, 1).unwrap();
    let dying = before.caches.iter().find(|cache| cache.location == nodes.caches(1)[0].name()).unwrap();
    nodes.caches(1)[0].die();
    write_all(&nodes, 0, 200);
    remove_cache(&nodes, dying.drive.unwrap());
    let is_bound_elsewhere = || {
        let caches = caches_of(&nodes, 1);
        caches.len() == 2 && caches.iter().all(|cache| Some(cache.drive) != dying.drive)
    };
    assert_eq!(nodes.run_until(is_bound_elsewhere), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    await_health(&nodes);
    assert_eq!(read_all(&nodes, 2), values(200));
}

#[test]
fn a_cache_drive_that_is_taken_out_is_emptied_first() {
    let nodes = cached(6, 2, 1);
    write_all(&nodes, 0, 100);
    let leaving = cache_id(&nodes, 1);
    let (node, process) = (nodes.node(1).unwrap(), nodes.process(1).unwrap());
    let released = process.block_on(async move { node.release_cache(leaving).await });
    assert_eq!(released, Ok(Ok(true)));
    remove_cache(&nodes, leaving);
    await_health(&nodes);
    assert!(caches_of(&nodes, 1).is_empty() && report(&nodes, 1).unwrap().caches.is_empty());
    assert_eq!(read_all(&nodes, 1), values(100));
    nodes.caches(1)[0].pull_out();
    nodes.stop(1, true);
    nodes.start(1);
    await_health(&nodes);
    assert_eq!(read_all(&nodes, 1), values(100));
}

#[test]
fn a_cache_drive_that_comes_later_takes_drives_over() {
    let nodes = cached(7, 2, 0);
    write_all(&nodes, 0, 100);
    let config = SimulatedDriveConfig { size_bytes: 8 << 20, ..SimulatedDriveConfig::default() };
    for name in ["late cache 1", "late cache 2"] {
        nodes.world.add_drive(name, config).attach_to(nodes.host(1));
        let (node, process) = (nodes.node(1).unwrap(), nodes.process(1).unwrap());
        let added = process.block_on(async move { node.add_drive(GivenDrive::cache(name.to_owned())).await });
        assert!(matches!(added, Ok(Ok(_))), "{added:?}");
        assert_eq!(nodes.run_until(|| caches_of(&nodes, 1).len() == 2), RunEnd::ConditionMet);
    }
    let is_even = || {
        let caches = report(&nodes, 1).unwrap().caches;
        caches.len() == 2 && caches.iter().all(|cache| cache.bound.len() == 1)
    };
    assert_eq!(nodes.run_until(is_even), RunEnd::ConditionMet, "{:?}", report(&nodes, 1));
    await_health(&nodes);
    write_all(&nodes, 0, 200);
    assert!(dirty(&nodes) > 0);
    assert_eq!(read_all(&nodes, 1), values(200));
}

#[path = "nodes_cache_leave_tests.rs"]
mod leave_tests;
