//! The program under test: `spandrel`, built with the feature that tests need.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Names a program to be used in the place of one that is built. It must have been built with the
/// feature `test-faults`.
const PROGRAM_VARIABLE: &str = "SPANDREL_TEST_PROGRAM";

/// An executable `spandrel`.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
}

impl Program {
    /// The program with drives that lose what was not flushed. It is built once for each process
    /// that runs tests.
    pub fn with_test_faults() -> Self {
        static BUILT: OnceLock<PathBuf> = OnceLock::new();
        let path = BUILT.get_or_init(|| match std::env::var_os(PROGRAM_VARIABLE) {
            Some(named) => PathBuf::from(named),
            None => build(),
        });
        Self { path: path.clone() }
    }

    /// A program that was built, at another place.
    pub fn at(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Has cargo build it, and keeps the result under a name of its own: another build, without the
/// feature, would take its place.
fn build() -> PathBuf {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    // By itself: with the workspace's other packages it would have the simulator's planted bugs in
    // it, and this is about what ships.
    let arguments = [
        "build",
        "--package",
        "spandrel",
        "--features",
        "test-faults",
        "--message-format",
        "json-render-diagnostics",
    ];
    // As the tests were built themselves.
    let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
    let mut command = Command::new(cargo);
    // What cargo says to tests about their own package would have other packages built anew.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    let output = command
        .args(arguments)
        .args(["--profile", profile])
        .args(["--manifest-path", manifest])
        .stderr(Stdio::inherit())
        .output()
        .expect("cargo runs, since it has started this");
    assert!(output.status.success(), "the program `spandrel` cannot be built: see above");
    let messages = String::from_utf8(output.stdout).expect("cargo writes JSON");
    let executable = messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "spandrel")
        .find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)))
        .expect("cargo says where it has put the program");
    let kept = executable.with_file_name("spandrel-with-test-faults");
    let fresh = executable.with_file_name(format!("spandrel-with-test-faults-{}", std::process::id()));
    std::fs::hard_link(&executable, &fresh).expect("the program's folder can be written to");
    // In one step, since another process may be about to start it.
    std::fs::rename(&fresh, &kept).expect("the program's folder can be written to");
    // A rename of one file to another name of itself leaves both.
    let _ = std::fs::remove_file(&fresh);
    kept
}
