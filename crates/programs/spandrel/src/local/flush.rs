//! What a flush of a disk costs. A write is answered when it is on the disk, so this bounds what
//! small writes can do.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How many flushes are measured, and for how long at most.
const FLUSHES: usize = 50;
const TIME_MAX: Duration = Duration::from_millis(500);

/// The median time of one write of 4 KiB with its flush, in microseconds, in `directory`.
pub fn measure(directory: &Path) -> std::io::Result<f64> {
    let path = directory.join("flush-test");
    let measured = measure_file(&path);
    let _ = fs::remove_file(&path);
    measured
}

fn measure_file(path: &Path) -> std::io::Result<f64> {
    let file = File::create(path)?;
    let block = [0x5a; 4096];
    // The first one also makes the file; what counts is the flush of data alone.
    file.write_all_at(&block, 0)?;
    file.sync_all()?;
    let begin = Instant::now();
    let mut times = Vec::with_capacity(FLUSHES);
    while times.len() < FLUSHES && (times.is_empty() || begin.elapsed() < TIME_MAX) {
        let before = Instant::now();
        file.write_all_at(&block, 0)?;
        file.sync_data()?;
        times.push(before.elapsed());
    }
    times.sort();
    Ok(times[times.len() / 2].as_secs_f64() * 1e6)
}

#[cfg(test)]
#[path = "flush_tests.rs"]
mod tests;
