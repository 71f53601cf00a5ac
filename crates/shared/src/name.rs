//! Names that people give to volumes and nodes.

use crate::Error;

/// The longest name, in bytes.
pub const NAME_BYTES_MAX: usize = 63;

/// Accepts a name of 1 to 63 lower- or upper-case letters, digits, `-`, `_` and `.` that starts
/// with a letter or digit: safe in a path, a URI and a shell.
pub fn validate_name(kind: &str, name: &str) -> Result<(), Error> {
    let allowed = |character: char| character.is_ascii_alphanumeric() || "-_.".contains(character);
    let why = if name.is_empty() {
        "it is empty".to_owned()
    } else if name.len() > NAME_BYTES_MAX {
        format!("it has {} characters, more than {NAME_BYTES_MAX}", name.len())
    } else if !name.starts_with(|character: char| character.is_ascii_alphanumeric()) {
        "it does not start with a letter or a digit".to_owned()
    } else if let Some(character) = name.chars().find(|character| !allowed(*character)) {
        format!("it contains {character:?}")
    } else {
        return Ok(());
    };
    Err(Error::new(
        "NAME_INVALID",
        format!("{name:?} cannot be the name of a {kind}"),
        why,
        "use 1 to 63 letters, digits, '-', '_' or '.', the first one a letter or a digit",
    ))
}

#[cfg(test)]
#[path = "name_tests.rs"]
mod tests;
