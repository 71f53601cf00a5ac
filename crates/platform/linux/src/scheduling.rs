//! How a thread comes to its turn on a core.

use std::ffi::c_int;
use std::io;

/// Has the calling thread, and the threads that it will start, wait for their turn when they wake. A thread for which somebody has
/// chosen another policy than the usual one keeps it.
pub(crate) fn give_way() -> io::Result<()> {
    // SAFETY: nothing but a number is passed; zero means the calling thread.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        return Ok(());
    }
    set_policy(libc::SCHED_BATCH)
}

/// Has the calling thread, and the threads that it will start, run on cores that have nothing else to do; other threads of the same
/// session that wake there go first. Fails where the kernel does not allow it.
pub fn run_when_idle() -> io::Result<()> {
    set_policy(libc::SCHED_IDLE)
}

fn set_policy(policy: c_int) -> io::Result<()> {
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters are read during the call alone; zero means the calling thread.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
#[path = "scheduling_tests.rs"]
mod tests;
