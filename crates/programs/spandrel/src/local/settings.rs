//! What a cluster on this machine consists of: chosen at the first `up`, kept in `format.json`,
//! and the same ever after.
//!
//! Invariants:
//! - The record is written whole or not at all, and is durable before anything depends on it.
//! - A record of a newer format is refused by its number alone, whatever else it says.
//! - While `complete` is false nothing has been served from the directory, so what was made so
//!   far may be removed.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};
use spandrel_cluster::{DriveRole, MediaClass};
use spandrel_drive::{CacheLayout, Layout};
use spandrel_shared::geometry::{SLAB_BYTES_MAX, SLAB_BYTES_MIN};
use spandrel_shared::size::format_size;
use spandrel_shared::{ClusterId, Error, NodeId, SlabGeometry};

use super::media::MediaSettings;
use crate::admin::pool::memory_of_this_server;
use crate::arguments::UpArguments;
use crate::program::VERSION;

/// The format of the directory that this version makes, and the newest that it knows.
pub const FORMAT: u32 = 1;

/// The record's file.
pub const FORMAT_FILE: &str = "format.json";

const NODES_DEFAULT: u32 = 4;
const NODES_MAX: u32 = 16;
const DRIVES_DEFAULT: u32 = 2;
const DRIVES_MAX: u32 = 24;
const DRIVE_BYTES_DEFAULT: u64 = 4 << 30;
/// Drives in memory have together this part of the machine's, where nobody says how large they are: all that they have is in use
/// in the end, as what is overwritten is written elsewhere. Half of the machine's is for virtual machines, and others need some, too.
const MEMORY_SHARE: u64 = 4;
/// How large one of them is at least then.
const MEMORY_DRIVE_BYTES_MIN: u64 = 256 * MIB;
/// How large a cache drive is at least, whatever it is to cache for: smaller ones have room for the smallest journals and hardly
/// anything beside them.
pub const CACHE_DRIVE_BYTES_MIN: u64 = 64 * MIB;
const MIB: u64 = 1 << 20;

/// A node's cache drives have together this part of what they cache for, where nobody says how large they are.
const CACHE_SHARE: u64 = 4;

/// Slabs that a drive should hold at least, where nobody says how large they are: fewer would be
/// spread unevenly.
const SLABS_PER_DRIVE: u64 = 64;

/// What a cluster consists of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// The directory's format.
    pub format: u32,
    /// Whether everything was made.
    pub complete: bool,
    /// The version that made it.
    pub created_by: String,
    /// The cluster.
    pub cluster: ClusterId,
    /// Whether the drives are in memory, so that nothing outlives the process.
    pub memory: bool,
    /// The nodes.
    pub nodes: Vec<NodeSettings>,
    /// How many drives each node has.
    pub drives_per_node: u32,
    /// How large each drive is.
    pub drive_size_bytes: u64,
    /// How many cache drives each node has.
    #[serde(default)]
    pub cache_drives_per_node: u32,
    /// How large each cache drive is.
    #[serde(default)]
    pub cache_drive_size_bytes: u64,
    /// The media whose time the drives take.
    #[serde(default)]
    pub media: MediaSettings,
    /// The pool's slab size.
    pub slab_size_bytes: SlabGeometry,
}

/// A drive of each node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveSettings {
    /// Its name.
    pub name: String,
    /// What it is used for.
    pub role: DriveRole,
    /// How large it is.
    pub size_bytes: u64,
    /// The medium whose time it takes, if it is to be slower than this machine.
    pub media: Option<MediaClass>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSettings {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub id: NodeId,
}

#[derive(Deserialize)]
struct FormatOnly {
    format: u32,
}

