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
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The variable of the environment that bears the mark.
const MARK_VARIABLE: &str = "SPANDREL_BENCHMARK_OF";

/// How long processes that are killed may take to end.
const END_TIME_MAX: Duration = Duration::from_secs(10);

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

    /// Ends all processes that bear it, for programs that leave some behind, and those that one of them was just starting. It names
    /// those that do not end in [`END_TIME_MAX`].
    pub fn end_all(&self) {
        let deadline = now() + END_TIME_MAX;
        loop {
            let bearing = |(process, folder): (u32, PathBuf)| match self.is_borne_by(&folder) {
                Some(false) => None,
                is_borne => Some((process, is_borne)),
            };
            let left: Vec<(u32, Option<bool>)> = process_folders().filter_map(bearing).collect();
            if left.is_empty() {
                return;
            }
            if now() >= deadline {
                let numbers =
                    left.iter().map(|(process, _)| process.to_string()).collect::<Vec<_>>().join(", ");
                eprintln!("these processes of {} do not end, look after them: {numbers}", self.0);
                return;
            }
            for (process, _) in left.into_iter().filter(|(_, is_borne)| *is_borne == Some(true)) {
                if let Some(process) = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw) {
                    let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
                }
            }
            std::thread::yield_now();
        }
    }

    /// None while that cannot be told: between two programs a process has no environment.
    fn is_borne_by(&self, folder: &Path) -> Option<bool> {
        // What may not be read is somebody else's.
        let Ok(environment) = fs::read(folder.join("environ")) else { return Some(false) };
        let stat = || fs::read_to_string(folder.join("stat")).unwrap_or_default();
        if environment.is_empty() && is_between_programs(&stat()) {
            return None;
        }
        let entry = format!("{MARK_VARIABLE}={}", self.0);
        Some(environment.split(|byte| *byte == 0).any(|variable| variable == entry.as_bytes()))
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
        let counted = process_folders()
            .filter(|(_, folder)| is_kernel_thread(folder) || mark.is_borne_by(folder) == Some(true));
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

fn process_folders() -> impl Iterator<Item = (u32, PathBuf)> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
}

fn is_kernel_thread(folder: &Path) -> bool {
    fs::read_to_string(folder.join("stat")).is_ok_and(|line| is_of_kernel_thread(&line))
}

/// Whether `/proc/PID/stat` says so, among the flags. That a process has no command line says less: one that is just being started has
/// none either.
fn is_of_kernel_thread(stat: &str) -> bool {
    const PF_KTHREAD: u32 = 0x0020_0000;
    let flags = word_of(stat, 9).and_then(|flags| flags.parse().ok());
    flags.is_some_and(|flags: u32| flags & PF_KTHREAD != 0)
}

/// Whether `/proc/PID/stat` is that of a process that lives, and whose environment ends nowhere yet.
fn is_between_programs(stat: &str) -> bool {
    let lives = word_of(stat, 3).is_some_and(|state| !matches!(state, "Z" | "X" | "x"));
    lives && !is_of_kernel_thread(stat) && word_of(stat, 51) == Some("0")
}

/// A word of `/proc/PID/stat` by the number that proc(5) gives it, from the third on: the second is a name, which may hold anything.
fn word_of(stat: &str, number: usize) -> Option<&str> {
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(number.checked_sub(3)?)
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
