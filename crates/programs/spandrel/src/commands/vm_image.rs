//! Copying a disk image into a volume, by qemu-img, over NBD.

use std::io::{BufReader, IsTerminal as _, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use spandrel_shared::Error;
use spandrel_shared::size::format_size;

use crate::admin::api::{self, VolumeStatus};
use crate::admin::client::{Client, path_with};
use crate::interrupt::{leave_to_interruption, remove_on_interrupt};
use crate::text::quoted;

/// The program that knows images.
const PROGRAM: &str = "qemu-img";

/// What disks are multiples of, in bytes.
const SECTOR_BYTES: u64 = 512;

/// A disk image, and where it is to go.
pub struct DiskImage {
    file: PathBuf,
    format: String,
    size_bytes: u64,
    volume: String,
    uri: String,
}

/// What qemu-img says of an image.
#[derive(Deserialize)]
struct ImageInfo {
    format: String,
    #[serde(rename = "virtual-size")]
    virtual_size: u64,
}

impl DiskImage {
    /// Looks at an image, and whether it fits.
    ///
    /// # Errors
    /// `IMAGE_UNREADABLE`, `IMAGE_TOO_LARGE`, `VOLUME_NOT_FOUND`, `VOLUME_NOT_HERE`.
    pub fn open(client: &Client, file: &Path, volume: &str) -> Result<Self, Error> {
        let info = look_at(file)?;
        let volume: VolumeStatus = client.get(&path_with(api::VOLUME, volume))?;
        if info.virtual_size > volume.size_bytes {
            let (image, size) = (format_size(info.virtual_size), format_size(volume.size_bytes));
            let mebibytes = info.virtual_size.div_ceil(1 << 20);
            return Err(Error::new(
                "IMAGE_TOO_LARGE",
                format!("{} is not copied into volume {}", file.display(), volume.name),
                format!("it is a disk of {image}, and the volume has {size}"),
                format!(
                    "make the volume larger first: `spandrel volume resize {} {mebibytes}M`",
                    quoted(&volume.name)
                ),
            ));
        }
        let is_here = |uri: &&String| socket_of(uri).is_some_and(|socket| Path::new(socket).exists());
        let mut exports: Vec<&api::Export> = volume.exports.iter().filter(|export| export.is_up).collect();
        exports.sort_by_key(|export| Some(&export.node) != volume.owner.as_ref());
        let uri = exports.into_iter().map(|export| &export.uri).find(is_here);
        let uri = uri.ok_or_else(|| {
            Error::new(
                "VOLUME_NOT_HERE",
                format!("{} is not copied into volume {}", file.display(), volume.name),
                "no node serves it on this machine",
                "run this on a server of the cluster, with the image there",
            )
        })?;
        Ok(Self {
            file: file.to_owned(),
            format: info.format,
            size_bytes: info.virtual_size,
            uri: uri.clone(),
            volume: volume.name,
        })
    }

    /// Copies it, and shows how that gets on. If it is not copied to its end, also if this program is interrupted, `undo` is called.
    ///
    /// # Errors
    /// `IMAGE_NOT_COPIED`, and those of `undo`.
    pub fn copy(&self, undo: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let failed = |why: String| {
            Error::new(
                "IMAGE_NOT_COPIED",
                format!("{} is not copied into volume {}", self.file.display(), self.volume),
                why,
                "the volume holds a part of it: try again, or use another volume",
            )
        };
        let child = Command::new(PROGRAM)
            .args(["convert", "-p", "-n", "-f", &self.format, "-O", "raw", "--"])
            .arg(&self.file)
            .arg(&self.uri)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let cannot_start = |error| failed(format!("{PROGRAM} cannot be started: {error}"));
        let mut child = match child.map_err(cannot_start) {
            Ok(child) => child,
            Err(error) => return Err(undo().err().unwrap_or(error)),
        };
        // Whoever interrupts this ends the copying, and waits until it is undone.
        let (undone, is_undone) = std::sync::mpsc::channel::<()>();
        let (copying, volume) = (Pid::from_child(&child), self.volume.clone());
        let guard = remove_on_interrupt(move || {
            let _ = kill_process(copying, Signal::TERM);
            let _ = is_undone.recv();
            eprintln!(
                "volume {volume} holds a part of the image, over what was there: copy it anew before it is used"
            );
        });
        let bar = if std::io::stderr().is_terminal() {
            ProgressBar::new(self.size_bytes)
        } else {
            ProgressBar::hidden()
        };
        let style =
            ProgressStyle::with_template("{elapsed_precise} [{bar:30}] {bytes} of {total_bytes}, {eta} left");
        bar.set_style(style.expect("the template is well-formed").progress_chars("=> "));
        let told = child.stdout.take().expect("it was asked for");
        follow(told, |percent| bar.set_position((self.size_bytes as f64 * percent / 100.0) as u64));
        let ended = child.wait_with_output();
        bar.finish_and_clear();
        let why = match ended {
            Ok(ended) if ended.status.success() => {
                drop(guard);
                return Ok(());
            }
            Ok(ended) => String::from_utf8_lossy(&ended.stderr).trim().replace('\n', "; "),
            Err(error) => error.to_string(),
        };
        let outcome = Err(undo().err().unwrap_or_else(|| failed(why)));
        drop(undone);
        leave_to_interruption();
        outcome
    }
}

/// What an image is.
fn look_at(file: &Path) -> Result<ImageInfo, Error> {
    let unreadable = |why: String, next: &str| {
        Error::new(
            "IMAGE_UNREADABLE",
            format!("{} cannot be used as a disk image", file.display()),
            why,
            next,
        )
    };
    let asked = Command::new(PROGRAM).args(["info", "--output=json", "--"]).arg(file).output();
    let asked = asked.map_err(|error| {
        unreadable(
            format!("{PROGRAM} cannot be started: {error}"),
            "install it (Debian: `apt-get install qemu-utils`)",
        )
    })?;
    if !asked.status.success() {
        let why = String::from_utf8_lossy(&asked.stderr).trim().replace('\n', "; ");
        return Err(unreadable(why, "name a file that is a disk image, raw or qcow2"));
    }
    let info: ImageInfo = serde_json::from_slice(&asked.stdout).map_err(|error| {
        unreadable(format!("{PROGRAM} says of it what is not understood: {error}"), "report this")
    })?;
    // Whatever qemu-img does not know counts as raw.
    match std::fs::metadata(file) {
        Ok(found) if found.is_file() && info.format == "raw" && !is_disk(found.len()) => Err(unreadable(
            format!(
                "it has no format that is known, and as a raw image it would be a disk of {} bytes",
                found.len()
            ),
            "name a disk image, raw (a multiple of 512 bytes) or qcow2, that has come whole",
        )),
        _ => Ok(info),
    }
}

/// Whether a disk can have this size.
fn is_disk(bytes: u64) -> bool {
    bytes > 0 && bytes.is_multiple_of(SECTOR_BYTES)
}

/// The path of the socket in the URI of an export, if it has one.
fn socket_of(uri: &str) -> Option<&str> {
    let (_, query) = uri.strip_prefix("nbd+unix://")?.split_once('?')?;
    query.split('&').find_map(|part| part.strip_prefix("socket="))
}

/// Reads what qemu-img tells of its progress: `    (12.34/100%)`, each behind the return of the carriage.
fn follow(told: impl Read, mut at: impl FnMut(f64)) {
    let mut piece = Vec::new();
    for byte in BufReader::new(told).bytes() {
        match byte {
            Ok(b'\r' | b'\n') => {
                if let Some(percent) = percent_in(&piece) {
                    at(percent);
                }
                piece.clear();
            }
            Ok(byte) => piece.push(byte),
            Err(_) => return,
        }
    }
}

fn percent_in(piece: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(piece).ok()?;
    text.trim().strip_prefix('(')?.strip_suffix("/100%)")?.parse().ok()
}

#[cfg(test)]
#[path = "vm_image_tests.rs"]
mod tests;
