//! Real guests: kernels that boot in QEMU, on disks that are volumes.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use spandrel_process_cluster::{
    Cluster, ClusterOptions, CommandOutput, Network, Networks, Program, Servers, ServersOptions, await_that,
    comes_true, guest_with,
};

/// Where guests run, and whom to ask about them.
#[derive(Clone, Copy)]
enum Place<'p> {
    /// A cluster in one process.
    One(&'p Cluster),
    /// One of several servers that is asked.
    Several(&'p Servers, &'p str),
}

impl Place<'_> {
    fn must_run(self, arguments: &[&str]) -> CommandOutput {
        match self {
            Self::One(cluster) => cluster.must_run(arguments),
            Self::Several(servers, asked) => servers.must_run(asked, arguments),
        }
    }

    /// The directory of a node.
    fn directory(self, node: &str) -> PathBuf {
        match self {
            Self::One(cluster) => cluster.directory().join(node),
            Self::Several(servers, _) => servers.directory(node),
        }
    }

    /// Makes a virtual machine on a volume of its own that does `task`.
    fn make(self, name: &str, owner: &str, task: &str) {
        self.make_with(name, owner, task, "nbd");
    }

    fn make_with(self, name: &str, owner: &str, task: &str, bus: &str) {
        let files = guest_with(Path::new(env!("CARGO_BIN_EXE_spandrel-test-guest")));
        let (kernel, initrd) = (files.kernel.display().to_string(), files.initrd.display().to_string());
        self.must_run(&["volume", "create", name, "--size", "64M", "--owner", owner]);
        let append = spandrel_guest::arguments(task);
        let boot = ["--kernel", &kernel, "--initrd", &initrd, "--append", &append];
        let machine =
            ["vm", "create", name, "--volume", name, "--vcpus", "1", "--memory", "96M", "--disk-bus", bus];
        self.must_run(&[&machine[..], &boot[..]].concat());
    }

    /// Puts a new file system onto a volume, by a node.
    fn make_file_system(self, volume: &str, node: &str) {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let image = folder.path().join("file-system");
        let file = std::fs::File::create(&image).expect("the folder can be written to");
        file.set_len(64 << 20).expect("a file can be that long");
        let uri = format!("nbd+unix:///{volume}?socket={}", self.directory(node).join("nbd.sock").display());
        let image = image.display().to_string();
        run("mkfs.ext4", &["-q", &image]);
        run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", &image, &uri]);
    }

    fn vm(self, name: &str) -> serde_json::Value {
        self.must_run(&["vm", "get", name, "-o", "json"]).json()
    }

    /// The node that a virtual machine runs on.
    fn node_of(self, name: &str) -> String {
        self.vm(name)["node"].as_str().expect("a node has claimed it").to_owned()
    }

    /// What the guest of a virtual machine has said on a node since it was started there last.
    fn said(self, name: &str, node: &str) -> String {
        std::fs::read_to_string(self.console_log(name, node)).unwrap_or_default()
    }

    /// Where that is kept.
    fn console_log(self, name: &str, node: &str) -> PathBuf {
        let id: String = self.vm(name)["id"].as_str().expect("it has one").replace('-', "");
        self.directory(node).join("vms").join(&id[..12]).join("console.log")
    }

    /// The last number behind a word in what a guest has said; 0 if there is none.
    fn last_number(self, name: &str, node: &str, word: &str) -> u64 {
        numbers(&self.said(name, node), word).last().copied().unwrap_or_default()
    }

    fn await_number(self, name: &str, node: &str, word: &str, number: u64) {
        let is_there =
            || self.last_number(name, node, word) >= number || self.said(name, node).contains("FAILED");
        let has_come = comes_true(is_there);
        let said = self.said(name, node);
        assert!(
            has_come && !said.contains("FAILED"),
            "it does not come to {word} {number} at {node}: {said}"
        );
    }
}

/// The numbers behind a word in what a guest has said, in order.
fn numbers(said: &str, word: &str) -> Vec<u64> {
    let begin = format!("guest: {word} ");
    let lines = said.lines().filter_map(|line| line.trim().strip_prefix(begin.as_str()));
    lines
        .filter_map(|rest| rest.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok())
        .collect()
}

fn run(tool: &str, arguments: &[&str]) {
    let output = Command::new(tool).args(arguments).output();
    let output =
        output.unwrap_or_else(|error| panic!("{tool} cannot be run ({error}): `cargo xtask packages`"));
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
}

