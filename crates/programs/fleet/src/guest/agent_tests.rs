use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::super::words::Plan;
use super::*;
use crate::cell::{fill, run_cell};
use crate::live::LiveLoad;
use crate::load_thread::Task;
use crate::spec::CellSpec;
use crate::times::LoadTimes;

const DRIVE_BYTES: u64 = 4 << 20;

fn spec() -> CellSpec {
    CellSpec {
        warmup: Duration::from_millis(50),
        duration: Duration::from_millis(300),
        write_percent: 50,
        outstanding: 2,
        write_source_bytes: 64 << 10,
        intervals: true,
        ..CellSpec::default()
    }
}

/// A machine whose guest has a drive, and whose port is a socket in a folder.
fn guest(folder: &Path, name: &str) -> Target {
    let drive = folder.join(name);
    File::create(&drive).unwrap().set_len(DRIVE_BYTES).unwrap();
    let drive = drive.display().to_string();
    behind_socket(folder, name, move |stream| {
        let orders = stream.try_clone().unwrap();
        GuestAgent::new(drive.clone(), stream).serve(orders, || false);
    })
}

/// A target at whose socket `serves` has each connection.
fn behind_socket(folder: &Path, name: &str, serves: impl Fn(UnixStream) + Send + 'static) -> Target {
    let socket: PathBuf = folder.join(format!("{name}.sock"));
    let listener = UnixListener::bind(&socket).unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(serves));
    Target::at(name, TargetPlace::Guest(socket.display().to_string()))
}

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn a_load_runs_in_guests_and_its_counts_come_out() {
    let folder = folder();
    let targets = ["vm1", "vm2"].map(|name| guest(folder.path(), name));
    fill(&targets, None, 1, |_, _| {}).unwrap();
    for name in ["vm1", "vm2"] {
        let content = std::fs::read(folder.path().join(name)).unwrap();
        assert!(content.chunks(512).all(|sector| sector.iter().any(|byte| *byte != 0)), "{name} is filled");
    }
    let result = run_cell(&targets, &spec()).unwrap();
    assert!(!result.has_failures(), "{result:?}");
    assert_eq!(result.clients.iter().map(|client| client.name.as_str()).collect::<Vec<_>>(), ["vm1", "vm2"]);
    assert!(
        result.clients.iter().all(|client| client.read.count > 0 && client.write.count > 0),
        "{result:?}"
    );
    let counted: u64 = result.intervals.iter().map(|interval| interval.reads + interval.writes).sum();
    assert_eq!(counted, result.total.count);
    assert!(result.answered >= result.total.count && result.total.latency.is_some());
    assert!(result.generator.cpu_seconds > 0.0 && result.generator.busiest_thread_percent > 0.0);
}

#[test]
fn a_load_in_guests_ends_when_it_is_stopped() {
    let folder = folder();
    let targets = ["vm1", "vm2"].map(|name| guest(folder.path(), name));
    let mut load = LiveLoad::start(&targets, &CellSpec { warmup: Duration::ZERO, ..spec() }).unwrap();
    // Guests tell twice a second how far they are.
    let mut have_told = [false; 2];
    while have_told != [true; 2] {
        for (has_told, client) in have_told.iter_mut().zip(load.sample().clients) {
            *has_told |= client.iops > 0.0;
        }
        std::thread::yield_now();
    }
    let result = load.stop().unwrap();
    assert!(!result.has_failures(), "{result:?}");
    assert!(result.clients.iter().all(|client| client.total.count > 0), "{result:?}");
}

#[test]
fn what_a_guest_cannot_do_it_says() {
    let folder = folder();
    let target = guest(folder.path(), "vm1");
    let error = run_cell(&[target], &CellSpec { working_set_bytes: Some(2 * DRIVE_BYTES), ..spec() });
    assert_eq!(error.unwrap_err().code, "FLEET_VOLUME_UNFIT");
}

/// Answers the first order of a session, and says whose it was.
fn answer(stream: &UnixStream, word: Said) -> u64 {
    let mut line = String::new();
    let mut lines = BufReader::new(stream);
    while line.trim().is_empty() {
        line.clear();
        lines.read_line(&mut line).unwrap();
    }
    let heard: Line<Order> = serde_json::from_str(&line).unwrap();
    let mut stream = stream;
    stream.write_all(&Line { session: heard.session, word }.to_bytes()).unwrap();
    heard.session
}

#[test]
fn a_guest_that_ends_in_the_middle_is_a_client_that_is_lost() {
    let folder = folder();
    let ends = behind_socket(folder.path(), "vm1", |stream| {
        let _ = answer(&stream, Said::Ready);
    });
    let result = run_cell(&[ends, guest(folder.path(), "vm2")], &spec()).unwrap();
    assert_eq!((result.clients_lost, result.clients[0].is_lost), (1, true), "{result:?}");
    assert!(result.failures[0].reason.contains("the virtual machine has ended"), "{result:?}");
    assert!(result.clients[1].total.count > 0);
}

#[test]
fn a_guest_that_is_gone_before_it_begins_is_an_error() {
    let folder = folder();
    let silent = behind_socket(folder.path(), "vm1", drop);
    assert_eq!(run_cell(&[silent], &spec()).unwrap_err().code, "FLEET_GUEST_SILENT");
}

/// Says an order to an agent.
fn say(fleet: &mut UnixStream, session: u64, word: Order) {
    fleet.write_all(&Line { session, word }.to_bytes()).unwrap();
}

#[test]
fn an_agent_leaves_a_session_that_nobody_goes_on_with() {
    let folder = folder();
    let drive = folder.path().join("drive");
    File::create(&drive).unwrap().set_len(DRIVE_BYTES).unwrap();
    let (mut fleet, port) = UnixStream::pair().unwrap();
    let orders = port.try_clone().unwrap();
    let agent = std::thread::spawn(move || {
        GuestAgent::new(drive.display().to_string(), port).serve(orders, || false);
    });
    let prepare = || {
        let spec = CellSpec { duration: Duration::from_secs(3600), ..spec() };
        Order::Prepare(Box::new(Preparation { client: 3, name: "vm".to_owned(), task: Task::Load, spec }))
    };
    let plan =
        Plan::of(&LoadTimes::of_cell(&CellSpec { duration: Duration::from_secs(3600), ..spec() }, now()));
    let lines = BufReader::new(fleet.try_clone().unwrap()).lines();
    let mut said = lines.map(|line| serde_json::from_str::<Line<Said>>(&line.unwrap()).unwrap());
    fleet.write_all(b"half a word\n").unwrap();
    say(&mut fleet, 1, Order::Stop);
    say(&mut fleet, 2, prepare());
    assert!(matches!(said.next(), Some(Line { session: 2, word: Said::Ready })));
    // One that was never begun, and then one that would take an hour.
    say(&mut fleet, 3, prepare());
    assert!(matches!(said.next(), Some(Line { session: 3, word: Said::Ready })));
    say(&mut fleet, 3, Order::Start(plan));
    say(&mut fleet, 4, prepare());
    let last = said.find(|line| line.session == 4).unwrap();
    assert!(matches!(last.word, Said::Ready), "{last:?}");
    drop((fleet, said));
    agent.join().unwrap();
}
