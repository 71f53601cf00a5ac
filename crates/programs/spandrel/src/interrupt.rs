//! What is removed when a command is interrupted.
//!
//! A command that makes things it removes again at its end says what has to be done if it does not
//! get there. On Ctrl-C or SIGTERM that is done, last things first, and the program ends.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::EXIT_INTERRUPTED;

struct Cleanup {
    number: u64,
    /// Whether something is removed, which can take a while: so it is said.
    removes: bool,
    run: Box<dyn FnOnce() + Send>,
}

/// What is to be done.
static CLEANUPS: Mutex<Vec<Cleanup>> = Mutex::new(Vec::new());

static LISTENER: OnceLock<()> = OnceLock::new();

/// Whether things are being removed, after which the program ends.
static IS_INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Waits for the end of the program if it was interrupted. What fails from then on, fails because
/// of that, and is not worth telling.
pub fn leave_to_interruption() {
    while IS_INTERRUPTED.load(Ordering::SeqCst) {
        std::thread::park();
    }
}

/// Something that is to be done if the program is interrupted. Dropping it takes it back.
pub struct Guard {
    number: u64,
}

/// Has what was made removed by `cleanup` if the program is interrupted while the guard lives.
pub fn remove_on_interrupt(cleanup: impl FnOnce() + Send + 'static) -> Guard {
    register(true, Box::new(cleanup))
}

/// Has `cleanup` done, and nothing said, if the program is interrupted while the guard lives.
pub fn restore_on_interrupt(cleanup: impl FnOnce() + Send + 'static) -> Guard {
    register(false, Box::new(cleanup))
}

fn register(removes: bool, run: Box<dyn FnOnce() + Send>) -> Guard {
    LISTENER.get_or_init(listen);
    let mut cleanups = CLEANUPS.lock().unwrap_or_else(PoisonError::into_inner);
    let number = cleanups.last().map_or(0, |last| last.number + 1);
    cleanups.push(Cleanup { number, removes, run });
    Guard { number }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut cleanups = CLEANUPS.lock().unwrap_or_else(PoisonError::into_inner);
        cleanups.retain(|cleanup| cleanup.number != self.number);
    }
}

fn listen() {
    let thread = std::thread::Builder::new().name("signals".to_owned()).spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        if let Ok(runtime) = runtime
            && runtime.block_on(wait()).is_ok()
        {
            clean_up();
            std::process::exit(i32::from(EXIT_INTERRUPTED));
        }
    });
    if let Err(error) = thread {
        eprintln!("warning: what this makes is not removed if it is interrupted: {error}");
    }
}

async fn wait() -> std::io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

fn clean_up() {
    IS_INTERRUPTED.store(true, Ordering::SeqCst);
    let mut is_told = false;
    loop {
        let next = CLEANUPS.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(cleanup) = next else { return };
        if cleanup.removes && !std::mem::replace(&mut is_told, true) {
            eprintln!("\ninterrupted: removing what was made");
        }
        (cleanup.run)();
    }
}
