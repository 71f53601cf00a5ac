//! How a command ends: its exit status, and how an error is printed.

use std::process::ExitCode;

use spandrel_shared::Error;

/// All went well.
pub const EXIT_OK: u8 = 0;
/// The command was refused or failed; the error says why.
pub const EXIT_ERROR: u8 = 1;
/// The command did its work and found damage, differences, or copies that it could not check.
pub const EXIT_DAMAGE: u8 = 2;
/// The command line makes no sense.
pub const EXIT_USAGE: u8 = 64;
/// The command was interrupted, and has removed what it made.
pub const EXIT_INTERRUPTED: u8 = 130;

/// What a command comes to.
pub type Outcome = Result<u8, Error>;

/// The text of an error on standard error.
pub fn render(error: &Error) -> String {
    let indented = |text: &str| text.replace('\n', "\n         ");
    format!(
        "error[{}]: {}\n  why:   {}\n  next:  {}\n",
        error.code,
        error.what,
        indented(&error.why),
        indented(&error.next)
    )
}

/// Prints the error, if there is one, and gives the exit status.
pub fn exit_code(outcome: Outcome) -> ExitCode {
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprint!("{}", render(&error));
            ExitCode::from(EXIT_ERROR)
        }
    }
}

/// The error that a call of the operating system failed in a way that nobody expected.
pub fn system_error(what: impl Into<String>, error: &std::io::Error) -> Error {
    Error::new(
        "SYSTEM_CALL_FAILED",
        what,
        error.to_string(),
        "see what the operating system's message means; the log may say more",
    )
}

#[cfg(test)]
#[path = "failure_tests.rs"]
mod tests;
