//! A world's settings.

use std::time::Duration;

use crate::random::{DelayRange, Random};

/// Which of the ready processes takes the next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnOrder {
    /// The one that became ready first.
    Fifo,
    /// One that the seed picks.
    Random,
}

/// The bounds of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunLimits {
    /// Virtual time.
    pub time: Duration,
    /// Steps: turns and events.
    pub steps: u64,
}

/// How bytes travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkConfig {
    /// From one host to another, one way.
    pub delay: DelayRange,
    /// Within a host, by unix socket or loopback.
    pub local_delay: DelayRange,
    /// What one direction between two hosts carries; unlimited if absent.
    pub bandwidth_bytes_per_second: Option<u64>,
    /// How often, in 1000, what leaves in one turn arrives in two parts at different times, and
    /// a receiver gets less than has arrived.
    pub split_per_mille: u32,
    /// What both kernels together hold of one direction of a connection before the sender's
    /// queue grows.
    pub socket_buffer_bytes: usize,
    /// After this a connect without an answer fails.
    pub connect_timeout: Duration,
    /// Networks that connect all hosts, each with its own address per host.
    pub networks: u8,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            delay: DelayRange::microseconds(20, 200),
            local_delay: DelayRange::microseconds(3, 20),
            bandwidth_bytes_per_second: None,
            split_per_mille: 100,
            socket_buffer_bytes: 1 << 20,
            connect_timeout: Duration::from_secs(3),
            networks: 1,
        }
    }
}

/// A world's settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorldConfig {
    /// Which of the ready processes takes the next turn.
    pub order: TurnOrder,
    /// How bytes travel.
    pub network: NetworkConfig,
    /// Each host's clock is up to this many parts per million fast or slow.
    pub clock_drift_ppm_max: u32,
    /// Each host has been up for as long as this, or less, when the world begins.
    pub boot_age_max: Duration,
    /// A sleeper wakes up to this long after its deadline.
    pub timer_slack_max: Duration,
    /// How many of the newest events the timeline keeps as text; zero for none, which is faster.
    pub timeline_events: usize,
    /// The bounds of each run.
    pub limits: RunLimits,
}

impl Default for WorldConfig {
    fn default() -> Self {
        Self {
            order: TurnOrder::Random,
            network: NetworkConfig::default(),
            clock_drift_ppm_max: 100,
            boot_age_max: Duration::from_secs(3600),
            timer_slack_max: Duration::from_micros(50),
            timeline_events: 0,
            limits: RunLimits { time: Duration::from_secs(3600), steps: 100_000_000 },
        }
    }
}

impl WorldConfig {
    /// Settings that `seed` picks, each among kinds that make different code paths common: fast
    /// and slow links, whole and split messages, roomy and tiny socket buffers.
    pub fn swarm(seed: u64) -> Self {
        let random = Random::stream(seed, "swarm", 0);
        let one_of = |choices: &[u64]| choices[random.index(choices.len())];
        let delay_min = one_of(&[1, 20, 200, 2000]);
        let network = NetworkConfig {
            delay: DelayRange::microseconds(delay_min, delay_min * one_of(&[1, 3, 30])),
            local_delay: DelayRange::microseconds(1, one_of(&[1, 20, 500])),
            bandwidth_bytes_per_second: [None, Some(125_000_000), Some(1_250_000_000)][random.index(3)],
            split_per_mille: [0, 50, 500][random.index(3)],
            socket_buffer_bytes: [16 << 10, 256 << 10, 4 << 20][random.index(3)],
            ..NetworkConfig::default()
        };
        Self {
            order: [TurnOrder::Fifo, TurnOrder::Random][random.index(2)],
            network,
            clock_drift_ppm_max: [0, 100, 500][random.index(3)],
            timer_slack_max: Duration::from_micros(one_of(&[0, 50, 5000])),
            ..Self::default()
        }
    }
}
