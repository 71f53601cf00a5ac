//! The page as a browser shows it: every figure is drawn, nothing is complained about, nothing lies over something else, and
//! the numbers are those of the runs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;
use spandrel_report::{Economics, ReportOptions, render};
use spandrel_results::{LatencyPoints, Load, MeasuredCell, MeasuredRun, Measurement, NodeShare};

/// Counts what goes wrong, from before anything else runs.
const BEFORE: &str = r#"<script>
const complaints = [];
addEventListener("error", (event) => complaints.push(String(event.message)));
console.error = console.warn = (...words) => complaints.push(words.join(" "));
</script>"#;

/// Looks at the page when all of it is there.
const BEHIND: &str = r#"<script>
addEventListener("load", () => setTimeout(() => {
  const box = (element) => element.getBoundingClientRect();
  const overlap = (one, other) =>
    Math.min(one.right, other.right) - Math.max(one.left, other.left) > 1 &&
    Math.min(one.bottom, other.bottom) - Math.max(one.top, other.top) > 1;
  const overlaps = [];
  const pairs = (elements, what) => {
    const seen = elements.map((element) => [box(element), element.textContent]).filter(([at]) => at.width > 0);
    seen.forEach(([one, text], index) => seen.slice(index + 1).forEach(([other, other_text]) => {
      if (overlap(one, other)) overlaps.push(`${what}: ${text.slice(0, 40)} | ${other_text.slice(0, 40)}`);
    }));
  };
  // What a legend has no room for is cut off at its edge, and can be scrolled to.
  const texts = (chart) => [...chart.querySelectorAll("text")].filter((text) => !text.closest("[clip-path]"));
  document.querySelectorAll(".chart").forEach((chart) => pairs(texts(chart), chart.id));
  document.querySelectorAll("section").forEach((section) => pairs([...section.children], "section"));
  pairs([...document.querySelectorAll("main > *")], "main");
  const scrolled = [...document.querySelectorAll(".scroll")].filter((table) => table.scrollWidth > table.clientWidth + 1);
  const found = {
    width: innerWidth,
    complaints,
    scrolled: scrolled.map((table) => `${table.scrollWidth} of ${table.clientWidth}: ${table.textContent.slice(0, 40)}`),
    overlaps,
    charts: document.querySelectorAll(".chart").length,
    drawn: [...document.querySelectorAll(".chart")].filter((chart) => chart.querySelector("svg path")).length,
    too_wide: document.documentElement.scrollWidth - innerWidth,
    values: [...document.querySelectorAll("td[data-value]")].map((cell) => Number(cell.dataset.value)),
  };
  parent.postMessage(found, "*");
}, 300));
</script>"#;

/// A frame for the page, as a browser's window has a least width. Tells what the page has found.
const FRAME: &str = r#"<!doctype html><script>
addEventListener("message", ({ data }) => {
  const told = document.createElement("pre");
  told.textContent = "FOUND" + JSON.stringify(data).replaceAll("<", "") + "END";
  document.body.append(told);
});
</script><body><iframe src="report.html" style="border: 0; width: WIDTHpx; height: 1000px"></iframe></body>"#;

#[derive(Debug, Deserialize)]
struct Found {
    width: u32,
    /// Tables that are wider than what there is of them to be seen.
    scrolled: Vec<String>,
    complaints: Vec<String>,
    overlaps: Vec<String>,
    charts: usize,
    drawn: usize,
    too_wide: i64,
    values: Vec<f64>,
}

/// A run of small and of large I/Os with everything that can be measured.
fn run(name: &str, factor: f64) -> MeasuredRun {
    let mut cells = Vec::new();
    for block_size_bytes in [4096, 131_072] {
        for write_percent in [0, 10, 30, 100] {
            for outstanding in [1, 2, 4, 8] {
                let pattern = "random".to_owned();
                let load = Load { block_size_bytes, pattern, threads: 1, write_percent, outstanding };
                let iops = factor * 1e5 * f64::from(outstanding).sqrt() / f64::from(1 + write_percent / 10);
                cells.push(MeasuredCell {
                    load,
                    measurements: vec![measurement(iops, outstanding), measurement(iops * 1.1, outstanding)],
                });
            }
        }
    }
    MeasuredRun {
        name: name.to_owned(),
        title: "everything that a report can have".to_owned(),
        source: "made up for this test".to_owned(),
        scales: Some("times × 0.02, data × 0.002".to_owned()),
        vms: Some(256),
        nodes: Some(4),
        drives: Some(32),
        copies: Some(3),
        iops_max: Some(1100),
        remarks: vec!["a remark that is long enough to need more than one line where a page is as narrow as that of a telephone".to_owned()],
        cells,
        ..MeasuredRun::default()
    }
}