impl Settings {
    /// What was asked for, with the defaults for what was not. `random` gives random bits.
    pub fn from_arguments(arguments: &UpArguments, mut random: impl FnMut() -> u64) -> Result<Self, Error> {
        let nodes = arguments.nodes.unwrap_or(NODES_DEFAULT);
        let drives_per_node = arguments.drives.unwrap_or(DRIVES_DEFAULT);
        check_count("--nodes", nodes, NODES_MAX)?;
        check_count("--drives", drives_per_node, DRIVES_MAX)?;
        let drive_size_bytes = arguments.drive_size.unwrap_or_else(|| match arguments.memory {
            true => memory_drive_bytes(memory_of_this_server(), nodes * drives_per_node, arguments.slab_size),
            false => DRIVE_BYTES_DEFAULT,
        });
        let slab_size_bytes = choose_slabs(drive_size_bytes, arguments.slab_size)?;
        check_drive_size(drive_size_bytes, slab_size_bytes)?;
        let cache_drives_per_node = arguments.cache_drives.unwrap_or(0);
        let cache_drive_size_bytes = check_caches(
            arguments,
            drives_per_node,
            (drive_size_bytes, slab_size_bytes),
            cache_drives_per_node,
        )?;
        let media = MediaSettings::from_arguments(arguments)?;
        let node = |number: u32, id| NodeSettings { name: format!("n{number}"), id };
        Ok(Self {
            format: FORMAT,
            complete: false,
            created_by: VERSION.to_owned(),
            cluster: ClusterId::from_random(random(), random()),
            memory: arguments.memory,
            nodes: (1..=nodes).map(|number| node(number, NodeId::from_random(random(), random()))).collect(),
            drives_per_node,
            drive_size_bytes,
            cache_drives_per_node,
            cache_drive_size_bytes,
            media,
            slab_size_bytes,
        })
    }

    /// The record in a directory; `None` if there is none.
    pub fn read(directory: &Path) -> Result<Option<Self>, Error> {
        let path = directory.join(FORMAT_FILE);
        let text = match fs::read(&path) {
            Ok(text) => text,
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(error) => {
                return Err(Error::new(
                    "DIR_UNREADABLE",
                    format!("the cluster in {} cannot be opened", directory.display()),
                    format!("{}: {error}", path.display()),
                    "let this user read the directory, or name another one with --dir",
                ));
            }
        };
        let damaged = |error: serde_json::Error| {
            Error::new(
                "DIR_DAMAGED",
                format!("the cluster in {} cannot be opened", directory.display()),
                format!("{} is no record of a cluster: {error}", path.display()),
                "put the file back as it was, or name another directory with --dir",
            )
        };
        let format: FormatOnly = serde_json::from_slice(&text).map_err(damaged)?;
        if format.format > FORMAT {
            return Err(Error::new(
                "DIR_TOO_NEW",
                format!("the cluster in {} cannot be opened", directory.display()),
                format!("its format is {}, and this version knows formats up to {FORMAT}", format.format),
                "use the newer version of spandrel that made it, or name another directory with --dir",
            ));
        }
        serde_json::from_slice(&text).map(Some).map_err(damaged)
    }

    /// Writes the record into a directory, durably, in place of one that is there.
    pub fn write(&self, directory: &Path) -> std::io::Result<()> {
        let (path, draft) = (directory.join(FORMAT_FILE), directory.join("format.json.new"));
        let mut text = serde_json::to_vec_pretty(self).map_err(std::io::Error::other)?;
        text.push(b'\n');
        let mut file = File::create(&draft)?;
        file.write_all(&text)?;
        file.sync_all()?;
        fs::rename(&draft, &path)?;
        File::open(directory)?.sync_all()
    }

