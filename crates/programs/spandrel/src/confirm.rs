//! Asking whoever has given a command that cannot be undone.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use spandrel_shared::Error;

use crate::failure::system_error;

/// Has `word` typed before `what` is done, unless `yes` says that this was decided already.
///
/// Errors: `NOT_CONFIRMED`.
pub fn confirm(what: &str, word: &str, yes: bool) -> Result<(), Error> {
    if yes {
        return Ok(());
    }
    let refuse = |why: &str| {
        Err(Error::new(
            "NOT_CONFIRMED",
            "nothing was done",
            why,
            format!("type {word} when asked, or give the command --yes"),
        ))
    };
    let input = std::io::stdin();
    if !input.is_terminal() {
        return refuse("this cannot be undone, and nobody is there to be asked");
    }
    let mut answer = String::new();
    eprint!("{what}\nThis cannot be undone. Type {word} to go on: ");
    let read = std::io::stderr().flush().and_then(|()| input.lock().read_line(&mut answer));
    read.map_err(|error| system_error("the answer cannot be read", &error))?;
    if answer.trim() == word { Ok(()) } else { refuse("something else was typed") }
}
