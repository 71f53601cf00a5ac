//! The process of a member: found or started, watched, ended.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Error as IoError, Read as _, Result as IoResult, Seek as _, SeekFrom};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_channel::oneshot;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, pidfd_open, pidfd_send_signal, waitid,
};
use spandrel_shared::Error;

use super::arguments::{arguments, is_of_the_beginning};
use super::{Beginning, MemberSettings, Paths};

/// How long a process may take to end in order: etcd waits some seconds for its clients first.
const STOP_TIME_MAX: Duration = Duration::from_secs(20);

/// How long one that was killed may take: the kernel may still write for it.
const KILL_TIME_MAX: Duration = Duration::from_secs(10);

/// How often it is looked whether anybody still wants to know of a process's end.
const LOOK_INTERVAL: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// A log longer than this is put aside when a process starts.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// How much of the log's end is looked at for the last line.
const LOG_END_BYTES: u64 = 4096;

/// The oldest etcd that will do: the first with learners.
const VERSION_MIN: (u32, u32) = (3, 4);

/// What says that this machine's kind is known to be none of etcd's favourites: the one setting in the environment
/// that is for every etcd.
const UNSUPPORTED_ARCH: &str = "ETCD_UNSUPPORTED_ARCH";

/// Tells a member's process to end: whichever runs at the moment, and any that comes after it.
#[derive(Clone, Default)]
pub struct Ender(Arc<Mutex<Ending>>);

#[derive(Default)]
struct Ending {
    is_wanted: bool,
    process: Option<Arc<Handle>>,
}

impl Ender {
    fn locked(&self) -> MutexGuard<'_, Ending> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it is this process.
    pub fn follow(&self, process: &MemberProcess) {
        let mut ending = self.locked();
        ending.process = Some(Arc::clone(&process.handle));
        ending.tell();
    }

    /// The process is told when this returns.
    pub fn end(&self) {
        let mut ending = self.locked();
        ending.is_wanted = true;
        ending.tell();
    }
}

impl Ending {
    fn tell(&self) {
        let Some(process) = self.process.as_ref().filter(|_| self.is_wanted) else { return };
        if let Err(error) = process.tell() {
            tracing::error!("etcd cannot be told to end: {error}");
        }
    }
}

/// A process, whatever its number comes to mean.
struct Handle {
    process: OwnedFd,
    /// Whether it was told to end in order.
    is_told: AtomicBool,
}

impl Handle {
    /// Tells the process to end in order, if nobody has.
    fn tell(&self) -> IoResult<()> {
        match self.is_told.swap(true, Ordering::Relaxed) {
            true => Ok(()),
            false => self.send(Signal::TERM),
        }
    }

    /// Sends a signal, unless the process has ended.
    fn send(&self, signal: Signal) -> IoResult<()> {
        match pidfd_send_signal(&self.process, signal) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// A member's process that runs, or has run.
pub struct MemberProcess {
    id: Pid,
    handle: Arc<Handle>,
    /// Hears of its end.
    end: oneshot::Receiver<()>,
    log: PathBuf,
}

impl MemberProcess {
    /// The process that runs already, if it runs with the same program and settings; else a new one.
    pub async fn take_over_or_start(settings: &MemberSettings) -> Result<Self, Error> {
        let failed = |error: IoError| not_started(settings, &error.to_string());
        std::fs::create_dir_all(&settings.folder).map_err(failed)?;
        if let Some((mut process, line)) = Self::find(settings).map_err(failed)? {
            if runs_as_wanted(&line, settings) {
                tracing::info!(process = process.id(), "etcd runs already: taken over");
                return Ok(process);
            }
            tracing::info!(process = process.id(), "etcd runs with other settings: starting it anew");
            process.stop().await.map_err(failed)?;
        }
        check_data(settings)?;
        check_program(&settings.program)?;
        Self::start(settings).map_err(failed)
    }

    /// Ends the process that uses the member's data, if there is one.
    pub async fn stop_running(settings: &MemberSettings) -> IoResult<()> {
        match Self::find(settings)? {
            Some((mut process, _)) => process.stop().await,
            None => Ok(()),
        }
    }

    /// The process that uses the member's data, if there is one, and its command line.
    fn find(settings: &MemberSettings) -> IoResult<Option<(Self, Vec<OsString>)>> {
        for entry in std::fs::read_dir("/proc")? {
            let name = entry?.file_name();
            let Some(id) = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw) else {
                continue;
            };
            if !line_of(id)?.is_some_and(|line| is_of_member(&line, settings)) {
                continue;
            }
            // Looked at again behind a handle, for the number may be another process's by now.
            let process = match Self::open(id, settings) {
                Ok(process) => process,
                Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => continue,
                Err(error) => return Err(error),
            };
            if let Some(line) = line_of(id)?.filter(|line| is_of_member(line, settings)) {
                return Ok(Some((process, line)));
            }
        }
        Ok(None)
    }

    fn start(settings: &MemberSettings) -> IoResult<Self> {
        let paths = Paths(&settings.folder);
        if std::fs::metadata(paths.log()).is_ok_and(|log| log.len() > LOG_BYTES_MAX) {
            std::fs::rename(paths.log(), paths.former_log())?;
        }
        let log = File::options().append(true).create(true).open(paths.log())?;
        let mut command = Command::new(&settings.program);
        command.args(arguments(settings)).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // What a terminal says to this process is not for that one.
        command.process_group(0);
        // What is set for another etcd on this machine is not for this one. Nor may it tell the service manager, as
        // it would by itself, that this process is ready.
        let is_foreign = |name: &OsStr| {
            name.as_bytes().starts_with(b"ETCD_") && name != UNSUPPORTED_ARCH || name == "NOTIFY_SOCKET"
        };
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_foreign(name)) {
            command.env_remove(name);
        }
        let child = command.spawn()?;
        Self::open(Pid::from_child(&child), settings)
    }

