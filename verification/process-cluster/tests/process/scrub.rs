//! The scrub that goes on by itself: bits rot on a server's drive while clients work, and it finds and heals them at the
//! pace that is set, counts them, and goes on where it was whoever owns the volume.

use std::os::unix::fs::FileExt;

use serde_json::Value;
use spandrel_process_cluster::{
    CommandOutput, HistoryClient, LoadOptions, LoadThread, Next, Program, Random, Servers, ServersOptions,
};

const VOLUME_BYTES: u64 = 16 << 20;

/// Blocks that are damaged at a time.
const BLOCKS_DAMAGED: usize = 20;

/// Requests whose answers take long enough for slabs to be read by themselves, if that were done.
const REQUESTS_FOR_A_WHILE: u64 = 3000;

/// Three servers, with drives that are files as they are, and a volume that was written and is left alone.
fn servers_with_a_written_volume() -> Servers {
    let options = ServersOptions { drive_prefix: String::new(), ..ServersOptions::new(3, false) };
    let servers = Servers::start(&Program::with_test_faults(), &options);
    servers.create_volume("n1", "cold", &["--size", "16M", "--copies", "3", "--owner", "n1"]);
    let mut client = HistoryClient::new(servers.nbd_address("n1"), "cold", VOLUME_BYTES, 7);
    let next = |answered| if answered < 3000 { Next::GoOn } else { Next::End };
    let end = client.load(LoadOptions::default(), next).expect("a cluster that serves");
    assert_eq!((end.broken, end.failures, end.violations), (None, vec![], vec![]));
    servers
}

fn volume<'a>(status: &'a Value, name: &str) -> &'a Value {
    let volumes = status["volumes"].as_array().expect("a list");
    volumes.iter().find(|volume| volume["name"] == name).expect("it is there")
}

fn number(of: &Value, path: &str) -> u64 {
    of.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} is a number in {of}"))
}

/// What is told of the scrub of a volume.
fn scrub(servers: &Servers, name: &str) -> Value {
    let told = servers.must_run("n2", &["scrub", "status", name, "-o", "json"]).json();
    told.as_array().expect("a list").first().expect("the volume is there").clone()
}

/// Where blocks of a volume stand on the drive of a server that runs, while nothing is written there: a reader of a copy of
/// the file finds them. As long as nobody writes to the volume, they stay there.
fn places(servers: &Servers, node: &str, name: &str) -> Vec<u64> {
    let status = servers.must_run("n1", &["status", "-o", "json"]).json();
    let identity = volume(&status, name)["id"].clone();
    let copy = servers.drive_file(&format!("{node}-copy"));
    std::fs::copy(servers.drive_file(node), &copy).expect("there is room for a copy");
    let path = copy.to_str().expect("a plain name");
    let listed = servers.must_run(node, &["drive", "inspect", path, "--blocks", "--output", "json"]).json();
    let blocks = listed["blocks"].as_array().expect("a list").iter();
    let own = blocks.filter(|block| block["volume"] == identity);
    own.map(|block| number(block, "/offset_bytes")).collect()
}

/// Flips a bit in some blocks.
fn damage(servers: &Servers, node: &str, mut places: Vec<u64>, random: &Random) {
    let drive = std::fs::OpenOptions::new().read(true).write(true).open(servers.drive_file(node));
    let drive = drive.expect("it is a file");
    for _ in 0..BLOCKS_DAMAGED {
        let place = places.swap_remove(random.below(places.len() as u64) as usize) + random.below(4096);
        let mut byte = [0];
        drive.read_exact_at(&mut byte, place).expect("it is within the file");
        drive.write_all_at(&[byte[0] ^ 1 << random.below(8)], place).expect("it can be written");
    }
}

/// Waits until so many damaged blocks of the volume were found, and all of them healed.
fn await_healed(servers: &Servers, blocks: usize) {
    servers.await_status("n2", "healed by the scrub", |status| {
        let scrub = &volume(status, "cold")["scrub"];
        let found = |what: &str| number(scrub, &format!("/found/{what}"));
        assert_eq!(
            (found("blocks_different"), found("blocks_lost"), found("pages_lacking")),
            (0, 0, 0),
            "{scrub}"
        );
        found("blocks_damaged") >= blocks as u64 && found("blocks_healed") >= blocks as u64
    });
}

/// Waits until so many passes have ended.
fn await_passes(servers: &Servers, passes: u64) {
    let is_over = |status: &Value| number(&volume(status, "cold")["scrub"], "/passes") >= passes;
    servers.await_status("n2", "read as a whole", is_over);
}

fn is_whole(verified: &CommandOutput) -> bool {
    verified.status == Some(0)
}

