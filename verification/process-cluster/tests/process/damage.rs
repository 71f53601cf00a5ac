//! Bits rot on a drive of a real cluster: the offline reader names each damaged block, users read the
//! right content all the same, and a scrub heals everything.

use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;
use spandrel_process_cluster::{Cluster, ClusterOptions, HistoryClient, LoadOptions, Next, Program, Random};

const BLOCKS_DAMAGED: usize = 100;

/// Few crashes come between the writing of a root and the first group of the journal that knows of it.
const CRASHES_DURING_A_CHECKPOINT_MAX: u32 = 10;

/// Byte offsets in the order of their places.
fn offsets(entries: &Value) -> Vec<u64> {
    let entries = entries.as_array().into_iter().flatten();
    let mut offsets: Vec<u64> = entries.filter_map(|entry| entry["offset_bytes"].as_u64()).collect();
    offsets.sort_unstable();
    offsets
}

/// Flips a bit in each of so many random blocks of data, and returns where they stand, as an inspection names it.
fn damage(cluster: &Cluster, drive: &Path, random: &Random) -> std::io::Result<Vec<u64>> {
    let listed = cluster.inspect(drive, &["--blocks", "--output", "json"]);
    assert_eq!(listed.status, Some(0), "{}", listed.errors);
    let listed = listed.json();
    let mut live = offsets(&listed["blocks"]);
    let mut chosen = Vec::new();
    while chosen.len() < BLOCKS_DAMAGED {
        chosen.push(live.swap_remove(random.below(live.len() as u64) as usize));
    }
    chosen.sort_unstable();
    for offset in &chosen {
        flip(drive, &listed, offset + random.below(4096), random.below(8))?;
    }
    Ok(chosen)
}

/// Flips a bit of a byte that an inspection of a drive has named: it may stand on the cache drive.
fn flip(drive: &Path, inspected: &Value, offset: u64, bit: u64) -> std::io::Result<()> {
    let cache = &inspected["cache"];
    let within = cache["offset_bytes"].as_u64().and_then(|start| offset.checked_sub(start));
    let (path, place) = match within.zip(cache["chunk_bytes"].as_u64()) {
        None => (drive.to_owned(), offset),
        Some((within, chunk_bytes)) => {
            let chunk = &cache["chunk_offsets_bytes"][(within / chunk_bytes) as usize];
            let chunk = chunk.as_u64().expect("the offset lies in the area");
            (drive.with_file_name("c1.drive"), chunk + within % chunk_bytes)
        }
    };
    let file = std::fs::OpenOptions::new().read(true).write(true).open(path)?;
    let mut byte = [0];
    file.read_exact_at(&mut byte, place)?;
    file.write_all_at(&[byte[0] ^ 1 << bit], place)
}

/// Whether nodes have a cache drive.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caches {
    None,
    One,
}

/// A cluster of three nodes with a drive each and a volume in three copies, and a client that has
/// written to it.
fn written_cluster(caches: Caches, seed: u64) -> (Cluster, HistoryClient) {
    let mut arguments =
        vec!["--nodes", "3", "--drives", "1", "--drive-size", "96M", "--slab-size", "4M", "--sparse"];
    if caches == Caches::One {
        arguments.extend(["--cache-drives", "1", "--cache-drive-size", "64M"]);
    }
    let arguments = arguments.into_iter().map(str::to_owned).collect();
    let options = ClusterOptions { arguments, drive_prefix: String::new() };
    let cluster = Cluster::start(Program::with_test_faults(), options);
    cluster.must_run(&["volume", "create", "v", "--size", "16M", "--copies", "3"]);
    let mut client = HistoryClient::new(cluster.nbd_address("n1"), "v", 16 << 20, seed);
    write(&mut client);
    (cluster, client)
}

fn write(client: &mut HistoryClient) {
    let end = client
        .load(LoadOptions::default(), |answered| if answered < 3000 { Next::GoOn } else { Next::End })
        .expect("a cluster that serves");
    assert_eq!((end.broken, end.failures, end.violations), (None, vec![], vec![]));
}

fn damage_found(status: &Value, drive: &str) -> u64 {
    let drives = status["drives"].as_array().into_iter().flatten();
    let mut named = drives.filter(|entry| entry["name"] == drive);
    named.next().and_then(|entry| entry["damage_found"].as_u64()).expect("the drive is listed")
}

#[test]
fn rotten_blocks_are_named_read_from_other_copies_and_healed() {
    rot_blocks(Caches::None);
}

#[test]
fn rotten_blocks_of_cached_drives_are_named_read_from_other_copies_and_healed() {
    rot_blocks(Caches::One);
}

