//! Identities: 128 random bits each, never reused.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

macro_rules! identity {
    ($(#[$documentation:meta])* $name:ident) => {
        $(#[$documentation])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// A new identity from 128 random bits.
            pub fn from_random(high: u64, low: u64) -> Self {
                let bits = (u128::from(high) << 64) | u128::from(low);
                Self(uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid())
            }

            /// The identity that these bytes of a disk or wire format name.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(Uuid::from_bytes(bytes))
            }

            /// The bytes for disk and wire formats.
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0.into_bytes()
            }

            /// Whether all bits are zero, which no identity has: formats use it for "none".
            pub const fn is_nil(self) -> bool {
                self.0.is_nil()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0.hyphenated(), formatter)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                // Eight digits tell two of a test's or a log's identities apart.
                let text = self.0.simple().to_string();
                write!(formatter, "{}({})", stringify!($name), &text[..8])
            }
        }

        impl std::str::FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                text.parse().map(Self)
            }
        }
    };
}

identity!(
    /// A cluster: all nodes that share one pool.
    ClusterId
);
identity!(
    /// A node: a server that gives drives to the pool.
    NodeId
);
identity!(
    /// One run of a node's process. A restarted node has the same [`NodeId`] and a new one of these.
    ProcessIncarnation
);
identity!(
    /// A drive, from its formatting on.
    DriveId
);
identity!(
    /// A volume: a virtual disk.
    VolumeId
);
identity!(
    /// A virtual machine.
    VmId
);
identity!(
    /// One copy of one slab on one drive, from its creation there on. A copy that is built anew
    /// on the same drive gets a new one, so that messages for the old one are refused.
    CopyId
);
identity!(
    /// A request that a volume grow. Whoever asks again, since the answer was lost, asks by the same one.
    GrowthId
);

/// One of a node's event loops, with the drives and volumes that it serves: whom others speak to. Every node has the shard 0; a
/// node whose others are not needed has no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ShardId {
    /// The node.
    pub node: NodeId,
    /// Which of its shards, from zero.
    #[serde(rename = "shard", default)]
    pub number: u8,
}

impl ShardId {
    /// The shard that every node has.
    pub const fn first(node: NodeId) -> Self {
        Self { node, number: 0 }
    }

    /// The shards of a node that has so many, in the order of their numbers.
    pub fn all(node: NodeId, count: u8) -> impl Iterator<Item = Self> {
        (0..count).map(move |number| Self { node, number })
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.node, formatter)?;
        match self.number {
            // Keys and logs of nodes with one shard name the node.
            0 => Ok(()),
            number => write!(formatter, ".{number}"),
        }
    }
}

impl FromStr for ShardId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (node, number) = text.split_once('.').unwrap_or((text, "0"));
        let node = node.parse().map_err(|error| format!("{text} names no node: {error}"))?;
        let number = number.parse().map_err(|error| format!("{text} names no shard of a node: {error}"))?;
        Ok(Self { node, number })
    }
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
