use std::process::{Child, Command, Stdio};

use super::*;

/// A process that does nothing but work, until it is dropped.
struct Busy(Child);

impl Busy {
    fn start() -> Self {
        let mut command = Command::new("sh");
        Self(command.args(["-c", "while :; do :; done"]).stdin(Stdio::null()).spawn().unwrap())
    }

    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // It may have ended before.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn cpu(meter: &mut ProcessMeter) -> Duration {
    meter.read().unwrap().cpu.unwrap()
}

#[test]
fn a_process_that_works_uses_time_and_keeps_it_when_it_ends() {
    let mut busy = Busy::start();
    let mut meter = ProcessMeter::new(&[busy.0.id(), std::process::id()]);
    while cpu(&mut meter) < Duration::from_millis(30) {
        std::thread::yield_now();
    }
    let used = cpu(&mut meter);
    busy.end();
    assert!(cpu(&mut meter) >= used, "what was used stays used");
}

#[test]
fn this_process_is_not_the_meters_business() {
    let mut meter = ProcessMeter::new(&[std::process::id()]);
    assert_eq!(cpu(&mut meter), Duration::ZERO);
}

#[test]
fn a_process_line_is_read_whatever_its_name() {
    let numbers = |utime: u64, stime: u64| format!("S 1 1 1 0 -1 0 10 20 30 40 {utime} {stime} 7 8 20 0 1 0");
    let second = rustix::param::clock_ticks_per_second();
    for name in ["(sh)", "(a b)", "(a) S 1 2 (3)"] {
        let line = format!("77 {name} {}", numbers(second * 3, second / 2));
        assert_eq!(cpu_of_stat(&line), Some(Duration::from_millis(3500)), "{line}");
    }
    assert_eq!(cpu_of_stat("77 sh S 1"), None);
    assert_eq!(cpu_of_stat("77 (sh) S 1"), None);
}

#[test]
fn usage_is_the_difference_of_readings() {
    let reading =
        |seconds: u64, own_ms: u64, cpu_ms: u64, user: Option<u64>, drive: Option<u64>| TimedReading {
            at: Instant::from_nanoseconds(seconds * 1_000_000_000),
            own_cpu: Duration::from_millis(own_ms),
            reading: MeterReading {
                cpu: Some(Duration::from_millis(cpu_ms)),
                user_written_bytes: user,
                drive_written_bytes: drive,
                cache: Some(CacheReading {
                    hit_bytes: own_ms,
                    dirty_bytes: seconds,
                    ..CacheReading::default()
                }),
            },
        };
    let begin = reading(10, 100, 5000, Some(1000), Some(5000));
    let usage = reading(14, 1100, 8000, Some(2000), Some(8050)).since(&begin, 777);
    assert_eq!(usage.cpu_seconds, Some(4.0));
    assert_eq!((usage.generator_cpu_seconds, usage.busy_cores), (1.0, Some(1.0)));
    assert_eq!((usage.user_written_bytes, usage.drive_written_bytes), (1000, Some(3050)));
    assert_eq!(usage.write_amplification, Some(3.05));
    let cache = usage.cache.expect("both readings have it");
    assert_eq!(
        (cache.hit_bytes, cache.dirty_bytes),
        (1000, 14),
        "what was done meanwhile, and what is held at the end"
    );

    let begin = reading(10, 100, 5000, None, Some(5000));
    let usage = reading(14, 1100, 8000, None, Some(6554)).since(&begin, 777);
    assert_eq!(usage.write_amplification, Some(2.0), "without the users' word, the clients' is taken");
    let usage = reading(14, 1100, 8000, None, Some(6554)).since(&begin, 0);
    assert_eq!(usage.write_amplification, None);

    let silent = |seconds: u64| TimedReading {
        at: Instant::from_nanoseconds(seconds),
        own_cpu: Duration::ZERO,
        reading: NoMeter.read().unwrap(),
    };
    let usage = silent(2).since(&silent(1), 10);
    assert_eq!((usage.cpu_seconds, usage.busy_cores, usage.write_amplification), (None, None, None));
}
