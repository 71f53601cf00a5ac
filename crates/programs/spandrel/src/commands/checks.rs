//! `spandrel volume verify` and `spandrel scrub`: checking volumes, with progress.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use spandrel_shared::Error;
use spandrel_shared::duration::format_duration;
use spandrel_shared::size::format_size;

use crate::admin::administration::{unix_ms, volume_not_found};
use crate::admin::api::{self, CheckLine, CheckReport, Progress, ScrubStatus};
use crate::admin::client::{Client, path_with};
use crate::arguments::{Output, ScrubArguments, ScrubCommand, ScrubStatusArguments, VerifyArguments};
use crate::failure::{EXIT_DAMAGE, EXIT_OK, Outcome};
use crate::table::{Table, count_text};
use crate::text::{age_text, counted, json, percent, say};

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

/// Scrubs volumes now, or shows how far their scrubs are.
pub fn scrub(client: &Client, arguments: &ScrubArguments) -> Outcome {
    if let Some(ScrubCommand::Status(arguments)) = &arguments.command {
        return scrub_status(client, arguments);
    }
    let reports = match &arguments.names[..] {
        [] => check(client, api::SCRUB)?,
        names => {
            let mut reports = Vec::new();
            for name in names {
                reports.extend(check(client, &format!("{}?heal=true", path_with(api::VOLUME_CHECK, name)))?);
            }
            reports
        }
    };
    say(&match arguments.output.output {
        Output::Table if reports.is_empty() => "there are no volumes to scrub\n".to_owned(),
        Output::Table => render_list(&reports),
        Output::Json => json(&reports),
    });
    Ok(exit_status(&reports))
}

fn scrub_status(client: &Client, arguments: &ScrubStatusArguments) -> Outcome {
    let all: Vec<ScrubStatus> = client.get(api::SCRUB)?;
    if let Some(unknown) = arguments.names.iter().find(|name| !all.iter().any(|scrub| scrub.volume == **name))
    {
        return Err(volume_not_found(unknown));
    }
    let is_wanted =
        |scrub: &ScrubStatus| arguments.names.is_empty() || arguments.names.contains(&scrub.volume);
    let scrubs: Vec<ScrubStatus> = all.into_iter().filter(is_wanted).collect();
    say(&match arguments.output.output {
        Output::Table if scrubs.is_empty() => "there are no volumes to scrub\n".to_owned(),
        Output::Table => render_scrubs(&scrubs, unix_ms()),
        Output::Json => json(&scrubs),
    });
    Ok(EXIT_OK)
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
    if report.blocks_lost > 0 {
        text += &format!("  {} blocks are damaged on every copy\n", count_text(report.blocks_lost));
    }
    if report.pages_lacking > 0 {
        text += &format!(
            "  {} of copies lacked writes that they had confirmed{}\n",
            format_size(report.pages_lacking << 21),
            if report.heal { ": these copies are brought up to date" } else { "" }
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

fn render_list(reports: &[CheckReport]) -> String {
    let mut table = Table::new(&[
        "VOLUME",
        ">TOOK",
        ">CHECKED",
        ">DAMAGED",
        ">HEALED",
        ">DIFFERENT",
        ">LOST",
        ">UNCHECKED",
        "RESULT",
    ]);
    for report in reports {
        table.row([
            report.volume.clone(),
            format_duration(Duration::from_secs(report.seconds)),
            format_size(report.blocks_checked * 4096),
            count_text(report.blocks_damaged()),
            count_text(report.blocks_healed),
            count_text(report.blocks_different),
            count_text(report.blocks_lost),
            format_size(report.pieces_unchecked << 20),
            if report.is_clean() { "whole" } else { "NOT WHOLE" }.to_owned(),
        ]);
    }
    table.render()
}

fn render_scrubs(scrubs: &[ScrubStatus], now_unix_ms: u64) -> String {
    let mut table = Table::new(&[
        "VOLUME",
        ">OLDEST",
        ">NEWEST",
        ">PASS",
        ">PACE",
        ">DAMAGED",
        ">HEALED",
        ">DIFFERENT",
        ">LOST",
        "RESULT",
    ]);
    for scrub in scrubs {
        let ago = |unix_ms: u64| age_text(now_unix_ms.saturating_sub(unix_ms));
        let result = match scrub {
            _ if scrub.blocks_lost_now + scrub.blocks_different_now > 0 => "NOT WHOLE",
            _ if scrub.is_late => "LATE",
            _ if scrub.newest_unix_ms.is_none() => "",
            _ => "whole",
        };
        table.row([
            scrub.volume.clone(),
            ago(scrub.oldest_unix_ms),
            scrub.newest_unix_ms.map_or_else(|| "never".to_owned(), ago),
            percent(scrub.slabs.done, scrub.slabs.total),
            match scrub.period_s {
                0 => "off".to_owned(),
                _ => format!("{}/s", format_size(scrub.bytes_per_second)),
            },
            count_text(scrub.found.blocks_damaged),
            count_text(scrub.found.blocks_healed),
            count_text(scrub.found.blocks_different),
            count_text(scrub.found.blocks_lost),
            result.to_owned(),
        ]);
    }
    table.render()
}

/// How far the scrub of a volume is, in a line.
pub fn scrub_text(scrub: &ScrubStatus, now_unix_ms: u64) -> String {
    let ago = |unix_ms: u64| age_text(now_unix_ms.saturating_sub(unix_ms));
    let read = match scrub.newest_unix_ms {
        None => "nothing was read yet".to_owned(),
        Some(_) if scrub.slabs_never_read > 0 => {
            format!("{} never read", counted(scrub.slabs_never_read.into(), "slab"))
        }
        Some(_) => format!("all was read within {}", ago(scrub.oldest_unix_ms)),
    };
    let pass = percent(scrub.slabs.done, scrub.slabs.total);
    let late = if scrub.is_late { ", LATE" } else { "" };
    let found = match scrub.found.is_nothing() {
        true => "nothing found".to_owned(),
        false => format!(
            "found {} damaged ({} healed), {} different, {} lost",
            counted(scrub.found.blocks_damaged, "block"),
            count_text(scrub.found.blocks_healed),
            count_text(scrub.found.blocks_different),
            count_text(scrub.found.blocks_lost)
        ),
    };
    format!("{read}{late}, this pass {pass}; {found} for {}", ago(scrub.found.since_unix_ms))
}

#[cfg(test)]
#[path = "checks_tests.rs"]
mod tests;
