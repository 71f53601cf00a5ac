//! Cores that do not sleep.
//!
//! A core that has nothing to do sleeps, and takes some time until it is as fast as it was: it wakes up, its caches are cold, and on a
//! virtual machine it has to be given back first. Who waits by keeping its core busy does not find that, and who sleeps does.
//!
//! Invariant: a thread of this program or of those that it starts is not kept from such a core.

use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use spandrel_platform_linux::{Cores, run_when_idle};

/// Keeps cores awake until it is dropped.
pub struct Awake {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Awake {
    /// When this returns all of them are awake.
    pub fn keep(cores: &Cores) -> Result<Self, String> {
        let mut awake = Self { is_over: Arc::default(), threads: Vec::new() };
        let (sender, begun) = std::sync::mpsc::channel();
        for index in 0..cores.count() {
            let (core, is_over, sender) =
                (cores.share(index, cores.count()), awake.is_over.clone(), sender.clone());
            awake.threads.push(std::thread::spawn(move || {
                let result = core.keep_thread().map_err(std::io::Error::from).and_then(|()| run_when_idle());
                let goes_on = result.is_ok();
                // Nobody waits for it any more if another one could not begin.
                let _ =
                    sender.send(result.map_err(|error| format!("core {core} cannot be kept awake: {error}")));
                while goes_on && !is_over.load(Ordering::Relaxed) {
                    spin_loop();
                }
            }));
        }
        begun.iter().take(cores.count()).collect::<Result<(), String>>()?;
        Ok(awake)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
#[path = "awake_tests.rs"]
mod tests;
