//! `spandrel top`: how busy the cluster is, live.
//!
//! The cluster is asked for its counts in regular intervals; [`rates`] makes of two answers what was done in a second, how
//! long it took and how much waited, [`screen`] makes lines of that, and [`terminal`] shows them. None but this file asks
//! anybody, and none but the last touches the terminal.

mod caches;
mod rates;
mod screen;
mod terminal;

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use clap::Args;
use spandrel_shared::Error;
use spandrel_shared::duration::parse_duration;

use self::rates::Rates;
use self::screen::Size;
use self::terminal::Terminal;
use crate::admin::api::{self, ClusterLoad};
use crate::admin::client::{Client, is_passing};
use crate::failure::{EXIT_OK, Outcome};
use crate::text::say;

/// The shortest interval: nodes look ten times a second at what is under way.
const INTERVAL_MIN: Duration = Duration::from_millis(100);

/// The longest one.
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// How wide a table is that no terminal shows.
const WIDTH_WITHOUT_TERMINAL: usize = 100;

/// `spandrel top`.
#[derive(Clone, Copy, Debug, Args)]
pub struct TopArguments {
    /// How often to show it anew: 100ms to 1h. The longer, the more exact are latency and queue
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = parse_interval)]
    pub interval: Duration,

    /// Show one interval and end, as without a terminal
    #[arg(long)]
    pub once: bool,

    /// Print a JSON object for each interval, on a line of its own
    #[arg(long)]
    pub json: bool,
}

fn parse_interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    match (INTERVAL_MIN..=INTERVAL_MAX).contains(&interval) {
        true => Ok(interval),
        false => Err(format!("{text:?} is no interval: write one from 100ms to 1h")),
    }
}

/// Shows how busy the cluster is.
pub fn top(client: &Client, arguments: TopArguments) -> Outcome {
    let before: ClusterLoad = client.get(api::LOAD)?;
    let is_watched = std::io::stdout().is_terminal();
    match (arguments.json, arguments.once || !is_watched) {
        (true, _) => print_json(client, arguments, before)?,
        (false, true) => {
            client.pause(arguments.interval);
            let rates = Rates::between(&before, &client.get(api::LOAD)?);
            say(&joined(&screen::lines(&rates, Size { width: WIDTH_WITHOUT_TERMINAL, height: None })));
        }
        (false, false) => watch(client, arguments.interval, before)?,
    }
    Ok(EXIT_OK)
}

/// A line for each interval: one, or until the command is ended or nobody reads on.
fn print_json(client: &Client, arguments: TopArguments, mut before: ClusterLoad) -> Result<(), Error> {
    loop {
        client.pause(arguments.interval);
        let after = match client.get(api::LOAD) {
            Err(error) if is_passing(&error) && !arguments.once => {
                eprintln!("no answer: {} ({})", error.what, error.code);
                continue;
            }
            answer => answer?,
        };
        let line = serde_json::to_string(&Rates::between(&before, &after)).expect("rates are plain data");
        let mut output = std::io::stdout().lock();
        let written = writeln!(output, "{line}").and_then(|()| output.flush());
        if arguments.once || written.is_err() {
            return Ok(());
        }
        before = after;
    }
}

/// Shows it anew in each interval, until `q` or Ctrl-C is pressed. That the cluster does not answer for a while is told, and
/// is no reason to end.
fn watch(client: &Client, interval: Duration, mut before: ClusterLoad) -> Result<(), Error> {
    let terminal = Terminal::take()?;
    let (mut next, mut lines) = (Instant::now() + interval, vec!["…".to_owned()]);
    loop {
        terminal.show(&lines)?;
        if terminal.is_ended_before(next)? {
            return Ok(());
        }
        next = Instant::now() + interval;
        match client.get(api::LOAD) {
            Ok(after) => {
                let rates = Rates::between(&before, &after);
                lines = screen::lines(&rates, terminal.size());
                before = after;
            }
            Err(error) if is_passing(&error) => lines[0] = screen::silence(&error, terminal.size()),
            Err(error) => return Err(error),
        }
    }
}

fn joined(lines: &[String]) -> String {
    lines.iter().map(|line| format!("{line}\n")).collect()
}

#[cfg(test)]
#[path = "top/top_tests.rs"]
mod tests;
