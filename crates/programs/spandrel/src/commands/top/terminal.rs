//! The terminal: taken while something live is shown, and given back as it was, whatever happens.
//!
//! It is shown on the terminal's other screen, so that what stood there before is there again afterwards. It is given back
//! when [`Terminal`] is dropped, when the program is interrupted or told to end, and when it panics.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use spandrel_shared::Error;

use super::screen::Size;
use crate::failure::system_error;
use crate::interrupt::{Guard, restore_on_interrupt};

/// The other screen, and no cursor; and back again.
const BEGIN: &str = "\x1b[?1049h\x1b[?25l";
const END: &str = "\x1b[?25h\x1b[?1049l";

/// The upper left corner; what stands behind it in the line; what stands below it.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_REST: &str = "\x1b[J";

/// The size of a terminal that does not say.
const SIZE_DEFAULT: (u16, u16) = (80, 24);

/// What the terminal is to be again, as long as it is taken.
static TAKEN: Mutex<Option<Former>> = Mutex::new(None);

/// How standard input was; nothing if it is no terminal.
struct Former(Option<Termios>);

/// The terminal that standard output is.
pub struct Terminal {
    _interruption: Guard,
}

impl Terminal {
    /// Takes the terminal.
    pub fn take() -> Result<Self, Error> {
        give_back_at_a_panic();
        let interruption = restore_on_interrupt(give_back);
        let former = listen_to_keys().map_err(|error| failed(&error.into()))?;
        *TAKEN.lock().unwrap_or_else(PoisonError::into_inner) = Some(Former(former));
        let terminal = Self { _interruption: interruption };
        write(BEGIN)?;
        Ok(terminal)
    }

    /// How much it can show now.
    pub fn size(&self) -> Size {
        let size =
            tcgetwinsize(std::io::stdout()).map(|size| (size.ws_col, size.ws_row)).unwrap_or(SIZE_DEFAULT);
        let (width, height) = if size.0 == 0 || size.1 == 0 { SIZE_DEFAULT } else { size };
        Size { width: width.into(), height: Some(height.into()) }
    }

    /// Shows these lines and nothing else.
    pub fn show(&self, lines: &[String]) -> Result<(), Error> {
        let lines: Vec<String> = lines.iter().map(|line| format!("{line}{CLEAR_LINE}")).collect();
        // No line end behind the last one: the screen would scroll where it fills it.
        write(&format!("{HOME}{}{CLEAR_REST}", lines.join("\r\n")))
    }

    /// Waits until then, and returns whether `q` is pressed before. At the end of the input nobody can press anything.
    pub fn is_ended_before(&self, then: Instant) -> Result<bool, Error> {
        let input = std::io::stdin();
        let mut is_open = input.is_terminal();
        loop {
            let left = then.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
            let mut keys = [PollFd::new(&input, PollFlags::IN)];
            match poll(&mut keys[..usize::from(is_open)], Some(&timeout)) {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(failed(&error.into())),
            }
            let mut pressed = [0; 64];
            match rustix::io::read(&input, &mut pressed) {
                Ok(0) => is_open = false,
                Ok(count) if pressed[..count].iter().any(|key| b"qQ".contains(key)) => return Ok(true),
                Ok(_) | Err(Errno::INTR | Errno::AGAIN) => {}
                Err(error) => return Err(failed(&error.into())),
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        give_back();
    }
}

/// Has each key come at once and unseen. Those that interrupt go on doing so, but the one that suspends: the terminal would
/// stay as it is. Returns how it was.
fn listen_to_keys() -> Result<Option<Termios>, Errno> {
    let input = std::io::stdin();
    if !input.is_terminal() {
        return Ok(None);
    }
    let former = tcgetattr(&input)?;
    let mut new = former.clone();
    new.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    new.special_codes[SpecialCodeIndex::VSUSP] = 0;
    new.special_codes[SpecialCodeIndex::VMIN] = 1;
    new.special_codes[SpecialCodeIndex::VTIME] = 0;
    tcsetattr(&input, OptionalActions::Now, &new)?;
    Ok(Some(former))
}

/// Once, whoever calls it first.
fn give_back() {
    let taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(Former(former)) = taken else { return };
    // The terminal may be gone.
    let _ = write(END);
    if let Some(former) = former {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &former);
    }
}

/// Before the panic is told, which would be lost with the other screen.
fn give_back_at_a_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let tell = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            give_back();
            tell(panic);
        }));
    });
}

fn write(text: &str) -> Result<(), Error> {
    let mut output = std::io::stdout().lock();
    output.write_all(text.as_bytes()).and_then(|()| output.flush()).map_err(|error| failed(&error))
}

fn failed(error: &std::io::Error) -> Error {
    system_error("the terminal cannot be used", error)
}
