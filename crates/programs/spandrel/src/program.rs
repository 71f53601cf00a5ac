//! The program that this process runs, as a file: whether it was replaced since, and how the process begins anew with it.
//!
//! The file is found as whoever started the process has named it. A link that leads to another version since, or a package
//! that was updated, is so followed.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use spandrel_shared::Error;

use crate::failure::system_error;

/// This version of the program.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What runs in this process, whatever has become of its file.
const RUNNING: &str = "/proc/self/exe";

/// How long the program may take to say its version.
const VERSION_TIME_MAX: Duration = Duration::from_secs(10);

/// Where the program is, and what it was given.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
}

impl Program {
    /// The program of this process. To be called before the process changes its directory.
    pub fn of_this_process() -> Self {
        let mut arguments = std::env::args_os();
        let name = PathBuf::from(arguments.next().unwrap_or_default());
        let path = find(&name, std::env::var_os("PATH").as_deref()).or_else(|| std::env::current_exe().ok());
        Self { path: path.unwrap_or(name), arguments: arguments.collect() }
    }

    /// Whether the file is another one than when this process began. Not if it is gone: then nothing has taken its place.
    pub fn is_replaced(&self) -> bool {
        let identity = |path: &Path| std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        match (identity(Path::new(RUNNING)), identity(&self.path)) {
            (Some(running), Some(file)) => running != file,
            _ => false,
        }
    }

    /// The version that the file has now, which also shows that it can be run.
    ///
    /// # Errors
    ///
    /// `PROGRAM_UNUSABLE`.
    pub async fn version(&self) -> Result<String, Error> {
        let mut asked = tokio::process::Command::new(&self.path);
        asked.arg("--version").stdin(Stdio::null()).kill_on_drop(true);
        let output = match tokio::time::timeout(VERSION_TIME_MAX, asked.output()).await {
            Err(_) => return Err(self.unusable("it does not say its version")),
            Ok(Err(error)) => return Err(self.unusable(&error.to_string())),
            Ok(Ok(output)) => output,
        };
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(self.unusable(&format!("{}: {}", output.status, said.trim())));
        }
        match version_in(&String::from_utf8_lossy(&output.stdout)) {
            Some(version) => Ok(version),
            None => Err(self.unusable("it is another program")),
        }
    }

    fn unusable(&self, why: &str) -> Error {
        Error::new(
            "PROGRAM_UNUSABLE",
            "the server cannot begin anew",
            format!("{} cannot be run: {why}", self.path.display()),
            "put a program there that this server can run; the one that runs goes on meanwhile",
        )
    }

    /// Begins the process anew with what the file is now: same number, same arguments, same surroundings. Everything that
    /// the process has open ends. Returns only if that fails.
    pub fn begin_anew(&self) -> Result<Infallible, Error> {
        let error = Command::new(&self.path).args(&self.arguments).exec();
        Err(system_error(format!("{} cannot be run", self.path.display()), &error))
    }
}

/// The version in what `spandrel --version` prints.
fn version_in(text: &str) -> Option<String> {
    let version = text.trim().strip_prefix(concat!(env!("CARGO_PKG_NAME"), " "))?;
    (!version.is_empty()).then(|| version.to_owned())
}

/// The file that a command called `name` runs, from the root on, as a shell finds it. Links in it stay.
fn find(name: &Path, search: Option<&std::ffi::OsStr>) -> Option<PathBuf> {
    if name.as_os_str().is_empty() {
        return None;
    }
    if name.components().count() > 1 || name.is_absolute() {
        return std::path::absolute(name).ok();
    }
    let found =
        std::env::split_paths(search?).map(|directory| directory.join(name)).find(|file| file.is_file());
    std::path::absolute(found?).ok()
}

#[cfg(test)]
#[path = "program_tests.rs"]
mod tests;
