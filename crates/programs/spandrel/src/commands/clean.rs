//! `spandrel drive clean`: making a drive empty that carries something.
//!
//! Invariants:
//! - What the node in the directory takes up at its start stays: what is at a path of its settings, unless it is plain that
//!   others have left it there, and its own drives by whatever path, unless the cluster says that they were taken out of it.
//! - What the cluster in the directory counts on stays, whichever server has it.
//! - Any other Spandrel drive may be the last that holds something. It is wiped only if somebody has typed an answer to
//!   what is known of it, or named its identity.
//! - What cannot be read or asked is no reason to go on.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, IsTerminal as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressStyle};
use spandrel_drive::format::superblock::SUPERBLOCK_MAGIC;
use spandrel_health::Status;
use spandrel_inspect::{DriveIdentity, describe_path, identify_path, recognize_path};
use spandrel_shared::size::format_size;
use spandrel_shared::{BLOCK_BYTES, ClusterId, DriveId, Error, NodeId};

use crate::admin::api::{self, CacheDriveStatus, DriveStatus};
use crate::admin::client::Client;
use crate::arguments::DriveCleanArguments;
use crate::confirm::confirm;
use crate::device::{System, Thing};
use crate::directory::Directory;
use crate::failure::{EXIT_OK, Outcome, system_error};
use crate::local::settings::Settings;
use crate::server::settings::ServerSettings;
use crate::text::say;
use crate::wipe::{Emptied, Wiping, is_blank};

/// Where a superblock has its mark.
const MARK_OFFSET: u64 = 4;

/// The drive, or a partition of it: something that is lost.
#[derive(Clone, Debug)]
struct Part {
    /// A partition's name.
    partition: Option<String>,
    thing: Thing,
    content: Content,
    /// What it carries, in words.
    text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    /// A drive of ours.
    Drive(DriveIdentity),
    /// Something that may be a drive of ours whose identity cannot be read, and why it cannot.
    Unclear(&'static str),
    /// What others have left.
    Foreign,
    /// Zeros.
    Blank,
    /// Something that nobody here knows.
    Unknown,
}

impl Part {
    /// Looks at what stands at `path`.
    fn look(partition: Option<String>, path: &Path) -> Result<Self, String> {
        let thing = Thing::of(&fs::metadata(path).map_err(|error| error.to_string())?);
        let foreign = recognize_path(path);
        let content = match (identify_path(path)?, has_mark(path), is_blank(path)) {
            (Some(identity), ..) => Content::Drive(identity),
            (None, Ok(true), _) => {
                Content::Unclear("its superblock is damaged, or of a newer version of spandrel")
            }
            (None, Err(_), _) | (None, _, Err(_)) => Content::Unclear("it cannot be read everywhere"),
            (None, ..) if foreign.is_some() => Content::Foreign,
            (None, _, Ok(true)) => Content::Blank,
            (None, _, Ok(false)) => Content::Unknown,
        };
        let text = foreign.or_else(|| describe_path(path));
        let text = text.unwrap_or_else(|| "what it carries cannot be read".to_owned());
        Ok(Self { partition, thing, content, text })
    }

    fn identity(&self) -> Option<&DriveIdentity> {
        match &self.content {
            Content::Drive(identity) => Some(identity),
            _ => None,
        }
    }

    fn subject(&self) -> String {
        self.partition.as_ref().map_or("it".to_owned(), |name| format!("its partition {name}"))
    }
}

/// Whether there is the mark of a superblock where one of ours would stand, whatever else is wrong with it.
fn has_mark(path: &Path) -> std::io::Result<bool> {
    let mut file = File::open(path)?;
    let size_bytes = std::io::Seek::seek(&mut file, std::io::SeekFrom::End(0))?;
    let blocks = size_bytes / BLOCK_BYTES as u64;
    for block in [0, blocks.saturating_sub(1)].into_iter().filter(|block| *block < blocks) {
        let mut mark = [0; SUPERBLOCK_MAGIC.len()];
        file.read_exact_at(&mut mark, block * BLOCK_BYTES as u64 + MARK_OFFSET)?;
        if mark == SUPERBLOCK_MAGIC {
            return Ok(true);
        }
    }
    Ok(false)
}

/// All that is lost with what stands at `path`, the drive itself first.
fn look(path: &Path, system: &System) -> Result<Vec<Part>, String> {
    let mut parts = vec![Part::look(None, path)?];
    for (name, partition) in system.partition_paths(path)? {
        let part = Part::look(Some(name.clone()), &partition);
        parts.push(part.map_err(|why| format!("its partition {name} cannot be read: {why}"))?);
    }
    Ok(parts)
}

/// The node, or the nodes of the cluster, in a directory.
#[derive(Clone, Debug)]
struct Own {
    directory: PathBuf,
    /// None if there is nothing in the directory.
    cluster: Option<ClusterId>,
    nodes: Vec<NodeId>,
    /// The drives that its settings name, as far as they are there.
    drives: Vec<Thing>,
}

impl Own {
    /// What is in a directory.
    fn read(directory: &Directory) -> Result<Self, Error> {
        let place = directory.path().to_owned();
        let (cluster, nodes, paths) = match ServerSettings::read(directory) {
            Ok(settings) => {
                let paths = settings.drives.iter().map(PathBuf::from).collect();
                (settings.cluster, vec![settings.node], paths)
            }
            // There is no server in it, or not yet.
            Err(error) if ["SERVER_UNKNOWN", "JOIN_PENDING", "DIR_HALF_MADE"].contains(&&*error.code) => {
                let Some(settings) = Settings::read(directory.path())? else {
                    return Ok(Self { directory: place, cluster: None, nodes: vec![], drives: vec![] });
                };
                let names: Vec<String> = settings.drives().map(|drive| drive.name).collect();
                let of = |node: &str| {
                    names.iter().map(|name| directory.drive_file(node, name)).collect::<Vec<_>>()
                };
                let paths = settings.nodes.iter().flat_map(|node| of(&node.name)).collect();
                (settings.cluster, settings.nodes.iter().map(|node| node.id).collect(), paths)
            }
            Err(error) => return Err(error),
        };
        let drives = things(&paths)?;
        Ok(Self { directory: place, cluster: Some(cluster), nodes, drives })
    }

