//! Where the log goes: everything to a file in the cluster's directory, and what a person should
//! see at once to standard error.

use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::sync::Mutex;

use spandrel_shared::Error;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::{EnvFilter, Layer, Registry, fmt};

use crate::directory::Directory;

/// The variable that says what is logged, in tracing's words; `info` if it is not set.
const FILTER_VARIABLE: &str = "SPANDREL_LOG";

/// A log that is longer when a cluster starts is put away, in place of the one before.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// The targets of events that are shown to the person in front of the screen: this program's own,
/// which tell what happened to nodes and volumes.
const SHOWN_TARGET: &str = "spandrel::";

/// Starts to log. With `verbose` all of it goes to standard error.
pub fn start(directory: &Directory, verbose: bool) -> Result<(), Error> {
    let filter = || {
        let builder = EnvFilter::builder().with_env_var(FILTER_VARIABLE);
        builder.with_default_directive(LevelFilter::INFO.into()).from_env_lossy()
    };
    if verbose {
        let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(is_terminal()).with_filter(filter());
        set(Registry::default().with(layer));
        return Ok(());
    }
    let folder = directory.log_directory();
    let path = folder.join("spandrel.log");
    if std::fs::metadata(&path).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX) {
        // Best effort: a log that cannot be put away grows on.
        let _ = std::fs::rename(&path, folder.join("spandrel.log.1"));
    }
    let opened = std::fs::create_dir_all(&folder)
        .and_then(|()| OpenOptions::new().create(true).append(true).open(&path));
    let file = opened.map_err(|error| {
        let what = format!("the log {} cannot be written", path.display());
        Error::new("LOG_NOT_WRITABLE", what, error.to_string(), "make it writable, or log elsewhere with -v")
    })?;
    let to_file = fmt::layer().with_writer(Mutex::new(file)).with_ansi(false).with_filter(filter());
    let shown = tracing_subscriber::filter::filter_fn(|metadata| {
        let is_own = metadata.target().starts_with(SHOWN_TARGET);
        *metadata.level() == tracing::Level::ERROR || is_own && *metadata.level() <= tracing::Level::WARN
    });
    let to_screen = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(is_terminal())
        .with_target(false)
        .with_filter(shown);
    set(Registry::default().with(to_file).with(to_screen));
    Ok(())
}

fn is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

fn set(subscriber: impl tracing::Subscriber + Send + Sync) {
    // Fails only if there is one already, which then serves as well.
    let _ = tracing::subscriber::set_global_default(subscriber);
}