fn measurement(iops: f64, outstanding: u32) -> Measurement {
    let mean_us = 256.0 * f64::from(outstanding) / iops * 1e6;
    let points = LatencyPoints {
        mean_us: Some(mean_us),
        p50_us: Some(mean_us * 0.9),
        p99_us: Some(mean_us * 4.0),
        p99_9_us: Some(mean_us * 9.0),
        p99_99_us: Some(mean_us * 30.0),
        p99_999_us: Some(mean_us * 100.0),
    };
    let node = |number: u32| NodeShare {
        name: format!("node-{number}"),
        iops: iops / 4.0,
        clients: 64,
        cores: Some(1.5),
    };
    Measurement {
        iops: Some(iops),
        mib_per_second: Some(iops / 256.0),
        total: points,
        cpu_percent: Some(62.5),
        busy_cores: Some(12.0),
        write_amplification: Some(3.04),
        drive_write_mib_per_second: Some(iops / 100.0),
        drive_queue: Some(3.25),
        cache_hit_percent: Some(88.0),
        littles_law_percent: Some(12.0),
        clients_at_cap_percent: Some(97.0),
        nodes: (1..=4).map(node).collect(),
        ..Measurement::default()
    }
}

/// What a browser of this width finds in the page.
fn look(browser: &Path, page: &str, width: u32) -> Found {
    let folder = tempfile::TempDir::new().expect("there is room");
    let file = folder.path().join("report.html");
    let mut page = page.replacen("<head>", &format!("<head>{BEFORE}"), 1);
    // Scripts within may have such an end as a text.
    page.insert_str(page.rfind("</body>").expect("it ends"), BEHIND);
    fs::write(&file, page).expect("there is room");
    let frame = folder.path().join("frame.html");
    fs::write(&frame, FRAME.replace("WIDTH", &width.to_string())).expect("there is room");
    let output = Command::new(browser)
        .args([
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--dump-dom",
            "--virtual-time-budget=10000",
        ])
        .arg("--window-size=1400,1100")
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("file://{}", frame.display()))
        .output()
        .expect("the browser can be started");
    let text = String::from_utf8_lossy(&output.stdout);
    let told = text.rfind("FOUND").and_then(|begin| Some((begin + 5, begin + text[begin..].find("END")?)));
    let (begin, end) = told.unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    let json = text[begin..end].replace("&gt;", ">").replace("&amp;", "&");
    let found: Found = serde_json::from_str(&json).expect("it is what the script has written");
    assert_eq!(found.width, width);
    found
}

fn browser() -> PathBuf {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&folders).map(|folder| folder.join("chromium"));
    places
        .find(|place| place.is_file())
        .expect("chromium is installed: `cargo xtask packages` as root does it")
}

#[test]
fn a_browser_shows_everything_and_complains_of_nothing() {
    let (browser, runs) = (browser(), [run("ours", 1.0), run("theirs (published)", 0.7)]);
    let options = ReportOptions {
        made: "2026-11-29 10:00:00 UTC".to_owned(),
        made_by: "spandrel".to_owned(),
        economics: Economics {
            node_price: Some(19_800.0),
            node_rack_units: Some(2.0),
            drive_endurance_tbw: Some(3500.0),
            warranty_years: None,
        },
        ..ReportOptions::default()
    };
    for runs in [&runs[..], &runs[..1]] {
        let page = render(runs, &options);
        for width in [1280, 390] {
            let found = look(&browser, &page, width);
            assert_eq!(found.complaints, Vec::<String>::new(), "{width} wide");
            assert_eq!((found.charts, found.drawn), (16, 16), "eight of each block, {width} wide");
            assert!(found.too_wide <= 0, "{} beyond {width}", found.too_wide);
            assert_eq!(found.overlaps, Vec::<String>::new(), "{width} wide");
            assert!(width < 1280 || found.scrolled.is_empty(), "{:?}", found.scrolled);
            for cell in runs.iter().flat_map(|run| &run.cells) {
                let mean = cell.measurements.iter().filter_map(|measured| measured.iops).sum::<f64>() / 2.0;
                assert!(found.values.contains(&mean), "{mean} IOPS of {:?}", cell.load);
            }
        }
    }
}
