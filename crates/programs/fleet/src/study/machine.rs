//! How busy the machine is, whoever makes it so: a study whose machine has too much to do measures that instead.

use std::fs;

use serde::{Deserialize, Serialize};

/// Where the kernel says it.
const STATISTICS: &str = "/proc/stat";

/// How busy a machine was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineUse {
    /// Its cores.
    pub cores: u32,
    /// How much of their time was used, in percent; absent if the kernel does not say it.
    pub busy_percent: Option<f64>,
}

/// What all cores have done since the machine started, in the kernel's unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MachineReading {
    busy: u64,
    idle: u64,
}

impl MachineReading {
    /// None if the kernel does not say it.
    pub(super) fn take() -> Option<Self> {
        Self::parse(&fs::read_to_string(STATISTICS).ok()?)
    }

    /// Takes the line of all cores: user, nice, system, idle, waiting for I/O, interrupts, soft interrupts, stolen. What
    /// follows is counted in these.
    fn parse(text: &str) -> Option<Self> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let fields = line.split_ascii_whitespace().map_while(|field| field.parse::<u64>().ok());
        let fields: Vec<u64> = fields.take(8).collect();
        let idle = fields.get(3)? + fields.get(4)?;
        Some(Self { busy: fields.iter().sum::<u64>() - idle, idle })
    }
}

impl MachineUse {
    /// How busy the machine was between two readings.
    pub(super) fn between(before: Option<MachineReading>, after: Option<MachineReading>) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
        let busy_percent = before.zip(after).and_then(|(before, after)| {
            let busy = after.busy.checked_sub(before.busy)?;
            let all = busy + after.idle.checked_sub(before.idle)?;
            (all > 0).then(|| busy as f64 * 100.0 / all as f64)
        });
        Self { cores, busy_percent }
    }
}

#[cfg(test)]
#[path = "machine_tests.rs"]
mod tests;