#[test]
fn rot_is_found_healed_and_counted_by_itself_and_whoever_owns_the_volume_goes_on() {
    let random = Random::new(5);
    let mut servers = servers_with_a_written_volume();
    let never = scrub(&servers, "cold");
    assert_eq!((number(&never, "/slabs_never_read"), &never["newest_unix_ms"]), (4, &Value::Null), "{never}");
    let places_on_n3 = places(&servers, "n3", "cold");
    servers.create_volume("n1", "hot", &["--size", "16M", "--copies", "3", "--owner", "n2"]);
    let load = LoadThread::start(servers.nbd_address("n2"), "hot", VOLUME_BYTES, 1, LoadOptions::default());
    load.await_answers(500);

    let set = servers.must_run("n1", &["pool", "set", "--scrub-period", "10s"]);
    assert!(set.output.contains("read and compared once in 10 s"), "{set:?}");
    damage(&servers, "n3", places_on_n3, &random);
    await_healed(&servers, BLOCKS_DAMAGED);
    load.await_answers(500);
    let before = scrub(&servers, "cold");
    await_passes(&servers, number(&before, "/passes") + 1);

    // Another owner goes on with the same dates and counts.
    let before = scrub(&servers, "cold");
    servers.must_run("n1", &["volume", "move", "cold", "--owner", "n3"]);
    let after = scrub(&servers, "cold");
    let is_no_less = |what: &str| number(&after, what) >= number(&before, what);
    assert!(
        ["/passes", "/oldest_unix_ms", "/found/blocks_healed"].iter().all(|what| is_no_less(what)),
        "{before}, {after}"
    );
    assert_eq!(number(&after, "/slabs_never_read"), 0, "{after}");
    assert_eq!(after["found"]["since_unix_ms"], before["found"]["since_unix_ms"]);

    // As does one whose server was killed, and a cluster that starts anew.
    await_passes(&servers, number(&after, "/passes") + 1);
    let end = load.end(&["n1", "n2"].map(|node| servers.nbd_address(node)));
    assert!(end.is_faultless(), "{end:?}");
    let names = ["n1", "n2", "n3"];
    servers.kill("n3");
    servers.restart("n3");
    servers.await_health("n2");
    servers.stop_together(&names);
    servers.restart_together(&names);
    servers.await_health("n2");
    let anew = scrub(&servers, "cold");
    assert!(number(&anew, "/found/blocks_healed") >= BLOCKS_DAMAGED as u64, "{anew}");
    assert_eq!(number(&anew, "/slabs_never_read"), 0, "{anew}");
    damage(&servers, "n1", places(&servers, "n1", "cold"), &random);
    await_healed(&servers, 2 * BLOCKS_DAMAGED);
    let verified = servers.run("n1", &["volume", "verify", "cold"]);
    assert!(is_whole(&verified), "{verified:#?}");
}

#[test]
fn a_scrub_that_is_off_reads_nothing_until_it_is_asked_for() {
    let random = Random::new(6);
    let servers = servers_with_a_written_volume();
    for (period, code, why) in [
        ("5s", "TIME_TOO_SHORT", "the end of each pass is written to the cluster's state"),
        ("60w", "TIME_TOO_LONG", "the other copies may be lost already"),
    ] {
        let refused = servers.run("n1", &["pool", "set", "--scrub-period", period]);
        assert!(refused.errors.contains(code) && refused.errors.contains(why), "{refused:?}");
    }
    servers.must_run("n1", &["pool", "set", "--scrub-period", "10s"]);
    await_passes(&servers, 1);
    let off = servers.must_run("n1", &["pool", "set", "--scrub-period", "off"]);
    assert!(off.output.contains("only when asked for"), "{off:?}");

    let places_on_n2 = places(&servers, "n2", "cold");
    servers.create_volume("n1", "hot", &["--size", "16M", "--copies", "3"]);
    let load = LoadThread::start(servers.nbd_address("n1"), "hot", VOLUME_BYTES, 1, LoadOptions::default());
    // A slab that was begun is read yet.
    load.await_answers(REQUESTS_FOR_A_WHILE);
    let before = scrub(&servers, "cold");
    damage(&servers, "n2", places_on_n2, &random);
    load.await_answers(2 * REQUESTS_FOR_A_WHILE);
    assert_eq!(scrub(&servers, "cold"), before, "nothing is read by itself");
    let end = load.end(&[servers.nbd_address("n1")]);
    assert!(end.is_faultless(), "{end:?}");

    let shown = servers.must_run("n1", &["explain", "volume", "cold"]);
    assert!(shown.output.contains("nothing is read and compared by itself"), "{shown:?}");
    let scrubbed = servers.must_run("n1", &["scrub", "cold"]);
    assert!(scrubbed.output.contains("whole") && !scrubbed.output.contains("NOT WHOLE"), "{scrubbed:?}");
    let after = scrub(&servers, "cold");
    let healed = number(&after, "/found/blocks_healed") - number(&before, "/found/blocks_healed");
    assert_eq!(healed, BLOCKS_DAMAGED as u64, "{after}");
    assert_eq!(number(&after, "/slabs/done"), 4, "{after}");
    let shown = servers.must_run("n2", &["scrub", "status"]);
    assert!(shown.output.contains("cold") && shown.output.contains("off"), "{shown:?}");
    let shown = servers.must_run("n3", &["volume", "get", "cold"]);
    assert!(shown.output.contains("found 20 blocks damaged (20 healed)"), "{shown:?}");
    let unknown = servers.run("n1", &["scrub", "status", "nothing"]);
    assert!(unknown.errors.contains("VOLUME_NOT_FOUND"), "{unknown:?}");
}
