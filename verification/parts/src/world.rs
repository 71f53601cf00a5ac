//! A made-up world without bounds, in which benchmarks go on for as long as they like.

use std::future::Future;
use std::time::Duration;

use spandrel_platform::Address;
use spandrel_platform_simulated::{DelayRange, Process, World, WorldConfig};

/// A world in which every message and every drive operation takes the same time, of the world's own clock.
pub fn world() -> World {
    let mut config = WorldConfig { clock_drift_ppm_max: 0, ..WorldConfig::default() };
    let always = DelayRange { min: Duration::from_micros(10), max: Duration::from_micros(10) };
    (config.network.delay, config.network.local_delay) = (always, always);
    config.network.split_per_mille = 0;
    (config.limits.steps, config.limits.time) = (u64::MAX, Duration::from_secs(u64::from(u32::MAX)));
    World::with_config(1, config)
}

/// Where whoever is measured listens.
pub fn address() -> Address {
    Address::Unix("socket".to_owned())
}

/// Runs the world until `future`, run by the process, has completed.
pub fn run<T: 'static>(process: &Process, future: impl Future<Output = T> + 'static) -> T {
    let end = process.block_on(future);
    end.unwrap_or_else(|end| panic!("it does not come to its end: {end:?}"))
}
