//! The process of a member: found or started, watched, ended.

use std::ffi::OsString;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use futures_channel::oneshot;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use spandrel_shared::Error;

use super::arguments::arguments;
use super::{MemberSettings, Paths};

/// How long a process may take to end in order.
const STOP_TIME_MAX: Duration = Duration::from_secs(5);

/// How often it is looked whether anybody still wants to know of a process's end.
const LOOK_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A log longer than this is put aside when a process starts.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// How much of the log's end is looked at for the last line.
const LOG_END_BYTES: u64 = 4096;

/// The oldest etcd that will do: the first with learners.
const VERSION_MIN: (u32, u32) = (3, 4);

/// A member's process that runs, or has run.
pub struct MemberProcess {
    id: Pid,
    handle: Arc<OwnedFd>,
    /// Hears of its end.
    end: oneshot::Receiver<()>,
    /// None if an earlier run of the node started it.
    child: Option<Child>,
    log: PathBuf,
}

impl MemberProcess {
    /// The process that runs already, if it runs with the same arguments; else a new one.
    pub async fn take_over_or_start(settings: &MemberSettings) -> Result<Self, Error> {
        let failed = |error: std::io::Error| not_started(settings, &error.to_string());
        std::fs::create_dir_all(&settings.folder).map_err(failed)?;
        if let Some((mut process, running)) = Self::find(settings).map_err(failed)? {
            if running == arguments(settings) {
                tracing::info!(process = process.id(), "etcd runs already: taken over");
                return Ok(process);
            }
            tracing::info!(process = process.id(), "etcd runs with other settings: starting it anew");
            process.stop().await;
        }
        Self::start(settings).map_err(failed)
    }

    /// The process that was started last, if it still runs, and what it was started with.
    fn find(settings: &MemberSettings) -> std::io::Result<Option<(Self, Vec<OsString>)>> {
        let paths = Paths(&settings.folder);
        let Ok(noted) = std::fs::read_to_string(paths.process()) else { return Ok(None) };
        let Some(id) = noted.trim().parse().ok().and_then(Pid::from_raw) else { return Ok(None) };
        // Opened before it is looked at: so what is looked at is what is meant from here on.
        let Ok(process) = Self::open(id, None, settings) else { return Ok(None) };
        let Ok(line) = std::fs::read(format!("/proc/{}/cmdline", process.id())) else { return Ok(None) };
        let words = line.split(|byte| *byte == 0).skip(1).filter(|word| !word.is_empty());
        let words: Vec<OsString> = words.map(|word| std::ffi::OsStr::from_bytes(word).to_owned()).collect();
        // Another process may have got the number since.
        let data = paths.data().into_os_string();
        let is_ours = words.windows(2).any(|pair| pair[0] == "--data-dir" && pair[1] == data);
        Ok(is_ours.then_some((process, words)))
    }

    fn start(settings: &MemberSettings) -> std::io::Result<Self> {
        let paths = Paths(&settings.folder);
        if std::fs::metadata(paths.log()).is_ok_and(|log| log.len() > LOG_BYTES_MAX) {
            std::fs::rename(paths.log(), paths.former_log())?;
        }
        let log = File::options().append(true).create(true).open(paths.log())?;
        let mut command = Command::new(&settings.program);
        command.args(arguments(settings)).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // What is set for another etcd on this machine is not for this one.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_bytes().starts_with(b"ETCD_")) {
            command.env_remove(name);
        }
        let mut child = command.spawn()?;
        let id = Pid::from_child(&child);
        let noted = std::fs::write(paths.process(), id.as_raw_nonzero().to_string());
        if let Err(error) = noted {
            // A process that nobody finds again must not go on.
            let _ = child.kill();
            let _ = child.wait();
            return Err(error);
        }
        Self::open(id, Some(child), settings)
    }

    fn open(id: Pid, child: Option<Child>, settings: &MemberSettings) -> std::io::Result<Self> {
        let handle = Arc::new(pidfd_open(id, PidfdFlags::empty())?);
        let end = await_end(Arc::clone(&handle))?;
        Ok(Self { id, handle, end, child, log: Paths(&settings.folder).log() })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits until it has ended: how, and the last that it said.
    pub async fn ended(&mut self) -> String {
        // Whoever is to tell cannot end without.
        let _ = (&mut self.end).await;
        let status = self.child.as_mut().and_then(|child| child.wait().ok());
        let status = status.map_or("it ended".to_owned(), |status| status.to_string());
        match last_line(&self.log) {
            Some(line) => format!("{status}; it said last: {line}"),
            None => status,
        }
    }

    /// Ends it: in order, which hands leadership over, or at once if it does not follow.
    pub async fn stop(&mut self) {
        for signal in [Signal::TERM, Signal::KILL] {
            // An error: it has ended.
            if pidfd_send_signal(&self.handle, signal).is_err() {
                break;
            }
            if tokio::time::timeout(STOP_TIME_MAX, self.ended()).await.is_ok() {
                return;
            }
        }
    }
}

/// Waits for a process's end on a thread of its own: it need not be a child of this one. The thread ends as well
/// when nobody wants to know any more.
fn await_end(process: Arc<OwnedFd>) -> std::io::Result<oneshot::Receiver<()>> {
    let (ended, end) = oneshot::channel();
    let thread = std::thread::Builder::new().name("spandrel-etcd-end".to_owned());
    thread.spawn(move || {
        while !ended.is_canceled() {
            // It can be read once the process has ended.
            match poll(&mut [PollFd::new(&process, PollFlags::IN)], Some(&LOOK_INTERVAL)) {
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => break,
                Err(error) => {
                    tracing::error!("the process of etcd cannot be watched: {error}");
                    break;
                }
            }
        }
        // Nobody may want to know any more.
        let _ = ended.send(());
    })?;
    Ok(end)
}

/// Whether `program` is an etcd that will do.
pub fn check_program(program: &Path) -> Result<(), Error> {
    let refuse = |code: &str, why: String| {
        let what = format!("the cluster's state cannot be kept by {}", program.display());
        Error::new(
            code,
            what,
            why,
            "install etcd 3.4 or later (Debian: etcd-server), or name one with --etcd",
        )
    };
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
    let output = output.map_err(|error| refuse("STATE_PROGRAM_MISSING", error.to_string()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    match version_of(&text) {
        Some(version) if version >= VERSION_MIN => Ok(()),
        Some((major, minor)) => Err(refuse("STATE_PROGRAM_TOO_OLD", format!("it is etcd {major}.{minor}"))),
        None => Err(refuse("STATE_PROGRAM_MISSING", format!("it is no etcd: it says {:?}", text.trim()))),
    }
}

/// The version that `etcd --version` tells.
fn version_of(text: &str) -> Option<(u32, u32)> {
    let version = text.lines().next()?.strip_prefix("etcd Version: ")?;
    let mut numbers = version.split('.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

/// The last line of a log.
fn last_line(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_END_BYTES))).ok()?;
    let mut end = Vec::new();
    file.read_to_end(&mut end).ok()?;
    let end = String::from_utf8_lossy(&end);
    end.lines().rev().find(|line| !line.trim().is_empty()).map(str::to_owned)
}

fn not_started(settings: &MemberSettings, why: &str) -> Error {
    Error::new(
        "STATE_MEMBER_NOT_STARTED",
        format!("the member {} of the cluster's state cannot be started", settings.name),
        why,
        format!("look at {} and at the rights to its folder", settings.folder.display()),
    )
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