/// An image with a boot loader, a kernel and its RAM disk, as images of distributions are, whose guest does `task`.
fn bootable_image(folder: &Path, task: &str) -> PathBuf {
    let files = guest_with(Path::new(env!("CARGO_BIN_EXE_spandrel-test-guest")));
    let boot = files.kernel.with_file_name("kernel").join("tree/boot");
    let mut kernels = std::fs::read_dir(&boot).expect("it was unpacked").flatten().map(|entry| entry.path());
    let kernel = kernels.find(|path| path.display().to_string().contains("vmlinuz")).expect("one is there");
    let loader = folder.join("syslinux.cfg");
    let arguments = spandrel_guest::arguments(task);
    let text = format!("DEFAULT linux\nLABEL linux\nLINUX vmlinuz\nINITRD initrd\nAPPEND {arguments}\n");
    std::fs::write(&loader, text).expect("the folder can be written to");
    let (raw, image) = (folder.join("raw"), folder.join("image.qcow2"));
    let text = |path: &Path| path.display().to_string();
    run("mformat", &["-C", "-i", &text(&raw), "-T", "262144", "-h", "64", "-s", "32", "-H", "0", "::"]);
    run("mcopy", &["-i", &text(&raw), &text(&kernel), "::vmlinuz"]);
    run("mcopy", &["-i", &text(&raw), &text(&files.initrd), "::initrd"]);
    run("mcopy", &["-i", &text(&raw), &text(&loader), "::syslinux.cfg"]);
    run("syslinux", &["--install", &text(&raw)]);
    run("qemu-img", &["convert", "-f", "raw", "-O", "qcow2", &text(&raw), &text(&image)]);
    image
}

/// Four nodes in one process, with drives in memory.
fn cluster() -> Cluster {
    cluster_of(4, &["--memory", "--drive-size", "512M", "--vm-memory", "1G"])
}

/// So many nodes in one process, with a drive each.
fn cluster_of(nodes: usize, arguments: &[&str]) -> Cluster {
    let count = nodes.to_string();
    let all = ["--nodes", &count, "--drives", "1"].into_iter().chain(arguments.iter().copied());
    let options = ClusterOptions { arguments: all.map(str::to_owned).collect(), drive_prefix: String::new() };
    let cluster = Cluster::start(Program::with_test_faults(), options);
    let runs_vms = || cluster.log().matches("looks after virtual machines").count() >= nodes;
    await_that("nodes that run virtual machines", runs_vms);
    cluster
}

#[test]
fn four_guests_at_once_verify_what_they_write_to_the_end() {
    let cluster = cluster();
    let place = Place::One(&cluster);
    let names: Vec<String> = (1..=4).map(|number| format!("vm{number}")).collect();
    for (name, number) in names.iter().zip(1..) {
        let bus = if number % 2 == 0 { "vhost-user" } else { "nbd" };
        place.make_with(name, &format!("n{number}"), &format!("verify:4:{number}"), bus);
    }
    let begun = Instant::now();
    for name in &names {
        place.must_run(&["vm", "start", name]);
    }
    for (name, number) in names.iter().zip(1..) {
        await_that("a guest that has ended", || place.vm(name)["state"] == "off");
        // It ran where its disk is owned.
        let said = place.said(name, &format!("n{number}"));
        assert!(said.contains("guest: verified"), "{name}: {said}\n{}", cluster.log());
        assert!(!said.contains("FAILED"), "{name}: {said}");
    }
    println!("four guests, started one after the other: {:?}", begun.elapsed());
}

/// The way of the guide: an image becomes a volume, its machine boots from it, and its console is used.
#[test]
fn a_machine_boots_from_an_image_and_has_a_console() {
    let cluster = cluster();
    let place = Place::One(&cluster);
    let folder = tempfile::tempdir().expect("a folder can be made");
    let image = bootable_image(folder.path(), "shell").display().to_string();
    for bus in ["nbd", "vhost-user"] {
        place.must_run(&["volume", "create", bus, "--size", "128M", "--owner", "n1"]);
        let machine = ["vm", "create", bus, "--volume", bus, "--disk-image", &image, "--vcpus", "1"];
        place.must_run(&[&machine[..], &["--memory", "256M", "--disk-bus", bus]].concat());
        place.must_run(&["vm", "start", bus]);
        await_that("a shell", || place.said(bus, "n1").contains("guest: begins: shell"));
        let typed = "echo six times seven is $((6 * 7))\npoweroff -f\n";
        let shown = cluster.run_with_input(&["vm", "console", bus], typed);
        assert!(
            shown.output.contains("guest: begins: shell"),
            "what was said before comes first: {shown:#?}"
        );
        assert!(shown.output.contains("six times seven is 42"), "{shown:#?}");
        await_that("a machine that is off", || place.vm(bus)["state"] == "off");
        a_console_is_one_at_a_time_and_goes_where_its_machine_goes(&cluster, bus, folder.path());
    }
}

