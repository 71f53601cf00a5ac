//! What this machine knows of a block device, or of the one below a file: what it is made of, who uses it, which drive it is.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use spandrel_cluster::MediaClass;
use spandrel_inspect::DriveIdentity;

/// Where the kernel tells of devices and of processes.
#[derive(Clone, Debug)]
pub struct System {
    sys: PathBuf,
    mounts: PathBuf,
    swaps: PathBuf,
    processes: PathBuf,
    devices: PathBuf,
}

/// A block device or a file, whatever paths lead to it: hard links and second device nodes are the same thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Thing {
    /// The number of the device.
    Device(u64),
    /// The file system that the file is on, and its number there.
    File(u64, u64),
}

impl Thing {
    /// What something is that was looked at.
    pub fn of(metadata: &Metadata) -> Self {
        match metadata.file_type().is_block_device() {
            true => Self::Device(metadata.rdev()),
            false => Self::File(metadata.dev(), metadata.ino()),
        }
    }
}

/// Another process that has something open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opener {
    /// Its name.
    pub name: String,
    /// Its number.
    pub number: u32,
    /// Whether it may write.
    pub writes: bool,
}

impl System {
    /// This machine.
    pub fn here() -> Self {
        Self {
            sys: "/sys".into(),
            mounts: "/proc/self/mountinfo".into(),
            swaps: "/proc/swaps".into(),
            processes: "/proc".into(),
            devices: "/dev".into(),
        }
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

    /// The paths of a device's partitions, with their names.
    ///
    /// # Errors
    /// Why one of them cannot be had.
    pub fn partition_paths(&self, path: &Path) -> Result<Vec<(String, PathBuf)>, String> {
        let device = fs::metadata(path).ok().and_then(|metadata| self.device(&metadata));
        let path_of = |name: String| {
            let wanted = device.as_ref().and_then(|device| number_in(&device.join(&name)));
            let path = self.devices.join(&name);
            let found = fs::metadata(&path).map_err(|error| format!("{}: {error}", path.display()))?;
            match wanted.is_some_and(|wanted| Thing::of(&found) == wanted) {
                true => Ok((name, path)),
                false => Err(format!("{} is something else", path.display())),
            }
        };
        self.partitions(path).into_iter().map(path_of).collect()
    }

    /// The other processes that have a device, a partition of it, the disk that it is a part of, or a file open: those
    /// that this user may look at. The kernel itself, which mounts, is none of them.
    pub fn openers(&self, path: &Path) -> Vec<Opener> {
        let things = self.things(path);
        let own = fs::read_link(self.processes.join("self")).ok();
        let numbers = names_in(&self.processes).into_iter().filter_map(|name| name.parse().ok());
        let others = numbers.filter(|number: &u32| own.as_deref() != Some(Path::new(&number.to_string())));
        others.filter_map(|number| self.opener(number, &things)).collect()
    }

    fn opener(&self, number: u32, things: &[Thing]) -> Option<Opener> {
        let folder = self.processes.join(number.to_string());
        let is_meant = |name: &String| {
            let opened = fs::metadata(folder.join("fd").join(name));
            opened.is_ok_and(|opened| things.contains(&Thing::of(&opened)))
        };
        let mut opened = names_in(&folder.join("fd")).into_iter().filter(is_meant).peekable();
        opened.peek()?;
        let writes = opened.any(|name| {
            let text = fs::read_to_string(folder.join("fdinfo").join(name)).unwrap_or_default();
            may_write(&text)
        });
        let name = fs::read_to_string(folder.join("comm")).unwrap_or_default();
        Some(Opener { name: name.trim().to_owned(), number, writes })
    }

    /// What is changed together with a device or a file: its partitions, and the disk that it is a part of.
    fn things(&self, path: &Path) -> Vec<Thing> {
        let Ok(metadata) = fs::metadata(path) else { return Vec::new() };
        let mut things = vec![Thing::of(&metadata)];
        let Some(device) = self.device(&metadata).filter(|_| metadata.file_type().is_block_device()) else {
            return things;
        };
        things.extend(self.partitions(path).iter().filter_map(|name| number_in(&device.join(name))));
        if device.join("partition").exists() {
            things.extend(device.parent().and_then(number_in));
        }
        things
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
        let file = Thing::of(&fs::metadata(path).ok()?);
        let is_it = |path: &str| fs::metadata(path).is_ok_and(|metadata| Thing::of(&metadata) == file);
        if self.swaps().iter().any(|swap| is_it(swap)) {
            return Some("it is swap space in use".to_owned());
        }
        let devices = names_in(&self.sys.join("block"));
        let is_behind = |device: &&String| {
            let backing = fs::read_to_string(self.sys.join("block").join(device).join("loop/backing_file"));
            backing.is_ok_and(|backing| is_it(backing.trim_end_matches('\n')))
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

/// Whose drive stands at a path, if it says so.
pub async fn identify(path: &str) -> Option<DriveIdentity> {
    look_at(path, |path| spandrel_inspect::identify_path(path).ok()?).await
}

/// Looks at a file or block device. One that is about to die can take its time, and what is neither may keep waiting whoever
/// opens it.
pub async fn look_at<T: Send + 'static>(path: &str, look: fn(&Path) -> Option<T>) -> Option<T> {
    let path = PathBuf::from(path);
    let looked = tokio::task::spawn_blocking(move || {
        let kind = std::fs::metadata(&path).ok()?.file_type();
        if kind.is_file() || kind.is_block_device() { look(&path) } else { None }
    });
    looked.await.ok()?
}

/// A device's number as the kernel writes it.
fn number(device: u64) -> String {
    format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
}

/// The device whose folder this is in the kernel's tree.
fn number_in(folder: &Path) -> Option<Thing> {
    let text = fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(Thing::Device(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?)))
}

/// Whether a process may write to what it has open, as the kernel tells of it. If that cannot be read it may.
fn may_write(text: &str) -> bool {
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_none_or(|flags| flags & rustix::fs::OFlags::RWMODE.bits() != rustix::fs::OFlags::RDONLY.bits())
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
