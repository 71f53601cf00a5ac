//! Ceph: a monitor and four OSDs with BlueStore in files of this machine, a pool with three copies, reached through librbd.
//!
//! It is tuned as far as its documentation says that it can be for few cores: no debug logs are gathered, an OSD has one shard
//! with two threads, and RBD's cache, which answers before a write is durable, is off.

use std::fs;
use std::net::TcpListener;

use crate::contender::{Contender, Known, Server, Setup, run};

pub(super) const CEPH: Known = Known {
    name: "ceph",
    what: "4 OSDs, 3 copies, checksums",
    needs: &[("ceph-mon", "ceph-mon"), ("ceph-osd", "ceph-osd"), ("rbd", "ceph-common")],
    start,
};

const OSDS: u64 = 4;
const COPIES: u64 = 3;
const POOL: &str = "benchmark";
const IMAGE: &str = "volume";

/// What an OSD needs beside its data.
const OSD_EXTRA_BYTES: u64 = 1 << 30;

fn start(setup: &Setup) -> Result<Contender, String> {
    let folder = &setup.folder;
    let configuration = folder.join("ceph.conf");
    let identity = fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(|error| error.to_string())?;
    let identity = identity.trim();
    let port = free_port()?;
    fs::write(&configuration, describe(setup, identity, port)).map_err(|error| error.to_string())?;
    let command = |program: &str| {
        let mut command = setup.mark.command(program);
        command.env("CEPH_CONF", &configuration);
        command
    };
    let map = folder.join("monmap");
    let address = format!("[v2:127.0.0.1:{port}]");
    run(command("monmaptool").args(["--create", "--fsid", identity, "--addv", "a", &address]).arg(&map))?;
    run(command("ceph-mon").args(["--mkfs", "--id", "a", "--monmap"]).arg(&map))?;
    let mut monitor =
        Server::start(command("ceph-mon").args(["--foreground", "--id", "a"]), folder, "monitor")?;
    monitor.await_that("the monitor answers", |_| {
        run(command("ceph").args(["--connect-timeout", "2", "status"])).is_ok()
    })?;
    let mut osds = Vec::new();
    for number in 0..OSDS {
        let id = number.to_string();
        let osd = fs::read_to_string("/proc/sys/kernel/random/uuid").map_err(|error| error.to_string())?;
        fs::create_dir(folder.join(format!("osd-data-{id}"))).map_err(|error| error.to_string())?;
        run(command("ceph").args(["osd", "new", osd.trim(), &id]))?;
        run(command("ceph-osd").args(["--mkfs", "--id", &id, "--osd-uuid", osd.trim()]))?;
        let mut serve = command("ceph-osd");
        osds.push(Server::start(serve.args(["--foreground", "--id", &id]), folder, &format!("osd-{id}"))?);
    }
    monitor.await_that("all OSDs serve", |_| {
        let said = run(command("ceph").args(["osd", "stat", "--format", "json"])).unwrap_or_default();
        let said: serde_json::Value = serde_json::from_str(&said).unwrap_or_default();
        said["num_up_osds"].as_u64() == Some(OSDS)
    })?;
    run(command("ceph").args(["osd", "pool", "create", POOL, "64", "64", "replicated"]))?;
    run(command("rbd").args(["pool", "init", POOL]))?;
    let size = format!("{}B", setup.size_bytes);
    run(command("rbd").args(["create", "--pool", POOL, "--size", &size, IMAGE]))?;
    let names = ["--ioengine=rbd", "--clientname=admin"].map(str::to_owned);
    let place = [format!("--pool={POOL}"), format!("--rbdname={IMAGE}")];
    let reach = names.into_iter().chain(place).collect();
    // The OSDs end before the monitor.
    osds.push(monitor);
    Ok(Contender { reach: vec![reach], environment: vec![("CEPH_CONF", configuration)], servers: osds })
}

fn describe(setup: &Setup, identity: &str, port: u16) -> String {
    let folder = setup.folder.display();
    let osd_bytes = setup.size_bytes * COPIES / OSDS * 2 + OSD_EXTRA_BYTES;
    format!(
        "[global]
fsid = {identity}
mon_initial_members = a
mon_host = [v2:127.0.0.1:{port}]
ms_bind_msgr1 = false
public_network = 127.0.0.0/8
cluster_network = 127.0.0.0/8
auth_cluster_required = none
auth_service_required = none
auth_client_required = none
run_dir = {folder}
admin_socket = {folder}/$name.asok
log_file = {folder}/$name.ceph-log
pid_file = {folder}/$name.pid
keyring = {folder}/keyring
mon_data = {folder}/mon-$id
osd_data = {folder}/osd-data-$id
osd_objectstore = bluestore
bluestore_block_size = {osd_bytes}
bluestore_block_create = true
osd_memory_target = 939524096
osd_pool_default_size = {COPIES}
osd_pool_default_min_size = 2
osd_crush_chooseleaf_type = 0
osd_pool_default_pg_autoscale_mode = off
osd_op_num_shards = 1
osd_op_num_threads_per_shard = 2
rbd_cache = false
debug_default = 0/0
debug_osd = 0/0
debug_ms = 0/0
debug_bluestore = 0/0
debug_bluefs = 0/0
debug_bdev = 0/0
debug_rocksdb = 0/0
debug_monc = 0/0
debug_objecter = 0/0
debug_rbd = 0/0
"
    )
}

/// A port that nobody listens on. It may be taken before it is used; then the monitor says so.
fn free_port() -> Result<u16, String> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    listener.map(|address| address.port()).map_err(|error| format!("no free port: {error}"))
}