/// The console of a machine that is off, on n1.
fn a_console_is_one_at_a_time_and_goes_where_its_machine_goes(cluster: &Cluster, vm: &str, folder: &Path) {
    let place = Place::One(cluster);
    place.must_run(&["vm", "start", vm]);
    await_that("a shell", || place.said(vm, &place.node_of(vm)).contains("guest: begins: shell"));
    let shown = folder.join("shown");
    let mut console = cluster.begin(&["vm", "console", vm], &shown);
    let shows = |text: &str| std::fs::read_to_string(&shown).unwrap_or_default().contains(text);
    let mut says = |typed: &str, answer: &str| {
        let keys = console.stdin.as_mut().expect("it is piped");
        keys.write_all(typed.as_bytes()).expect("it is read");
        await_that(answer, || shows(answer));
    };
    says("echo it is $((40 + 1)) here\n", "it is 41 here");
    assert!(cluster.run(&["vm", "console", vm]).errors.contains("VM_CONSOLE_IN_USE"));
    let former = place.node_of(vm);
    let to = if former == "n2" { "n3" } else { "n2" };
    place.must_run(&["vm", "migrate", vm, "--to", to]);
    await_that("a console that has followed", || shows(&format!("{vm} runs on {to} now")));
    says("echo it is $((40 + 2)) there\n", "it is 42 there");
    console.stdin.take().expect("it is piped").write_all(b"poweroff -f\n").expect("it is read");
    assert!(console.wait().expect("it can be waited for").success(), "its machine is off");
}

/// ext4 in a guest that syncs each number that it appends to a file. Its node loses its power.
#[test]
fn a_file_system_keeps_all_that_was_synced_when_its_node_dies() {
    let cluster = cluster();
    let place = Place::One(&cluster);
    place.make("db", "n2", "file");
    place.make_file_system("db", "n1");
    place.must_run(&["vm", "start", "db"]);
    assert_eq!(place.node_of("db"), "n2", "it runs where its disk is owned");
    place.await_number("db", "n2", "synced", 50);
    let died = Instant::now();
    place.must_run(&["node", "stop", "n2", "--abrupt"]);
    let synced = place.last_number("db", "n2", "synced");
    let mut stages: Vec<(&str, Duration)> = Vec::new();
    await_that("another node that claims it", || place.vm("db")["node"] != "n2");
    stages.push(("claimed by another node", died.elapsed()));
    let now = place.node_of("db");
    await_that("a guest that begins", || place.said("db", &now).contains("guest: begins"));
    stages.push(("booted", died.elapsed()));
    await_that("a guest that has looked", || place.said("db", &now).contains("guest: found"));
    stages.push(("file system mounted and checked", died.elapsed()));
    let found = place.last_number("db", &now, "found");
    println!("the node died with {synced} synced; {found} were there: {stages:?}");
    assert!(found >= synced, "{synced} were synced, and {found} are there");
    place.await_number("db", &now, "synced", found + 20);
    assert_eq!(place.vm("db")["node_because"], "node n2 was lost");
    assert!(!place.said("db", &now).contains("FAILED"));
    place.must_run(&["vm", "stop", "db", "--force"]);
    place.must_run(&["node", "start", "n2"]);
    cluster.await_health();
    place.must_run(&["volume", "verify", "db"]);
}

/// The volume stays where it was when its guest moves; then its owner's node dies. The guest waits, and goes on.
#[test]
fn a_file_system_goes_on_when_the_node_dies_that_owns_its_disk() {
    let cluster = cluster();
    let place = Place::One(&cluster);
    place.make_with("db", "n2", "file", "vhost-user");
    place.make_file_system("db", "n1");
    place.must_run(&["volume", "set", "db", "--pinned", "true"]);
    place.must_run(&["vm", "start", "db"]);
    place.await_number("db", "n2", "synced", 20);
    place.must_run(&["vm", "migrate", "db", "--to", "n3"]);
    place.await_number("db", "n3", "synced", 50);
    let volumes = place.must_run(&["volume", "list", "-o", "json"]).json();
    assert_eq!(volumes[0]["owner"], "n2", "it is where it was pinned");
    place.must_run(&["node", "stop", "n2", "--abrupt"]);
    let synced = place.last_number("db", "n3", "synced");
    place.await_number("db", "n3", "synced", synced + 50);
    let said = place.said("db", "n3");
    assert!(!said.contains("begins") && !said.contains("FAILED"), "it has only waited: {said}");
    place.must_run(&["vm", "stop", "db", "--force"]);
    // What was synced is there for a guest that looks.
    let synced = numbers(&said, "synced").last().copied().unwrap_or_default();
    place.must_run(&["vm", "start", "db"]);
    let now = place.node_of("db");
    await_that("a guest that has looked", || place.said("db", &now).contains("guest: found"));
    assert!(place.last_number("db", &now, "found") >= synced);
}

