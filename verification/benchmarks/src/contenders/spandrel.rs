//! Spandrel itself: a cluster of four nodes on this machine, and a volume with three copies, reached on the node that owns it.

use std::path::PathBuf;
use std::process::Command;

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
        start(setup, &["--cores", &cores.first(1).to_string()])
    },
};

/// Nodes of every cluster here.
pub const NODES: u64 = 4;
/// The room of one of them stays free: it is the pool's reserve, without which the owner may lack a copy of its own to read.
const DRIVES: u64 = 3;
/// Of each block.
pub const COPIES: u64 = 3;
const VOLUME: &str = "benchmark";

fn start(setup: &Setup, more: &[&str]) -> Result<Contender, String> {
    // Beside the reserve half as much again as lies there: a write needs a free place before the former one is given back.
    let drive_bytes = 3 * setup.size_bytes * COPIES / (2 * NODES * (DRIVES - 1));
    let (cluster, server) = Cluster::start(setup, DRIVES, drive_bytes, more)?;
    let reach = vec![cluster.create_volume(VOLUME, setup.size_bytes)?];
    Ok(Contender { reach, environment: Vec::new(), servers: vec![server] })
}

/// A cluster in a folder, whether it runs or not.
pub struct Cluster {
    directory: PathBuf,
    setup: Setup,
}

impl Cluster {
    /// Makes one with so many drives for each node, and starts it. When this returns it serves.
    pub fn start(
        setup: &Setup,
        drives: u64,
        drive_bytes: u64,
        more: &[&str],
    ) -> Result<(Self, Server), String> {
        let cluster = Self { directory: setup.folder.join("cluster"), setup: setup.clone() };
        let mut up = cluster.command();
        up.args(["up", "--nodes", &NODES.to_string(), "--drives", &drives.to_string(), "--sparse"]);
        up.args(["--drive-size", &drive_bytes.to_string()]).args(more);
        if setup.medium == Medium::Memory {
            up.arg("--memory");
        }
        let server = cluster.serve(up)?;
        Ok((cluster, server))
    }

    /// Starts it again.
    pub fn start_again(&self) -> Result<Server, String> {
        let mut up = self.command();
        up.arg("up");
        self.serve(up)
    }

    fn serve(&self, mut up: Command) -> Result<Server, String> {
        let starts = std::fs::read_dir(&self.setup.folder).map_or(0, |entries| entries.flatten().count());
        let mut server = Server::start(&mut up, &self.setup.folder, &format!("spandrel-{starts}"))?;
        let serves = |server: &Server| server.said().lines().any(|line| line.starts_with("ready:"));
        server.await_that("it serves", serves)?;
        Ok(server)
    }

    /// The program, to be told something about this cluster.
    pub fn command(&self) -> Command {
        let mut command = self.setup.mark.command(&self.setup.spandrel);
        command.arg("--dir").arg(&self.directory);
        command
    }

    /// Makes a volume with three copies.
    pub fn create_volume(&self, name: &str, size_bytes: u64) -> Result<Vec<String>, String> {
        let (size, copies) = (size_bytes.to_string(), COPIES.to_string());
        run(self.command().args(["volume", "create", name, "--size", &size, "--copies", &copies]))?;
        self.reach(name)
    }

    /// How a volume is reached on the node that owns it.
    pub fn reach(&self, name: &str) -> Result<Vec<String>, String> {
        let volume = run(self.command().args(["volume", "get", name, "-o", "json"]))?;
        let volume: serde_json::Value =
            serde_json::from_str(&volume).map_err(|error| format!("spandrel says {volume}: {error}"))?;
        let owner = volume["owner"].as_str().ok_or_else(|| format!("the volume has no owner: {volume}"))?;
        Ok(nbd(name, &self.directory.join(owner).join("nbd.sock")))
    }

    /// The files of its drives.
    pub fn drives(&self) -> Vec<PathBuf> {
        let number = |number: u64| 1..=number;
        let drive = |node: u64| self.directory.join(format!("n{node}")).join("d1.drive");
        number(NODES).map(drive).collect()
    }
}
