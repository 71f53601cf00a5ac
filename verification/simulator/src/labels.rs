//! Where the servers of a world stand: what a seed draws, and what somebody says of a server while the world runs.

use serde::{Deserialize, Serialize};
use spandrel_platform_simulated::Random;
use spandrel_shared::Place;

/// Of 1000 labels, how many are missing: their kind counts for nothing then.
const MISSING_PER_MILLE: u32 = 15;

/// How many sites, racks and chassis there are; none of a kind that has no labels in this world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Domains {
    /// Sites.
    pub sites: u8,
    /// Racks of each site.
    pub racks: u8,
    /// Chassis of each rack.
    pub chassis: u8,
}

/// The labels of a server, in numbers; zero for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Labels {
    /// Its site.
    pub site: u8,
    /// Its rack.
    pub rack: u8,
    /// Its chassis.
    pub chassis: u8,
}

impl Domains {
    /// Those of a world; none if nobody says where its servers stand.
    pub fn draw(random: &Random) -> Option<Self> {
        let count =
            |per_mille, most| if random.chance(per_mille) { random.between(1, most) as u8 } else { 0 };
        let domains = Self { sites: count(500, 3), racks: count(700, 3), chassis: count(500, 3) };
        let is_any = domains.sites.max(domains.racks).max(domains.chassis) > 1;
        is_any.then_some(domains)
    }

    /// The labels of a server.
    pub fn labels(&self, random: &Random) -> Labels {
        let label = |count: u8| match count {
            0 => 0,
            _ if random.chance(MISSING_PER_MILLE) => 0,
            count => random.between(1, count.into()) as u8,
        };
        Labels { site: label(self.sites), rack: label(self.racks), chassis: label(self.chassis) }
    }
}

impl Labels {
    /// As the cluster's state has them.
    pub fn place(self) -> Place {
        let label = |kind: &str, number: u8| (number > 0).then(|| format!("{kind}{number}"));
        Place { site: label("s", self.site), rack: label("r", self.rack), chassis: label("c", self.chassis) }
    }
}

#[cfg(test)]
#[path = "labels_tests.rs"]
mod tests;
