//! What one client has measured, as DISKSPD writes it with `-Rxml -L -D`: for the scripts that people have for that.
//!
//! Names, order and what is left out are DISKSPD's 2.2. What a client does not know is left out: how busy processors were, and
//! latencies within each second. A client counts all its threads together, so there is one `Thread`; what scripts add up
//! over threads comes out right.

use std::fmt::Display;

use hdrhistogram::Histogram;
use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};
use spandrel_fleet::{CellSpec, ClientResult, Interval, Latency, Pattern, RateLimit, Traffic, WriteContent};
use spandrel_shared::calendar::date_text;

use crate::histogram::{both, latencies_us};
use crate::record::{CellRecord, RunRecord};

/// The file of one client of a measurement.
pub(crate) fn of_client(run: &RunRecord, cell: &CellRecord, client: &ClientResult) -> String {
    let mut xml = Xml { writer: Writer::new_with_indent(Vec::new(), b' ', 2) };
    xml.element("Results", &[], |xml| {
        write_system(xml, run, cell, client);
        write_profile(xml, &cell.result.spec, client);
        xml.element("TimeSpan", &[], |xml| write_time_span(xml, cell, client));
    });
    let text = String::from_utf8(xml.writer.into_inner());
    text.expect("it was put together from texts") + "\n"
}

/// Writes elements, into memory.
struct Xml {
    writer: Writer<Vec<u8>>,
}

impl Xml {
    fn element(&mut self, name: &str, attributes: &[(&str, String)], inner: impl FnOnce(&mut Self)) {
        let mut start = BytesStart::new(name);
        for (name, value) in attributes {
            start.push_attribute((*name, value.as_str()));
        }
        self.write(Event::Start(start));
        inner(self);
        self.write(Event::End(BytesEnd::new(name)));
    }

    fn text(&mut self, name: &str, value: impl Display) {
        let value = value.to_string();
        self.element(name, &[], |xml| xml.write(Event::Text(BytesText::new(&value))));
    }

    /// An element of attributes alone.
    fn empty(&mut self, name: &str, attributes: &[(&str, String)]) {
        let mut start = BytesStart::new(name);
        for (name, value) in attributes {
            start.push_attribute((*name, value.as_str()));
        }
        self.write(Event::Empty(start));
    }

    fn write(&mut self, event: Event<'_>) {
        self.writer.write_event(event).expect("memory takes all that is written to it");
    }
}

fn write_system(xml: &mut Xml, run: &RunRecord, cell: &CellRecord, client: &ClientResult) {
    xml.element("System", &[], |xml| {
        xml.text("ComputerName", &client.name);
        xml.element("Tool", &[], |xml| {
            xml.text("Version", &run.created_by);
            xml.text("VersionDate", "");
        });
        xml.text("RunTime", utc(cell.kept_unix_ms));
    });
}

fn write_profile(xml: &mut Xml, spec: &CellSpec, client: &ClientResult) {
    xml.element("Profile", &[], |xml| {
        xml.text("Progress", 0);
        xml.text("ResultFormat", "xml");
        xml.text("Verbose", false);
        xml.element("TimeSpans", &[], |xml| {
            xml.element("TimeSpan", &[], |xml| {
                xml.text("CompletionRoutines", false);
                xml.text("MeasureLatency", true);
                xml.text("CalculateIopsStdDev", true);
                xml.text("DisableAffinity", true);
                xml.text("Duration", whole_seconds(spec.duration.as_secs_f64()));
                xml.text("Warmup", whole_seconds(spec.warmup.as_secs_f64()));
                xml.text("Cooldown", whole_seconds(spec.cooldown.as_secs_f64()));
                xml.text("ThreadCount", 0);
                xml.text("RequestCount", 0);
                xml.text("IoBucketDuration", INTERVAL_MS);
                xml.text("RandSeed", spec.seed);
                xml.element("Targets", &[], |xml| {
                    xml.element("Target", &[], |xml| write_target(xml, spec, client));
                });
            });
        });
    });
}

