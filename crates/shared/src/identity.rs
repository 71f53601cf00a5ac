//! Identities: 128 random bits each, never reused.

use std::fmt;

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
    /// One copy of one slab on one drive, from its creation there on. A copy that is built anew
    /// on the same drive gets a new one, so that messages for the old one are refused.
    CopyId
);
identity!(
    /// A request that a volume grow. Whoever asks again, since the answer was lost, asks by the same one.
    GrowthId
);
