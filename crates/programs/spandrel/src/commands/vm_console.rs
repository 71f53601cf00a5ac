//! `spandrel vm console`: this terminal as the console of a virtual machine.
//!
//! Every key goes there, also those that interrupt; Ctrl-] leaves. Where standard input is no terminal, it is sent as it is, and
//! what the guest writes is shown until the virtual machine is off. One that moves, or is started anew elsewhere, is followed.

use std::io::{IsTerminal as _, Read as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcsetattr};
use spandrel_cluster::VmGoal;
use spandrel_shared::Error;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::mpsc;

use super::vm::LOOK_INTERVAL;
use crate::admin::api::{self, VmState, VmStatus};
use crate::admin::client::{Client, SILENCE_MAX, is_passing, path_with};
use crate::admin::http::Upgraded;
use crate::failure::{EXIT_OK, Outcome, system_error};
use crate::interrupt::restore_on_interrupt;

/// Ctrl-], which leaves.
const LEAVE: u8 = 0x1d;

/// How the terminal is to be again.
static FORMER: Mutex<Option<Termios>> = Mutex::new(None);

/// Connects this terminal to a virtual machine's console.
pub fn console(client: &Client, name: &str) -> Outcome {
    let is_terminal = std::io::stdin().is_terminal();
    let mut stream = client.open_stream(&path_with(api::VM_CONSOLE, name))?;
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
    let mut pressed = Keys { pressed, unsent: Vec::new(), is_open: true, is_terminal };
    let outcome = loop {
        match client.run(exchange(stream, &mut pressed)) {
            Ok(Side::This) => break Ok(()),
            Err(error) => break Err(failed(&error)),
            Ok(Side::Machine) => {}
        }
        match follow(client, name, &mut pressed) {
            Ok(Some(elsewhere)) => stream = elsewhere,
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    give_back();
    if is_terminal {
        eprintln!();
    }
    outcome.map(|()| EXIT_OK)
}

/// The console of a machine that has left where it was, as soon as it runs again. None if it is not to run any more, or whoever waits leaves.
fn follow(client: &Client, name: &str, keys: &mut Keys) -> Result<Option<Upgraded>, Error> {
    let mut refused_since = None;
    loop {
        let vm: VmStatus = client.watch(&path_with(api::VM, name))?;
        if vm.goal != VmGoal::Running || keys.want_to_leave() {
            return Ok(None);
        }
        if vm.state == VmState::Running {
            match client.open_stream(&path_with(api::VM_CONSOLE, name)) {
                Ok(stream) => {
                    // A terminal that takes each key as it is needs both to begin a line.
                    eprint!("\r\n{name} runs on {} now\r\n", vm.node.unwrap_or_default());
                    return Ok(Some(stream));
                }
                Err(error) if error.code == "VM_NOT_RUNNING" => {}
                // Where it was used the machine may not have noticed yet that nobody does any more.
                Err(error) if error.code == "VM_CONSOLE_IN_USE" || is_passing(&error) => {
                    let since = *refused_since.get_or_insert_with(Instant::now);
                    if since.elapsed() >= SILENCE_MAX {
                        return Err(error);
                    }
                }
                Err(error) => return Err(error),
            }
        }
        client.pause(LOOK_INTERVAL);
    }
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

/// What is typed.
struct Keys {
    pressed: mpsc::UnboundedReceiver<Vec<u8>>,
    /// What was taken of it and not sent: the machine had left.
    unsent: Vec<u8>,
    /// Whether more may come.
    is_open: bool,
    is_terminal: bool,
}

impl Keys {
    /// Whether one of these leaves the console.
    fn leave(&self, keys: &[u8]) -> bool {
        self.is_terminal && keys.contains(&LEAVE)
    }

    /// Whether the key was pressed that leaves, while nobody was there to take others. Those are lost, as on any machine that is
    /// down; what a program sends here waits.
    fn want_to_leave(&mut self) -> bool {
        if !self.is_terminal {
            return false;
        }
        self.unsent.clear();
        while let Ok(keys) = self.pressed.try_recv() {
            if self.leave(&keys) {
                return true;
            }
        }
        false
    }

    /// What is to be sent next; none if nothing more will come. May be dropped while it waits.
    async fn next(&mut self) -> Option<Vec<u8>> {
        if !self.unsent.is_empty() {
            return Some(std::mem::take(&mut self.unsent));
        }
        self.pressed.recv().await
    }
}

/// Who has left.
enum Side {
    This,
    Machine,
}

/// Carries keys there and text back, until either side leaves.
///
/// # Errors
/// When what the guest writes cannot be shown.
async fn exchange(
    stream: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
    typed: &mut Keys,
) -> std::io::Result<Side> {
    let (mut read, mut write) = tokio::io::split(stream);
    let mut buffer = vec![0; 16 << 10];
    loop {
        tokio::select! {
            count = read.read(&mut buffer) => {
                // However it ends: what has become of the machine the cluster says.
                let Ok(count @ 1..) = count else { return Ok(Side::Machine) };
                let mut output = std::io::stdout().lock();
                output.write_all(&buffer[..count])?;
                output.flush()?;
            }
            keys = typed.next(), if typed.is_open => match keys {
                Some(keys) if typed.leave(&keys) => return Ok(Side::This),
                Some(keys) => {
                    let mut rest = &keys[..];
                    if write.write_all_buf(&mut rest).await.is_err() {
                        typed.unsent = rest.to_vec();
                        return Ok(Side::Machine);
                    }
                }
                None => typed.is_open = false,
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

#[cfg(test)]
#[path = "vm_console_tests.rs"]
mod tests;
