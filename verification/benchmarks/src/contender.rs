//! Whoever is measured: how it is started, and how fio reaches it.
//!
//! Invariants:
//! - When a contender is dropped, its processes are gone; its folder goes with the run.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::cell::Medium;
use crate::processor_time::{Mark, now};

/// How long a program may take until it serves.
const START_TIME_MAX: Duration = Duration::from_secs(120);

/// How often it is asked for.
const INTERVAL: Duration = Duration::from_millis(20);

/// What a contender is started with.
#[derive(Clone, Debug)]
pub struct Setup {
    /// An empty folder of its own, on the medium.
    pub folder: PathBuf,
    /// What the folder is on.
    pub medium: Medium,
    /// How much it is to offer.
    pub size_bytes: u64,
    /// The program `spandrel`.
    pub spandrel: PathBuf,
    /// What all its processes bear.
    pub mark: Mark,
}

impl Setup {
    /// Makes the file that a server of one serves: as large as it is to be, and empty.
    pub fn make_file(&self) -> Result<PathBuf, String> {
        let path = self.folder.join("file");
        File::create(&path)
            .and_then(|file| file.set_len(self.size_bytes))
            .map_err(|error| format!("{} cannot be made: {error}", path.display()))?;
        Ok(path)
    }
}

/// One that has been started, and serves until this is dropped.
pub struct Contender {
    /// What fio is told to reach each of what it offers, as a rule one: the engine, and what that needs to know.
    pub reach: Vec<Vec<String>>,
    /// Variables of fio's environment.
    pub environment: Vec<(&'static str, PathBuf)>,
    /// In the order in which they end.
    pub servers: Vec<Server>,
}

/// One that can be started.
#[derive(Clone, Copy)]
pub struct Known {
    /// What it is called, also to choose it.
    pub name: &'static str,
    /// What of it keeps how many copies, for people.
    pub what: &'static str,
    /// Programs that must be there, each with Debian's package.
    pub needs: &'static [(&'static str, &'static str)],
    /// Starts it. When this returns it serves.
    pub start: fn(&Setup) -> Result<Contender, String>,
}

impl Known {
    /// The packages of programs that it needs and that are not there.
    pub fn missing(&self) -> Vec<&'static str> {
        let is_missing = |(program, _): &&(&str, &str)| !is_on_path(program);
        self.needs.iter().filter(is_missing).map(|(_, package)| *package).collect()
    }
}

fn is_on_path(program: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(program).is_file())
}

/// A program that serves until this is dropped.
pub struct Server {
    child: Child,
    /// What it says.
    log: PathBuf,
}

impl Server {
    /// Starts a program; what it says goes to `NAME.log` in the folder.
    pub fn start(command: &mut Command, folder: &Path, name: &str) -> Result<Self, String> {
        let log = folder.join(format!("{name}.log"));
        let open = || File::options().create(true).append(true).open(&log);
        let (output, errors) = open()
            .and_then(|output| Ok((output, open()?)))
            .map_err(|error| format!("what {name} says cannot be kept in {}: {error}", log.display()))?;
        let started = command.stdin(Stdio::null()).stdout(output).stderr(errors).spawn();
        let child = started.map_err(|error| format!("{name} cannot be started: {error}"))?;
        Ok(Self { child, log })
    }

    /// Its process.
    pub fn process_number(&self) -> u32 {
        self.child.id()
    }

    /// All that it has said so far.
    pub fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Waits until it serves. It fails if the program ends before, or takes too long.
    pub fn await_that(&mut self, what: &str, condition: impl Fn(&Self) -> bool) -> Result<(), String> {
        let deadline = now() + START_TIME_MAX;
        while !condition(self) {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("it ended before {what} ({status}):\n{}", self.said()));
            }
            if now() >= deadline {
                return Err(format!("it takes too long until {what}:\n{}", self.said()));
            }
            // tidy-allow(sleep): the condition is another process's, which can only be asked again.
            std::thread::sleep(INTERVAL);
        }
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let process = rustix::process::Pid::from_child(&self.child);
        // In order, so that its own children end with it.
        let _ = rustix::process::kill_process(process, rustix::process::Signal::TERM);
        let deadline = now() + Duration::from_secs(10);
        while matches!(self.child.try_wait(), Ok(None)) && now() < deadline {
            // tidy-allow(sleep): the condition is another process's, which can only be asked again.
            std::thread::sleep(INTERVAL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its end, which must be a good one, and returns what it has said.
pub fn run(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{command:?} cannot be started: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    match output.status.success() {
        true => Ok(said),
        false => {
            let errors = String::from_utf8_lossy(&output.stderr);
            Err(format!("{command:?}: {}\n{said}{errors}", output.status))
        }
    }
}

/// What fio is told of an export on a unix socket.
pub fn nbd(export: &str, socket: &Path) -> Vec<String> {
    vec!["--ioengine=nbd".to_owned(), format!("--uri=nbd+unix:///{export}?socket={}", socket.display())]
}

/// Whether something accepts connections on a unix socket.
pub fn accepts(socket: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(socket).is_ok()
}