    /// Refuses options that say something else than what the cluster was made with.
    pub fn check_arguments(&self, directory: &Path, arguments: &UpArguments) -> Result<(), Error> {
        let number: fn(u64) -> String = |number| number.to_string();
        let options = [
            ("--nodes", arguments.nodes.map(u64::from), self.nodes.len() as u64, number),
            ("--drives", arguments.drives.map(u64::from), u64::from(self.drives_per_node), number),
            ("--drive-size", arguments.drive_size, self.drive_size_bytes, format_size),
            (
                "--cache-drives",
                arguments.cache_drives.map(u64::from),
                u64::from(self.cache_drives_per_node),
                number,
            ),
            ("--cache-drive-size", arguments.cache_drive_size, self.cache_drive_size_bytes, format_size),
            ("--slab-size", arguments.slab_size, self.slab_size_bytes.slab_bytes(), format_size),
        ];
        let differences: Vec<String> = options
            .into_iter()
            .filter_map(|(name, asked, has, text)| Some((name, asked?, has, text)))
            .filter(|(_, asked, has, _)| asked != has)
            .map(|(name, asked, has, text)| format!("{name} {}, but it has {}", text(asked), text(has)))
            .chain(self.media.differences(arguments))
            .collect();
        let refuse = |why: String, next: &str| {
            let what = format!("the cluster in {} cannot be started like this", directory.display());
            Err(Error::new("OPTIONS_CONTRADICT", what, why, next))
        };
        if arguments.memory && !self.memory {
            return refuse(
                "--memory was given, and its drives are files with data in them".to_owned(),
                "leave --memory out, or name another directory with --dir",
            );
        }
        if !differences.is_empty() {
            return refuse(
                format!("nodes and drives are what they were when it was made: {}", differences.join("; ")),
                "leave these options out, or name another directory with --dir; adding nodes and drives to a \
                 cluster that exists is not possible yet",
            );
        }
        Ok(())
    }

    /// The drives of each node, cache drives last.
    pub fn drives(&self) -> impl Iterator<Item = DriveSettings> + use<> {
        let (size_bytes, cache_size_bytes) = (self.drive_size_bytes, self.cache_drive_size_bytes);
        let MediaSettings { capacity, cache, .. } = self.media;
        let capacity = (1..=self.drives_per_node).map(move |number| DriveSettings {
            name: format!("d{number}"),
            role: DriveRole::Capacity,
            size_bytes,
            media: capacity,
        });
        let caches = (1..=self.cache_drives_per_node).map(move |number| DriveSettings {
            name: format!("c{number}"),
            role: DriveRole::Cache,
            size_bytes: cache_size_bytes,
            media: cache,
        });
        capacity.chain(caches)
    }

    /// The bytes of all drives together.
    pub fn drives_bytes(&self) -> u64 {
        self.nodes.len() as u64 * self.drives().map(|drive| drive.size_bytes).sum::<u64>()
    }

    /// The longest name of a node.
    pub fn longest_node_name(&self) -> &str {
        self.nodes.iter().map(|node| node.name.as_str()).max_by_key(|name| name.len()).unwrap_or_default()
    }
}

/// How large so many drives in memory are each, on a machine with so much, for slabs that somebody may have asked for.
fn memory_drive_bytes(memory_bytes: u64, drives: u32, slab_bytes: Option<u64>) -> u64 {
    let share = memory_bytes / MEMORY_SHARE / u64::from(drives) / MIB * MIB;
    let least = slab_bytes.and_then(SlabGeometry::new).map_or(0, drive_bytes_min);
    share.clamp(MEMORY_DRIVE_BYTES_MIN, DRIVE_BYTES_DEFAULT).max(least)
}

fn check_count(option: &str, count: u32, most: u32) -> Result<(), Error> {
    if (1..=most).contains(&count) {
        return Ok(());
    }
    Err(Error::new(
        "OPTION_INVALID",
        format!("no cluster can be made with {option} {count}"),
        format!("1 to {most} are possible"),
        "choose a number in between",
    ))
}

