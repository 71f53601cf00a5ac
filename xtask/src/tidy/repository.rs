//! The files of the repository, read once into memory.
//!
//! Every check works on this and never on the file system, so that a test plants a whole
//! repository as a list of paths and texts.
//!
//! Belongs to the repository: every file below the root except `.git` and what the root's
//! `.gitignore` names. Of git's patterns only two forms are understood, `/name` (an entry of the
//! root) and `*.ending`; [`Repository::read`] refuses others rather than guess.

use std::collections::BTreeMap;
use std::io;
use std::ops::Bound;
use std::path::Path;

/// The largest file that may be in the repository.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// What is known of one file.
#[derive(Debug, PartialEq, Eq)]
pub enum Contents {
    /// UTF-8 without NUL.
    Text(String),
    /// Anything else, symbolic links included: its bytes are nobody's business here.
    Other,
    /// Above [`FILE_BYTES_MAX`]; not read.
    TooLarge {
        /// Its size.
        bytes: u64,
    },
}

/// All files by path: relative to the root, parts separated by `/`, in alphabetical order.
pub struct Repository {
    files: BTreeMap<String, Contents>,
}

impl Repository {
    /// Reads every file below `root`.
    ///
    /// # Errors
    /// When a file or folder cannot be read, or `.gitignore` holds a pattern of another form.
    pub fn read(root: &Path) -> io::Result<Self> {
        let ignored = match std::fs::read_to_string(root.join(".gitignore")) {
            Ok(text) => Ignored::parse(&text)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ignored::default(),
            Err(error) => return Err(error),
        };
        let mut repository = Self { files: BTreeMap::new() };
        repository.read_folder(root, "", &ignored)?;
        Ok(repository)
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str, ignored: &Ignored) -> io::Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                return Err(io::Error::other(format!("{} is not UTF-8", entry.path().display())));
            };
            let path = format!("{prefix}{name}");
            if ignored.covers(&path) {
                continue;
            }
            let contents = match entry.file_type()? {
                kind if kind.is_dir() => {
                    self.read_folder(&entry.path(), &format!("{path}/"), ignored)?;
                    continue;
                }
                kind if kind.is_symlink() => Contents::Other,
                _ => match read_file(&entry.path()) {
                    Ok(contents) => contents,
                    // An editor's or a build's passing file; it is not there any more.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(error),
                },
            };
            self.files.insert(path, contents);
        }
        Ok(())
    }

    /// A repository of these paths and texts.
    #[cfg(test)]
    pub fn of(files: &[(&str, &str)]) -> Self {
        let files = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), Contents::Text((*text).to_owned())))
            .collect();
        Self { files }
    }

    /// All files.
    pub fn files(&self) -> impl Iterator<Item = (&str, &Contents)> {
        self.files.iter().map(|(path, contents)| (path.as_str(), contents))
    }

    /// The text files whose path ends so.
    pub fn texts_ending(&self, ending: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().filter_map(move |(path, contents)| match contents {
            Contents::Text(text) if path.ends_with(ending) => Some((path.as_str(), text.as_str())),
            _ => None,
        })
    }

    /// The text of one file.
    pub fn text(&self, path: &str) -> Option<&str> {
        match self.files.get(path) {
            Some(Contents::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Whether there is a file of this path.
    pub fn has_file(&self, path: &str) -> bool {
        self.files.contains_key(path)
    }

    /// Whether there is a file or a folder of this path; the empty path is the root.
    pub fn has_path(&self, path: &str) -> bool {
        path.is_empty() || self.has_file(path) || self.files_below(path).next().is_some()
    }

    /// The paths of all files below a folder.
    pub fn files_below(&self, folder: &str) -> impl Iterator<Item = &str> {
        let prefix = format!("{folder}/");
        self.files
            .range::<String, _>((Bound::Included(&prefix), Bound::Unbounded))
            .map(|(path, _)| path.as_str())
            .take_while(move |path| path.starts_with(&prefix))
    }
}

fn read_file(path: &Path) -> io::Result<Contents> {
    let bytes = std::fs::metadata(path)?.len();
    if bytes > FILE_BYTES_MAX {
        return Ok(Contents::TooLarge { bytes });
    }
    let read = std::fs::read(path)?;
    Ok(match String::from_utf8(read) {
        Ok(text) if !text.contains('\0') => Contents::Text(text),
        _ => Contents::Other,
    })
}

#[derive(Default)]
struct Ignored {
    root_entries: Vec<String>,
    endings: Vec<String>,
}

impl Ignored {
    fn parse(gitignore: &str) -> io::Result<Self> {
        let mut ignored = Self::default();
        for pattern in gitignore.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let is_plain = |rest: &str| !rest.contains(['*', '?', '[', '/', '!']);
            if let Some(name) = pattern.strip_prefix('/').filter(|name| is_plain(name)) {
                ignored.root_entries.push(name.to_owned());
            } else if let Some(ending) = pattern.strip_prefix('*').filter(|ending| is_plain(ending)) {
                ignored.endings.push(ending.to_owned());
            } else {
                return Err(io::Error::other(format!(
                    ".gitignore: the pattern {pattern:?} is neither /name nor *.ending; write it as one of them, \
                     or teach xtask/src/tidy/repository.rs its form"
                )));
            }
        }
        Ok(ignored)
    }

    fn covers(&self, path: &str) -> bool {
        path == ".git"
            || self.root_entries.iter().any(|entry| entry == path)
            || self.endings.iter().any(|ending| path.ends_with(ending.as_str()))
    }
}

/// The folder that holds `path`; empty for an entry of the root.
pub fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// `relative` as seen from `folder`, with `.` and `..` resolved. `None` if it leaves the root.
pub fn resolve(folder: &str, relative: &str) -> Option<String> {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in relative.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
#[path = "repository_tests.rs"]
mod tests;
