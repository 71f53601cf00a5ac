//! The page: everything in one file that needs nothing else.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use spandrel_results::MeasuredRun;

use crate::block::{Block, blocks};
use crate::economics::Economics;
use crate::figures::{Figure, figures, plain};
use crate::metric::{Better, IOPS};
use crate::summary::{sentences, signed};
use crate::tables::{Table, Value, metrics, table};

/// Draws the figures: Apache ECharts 6.1.0, see `vendor/echarts`.
const ECHARTS: &str = include_str!("../vendor/echarts/echarts.common.min.js");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// What a report is to have beside what was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ReportOptions {
    /// Its title; what the first run is if there is none.
    pub title: Option<String>,
    /// When it is made, in words.
    pub made: String,
    /// The program that makes it.
    pub made_by: String,
    /// What is known of the hardware.
    pub economics: Economics,
}

/// The report of runs side by side, of which the first is what the others are compared with.
pub fn render(runs: &[MeasuredRun], options: &ReportOptions) -> String {
    let title =
        options.title.clone().or_else(|| runs.first().map(|run| run.title.clone())).unwrap_or_default();
    let blocks = blocks(runs);
    let drawn: Vec<Vec<Figure>> =
        blocks.iter().enumerate().map(|(number, block)| figures(block, number, &options.economics)).collect();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    h1 { (title) }
                    p.made { "Made by " (options.made_by) ", " (options.made) "." }
                    (summary(&blocks))
                    @for run in runs { (run_section(run, options)) }
                    @for (block, figures) in blocks.iter().zip(&drawn) { (block_section(block, figures)) }
                    (method())
                }
                (data("runs", &serde_json::to_value(runs).expect("runs are numbers and texts")))
                script { (PreEscaped(ECHARTS)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
}

/// Data within the page, in which no tag can begin or end.
fn data(id: &str, value: &serde_json::Value) -> Markup {
    let text = value.to_string().replace('<', "\\u003c");
    html! { script type="application/json" id=(id) { (PreEscaped(text)) } }
}

fn summary(blocks: &[Block<'_>]) -> Markup {
    html! {
        section {
            h2 { "What stands out" }
            @for block in blocks {
                h3 { (block.name()) }
                ul { @for sentence in sentences(block) { li { (sentence) } } }
            }
        }
    }
}

fn run_section(run: &MeasuredRun, options: &ReportOptions) -> Markup {
    let mut facts: Vec<(String, String)> =
        vec![("what".to_owned(), run.title.clone()), ("source".to_owned(), run.source.clone())];
    let number = |name: &str, value: Option<u32>| value.map(|value| (name.to_owned(), value.to_string()));
    facts.extend(run.scales.clone().map(|scales| ("scaled".to_owned(), scales)));
    facts.extend(number("clients", run.vms));
    facts.extend(number("nodes", run.nodes));
    facts.extend(number("drives", run.drives));
    facts.extend(number("copies", run.copies));
    facts.extend(run.iops_max.map(|most| ("cap".to_owned(), format!("{most} IOPS each client"))));
    facts.extend(run.configuration.iter().cloned());
    if let Some(per_unit) = options.economics.vms_per_rack_unit(run) {
        facts.push(("VMs per rack unit".to_owned(), plain(per_unit)));
    }
    let best = run
        .cells
        .iter()
        .filter_map(|cell| Some((cell, IOPS.mean(cell)?)))
        .max_by(|one, other| one.1.total_cmp(&other.1));
    if let Some(price) = best.and_then(|(cell, _)| options.economics.price_per_iops(run, cell)) {
        facts.push(("price of an IOPS, at most IOPS".to_owned(), plain(price)));
    }
    html! {
        section {
            h2 { "Run: " (run.name) }
            dl { @for (name, value) in &facts { div { dt { (name) } dd { (value) } } } }
            @if !run.remarks.is_empty() {
                h3 { "To be minded" }
                ul.remarks { @for remark in &run.remarks { li { (remark) } } }
            }
        }
    }
}

fn block_section(block: &Block<'_>, figures: &[Figure]) -> Markup {
    html! {
        section {
            h2 { (block.name()) }
            @for figure in figures {
                figure {
                    div.chart id=(figure.id) role="img" aria-label=(figure.caption) {}
                    (data(&format!("{}-option", figure.id), &figure.option))
                    figcaption { (figure.caption) }
                }
            }
            div.tables style=(format!("--runs: {}", block.runs.len())) {
                @for metric in metrics(block.is_large()) {
                    @if let Some(table) = table(block, metric) { (table_markup(block, &table)) }
                }
            }
        }
    }
}

fn table_markup(block: &Block<'_>, table: &Table) -> Markup {
    let best = match table.metric.better {
        Better::Neither => "",
        _ if block.rows().count() * block.runs.len() < 4 => "",
        _ => " The best quarter of each share of reads stands out.",
    };
    html! {
        figure.table {
            figcaption { (table.metric.title()) "." (best) }
            div.scroll {
                table {
                    thead {
                        tr {
                            th scope="col" { "load" }
                            th scope="col" { "outstanding" }
                            @for run in block.runs { th scope="col" { (run.name) } }
                        }
                    }
                    tbody {
                        @for row in &table.rows {
                            tr {
                                @if let Some(rows) = row.mix_rows { th scope="rowgroup" rowspan=(rows) { (row.mix) } }
                                th scope="row" { (row.outstanding) }
                                @for value in &row.values { (value_markup(value.as_ref())) }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn value_markup(value: Option<&Value>) -> Markup {
    let Some(value) = value else { return html! { td.none { "–" } } };
    let class = match (value.is_doubtful, value.is_among_best) {
        (true, _) => "doubtful",
        (false, true) => "best",
        (false, false) => "",
    };
    html! {
        td class=(class) data-value=(value.mean) title=[value.detail.as_deref()] {
            (value.text)
            @if value.is_doubtful { " !" }
            @if let Some(deviation) = &value.deviation { span.deviation { "± " (deviation) } }
            @if let Some(change) = value.change_percent { span.change { (signed(change)) " %" } }
        }
    }
}

fn method() -> Markup {
    html! {
        section {
            h2 { "How to read this" }
            ul {
                li { "Values are means over the repeats of a cell, behind ± their standard deviation; hover over one to see the median and the range. \
                      What was not measured is left out." }
                li { "Latency is the time from when a client wanted an I/O until it had seen the answer." }
                li { "Where clients had a cap, latencies of reads and of writes are those of the nodes that clients are connected to, without the wait for the cap; all other latencies have it in them." }
                li { "A percentile is told only where there were enough I/Os for it: 99.9 % of a thousand or more, and so on." }
                li { "CPU is that of all cores of the servers, with the clients that ran on them." }
                li { "Little's law: rate times mean latency is the I/Os in flight, which are known. Where both differ by more than 10 %, marked !, \
                      the numbers do not fit each other." }
                li { "A change in percent is against the first run." }
            }
        }
    }
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
