//! `spandrel explain`.

use std::fmt::Write as _;
use std::time::Duration;

use spandrel_shared::duration::format_duration;

use crate::admin::api::{self, Explanation};
use crate::admin::client::{Client, path_with};
use crate::arguments::{ExplainCommand, Output};
use crate::failure::{EXIT_OK, Outcome};
use crate::text::{json, say};

/// Says why something is as it is.
pub fn explain(client: &Client, command: &ExplainCommand) -> Outcome {
    let (path, output) = match command {
        ExplainCommand::Volume(of) => (path_with(api::VOLUME_EXPLANATION, &of.name), of.output),
        ExplainCommand::Node(of) => (path_with(api::NODE_EXPLANATION, &of.name), of.output),
        ExplainCommand::Drive(of) => (path_with(api::DRIVE_EXPLANATION, &of.name), of.output),
        ExplainCommand::Pool(output) => (api::POOL_EXPLANATION.to_owned(), *output),
    };
    let explanation: Explanation = client.get(&path)?;
    say(&match output.output {
        Output::Table => render(&explanation),
        Output::Json => json(&explanation),
    });
    Ok(EXIT_OK)
}

/// A line of how it is, and below it what there is to say, a line each.
fn render(explanation: &Explanation) -> String {
    let time = |ms: u64| format_duration(Duration::from_secs(ms.div_ceil(1000)));
    let mut text = format!("{}: {}", explanation.object, explanation.status);
    if let Some(since_ms) = explanation.since_ms {
        let _ = write!(text, ", for {}", time(since_ms));
    }
    text.push('\n');
    let mut lines = |head: &str, lines: &[String]| {
        for (at, line) in lines.iter().enumerate() {
            let _ = writeln!(text, "{:<10}{line}", if at == 0 { head } else { "" });
        }
    };
    lines("why", &explanation.why);
    lines("doing", &explanation.doing);
    if let Some(left_ms) = explanation.left_ms {
        lines("time left", &[time(left_ms)]);
    }
    lines("you may", &explanation.may);
    lines("must not", &explanation.must_not);
    text
}

#[cfg(test)]
#[path = "explain_tests.rs"]
mod tests;
