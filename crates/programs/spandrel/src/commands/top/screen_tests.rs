use spandrel_node::{CacheCounts, LongestPause};

use super::super::rates::{LayerRates, LoadRates, NodeRates, VolumeRates};
use super::*;
use crate::admin::api::{Job, JobKind, Progress};

fn flow(per_second: f64, mib: f64, latency_us: Option<f64>, queue: f64) -> FlowRates {
    FlowRates {
        per_second,
        bytes_per_second: mib * f64::from(1 << 20),
        latency_us,
        queue,
        in_flight: 3,
        done: per_second as u64,
        done_since_start: 1_000_000,
        in_flight_us: latency_us.map_or(0, |us| (us * per_second) as u64),
    }
}

fn busy() -> LoadRates {
    LoadRates {
        reads: flow(123_456.0, 482.3, Some(310.0), 38.3),
        writes: flow(54_321.0, 212.2, Some(1230.0), 66.8),
    }
}

fn node(name: &str, state: &str, answers: bool) -> NodeRates {
    NodeRates {
        node: name.to_owned(),
        state: state.to_owned(),
        answers,
        cpu_percent: answers.then_some(87.4),
        frontend: busy(),
        owner: busy(),
        bus: busy(),
        drive: busy(),
    }
}

fn volume(number: u32) -> VolumeRates {
    VolumeRates {
        volume: format!("database-{number}"),
        owner: Some("n1".to_owned()),
        load: busy(),
        longest_pause: None,
    }
}

fn job(kind: JobKind, done: u64) -> JobRates {
    let job = Job {
        kind,
        volume: "database-1".to_owned(),
        drive: "n3/sdb".to_owned(),
        slabs: 16,
        pages: Progress { done, total: 200 },
        copied_bytes: 0,
        elapsed_ms: 1000,
    };
    let has_begun = done > 0;
    JobRates { job, bytes_per_second: has_begun.then_some(120 << 20), left_ms: has_begun.then_some(172_000) }
}

fn rates() -> Rates {
    let layer = |layer| LayerRates { layer, load: busy() };
    Rates {
        cluster: "demo".to_owned(),
        at_unix_ms: 0,
        interval_ms: 1000,
        layers: ["front-end", "owner", "bus", "drive"].map(layer).to_vec(),
        nodes: vec![
            node("n1", "Up", true),
            node("n2", "no answer", false),
            node("n3", "Draining, Isolated", true),
            node("n4", "Down", false),
        ],
        caches: Vec::new(),
        volumes: (1..=40).map(volume).collect(),
        jobs: vec![job(JobKind::Regeneration, 86), job(JobKind::Repair, 0)],
        longest_pause: Some(PauseOfVolume {
            volume: "database-1".to_owned(),
            node: "n2".to_owned(),
            pause: LongestPause { length_ms: 1800, ended_ms_ago: Some(34_000) },
        }),
    }
}

fn text(rates: &Rates, width: usize, height: Option<usize>) -> String {
    lines(rates, Size { width, height }).join("\n")
}

#[test]
fn all_of_it_fits_eighty_columns() {
    let shown = text(&rates(), 80, None);
    let expected = "\
demo   2 of 4 nodes answer   within 1 s

LAYER      READS/s  WRITES/s  MiB/s  READ TAKES  WRITE TAKES  QUEUE
front-end  123,456    54,321  694.5      310 us       1.2 ms  105.1
owner      123,456    54,321  694.5      310 us       1.2 ms  105.1
bus        123,456    54,321  694.5      310 us       1.2 ms  105.1
drive      123,456    54,321  694.5      310 us       1.2 ms  105.1

longest pause in 5 minutes: 1.8 s on database-1, clients of n2, 34 s ago

NODE  STATE                  IOPS  MiB/s   TAKES  QUEUE   CPU
n1    Up                  177,777  694.5  591 us  105.1  87 %
n2    no answer                 -      -       -      -     -
n3    Draining, Isolated  177,777  694.5  591 us  105.1  87 %
n4    Down                      -      -       -      -     -

Regeneration  database-1  n3/sdb  [====>     ]  43 %  120 MiB/s  2 min 52 s left
Repair        database-1  n3/sdb  [>         ]   0 %

VOLUME       OWNER  READS/s  WRITES/s  MiB/s   TAKES  QUEUE  PAUSE
database-1   n1     123,456    54,321  694.5  591 us  105.1      -";
    assert!(shown.starts_with(expected), "{shown}");
    assert!(shown.ends_with("24 volumes more, less busy"), "{shown}");
}

