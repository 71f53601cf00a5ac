//! fio: the load generator that all contenders get alike, and what it says.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::cell::Load;
use crate::contender::{Contender, run};
use crate::processor_time::{Mark, Reading, now};

/// Of a measurement's beginning and end so much is left out of the processor's time: fio and this program have clocks of
/// their own.
const MARGIN: Duration = Duration::from_millis(200);

/// How often it is asked whether fio has begun.
const INTERVAL: Duration = Duration::from_millis(5);

/// How long a load lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Before it is measured.
    pub warm_up: Duration,
    /// While it is measured.
    pub measured: Duration,
}

/// What came of a load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// I/Os a second.
    pub iops: f64,
    /// Cores that were busy with them: the contender's, fio's and the kernel's own work.
    pub busy_cores: f64,
    /// In microseconds, from the submission to the end.
    pub latency_mean_us: f64,
    /// The same of the slowest hundredth.
    pub latency_p99_us: f64,
}

/// Writes all of it, in order, so often that whoever writes each time to another place has written to all places: memory
/// that is touched for the first time costs a write as much again. Files of fio's own go to `folder`, here and when it measures.
pub fn fill(contender: &Contender, mark: &Mark, folder: &Path, size_bytes: u64) -> Result<(), String> {
    let arguments = ["--rw=write", "--bs=1M", "--iodepth=4", "--loops=3"].map(str::to_owned);
    run(&mut command(contender, mark, folder, size_bytes, &arguments)).map(|_| ())
}

/// Writes each block of 4 KiB once, in no order.
pub fn scatter(contender: &Contender, mark: &Mark, folder: &Path, size_bytes: u64) -> Result<(), String> {
    let arguments = ["--rw=randwrite", "--bs=4k", "--iodepth=32"].map(str::to_owned);
    run(&mut command(contender, mark, folder, size_bytes, &arguments)).map(|_| ())
}

/// Puts a load on a contender, and measures it.
pub fn measure(
    contender: &Contender,
    mark: &Mark,
    folder: &Path,
    size_bytes: u64,
    load: &Load,
    times: Times,
) -> Result<Measurement, String> {
    // Before that it connects, which takes some engines seconds.
    let begins = folder.join("fio-begins");
    let _ = fs::remove_file(&begins);
    let mut arguments = load_arguments(load);
    arguments.extend(["--time_based", "--norandommap", "--output-format=json"].map(str::to_owned));
    arguments.push(format!("--exec_prerun=touch {}", begins.display()));
    arguments.push(format!("--ramp_time={}ms", times.warm_up.as_millis()));
    arguments.push(format!("--runtime={}ms", times.measured.as_millis()));
    let mut command = command(contender, mark, folder, size_bytes, &arguments);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = child.map_err(|error| format!("fio cannot be started: {error}"))?;
    await_begin(&mut child, &begins);
    let begun = now();
    let at = |time: Duration| {
        // tidy-allow(sleep): the processor's time is taken at two moments of a load that lasts so long.
        std::thread::sleep((begun + time).duration_since(now()));
        Reading::take(mark)
    };
    let before = at(times.warm_up + MARGIN);
    let after = at(times.warm_up + times.measured - MARGIN);
    let output = child.wait_with_output().map_err(|error| format!("fio cannot be waited for: {error}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        return Err(format!("fio: {}\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr)));
    }
    let busy_cores = after.busy_cores_since(&before);
    parse(&said, busy_cores).ok_or_else(|| format!("fio did not say what it was to say: {said}"))
}

/// Waits until fio has made its mark, or has ended.
fn await_begin(child: &mut Child, mark: &Path) {
    while !mark.exists() && matches!(child.try_wait(), Ok(None)) {
        // tidy-allow(sleep): the condition is another process's, which can only be asked again.
        std::thread::sleep(INTERVAL);
    }
}

/// A job of these arguments for each of what is offered, all of which are reported as one.
pub fn command(
    contender: &Contender,
    mark: &Mark,
    folder: &Path,
    size_bytes: u64,
    arguments: &[String],
) -> Command {
    let mut command = mark.command("fio");
    command.current_dir(folder).envs(contender.environment.iter().cloned());
    command.args(["--randrepeat=0", "--group_reporting"]).arg(format!("--size={size_bytes}")).args(arguments);
    for (number, reach) in contender.reach.iter().enumerate() {
        command.arg(format!("--name=benchmark-{number}")).args(reach);
    }
    command
}

/// What fio is told of a load.
pub fn load_arguments(load: &Load) -> Vec<String> {
    let kind = match load.write_percent {
        0 => vec!["--rw=randread".to_owned()],
        100 => vec!["--rw=randwrite".to_owned()],
        percent => vec!["--rw=randrw".to_owned(), format!("--rwmixwrite={percent}")],
    };
    let sizes = [format!("--bs={}", load.block_bytes), format!("--iodepth={}", load.outstanding)];
    kind.into_iter().chain(sizes).collect()
}

/// Reads fio's JSON: of reads and writes the rates are added up, and the latencies are those of both by how many there are.
fn parse(text: &str, busy_cores: f64) -> Option<Measurement> {
    // Some engines say something before it.
    let said: serde_json::Value = serde_json::from_str(&text[text.find('{')?..]).ok()?;
    let job = said["jobs"].get(0)?;
    let kinds = ["read", "write"].map(|kind| &job[kind]);
    let of = |kind: &serde_json::Value, name: &str| kind[name].as_f64().unwrap_or(0.0);
    let iops: f64 = kinds.iter().map(|kind| of(kind, "iops")).sum();
    let mean = |kind: &&serde_json::Value| of(kind, "iops") * of(&kind["lat_ns"], "mean");
    let p99 = |kind: &&serde_json::Value| of(&kind["clat_ns"]["percentile"], "99.000000");
    (iops > 0.0).then(|| Measurement {
        iops,
        busy_cores,
        latency_mean_us: kinds.iter().map(mean).sum::<f64>() / iops / 1000.0,
        latency_p99_us: kinds.iter().map(p99).fold(0.0, f64::max) / 1000.0,
    })
}

#[cfg(test)]
#[path = "fio_tests.rs"]
mod tests;