#[test]
fn a_guest_moves_under_load_without_a_lost_request() {
    moves_under_load("nbd");
}

#[test]
fn a_guest_that_shares_its_memory_moves_under_load_without_a_lost_request() {
    moves_under_load("vhost-user");
}

/// The guest writes and flushes all the time while it is moved there and back, and counts how long it had to wait.
fn moves_under_load(bus: &str) {
    let cluster = cluster();
    let place = Place::One(&cluster);
    place.make_with("web", "n1", "count", bus);
    place.must_run(&["vm", "start", "web"]);
    place.await_number("web", "n1", "wrote", 200);
    let mut written = place.last_number("web", "n1", "wrote");
    for to in ["n3", "n4"] {
        place.must_run(&["vm", "migrate", "web", "--to", to]);
        assert_eq!(place.node_of("web"), to);
        place.await_number("web", to, "wrote", written + 200);
        let said = place.said("web", to);
        assert!(!said.contains("begins") && !said.contains("FAILED"), "it was not started anew: {said}");
        let first = numbers(&said, "wrote")[0];
        assert!(first >= written, "it goes on where it was: {first} behind {written}");
        let waits = said.lines().filter_map(|line| line.split("the longest in ").nth(1)?.split(' ').next());
        let longest = waits.filter_map(|text| text.parse::<u64>().ok()).max();
        println!("moved to {to}: the longest write and flush took {longest:?} ms");
        // What is promised; it takes a tenth of that.
        assert!(longest.is_some_and(|ms| ms < 1000), "{longest:?} ms");
        written = place.last_number("web", to, "wrote");
    }
    // A node in maintenance has it move away, and so has one that stops.
    for leaving in ["drain", "stop"] {
        let former = place.node_of("web");
        place.must_run(&["node", leaving, &former]);
        let status = place.vm("web");
        let now = place.node_of("web");
        assert!(
            status["state"] == "running" && now != former,
            "{leaving} of {former} waits for it: {status}"
        );
        place.await_number("web", &now, "wrote", written + 100);
        let said = place.said("web", &now);
        assert!(!said.contains("begins") && !said.contains("FAILED"), "{leaving} of {former}: {said}");
        written = place.last_number("web", &now, "wrote");
    }
    let stopped = cluster.must_run(&["node", "list"]);
    assert_eq!(stopped.output.matches("Paused").count(), 1, "only the one that was drained: {stopped:#?}");
}

/// A stop that was broken off has left its node in maintenance. That goes on, so that the machine that found no other node begins
/// again only when somebody says so.
#[test]
fn a_stop_that_was_broken_off_goes_on_and_says_what_it_leaves() {
    // One machine fits on each.
    let cluster = cluster_of(3, &["--memory", "--drive-size", "512M", "--vm-memory", "160M"]);
    let place = Place::One(&cluster);
    let guests = [("web", "n1"), ("db", "n2"), ("mail", "n3")];
    for (name, node) in guests {
        place.make(name, node, "count");
        place.must_run(&["vm", "start", name]);
        assert_eq!(place.node_of(name), node);
    }
    place.must_run(&["node", "drain", "n1"]);
    assert_eq!(place.node_of("web"), "n1", "no other node has room for it");
    let stopped = place.must_run(&["node", "stop", "n1"]);
    assert!(stopped.output.contains("in maintenance as before"), "{stopped:#?}");
    place.must_run(&["node", "start", "n1"]);
    let nodes = place.must_run(&["node", "list"]);
    assert_eq!(nodes.output.matches("Paused").count(), 1, "{nodes:#?}");
    assert!(!nodes.output.contains("Down"), "it has started: {nodes:#?}");
    assert_eq!(place.vm("web")["state"], "waiting");
    place.must_run(&["node", "resume", "n1"]);
    await_that("a machine that runs again", || place.vm("web")["state"] == "running");
    assert_eq!(place.node_of("web"), "n1");
}

