//! Spandrel itself: a cluster of four nodes on this machine, and a volume with three copies, reached on the node that owns it.

use spandrel_platform_linux::Cores;

use crate::cell::Medium;
use crate::contender::{Contender, Known, Server, Setup, nbd, run};

pub(super) const SPANDREL: Known = Known {
    name: "spandrel",
    what: "4 nodes, 3 copies, checksums",
    needs: &[],
    start: |setup| start(setup, &[]),
};

/// What it takes where the nodes leave the other cores to whoever else runs there.
pub(super) const ON_ONE_CORE: Known = Known {
    name: "spandrel-one-core",
    what: "the same, all nodes on one core",
    needs: &[],
    start: |setup| {
        let cores =
            Cores::available().map_err(|error| format!("the cores of this machine are unknown: {error}"))?;
        start(setup, &["--cores", &cores.first().to_string()])
    },
};

const NODES: u64 = 4;
/// The room of one of them stays free: it is the pool's reserve, without which the owner may lack a copy of its own to read.
const DRIVES: u64 = 3;
const COPIES: u64 = 3;
const VOLUME: &str = "benchmark";

fn start(setup: &Setup, more: &[&str]) -> Result<Contender, String> {
    // Beside the reserve half as much again as lies there: a write needs a free place before the former one is given back.
    let drive_bytes = 3 * setup.size_bytes * COPIES / (2 * NODES * (DRIVES - 1));
    let directory = setup.folder.join("cluster");
    let command = || {
        let mut command = setup.mark.command(&setup.spandrel);
        command.arg("--dir").arg(&directory);
        command
    };
    let mut up = command();
    up.args(["up", "--nodes", &NODES.to_string(), "--drives", &DRIVES.to_string(), "--sparse"]);
    up.args(["--drive-size", &drive_bytes.to_string()]).args(more);
    if setup.medium == Medium::Memory {
        up.arg("--memory");
    }
    let mut server = Server::start(&mut up, &setup.folder, "spandrel")?;
    server.await_that("it serves", |server| server.said().lines().any(|line| line.starts_with("ready:")))?;
    let (size, copies) = (setup.size_bytes.to_string(), COPIES.to_string());
    run(command().args(["volume", "create", VOLUME, "--size", &size, "--copies", &copies]))?;
    let volume = run(command().args(["volume", "get", VOLUME, "-o", "json"]))?;
    let volume: serde_json::Value =
        serde_json::from_str(&volume).map_err(|error| format!("spandrel says {volume}: {error}"))?;
    let owner = volume["owner"].as_str().ok_or_else(|| format!("the volume has no owner: {volume}"))?;
    let reach = nbd(VOLUME, &directory.join(owner).join("nbd.sock"));
    Ok(Contender { reach, environment: Vec::new(), servers: vec![server] })
}
