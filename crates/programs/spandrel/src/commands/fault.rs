//! `spandrel fault`.

use std::fmt::Write as _;
use std::time::Duration;

use spandrel_shared::duration::format_duration;

use crate::admin::api::{self, Fault};
use crate::admin::client::Client;
use crate::arguments::{FaultCommand, Output};
use crate::failure::{EXIT_OK, Outcome};
use crate::text::{json, say};

/// Shows what is the matter.
pub fn fault(client: &Client, command: &FaultCommand) -> Outcome {
    let FaultCommand::List(arguments) = command;
    let faults: Vec<Fault> = client.get(api::FAULTS)?;
    say(&match arguments.output {
        Output::Table => render(&faults),
        Output::Json => json(&faults),
    });
    Ok(EXIT_OK)
}

/// A few lines for each: sentences do not fit into a table.
fn render(faults: &[Fault]) -> String {
    if faults.is_empty() {
        return "nothing is the matter\n".to_owned();
    }
    let mut text = String::new();
    for fault in faults {
        let _ = write!(text, "{}: {} ({})", fault.severity, fault.object, fault.kind);
        if let Some(since_ms) = fault.since_ms {
            let _ = write!(text, ", for {}", format_duration(Duration::from_secs(since_ms.div_ceil(1000))));
        }
        text.push('\n');
        if let Some(place) = &fault.place {
            let _ = writeln!(text, "  at    {place}");
        }
        let _ = writeln!(text, "  why   {}", fault.reason);
        for (head, lines) in [("next", &fault.actions), ("not", &fault.must_not)] {
            for (at, line) in lines.iter().enumerate() {
                let _ = writeln!(text, "  {:<6}{line}", if at == 0 { head } else { "" });
            }
        }
    }
    text
}

#[cfg(test)]
#[path = "fault_tests.rs"]
mod tests;