/// DISKSPD's buckets of I/Os, and the seconds of a result.
const INTERVAL_MS: u64 = 1000;

fn write_target(xml: &mut Xml, spec: &CellSpec, client: &ClientResult) {
    xml.text("Path", &client.name);
    xml.text("BlockSize", spec.block_size_bytes);
    xml.text("BaseFileOffset", spec.base_offset_bytes);
    for name in ["SequentialScan", "RandomAccess", "TemporaryFile", "UseLargePages"] {
        xml.text(name, false);
    }
    xml.text("DisableOSCache", true);
    xml.text("WriteThrough", true);
    xml.element("WriteBufferContent", &[], |xml| match spec.write_content {
        WriteContent::Random => {
            xml.text("Pattern", "random");
            xml.element("RandomDataSource", &[], |xml| xml.text("SizeInBytes", spec.write_source_bytes));
        }
        WriteContent::Zeros => xml.text("Pattern", "zero"),
        WriteContent::Sequence => xml.text("Pattern", "sequential"),
    });
    xml.text("ParallelAsyncIO", false);
    if spec.pattern == Pattern::Random {
        xml.text("Random", spec.alignment());
        if let Some(percent) = spec.random_percent.filter(|percent| *percent < 100) {
            xml.text("RandomRatio", percent);
        }
    } else {
        xml.text("StrideSize", spec.alignment());
        xml.text("InterlockedSequential", spec.pattern == Pattern::Interlocked);
    }
    xml.text("ThreadStride", spec.thread_stride());
    let working_set = spec.working_set_bytes.map_or(0, |bytes| spec.base_offset_bytes + bytes);
    xml.text("MaxFileSize", working_set);
    xml.text("RequestCount", spec.outstanding);
    xml.text("WriteRatio", spec.write_percent);
    match spec.rate_limit {
        Some(RateLimit::IosPerSecond(rate)) => {
            xml.element("Throughput", &[("unit", "IOPS".to_owned())], |xml| {
                xml.write(Event::Text(BytesText::new(&rate.to_string())));
            });
        }
        Some(RateLimit::BytesPerMillisecond(rate)) => xml.text("Throughput", rate),
        None => xml.text("Throughput", 0),
    }
    xml.text("ThreadsPerFile", spec.threads);
    xml.text("IOPriority", 3);
    xml.text("Weight", 1);
}

fn write_time_span(xml: &mut Xml, cell: &CellRecord, client: &ClientResult) {
    let result = &cell.result;
    xml.text("TestTimeSeconds", format!("{:.2}", result.measured_seconds));
    xml.text("ThreadCount", result.spec.threads);
    xml.text("RequestCount", 0);
    xml.text("ProcCount", 0);
    write_latency(xml, client);
    write_iops(xml, &client.intervals);
    xml.element("Thread", &[], |xml| {
        xml.text("Id", 0);
        xml.element("Target", &[], |xml| {
            xml.text("Path", &client.name);
            xml.text("BytesCount", client.total.bytes);
            let spec = &result.spec;
            xml.text("FileSize", spec.working_set_bytes.map_or(0, |bytes| spec.base_offset_bytes + bytes));
            xml.text("IOCount", client.total.count);
            xml.text("ReadBytes", client.read.bytes);
            xml.text("ReadCount", client.read.count);
            xml.text("WriteBytes", client.write.bytes);
            xml.text("WriteCount", client.write.count);
            let both = [
                ("AverageReadLatencyMilliseconds", "ReadLatencyStdev", &client.read),
                ("AverageWriteLatencyMilliseconds", "WriteLatencyStdev", &client.write),
                ("AverageLatencyMilliseconds", "LatencyStdev", &client.total),
            ];
            write_means(xml, both);
            xml.element("Iops", &[], |xml| write_deviations(xml, &client.intervals));
        });
    });
}

/// Mean and standard deviation of each direction that had I/Os.
fn write_means<const COUNT: usize>(xml: &mut Xml, directions: [(&str, &str, &Traffic); COUNT]) {
    for (mean, deviation, traffic) in directions {
        if let Some(Latency { mean_us, standard_deviation_us, .. }) = traffic.latency {
            xml.text(mean, ms(mean_us));
            xml.text(deviation, ms(standard_deviation_us));
        }
    }
}

