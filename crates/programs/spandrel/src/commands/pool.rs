//! `spandrel pool`.

use std::fmt::Write as _;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use spandrel_shared::duration::format_duration;
use spandrel_shared::size::format_size;
use spandrel_shared::{Error, PIECES_WHILE_QUIET};

use crate::admin::api::{
    self, Job, JobKind, Optimize, Optimized, PoolDetails, PoolSettings, PoolSettingsChange,
    PoolSettingsPreview, PoolStatus,
};
use crate::admin::client::Client;
use crate::arguments::{Output, PoolCommand, PoolOptimizeArguments, PoolSetArguments, Switch};
use crate::failure::{EXIT_OK, Outcome};
use crate::table::Table;
use crate::text::{counted, json, percent, say, slab_copies, verb_for};

/// How often it is looked how far the moves are. There is nothing to wait for but the next look.
const INTERVAL: Duration = Duration::from_secs(1);

/// After so long without a copy that moves, nothing more is: owners look each second, and of the last few copies each begins
/// one only now and then, so that they do not begin too many together.
const REST: Duration = Duration::from_secs(15);

/// The same, if all lies evenly: what an owner has just begun may not be seen yet.
const REST_WHEN_EVEN: Duration = Duration::from_secs(6);

/// Carries out a command about the pool.
pub fn pool(client: &Client, command: &PoolCommand) -> Outcome {
    match command {
        PoolCommand::Status(arguments) => {
            let pool: PoolDetails = client.get(api::POOL)?;
            say(&match arguments.output {
                Output::Table => render(&pool),
                Output::Json => json(&pool),
            });
            Ok(EXIT_OK)
        }
        PoolCommand::Optimize(arguments) => optimize(client, *arguments),
        PoolCommand::Set(arguments) if arguments.dry_run => {
            let preview: PoolSettingsPreview =
                client.post(api::POOL_SETTINGS_PREVIEW, &change_of(*arguments))?;
            preview.warnings.iter().for_each(|warning| eprintln!("warning: {warning}"));
            let PoolSettingsPreview { before, after, .. } = preview;
            say(&match before == after {
                true => format!("nothing would change:\n{}", render_settings(&before)),
                false => format!("now:\n{}\nthen:\n{}", render_settings(&before), render_settings(&after)),
            });
            Ok(EXIT_OK)
        }
        PoolCommand::Set(arguments) => {
            let settings: PoolSettings = client.post(api::POOL_SETTINGS, &change_of(*arguments))?;
            say(&render_settings(&settings));
            Ok(EXIT_OK)
        }
    }
}

fn change_of(arguments: PoolSetArguments) -> PoolSettingsChange {
    PoolSettingsChange {
        rebuild_after_drive_s: arguments.rebuild_after_drive,
        rebuild_after_node_s: arguments.rebuild_after_node,
        balance: arguments.balance.map(|switch| switch == Switch::On),
        repair_share: arguments.repair_share,
        retire_slow: arguments.retire_slow.map(|switch| switch == Switch::On),
        scrub_period_s: arguments.scrub_period,
        cache_mode_ssd: arguments.cache_mode_ssd,
        cache_mode_hdd: arguments.cache_mode_hdd,
        memory_cache_bytes: arguments.memory_cache,
        map_memory_bytes: arguments.map_memory,
    }
}

fn optimize(client: &Client, arguments: PoolOptimizeArguments) -> Outcome {
    let request = Optimize { dry_run: arguments.dry_run };
    let asked: Optimized = client.post(api::POOL_OPTIMIZE, &request)?;
    let copies = slab_copies(asked.copies_to_move);
    let size = format_size(asked.copies_to_move * asked.slab_bytes);
    let text = match (arguments.dry_run, arguments.no_wait) {
        (true, _) => format!("about {copies} ({size} at most) would move\n"),
        (false, true) => {
            format!("about {copies} ({size} at most) move; `spandrel pool status` shows how far that is\n")
        }
        (false, false) => render_evenness(&await_even(client, asked.copies_to_move)?),
    };
    say(&match arguments.output.output {
        Output::Table => text,
        Output::Json => json(&asked),
    });
    Ok(EXIT_OK)
}

/// Shows how copies are spread, until none more move.
fn await_even(client: &Client, mut total: u64) -> Result<PoolDetails, Error> {
    let bar = copies_bar(total);
    let (mut moved, mut left_then) = (Instant::now(), u64::MAX);
    loop {
        let pool: PoolDetails = client.watch(api::POOL)?;
        let jobs = pool.jobs.iter().filter(|job| job.kind == JobKind::Rebalance);
        let (mut under_way, mut rate) = (0, 0);
        for job in jobs {
            under_way += u64::from(job.slabs);
            rate += job.bytes_per_second().unwrap_or(0);
        }
        let left = pool.copies_to_spread + under_way;
        // What holds little has moved before it is seen to be under way.
        if under_way > 0 || left < left_then {
            (moved, left_then) = (Instant::now(), left);
        }
        let rest = if pool.copies_to_spread == 0 { REST_WHEN_EVEN } else { REST };
        if total + left == 0 || under_way == 0 && moved.elapsed() > rest {
            bar.finish_and_clear();
            return Ok(pool);
        }
        total = total.max(left);
        bar.set_length(total);
        bar.set_position(total - left);
        bar.set_message(if rate > 0 { format!("{}/s", format_size(rate)) } else { String::new() });
        client.pause(INTERVAL);
    }
}

