//! Which drive a name means.
//!
//! Drives are called by where they are, so a new one can come to be called like one that was lost there. Nobody guesses which
//! of the two is meant: identities are never the same.

use spandrel_shared::{DriveId, Error};

/// The drive with this name or identity, of all that there are, with their names and their identities if these are known.
/// Errors: `DRIVE_NOT_FOUND`, `DRIVE_NAME_AMBIGUOUS`.
pub fn named_drive<T>(
    drives: impl IntoIterator<Item = (String, Option<DriveId>, T)>,
    name: &str,
) -> Result<T, Error> {
    let drives: Vec<_> = drives.into_iter().collect();
    let names: Vec<String> = drives.iter().map(|(known, ..)| known.clone()).collect();
    let is_it =
        |known: &str, id: &Option<DriveId>| known == name || id.is_some_and(|id| id.to_string() == name);
    let mut found: Vec<_> = drives.into_iter().filter(|(known, id, _)| is_it(known, id)).collect();
    // What cannot say who it is stands where the drive should be that is called so.
    if found.iter().any(|(_, id, _)| id.is_some()) {
        found.retain(|(_, id, _)| id.is_some());
    }
    let ids: Vec<String> = found.iter().filter_map(|(_, id, _)| Some(id.as_ref()?.to_string())).collect();
    match (found.pop(), found.len()) {
        (Some((.., drive)), 0) => Ok(drive),
        (Some(_), _) => Err(Error::new(
            "DRIVE_NAME_AMBIGUOUS",
            format!("it is not clear which drive {name:?} is"),
            format!("{} are called so: one has come where the other one was", ids.join(" and ")),
            "name it by its identity; `spandrel drive list -o json` shows which one is lost",
        )),
        (None, _) => {
            let why = match names.is_empty() {
                true => "the cluster has no drives".to_owned(),
                false => format!("the drives are {}", names.join(", ")),
            };
            Err(Error::new("DRIVE_NOT_FOUND", format!("there is no drive {name:?}"), why, "name one of them"))
        }
    }
}

#[cfg(test)]
#[path = "named_drive_tests.rs"]
mod tests;
