//! Running other programs: their output goes straight to the terminal or a file, nothing is read from it.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A command for `program` that reads nothing.
///
/// What `cargo run` tells this program of itself is kept from it: a build script that looks at such
/// variables would run again for each way of calling cargo.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    command
}

/// A command for the cargo that called this program, in `root`.
pub fn cargo(root: &Path) -> Command {
    let mut command = command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root);
    command
}

/// Runs a command to its end, saying first what is run. Returns whether it succeeded.
///
/// # Errors
/// When it cannot be started.
pub fn run(command: &mut Command) -> Result<bool, String> {
    let shown = shown(command);
    println!("$ {shown}");
    let status = command.status().map_err(|error| format!("`{shown}` cannot be started: {error}"))?;
    Ok(status.success())
}

/// Begins a command, saying what is begun. All that it prints goes to a file of its own.
///
/// # Errors
/// When it cannot be started, or the file not be written.
pub fn begin(command: &mut Command, log: &Path) -> Result<Child, String> {
    let shown = shown(command);
    println!("$ {shown} &");
    let unwritable = |error| format!("{} cannot be written: {error}", log.display());
    let file = File::create(log).map_err(unwritable)?;
    command.stderr(file.try_clone().map_err(unwritable)?).stdout(file);
    command.spawn().map_err(|error| format!("`{shown}` cannot be started: {error}"))
}

/// Runs a command to its end and drops what it prints. False also if it cannot be started.
pub fn succeeds_silently(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// The file of `program` in one of the folders, as a shell finds it in `PATH`.
pub fn find_program(program: &str, folders: impl IntoIterator<Item = PathBuf>) -> Option<PathBuf> {
    folders.into_iter().map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// The folders of `PATH`.
pub fn path_folders() -> Vec<PathBuf> {
    std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default()
}

/// A command as a person would type it.
fn shown(command: &Command) -> String {
    let program = Path::new(command.get_program()).file_name().unwrap_or_else(|| command.get_program());
    let words = std::iter::once(program).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}
