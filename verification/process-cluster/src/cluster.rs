//! A cluster in one process, from outside: `spandrel up` in a directory of its own, the commands
//! against it, and its death.
//!
//! Invariants:
//! - When a cluster is dropped, its process is dead and its directory is gone.
//! - What the process said is shown when a test fails.

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use spandrel_platform::Address;
use tempfile::TempDir;

use crate::program::Program;

/// How long a cluster may take until it serves.
const READY_TIME_MAX: Duration = Duration::from_secs(120);

/// How long a cluster may take to become what it should be.
const HEALING_TIME_MAX: Duration = Duration::from_secs(120);

/// What begins the line that says that a cluster serves.
const READY_LINE: &str = "ready:";

/// Put before the location of each drive by a program with the feature `test-faults`.
const PREFIX_VARIABLE: &str = "SPANDREL_TEST_DRIVE_PREFIX";

/// What a cluster consists of.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Arguments of `spandrel up`.
    pub arguments: Vec<String>,
    /// What stands before the location of each drive, as `volatile:`; empty for plain files.
    pub drive_prefix: String,
}

/// A cluster that runs, or has run.
pub struct Cluster {
    program: Program,
    options: ClusterOptions,
    directory: TempDir,
    running: Option<Running>,
    log: Arc<Mutex<String>>,
}

struct Running {
    child: Arc<Mutex<Child>>,
    readers: Vec<JoinHandle<()>>,
}

/// Kills a cluster's process, from any thread and at any moment.
#[derive(Clone)]
pub struct KillSwitch {
    child: Arc<Mutex<Child>>,
}

impl KillSwitch {
    /// The process dies at once, by SIGKILL.
    pub fn kill(&self) {
        let mut child = self.child.lock().expect("nobody panics with the lock");
        // That it is dead already is as good.
        let _ = child.kill();
    }
}

/// What a command has said, and how it ended.
#[derive(Clone, Debug)]
pub struct CommandOutput {
    /// The exit status; `None` if it was killed.
    pub status: Option<i32>,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub errors: String,
}

impl CommandOutput {
    /// Standard output as JSON.
    ///
    /// # Panics
    ///
    /// If it is none.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.output).unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }
}

impl Cluster {
    /// Makes a new cluster and starts it.
    ///
    /// # Panics
    ///
    /// If it does not come to serve.
    pub fn start(program: Program, options: ClusterOptions) -> Self {
        let directory = new_directory();
        let mut cluster = Self { program, options, directory, running: None, log: Arc::default() };
        cluster.restart();
        cluster
    }

    /// The cluster's directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The file that is a drive of a node: `drive_file("n1", "d1")`.
    pub fn drive_file(&self, node: &str, drive: &str) -> PathBuf {
        self.directory().join(node).join(format!("{drive}.drive"))
    }

    /// Where a node serves NBD.
    pub fn nbd_address(&self, node: &str) -> Address {
        let path = self.directory().join(node).join("nbd.sock");
        Address::Unix(path.to_str().expect("temporary directories have plain names").to_owned())
    }

    /// Sets what stands before the location of each drive from the next start on.
    pub fn set_drive_prefix(&mut self, prefix: &str) {
        prefix.clone_into(&mut self.options.drive_prefix);
    }

    /// Starts the process again and waits until the cluster serves. The former one must be dead.
    ///
    /// # Panics
    ///
    /// If it does not come to serve.
    pub fn restart(&mut self) {
        let is_ready = self.begin();
        self.await_ready(&is_ready);
    }

    /// Starts the process and kills it after a while, whatever it is doing then.
    pub fn restart_and_kill(&mut self, after: Duration) {
        let is_ready = self.begin();
        // Nobody waits for what it comes to: this is about all that it may be doing until then.
        let _ = is_ready.recv_timeout(after);
        self.kill();
    }

    fn begin(&mut self) -> Receiver<()> {
        self.reap();
        let mut child = self
            .command(&["up"])
            .args(&self.options.arguments)
            .env(PREFIX_VARIABLE, &self.options.drive_prefix)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be started");
        let (ready, is_ready) = channel();
        let readers = [
            child.stdout.take().map(|pipe| {
                self.collect(pipe, move |line| {
                    if line.starts_with(READY_LINE) {
                        let _ = ready.send(());
                    }
                })
            }),
            child.stderr.take().map(|pipe| self.collect(pipe, |_| {})),
        ];
        let readers = readers.into_iter().flatten().collect();
        self.running = Some(Running { child: Arc::new(Mutex::new(child)), readers });
        is_ready
    }

