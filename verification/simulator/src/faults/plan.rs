//! Which faults a seed draws, and when.

use serde::{Deserialize, Serialize};
use spandrel_platform_simulated::Random;
use spandrel_shared::{BLOCK_BYTES, CacheMode};

use super::{DriveFailure, DrivePlace, Fault};
use crate::nodes::SLAB_BYTES;
use crate::shape::{self, Shape, Weights};

/// Faults that strike together do so within so many virtual milliseconds.
const TOGETHER_MS: u64 = 30;

/// A volume grows by at most so much at once: its last slab is filled, and one or two come.
const GROWTH_BLOCKS_MAX: u64 = 3 * SLAB_BYTES / (2 * BLOCK_BYTES as u64);

/// How long a write takes at least, and about how long a flush, in microseconds.
const WRITE_US_MIN: u64 = 15;
const FLUSH_US: u64 = 500;

/// A drive that takes so many times as long as usual needs some seconds for what is read of it at once when it is
/// attached.
const FACTOR_MAX: u64 = 20_000;

/// What clients may do at most: next to nothing, some, more than they want, or as much as they want.
const IOPS_MAX: [u64; 4] = [20, 400, 100_000, 0];

/// A fault and its time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedFault {
    /// Virtual milliseconds after the fault before it.
    pub after_ms: u64,
    /// What breaks.
    pub fault: Fault,
}

/// A run, complete: what one seed does, or what is left of it after shortening.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The seed: of all that is not in the plan.
    pub seed: u64,
    /// The world.
    pub shape: Shape,
    /// What breaks, in order.
    pub faults: Vec<PlannedFault>,
}

impl Plan {
    /// The run of `seed`.
    pub fn of_seed(seed: u64) -> Self {
        let shape = Shape::of_seed(seed);
        let random = Random::stream(seed, "plan", 0);
        // Some strike together: what one has begun, the next one meets half done.
        let after_ms = || match random.chance(250) {
            true => random.between(1, TOGETHER_MS),
            false => random.between(1, shape.fault_interval_ms_max),
        };
        let draw =
            |_| PlannedFault { after_ms: after_ms(), fault: Draw { random: &random, shape: &shape }.fault() };
        Self { seed, faults: (0..shape.faults).map(draw).collect(), shape }
    }
}

/// A kind of fault: its weight, and how one is drawn.
type Kind<'a> = (u32, fn(&Draw<'a>) -> Fault);

struct Draw<'a> {
    random: &'a Random,
    shape: &'a Shape,
}