fn write_latency(xml: &mut Xml, client: &ClientResult) {
    let read = latencies_us(client.read_histogram.as_deref());
    let write = latencies_us(client.write_histogram.as_deref());
    let total = both(read.as_ref(), write.as_ref());
    xml.element("Latency", &[], |xml| {
        let means = [
            ("AverageReadMilliseconds", "ReadLatencyStdev", &client.read),
            ("AverageWriteMilliseconds", "WriteLatencyStdev", &client.write),
            ("AverageTotalMilliseconds", "LatencyStdev", &client.total),
        ];
        write_means(xml, means);
        let sides = [
            ("ReadMilliseconds", read.as_ref(), client.read.latency),
            ("WriteMilliseconds", write.as_ref(), client.write.latency),
            ("TotalMilliseconds", total.as_ref(), client.total.latency),
        ];
        for percentile in percentiles() {
            xml.element("Bucket", &[], |xml| {
                xml.text("Percentile", &percentile);
                for (name, histogram, latency) in &sides {
                    if let Some((histogram, latency)) = histogram.zip(latency.as_ref()) {
                        xml.text(name, ms(at(&percentile, histogram, latency)));
                    }
                }
            });
        }
    });
}

/// DISKSPD's set of percentiles, as it writes them: the least, each hundredth, more and more nines, and the most.
fn percentiles() -> impl Iterator<Item = String> {
    let nines = (1..=7).map(|nines| format!("99.{}", "9".repeat(nines)));
    (0..100).map(|percent| percent.to_string()).chain(nines).chain(["100".to_owned()])
}

/// The latency at a percentile, in microseconds.
fn at(percentile: &str, histogram: &Histogram<u64>, latency: &Latency) -> f64 {
    match percentile {
        "0" => latency.min_us,
        "100" => latency.max_us,
        percentile => {
            let quantile = percentile.parse::<f64>().expect("it is a number") / 100.0;
            (histogram.value_at_quantile(quantile) as f64).min(latency.max_us)
        }
    }
}

fn write_iops(xml: &mut Xml, intervals: &[Interval]) {
    xml.element("Iops", &[], |xml| {
        write_deviations(xml, intervals);
        for (number, interval) in (1..).zip(intervals) {
            let of = |count: u64| count.to_string();
            xml.empty(
                "Bucket",
                &[
                    ("SampleMillisecond", (number * INTERVAL_MS).to_string()),
                    ("Read", of(interval.reads)),
                    ("Write", of(interval.writes)),
                    ("Total", of(interval.reads + interval.writes)),
                ],
            );
        }
    });
}

/// How much I/Os a second differ from second to second.
fn write_deviations(xml: &mut Xml, intervals: &[Interval]) {
    type Count = fn(&Interval) -> u64;
    let counts: [(&str, Count); 3] = [
        ("ReadIopsStdDev", |interval| interval.reads),
        ("WriteIopsStdDev", |interval| interval.writes),
        ("IopsStdDev", |interval| interval.reads + interval.writes),
    ];
    for (name, count) in counts {
        let sum: u64 = intervals.iter().map(count).sum();
        if sum > 0 {
            let mean = sum as f64 / intervals.len() as f64;
            let squares: f64 = intervals.iter().map(|interval| (count(interval) as f64 - mean).powi(2)).sum();
            xml.text(name, format!("{:.3}", (squares / intervals.len() as f64).sqrt()));
        }
    }
}

fn ms(us: f64) -> String {
    format!("{:.3}", us / 1000.0)
}

fn whole_seconds(seconds: f64) -> u64 {
    seconds.round() as u64
}

/// A moment as DISKSPD writes it: `2026/11/29 10:20:31 UTC`.
fn utc(unix_ms: u64) -> String {
    date_text(unix_ms).replace('-', "/")
}

#[cfg(test)]
#[path = "diskspd_xml_tests.rs"]
mod tests;