    fn await_ready(&self, is_ready: &Receiver<()>) {
        match is_ready.recv_timeout(READY_TIME_MAX) {
            Ok(()) => {}
            Err(RecvTimeoutError::Disconnected) => panic!("the cluster has ended:\n{}", self.log()),
            Err(RecvTimeoutError::Timeout) => panic!("the cluster does not serve:\n{}", self.log()),
        }
    }

    /// Takes what the process says into the log, line by line.
    fn collect(
        &self,
        pipe: impl Read + Send + 'static,
        mut look: impl FnMut(&str) + Send + 'static,
    ) -> JoinHandle<()> {
        let log = Arc::clone(&self.log);
        std::thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                look(&line);
                let mut log = log.lock().expect("nobody panics with the lock");
                log.push_str(&line);
                log.push('\n');
            }
        })
    }

    /// All that the processes have said, and what the last one has logged.
    pub fn log(&self) -> String {
        let mut text = self.log.lock().expect("nobody panics with the lock").clone();
        let logs = std::fs::read_dir(self.directory().join("log")).into_iter().flatten().flatten();
        for entry in logs {
            if let Ok(logged) = std::fs::read_to_string(entry.path()) {
                text.push_str(&format!("--- {}\n{logged}", entry.path().display()));
            }
        }
        text
    }

    /// Kills the process, now or later.
    ///
    /// # Panics
    ///
    /// If no process was started.
    pub fn kill_switch(&self) -> KillSwitch {
        let running = self.running.as_ref().expect("a cluster that was started");
        KillSwitch { child: Arc::clone(&running.child) }
    }

    /// Kills the process by SIGKILL, if it runs, and waits until it is gone.
    pub fn kill(&mut self) {
        if let Some(running) = &self.running {
            KillSwitch { child: Arc::clone(&running.child) }.kill();
        }
        self.reap();
    }

    /// Ends the process in order, by SIGTERM, and waits until it is gone.
    ///
    /// # Panics
    ///
    /// If it does not end well.
    pub fn stop(&mut self) {
        let running = self.running.take().expect("a cluster that was started");
        let mut child = running.child.lock().expect("nobody panics with the lock");
        let told = Command::new("kill").args(["-TERM", &child.id().to_string()]).status();
        assert!(told.is_ok_and(|status| status.success()), "the process is there to be told");
        let status = child.wait().expect("it is a child of this process");
        drop(child);
        running.readers.into_iter().for_each(|reader| drop(reader.join()));
        assert!(status.success(), "the cluster did not end well ({status}):\n{}", self.log());
    }

    /// Waits for a process that is dead or about to be.
    fn reap(&mut self) {
        let Some(running) = self.running.take() else { return };
        let mut child = running.child.lock().expect("nobody panics with the lock");
        let _ = child.wait();
        drop(child);
        running.readers.into_iter().for_each(|reader| drop(reader.join()));
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program.path());
        command.arg("--dir").arg(self.directory()).args(arguments);
        command
    }

    /// Runs a command against the cluster.
    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        let output =
            self.command(arguments).stdin(Stdio::null()).output().expect("the program can be started");
        CommandOutput {
            status: output.status.code(),
            output: String::from_utf8_lossy(&output.stdout).into_owned(),
            errors: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Waits until `spandrel status` says what is asked for.
    ///
    /// # Panics
    ///
    /// If it does not come to that.
    pub fn await_status(&self, what: &str, condition: impl Fn(&serde_json::Value) -> bool) {
        let deadline = Instant::now() + HEALING_TIME_MAX;
        loop {
            let status = self.must_run(&["status", "-o", "json"]).json();
            if condition(&status) {
                return;
            }
            assert!(Instant::now() < deadline, "not {what}: {status:#}\n{}", self.log());
            // tidy-allow(sleep): the condition is another process's, which can only be asked again.
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until all volumes are healthy.
    ///
    /// # Panics
    ///
    /// If one does not become so.
    pub fn await_health(&self) {
        let is_healthy = |volume: &serde_json::Value| volume["status"]["health"] == "Healthy";
        self.await_status("healthy", |status| {
            status["volumes"].as_array().is_some_and(|volumes| volumes.iter().all(is_healthy))
        });
    }

    /// Runs a command that must succeed.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn must_run(&self, arguments: &[&str]) -> CommandOutput {
        let output = self.run(arguments);
        assert_eq!(output.status, Some(0), "{arguments:?}: {output:#?}\n{}", self.log());
        output
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("what the cluster said:\n{}", self.log());
        }
    }
}

/// A new directory: in memory if that can be had, since it is the killed process that loses what it
/// had not flushed, and no machine's power fails here.
fn new_directory() -> TempDir {
    let mut builder = tempfile::Builder::new();
    builder.prefix("spandrel-test-");
    builder.tempdir_in("/dev/shm").or_else(|_| builder.tempdir()).expect("a directory can be made")
}