impl<'a> Draw<'a> {
    fn fault(&self) -> Fault {
        let weights = &self.shape.weights;
        let kinds: &[Kind<'a>] = &[
            (weights.stop, Self::stop),
            (weights.power_cut_all, |draw| Fault::PowerCutAll { away_ms: draw.short_or_long() }),
            (weights.pause, |draw| Fault::Pause { node: draw.node(), for_ms: draw.between(1, 4000) }),
            (weights.cut, Self::cut),
            (weights.cut_path, Self::cut_path),
            (weights.isolate, Self::isolate),
            (weights.orphan, Self::orphan),
            (weights.break_connections, Self::break_connections),
            (weights.clients_cut, Self::clients_cut),
            (weights.slow_link, Self::slow_link),
            (weights.state_outage, Self::state_outage),
            (weights.state_losses, Self::state_losses),
            (weights.clock, Self::clock),
            (weights.drive_slow, Self::drive_slow),
            (weights.drive_fails, Self::drive_fails),
            (weights.rot, Self::rot),
            (weights.stray_writes, |draw| Fault::StrayWrite {
                place: draw.any_place(),
                misdirected: draw.random.chance(500),
            }),
            (weights.unreadable, |draw| Fault::Unreadable {
                place: draw.place(),
                blocks: draw.between(1, 20) as u32,
            }),
            (weights.no_room, |draw| Fault::NoRoom { place: draw.any_place(), for_ms: draw.short_or_long() }),
            (weights.lose_drives, Self::lose_drives),
            (weights.older_state, |draw| Fault::OlderState {
                in_order: draw.random.chance(700),
                away_ms: draw.between(1, 500),
                for_ms: draw.between(1000, 4000),
            }),
            (weights.scrub, |draw| Fault::Scrub { volume: draw.random.index(draw.shape.volumes.len()) }),
            (weights.old_cache, |draw| Fault::OldImage {
                place: draw.cache_place(),
                for_ms: draw.short_or_long(),
                power_cut_all: false,
            }),
            (weights.lose_cache, |draw| Fault::LoseCache {
                place: draw.cache_place(),
                power_cut: draw.random.chance(500),
                for_ms: draw.short_or_long(),
            }),
            (weights.release_cache, |draw| Fault::ReleaseCache {
                place: draw.cache_place(),
                for_ms: draw.between(1000, 20_000),
            }),
            (weights.retire_cache, |draw| Fault::RetireCache {
                place: draw.cache_place(),
                for_ms: draw.between(1000, 20_000),
            }),
            (weights.cache_mode, |draw| Fault::CacheMode {
                mode: CacheMode::ALL[draw.random.index(CacheMode::ALL.len())],
            }),
            (weights.map_memory, |draw| Fault::MapMemory { bytes: shape::map_memory_bytes(draw.random) }),
            (weights.retire, |draw| Fault::Retire {
                place: draw.place(),
                for_ms: draw.between(1000, 20_000),
            }),
            (weights.label, Self::label),
            (weights.hand_over, |draw| Fault::HandOver {
                volume: draw.random.index(draw.shape.volumes.len()),
                to: draw.node(),
            }),
            (weights.set_volume, |draw| Fault::SetVolume {
                volume: draw.random.index(draw.shape.volumes.len()),
                iops_max: IOPS_MAX[draw.random.index(IOPS_MAX.len())],
                is_pinned: draw.random.chance(500),
            }),
            (weights.grow, |draw| Fault::Grow {
                volume: draw.random.index(draw.shape.volumes.len()),
                blocks: draw.random.between(1, GROWTH_BLOCKS_MAX),
            }),
        ];
        let total: u32 = kinds.iter().map(|(weight, _)| weight).sum();
        assert!(Weights::default() != *weights, "something can break");
        let mut place = self.random.below(total.into());
        for (weight, draw) in kinds {
            match place.checked_sub((*weight).into()) {
                Some(rest) => place = rest,
                None => return draw(self),
            }
        }
        self.stop()
    }

    fn between(&self, low: u64, high: u64) -> u64 {
        self.random.between(low, high)
    }

    /// Shorter than anything notices, or longer than anybody waits.
    fn short_or_long(&self) -> u64 {
        self.random.between(1, [100, 2000, 8000, 20_000][self.random.index(4)])
    }

    fn node(&self) -> usize {
        self.random.index(self.shape.nodes())
    }

    fn two_nodes(&self) -> (usize, usize) {
        let (one, count) = (self.node(), self.shape.nodes());
        (one, (one + 1 + self.random.index(count - 1)) % count)
    }

    fn place(&self) -> DrivePlace {
        let node = self.node();
        DrivePlace { node, drive: self.random.index(self.shape.drives[node].into()) }
    }

    /// A drive of either kind.
    fn any_place(&self) -> DrivePlace {
        let node = self.node();
        let drives = usize::from(self.shape.drives[node]) + self.caches();
        DrivePlace { node, drive: self.random.index(drives) }
    }

    /// A cache drive. Worlds without them have no weight for what needs one.
    fn cache_place(&self) -> DrivePlace {
        let node = self.node();
        let drive = usize::from(self.shape.drives[node]) + self.random.index(self.caches());
        DrivePlace { node, drive }
    }

    fn caches(&self) -> usize {
        self.shape.cache.map_or(0, |cache| cache.drives.into())
    }

    fn stop(&self) -> Fault {
        Fault::Stop { node: self.node(), power_cut: self.random.chance(500), away_ms: self.short_or_long() }
    }

    fn cut(&self) -> Fault {
        let (from, to) = self.two_nodes();
        Fault::Cut { from, to, both_ways: self.random.chance(500), for_ms: self.short_or_long() }
    }

    fn cut_path(&self) -> Fault {
        let (from, to) = self.two_nodes();
        Fault::CutPath { from, to, both_ways: self.random.chance(500), for_ms: self.short_or_long() }
    }

    fn isolate(&self) -> Fault {
        let (inbound, outbound) = [(true, true), (true, false), (false, true)][self.random.index(3)];
        Fault::Isolate { node: self.node(), inbound, outbound, for_ms: self.short_or_long() }
    }

