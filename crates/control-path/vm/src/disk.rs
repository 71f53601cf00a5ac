//! The name by which a virtual machine's disk is opened: it says for which run.
//!
//! A process that was started for an earlier run, and was cut off meanwhile, asks by a name that means nothing any more. No
//! volume can have such a name: it contains a colon.

use std::fmt;
use std::str::FromStr;

use spandrel_shared::VmId;

/// The disk of a virtual machine, for one run of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskName {
    /// The virtual machine.
    pub vm: VmId,
    /// The run.
    pub run: u64,
}

impl fmt::Display for DiskName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "vm:{}:{}", self.vm, self.run)
    }
}

impl FromStr for DiskName {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (vm, run) = text.strip_prefix("vm:").and_then(|rest| rest.split_once(':')).ok_or(())?;
        Ok(Self { vm: vm.parse().map_err(|_| ())?, run: run.parse().map_err(|_| ())? })
    }
}

#[cfg(test)]
#[path = "disk_tests.rs"]
mod tests;
