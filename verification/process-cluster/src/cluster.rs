//! A cluster in one process, from outside: `spandrel up` in a directory of its own, the commands
//! against it, and its death.
//!
//! Invariants:
//! - When a cluster is dropped, its process is dead and its directory is gone.
//! - What the process said is shown when a test fails.

use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::Duration;

use spandrel_platform::Address;
use tempfile::TempDir;

use crate::daemon::{CommandOutput, Daemon, KillSwitch, new_directory};
use crate::guest::end_guests;
use crate::program::Program;

/// Put before the location of each drive by a program with the feature `test-faults`.
pub const PREFIX_VARIABLE: &str = "SPANDREL_TEST_DRIVE_PREFIX";

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
    // Before the directory, so that its process ends first.
    daemon: Daemon,
    directory: TempDir,
}

impl Cluster {
    /// Makes a new cluster and starts it.
    ///
    /// # Panics
    ///
    /// If it does not come to serve.
    pub fn start(program: Program, options: ClusterOptions) -> Self {
        Self::start_at(new_directory(), program, options)
    }

    /// The same on a disk, for what is measured.
    ///
    /// # Panics
    ///
    /// If it does not come to serve.
    pub fn start_on_disk(program: Program, options: ClusterOptions) -> Self {
        let mut builder = tempfile::Builder::new();
        let directory = builder.prefix("spandrel-test-").tempdir_in("/var/tmp");
        Self::start_at(directory.expect("a directory can be made"), program, options)
    }

    fn start_at(directory: TempDir, program: Program, options: ClusterOptions) -> Self {
        let arguments = std::iter::once("up".to_owned()).chain(options.arguments).collect();
        let mut daemon = Daemon::new(program, directory.path(), arguments);
        daemon.set_variable(PREFIX_VARIABLE, &options.drive_prefix);
        daemon.start();
        Self { daemon, directory }
    }

    /// The cluster's directory.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The file that is a drive of a node: `drive_file("n1", "d1")`.
    pub fn drive_file(&self, node: &str, drive: &str) -> PathBuf {
        self.directory().join(node).join(format!("{drive}.drive"))
    }

    /// Reads a drive that no node has open, `spandrel drive inspect`, with the cache drives of its node.
    pub fn inspect(&self, drive: &Path, options: &[&str]) -> CommandOutput {
        let plain = |path: &Path| path.to_str().expect("temporary directories have plain names").to_owned();
        let mut arguments = vec!["drive".to_owned(), "inspect".to_owned(), plain(drive)];
        for cache in (1..).map(|number| drive.with_file_name(format!("c{number}.drive"))) {
            if !cache.exists() {
                break;
            }
            arguments.extend(["--cache".to_owned(), plain(&cache)]);
        }
        let arguments: Vec<&str> =
            arguments.iter().map(String::as_str).chain(options.iter().copied()).collect();
        self.run(&arguments)
    }

    /// Where a node serves NBD.
    pub fn nbd_address(&self, node: &str) -> Address {
        let path = self.directory().join(node).join("nbd.sock");
        Address::Unix(path.to_str().expect("temporary directories have plain names").to_owned())
    }

    /// Sets what stands before the location of each drive from the next start on.
    pub fn set_drive_prefix(&mut self, prefix: &str) {
        self.daemon.set_variable(PREFIX_VARIABLE, prefix);
    }

    /// Sets of how many shards each node is from the next start on.
    pub fn set_shards(&mut self, shards: u64) {
        self.daemon.set_option("--shards", &shards.to_string());
    }

    /// Starts the process again and waits until the cluster serves. The former one must be dead.
    ///
    /// # Panics
    ///
    /// If it does not come to serve.
    pub fn restart(&mut self) {
        self.daemon.start();
    }

    /// Starts the process and kills it after a while, whatever it is doing then.
    pub fn restart_and_kill(&mut self, after: Duration) {
        let is_ready = self.daemon.begin();
        // Nobody waits for what it comes to: this is about all that it may be doing until then.
        let _ = is_ready.recv_timeout(after);
        self.kill();
    }

    /// All that the processes have said, and what the last one has logged.
    pub fn log(&self) -> String {
        self.daemon.log()
    }

    /// Kills the process, now or later.
    ///
    /// # Panics
    ///
    /// If no process was started.
    pub fn kill_switch(&self) -> KillSwitch {
        self.daemon.kill_switch()
    }

    /// Kills the process by SIGKILL, if it runs, and waits until it is gone.
    pub fn kill(&mut self) {
        self.daemon.kill();
    }

    /// Ends the process in order, by SIGTERM, and waits until it is gone.
    ///
    /// # Panics
    ///
    /// If it does not end well.
    pub fn stop(&mut self) {
        self.daemon.stop();
    }

    /// Runs a command against the cluster.
    pub fn run(&self, arguments: &[&str]) -> CommandOutput {
        self.daemon.run(arguments)
    }

    /// Runs a command against the cluster, with what it reads: less than a pipe holds.
    pub fn run_with_input(&self, arguments: &[&str], input: &str) -> CommandOutput {
        self.daemon.run_with_input(arguments, input)
    }

    /// Begins a command that goes on by itself, and reads what is written to its standard input. What it prints goes to the file `shown`.
    pub fn begin(&self, arguments: &[&str], shown: &Path) -> Child {
        self.daemon.begin_command(arguments, shown)
    }

    /// Runs a command that must succeed.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn must_run(&self, arguments: &[&str]) -> CommandOutput {
        self.daemon.must_run(arguments)
    }

    /// Waits until `spandrel status` says what is asked for.
    ///
    /// # Panics
    ///
    /// If it does not come to that.
    pub fn await_status(&self, what: &str, condition: impl Fn(&serde_json::Value) -> bool) {
        self.daemon.await_answer(&["status", "-o", "json"], what, condition);
    }

    /// Waits until all volumes are healthy.
    ///
    /// # Panics
    ///
    /// If one does not become so.
    pub fn await_health(&self) {
        self.await_status("healthy", volumes_are_healthy);
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Virtual machines outlive a process that is killed.
        self.daemon.kill();
        end_guests(self.directory.path());
    }
}

/// Whether `spandrel status` says that all volumes are healthy.
pub fn volumes_are_healthy(status: &serde_json::Value) -> bool {
    let is_healthy = |volume: &serde_json::Value| volume["status"]["health"] == "Healthy";
    status["volumes"].as_array().is_some_and(|volumes| volumes.iter().all(is_healthy))
}
