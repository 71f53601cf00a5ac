//! A cluster for as long as a command takes: a child process in a temporary directory.
//!
//! Invariants:
//! - The process ends and the directory goes when the cluster is dropped, or the command is interrupted.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use spandrel_shared::Error;
use tempfile::TempDir;

use crate::directory::Directory;
use crate::failure::system_error;
use crate::interrupt::{Guard, remove_on_interrupt};

/// How long the cluster may take to end in order.
const STOP_TIME_MAX: Duration = Duration::from_secs(20);

/// A cluster that is removed with all it made when it is dropped.
pub struct TemporaryCluster {
    directory: Directory,
    parts: Arc<Mutex<Option<Parts>>>,
    _guard: Guard,
}

struct Parts {
    process: Child,
    temporary: TempDir,
}

impl TemporaryCluster {
    /// Starts a cluster as `spandrel up` with these options does, and waits until it is ready. `on_line` hears what it says
    /// until then, `room` says in words what it takes.
    pub fn start(options: &[&str], room: &str, on_line: impl FnMut(&str)) -> Result<Self, Error> {
        let failed = |error: std::io::Error| system_error("a temporary cluster cannot be started", &error);
        let temporary = tempfile::Builder::new().prefix("spandrel-").tempdir().map_err(failed)?;
        let directory = Directory::choose(Some(&temporary.path().join("d")))?;
        let errors = temporary.path().join("errors");
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("up").args(options).arg("--dir").arg(directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&errors).map_err(failed)?);
        // Ctrl-C is for this process, which ends the other one.
        command.process_group(0);
        let mut process = command.spawn().map_err(failed)?;
        let output = process.stdout.take().expect("it is piped");
        let parts = Arc::new(Mutex::new(Some(Parts { process, temporary })));
        let for_interrupt = Arc::clone(&parts);
        let guard = remove_on_interrupt(move || {
            let _ = remove(&for_interrupt, Duration::ZERO);
        });
        let cluster = Self { directory, parts, _guard: guard };
        if hear_until_ready(BufReader::new(output), on_line) {
            return Ok(cluster);
        }
        let why = std::fs::read_to_string(&errors).unwrap_or_default();
        let why = if why.trim().is_empty() {
            "it ended before it was ready".to_owned()
        } else {
            why.trim().to_owned()
        };
        Err(Error::new(
            "TEMPORARY_CLUSTER_FAILED",
            "the cluster for this command did not start",
            why,
            format!("see the reason above; it takes {room}"),
        ))
    }

    /// Its directory.
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Ends the cluster in order and removes all it made.
    pub fn remove(self) -> Result<(), Error> {
        remove(&self.parts, STOP_TIME_MAX)
    }
}

impl Drop for TemporaryCluster {
    fn drop(&mut self) {
        let _ = remove(&self.parts, Duration::ZERO);
    }
}

/// Hears the lines of a cluster that starts. Returns whether it became ready.
fn hear_until_ready(output: impl BufRead + Send + 'static, mut on_line: impl FnMut(&str)) -> bool {
    let mut lines = output.lines();
    while let Some(Ok(line)) = lines.next() {
        on_line(&line);
        if line.starts_with("ready:") {
            // What else it says must be read, or it waits for that.
            std::thread::spawn(move || lines.for_each(drop));
            return true;
        }
    }
    false
}

/// Ends the process, in order if it does so within `patience`, and removes the directory.
fn remove(parts: &Mutex<Option<Parts>>, patience: Duration) -> Result<(), Error> {
    let taken = parts.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(Parts { process, temporary }) = taken else { return Ok(()) };
    let stopped_in_order = end(process, patience);
    let path = temporary.path().to_owned();
    temporary.close().map_err(|error| not_removed(&path, &error))?;
    if patience.is_zero() || stopped_in_order {
        return Ok(());
    }
    Err(Error::new(
        "TEMPORARY_CLUSTER_FAILED",
        "the cluster for this command did not end in order",
        format!("it was told to, and did not do so within {} s", patience.as_secs()),
        "report this with the machine that it happened on",
    ))
}

/// Ends the process: in order if it does so within `patience`, else at once. Returns whether it
/// ended well.
fn end(mut process: Child, patience: Duration) -> bool {
    let pid = Pid::from_raw(process.id() as i32).expect("a process has a number");
    let (sender, ended) = mpsc::channel();
    // Until it has been waited for, which is there, the number is the process's own.
    let waiter = std::thread::spawn(move || {
        let _ = sender.send(process.wait().is_ok_and(|status| status.success()));
    });
    let tell = |signal| {
        // If it has ended already, there is nobody to tell.
        let _ = kill_process(pid, signal);
    };
    if !patience.is_zero() {
        tell(Signal::TERM);
    }
    let ended_well = ended.recv_timeout(patience);
    if ended_well.is_err() {
        tell(Signal::KILL);
    }
    let _ = waiter.join();
    ended_well.unwrap_or(false)
}

fn not_removed(path: &Path, error: &std::io::Error) -> Error {
    Error::new(
        "TEMPORARY_CLUSTER_LEFT",
        format!("{} is left over", path.display()),
        error.to_string(),
        "remove it by hand",
    )
}
