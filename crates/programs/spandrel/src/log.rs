//! Where the log goes: everything to a file in the cluster's directory, and what a person should
//! see at once to standard error. As lines of text, or with one JSON object a line, for programs.

use std::fmt;
use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::sync::Mutex;

use serde_json::{Map, Value, json};
use spandrel_shared::Error;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, MakeWriter};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, Layer, Registry};

use crate::arguments::{LogArguments, LogFormat};
use crate::directory::Directory;

/// The variable that says what is logged, in tracing's words; `info` if it is not set.
const FILTER_VARIABLE: &str = "SPANDREL_LOG";

/// A log that is longer when a cluster starts is put away, in place of the one before.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// The targets of events that are shown to the person in front of the screen: this program's own,
/// which tell what happened to nodes and volumes.
const SHOWN_TARGET: &str = "spandrel::";

/// The target of good news that is shown there all the same: whoever was told of a trouble hears of its end.
pub const ALL_CLEAR: &str = "spandrel::all_clear";

/// Starts to log, in the name of the server or the nodes that run in this process: with several, each logs on a thread
/// of its name, and each further shard on one with its number behind that (`n1/1`). With `verbose` all of it goes to
/// standard error.
pub fn start(directory: &Directory, arguments: LogArguments, names: Vec<String>) -> Result<(), Error> {
    let LogArguments { verbose, log_format } = arguments;
    let filter = || {
        let builder = EnvFilter::builder().with_env_var(FILTER_VARIABLE);
        builder.with_default_directive(LevelFilter::INFO.into()).from_env_lossy()
    };
    let lines = JsonLines { names };
    if verbose {
        let to_screen = layer(std::io::stderr, is_terminal(), true, log_format, &lines);
        set(Registry::default().with(to_screen.with_filter(filter())));
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
    let to_file = layer(Mutex::new(file), false, true, log_format, &lines).with_filter(filter());
    let shown =
        tracing_subscriber::filter::filter_fn(|metadata| is_shown(metadata.target(), *metadata.level()));
    let to_screen = layer(std::io::stderr, is_terminal(), false, log_format, &lines).with_filter(shown);
    set(Registry::default().with(to_file).with(to_screen));
    Ok(())
}

/// Whether an event is shown to the person in front of the screen: trouble, and its end, but not what goes well anyway.
fn is_shown(target: &str, level: Level) -> bool {
    let is_own = target.starts_with(SHOWN_TARGET);
    level == Level::ERROR || is_own && level <= Level::WARN || target == ALL_CLEAR
}

/// What writes events down.
fn layer<S, W>(
    writer: W,
    with_colours: bool,
    with_target: bool,
    format: LogFormat,
    lines: &JsonLines,
) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    match format {
        LogFormat::Text => layer.with_ansi(with_colours).with_target(with_target).boxed(),
        LogFormat::Json => layer.with_ansi(false).event_format(lines.clone()).boxed(),
    }
}

/// Events as JSON objects, each in a line: `time` (UTC, RFC 3339), `level`, `target`, `node` (the server's name, absent
/// for what concerns no single node), `shard` (the number of its thread, from 0; absent for what concerns all), `message`, and `fields`, which are the event's own.
#[derive(Clone, Debug)]
struct JsonLines {
    /// The server's name, or those of all nodes in this process.
    names: Vec<String>,
}

impl JsonLines {
    /// The node in whose name this thread speaks, and the shard's number, if it is one: it stands behind the name, but for the
    /// first.
    fn speaker(&self) -> (Option<String>, Option<u8>) {
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or_default();
        let (node, shard) = thread.split_once('/').unwrap_or((thread, "0"));
        if self.names.iter().any(|known| known == node) {
            return (Some(node.to_owned()), shard.parse().ok());
        }
        let [only] = &self.names[..] else { return (None, None) };
        (Some(only.clone()), None)
    }
}

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = Fields::default();
        event.record(&mut fields);
        let metadata = event.metadata();
        let mut line = Map::new();
        line.insert("time".to_owned(), time.into());
        line.insert("level".to_owned(), metadata.level().as_str().into());
        line.insert("target".to_owned(), metadata.target().into());
        let (node, shard) = self.speaker();
        line.extend(node.map(|node| ("node".to_owned(), node.into())));
        line.extend(shard.map(|shard| ("shard".to_owned(), shard.into())));
        line.insert("message".to_owned(), fields.message.into());
        line.insert("fields".to_owned(), Value::Object(fields.others));
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// What an event says.
#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn take(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::String(message)) => self.message = message,
            (name, value) => {
                self.others.insert(name.to_owned(), value);
            }
        }
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.into());
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.take(field, value.to_string().into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, value.into());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        // What is no number in JSON becomes null.
        self.take(field, json!(value));
    }
}

fn is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

fn set(subscriber: impl Subscriber + Send + Sync) {
    // Fails only if there is one already, which then serves as well.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

#[cfg(test)]
#[path = "log_tests.rs"]
mod tests;
