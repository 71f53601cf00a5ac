//! What this machine knows of a block device, or of the one below a file: what it is made of, who uses it.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use spandrel_cluster::MediaClass;

/// Where the kernel tells of devices.
#[derive(Clone, Debug)]
pub struct System {
    sys: PathBuf,
    mounts: PathBuf,
}

impl System {
    /// This machine.
    pub fn here() -> Self {
        Self { sys: "/sys".into(), mounts: "/proc/self/mountinfo".into() }
    }

    /// What a device, or the one that a file is on, is made of; none if there is no device or the kernel does not
    /// say.
    pub fn media(&self, path: &Path) -> Option<MediaClass> {
        let device = self.device(&fs::metadata(path).ok()?)?;
        let whole = if device.join("partition").exists() { device.parent()?.to_owned() } else { device };
        let rotates = fs::read_to_string(whole.join("queue/rotational")).ok()?;
        match (rotates.trim(), whole.file_name()?.to_str()?.starts_with("nvme")) {
            ("1", _) => Some(MediaClass::Hdd),
            ("0", true) => Some(MediaClass::Nvme),
            ("0", false) => Some(MediaClass::Ssd),
            _ => None,
        }
    }

    /// Who uses a device, in words, if the kernel says.
    pub fn user(&self, path: &Path) -> Option<String> {
        let metadata = fs::metadata(path).ok().filter(|metadata| metadata.file_type().is_block_device())?;
        let device = self.device(&metadata)?;
        let number = number(metadata.rdev());
        let mounts = fs::read_to_string(&self.mounts).unwrap_or_default();
        let mounted = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(2);
            (fields.next()? == number).then(|| fields.nth(1)).flatten()
        });
        if let Some(mounted) = mounted {
            return Some(format!("it is mounted at {mounted}"));
        }
        let holders = names_in(&device.join("holders"));
        if !holders.is_empty() {
            return Some(format!("it is part of {}", holders.join(", ")));
        }
        let is_partition = |name: &String| device.join(name).join("partition").exists();
        let partitions: Vec<String> = names_in(&device).into_iter().filter(is_partition).collect();
        (!partitions.is_empty()).then(|| format!("it has the partitions {}", partitions.join(", ")))
    }

    /// The kernel's folder of a block device, or of the one that a file is on.
    fn device(&self, metadata: &Metadata) -> Option<PathBuf> {
        let id = if metadata.file_type().is_block_device() { metadata.rdev() } else { metadata.dev() };
        fs::canonicalize(self.sys.join("dev/block").join(number(id))).ok()
    }
}

/// A device's number as the kernel writes it.
fn number(device: u64) -> String {
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

fn names_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

#[cfg(test)]
#[path = "device_tests.rs"]
mod tests;
