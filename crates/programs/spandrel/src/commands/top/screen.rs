//! What `spandrel top` shows, as lines of a given width.
//!
//! From top to bottom: what was asked when; the layers; how long clients have waited; the nodes, and their caches where there
//! are some; what is being repaired; the volumes. The last take what room the others leave. Eighty columns are enough for all of it, wider lines show more of
//! each node.

use std::time::Duration;

use spandrel_shared::Error;
use spandrel_shared::duration::format_duration;
use spandrel_shared::size::format_size;

use super::caches::CacheRates;
use super::rates::{FlowRates, JobRates, PauseOfVolume, Rates};
use crate::table::{Table, count_text, cut};
use crate::text::{age_text, counted, format_us, percent};

/// Lines as wide as this show more.
const WIDE: usize = 110;

/// The volumes that are shown where lines do not count, and at least where they do.
const VOLUMES_MAX: usize = 16;
const VOLUMES_MIN: usize = 3;

/// How wide the bar of a job is: in lines that are wide enough, and in others.
const BAR_WIDTH: usize = 20;
const BAR_WIDTH_NARROW: usize = 10;

/// How much can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Columns.
    pub width: usize,
    /// Lines, if they count.
    pub height: Option<usize>,
}

/// All lines: none is wider than `size`, and there are not more.
pub fn lines(rates: &Rates, size: Size) -> Vec<String> {
    let mut lines = vec![head(rates), String::new()];
    lines.extend(table_lines(&layers(rates), size));
    lines.extend([String::new(), pause_line(rates.longest_pause.as_ref()), String::new()]);
    lines.extend(table_lines(&nodes(rates, size.width >= WIDE), size));
    if !rates.caches.is_empty() {
        lines.push(String::new());
        lines.extend(table_lines(&caches(&rates.caches), size));
    }
    if !rates.jobs.is_empty() {
        lines.push(String::new());
        let bar_width = if size.width >= WIDE { BAR_WIDTH } else { BAR_WIDTH_NARROW };
        lines.extend(jobs(&rates.jobs, bar_width));
    }
    if !rates.volumes.is_empty() {
        // An empty line, the head, and maybe how many are not shown.
        let room = size.height.map_or(VOLUMES_MAX, |height| height.saturating_sub(lines.len() + 3));
        let shown = room.max(VOLUMES_MIN).min(rates.volumes.len());
        lines.push(String::new());
        lines.extend(table_lines(&volumes(rates, shown), size));
        if shown < rates.volumes.len() {
            let more = (rates.volumes.len() - shown) as u64;
            lines.push(format!("{} more, less busy", counted(more, "volume")));
        }
    }
    lines.truncate(size.height.unwrap_or(usize::MAX));
    lines.iter().map(|line| cut(line, size.width)).collect()
}

/// The first line while the cluster does not answer; the others stay as they were.
pub fn silence(error: &Error, size: Size) -> String {
    cut(&format!("no answer: {} ({})", error.what, error.code), size.width)
}

fn table_lines(table: &Table, size: Size) -> Vec<String> {
    table.render_within(size.width).lines().map(str::to_owned).collect()
}

fn head(rates: &Rates) -> String {
    format!(
        "{}   {} of {} nodes answer   within {}",
        rates.cluster,
        rates.nodes_answering(),
        rates.nodes.len(),
        format_duration(Duration::from_millis(rates.interval_ms)),
    )
}

fn layers(rates: &Rates) -> Table {
    let heads = ["LAYER", ">READS/s", ">WRITES/s", ">MiB/s", ">READ TAKES", ">WRITE TAKES", ">QUEUE"];
    let mut table = Table::new(&heads);
    for layer in &rates.layers {
        let (reads, writes, all) = (&layer.load.reads, &layer.load.writes, layer.load.all());
        table.row([
            layer.layer.to_owned(),
            rate(reads.per_second),
            rate(writes.per_second),
            mib(&all),
            latency(reads),
            latency(writes),
            queue(&all),
        ]);
    }
    table
}

fn nodes(rates: &Rates, is_wide: bool) -> Table {
    let mut heads = vec!["NODE", "STATE", ">IOPS", ">MiB/s", ">TAKES", ">QUEUE"];
    if is_wide {
        heads.extend([">AS OWNER/s", ">TO OTHERS/s", ">DRIVES/s", ">DRIVES MiB/s", ">DRIVES TAKE"]);
    }
    heads.push(">CPU");
    let mut table = Table::new(&heads);
    for node in &rates.nodes {
        let clients = node.frontend.all();
        let mut row = vec![node.node.clone(), node.state.clone()];
        let mut cells = vec![rate(clients.per_second), mib(&clients), latency(&clients), queue(&clients)];
        if is_wide {
            let drives = node.drive.all();
            cells.extend([
                rate(node.owner.all().per_second),
                rate(node.bus.all().per_second),
                rate(drives.per_second),
                mib(&drives),
                latency(&drives),
            ]);
        }
        cells.push(node.cpu_percent.map_or_else(String::new, |percent| format!("{percent:.0} %")));
        // Of a node that does not answer nothing is known.
        row.extend(cells.into_iter().map(|cell| if node.answers { cell } else { String::new() }));
        table.row(row);
    }
    table
}

