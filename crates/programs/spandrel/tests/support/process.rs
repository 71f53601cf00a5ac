//! The program as a process, for tests that look at it from outside.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// What a small cluster is started with: three nodes with a drive each.
pub const SMALL: [&str; 6] = ["--nodes", "3", "--drives", "1", "--drive-size", "64M"];

/// A directory for a cluster.
pub struct Lab {
    temporary: TempDir,
}

impl Lab {
    /// A new one.
    pub fn new() -> Self {
        Self { temporary: tempfile::Builder::new().prefix("sp").tempdir().expect("a temporary directory") }
    }

    /// The cluster's directory, which is not there at first.
    pub fn directory(&self) -> PathBuf {
        self.temporary.path().join("d")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spandrel"));
        command.args(arguments).env("SPANDREL_DIR", self.directory()).stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        Ran::new(self.command(arguments).output().expect("the program can be started"))
    }

    /// Starts a small cluster with drives in memory.
    #[allow(dead_code)] // Each test program uses its part.
    pub fn up_in_memory(&self) -> Cluster<'_> {
        self.up(&[&SMALL[..], &["--memory"]].concat())
    }

    /// Starts a cluster and waits until it is ready.
    pub fn up(&self, arguments: &[&str]) -> Cluster<'_> {
        let mut command = self.command(&["up"]);
        let mut process = command
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be started");
        let output = process.stdout.take().expect("it is piped");
        let mut cluster = Cluster { lab: self, process, banner: String::new() };
        let mut lines = BufReader::new(output).lines();
        for line in lines.by_ref() {
            let line = line.expect("it is text");
            cluster.banner += &format!("{line}\n");
            if line.starts_with("ready:") {
                // What else it says must be read, or it waits for that.
                std::thread::spawn(move || lines.for_each(drop));
                return cluster;
            }
        }
        let ended = cluster.end();
        panic!("it is not ready: {ended:?}");
    }
}

/// A cluster that runs. Dropping it kills it.
pub struct Cluster<'lab> {
    lab: &'lab Lab,
    process: Child,
    /// What it said until it was ready.
    pub banner: String,
}

impl Cluster<'_> {
    /// Runs a command against it.
    pub fn run(&self, arguments: &[&str]) -> Ran {
        self.lab.run(arguments)
    }

    /// Where a node serves NBD.
    #[allow(dead_code)] // Each test program uses its part.
    pub fn nbd_socket(&self, node: &str) -> String {
        self.lab.directory().join(node).join("nbd.sock").display().to_string()
    }

    /// Its threads: their names, and the cores that they may run on.
    #[allow(dead_code)] // Each test program uses its part.
    pub fn threads(&self) -> Vec<(String, String)> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.process.id())).expect("it runs");
        let told = |task: std::io::Result<std::fs::DirEntry>| {
            // One that ends meanwhile is no thread of it.
            let status = std::fs::read_to_string(task.ok()?.path().join("status")).ok()?;
            let of = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.map(|value| value.trim().to_owned())
            };
            of("Name:").zip(of("Cpus_allowed_list:"))
        };
        tasks.filter_map(told).collect()
    }

    /// Tells it to end and waits for that.
    pub fn stop(mut self, signal: Signal) -> Ran {
        let pid = Pid::from_raw(self.process.id() as i32).expect("a process has a number");
        kill_process(pid, signal).expect("it runs");
        self.end()
    }

    fn end(&mut self) -> Ran {
        let status = self.process.wait().expect("it is a child");
        let mut errors = String::new();
        if let Some(mut pipe) = self.process.stderr.take() {
            std::io::Read::read_to_string(&mut pipe, &mut errors).expect("it is text");
        }
        Ran { status: status.code(), output: self.banner.clone(), errors }
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ran {
    /// The exit status; `None` if it was killed.
    pub status: Option<i32>,
    /// Standard output.
    pub output: String,
    /// Standard error.
    pub errors: String,
}

impl Ran {
    fn new(output: Output) -> Self {
        Self {
            status: output.status.code(),
            output: String::from_utf8(output.stdout).expect("it is text"),
            errors: String::from_utf8(output.stderr).expect("it is text"),
        }
    }

    /// The output of a command that went well.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!(self.status, Some(0), "{self:?}");
        self.output
    }

    /// The same as JSON.
    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.good()).expect("it is JSON")
    }

    /// Checks that the command was refused with one clear error of this code.
    #[track_caller]
    pub fn refused(self, code: &str) {
        assert_eq!(self.status, Some(1), "{self:?}");
        let lines: Vec<&str> = self.errors.lines().collect();
        assert!(lines.len() >= 3, "{self:?}");
        assert!(lines[0].starts_with(&format!("error[{code}]: ")), "{self:?}");
        assert!(lines.iter().any(|line| line.starts_with("  why:   ") && line.len() > 12), "{self:?}");
        assert!(lines.iter().any(|line| line.starts_with("  next:  ") && line.len() > 12), "{self:?}");
        assert_eq!(self.errors.matches("error[").count(), 1, "one error: {self:?}");
    }
}

/// Everything below a directory, with the content of small files and the sizes of others.
#[allow(dead_code)] // Each test program uses its part.
pub fn content(path: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut entries = Vec::new();
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        let kind = entry.file_type().expect("it is there");
        if kind.is_dir() {
            entries.push((entry.path(), Vec::new()));
            entries.extend(content(&entry.path()));
        } else if kind.is_file() {
            let content = std::fs::read(entry.path()).expect("it can be read");
            entries.push((entry.path(), content));
        }
    }
    entries.sort();
    entries
}
