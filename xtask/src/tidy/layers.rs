//! The architecture as a table: which layer each folder is, and which layers each may name.
//!
//! Data path and control path name only what is shared and the platform's interface, so that the
//! same code runs on Linux and in the simulator. Within the data path each crate names only those
//! that a write reaches after it. Only programs and verification choose a platform.

/// Where a crate stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    PlatformInterface,
    Shared,
    PlatformLinux,
    PlatformSimulated,
    /// What secures the connections of another platform.
    PlatformTls,
    /// One of [`DATA_PATH`], by its place there.
    DataPath(usize),
    ControlPath,
    /// The library that puts a node together for whichever platform.
    Node,
    /// The reader of drives that shares no code with the store.
    Inspect,
    Program,
    Verification,
    Tools,
}

/// The crates of the data path in the order in which a write reaches them.
pub const DATA_PATH: [&str; 6] = ["frontend", "volume", "bus", "replica", "cache", "drive"];

impl Layer {
    /// The layer of a crate's folder. `None` for a folder that is in no layer.
    pub fn of(folder: &str) -> Option<Self> {
        Some(match folder.split('/').collect::<Vec<_>>()[..] {
            ["crates", "platform", "interface"] => Self::PlatformInterface,
            ["crates", "platform", "linux"] => Self::PlatformLinux,
            ["crates", "platform", "simulated"] => Self::PlatformSimulated,
            ["crates", "platform", "tls"] => Self::PlatformTls,
            ["crates", "shared"] => Self::Shared,
            ["crates", "data-path", name] => {
                Self::DataPath(DATA_PATH.iter().position(|&known| known == name)?)
            }
            ["crates", "control-path", _] => Self::ControlPath,
            ["crates", "programs", "node"] => Self::Node,
            ["crates", "programs", "inspect"] => Self::Inspect,
            ["crates", "programs", _] => Self::Program,
            ["verification", _] => Self::Verification,
            ["xtask"] | ["xtask", _] => Self::Tools,
            _ => return None,
        })
    }

    /// Why a crate of this layer may not depend on one of `other`; `None` if it may.
    pub fn refusal(self, other: Self, for_tests: bool) -> Option<&'static str> {
        use Layer::*;
        // Tests run simulated; examples show what the same code costs on the real machine.
        let is_platform = matches!(other, PlatformSimulated | PlatformLinux);
        if for_tests && is_platform && self.runs_simulated() {
            return None;
        }
        if for_tests && self == PlatformTls && is_platform {
            return None;
        }
        if for_tests && self == Inspect && !matches!(other, Tools | Verification) {
            return None;
        }
        match (self, other) {
            (PlatformInterface, _) => Some("the platform's interface is the lowest layer"),
            (Tools, _) => Some("the tools must build when nothing else does"),
            // Each by itself is a program that proves something; what one of them can do another may use.
            (Verification, Verification) => None,
            (_, Tools | Verification) => Some("nothing that ships names tests or tools"),
            (Program | Verification, _) | (_, PlatformInterface) => None,
            (Inspect, Shared) => None,
            (Inspect, _) => Some(
                "it reads drives with code of its own, so that a mistake of the store is not one of its own",
            ),
            (_, PlatformLinux | PlatformSimulated | PlatformTls) => Some(
                "only programs and verification choose a platform, so that the simulator runs what ships",
            ),
            (Shared, _) => Some("what is shared stands below everything but the platform's interface"),
            (_, Shared) => None,
            (PlatformLinux | PlatformSimulated | PlatformTls, _) => {
                Some("a platform knows nothing of what runs on it")
            }
            (DataPath(place), DataPath(other)) if place < other => None,
            (DataPath(_), DataPath(_)) => {
                Some("a crate of the data path names only those that a write reaches after it")
            }
            (ControlPath, ControlPath) | (Node, DataPath(_) | ControlPath) => None,
            (DataPath(_), _) => Some("the data path names only what is shared, the interface and itself"),
            (ControlPath, _) => Some("the control path names only what is shared, the interface and itself"),
            (Node, _) => Some("a node is put together from data path and control path alone"),
        }
    }

    /// Whether the simulator runs the code of this layer, so that all it does must be reproducible.
    pub fn runs_simulated(self) -> bool {
        match self {
            Self::PlatformInterface
            | Self::Shared
            | Self::PlatformSimulated
            | Self::DataPath(_)
            | Self::ControlPath
            | Self::Node => true,
            Self::PlatformLinux
            | Self::PlatformTls
            | Self::Inspect
            | Self::Program
            | Self::Verification
            | Self::Tools => false,
        }
    }
}

#[cfg(test)]
#[path = "layers_tests.rs"]
mod tests;
