//! Taking turns: the order in which places are chosen, slab after slab, so that each is chosen as
//! often as it should be and every stretch of a volume is spread over all of them.
//!
//! In each round `chosen_per_round` different places are chosen. Each place has a quota for all
//! rounds; what it has had, less what it should have had by now, is its lead, and those furthest
//! behind are chosen. Ties are broken by a mix of round and place, so that the same places do not
//! meet again and again: when a drive fails, as many others as possible should hold what it held.
//!
//! Invariant: with r rounds to go, the quotas left sum to r × `chosen_per_round` and none is above
//! r. A place whose quota left is r must be chosen in every round, which keeps the invariant; so
//! every quota is met exactly, whatever else decides.

/// Something that takes turns.
#[derive(Clone, Debug)]
struct Place {
    quota: i64,
    left: u64,
    /// Rounds so far × quota − times chosen × rounds in all: never more than a few times the latter.
    behind: i64,
    salt: u64,
}

/// A place that may be chosen in this round. The greatest ones are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// How far the place is behind; the most of all if it can miss no more rounds.
    behind: i64,
    tie_breaker: u64,
    index: usize,
}

/// An even order of turns.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    places: Vec<Place>,
    rounds: u64,
    rounds_left: u64,
    chosen_per_round: usize,
    /// The greatest candidates of the current round, in falling order.
    chosen: Vec<Candidate>,
}

impl Turns {
    /// Turns for places with these quotas and salts.
    ///
    /// The quotas must sum to a multiple of `chosen_per_round`; that many rounds there are, and no
    /// quota is above it.
    pub(crate) fn new(places: impl IntoIterator<Item = (u64, u64)>, chosen_per_round: usize) -> Self {
        let place = |(quota, salt)| {
            let signed = i64::try_from(quota).expect("fewer slabs than that are numbered");
            Place { quota: signed, left: quota, behind: 0, salt }
        };
        let places: Vec<Place> = places.into_iter().map(place).collect();
        let sum: u64 = places.iter().map(|place| place.left).sum();
        let rounds = sum / chosen_per_round as u64;
        assert!(rounds * chosen_per_round as u64 == sum, "{sum} turns are no whole number of rounds");
        assert!(places.iter().all(|place| place.left <= rounds), "nobody has two turns in one round");
        Self { places, rounds, rounds_left: rounds, chosen_per_round, chosen: Vec::new() }
    }

    /// Who is chosen next, the one furthest behind first. Nobody after the last round.
    pub(crate) fn next_round(&mut self) -> impl ExactSizeIterator<Item = usize> {
        self.chosen.clear();
        if self.rounds_left > 0 {
            self.choose();
            self.rounds_left -= 1;
        }
        self.chosen.iter().map(|candidate| candidate.index)
    }

    fn choose(&mut self) {
        let round_salt = mix(self.rounds_left);
        // Whoever is less behind than this one need not be looked at closely.
        let mut last_behind = i64::MIN;
        for (index, place) in self.places.iter_mut().enumerate() {
            place.behind += place.quota;
            if place.left == 0 {
                continue;
            }
            let behind = if place.left == self.rounds_left { i64::MAX } else { place.behind };
            if behind < last_behind {
                continue;
            }
            let candidate = Candidate { behind, tie_breaker: mix(place.salt ^ round_salt), index };
            let position = self.chosen.partition_point(|chosen| *chosen > candidate);
            if position == self.chosen_per_round {
                continue;
            }
            self.chosen.truncate(self.chosen_per_round - 1);
            self.chosen.insert(position, candidate);
            if self.chosen.len() == self.chosen_per_round {
                last_behind = self.chosen[self.chosen_per_round - 1].behind;
            }
        }
        for candidate in &self.chosen {
            let place = &mut self.places[candidate.index];
            place.left -= 1;
            place.behind -= self.rounds as i64;
        }
    }
}

/// Spreads every input bit over all output bits (the finalizer of SplitMix64).
pub(crate) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
#[path = "turns_tests.rs"]
mod tests;
