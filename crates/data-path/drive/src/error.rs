//! How a store refuses or fails.

use std::fmt;

use spandrel_platform::{DriveError, DriveErrorKind, DriveOperation};

/// Why the store did not do what it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreError {
    /// There is no room for the change. Nothing changed.
    NoRoom,
    /// There is no such slab or volume on the drive, or the range lies outside it. Nothing changed.
    NotFound,
    /// The drive failed, now or earlier. The change may be found on it later or not. The store
    /// does nothing more until the drive is attached anew.
    Failed(String),
}

impl StoreError {
    pub(crate) fn from_drive(error: &DriveError) -> Self {
        match error.kind {
            DriveErrorKind::NoRoom => StoreError::NoRoom,
            _ => StoreError::Failed(error.to_string()),
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::NoRoom => formatter.write_str("the drive has no room"),
            StoreError::NotFound => formatter.write_str("no such blocks on the drive"),
            StoreError::Failed(detail) => write!(formatter, "the drive failed: {detail}"),
        }
    }
}

impl std::error::Error for StoreError {}

/// Why a drive was not attached or formatted. Nothing on it was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// The drive does not carry a store: it is empty.
    Empty,
    /// The drive carries something else; what it looks like.
    Foreign(String),
    /// The drive belongs to another cluster or node, or is another drive.
    WrongIdentity(String),
    /// The format is newer than this program.
    Newer(String),
    /// The drive is too small for one slab, or has shrunk since it was formatted.
    Size(String),
    /// The drive's attach number is `found`, and `known` is known: this is an old image of it.
    Old {
        /// By what stands on it.
        found: u64,
        /// By what the caller knows.
        known: u64,
    },
    /// The drive is bound to a cache drive, or to none, other than the caller says.
    Cache(String),
    /// What stands on the drive is damaged beyond what the store can start from.
    Damaged(String),
    /// The drive itself failed.
    Drive(DriveError),
}

impl From<DriveError> for AttachError {
    fn from(error: DriveError) -> Self {
        AttachError::Drive(error)
    }
}

/// A store that fails while it is attached: the drive does not do what it is asked.
impl From<StoreError> for AttachError {
    fn from(error: StoreError) -> Self {
        let kind = match error {
            StoreError::NoRoom => DriveErrorKind::NoRoom,
            _ => DriveErrorKind::Medium,
        };
        let (operation, detail) = (DriveOperation::Open, error.to_string());
        AttachError::Drive(DriveError { kind, operation, offset: 0, detail })
    }
}

impl fmt::Display for AttachError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AttachError::Empty => formatter.write_str("the drive is not formatted"),
            AttachError::Foreign(what) => write!(formatter, "the drive carries {what}"),
            AttachError::WrongIdentity(detail)
            | AttachError::Newer(detail)
            | AttachError::Size(detail)
            | AttachError::Cache(detail)
            | AttachError::Damaged(detail) => formatter.write_str(detail),
            AttachError::Old { found, known } => write!(
                formatter,
                "by what stands on it this is attach {found}, but attach {known} is known: its content is an old image"
            ),
            AttachError::Drive(error) => write!(formatter, "{error}"),
        }
    }
}

impl std::error::Error for AttachError {}