/// A bar that shows how many copies of all were moved; hidden where nobody looks.
pub fn copies_bar(total: u64) -> ProgressBar {
    bar_of(total, "{elapsed_precise} [{bar:30}] {pos} of {len} copies moved {msg}")
}

/// A bar that shows how many bytes of all were moved, or only the time where there are none; hidden where nobody looks.
pub fn bytes_bar(total: u64) -> ProgressBar {
    match total {
        0 => bar_of(0, "{elapsed_precise} nothing to move {msg}"),
        _ => bar_of(total, "{elapsed_precise} [{bar:30}] {binary_bytes} of {binary_total_bytes} moved {msg}"),
    }
}

fn bar_of(total: u64, template: &str) -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(total) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template(template);
    bar.set_style(style.expect("the template is well-formed").progress_chars("=> "));
    bar
}

/// The room of a pool, in words.
pub fn room_text(pool: &PoolStatus) -> String {
    format!(
        "{} of {} promised to volumes ({}), {} free",
        format_size(pool.promised_bytes),
        format_size(pool.total_bytes),
        percent(pool.promised_bytes, pool.total_bytes),
        format_size(pool.free_bytes),
    )
}

fn render(details: &PoolDetails) -> String {
    let pool = &details.pool;
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        let _ = writeln!(text, "{name:<8} {value}");
    };
    line("pool", pool.status.to_string());
    line("room", room_text(pool));
    line("reserve", format!("{} should stay free for repairs", format_size(pool.reserve_bytes)));
    text += &render_evenness(details);
    text += &render_settings(&details.settings);
    if details.copies_to_replace > 0 {
        let size = format_size(details.copies_to_replace * pool.slab_bytes);
        let _ = writeln!(
            text,
            "\n{} ({size} at most) {} yet to be built elsewhere",
            slab_copies(details.copies_to_replace),
            verb_for(details.copies_to_replace, "is", "are")
        );
    }
    if details.copies_without_place > 0 {
        let _ = writeln!(
            text,
            "of these {} wait: no drive has room on a node that holds no other copy of the same slab; bring back what is \
             missing, or add drives or nodes",
            details.copies_without_place
        );
    }
    match &details.jobs[..] {
        [] => text += "\nnothing is being repaired or moved\n",
        jobs => {
            let _ = write!(text, "\n{}", render_jobs(jobs));
        }
    }
    text
}

fn render_evenness(details: &PoolDetails) -> String {
    let (Some(fullest), Some(emptiest)) = (&details.fullest, &details.emptiest) else { return String::new() };
    let share =
        |fill: &api::DriveFill| format!("{} {:.1} %", fill.drive, f64::from(fill.promised_per_mille) / 10.0);
    let rest = match details.copies_to_spread {
        0 => "as even as it can be".to_owned(),
        copies => format!("{} would have to move", slab_copies(copies)),
    };
    format!("drives   promised from {} to {}: {rest}\n", share(emptiest), share(fullest))
}

fn render_settings(settings: &PoolSettings) -> String {
    let time = |seconds: u32| format_duration(Duration::from_secs(seconds.into()));
    let mut text = format!(
        "rebuild  what is away is built anew elsewhere after {} (drives), {} (nodes)\n",
        time(settings.rebuild_after_drive_s),
        time(settings.rebuild_after_node_s),
    );
    text += match settings.balance {
        true => "balance  copies are spread by themselves\n",
        false => "balance  copies are spread only when asked for (`spandrel pool optimize`)\n",
    };
    text += &format!(
        "repair   {}: {} of 64 KiB at once on each node while clients are served, up to {PIECES_WHILE_QUIET} while none are\n",
        settings.repair_share,
        counted(settings.repair_share.pieces_at_once() as u64, "piece"),
    );
    if settings.retire_slow {
        text += "slow     drives that were slow three times are retired\n";
    }
    text += &format!(
        "cache    {} in front of flash, {} in front of spinning disks, where there are cache drives\n",
        settings.cache_mode_ssd, settings.cache_mode_hdd
    );
    text += &match settings.memory_cache_bytes {
        0 => "memory   none of a node's for copies of what is read\n".to_owned(),
        bytes => format!("memory   {} of each node for copies of what is read\n", format_size(bytes)),
    };
    text += &match settings.map_memory_bytes {
        0 => "maps     as much of each node's memory as the maps of its drives need\n".to_owned(),
        bytes => {
            format!(
                "maps     about {} of each node's memory for the maps of its drives\n",
                format_size(bytes)
            )
        }
    };
    text += &match settings.scrub_period_s {
        0 => "scrub    copies are read and compared only when asked for (`spandrel scrub`)\n".to_owned(),
        period_s => {
            format!("scrub    every block of every copy is read and compared once in {}\n", time(period_s))
        }
    };
    text
}

fn render_jobs(jobs: &[Job]) -> String {
    let mut table =
        Table::new(&["JOB", "VOLUME", "DRIVE", ">SLABS", ">DONE", ">COPIED", ">PER SECOND", ">LEFT"]);
    for job in jobs {
        let seconds = |ms: u64| format_duration(Duration::from_secs(ms.div_ceil(1000)));
        table.row([
            job.kind.to_string(),
            job.volume.clone(),
            job.drive.clone(),
            job.slabs.to_string(),
            percent(job.pages.done, job.pages.total),
            format_size(job.copied_bytes),
            job.bytes_per_second().map_or_else(String::new, format_size),
            job.left_ms().map_or_else(String::new, seconds),
        ]);
    }
    table.render()
}

#[cfg(test)]
#[path = "pool_tests.rs"]
mod tests;