/// How large each of a node's cache drives is, in front of so many capacity drives of this size.
fn check_caches(
    arguments: &UpArguments,
    drives: u32,
    (drive_bytes, slabs): (u64, SlabGeometry),
    cache_drives: u32,
) -> Result<u64, Error> {
    if cache_drives == 0 {
        return match arguments.cache_drive_size {
            None => Ok(0),
            Some(_) => Err(Error::new(
                "OPTION_INVALID",
                "no cluster can be made with --cache-drive-size alone",
                "it has no cache drives",
                "say how many with --cache-drives, or leave the option out",
            )),
        };
    }
    check_count("--cache-drives", cache_drives, DRIVES_MAX)?;
    let suited = u64::from(drives) * drive_bytes / CACHE_SHARE / u64::from(cache_drives) / MIB * MIB;
    // The journals of all drives that it caches for, and as much again for what it is to cache.
    let journal_bytes =
        Layout::for_drive(drive_bytes, 4096, slabs).map_or(0, |layout| layout.journal_bytes());
    let needed = u64::from(drives.div_ceil(cache_drives)) * 2 * journal_bytes;
    let least = needed.next_multiple_of(MIB).max(CACHE_DRIVE_BYTES_MIN);
    let size_bytes = arguments.cache_drive_size.unwrap_or(suited.max(least));
    // Whatever the sectors of the file system are, the larger ones leave the least room.
    if size_bytes >= least && CacheLayout::for_drive(size_bytes, 4096).is_some() {
        return Ok(size_bytes);
    }
    Err(Error::new(
        "OPTION_INVALID",
        format!("no cluster can be made with --cache-drive-size {}", format_size(size_bytes)),
        "that is too small for the journals of the drives that it caches for, and something beside them",
        format!("make it at least {}", format_size(least)),
    ))
}

fn choose_slabs(drive_size_bytes: u64, asked: Option<u64>) -> Result<SlabGeometry, Error> {
    let slab_bytes = asked.unwrap_or_else(|| {
        let suited = (drive_size_bytes / SLABS_PER_DRIVE).max(1);
        (1 << suited.ilog2()).clamp(SLAB_BYTES_MIN, SLAB_BYTES_MAX)
    });
    SlabGeometry::new(slab_bytes).ok_or_else(|| {
        Error::new(
            "OPTION_INVALID",
            format!("no cluster can be made with --slab-size {}", format_size(slab_bytes)),
            format!(
                "a slab is a power of two from {} to {}",
                format_size(SLAB_BYTES_MIN),
                format_size(SLAB_BYTES_MAX)
            ),
            "leave the option out, or choose one of these",
        )
    })
}

/// How large a drive is at least: so many slabs that it has room for one of them.
pub fn drive_bytes_min(slabs: SlabGeometry) -> u64 {
    // Whatever its sectors are, the larger ones leave the least room.
    let fits = |bytes: &u64| Layout::for_drive(*bytes, 4096, slabs).is_some();
    (2..64).map(|slab_count| slab_count * slabs.slab_bytes()).find(fits).unwrap_or(1 << 30)
}

fn check_drive_size(drive_size_bytes: u64, slabs: SlabGeometry) -> Result<(), Error> {
    let refuse = |why: String, next: String| {
        let what = format!("no cluster can be made with --drive-size {}", format_size(drive_size_bytes));
        Err(Error::new("OPTION_INVALID", what, why, next))
    };
    if !drive_size_bytes.is_multiple_of(4096) {
        return refuse(
            format!("{drive_size_bytes} bytes are not a multiple of 4096"),
            format!("make it {} bytes", drive_size_bytes.next_multiple_of(4096)),
        );
    }
    // Whatever the sectors of the file system are, the larger ones leave the least room.
    let fits = |bytes: u64| Layout::for_drive(bytes, 4096, slabs).is_some();
    if fits(drive_size_bytes) {
        return Ok(());
    }
    refuse(
        format!("that is too small for one slab of {} and its journal", format_size(slabs.slab_bytes())),
        format!("make it at least {}", format_size(drive_bytes_min(slabs))),
    )
}

#[cfg(test)]
#[path = "settings_tests.rs"]
pub(crate) mod tests;
