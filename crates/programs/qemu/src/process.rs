//! A process that may not be a child of this one.

use std::os::fd::{AsFd as _, OwnedFd};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};
use spandrel_vm::disk::DiskName;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::command_line::is_of;

/// A process that runs a virtual machine. Its number is used for nothing but to find it: it is held on to by a descriptor.
pub struct Process {
    descriptor: AsyncFd<OwnedFd>,
}

impl Process {
    /// A child of this process, which was not waited for yet: its number is nobody else's. Within the program's runtime.
    ///
    /// # Errors
    /// When no more files can be opened.
    pub fn of_child(child: &std::process::Child) -> std::io::Result<Self> {
        let number = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        let number = number.ok_or(std::io::ErrorKind::InvalidInput)?;
        Ok(Self { descriptor: watched(pidfd_open(number, PidfdFlags::NONBLOCK)?)? })
    }

    /// The process of this number, if it runs this virtual machine, for this run. Within the program's runtime.
    pub fn find(number: i32, disk: DiskName) -> Option<Self> {
        let descriptor = pidfd_open(Pid::from_raw(number)?, PidfdFlags::NONBLOCK).ok()?;
        // With the descriptor in hand: it is this very process that is looked at, if it is there afterwards.
        let line = std::fs::read(format!("/proc/{number}/cmdline")).ok()?;
        let is_it = is_of(line.split(|byte| *byte == 0), disk);
        let process = Self { descriptor: watched(descriptor).ok()? };
        (is_it && !process.has_ended()).then_some(process)
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        // A descriptor of a process can be polled: it is readable from the end on.
        let mut polled =
            [rustix::event::PollFd::new(self.descriptor.get_ref(), rustix::event::PollFlags::IN)];
        let at_once = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut polled, Some(&at_once)).is_ok_and(|ready| ready > 0)
    }

    /// Waits until it has ended.
    pub async fn ended(&self) {
        // Whatever this says: there is nothing to wait for any more.
        let _ = self.descriptor.readable().await;
        // If it is a child of this process, something of it stays until it is asked for how it has ended.
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        let _ = waitid(WaitId::PidFd(self.descriptor.get_ref().as_fd()), how);
    }

    /// Ends it at once. No error if it has ended.
    pub fn kill(&self) -> std::io::Result<()> {
        match pidfd_send_signal(self.descriptor.get_ref(), Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[expect(
    deprecated,
    reason = "what is wrong with it concerns types whose descriptor may change, and the other way is unsafe"
)]
fn watched(descriptor: OwnedFd) -> std::io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
