//! Other people's clients against a real cluster: fio with its own verification, also while nodes
//! die; libnbd's and QEMU's tools; QEMU's own block driver, which outlives the server that it is connected to.
//!
//! `SPANDREL_TEST_FULL=1` runs them at full length: a minute of fio on 1 GiB, an image of 512 MiB.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use spandrel_platform::Address;
use spandrel_process_cluster::{
    Cluster, ClusterOptions, LoadOptions, LoadThread, Program, Random, Servers, ServersOptions, is_full,
};

fn cluster_of_four() -> Cluster {
    let arguments = ["--nodes", "4", "--drives", "2", "--drive-size", "1G", "--slab-size", "16M", "--sparse"];
    let options =
        ClusterOptions { arguments: arguments.map(str::to_owned).to_vec(), drive_prefix: String::new() };
    Cluster::start(Program::with_test_faults(), options)
}

fn uri(cluster: &Cluster, node: &str, volume: &str) -> String {
    let socket = cluster.directory().join(node).join("nbd.sock");
    format!("nbd+unix:///{volume}?socket={}", socket.display())
}

/// Runs a tool that must succeed, and returns what it said.
fn run(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool).args(arguments).stdin(Stdio::null()).output();
    let output =
        output.unwrap_or_else(|error| panic!("{tool} cannot be run ({error}): `cargo xtask packages`"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{tool} {arguments:?}: {}\n{said}\n{errors}", output.status);
    said
}

/// fio that checks what it reads against what it has written.
fn start_fio(cluster: &Cluster, node: &str, volume: &str, seconds: u64, size: &str) -> Child {
    Command::new("fio")
        // Where it leaves a file about its verification.
        .current_dir(cluster.directory())
        .args(["--name=verify", "--ioengine=nbd", "--rw=randrw", "--bssplit=4k/60:16k/20:128k/20"])
        .args(["--iodepth=32", "--verify=crc32c", "--verify_fatal=1", "--time_based"])
        .arg(format!("--uri={}", uri(cluster, node, volume)))
        .arg(format!("--size={size}"))
        .arg(format!("--runtime={seconds}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("fio is installed: `cargo xtask packages`")
}

fn end_fio(cluster: &Cluster, fio: Child) {
    let output = fio.wait_with_output().expect("fio is a child of this process");
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "fio: {}\n{said}\n{errors}\n{}", output.status, cluster.log());
}

fn volume(cluster: &Cluster, name: &str) -> serde_json::Value {
    cluster.must_run(&["volume", "get", name, "-o", "json"]).json()
}

/// Waits until the cluster's one volume is what `condition` asks for.
fn await_volume(cluster: &Cluster, what: &str, condition: impl Fn(&serde_json::Value) -> bool) {
    cluster.await_status(what, |status| condition(&status["volumes"][0]));
}

fn is_healthy(volume: &serde_json::Value) -> bool {
    volume["status"]["health"] == "Healthy" && volume["is_serving"] == true
}

/// The nodes in the order in which this test stops them: one that only holds copies, the owner, the
/// node after it. And the node of the client, which stays.
fn choose_nodes(cluster: &Cluster) -> ([String; 3], String) {
    let owner = volume(cluster, "v")["owner"].as_str().expect("it is owned").to_owned();
    let index: usize = owner[1..].parse::<usize>().expect("nodes are numbered") - 1;
    let node = |step: usize| format!("n{}", (index + step) % 4 + 1);
    ([node(2), owner, node(1)], node(3))
}

#[test]
fn fio_finds_what_it_wrote() {
    let cluster = cluster_of_four();
    let (size, seconds) = if is_full() { ("1G", 60) } else { ("128M", 5) };
    cluster.must_run(&["volume", "create", "v", "--size", size, "--copies", "3"]);
    end_fio(&cluster, start_fio(&cluster, "n1", "v", seconds, size));
    cluster.must_run(&["volume", "verify", "v"]);
}

#[test]
fn fio_finds_what_it_wrote_while_nodes_die() {
    let cluster = cluster_of_four();
    let (size, seconds) = if is_full() { ("1G", 60) } else { ("128M", 30) };
    cluster.must_run(&["volume", "create", "v", "--size", size, "--copies", "3"]);
    let (stopped, client) = choose_nodes(&cluster);
    let fio = start_fio(&cluster, &client, "v", seconds, size);
    for node in &stopped {
        let written = |shown: &serde_json::Value| shown["traffic"]["writes"].as_u64() > Some(100);
        await_volume(&cluster, "written to", written);
        cluster.must_run(&["node", "stop", node, "--abrupt"]);
        let goes_on = |shown: &serde_json::Value| {
            let health = shown["status"]["health"].as_str();
            health == Some("Warning") && shown["is_serving"] == true && shown["owner"] != node.as_str()
        };
        await_volume(&cluster, "served without the node", goes_on);
        cluster.must_run(&["node", "start", node]);
        await_volume(&cluster, "healthy again", is_healthy);
    }
    end_fio(&cluster, fio);
    await_volume(&cluster, "healthy again", is_healthy);
    cluster.must_run(&["volume", "verify", "v"]);
}

/// A file of random bytes: no block is like another, and none is all zeros.
fn write_image(path: &Path, bytes: usize) {
    let random = Random::new(bytes as u64);
    let image: Vec<u8> = (0..bytes / 8).flat_map(|_| random.next_u64().to_le_bytes()).collect();
    std::fs::write(path, image).expect("there is room for the image");
}

#[test]
fn images_are_copied_in_and_out_and_holes_are_shown() {
    let cluster = cluster_of_four();
    let image_bytes: usize = if is_full() { 512 << 20 } else { 64 << 20 };
    let volume_bytes = 2 * image_bytes;
    cluster.must_run(&["volume", "create", "v", "--size", &volume_bytes.to_string(), "--copies", "3"]);
    cluster.must_run(&["volume", "create", "other", "--size", "16M", "--copies", "2"]);
    let (image, back) = (cluster.directory().join("image"), cluster.directory().join("back"));
    write_image(&image, image_bytes);
    let (image, back) = (image.to_str().expect("a plain name"), back.to_str().expect("a plain name"));
    run("nbdcopy", &[image, &uri(&cluster, "n1", "v")]);
    run("nbdcopy", &[&uri(&cluster, "n3", "v"), back]);
    let (written, read) = (std::fs::read(image).unwrap(), std::fs::read(back).unwrap());
    assert_eq!(read.len(), volume_bytes);
    assert!(read[..image_bytes] == written[..], "the image is the same on another node");
    assert!(read[image_bytes..].iter().all(|byte| *byte == 0), "the rest was never written");

    assert_eq!(
        map(&cluster),
        [(0, image_bytes as u64, true), (image_bytes as u64, image_bytes as u64, false)]
    );
    let discard = format!("discard {} {}", 4 << 20, 8 << 20);
    run("qemu-io", &["-f", "raw", "-d", "unmap", "-c", &discard, &uri(&cluster, "n2", "v")]);
    let shown = map(&cluster);
    assert_eq!(shown[..2], [(0, 4 << 20, true), (4 << 20, 8 << 20, false)], "{shown:?}");
    let pattern = run("qemu-io", &["-r", "-f", "raw", "-c", "read -P 0 4M 8M", &uri(&cluster, "n4", "v")]);
    assert!(!pattern.contains("verification failed"), "{pattern}");

    let listed = run("nbdinfo", &["--list", &uri(&cluster, "n2", "")]);
    for name in ["v", "other"] {
        assert!(listed.contains(&format!("export=\"{name}\"")), "{listed}");
    }
    cluster.must_run(&["volume", "verify", "v"]);
}

/// What `qemu-img map` says of the volume: start, length, whether there are data.
fn map(cluster: &Cluster) -> Vec<(u64, u64, bool)> {
    let shown = run("qemu-img", &["map", "-f", "raw", "--output=json", &uri(cluster, "n4", "v")]);
    let shown: serde_json::Value = serde_json::from_str(&shown).expect("it is JSON");
    let mut extents: Vec<(u64, u64, bool)> = Vec::new();
    for extent in shown.as_array().expect("a list") {
        let number = |key: &str| extent[key].as_u64().expect("a number");
        let (start, length, data) = (number("start"), number("length"), extent["data"] == true);
        match extents.last_mut() {
            Some(last) if last.2 == data => last.1 += length,
            _ => extents.push((start, length, data)),
        }
    }
    extents
}

/// QEMU with a volume as `volume get` tells it to, which shows it to others at a socket.
struct Qemu {
    process: Child,
    socket: PathBuf,
}

impl Qemu {
    fn start(servers: &Servers, node: &str, volume: &str) -> Self {
        let socket = servers.directory(node).join("qemu.sock");
        let shown = servers.must_run(node, &["volume", "get", volume]).output;
        let line = shown.lines().find(|line| line.contains("qemu-system")).expect("there is a line for QEMU");
        let (_, drive) = line.split_once("-drive ").expect("it has a drive");
        let option = |name: &str| {
            let mut options = drive.split(',').filter_map(|option| option.split_once('='));
            let value = options.find(|(known, _)| *known == name).expect("the option is there").1;
            value.trim_matches('\'').to_owned()
        };
        let (uri, delay) = (option("file"), option("file.reconnect-delay"));
        // As a virtual machine's drive is opened; qemu-nbd wants the parts of the URI.
        let open = format!("open -r -o driver=raw,file.reconnect-delay={delay} {uri}");
        run("qemu-io", &["-c", &open, "-c", "read 0 4k"]);
        let path = uri.split_once("socket=").expect("it is at a socket").1;
        let process = Command::new("qemu-nbd")
            .args(["--persistent", "--shared=0", "--export-name", volume, "--socket"])
            .arg(&socket)
            .arg("--image-opts")
            .arg(format!("driver=nbd,path={path},export={volume},reconnect-delay={delay}"))
            .stdin(Stdio::null())
            .spawn()
            .expect("qemu-nbd is installed: `cargo xtask packages`");
        Self { process, socket }
    }

    fn address(&self) -> Address {
        Address::Unix(self.socket.to_str().expect("a plain name").to_owned())
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        // That it has ended is as good.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn qemu_waits_for_its_node_that_was_killed_or_is_restarted_in_order() {
    let options = ServersOptions::new(3, false);
    let mut servers = Servers::start(&Program::with_test_faults(), &options);
    servers.create_volume("n1", "v", &["--size", "32M", "--copies", "3", "--owner", "n1"]);
    let qemu = Qemu::start(&servers, "n1", "v");
    let load = LoadThread::start(qemu.address(), "v", 32 << 20, 11, LoadOptions::default());
    let ends: [fn(&mut Servers, &str); 2] = [Servers::kill_process, Servers::stop];
    for end in ends.iter().cycle().take(6) {
        load.await_answers(1000);
        end(&mut servers, "n1");
        servers.restart("n1");
    }
    load.await_answers(1000);
    let nodes = ["n1", "n2", "n3"].map(|node| servers.nbd_address(node));
    let end = load.end(&[&[qemu.address()], &nodes[..]].concat());
    assert!(end.is_faultless(), "{end:?}");
}
