//! Runs as reports read them: folders of the fleet, files of imported results, and what was published.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use spandrel_shared::Error;

use crate::folder::RunFolder;
use crate::measurement::MeasuredRun;
use crate::published;
use crate::record::FORMAT;

/// What names a published result begins with.
const PUBLISHED: &str = "published:";

/// A file of imported results.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    format: u32,
    run: MeasuredRun,
}

/// Reads the run that a path or a name stands for.
///
/// # Errors
///
/// As [`RunFolder::open`]; `FLEET_RESULTS_NOT_FOUND` also of a published result that there is not.
pub fn read_run(name: &str) -> Result<MeasuredRun, Error> {
    if let Some(name) = name.strip_prefix(PUBLISHED) {
        return published::read(name);
    }
    let path = Path::new(name);
    if path.is_dir() {
        return Ok(MeasuredRun::of_folder(&RunFolder::open(path)?));
    }
    let unreadable = |code: &str, why: String, next: &str| {
        Error::new(code, format!("{name} is no run that can be read"), why, next)
    };
    let text = fs::read_to_string(path).map_err(|error| {
        let next = "name the folder of a run, a file of `spandrel fleet import`, or a published result, as published:micron-sata";
        unreadable("FLEET_RESULTS_NOT_FOUND", error.to_string(), next)
    })?;
    let next = "name a file that `spandrel fleet import` has written; results of DISKSPD and fio are to be imported first";
    let stored: Stored = serde_json::from_str(&text)
        .map_err(|error| unreadable("FLEET_RESULTS_BROKEN", error.to_string(), next))?;
    if stored.format > FORMAT {
        let why = format!("its version is {}, and this program knows those up to {FORMAT}", stored.format);
        return Err(unreadable("FLEET_RESULTS_NEWER", why, "read it with the newer program that made it"));
    }
    Ok(stored.run)
}

/// Writes imported results to a file.
///
/// # Errors
///
/// `FLEET_RESULTS_UNWRITABLE`.
pub fn write_run(path: &Path, run: &MeasuredRun) -> Result<(), Error> {
    let stored = Stored { format: FORMAT, run: run.clone() };
    let text = serde_json::to_string(&stored).expect("runs are numbers and texts");
    fs::write(path, text).map_err(|error| {
        Error::new(
            "FLEET_RESULTS_UNWRITABLE",
            format!("{} cannot be written", path.display()),
            error.to_string(),
            "name another file with --to",
        )
    })
}

/// Reads files of DISKSPD's or fio's results, whichever they are, as one run.
///
/// # Errors
///
/// One cannot be read, or is neither (`FLEET_IMPORT_BROKEN`).
pub fn import(name: &str, paths: &[impl AsRef<Path>]) -> Result<MeasuredRun, Error> {
    let mut files = Vec::new();
    for path in paths.iter().map(AsRef::as_ref) {
        let bytes = fs::read(path)
            .map_err(|error| import_broken(path, error.to_string(), "name files that can be read"))?;
        let text = text_of(bytes).ok_or_else(|| {
            import_broken(path, "it is no text", "give files as DISKSPD or fio writes them")
        })?;
        files.push((path, text));
    }
    let is_xml = files.first().is_some_and(|(_, text)| text.trim_start().starts_with('<'));
    if is_xml { crate::read_diskspd(name, &files) } else { crate::read_fio(name, &files) }
}

/// The error that a file is not what it was given as.
pub(crate) fn import_broken(path: &Path, why: impl Into<String>, next: &str) -> Error {
    Error::new("FLEET_IMPORT_BROKEN", format!("{} cannot be imported", path.display()), why, next)
}

/// A text in UTF-8, or in UTF-16 with a byte order mark: PowerShell's `>` writes that.
fn text_of(bytes: Vec<u8>) -> Option<String> {
    // Of an odd number the last byte is half a character: there was more.
    let units = |of: fn([u8; 2]) -> u16| -> Option<Vec<u16>> {
        let units = bytes[2..].chunks(2).map(|unit| Some(of(unit.try_into().ok()?)));
        units.collect()
    };
    let text = match bytes[..] {
        [0xff, 0xfe, ..] => String::from_utf16(&units(u16::from_le_bytes)?).ok()?,
        [0xfe, 0xff, ..] => String::from_utf16(&units(u16::from_be_bytes)?).ok()?,
        _ => {
            let text = String::from_utf8(bytes).ok()?;
            text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text)
        }
    };
    // As UTF-16 without a mark has them.
    (!text.contains('\0')).then_some(text)
}

#[cfg(test)]
#[path = "stored_tests.rs"]
mod tests;
