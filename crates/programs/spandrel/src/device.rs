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
    swaps: PathBuf,
}

impl System {
    /// This machine.
    pub fn here() -> Self {
        Self { sys: "/sys".into(), mounts: "/proc/self/mountinfo".into(), swaps: "/proc/swaps".into() }
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

    /// Why a device or a file can be nobody's drive, in words, if the kernel says: somebody uses it, or it has
    /// partitions.
    pub fn user(&self, path: &Path) -> Option<String> {
        if let Some(holder) = self.holder(path) {
            return Some(holder);
        }
        let partitions = self.partitions(path);
        (!partitions.is_empty()).then(|| format!("it has the partitions {}", partitions.join(", ")))
    }

    /// Who uses a device, one of its partitions, or a file, in words, if the kernel says.
    pub fn holder(&self, path: &Path) -> Option<String> {
        let metadata = fs::metadata(path).ok()?;
        if !metadata.file_type().is_block_device() {
            return self.holder_of_file(path);
        }
        let device = self.device(&metadata)?;
        let whole = self.holder_of_device(&device, &number(metadata.rdev()));
        whole.map(|use_of| format!("it {use_of}")).or_else(|| {
            self.partitions(path).into_iter().find_map(|name| {
                let part = device.join(&name);
                let number = fs::read_to_string(part.join("dev")).ok()?;
                let use_of = self.holder_of_device(&part, number.trim())?;
                Some(format!("its partition {name} {use_of}"))
            })
        })
    }

    /// Whether a device can be told that its content is not needed any more.
    pub fn can_discard(&self, path: &Path) -> bool {
        let Some(device) = fs::metadata(path).ok().and_then(|metadata| self.device(&metadata)) else {
            return false;
        };
        let whole = if device.join("partition").exists() { device.parent() } else { Some(device.as_path()) };
        let most = whole.and_then(|whole| fs::read_to_string(whole.join("queue/discard_max_bytes")).ok());
        most.and_then(|text| text.trim().parse().ok()).is_some_and(|bytes: u64| bytes > 0)
    }

    /// The names of a device's partitions.
    pub fn partitions(&self, path: &Path) -> Vec<String> {
        let metadata = fs::metadata(path).ok().filter(|metadata| metadata.file_type().is_block_device());
        let Some(device) = metadata.and_then(|metadata| self.device(&metadata)) else { return Vec::new() };
        let is_partition = |name: &String| device.join(name).join("partition").exists();
        names_in(&device).into_iter().filter(is_partition).collect()
    }

    fn holder_of_device(&self, device: &Path, number: &str) -> Option<String> {
        let mounts = fs::read_to_string(&self.mounts).unwrap_or_default();
        let mounted = mounts.lines().find_map(|line| {
            let mut fields = line.split(' ').skip(2);
            (fields.next()? == number).then(|| fields.nth(1)).flatten()
        });
        if let Some(mounted) = mounted {
            return Some(format!("is mounted at {mounted}"));
        }
        let name = device.file_name().unwrap_or_default();
        if self.swaps().iter().any(|swap| Path::new(swap).file_name() == Some(name)) {
            return Some("is swap space in use".to_owned());
        }
        let holders = names_in(&device.join("holders"));
        (!holders.is_empty()).then(|| format!("is part of {}", holders.join(", ")))
    }

    fn holder_of_file(&self, path: &Path) -> Option<String> {
        let path = fs::canonicalize(path).ok()?;
        if self.swaps().iter().any(|swap| Path::new(swap) == path) {
            return Some("it is swap space in use".to_owned());
        }
        let devices = names_in(&self.sys.join("block"));
        let is_behind = |device: &&String| {
            let backing = fs::read_to_string(self.sys.join("block").join(device).join("loop/backing_file"));
            backing.is_ok_and(|backing| Path::new(backing.trim_end_matches('\n')) == path)
        };
        devices.iter().find(is_behind).map(|device| format!("it is behind the loop device {device}"))
    }

    /// The devices and files that are swapped to.
    fn swaps(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.swaps).unwrap_or_default();
        // The first line is the heads.
        let paths = text.lines().skip(1).filter_map(|line| line.split_whitespace().next());
        paths.map(str::to_owned).collect()
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