    fn open(id: Pid, settings: &MemberSettings) -> IoResult<Self> {
        let process = pidfd_open(id, PidfdFlags::empty())?;
        let handle = Arc::new(Handle { process, is_told: AtomicBool::new(false) });
        let end = await_end(Arc::clone(&handle))?;
        Ok(Self { id, handle, end, log: Paths(&settings.folder).log() })
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.id.as_raw_nonzero().get().unsigned_abs()
    }

    /// Waits until it has ended: how, and the last that it said.
    pub async fn ended(&mut self) -> String {
        // Whoever is to tell cannot end without.
        let _ = (&mut self.end).await;
        // Only for a child of this process is there anything to know, and to be cleared away.
        let status =
            waitid(WaitId::PidFd(self.handle.process.as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
        let how = status.ok().flatten().map_or("it ended".to_owned(), |status| how_it_ended(&status));
        match last_line(&self.log) {
            Some(line) => format!("{how}; it said last: {line}"),
            None => how,
        }
    }

    /// Ends it: in order, which hands leadership over, or at once if it does not follow.
    pub async fn stop(&mut self) -> IoResult<()> {
        self.handle.tell()?;
        if tokio::time::timeout(STOP_TIME_MAX, self.ended()).await.is_ok() {
            return Ok(());
        }
        self.handle.send(Signal::KILL)?;
        if tokio::time::timeout(KILL_TIME_MAX, self.ended()).await.is_ok() {
            return Ok(());
        }
        Err(IoError::other(format!("process {} has been killed, and does not end", self.id())))
    }
}

/// The command line of a process; none if there is no such process, or it is one of the kernel's.
fn line_of(id: Pid) -> IoResult<Option<Vec<OsString>>> {
    match std::fs::read(format!("/proc/{}/cmdline", id.as_raw_nonzero())) {
        Ok(line) => {
            let words = line.strip_suffix(&[0]).unwrap_or(&line).split(|byte| *byte == 0);
            Ok((!line.is_empty()).then(|| words.map(|word| OsString::from_vec(word.to_vec())).collect()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        // It ended while it was read.
        Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a process is an etcd that was started with the member's data.
fn is_of_member(line: &[OsString], settings: &MemberSettings) -> bool {
    let data = Paths(&settings.folder).data();
    let mut word = OsString::from("--data-dir=");
    word.push(&data);
    // As two words, as versions before this one did: such a process is recognised, and started anew.
    let has_data = line.contains(&word)
        || line.windows(2).any(|pair| pair[0] == "--data-dir" && pair[1] == data.as_os_str());
    let is_of_a_member = |word: &OsString| word.as_encoded_bytes().starts_with(b"--listen-peer-urls");
    has_data && line.iter().any(is_of_a_member)
}

/// Whether a process runs as `settings` say. How it became a member is of no matter any more.
fn runs_as_wanted(line: &[OsString], settings: &MemberSettings) -> bool {
    let lasting = |words: &[OsString]| {
        words.iter().filter(|word| !is_of_the_beginning(word)).cloned().collect::<Vec<_>>()
    };
    let Some((program, words)) = line.split_first() else { return false };
    program == settings.program.as_os_str() && lasting(words) == lasting(&arguments(settings))
}

/// A member that has lost its data must not begin anew: it would vote as if it had never promised anything, or
/// found a second, empty etcd under the same name.
fn check_data(settings: &MemberSettings) -> Result<(), Error> {
    let has_begun = matches!(settings.beginning, Beginning::Member | Beginning::Alone);
    if !has_begun || Paths(&settings.folder).has_data() {
        return Ok(());
    }
    Err(Error::new(
        "STATE_MEMBER_DATA_LOST",
        format!("the member {} of the cluster's state cannot be started", settings.name),
        format!("its data are not in {}", Paths(&settings.folder).data().display()),
        "if a file system is not mounted, mount it; if they are lost, remove the member and add it anew",
    ))
}

/// Waits for a process's end on a thread of its own: it need not be a child of this one. The thread ends as well
/// when nobody wants to know any more.
fn await_end(process: Arc<Handle>) -> IoResult<oneshot::Receiver<()>> {
    let (ended, end) = oneshot::channel();
    let thread = std::thread::Builder::new().name("spandrel-etcd-end".to_owned());
    thread.spawn(move || {
        while !ended.is_canceled() {
            // It can be read once the process has ended.
            match poll(&mut [PollFd::new(&process.process, PollFlags::IN)], Some(&LOOK_INTERVAL)) {
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

fn how_it_ended(status: &WaitIdStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("it ended with status {code}"),
        (_, Some(signal)) => format!("signal {signal} ended it"),
        _ => "it ended".to_owned(),
    }
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
