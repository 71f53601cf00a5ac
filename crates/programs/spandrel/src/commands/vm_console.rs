//! `spandrel vm console`: this terminal as the console of a virtual machine.
//!
//! Every key goes there, also those that interrupt; Ctrl-] leaves. Where standard input is no terminal, it is sent as it is, and
//! what the guest writes is shown until the virtual machine ends.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::sync::{Mutex, PoisonError};

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use spandrel_shared::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use crate::admin::api;
use crate::admin::client::{Client, path_with};
use crate::failure::{EXIT_OK, Outcome, system_error};
use crate::interrupt::restore_on_interrupt;

/// Ctrl-], which leaves.
const LEAVE: u8 = 0x1d;

/// How the terminal is to be again.
static FORMER: Mutex<Option<Termios>> = Mutex::new(None);

/// Connects this terminal to a virtual machine's console.
pub fn console(client: &Client, name: &str) -> Outcome {
    let is_terminal = std::io::stdin().is_terminal();
    let stream = client.open_stream(&path_with(api::VM_CONSOLE, name))?;
    if is_terminal {
        eprintln!("the console of {name}; Ctrl-] leaves it");
    }
    let _guard = restore_on_interrupt(give_back);
    if is_terminal {
        take().map_err(|error| failed(&error.into()))?;
    }
    let (keys, pressed) = mpsc::unbounded_channel();
    // Reading a terminal cannot be taken back, so the thread ends with the program.
    std::thread::spawn(move || read_keys(&keys));
    let outcome = client.run(exchange(stream, pressed, is_terminal));
    give_back();
    if is_terminal {
        eprintln!();
    }
    outcome.map_err(|error| failed(&error))?;
    Ok(EXIT_OK)
}

/// Sends what is typed, until the end of the input.
fn read_keys(keys: &mpsc::UnboundedSender<Vec<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(count @ 1..) = std::io::stdin().lock().read(&mut buffer) {
        if keys.send(buffer[..count].to_vec()).is_err() {
            return;
        }
    }
}

/// Carries keys there and text back, until either side leaves.
async fn exchange(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    mut pressed: mpsc::UnboundedReceiver<Vec<u8>>,
    is_terminal: bool,
) -> std::io::Result<()> {
    let (mut read, mut write) = tokio::io::split(stream);
    let mut buffer = vec![0; 16 << 10];
    let mut is_open = true;
    loop {
        tokio::select! {
            count = read.read(&mut buffer) => {
                let count = count?;
                if count == 0 {
                    return Ok(());
                }
                let mut output = std::io::stdout().lock();
                output.write_all(&buffer[..count])?;
                output.flush()?;
            }
            keys = pressed.recv(), if is_open => match keys {
                Some(keys) if is_terminal && keys.contains(&LEAVE) => return Ok(()),
                Some(keys) => write.write_all(&keys).await?,
                None => is_open = false,
            },
        }
    }
}

/// Has each key come as it is.
fn take() -> Result<(), rustix::io::Errno> {
    let input = std::io::stdin();
    let former = tcgetattr(&input)?;
    let mut raw = former.clone();
    raw.make_raw();
    *FORMER.lock().unwrap_or_else(PoisonError::into_inner) = Some(former);
    tcsetattr(&input, OptionalActions::Now, &raw)
}

/// Once, whoever calls it first.
fn give_back() {
    let former = FORMER.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(former) = former {
        // The terminal may be gone.
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &former);
    }
}

fn failed(error: &std::io::Error) -> Error {
    system_error("the console is lost", error)
}