#[test]
fn nothing_is_wider_or_higher_than_the_terminal() {
    let rates = rates();
    for width in [1, 2, 10, 40, 79, 80, 81, 109, 110, 120, 300] {
        for height in [1, 5, 24, 25, 60] {
            let lines = lines(&rates, Size { width, height: Some(height) });
            assert!(lines.len() <= height, "{width} x {height}: {} lines", lines.len());
            let widest = lines.iter().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{width} x {height}: {widest:?}");
        }
    }
    assert!(
        silence(&Error::new("A", "b".repeat(100), "c", "d"), Size { width: 20, height: None })
            .chars()
            .count()
            <= 20
    );
}

#[test]
fn volumes_take_the_room_that_is_left() {
    let of_height = |height| text(&rates(), 80, Some(height));
    let shown = of_height(50);
    assert_eq!(shown.lines().count(), 50);
    assert!(shown.contains("database-29 ") && shown.ends_with("11 volumes more, less busy"), "{shown}");
    let all = of_height(80);
    assert!(all.contains("database-40 ") && !all.contains("volumes more"), "{all}");
    let mut idle = rates();
    idle.volumes.clear();
    assert!(!text(&idle, 80, Some(60)).contains("VOLUME"));
}

#[test]
fn wide_terminals_show_more_of_nodes() {
    let wide = text(&rates(), 140, None);
    assert!(wide.contains("AS OWNER/s  TO OTHERS/s  DRIVES/s  DRIVES MiB/s  DRIVES TAKE"), "{wide}");
    assert!(wide.contains("1.8 s on database-1, clients of n2, 34 s ago"), "{wide}");
    assert!(wide.contains("[========>           ]  43 %  120 MiB/s  2 min 52 s left"), "{wide}");
}

#[test]
fn a_pause_goes_on_or_there_was_none() {
    let mut rates = rates();
    let pause = rates.longest_pause.as_mut().expect("there is one");
    pause.pause.ended_ms_ago = None;
    assert!(text(&rates, 100, None).contains("1.8 s on database-1, clients of n2, which goes on"));
    rates.longest_pause = None;
    assert!(text(&rates, 80, None).contains("longest pause in 5 minutes: none"));
}

#[test]
fn bars_are_filled_as_far_as_the_job_is() {
    assert_eq!(bar(0, 0, 20), "[>                   ]");
    assert_eq!(bar(1, 2, 20), "[==========>         ]");
    assert_eq!(bar(19, 20, 20), "[===================>]");
    assert_eq!(bar(20, 20, 20), "[====================]");
    assert_eq!(bar(30, 20, 20), bar(20, 20, 20));
}

#[test]
fn caches_are_shown_by_node_where_there_are_some() {
    let mut rates = rates();
    assert!(!text(&rates, 80, None).contains("DESTAGE"));
    let cache = |node: &str| CacheRates {
        node: node.to_owned(),
        hit_bytes_per_second: 3.0 * f64::from(1 << 20),
        missed_bytes_per_second: f64::from(1 << 20),
        destaged_bytes_per_second: 0.5 * f64::from(1 << 20),
        counts: CacheCounts { dirty_bytes: 1 << 30, total_bytes: 4 << 30, ..CacheCounts::default() },
        ..CacheRates::default()
    };
    rates.caches = vec![cache("n1"), cache("n1"), cache("n2")];
    let shown = text(&rates, 80, None);
    let expected = "\
CACHE  HIT MiB/s  MISS MiB/s   HIT  FILL MiB/s  DESTAGE MiB/s  DIRTY     OF
n1           6.0         2.0  75 %         0.0            1.0   25 %  8 GiB
n2           3.0         1.0  75 %         0.0            0.5   25 %  4 GiB
";
    assert!(shown.contains(expected), "{shown}");
}