fn rot_blocks(caches: Caches) {
    let random = Random::new(3);
    let (mut cluster, mut client) = written_cluster(caches, 3);
    let drive = cluster.drive_file("n2", "d1");
    let in_use = cluster.inspect(&drive, &[]);
    assert_eq!(in_use.status, Some(1));
    assert!(in_use.errors.contains("DRIVE_IN_USE"), "{}", in_use.errors);

    cluster.stop();
    let damaged = damage(&cluster, &drive, &random).expect("the files can be written");
    let inspected = cluster.inspect(&drive, &["--output", "json"]);
    assert_eq!(inspected.status, Some(2), "{}", inspected.errors);
    assert_eq!(offsets(&inspected.json()["damage"]), damaged);

    cluster.restart();
    // Read at the node whose copy is damaged.
    client.use_address(cluster.nbd_address("n2"));
    assert_eq!(client.check().expect("a cluster that serves"), []);
    assert_eq!(cluster.run(&["scrub"]).status, Some(0));
    cluster.must_run(&["volume", "verify", "v"]);
    assert_eq!(client.check().expect("a cluster that serves"), []);
    cluster.await_status("counted", |status| damage_found(status, "n2/d1") >= BLOCKS_DAMAGED as u64);

    cluster.stop();
    let healed = cluster.inspect(&drive, &[]);
    assert_eq!(healed.status, Some(0), "{}", healed.output);
}

/// The structures of a kind that are in use on a drive: where each stands, and how long it is. The journal's last
/// group is left out: if it is damaged, it looks as if the process had died before it was written.
fn structures(inspected: &Value, kind: &str) -> Vec<(u64, u64)> {
    let all = || inspected["structures"].as_array().into_iter().flatten();
    let number = |entry: &Value, key: &str| entry[key].as_u64().expect("a number");
    let last_group = all().filter_map(|entry| entry["sequence"].as_u64()).max();
    all()
        .filter(|entry| entry["kind"] == kind)
        .filter(|entry| last_group.is_none() || entry["sequence"].as_u64() != last_group)
        .map(|entry| (number(entry, "offset_bytes"), number(entry, "length_bytes")))
        .collect()
}

/// Kills all nodes in the middle of their work, and flips a bit in a structure of one kind on a drive of n2. A root of which no
/// group of the journal knows yet is taken for one that the crash has cut off, as it may be: then it is made whole again, and
/// the cluster goes on to another crash.
fn die_and_rot(cluster: &mut Cluster, client: &mut HistoryClient, drive: &Path, kind: &str, random: &Random) {
    for _ in 0..CRASHES_DURING_A_CHECKPOINT_MAX {
        // The maps are on the drive, and a journal behind them.
        cluster.must_run(&["node", "stop", "n2", "--force"]);
        cluster.must_run(&["node", "start", "n2"]);
        // The first write makes sure that the owner knows of the restart: no answer comes before the node has
        // taken part or been marked. The second one goes to all nodes.
        write(client);
        cluster.await_health();
        write(client);
        cluster.kill();
        let listed = cluster.inspect(drive, &["--blocks", "--output", "json"]);
        assert_eq!(listed.status, Some(0), "{kind}: {}", listed.errors);
        let listed = listed.json();
        let present = structures(&listed, kind);
        assert!(!present.is_empty(), "a drive in use has a {kind}: {listed}");
        let (offset, length) = present[random.below(present.len() as u64) as usize];
        let (byte, bit) = (offset + random.below(length), random.below(8));
        flip(drive, &listed, byte, bit).expect("the files can be written");
        let inspected = cluster.inspect(drive, &["--output", "json"]);
        let named = inspected.json()["damage"].as_array().cloned().unwrap_or_default();
        assert!(named.iter().any(|damage| damage["kind"] == kind), "{kind}: {named:?}");
        if kind != "root" || named.iter().any(|damage| damage["by_crash"] == false) {
            assert_eq!(inspected.status, Some(2), "{kind}: {inspected:?}");
            return;
        }
        assert_eq!(inspected.status, Some(0), "{kind}: {inspected:?}");
        flip(drive, &listed, byte, bit).expect("the files can be written");
        cluster.restart();
        client.use_address(cluster.nbd_address("n2"));
    }
    panic!("each of {CRASHES_DURING_A_CHECKPOINT_MAX} crashes came while a checkpoint was made");
}

/// A bit rots in one structure of each kind, on a drive whose node died in the middle of its work: what
/// users read is right all the same, and nothing of it remains.
#[test]
fn rotten_structures_are_named_and_healed() {
    rot_structures(Caches::None);
}

#[test]
fn rotten_structures_of_cached_drives_are_named_and_healed() {
    rot_structures(Caches::One);
}

fn rot_structures(caches: Caches) {
    let random = Random::new(4);
    let (mut cluster, mut client) = written_cluster(caches, 4);
    let drive = cluster.drive_file("n2", "d1");
    for (round, kind) in ["superblock", "root", "slab_root", "leaf", "journal_group"].iter().enumerate() {
        die_and_rot(&mut cluster, &mut client, &drive, kind, &random);

        cluster.restart();
        assert!(cluster.log().contains("were found damaged in"), "{kind}: the node says what it has found");
        client.use_address(cluster.nbd_address("n2"));
        assert_eq!(client.check().expect("a cluster that serves"), [], "{kind}");
        cluster.await_health();
        assert_eq!(cluster.run(&["scrub"]).status, Some(0), "{kind}");
        cluster.must_run(&["volume", "verify", "v"]);
        cluster.await_status("counted", |status| damage_found(status, "n2/d1") > round as u64);
        cluster.stop();
        let healed = cluster.inspect(&drive, &[]);
        assert_eq!(healed.status, Some(0), "{kind}: {}", healed.output);
        cluster.restart();
        assert_eq!(client.check().expect("a cluster that serves"), [], "{kind}");
    }
}