/// The caches of each node together.
fn caches(rates: &[CacheRates]) -> Table {
    let heads =
        ["CACHE", ">HIT MiB/s", ">MISS MiB/s", ">HIT", ">FILL MiB/s", ">DESTAGE MiB/s", ">DIRTY", ">OF"];
    let mut table = Table::new(&heads);
    for of_node in rates.chunk_by(|one, other| one.node == other.node) {
        let all = of_node[1..].iter().fold(of_node[0].clone(), CacheRates::and);
        table.row([
            all.node.clone(),
            mib_text(all.hit_bytes_per_second),
            mib_text(all.missed_bytes_per_second),
            all.hit_percent().map_or_else(String::new, |percent| format!("{percent:.0} %")),
            mib_text(all.populated_bytes_per_second),
            mib_text(all.destaged_bytes_per_second),
            percent(all.counts.dirty_bytes, all.counts.total_bytes),
            format_size(all.counts.total_bytes),
        ]);
    }
    table
}

fn volumes(rates: &Rates, shown: usize) -> Table {
    let heads = ["VOLUME", "OWNER", ">READS/s", ">WRITES/s", ">MiB/s", ">TAKES", ">QUEUE", ">PAUSE"];
    let mut table = Table::new(&heads);
    for volume in &rates.volumes[..shown] {
        let all = volume.load.all();
        table.row([
            volume.volume.clone(),
            volume.owner.clone().unwrap_or_default(),
            rate(volume.load.reads.per_second),
            rate(volume.load.writes.per_second),
            mib(&all),
            latency(&all),
            queue(&all),
            volume.longest_pause.as_ref().map_or_else(String::new, |pause| length(pause.pause.length_ms)),
        ]);
    }
    table
}

fn pause_line(pause: Option<&PauseOfVolume>) -> String {
    let Some(PauseOfVolume { volume, node, pause }) = pause else {
        return "longest pause in 5 minutes: none".to_owned();
    };
    let when = match pause.ended_ms_ago {
        Some(ended_ms_ago) => format!("{} ago", age_text(ended_ms_ago)),
        None => "which goes on".to_owned(),
    };
    format!("longest pause in 5 minutes: {} on {volume}, clients of {node}, {when}", length(pause.length_ms))
}

fn jobs(jobs: &[JobRates], bar_width: usize) -> Vec<String> {
    let width = |of: fn(&JobRates) -> &str| jobs.iter().map(|job| of(job).chars().count()).max().unwrap_or(0);
    let volume_width = width(|job| &job.job.volume);
    let drive_width = width(|job| &job.job.drive);
    let line = |job: &JobRates| {
        let JobRates { job, bytes_per_second, left_ms } = job;
        let pages = &job.pages;
        let mut line = format!(
            "{:<12}  {:<volume_width$}  {:<drive_width$}  {} {:>5}",
            job.kind.to_string(),
            job.volume,
            job.drive,
            bar(pages.done, pages.total, bar_width),
            percent(pages.done, pages.total),
        );
        if let Some(bytes_per_second) = bytes_per_second {
            line += &format!("  {}/s", format_size(*bytes_per_second));
        }
        if let Some(left_ms) = left_ms {
            line += &format!("  {} left", format_duration(Duration::from_secs(left_ms.div_ceil(1000))));
        }
        line
    };
    jobs.iter().map(line).collect()
}

/// `[=====>    ]`: how much is done of all.
fn bar(done: u64, total: u64, width: usize) -> String {
    let share = if total == 0 { 0.0 } else { done.min(total) as f64 / total as f64 };
    let filled = (share * width as f64) as usize;
    let head = if filled < width { ">" } else { "" };
    let rest = width.saturating_sub(filled + head.len());
    format!("[{}{head}{}]", "=".repeat(filled), " ".repeat(rest))
}

fn rate(per_second: f64) -> String {
    count_text(per_second.round() as u64)
}

fn mib(rates: &FlowRates) -> String {
    mib_text(rates.bytes_per_second)
}

fn mib_text(bytes_per_second: f64) -> String {
    let mib = bytes_per_second / f64::from(1 << 20);
    if mib < 1000.0 { format!("{mib:.1}") } else { count_text(mib.round() as u64) }
}

fn latency(rates: &FlowRates) -> String {
    rates.latency_us.map_or_else(String::new, format_us)
}

fn queue(rates: &FlowRates) -> String {
    format!("{:.1}", rates.queue)
}

fn length(ms: u64) -> String {
    format_duration(Duration::from_millis(ms))
}

#[cfg(test)]
#[path = "screen_tests.rs"]
mod tests;