    /// Whether a drive is one of the node's.
    fn has(&self, identity: &DriveIdentity) -> bool {
        self.is_of_cluster(identity) && self.nodes.contains(&identity.node)
    }

    fn is_of_cluster(&self, identity: &DriveIdentity) -> bool {
        self.cluster == Some(identity.cluster)
    }

    /// Refuses what the node takes up when it starts. At a path of its settings that is also what may be its drive and
    /// is damaged, but not what it would refuse itself: then it could never start again.
    fn check(&self, path: &Path, parts: &[Part]) -> Result<(), Error> {
        let directory = self.directory.display();
        for part in parts {
            let subject = part.subject();
            let what = format!("{} is not cleaned", path.display());
            match &part.content {
                Content::Drive(identity) if self.has(identity) && self.drives.contains(&part.thing) => {
                    return Err(Error::new(
                        "DRIVE_OF_NODE",
                        what,
                        format!(
                            "{subject} is the drive {} of the node in {directory}, which takes it up at each start",
                            identity.drive
                        ),
                        "take it out of the pool first (`spandrel drive remove`), or with its node (`spandrel node remove`, \
                         asked on another server), and delete the node's directory",
                    ));
                }
                Content::Unclear(_) | Content::Unknown if self.drives.contains(&part.thing) => {
                    return Err(Error::new(
                        "DRIVE_OF_NODE",
                        what,
                        format!(
                            "{subject} is a drive of the node in {directory} by its settings, and what stands there is \
                             nothing known: it may be that drive, damaged ({})",
                            part.text
                        ),
                        "look at it with `spandrel drive inspect`; if it is lost, start the node, which goes on without \
                         it, and take it out of the pool (`spandrel drive remove`, which waits until what it held is \
                         built anew)",
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// What is known of the cluster's need for each Spandrel drive, in words. Refuses a drive that the cluster counts on.
    fn check_cluster(
        &self,
        path: &Path,
        parts: &[Part],
        ask: impl FnOnce() -> Result<Vec<CountedOn>, Error>,
    ) -> Result<Vec<String>, Error> {
        let identities: Vec<&DriveIdentity> = parts.iter().filter_map(Part::identity).collect();
        // Only one that may have something to say is asked.
        let drives = identities.iter().any(|identity| self.is_of_cluster(identity)).then(ask);
        let directory = self.directory.display();
        let mut known = Vec::new();
        for identity in identities {
            known.push(match &drives {
                Some(Ok(drives)) if self.is_of_cluster(identity) => {
                    if let Some(drive) = drives.iter().find(|drive| drive.id == Some(identity.drive)) {
                        return Err(in_cluster(path, &self.directory, drive));
                    }
                    format!("the cluster in {directory} does not count on the drive {}", identity.drive)
                }
                Some(Err(error)) if self.has(identity) => {
                    return Err(Error::new(
                        "DRIVE_OF_NODE",
                        format!("{} is not cleaned", path.display()),
                        format!(
                            "it is the drive {} of the node in {directory}, and whether it was taken out of the cluster is \
                             not known: that cannot be asked ({})",
                            identity.drive, error.why
                        ),
                        "start the node, and do it again",
                    ));
                }
                Some(Err(error)) if self.is_of_cluster(identity) => format!(
                    "whether the cluster in {directory} needs the drive {} is not known: it cannot be asked ({})",
                    identity.drive, error.why
                ),
                _ => format!(
                    "whether its cluster needs the drive {} is not known: it is not the one in {directory}",
                    identity.drive
                ),
            });
        }
        Ok(known)
    }
}

/// The things at these paths. One that is not there is none; one that cannot be looked at could be anything.
fn things(paths: &Vec<PathBuf>) -> Result<Vec<Thing>, Error> {
    let mut things = Vec::new();
    for path in paths {
        match fs::metadata(path) {
            Ok(metadata) => things.push(Thing::of(&metadata)),
            Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {}
            Err(error) => {
                return Err(system_error(
                    format!("the drive {} cannot be looked at", path.display()),
                    &error,
                ));
            }
        }
    }
    Ok(things)
}

/// A drive of either role that the cluster counts on.
struct CountedOn {
    id: Option<DriveId>,
    name: String,
    node: String,
    status: Status,
}

/// The drives that the cluster counts on.
fn counted_on(client: &Client) -> Result<Vec<CountedOn>, Error> {
    let drives: Vec<DriveStatus> = client.get(api::DRIVES)?;
    let caches: Vec<CacheDriveStatus> = client.get(api::CACHES)?;
    let drives = drives.into_iter().map(|drive| (drive.id, drive.name, drive.node, drive.status));
    let caches = caches.into_iter().map(|cache| (cache.id, cache.name, cache.node, cache.status));
    let all = drives.chain(caches);
    Ok(all.map(|(id, name, node, status)| CountedOn { id, name, node, status }).collect())
}

fn in_cluster(path: &Path, directory: &Path, drive: &CountedOn) -> Error {
    let CountedOn { name, node, status, .. } = drive;
    let identity = drive.id.map_or_else(String::new, |id| format!(" ({id})"));
    Error::new(
        "DRIVE_IN_CLUSTER",
        format!("{} is not cleaned", path.display()),
        format!(
            "the cluster in {} counts on it: it is the drive {name}{identity} of the node {node}, {status}",
            directory.display()
        ),
        format!(
            "take it out of the pool first: `spandrel drive remove {name}`, or with its server: `spandrel node remove {node}`"
        ),
    )
}

/// Refuses to do without an answer from a person where nobody has named the drives that are lost, and whatever was named
/// and is not there.
fn check_meant(
    path: &Path,
    parts: &[Part],
    known: &[String],
    arguments: &DriveCleanArguments,
) -> Result<(), Error> {
    let what = || format!("{} is not cleaned", path.display());
    let found = found(parts);
    if let Some(other) = arguments.drive_ids.iter().find(|id| !found.contains(id)) {
        let stands = match found.is_empty() {
            true => "no Spandrel drive whose identity can be read".to_owned(),
            false => format!("the Spandrel drive {}", texts(&found).join(" and ")),
        };
        return Err(Error::new(
            "DRIVE_ID_WRONG",
            what(),
            format!("--drive-id names {other}, and what stands on it is {stands}"),
            "see whether this is the drive that is meant: --dry-run shows what would be lost",
        ));
    }
    if !arguments.yes || arguments.dry_run {
        return Ok(());
    }
    if let Some((part, why)) = parts.iter().find_map(|part| match part.content {
        Content::Unclear(why) => Some((part, why)),
        _ => None,
    }) {
        return Err(Error::new(
            "DRIVE_ID_UNKNOWN",
            what(),
            format!("{} may be a Spandrel drive, and nobody can say whose: {why}", part.subject()),
            "look at it with `spandrel drive inspect`; if nothing on it is needed any more, leave --yes out, and type its \
             name when asked",
        ));
    }
    let named: BTreeSet<DriveId> = arguments.drive_ids.iter().copied().collect();
    if named == found {
        return Ok(());
    }
    Err(Error::new(
        "DRIVE_ID_NEEDED",
        what(),
        format!("{}; so --yes alone is not enough", known.join("; ")),
        format!(
            "if nothing on it is needed any more, give the command {} too, or leave --yes out, and type its name when \
             asked",
            options(&found)
        ),
    ))
}

/// The Spandrel drives that would be lost.
fn found(parts: &[Part]) -> BTreeSet<DriveId> {
    parts.iter().filter_map(Part::identity).map(|identity| identity.drive).collect()
}

fn texts(ids: &BTreeSet<DriveId>) -> Vec<String> {
    ids.iter().map(ToString::to_string).collect()
}

fn options(ids: &BTreeSet<DriveId>) -> String {
    format!("--drive-id {}", texts(ids).join(" --drive-id "))
}

/// What has to be given beside the command for it to be carried out, in words; nothing where --yes is enough.
fn condition(parts: &[Part]) -> String {
    if parts.iter().any(|part| matches!(part.content, Content::Unclear(_))) {
        return " if its name is typed when asked: --yes is not enough".to_owned();
    }
    let found = found(parts);
    if found.is_empty() {
        return String::new();
    }
    format!(" if its name is typed when asked, or with --yes {}", options(&found))
}

/// What would be lost, and what is not known about it, in words.
fn describe(path: &Path, size_bytes: u64, parts: &[Part], known: &[String]) -> String {
    let mut text = format!("{} has {}", path.display(), format_size(size_bytes));
    let partitions: Vec<&str> = parts.iter().filter_map(|part| part.partition.as_deref()).collect();
    if !partitions.is_empty() {
        text += &format!(" and the partitions {}", partitions.join(", "));
    }
    for part in parts {
        text += &match &part.partition {
            Some(name) => format!("\nthe partition {name}: "),
            None => "; ".to_owned(),
        };
        text += &match &part.content {
            Content::Drive(DriveIdentity { cluster, node, drive, is_cache, .. }) => {
                let (kind, holds) = match is_cache {
                    true => ("cache drive", "has, or had, what was written last to the drives bound to it"),
                    false => ("drive", "holds copies of its volumes"),
                };
                format!(
                    "it is the {kind} {drive} of node {node} of the Spandrel cluster {cluster}, and {holds}"
                )
            }
            Content::Unclear(why) => format!("{}; {why}", part.text),
            Content::Foreign | Content::Blank | Content::Unknown => part.text.clone(),
        };
    }
    for known in known {
        text += &format!("\n{known}");
    }
    text
}

/// Wipes a drive.
pub fn clean(directory: &Directory, arguments: &DriveCleanArguments) -> Outcome {
    let path = std::path::absolute(&arguments.path)
        .map_err(|error| system_error(format!("{} is not cleaned", arguments.path.display()), &error))?;
    let system = System::here();
    let own = Own::read(directory).map_err(|error| settings_unreadable(&path, directory, error))?;
    // A node that runs has it open; that it is the node's says more.
    let of_node = || look(&path, &system).ok().and_then(|parts| own.check(&path, &parts).err());
    let wiping = Wiping::begin(&path, &system).map_err(|error| of_node().unwrap_or(error))?;
    let parts = look(&wiping.opened(), &system).map_err(|why| content_unreadable(&path, why))?;
    own.check(&path, &parts)?;
    let ask = || counted_on(&Client::new(directory.clone())?);
    let known = own.check_cluster(&path, &parts, ask)?;
    check_meant(&path, &parts, &known, arguments)?;
    let what = describe(&path, wiping.size_bytes(), &parts, &known);
    if arguments.dry_run {
        say(&format!("{what}\nit would be wiped{}\n", condition(&parts)));
        return Ok(EXIT_OK);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    confirm(&format!("{what}\nAll of it is lost."), &name, arguments.yes)?;
    // The answer may have taken its time.
    wiping.check_unused(&system)?;
    let how = wipe(&wiping, parts[0].identity())?;
    let next = match own.drives.contains(&parts[0].thing) {
        true => format!("the node in {} takes it up when it starts", own.directory.display()),
        false => format!("`spandrel drive add {}` gives it to the pool", path.display()),
    };
    say(&format!("{} is empty: {how}\n{next}\n", path.display()));
    Ok(EXIT_OK)
}

/// Wipes what was taken, and says how far that goes.
fn wipe(wiping: &Wiping, identity: Option<&DriveIdentity>) -> Result<&'static str, Error> {
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::new(wiping.size_bytes())
    } else {
        ProgressBar::hidden()
    };
    let style = ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {percent:>3} % emptied");
    bar.set_style(style.expect("the template is well-formed").progress_chars("=> "));
    let emptied = wiping.discard(|done| bar.set_position(done));
    bar.finish_and_clear();
    wiping.overwrite(&wiping.regions(identity))?;
    Ok(match emptied {
        Emptied::Discarded => "all of it was discarded",
        Emptied::Zeroed => "all of it reads as zeros",
        Emptied::No => "its start and end were overwritten; what stands between may still be read from it",
    })
}

fn settings_unreadable(path: &Path, directory: &Directory, error: Error) -> Error {
    Error::new(
        &error.code,
        format!("{} is not cleaned", path.display()),
        format!(
            "whether it is a drive of the node in {} cannot be known: {}",
            directory.path().display(),
            error.why
        ),
        error.next,
    )
}

fn content_unreadable(path: &Path, why: String) -> Error {
    Error::new(
        "DRIVE_UNREADABLE",
        format!("{} is not cleaned", path.display()),
        format!("what stands on it cannot be known: {why}"),
        "look at the kernel's log (`dmesg`) for what the device says; if its partitions have changed, have the kernel \
         read them again (`partprobe`)",
    )
}

#[cfg(test)]
#[path = "clean_tests.rs"]
mod tests;
