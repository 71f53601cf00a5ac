//! Bits rot on a drive of a real cluster: the offline reader names each damaged block, users read the
//! right content all the same, and a scrub heals everything.

use std::os::unix::fs::FileExt;
use std::path::Path;

use serde_json::Value;
use spandrel_process_cluster::{
    Cluster, ClusterOptions, CommandOutput, HistoryClient, LoadOptions, Next, Program, Random,
};

const BLOCKS_DAMAGED: usize = 100;

fn inspect(cluster: &Cluster, drive: &Path, options: &[&str]) -> CommandOutput {
    let path = drive.to_str().expect("temporary directories have plain names");
    cluster.run(&[&["drive", "inspect", path], options].concat())
}

/// Byte offsets in the order of their places.
fn offsets(entries: &Value) -> Vec<u64> {
    let entries = entries.as_array().into_iter().flatten();
    let mut offsets: Vec<u64> = entries.filter_map(|entry| entry["offset_bytes"].as_u64()).collect();
    offsets.sort_unstable();
    offsets
}

/// Flips a bit in each of so many random blocks of data, and returns where they stand.
fn damage(cluster: &Cluster, drive: &Path, random: &Random) -> std::io::Result<Vec<u64>> {
    let listed = inspect(cluster, drive, &["--blocks", "--output", "json"]);
    assert_eq!(listed.status, Some(0), "{}", listed.errors);
    let mut live = offsets(&listed.json()["blocks"]);
    let mut chosen = Vec::new();
    while chosen.len() < BLOCKS_DAMAGED {
        chosen.push(live.swap_remove(random.below(live.len() as u64) as usize));
    }
    chosen.sort_unstable();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(drive)?;
    for offset in &chosen {
        let place = offset + random.below(4096);
        let mut byte = [0];
        file.read_exact_at(&mut byte, place)?;
        file.write_all_at(&[byte[0] ^ 1 << random.below(8)], place)?;
    }
    Ok(chosen)
}

#[test]
fn rotten_blocks_are_named_read_from_other_copies_and_healed() {
    let random = Random::new(3);
    let arguments =
        ["--nodes", "3", "--drives", "1", "--drive-size", "256M", "--slab-size", "4M", "--sparse"];
    let options =
        ClusterOptions { arguments: arguments.map(str::to_owned).to_vec(), drive_prefix: String::new() };
    let mut cluster = Cluster::start(Program::with_test_faults(), options);
    cluster.must_run(&["volume", "create", "v", "--size", "16M", "--copies", "3"]);
    let mut client = HistoryClient::new(cluster.nbd_address("n1"), "v", 16 << 20, 3);
    let end = client
        .load(LoadOptions::default(), |answered| if answered < 3000 { Next::GoOn } else { Next::End })
        .unwrap();
    assert_eq!((end.broken, end.failures, end.violations), (None, vec![], vec![]));

    let drive = cluster.drive_file("n2", "d1");
    let in_use = inspect(&cluster, &drive, &[]);
    assert_eq!(in_use.status, Some(1));
    assert!(in_use.errors.contains("DRIVE_IN_USE"), "{}", in_use.errors);

    cluster.stop();
    let damaged = damage(&cluster, &drive, &random).unwrap();
    let inspected = inspect(&cluster, &drive, &["--output", "json"]);
    assert_eq!(inspected.status, Some(2), "{}", inspected.errors);
    assert_eq!(offsets(&inspected.json()["damage"]), damaged);

    cluster.restart();
    // Read at the node whose copy is damaged.
    client.use_address(cluster.nbd_address("n2"));
    assert_eq!(client.check().unwrap(), []);
    cluster.must_run(&["volume", "verify", "v", "--heal"]);
    cluster.must_run(&["volume", "verify", "v"]);
    assert_eq!(client.check().unwrap(), []);

    cluster.stop();
    let healed = inspect(&cluster, &drive, &[]);
    assert_eq!(healed.status, Some(0), "{}", healed.output);
}
