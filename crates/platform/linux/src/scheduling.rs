//! How a thread comes to its turn on a core.

use std::io;

/// Has the calling thread, and the threads that it will start, wait for their turn when they wake. A thread for which somebody has
/// chosen another policy than the usual one keeps it.
pub(crate) fn give_way() -> io::Result<()> {
    // SAFETY: nothing but a number is passed; zero means the calling thread.
    if unsafe { libc::sched_getscheduler(0) } != libc::SCHED_OTHER {
        return Ok(());
    }
    let parameters = libc::sched_param { sched_priority: 0 };
    // SAFETY: the parameters are read during the call alone; zero means the calling thread.
    match unsafe { libc::sched_setscheduler(0, libc::SCHED_BATCH, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
#[path = "scheduling_tests.rs"]
mod tests;
