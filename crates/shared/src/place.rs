//! Where a server stands: what it shares with others, and fails with them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Error;
use crate::name::validate_name;

/// The labels of a server. Servers with the same label share that thing; a rack belongs to its site, and a chassis to its
/// rack, so racks of the same name at two sites are two.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Place {
    /// The building or room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// The rack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rack: Option<String>,
    /// The chassis that it shares with other servers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chassis: Option<String>,
}

/// What fails as a whole, from the narrowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultDomain {
    /// A server.
    Node,
    /// Servers that share a chassis.
    Chassis,
    /// Those that share a rack.
    Rack,
    /// Those at one site.
    Site,
}

impl FaultDomain {
    /// Those that have labels, from the widest.
    pub const LABELLED: [Self; 3] = [Self::Site, Self::Rack, Self::Chassis];

    /// What several are called.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::Chassis => "chassis",
            Self::Rack => "racks",
            Self::Site => "sites",
        }
    }
}

impl fmt::Display for FaultDomain {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(match self {
            Self::Node => "node",
            Self::Chassis => "chassis",
            Self::Rack => "rack",
            Self::Site => "site",
        })
    }
}

impl Place {
    /// The label of one kind; none for [`FaultDomain::Node`], which needs none.
    pub fn label(&self, domain: FaultDomain) -> Option<&str> {
        match domain {
            FaultDomain::Node => None,
            FaultDomain::Chassis => self.chassis.as_deref(),
            FaultDomain::Rack => self.rack.as_deref(),
            FaultDomain::Site => self.site.as_deref(),
        }
    }

    /// What tells a domain from others of its kind: its label, and those of what it is in, of these `kinds`. None if it has
    /// no label.
    pub fn path(&self, domain: FaultDomain, kinds: &[FaultDomain]) -> Option<String> {
        let own = self.label(domain)?;
        let outer =
            FaultDomain::LABELLED.into_iter().filter(|outer| *outer > domain && kinds.contains(outer));
        let labels = outer.map(|outer| self.label(outer).unwrap_or_default());
        Some(labels.chain([own]).collect::<Vec<&str>>().join("/"))
    }

    /// Whether there is no label.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the labels can be used.
    ///
    /// # Errors
    ///
    /// `NAME_INVALID`.
    pub fn validate(&self) -> Result<(), Error> {
        let labels =
            FaultDomain::LABELLED.into_iter().filter_map(|domain| Some((domain, self.label(domain)?)));
        for (domain, label) in labels {
            validate_name(&domain.to_string(), label)?;
        }
        Ok(())
    }
}

impl fmt::Display for Place {
    /// The labels there are, the widest first: `site s1, rack r2`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels =
            FaultDomain::LABELLED.into_iter().filter_map(|domain| Some((domain, self.label(domain)?)));
        let texts: Vec<String> = labels.map(|(domain, label)| format!("{domain} {label}")).collect();
        formatter.pad(&texts.join(", "))
    }
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