    fn orphan(&self) -> Fault {
        let (node, other) = self.two_nodes();
        let other = self.random.chance(500).then_some(other);
        // Longer than it takes to be taken for dead.
        Fault::Orphan { node, other, for_ms: self.between(2000, 10_000) }
    }

    fn break_connections(&self) -> Fault {
        let (one, other) = self.two_nodes();
        let again = if self.random.chance(500) { self.between(1, 20) as u32 } else { 0 };
        Fault::BreakConnections { one, other, again, every_ms: self.between(50, 1500) }
    }

    fn clients_cut(&self) -> Fault {
        let node = self.node();
        if self.random.chance(300) {
            return Fault::ClientsDropped { node };
        }
        let (inbound, outbound) = [(true, true), (true, false), (false, true)][self.random.index(3)];
        Fault::ClientsCut { node, inbound, outbound, for_ms: self.short_or_long() }
    }

    fn slow_link(&self) -> Fault {
        let (from, to) = self.two_nodes();
        Fault::SlowLink { from, to, delay_ms: self.between(1, 800), for_ms: self.short_or_long() }
    }

    fn state_outage(&self) -> Fault {
        let for_ms = self.short_or_long();
        match self.random.chance(500) {
            true => Fault::StateOutage { for_ms },
            false => Fault::StateCutOff { node: self.node(), for_ms },
        }
    }

    fn state_losses(&self) -> Fault {
        Fault::StateLosses {
            requests: self.random.below(200) as u32,
            answers: self.random.below(500) as u32,
            late: self.random.below(500) as u32,
            for_ms: self.short_or_long(),
        }
    }

    fn clock(&self) -> Fault {
        let node = self.node();
        if self.random.chance(500) {
            let hour_ms = 3_600_000;
            return Fault::TimeOfDay { node, jump_ms: self.between(0, 2 * hour_ms) as i64 - hour_ms as i64 };
        }
        Fault::ClockDrift { node, ppm: self.between(0, 1000) as i32 - 500 }
    }

    fn drive_slow(&self) -> Fault {
        let (place, for_ms) = (self.any_place(), self.short_or_long());
        match self.random.below(4) {
            0 => Fault::DriveHangs { place, for_ms },
            1 => Fault::DriveSlow { place, factor: self.between(2, 300) as u32, for_ms },
            // So slow, and for so long, that its copies are taken out where enough others stay.
            _ => {
                Fault::DriveSlow { place, factor: self.hopeless_factor(), for_ms: self.between(5000, 20_000) }
            }
        }
    }

    /// A drive that takes so many times as long as usual needs one or a few seconds for what clients write.
    fn hopeless_factor(&self) -> u32 {
        let write_us = self.shape.drive.write_us_max.midpoint(WRITE_US_MIN);
        let flush_us = if self.shape.drive.volatile_cache { FLUSH_US } else { 0 };
        let factor = self.between(1_000_000, 4_000_000) / (write_us + flush_us);
        factor.min(FACTOR_MAX) as u32
    }

    fn drive_fails(&self) -> Fault {
        let failures =
            [DriveFailure::Dies, DriveFailure::Pulled, DriveFailure::WriteErrors, DriveFailure::FlushErrors];
        let failure = failures[self.random.index(failures.len())];
        Fault::DriveFails { place: self.any_place(), failure, for_ms: self.short_or_long() }
    }

    fn rot(&self) -> Fault {
        Fault::Rot {
            place: self.place(),
            newest_per_mille: [100, 700][self.random.index(2)],
            others: self.random.below(4) as u32,
            power_cut: self.random.chance(400),
        }
    }

    fn label(&self) -> Fault {
        let domains = self.shape.domains.expect("a world without labels has no weight for them");
        Fault::Label { node: self.node(), labels: domains.labels(self.random) }
    }

    fn lose_drives(&self) -> Fault {
        if self.random.chance(300) {
            return Fault::LoseDrives { node: self.node(), away_ms: self.short_or_long() };
        }
        match self.random.chance(500) {
            true => Fault::OldImage {
                place: self.any_place(),
                for_ms: self.short_or_long(),
                power_cut_all: false,
            },
            // Long enough for a server that is alone to take the volumes.
            false => Fault::OldImage {
                place: self.any_place(),
                for_ms: self.between(5000, 25_000),
                power_cut_all: true,
            },
        }
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
