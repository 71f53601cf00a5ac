//! The processor time of everything that a load sets to work, from the kernel's own account of each task.
//!
//! A contender's processes are known by a mark in their environment, which all their children inherit: also those of
//! programs that put themselves into the background. The load generator bears the same mark. The kernel's own threads count with
//! whoever is measured, since nothing else is to go on meanwhile.
//!
//! The kernel counts nanoseconds for each task. What a task has used that ended between two readings is not seen: of
//! those there are none while a load is steady.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The variable of the environment that bears the mark.
const MARK_VARIABLE: &str = "SPANDREL_BENCHMARK_OF";

/// What marks the processes of one contender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark(String);

impl Mark {
    /// The mark of a contender, in this run alone.
    pub fn new(contender: &str) -> Self {
        Self(format!("{contender}-{}", std::process::id()))
    }

    /// A command whose processes bear it.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env(MARK_VARIABLE, &self.0);
        command
    }

    /// Ends all processes that bear it, for programs that leave some behind. When this returns none is there, nor any that one of them
    /// was just starting.
    pub fn end_all(&self) {
        loop {
            let mut are_ended = true;
            for (process, _) in process_folders().filter(|(_, folder)| self.is_borne_by(folder)) {
                are_ended = false;
                if let Some(process) = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw) {
                    let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
                }
            }
            if are_ended {
                return;
            }
            std::thread::yield_now();
        }
    }

    fn is_borne_by(&self, folder: &Path) -> bool {
        let environment = fs::read(folder.join("environ")).unwrap_or_default();
        let entry = format!("{MARK_VARIABLE}={}", self.0);
        environment.split(|byte| *byte == 0).any(|variable| variable == entry.as_bytes())
    }
}

/// What tasks had used at one moment.
pub struct Reading {
    at: Instant,
    /// By the number of the task.
    used: HashMap<u32, Duration>,
}

impl Reading {
    /// Of all tasks that bear the mark, and of the kernel's own.
    pub fn take(mark: &Mark) -> Self {
        let at = now();
        let counted =
            process_folders().filter(|(_, folder)| is_kernel_thread(folder) || mark.is_borne_by(folder));
        let used = counted.flat_map(|(_, folder)| tasks_of(&folder)).collect();
        Self { at, used }
    }

    /// How many cores were busy with these tasks since `before`, on average.
    pub fn busy_cores_since(&self, before: &Self) -> f64 {
        let used = self.used.iter().map(|(task, used)| {
            used.saturating_sub(before.used.get(task).copied().unwrap_or_default()).as_secs_f64()
        });
        used.sum::<f64>() / self.at.duration_since(before.at).as_secs_f64()
    }
}

/// The time by the machine's clock.
pub fn now() -> Instant {
    Instant::now()
}

fn process_folders() -> impl Iterator<Item = (u32, std::path::PathBuf)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

fn is_kernel_thread(folder: &Path) -> bool {
    fs::read_to_string(folder.join("stat")).is_ok_and(|line| is_of_kernel_thread(&line))
}

/// Whether `/proc/PID/stat` says so, among the flags, which are the seventh word behind the name. That a process has no command line
/// says less: one that is just being started has none either.
fn is_of_kernel_thread(stat: &str) -> bool {
    const PF_KTHREAD: u32 = 0x0020_0000;
    let flags = stat.rsplit_once(')').and_then(|(_, words)| words.split_ascii_whitespace().nth(6));
    flags.and_then(|flags| flags.parse().ok()).is_some_and(|flags: u32| flags & PF_KTHREAD != 0)
}

fn tasks_of(folder: &Path) -> Vec<(u32, Duration)> {
    let tasks = fs::read_dir(folder.join("task")).into_iter().flatten().flatten();
    let used = |task: fs::DirEntry| {
        let number = task.file_name().to_str()?.parse().ok()?;
        let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
        Some((number, used_of(&text)?))
    };
    tasks.filter_map(used).collect()
}

/// The first number of `/proc/PID/task/TID/schedstat`: nanoseconds on a processor.
fn used_of(text: &str) -> Option<Duration> {
    text.split_ascii_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

#[cfg(test)]
#[path = "processor_time_tests.rs"]
mod tests;
