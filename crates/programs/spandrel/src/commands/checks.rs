//! `spandrel volume verify` and `spandrel scrub`: checking volumes, with progress.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use spandrel_shared::Error;
use spandrel_shared::size::format_size;

use crate::admin::administration::unix_ms;
use crate::admin::api::{self, CheckLine, CheckReport, Progress};
use crate::admin::client::{Client, path_with};
use crate::arguments::{Output, ScrubArguments, VerifyArguments};
use crate::failure::{EXIT_DAMAGE, EXIT_OK, Outcome};
use crate::table::{Table, count_text};
use crate::text::{age_text, json, say};

/// Checks a volume.
pub fn verify(client: &Client, arguments: &VerifyArguments) -> Outcome {
    let path = path_with(api::VOLUME_CHECK, &arguments.name);
    let mut reports = check(client, &format!("{path}?heal={}", arguments.heal))?;
    let report = reports.pop().ok_or_else(|| {
        let what = format!("volume {} was not checked", arguments.name);
        Error::new(
            "VOLUME_NOT_CHECKED",
            what,
            "it was deleted meanwhile",
            "list the volumes with `spandrel volume list`",
        )
    })?;
    say(&match arguments.output.output {
        Output::Table => render_report(&report),
        Output::Json => json(&report),
    });
    Ok(exit_status([&report]))
}

/// Shows the last check of each volume, or checks and heals all of them now.
pub fn scrub(client: &Client, arguments: ScrubArguments) -> Outcome {
    let reports = if arguments.now { check(client, api::SCRUB)? } else { client.get(api::SCRUB)? };
    say(&match arguments.output.output {
        Output::Table if reports.is_empty() && !arguments.now => {
            "no volume was scrubbed since the cluster started: do so with `spandrel scrub --now`\n".to_owned()
        }
        Output::Table if reports.is_empty() => "there are no volumes to scrub\n".to_owned(),
        Output::Table => render_list(&reports, unix_ms()),
        Output::Json => json(&reports),
    });
    Ok(if arguments.now { exit_status(&reports) } else { EXIT_OK })
}

fn exit_status<'a>(reports: impl IntoIterator<Item = &'a CheckReport>) -> u8 {
    if reports.into_iter().all(CheckReport::is_clean) { EXIT_OK } else { EXIT_DAMAGE }
}

/// Has volumes checked and shows how that gets on. An error if one could not be checked; the others
/// are checked all the same.
pub fn check(client: &Client, path: &str) -> Result<Vec<CheckReport>, Error> {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(0) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {percent:>3} % {msg}");
    bar.set_style(style.expect("the template is well-formed").progress_chars("=> "));
    let (mut reports, mut failure) = (Vec::new(), None);
    let streamed = client.stream(path, |line| match line {
        CheckLine::Progress { volume, slabs: Progress { done, total } } => {
            bar.set_length(total);
            bar.set_position(done);
            bar.set_message(volume);
        }
        CheckLine::Report(report) => reports.push(report),
        CheckLine::Failed(error) => failure = failure.take().or(Some(error)),
    });
    bar.finish_and_clear();
    streamed?;
    match failure {
        Some(error) => Err(error),
        None => Ok(reports),
    }
}

/// What a check found, in words.
pub fn render_report(report: &CheckReport) -> String {
    let mut text = format!(
        "volume {}: {} of copies checked in {} s\n",
        report.volume,
        format_size(report.blocks_checked * 4096),
        report.seconds
    );
    for damage in &report.damaged {
        text += &format!("  {} blocks damaged on {}\n", count_text(damage.blocks), damage.drive);
    }
    if report.blocks_damaged() > 0 {
        text += &match (report.heal, report.blocks_healed) {
            (false, _) => "  nothing was healed: that is what --heal is for\n".to_owned(),
            (true, healed) => format!("  {} of them healed\n", count_text(healed)),
        };
    }
    if report.blocks_different > 0 {
        text += &format!(
            "  {} blocks are whole on every copy but not the same on all\n",
            count_text(report.blocks_different)
        );
    }
    if report.pieces_unchecked > 0 {
        text += &format!(
            "  {} of copies could not be checked: bring their nodes and drives back, and check again\n",
            format_size(report.pieces_unchecked << 20)
        );
    }
    text += match (report.is_clean(), report.blocks_damaged()) {
        (true, 0) => "all copies are whole and the same\n",
        (true, _) => "all copies are whole and the same now\n",
        (false, _) => "NOT all copies are known to be whole and the same\n",
    };
    text
}

fn render_list(reports: &[CheckReport], now_unix_ms: u64) -> String {
    let mut table = Table::new(&[
        "VOLUME",
        ">AGO",
        ">CHECKED",
        ">DAMAGED",
        ">HEALED",
        ">DIFFERENT",
        ">UNCHECKED",
        "RESULT",
    ]);
    for report in reports {
        let ago = age_text(now_unix_ms.saturating_sub(report.ended_unix_ms));
        table.row([
            report.volume.clone(),
            ago,
            format_size(report.blocks_checked * 4096),
            count_text(report.blocks_damaged()),
            count_text(report.blocks_healed),
            count_text(report.blocks_different),
            format_size(report.pieces_unchecked << 20),
            if report.is_clean() { "whole" } else { "NOT WHOLE" }.to_owned(),
        ]);
    }
    table.render()
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