/// A guest that is given time to shut down can write meanwhile, wherever its disk is served. This one does not heed the button.
#[test]
fn a_guests_disk_works_until_it_has_ended_when_all_nodes_stop() {
    let mut cluster = cluster();
    let place = Place::One(&cluster);
    place.make("web", "n3", "count");
    place.must_run(&["vm", "start", "web"]);
    place.must_run(&["vm", "migrate", "web", "--to", "n1"]);
    place.must_run(&["volume", "move", "web", "--owner", "n3"]);
    let written = place.last_number("web", "n1", "wrote");
    place.await_number("web", "n1", "wrote", written + 200);
    let log = place.console_log("web", "n1");
    let wrote =
        || *numbers(&std::fs::read_to_string(&log).expect("it is there"), "wrote").last().expect("it writes");
    let before = wrote();
    cluster.stop();
    let after = wrote();
    println!("it has written {} times while all stopped", after - before);
    assert!(after >= before + 500, "{before} before, {after} in the end");
    assert!(!cluster.log().contains("the volume waits"), "{}", cluster.log());
}

/// Servers of their own; the one with the guest is cut off from the others. It goes on for as long as nobody tells it otherwise,
/// and nothing of what it writes is answered once it runs elsewhere.
#[test]
fn a_guest_that_is_cut_off_syncs_nothing_once_it_runs_elsewhere() {
    let options = ServersOptions { runs_guests: true, ..ServersOptions::new(3, false) };
    let what = "a guest that is cut off";
    let Some(networks) = Networks::between(&options.names(), &[Network::A], what) else { return };
    let servers = Servers::start_in(networks, &Program::with_test_faults(), &options);
    let runs_vms = |node: &str| servers.log(node).contains("looks after virtual machines");
    await_that("nodes that run virtual machines", || ["n1", "n2", "n3"].iter().all(|node| runs_vms(node)));
    let place = Place::Several(&servers, "n1");
    place.make("db", "n3", "file");
    place.make_file_system("db", "n1");
    place.must_run(&["vm", "start", "db"]);
    assert_eq!(place.node_of("db"), "n3");
    place.await_number("db", "n3", "synced", 50);
    servers.networks().cut_off(&["n3"], &[Network::A]);
    await_that("another node that claims it", || {
        servers.run("n1", &["vm", "get", "db", "-o", "json"]).output.contains("node n3 was lost")
    });
    let now = place.node_of("db");
    await_that("a guest that has looked", || place.said("db", &now).contains("guest: found"));
    let found = place.last_number("db", &now, "found");
    place.await_number("db", &now, "synced", found + 30);
    let synced = place.last_number("db", "n3", "synced");
    assert!(found >= synced, "{synced} were synced where it was cut off, and {found} were there");
    assert!(servers.runs_guests("n3"), "it goes on there, and waits for its disk");
    servers.networks().heal();
    await_that("an end of what was cut off", || !servers.runs_guests("n3"));
    assert_eq!(place.last_number("db", "n3", "synced"), synced, "it has got nothing done");
    let before = place.last_number("db", &now, "synced");
    place.await_number("db", &now, "synced", before + 30);
    assert!(!place.said("db", &now).contains("FAILED"));
}

/// QEMU goes on without the process that has started it, and waits for its disk; the next process finds it.
#[test]
fn guests_go_on_when_their_nodes_process_is_killed_and_started_again() {
    let mut cluster = cluster_of(3, &["--drive-size", "256M", "--sparse", "--vm-memory", "1G"]);
    let guests = [("web", "n2", "nbd"), ("db", "n3", "vhost-user")];
    for (name, node, bus) in guests {
        Place::One(&cluster).make_with(name, node, "count", bus);
        Place::One(&cluster).must_run(&["vm", "start", name]);
        Place::One(&cluster).await_number(name, node, "wrote", 100);
    }
    cluster.kill();
    cluster.restart();
    let place = Place::One(&cluster);
    for (name, node, _) in guests {
        let written = place.last_number(name, node, "wrote");
        place.await_number(name, node, "wrote", written + 200);
        let said = place.said(name, node);
        assert_eq!(said.matches("begins").count(), 1, "it was not started anew: {said}");
        assert!(!said.contains("FAILED"), "{said}");
        await_that("a node that knows of it", || place.vm(name)["state"] == "running");
        assert_eq!(place.vm(name)["runs"], 1);
    }
}
